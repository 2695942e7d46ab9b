//! The description of a route, for people.

use http::Method;

/// A route or a mount of an application, as [`ServiceFactory::routes`](crate::ServiceFactory::routes) lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The method; `None` stands for all methods without their own route for the path.
    pub method: Option<Method>,
    /// The path with the prefixes of its groups. The path of a mount ends with `/{*}`.
    pub path: String,
    /// The host, if the route is for one host.
    pub host: Option<String>,
    /// The name from which URLs of the route are built.
    pub name: Option<String>,
    /// The type name of the handler; `mount` for a mount.
    pub handler: String,
    /// The place in the source code, as `file:line:column`.
    pub at: String,
}
