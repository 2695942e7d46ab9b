//! Middleware: functions around an application, `async fn(Request, Next) -> impl IntoResponse`.

use std::marker::PhantomData;
use std::rc::Rc;

use apus_http::{Answer, Request, Response};

use crate::app::{AppService, Place};
use crate::error::Rendering;
use crate::respond::IntoAnswer;

/// What is left to be done with a request: the layers further in, and the route.
pub struct Next {
    pub(crate) app: Rc<AppService>,
    /// The layer whose turn it is.
    pub(crate) place: Place,
}

impl Next {
    /// Passes the request on and waits for the response.
    pub async fn run(self, request: Request) -> Response {
        self.call(request).wait().await
    }

    /// Passes the request on.
    pub fn call(self, request: Request) -> Answer {
        AppService::go_on(&self.app, self.place, request)
    }

    /// The path of the route that is going to answer, as it was written: `/users/{id}`. A layer around
    /// a whole application asks the router ahead for this; in a group it is known.
    pub fn route(&self, request: &Request) -> Option<&str> {
        self.app.pattern_of(&self.place, request)
    }

    /// How errors of a layer are answered.
    pub(crate) fn rendering(&self, request: &Request) -> Rendering {
        Rendering::of(request, self.app.errors(&self.place))
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
        let rendering = next.rendering(&request);
        self(request, next).into_answer(rendering)
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
