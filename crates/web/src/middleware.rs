//! Middleware: functions around an application, `async fn(Request, Next) -> impl IntoResponse`.

use std::marker::PhantomData;
use std::rc::Rc;

use apus_http::{Answer, Request, Response};

use crate::app::AppService;
use crate::respond::IntoAnswer;

/// What is left to be done with a request: the layers further in, and the route.
pub struct Next {
    pub(crate) app: Rc<AppService>,
    /// The layer whose turn it is.
    pub(crate) layer: usize,
}

impl Next {
    /// Passes the request on and waits for the response.
    pub async fn run(self, request: Request) -> Response {
        self.call(request).wait().await
    }

    /// Passes the request on.
    pub fn call(self, request: Request) -> Answer {
        AppService::layered(self.app, self.layer, request)
    }
}

impl std::fmt::Debug for Next {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Next").finish_non_exhaustive()
    }
}

/// A function around an application. It may change the request, the response, or answer itself.
#[diagnostic::on_unimplemented(
    message = "this function is not middleware",
    label = "not middleware",
    note = "middleware is `async fn(Request, Next) -> impl IntoResponse`"
)]
pub trait Middleware<Marker>: Send + Sync + 'static {
    /// Sees a request on its way in and its response on the way out.
    fn call(&self, request: Request, next: Next) -> Answer;
}

impl<F, Returned, Marker> Middleware<Marker> for F
where
    F: Fn(Request, Next) -> Returned + Send + Sync + 'static,
    Returned: IntoAnswer<Marker>,
{
    fn call(&self, request: Request, next: Next) -> Answer {
        self(request, next).into_answer()
    }
}

/// Middleware whose type is forgotten.
pub(crate) trait AnyMiddleware: Send + Sync {
    fn call(&self, request: Request, next: Next) -> Answer;
}

/// Gives middleware a type without its marker.
pub(crate) struct Unmarked<M, Marker>(M, PhantomData<fn() -> Marker>);

impl<M, Marker> Unmarked<M, Marker> {
    pub(crate) fn new(middleware: M) -> Self {
        Self(middleware, PhantomData)
    }
}

impl<M: Middleware<Marker>, Marker> AnyMiddleware for Unmarked<M, Marker> {
    fn call(&self, request: Request, next: Next) -> Answer {
        self.0.call(request, next)
    }
}
