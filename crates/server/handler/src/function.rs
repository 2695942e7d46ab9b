//! `Handler`: functions that take extractors and return a response.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use apus_http::{Request, ResponseFuture};

use crate::arguments::{HandlerArguments, HandlerFunction};
use crate::into_response_future::IntoResponseFuture;
use crate::matched::Matched;
use crate::middleware::{self, AnyMiddleware, Middleware};
use crate::respond::IntoResponse;
use crate::route_check::RouteCheck;

/// A function that responds to requests: `async` or not, with up to eight extractors, of which the last may
/// read the body.
///
/// A function that is not `async` and does not read the body needs no future.
#[diagnostic::on_unimplemented(
    message = "this function is not a handler",
    label = "not a handler",
    note = "a handler is a function of up to eight extractors (`Path`, `Query`, `State`, ...; what \
            reads the body, as `Json` or `Request`, only as the last) that returns something \
            that is `IntoResponse`, or a future of it; the `E` of a `Result` is `apus::Error`, or \
            implements `HttpError`"
)]
pub trait Handler<Marker>: Send + Sync + 'static {
    /// Responds to a request that matched the route of this handler.
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture;

    /// Checks that the route has what the arguments need.
    #[doc(hidden)]
    fn check(&self, _route: &mut RouteCheck<'_>) {}

    /// The layers of this handler alone, see [`HandlerExt::with`].
    #[doc(hidden)]
    fn layers(&self) -> Layers {
        Layers::default()
    }
}

/// The layers of a handler.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct Layers(pub Vec<Arc<dyn AnyMiddleware>>);

/// Methods of all handlers.
pub trait HandlerExt<Marker>: Handler<Marker> + Sized {
    /// Adds a layer around this handler alone, inside the layers of its groups. The first layer is the
    /// outermost.
    ///
    /// ```
    /// # use apus_handler::{HandlerExt, Next};
    /// # use apus_http::{Request, Response};
    /// async fn signed_in(request: Request, next: Next) -> Response { next.run(request).await }
    /// async fn dashboard() -> &'static str { "figures" }
    ///
    /// let dashboard = dashboard.with(signed_in);
    /// # let _ = dashboard;
    /// ```
    fn with<M: 'static>(self, middleware: impl Middleware<M>) -> LayeredHandler<Self> {
        LayeredHandler {
            handler: self,
            layers: Layers::default(),
        }
        .with(middleware)
    }
}

impl<H: Handler<Marker>, Marker> HandlerExt<Marker> for H {}

/// A handler with its own layers.
#[derive(Clone)]
pub struct LayeredHandler<H> {
    handler: H,
    layers: Layers,
}

impl<H> LayeredHandler<H> {
    /// Adds another layer, inside the layers that were added before.
    #[must_use]
    pub fn with<M: 'static>(mut self, middleware: impl Middleware<M>) -> Self {
        let layer = Arc::new(middleware::ErasedMiddleware::new(middleware));
        self.layers.0.push(layer);
        self
    }
}

impl<H> fmt::Debug for LayeredHandler<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayeredHandler").finish_non_exhaustive()
    }
}

/// Marks handlers that have their own layers.
#[derive(Debug)]
pub enum LayeredMarker {}

#[diagnostic::do_not_recommend]
impl<H: Handler<Marker>, Marker: 'static> Handler<(LayeredMarker, Marker)> for LayeredHandler<H> {
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        self.handler.call(request, matched)
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        self.handler.check(route);
    }

    fn layers(&self) -> Layers {
        self.layers.clone()
    }
}

impl<F, Arguments, Marker, Returned> Handler<(Arguments, Marker, Returned)> for F
where
    F: HandlerFunction<Arguments>,
    Arguments: HandlerArguments<Marker>,
    F::Returned: IntoResponseFuture<Returned>,
    <F::Returned as IntoResponseFuture<Returned>>::Value: IntoResponse,
{
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        Arguments::call(self, request, matched)
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        Arguments::check(route);
    }
}

/// A handler as a trait object.
pub trait AnyHandler: Send + Sync {
    /// As [`Handler::call`].
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture;

    /// As [`Handler::check`].
    fn check(&self, route: &mut RouteCheck<'_>);

    /// The layers of this handler alone.
    fn layers(&self) -> Vec<Arc<dyn AnyMiddleware>>;

    /// The type name of the handler.
    fn name(&self) -> &'static str;
}

/// A handler without the marker in its type.
pub struct ErasedHandler<H, Marker>(H, PhantomData<fn() -> Marker>);

impl<H, Marker> ErasedHandler<H, Marker> {
    /// Wraps a handler.
    pub fn new(handler: H) -> Self {
        Self(handler, PhantomData)
    }
}

impl<H: Handler<Marker>, Marker> AnyHandler for ErasedHandler<H, Marker> {
    fn call(&self, request: Request, matched: &Matched<'_>) -> ResponseFuture {
        self.0.call(request, matched)
    }

    fn check(&self, route: &mut RouteCheck<'_>) {
        self.0.check(route);
    }

    fn layers(&self) -> Vec<Arc<dyn AnyMiddleware>> {
        self.0.layers().0
    }

    fn name(&self) -> &'static str {
        std::any::type_name::<H>()
    }
}
