//! The wait for the response to a request that a connection carries.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::h1::Http1Exchange;
use super::h2::StreamResponse;
use super::{ClientResponse, RequestFailure};

/// The response to a request that a connection carries. Dropping it cancels the request.
///
/// It is a state machine with a type of its own, so that what waits for it needs no `async` block around it.
#[must_use = "the request is cancelled if nothing waits for its response"]
pub struct PendingResponse(pub(super) PendingState);

pub(super) enum PendingState {
    Http1(Http1Exchange),
    Http2(StreamResponse),
    FastCgi(Pin<Box<dyn Future<Output = Result<ClientResponse, RequestFailure>>>>),
    /// The request could not be sent.
    Failed(Box<RequestFailure>),
    /// The result was returned.
    Done,
}

impl PendingResponse {
    pub(super) fn failed(failure: RequestFailure) -> Self {
        Self(PendingState::Failed(Box::new(failure)))
    }
}

impl Future for PendingResponse {
    type Output = Result<ClientResponse, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            PendingState::Http1(exchange) => exchange.poll_response(cx),
            PendingState::Http2(response) => Pin::new(response).poll(cx),
            PendingState::FastCgi(response) => response.as_mut().poll(cx),
            PendingState::Failed(_) => match std::mem::replace(&mut self.0, PendingState::Done) {
                PendingState::Failed(failure) => Poll::Ready(Err(*failure)),
                _ => Poll::Pending,
            },
            PendingState::Done => Poll::Pending,
        }
    }
}
