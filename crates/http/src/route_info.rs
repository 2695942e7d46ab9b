//! `RouteInfo`: a route as it is listed for people.

use http::Method;

/// What a service answers, as [`ServiceFactory::routes`](crate::ServiceFactory::routes) lists it: a route of an
/// application, or something mounted in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    /// The method; `None` stands for all that the path has no other for.
    pub method: Option<Method>,
    /// The path, groups included. A mount has `/{*}` behind it.
    pub path: String,
    /// The host, if it is for one.
    pub host: Option<String>,
    /// The name by which its address can be made.
    pub name: Option<String>,
    /// The handler as the compiler names it; for a mount, `mount`.
    pub handler: String,
    /// Where it was written, as `file:line:column`.
    pub at: String,
}
