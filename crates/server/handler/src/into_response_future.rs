//! `IntoResponseFuture`: the return types of handlers that are responses or futures of them.

use std::future::Future;
use std::pin::pin;

use apus_http::{Response, ResponseFuture};

use crate::blocking::{HandlerPlace, WatchedFuture};
use crate::rendering::Rendering;
use crate::respond::IntoResponse;

/// A type that can be converted to a [`ResponseFuture`]: a response, or a future of one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither a response nor a future of one",
    label = "this is what the handler returns",
    note = "a handler returns text, `Html`, `Json`, `StatusCode`, `Response`, `(StatusCode, T)`, \
            `Result<T, E>` of two such types, or its own type that implements `IntoResponse`; an error type \
            of its own implements `HttpError`",
    note = "the `T` of `Json<T>` has `#[derive(serde::Serialize)]`"
)]
pub trait IntoResponseFuture<Marker> {
    /// What becomes the response: the type itself, or the output of the future. It is no bound of the
    /// implementations, so that an error of the compiler is about this type.
    type Value;

    /// Calls the function, and converts what it returns to the response of a service; `rendering` makes the responses
    /// to errors, and is called before a wait or if there is an error.
    fn respond(
        call: impl FnOnce() -> Self,
        rendering: impl FnOnce() -> Rendering,
        place: Option<HandlerPlace>,
    ) -> ResponseFuture
    where
        Self::Value: IntoResponse;

    /// Calls the function, and waits for the response.
    fn wait(
        call: impl FnOnce() -> Self,
        place: Option<HandlerPlace>,
    ) -> impl Future<Output = Response>
    where
        Self::Value: IntoResponse;
}

/// Marks handlers that return a response.
#[derive(Debug)]
pub enum ResponseMarker {}

/// Marks handlers that return a future of a response.
#[derive(Debug)]
pub enum FutureMarker {}

impl<R: IntoResponse> IntoResponseFuture<ResponseMarker> for R {
    type Value = R;

    fn respond(
        call: impl FnOnce() -> Self,
        rendering: impl FnOnce() -> Rendering,
        place: Option<HandlerPlace>,
    ) -> ResponseFuture {
        let response = call_now(|| call().into_response(), place);
        ResponseFuture::Now(if Rendering::changes(&response) {
            rendering().apply(response)
        } else {
            response
        })
    }

    async fn wait(call: impl FnOnce() -> Self, place: Option<HandlerPlace>) -> Response {
        call_now(|| call().into_response(), place)
    }
}

impl<F: Future + 'static> IntoResponseFuture<FutureMarker> for F {
    type Value = F::Output;

    fn respond(
        call: impl FnOnce() -> Self,
        rendering: impl FnOnce() -> Rendering,
        place: Option<HandlerPlace>,
    ) -> ResponseFuture
    where
        F::Output: IntoResponse,
    {
        let rendering = rendering();
        let future = call();
        ResponseFuture::later(async move {
            let value = WatchedFuture::new(pin!(future), place).await;
            rendering.apply(value.into_response())
        })
    }

    async fn wait(call: impl FnOnce() -> Self, place: Option<HandlerPlace>) -> Response
    where
        F::Output: IntoResponse,
    {
        let value = WatchedFuture::new(pin!(call()), place).await;
        value.into_response()
    }
}

/// Marks handlers and layers that return a [`ResponseFuture`], for example the future of another service.
#[derive(Debug)]
pub enum ServiceResponseMarker {}

impl IntoResponseFuture<ServiceResponseMarker> for ResponseFuture {
    type Value = Response;

    fn respond(
        call: impl FnOnce() -> Self,
        rendering: impl FnOnce() -> Rendering,
        place: Option<HandlerPlace>,
    ) -> ResponseFuture {
        match call_now(call, place) {
            Self::Now(response) => Response::respond(|| response, rendering, None),
            later @ Self::Later(_) => later,
        }
    }

    async fn wait(call: impl FnOnce() -> Self, place: Option<HandlerPlace>) -> Response {
        call_now(call, place).wait().await
    }
}

fn call_now<T>(call: impl FnOnce() -> T, place: Option<HandlerPlace>) -> T {
    match place {
        Some(place) => place.watch(call),
        None => call(),
    }
}
