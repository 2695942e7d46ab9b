//! Routes: which handler a method and a path belong to (RFC 9110 section 9).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use apus_http::{HeaderValue, Method};

use crate::handler::AnyHandler;

/// The routes of an application.
#[derive(Clone, Default)]
pub(crate) struct Router {
    paths: matchit::Router<usize>,
    routes: Vec<Route>,
    by_path: HashMap<String, usize>,
}

/// The handlers of a path, by method.
#[derive(Clone, Default)]
pub(crate) struct Route {
    methods: Vec<(Method, Arc<dyn AnyHandler>)>,
    any: Option<Arc<dyn AnyHandler>>,
}

impl Router {
    /// Adds a handler; without a method, for all that have none of their own.
    pub(crate) fn add(
        &mut self,
        method: Option<Method>,
        path: &str,
        handler: Arc<dyn AnyHandler>,
    ) -> Result<(), RouteError> {
        let refuse = |why| {
            Err(RouteError {
                path: path.to_owned(),
                why,
            })
        };
        if !path.starts_with('/') {
            return refuse(Why::NotAbsolute);
        }
        let index = match self.by_path.get(path) {
            Some(index) => *index,
            None => {
                let index = self.routes.len();
                if let Err(error) = self.paths.insert(path, index) {
                    return refuse(Why::Path(error));
                }
                self.by_path.insert(path.to_owned(), index);
                self.routes.push(Route::default());
                index
            }
        };
        let Some(route) = self.routes.get_mut(index) else {
            return Ok(());
        };
        match method {
            None if route.any.is_none() => route.any = Some(handler),
            Some(method) if !route.methods.iter().any(|(other, _)| *other == method) => {
                route.methods.push((method, handler));
            }
            _ => return refuse(Why::Twice),
        }
        Ok(())
    }

    /// The route of a path in normal form, and its parameters.
    pub(crate) fn find<'k, 'p>(
        &'k self,
        path: &'p str,
    ) -> Option<(&'k Route, matchit::Params<'k, 'p>)> {
        let found = self.paths.at(path).ok()?;
        Some((self.routes.get(*found.value)?, found.params))
    }
}

impl Route {
    /// The handler of a method. HEAD is answered by that of GET if it has none of its own; the
    /// connection leaves the content out.
    pub(crate) fn handler(&self, method: &Method) -> Option<&dyn AnyHandler> {
        let of = |wanted: &Method| {
            self.methods
                .iter()
                .find(|(method, _)| method == wanted)
                .map(|(_, handler)| &**handler)
        };
        of(method)
            .or_else(|| of(&Method::GET).filter(|_| *method == Method::HEAD))
            .or(self.any.as_deref())
    }

    /// The methods that are answered, for `Allow` (RFC 9110 section 10.2.1).
    pub(crate) fn allow(&self) -> HeaderValue {
        let mut names: Vec<&str> = self
            .methods
            .iter()
            .map(|(method, _)| method.as_str())
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

/// A path that a route or a mount was added for, but cannot have.
#[derive(Clone, Debug)]
pub struct RouteError {
    path: String,
    why: Why,
}

#[derive(Clone, Debug)]
enum Why {
    NotAbsolute,
    Twice,
    Path(matchit::InsertError),
}

impl RouteError {
    pub(crate) fn twice(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            why: Why::Twice,
        }
    }

    pub(crate) fn not_absolute(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            why: Why::NotAbsolute,
        }
    }
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        match &self.why {
            Why::NotAbsolute => write!(
                f,
                "the path {path:?} must start with a slash, and a mount's must not end with one"
            ),
            Why::Twice => write!(f, "the path {path:?} has two handlers for the same method"),
            Why::Path(error) => write!(f, "the path {path:?} cannot be a route: {error}"),
        }
    }
}

impl std::error::Error for RouteError {}
