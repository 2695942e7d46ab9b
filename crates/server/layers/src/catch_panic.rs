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
/// Without it, the application responds 500 as well, and the connection and the worker continue. Layers that set fields of
/// all responses, such as [`SecurityHeaders`](crate::SecurityHeaders), [`Cors`](crate::Cors) and hooks that run after each
/// response, set them in that one too; other layers see no response. With this layer, all layers further out get a response,
/// which [`CatchPanic::respond_with`] can make.
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
        self.form(PanicError::new(panic).into_response(), rendering)
    }

    /// Forms the response to a panic, also to one that a layer further in has set its fields in.
    fn form(&self, response: Response, rendering: &Rendering) -> Response {
        let Some(panic) = PanicError::of_response(&response) else {
            return response;
        };
        let Some(make) = &self.make_response else {
            return rendering.apply(response);
        };
        tracing::error!(panic = panic.message(), "a handler panicked");
        let mut made = make(panic.message());
        made.set_of_panic();
        let own = made.headers().clone();
        let is_missing = |name: &[u8], _: &[u8]| !own.names().any(|known| known == name);
        made.headers_mut()
            .append_from(response.headers(), is_missing);
        made
    }
}

impl Middleware<()> for CatchPanic {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let rendering = next.rendering(&request);
        match catch_unwind(AssertUnwindSafe(|| next.call(request))) {
            Ok(ResponseFuture::Now(response)) => self.form(response, &rendering).into(),
            Ok(ResponseFuture::Later(mut future)) => {
                let this = self.clone();
                ResponseFuture::later(std::future::poll_fn(move |cx| {
                    match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                        Ok(polled) => polled.map(|response| this.form(response, &rendering)),
                        Err(panic) => Poll::Ready(this.response(&*panic, &rendering)),
                    }
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
