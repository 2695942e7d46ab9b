//! `PanicError`: a panic of a handler or a layer, as the source of an [`Error`].

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use apus_http::{Response, ResponseFuture, StatusCode};

use crate::error::Error;
use crate::respond::IntoResponse;

/// A panic of a handler or a layer: the source of the [`Error`] of its request, with status 500.
#[derive(Clone, Debug)]
pub struct PanicError {
    message: String,
}

impl PanicError {
    /// Of the value of a panic.
    pub fn new(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&'static str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        Self {
            message: text.unwrap_or("a value that is no text").to_owned(),
        }
    }

    /// The message of the panic, which is meant for the log.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error of the request.
    pub fn into_error(self) -> Error {
        Error::of(StatusCode::INTERNAL_SERVER_ERROR).caused_by(self)
    }

    /// The response with the error, from which [`Rendering`](crate::Rendering) makes the body.
    pub fn into_response(self) -> Response {
        let mut response = self.into_error().into_response();
        response.set_of_panic();
        response
    }

    /// The panic behind a response that has no body yet.
    pub fn of_response(response: &Response) -> Option<&Self> {
        let error: &Error = response.attached()?.downcast_ref()?;
        error.source()?.downcast_ref()
    }
}

/// Calls a service, and changes its response. If it panics, that is the response to an error, as the response of any other
/// failure, and is changed too.
pub(crate) fn change_response(
    call: impl FnOnce() -> ResponseFuture,
    change: impl FnOnce(Response) -> Response + 'static,
) -> ResponseFuture {
    match call_caught(call) {
        ResponseFuture::Now(response) => change(response).into(),
        ResponseFuture::Later(mut future) => ResponseFuture::later(async move {
            change(std::future::poll_fn(|cx| poll_caught(&mut future, cx)).await)
        }),
    }
}

/// Calls a service. If it panics before it returns, that is the response to an error.
pub fn call_caught(call: impl FnOnce() -> ResponseFuture) -> ResponseFuture {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(response) => response,
        Err(panic) => PanicError::new(&*panic).into_response().into(),
    }
}

/// Polls the future of a response. If it panics, that is the response to an error.
pub fn poll_caught(
    future: &mut Pin<Box<dyn Future<Output = Response>>>,
    cx: &mut Context<'_>,
) -> Poll<Response> {
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)));
    polled.unwrap_or_else(|panic| Poll::Ready(PanicError::new(&*panic).into_response()))
}

impl fmt::Display for PanicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a panic: {}", self.message)
    }
}

impl std::error::Error for PanicError {}
