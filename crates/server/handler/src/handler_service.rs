//! `HandlerService`: a handler as a service, without an application around it.

use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Request, ResponseFuture, Service, ServiceFactory};

use crate::function::{AnyHandler, ErasedHandler, Handler};
use crate::matched::{DEFAULT_BODY_LIMIT, Matched, RouteScope};
use crate::middleware::{AnyMiddleware, Chain, Next, Position};
use crate::rendering::ErrorRules;
use crate::route_check::RouteCheck;
use crate::state::{StateSource, States};

/// A service that calls one handler for each request, whatever its method and path are.
///
/// It gives the handler its state and makes the responses to its errors, as an application does. There are no path
/// parameters, since there is no route. With [`Layered`](crate::Layered), it has layers around it.
///
/// ```
/// use apus_handler::{HandlerService, State};
/// use apus_http::ServiceFactory;
///
/// let greet = async |State(greeting): State<String>| format!("{greeting}!");
/// let service = HandlerService::new(greet).state("Hello".to_owned());
/// assert!(service.check().is_ok());
/// ```
#[derive(Clone)]
pub struct HandlerService {
    handler: Arc<dyn AnyHandler>,
    states: Vec<StateSource>,
}

impl HandlerService {
    /// A service of a handler without state.
    pub fn new<Marker: 'static>(handler: impl Handler<Marker>) -> Self {
        Self {
            handler: Arc::new(ErasedHandler::new(handler)),
            states: Vec::new(),
        }
    }

    /// Adds a value that the handler takes as [`State`](crate::State).
    #[must_use]
    pub fn state<T: Clone + Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.push(StateSource::shared(value));
        self
    }
}

impl ServiceFactory for HandlerService {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(ServedHandler(Rc::new(HandlerChain {
            layers: self.handler.layers(),
            handler: self.handler.clone(),
            scope: RouteScope {
                states: States::default().with(&self.states),
                body_limit: DEFAULT_BODY_LIMIT,
                errors: ErrorRules::default(),
            },
        })))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        let states: Vec<_> = self.states.iter().map(StateSource::type_id).collect();
        // Layers around this service may provide more.
        let mut route = RouteCheck::new(&[], &states, false);
        for layer in self.handler.layers() {
            layer.check(&mut route);
        }
        self.handler.check(&mut route);
        match route.take_mistakes() {
            mistakes if mistakes.is_empty() => Ok(()),
            mistakes => Err(mistakes.join("\n").into()),
        }
    }
}

impl fmt::Debug for HandlerService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerService")
            .field("handler", &self.handler.name())
            .finish_non_exhaustive()
    }
}

/// The handler of one worker.
struct ServedHandler(Rc<HandlerChain>);

/// The layers of the handler alone, and the handler.
struct HandlerChain {
    layers: Vec<Arc<dyn AnyMiddleware>>,
    handler: Arc<dyn AnyHandler>,
    scope: RouteScope,
}

impl Service for ServedHandler {
    fn call(&self, request: Request) -> ResponseFuture {
        let rendering = Matched::unknown(&self.0.scope).rendering(&request);
        let response = self.0.clone().call(Position::Outer(0), request);
        response.map(move |response| rendering.complete(response))
    }
}

impl Chain for HandlerChain {
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture {
        let (Position::Outer(index) | Position::Inner(index, _)) = position;
        match self.layers.get(index).cloned() {
            Some(layer) => {
                let position = Position::Outer(index.saturating_add(1));
                layer.call(request, Next::new(self, position))
            }
            None => self.handler.call(request, &Matched::unknown(&self.scope)),
        }
    }

    fn route<'c>(&'c self, _: &'c Position, _: &Request) -> Option<&'c str> {
        None
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
        run(request, &Matched::unknown(&self.scope));
    }
}
