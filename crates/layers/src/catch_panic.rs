//! `CatchPanic`: the layer that turns a panic into a response.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Poll;

use apus_http::{Request, Response, ResponseFuture, StatusCode};

use crate::RequestId;
use apus_handler::IntoResponse;
use apus_handler::{Error, Rendering};
use apus_handler::{Middleware, Next};

/// A layer that turns a panic of the layers and the handler inside it into a 500.
///
/// Without it, the engine responds 500 as well, and the connection and the worker continue. But that response
/// does not pass through the layers, so it lacks the header fields that they set. With it, they get a
/// response, which [`CatchPanic::respond_with`] can make.
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

    fn response(
        &self,
        panic: &(dyn Any + Send),
        id: Option<&RequestId>,
        rendering: &Rendering,
    ) -> Response {
        let text = panic_message(panic);
        let id = id.map(RequestId::as_str);
        tracing::error!(panic = text, request_id = id, "a handler panicked");
        match &self.make_response {
            Some(make) => make(text),
            None => rendering.apply(Error::of(StatusCode::INTERNAL_SERVER_ERROR).into_response()),
        }
    }
}

/// The message of a panic.
pub fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("a value that is no text")
}

impl Middleware<()> for CatchPanic {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let id = RequestId::of(&request).cloned();
        let rendering = next.rendering(&request);
        match catch_unwind(AssertUnwindSafe(|| next.call(request))) {
            Ok(ResponseFuture::Now(response)) => ResponseFuture::Now(response),
            Ok(ResponseFuture::Later(mut future)) => {
                let this = self.clone();
                ResponseFuture::later(std::future::poll_fn(move |cx| {
                    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
                    polled.unwrap_or_else(|panic| {
                        Poll::Ready(this.response(&*panic, id.as_ref(), &rendering))
                    })
                }))
            }
            Err(panic) => self.response(&*panic, id.as_ref(), &rendering).into(),
        }
    }
}

impl fmt::Debug for CatchPanic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CatchPanic").finish_non_exhaustive()
    }
}
