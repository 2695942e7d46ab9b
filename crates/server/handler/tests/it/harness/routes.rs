//! `Routes`: handlers behind paths, with layers around them.

use std::error::Error;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use apus_handler::function::{AnyHandler, ErasedHandler, Handler};
use apus_handler::matched::RouteScope;
use apus_handler::middleware::{
    AnyMiddleware, Chain, ErasedMiddleware, Middleware, Next, Position,
};
use apus_handler::rendering::ErrorRules;
use apus_handler::{Matched, RouteCheck};
use apus_http::{
    Method, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
};

/// A service of handlers with layers around all of them. It is a [`Chain`], as an application has one: layers know the
/// route and its parameters.
#[derive(Clone)]
pub(crate) struct Routes {
    layers: Vec<Arc<dyn AnyMiddleware>>,
    routes: Vec<Route>,
    body_limit: u64,
}

#[derive(Clone)]
struct Route {
    method: Method,
    /// The path, in which `{name}` stands for a segment.
    path: String,
    names: Vec<Box<str>>,
    layers: Vec<Arc<dyn AnyMiddleware>>,
    handler: Arc<dyn AnyHandler>,
}

impl Routes {
    pub(crate) fn new() -> Self {
        Self {
            layers: Vec::new(),
            routes: Vec::new(),
            body_limit: 2 * 1024 * 1024,
        }
    }

    /// Adds a layer inside of those that were added before.
    pub(crate) fn layer<M: 'static>(mut self, middleware: impl Middleware<M>) -> Self {
        self.layers
            .push(Arc::new(ErasedMiddleware::new(middleware)));
        self
    }

    /// The most bytes of a body that an extractor keeps in memory.
    pub(crate) fn body_limit(mut self, bytes: u64) -> Self {
        self.body_limit = bytes;
        self
    }

    pub(crate) fn get<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::GET, path, handler)
    }

    pub(crate) fn post<M: 'static>(self, path: &str, handler: impl Handler<M>) -> Self {
        self.route(Method::POST, path, handler)
    }

    pub(crate) fn route<M: 'static>(
        mut self,
        method: Method,
        path: &str,
        handler: impl Handler<M>,
    ) -> Self {
        let segments = path.split('/');
        let names = segments.filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'));
        let handler = ErasedHandler::new(handler);
        self.routes.push(Route {
            method,
            path: path.to_owned(),
            names: names.map(Box::from).collect(),
            layers: handler.layers(),
            handler: Arc::new(handler),
        });
        self
    }

    /// Adds routes below a path, with their layers inside of those around all.
    pub(crate) fn nest(mut self, prefix: &str, inner: Self) -> Self {
        for mut route in inner.routes {
            route.path = format!("{prefix}{}", route.path.trim_end_matches('/'));
            route.layers = [inner.layers.clone(), route.layers].concat();
            self.routes.push(route);
        }
        self
    }
}

impl ServiceFactory for Routes {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(RoutesService(Rc::new(RouteChain {
            layers: self.layers.clone(),
            routes: self.routes.clone(),
            scope: RouteScope {
                body_limit: self.body_limit,
                ..RouteScope::default()
            },
        })))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        for route in &self.routes {
            let mut check = RouteCheck::new(&route.names, &[], true);
            for layer in self.layers.iter().chain(&route.layers) {
                layer.check(&mut check);
            }
            route.handler.check(&mut check);
            let mistakes = check.take_mistakes();
            if !mistakes.is_empty() {
                return Err(mistakes.join("; ").into());
            }
        }
        Ok(())
    }

    fn routes(&self) -> Vec<RouteInfo> {
        Vec::new()
    }
}

/// The service of one worker.
struct RoutesService(Rc<RouteChain>);

struct RouteChain {
    layers: Vec<Arc<dyn AnyMiddleware>>,
    routes: Vec<Route>,
    scope: RouteScope,
}

impl Service for RoutesService {
    fn call(&self, request: Request) -> ResponseFuture {
        self.0.clone().call(Position::Outer(0), request)
    }
}

impl Chain for RouteChain {
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture {
        let index = match &position {
            Position::Outer(index) => *index,
            Position::Inner(index, _) => self.layers.len() + index,
        };
        let found = self.find(&request);
        let inner = found.as_ref().map_or(&[][..], |found| &found.route.layers);
        if let Some(layer) = self.layers.iter().chain(inner).nth(index).cloned() {
            let next = match (index + 1).checked_sub(self.layers.len()) {
                Some(inner) => Position::Inner(inner, Box::new(())),
                None => Position::Outer(index + 1),
            };
            return layer.call(request, Next::new(self, next));
        }
        let Some(found) = found else {
            return Response::new(StatusCode::NOT_FOUND).into();
        };
        if found.route.responds_to(request.method()) {
            let matched = found.matched(&self.scope);
            return found.route.handler.call(request, &matched);
        }
        let methods = [Method::GET, Method::HEAD, Method::POST, Method::OPTIONS];
        let status = if methods.contains(request.method()) {
            StatusCode::METHOD_NOT_ALLOWED
        } else {
            StatusCode::NOT_IMPLEMENTED
        };
        Response::new(status).into()
    }

    fn route<'c>(&'c self, _: &'c Position, request: &Request) -> Option<&'c str> {
        Some(&self.find(request)?.route.path)
    }

    fn errors(&self, _: &Position, _: &Request) -> &ErrorRules {
        &self.scope.errors
    }

    fn with_matched(
        &self,
        _: &Position,
        request: &mut Request,
        run: &mut dyn FnMut(&mut Request, &Matched<'_>),
    ) {
        match self.find(request) {
            None => run(request, &Matched::unknown(&self.scope)),
            Some(found) => run(request, &found.matched(&self.scope)),
        }
    }
}

/// The route of a request.
struct FoundRoute<'a> {
    route: &'a Route,
    /// The path in normal form.
    path: String,
    /// Where the parameters are in it.
    ranges: Vec<Range<usize>>,
}

impl FoundRoute<'_> {
    fn matched<'a>(&'a self, scope: &'a RouteScope) -> Matched<'a> {
        Matched {
            names: &self.route.names,
            ranges: &self.ranges,
            decoded: Some(&self.path),
            ..Matched::unknown(scope)
        }
    }
}

impl RouteChain {
    /// The route of a path. One that has the method goes before one that has not.
    fn find(&self, request: &Request) -> Option<FoundRoute<'_>> {
        let path = String::from_utf8(request.plain_path().ok()?.to_vec()).ok()?;
        let of_path = self
            .routes
            .iter()
            .filter(|route| route.parameters(&path).is_some());
        let mut of_method = of_path.clone();
        let route = of_method
            .find(|route| route.responds_to(request.method()))
            .or_else(|| of_path.clone().next())?;
        let ranges = route.parameters(&path)?;
        Some(FoundRoute {
            route,
            path,
            ranges,
        })
    }
}

impl Route {
    fn responds_to(&self, method: &Method) -> bool {
        self.method == *method || self.method == Method::GET && *method == Method::HEAD
    }

    /// Where the parameters are in a path, if it is one of this route.
    fn parameters(&self, path: &str) -> Option<Vec<Range<usize>>> {
        let mut ranges = Vec::new();
        let mut start = 0;
        let mut segments = path.split('/');
        for wanted in self.path.split('/') {
            let segment = segments.next()?;
            if wanted.starts_with('{') {
                ranges.push(start..start + segment.len());
            } else if wanted != segment {
                return None;
            }
            start += segment.len() + 1;
        }
        segments.next().is_none().then_some(ranges)
    }
}
