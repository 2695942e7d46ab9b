//! `CatchPanic`: the layer that turns a panic into a response.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use apus_http::{Request, Response, ResponseFuture};

use apus_handler::{Middleware, Next, PanicError, Rendering};

/// A layer that turns a panic of the layers and the handler inside it into a 500.
///
/// Without it, the application responds 500 as well, and the connection and the worker continue. But that
/// response does not pass through the layers, so it lacks the header fields that they set. With it, they get
/// a response, which [`CatchPanic::respond_with`] can make.
#[derive(Clone, Default)]
pub struct CatchPanic {
    make_response: Option<Arc<PanicResponse>>,
}

type PanicResponse = dyn Fn(&str) -> Response + Send + Sync;

impl CatchPanic {
    /// Responds with an error of status 500, in the format of the application.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the function that makes the response from the message of the panic. The message is meant for the
    /// log; do not send it to clients.
    #[must_use]
    pub fn respond_with(mut self, make: impl Fn(&str) -> Response + Send + Sync + 'static) -> Self {
        self.make_response = Some(Arc::new(make));
        self
    }

    fn response(&self, panic: &(dyn Any + Send), rendering: &Rendering) -> Response {
        let panic = PanicError::new(panic);
        let mut response = match &self.make_response {
            Some(make) => {
                tracing::error!(panic = panic.message(), "a handler panicked");
                make(panic.message())
            }
            None => rendering.respond(panic.into_error()),
        };
        response.set_of_panic();
        response
    }
}

impl Middleware<()> for CatchPanic {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        match catch_unwind(AssertUnwindSafe(|| next.call(request))) {
            Ok(ResponseFuture::Now(response)) => ResponseFuture::Now(response),
            Ok(ResponseFuture::Later(mut future)) => {
                let this = self.clone();
                ResponseFuture::later(std::future::poll_fn(move |cx| {
                    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
                    polled.unwrap_or_else(|panic| Poll::Ready(this.response(&*panic, &rendering)))
                }))
            }
            Err(panic) => self.response(&*panic, &rendering).into(),
        }
    }
}

impl fmt::Debug for CatchPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchPanic").finish_non_exhaustive()
    }
}
