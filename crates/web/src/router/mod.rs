//! Routes: which handler a method and a path belong to (RFC 9110 section 9).
//!
//! A tree finds the path by its literal parts. What a constraint then refuses, and what the tree cannot
//! hold beside another, is looked for among all patterns one by one, which is slow and rare.

mod error;
mod pattern;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;

use apus_http::{HeaderValue, Method};

use apus_handler::function::AnyHandler;
use apus_handler::middleware::AnyMiddleware;

pub(crate) use error::Why;
pub use error::{RouteError, RouteErrors};
pub(crate) use pattern::{Pattern, Ranges, UnfitValue};

/// The routes of a host.
#[derive(Clone, Default)]
pub(crate) struct Router {
    /// Finds a shape.
    tree: matchit::Router<usize>,
    by_shape: HashMap<String, usize>,
    /// The routes of each shape, which are several if their constraints differ.
    shapes: Vec<Vec<usize>>,
    routes: Vec<Route>,
    /// Whether the tree does not know all.
    is_searched: bool,
}

/// A path and its handlers.
#[derive(Clone)]
pub(crate) struct Route {
    pub(crate) pattern: Pattern,
    pub(crate) methods: Vec<Endpoint>,
}

/// A handler, and what stands around it.
#[derive(Clone)]
pub(crate) struct Endpoint {
    /// `None`: all that the route has no other for.
    pub(crate) method: Option<Method>,
    pub(crate) handler: Arc<dyn AnyHandler>,
    /// The layers of its groups, outermost first, and its own.
    pub(crate) layers: Arc<[Arc<dyn AnyMiddleware>]>,
    /// The group that it was added to.
    pub(crate) scope: usize,
    pub(crate) name: Option<Box<str>>,
    pub(crate) at: &'static Location<'static>,
}

/// Where a request belongs.
pub(crate) enum Found {
    /// A route and one of its endpoints.
    Endpoint(usize, usize, Ranges),
    /// The path is there, but not with this method.
    NoMethod(usize),
    Nothing,
}

impl Router {
    pub(crate) fn route(&self, index: usize) -> Option<&Route> {
        self.routes.get(index)
    }

    /// Adds an endpoint.
    pub(crate) fn add(&mut self, pattern: Pattern, endpoint: Endpoint) -> Result<(), RouteError> {
        let text = pattern.shape();
        let shape = match self.by_shape.get(&text) {
            Some(shape) => *shape,
            None => {
                let shape = self.shapes.len();
                match self.tree.insert(&text, shape) {
                    Ok(()) => {}
                    // Not the same path, but one that the tree cannot tell from it.
                    Err(matchit::InsertError::Conflict { .. }) => self.is_searched = true,
                    Err(error) => {
                        let why = Why::Tree(error.to_string());
                        return Err(RouteError::new(pattern.as_str(), endpoint.at, why));
                    }
                }
                if pattern.is_root() {
                    // Another route may be for that path alone.
                    let _ = self.tree.insert(format!("{text}/"), shape);
                }
                self.shapes.push(Vec::new());
                self.by_shape.insert(text, shape);
                shape
            }
        };
        let Some(places) = self.shapes.get_mut(shape) else {
            return Ok(());
        };
        let same = places.iter().find(|place| {
            let other = self.routes.get(**place);
            other.is_some_and(|other| other.pattern.constraint() == pattern.constraint())
        });
        if let Some(route) = same.and_then(|place| self.routes.get_mut(*place)) {
            let mut methods = route.methods.iter();
            if let Some(other) = methods.find(|other| other.method == endpoint.method) {
                let why = Why::Twice {
                    method: endpoint.method.map(|method| method.to_string()),
                    other: other.at,
                };
                return Err(RouteError::new(pattern.as_str(), endpoint.at, why));
            }
            route.methods.push(endpoint);
            return Ok(());
        }
        let index = self.routes.len();
        // What is constrained is asked first.
        match pattern.is_constrained() {
            true => places.insert(0, index),
            false => places.push(index),
        }
        self.is_searched |= pattern.is_constrained();
        self.routes.push(Route {
            pattern,
            methods: vec![endpoint],
        });
        Ok(())
    }

    /// Where a path in normal form and a method belong.
    pub(crate) fn find(&self, method: &Method, path: &str) -> Found {
        let mut no_method = None;
        if let Ok(found) = self.tree.at(path) {
            for place in self.shapes.get(*found.value).into_iter().flatten() {
                let Some(route) = self.routes.get(*place) else {
                    continue;
                };
                if !route.pattern.permits(path) {
                    continue;
                }
                if let Some(endpoint) = route.endpoint(method) {
                    let ranges = found.params.iter().map(|(_, value)| {
                        let start = value.as_ptr() as usize;
                        let start = start.saturating_sub(path.as_ptr() as usize);
                        start..start.saturating_add(value.len())
                    });
                    return Found::Endpoint(*place, endpoint, ranges.collect());
                }
                no_method.get_or_insert(*place);
            }
        }
        if self.is_searched && no_method.is_none() {
            for (place, route) in self.routes.iter().enumerate() {
                let Some(ranges) = route.pattern.find(path) else {
                    continue;
                };
                if let Some(endpoint) = route.endpoint(method) {
                    return Found::Endpoint(place, endpoint, ranges);
                }
                no_method.get_or_insert(place);
            }
        }
        no_method.map_or(Found::Nothing, Found::NoMethod)
    }
}

impl Route {
    /// The endpoint of a method. HEAD is answered by that of GET if it has none of its own; the
    /// connection leaves the content out.
    fn endpoint(&self, method: &Method) -> Option<usize> {
        let of = |wanted: Option<&Method>| {
            let mut endpoints = self.methods.iter();
            endpoints.position(|endpoint| endpoint.method.as_ref() == wanted)
        };
        of(Some(method))
            .or_else(|| of(Some(&Method::GET)).filter(|_| *method == Method::HEAD))
            .or_else(|| of(None))
    }

    /// The methods that are answered, for `Allow` (RFC 9110 section 10.2.1).
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
