//! `Router`: finds the handler of a method and a path (RFC 9110 section 9).
//!
//! A tree finds a path by its literal parts. Routes with constraints, and routes that conflict in the
//! tree, are searched for one by one after it, which is slower and rare.

#[cfg(feature = "regex")]
mod constraint;
#[cfg(not(feature = "regex"))]
#[path = "constraint_off.rs"]
mod constraint;
mod error;
mod pattern;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use apus_http::{HeaderValue, Method};

use apus_handler::function::AnyHandler;
use apus_handler::middleware::AnyMiddleware;

pub(crate) use error::RouteErrorKind;
pub use error::{RouteError, RouteErrors};
pub(crate) use pattern::{PathValueError, Ranges, RoutePattern};

/// The routes of a host.
#[derive(Clone, Default)]
pub(crate) struct Router {
    /// Finds the index of a shape.
    tree: matchit::Router<usize>,
    by_shape: HashMap<String, usize>,
    /// The routes of each shape. Several routes of one shape have different constraints.
    shapes: Vec<Vec<usize>>,
    routes: Vec<Route>,
    /// Whether some routes are not in the tree.
    is_searched: bool,
}

/// A path and its handlers.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) pattern: RoutePattern,
    pub(crate) methods: Vec<Endpoint>,
}

/// A handler and its layers.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `None` stands for all methods without their own endpoint.
    pub(crate) method: Option<Method>,
    pub(crate) handler: Arc<dyn AnyHandler>,
    /// The layers of its groups, outermost first, then the layers of the handler.
    pub(crate) layers: Arc<[Arc<dyn AnyMiddleware>]>,
    /// The group that it was added to.
    pub(crate) scope: usize,
    pub(crate) name: Option<Box<str>>,
    pub(crate) at: &'static Location<'static>,
}

/// The result of a search for a route.
pub(crate) enum RouteMatch {
    /// A route and one of its endpoints.
    Endpoint(usize, usize, Ranges),
    /// The path has a route, but not for this method.
    NoMethod(usize),
    Nothing,
}

impl Router {
    pub(crate) fn route(&self, index: usize) -> Option<&Route> {
        self.routes.get(index)
    }

    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Adds an endpoint.
    pub(crate) fn add(
        &mut self,
        pattern: RoutePattern,
        endpoint: Endpoint,
    ) -> Result<(), RouteError> {
        let text = pattern.shape();
        let shape = match self.by_shape.get(&text) {
            Some(shape) => *shape,
            None => {
                let shape = self.shapes.len();
                match self.tree.insert(&text, shape) {
                    Ok(()) => {}
                    // The tree cannot hold both paths, though they differ.
                    Err(matchit::InsertError::Conflict { .. }) => self.is_searched = true,
                    Err(error) => {
                        let why = RouteErrorKind::Tree(error.to_string());
                        return Err(RouteError::new(pattern.as_str(), endpoint.at, why));
                    }
                }
                if pattern.is_root() {
                    // It fails if a route for exactly that path exists.
                    let _ = self.tree.insert(format!("{text}/"), shape);
                }
                self.shapes.push(Vec::new());
                self.by_shape.insert(text, shape);
                shape
            }
        };
        let Some(indexes) = self.shapes.get_mut(shape) else {
            return Ok(());
        };
        let same = indexes.iter().find(|index| {
            let other = self.routes.get(**index);
            other.is_some_and(|other| other.pattern.constraint() == pattern.constraint())
        });
        if let Some(route) = same.and_then(|index| self.routes.get_mut(*index)) {
            let mut methods = route.methods.iter();
            if let Some(other) = methods.find(|other| other.method == endpoint.method) {
                let why = RouteErrorKind::Twice {
                    method: endpoint.method.map(|method| method.to_string()),
                    other: other.at,
                };
                return Err(RouteError::new(pattern.as_str(), endpoint.at, why));
            }
            route.methods.push(endpoint);
            return Ok(());
        }
        let index = self.routes.len();
        // Routes with constraints are tried first.
        if pattern.is_constrained() {
            indexes.insert(0, index)
        } else {
            indexes.push(index)
        }
        self.is_searched |= pattern.is_constrained();
        self.routes.push(Route {
            pattern,
            methods: vec![endpoint],
        });
        Ok(())
    }

    /// Finds the route of a path in normal form, and the endpoint of a method.
    pub(crate) fn find(&self, method: &Method, path: &str) -> RouteMatch {
        let mut no_method = None;
        if let Ok(found) = self.tree.at(path) {
            for index in self.shapes.get(*found.value).into_iter().flatten() {
                let Some(route) = self.routes.get(*index) else {
                    continue;
                };
                if !route.pattern.permits(path) {
                    continue;
                }
                if let Some(endpoint) = route.endpoint(method) {
                    let searched = || {
                        let ranges = found.params.iter().map(|(_, value)| {
                            let start = value.as_ptr() as usize;
                            let start = start.saturating_sub(path.as_ptr() as usize);
                            start..start.saturating_add(value.len())
                        });
                        ranges.collect()
                    };
                    let ranges = route.pattern.ranges_of_segments(path);
                    let ranges = ranges.unwrap_or_else(searched);
                    return RouteMatch::Endpoint(*index, endpoint, ranges);
                }
                no_method.get_or_insert(*index);
            }
        }
        if self.is_searched && no_method.is_none() {
            for (index, route) in self.routes.iter().enumerate() {
                let Some(ranges) = route.pattern.find(path) else {
                    continue;
                };
                if let Some(endpoint) = route.endpoint(method) {
                    return RouteMatch::Endpoint(index, endpoint, ranges);
                }
                no_method.get_or_insert(index);
            }
        }
        no_method.map_or(RouteMatch::Nothing, RouteMatch::NoMethod)
    }
}

impl Route {
    /// The endpoint of a method. HEAD uses the endpoint of GET if it has none of its own; the connection
    /// does not send the body.
    fn endpoint(&self, method: &Method) -> Option<usize> {
        let of = |wanted: Option<&Method>| {
            let mut endpoints = self.methods.iter();
            endpoints.position(|endpoint| endpoint.method.as_ref() == wanted)
        };
        of(Some(method))
            .or_else(|| of(Some(&Method::GET)).filter(|_| *method == Method::HEAD))
            .or_else(|| of(None))
    }

    /// Whether the route has its own endpoint for a method.
    pub(crate) fn has_method(&self, method: &Method) -> bool {
        let mut methods = self.methods.iter();
        methods.any(|endpoint| endpoint.method.as_ref() == Some(method))
    }

    /// The methods of the route, for `Allow` (RFC 9110 section 10.2.1).
    pub(crate) fn allow(&self) -> HeaderValue {
        let methods = self.methods.iter();
        let mut names: Vec<&str> = methods
            .filter_map(|endpoint| endpoint.method.as_ref())
            .map(Method::as_str)
            .collect();
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        HeaderValue::from_str(&names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
    }
}
