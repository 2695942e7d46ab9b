//! Any service with layers around it.

use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{Request, ResponseFuture, RouteInfo, Service, ServiceFactory};

use crate::middleware::{Chain, Layer, Middleware, Next, Position};
use crate::rendering::ErrorRules;

/// A service with layers around it: files, a proxy, PHP, a cache, a site.
///
/// ```
/// # use apus_handler::{BodyLimit, Layered};
/// # use apus_http::{Request, Response, StatusCode, service_fn};
/// let clock = || service_fn(|_: Request| Response::text(StatusCode::OK, "noon").into());
/// let clock = Layered::new(clock).layer(BodyLimit::new(0));
/// # let _ = clock;
/// ```
#[derive(Clone)]
pub struct Layered {
    service: Arc<dyn ServiceFactory>,
    layers: Vec<Layer>,
}

impl Layered {
    /// A service without layers yet.
    pub fn new(service: impl ServiceFactory + 'static) -> Self {
        Self {
            service: Arc::new(service),
            layers: Vec::new(),
        }
    }

    /// Adds a layer inside of those that were added before.
    #[must_use]
    pub fn layer<Marker: 'static>(mut self, middleware: impl Middleware<Marker>) -> Self {
        self.layers.push(Layer::new(middleware));
        self
    }
}

impl ServiceFactory for Layered {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(LayeredService(Rc::new(LayerStack {
            layers: self.layers.clone(),
            service: self.service.service(),
            errors: ErrorRules::default(),
        })))
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.service.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.service.routes()
    }
}

impl fmt::Debug for Layered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered")
            .field("layers", &self.layers)
            .finish_non_exhaustive()
    }
}

/// The service of one worker. Layers that wait share the ownership of the stack.
struct LayeredService(Rc<LayerStack>);

struct LayerStack {
    layers: Vec<Layer>,
    service: Rc<dyn Service>,
    errors: ErrorRules,
}

impl Service for LayeredService {
    fn call(&self, request: Request) -> ResponseFuture {
        self.0.clone().call(Position::Outer(0), request)
    }
}

impl Chain for LayerStack {
    fn call(self: Rc<Self>, position: Position, request: Request) -> ResponseFuture {
        let (Position::Outer(index) | Position::Inner(index, _)) = position;
        match self.layers.get(index).cloned() {
            Some(layer) => {
                let position = Position::Outer(index.saturating_add(1));
                layer.call(request, Next::new(self, position))
            }
            None => self.service.call(request),
        }
    }

    fn route<'c>(&'c self, _: &'c Position, _: &Request) -> Option<&'c str> {
        None
    }

    fn errors(&self, _: &Position, _: &Request) -> &ErrorRules {
        &self.errors
    }
}
