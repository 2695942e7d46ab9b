//! A request that a connection carries, until its response begins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::h1::Http1Exchange;
use super::h2::StreamResponse;
use super::{ClientResponse, RequestFailure};

/// A request that a connection carries, as the future of its response. Dropping it cancels the request.
///
/// It is a state machine with a type of its own, so that what waits for it needs no `async` block around it.
#[must_use = "the request is cancelled if nothing waits for its response"]
pub struct OriginExchange(pub(super) OriginExchangeState);

pub(super) enum OriginExchangeState {
    Http1(Http1Exchange),
    Http2(StreamResponse),
    FastCgi(Pin<Box<dyn Future<Output = Result<ClientResponse, RequestFailure>>>>),
    /// The request could not be sent.
    Failed(Box<RequestFailure>),
    /// The result was returned.
    Done,
}

impl OriginExchange {
    pub(super) fn failed(failure: RequestFailure) -> Self {
        Self(OriginExchangeState::Failed(Box::new(failure)))
    }
}

impl Future for OriginExchange {
    type Output = Result<ClientResponse, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            OriginExchangeState::Http1(exchange) => exchange.poll_response(cx),
            OriginExchangeState::Http2(response) => Pin::new(response).poll(cx),
            OriginExchangeState::FastCgi(response) => response.as_mut().poll(cx),
            OriginExchangeState::Failed(_) => {
                match std::mem::replace(&mut self.0, OriginExchangeState::Done) {
                    OriginExchangeState::Failed(failure) => Poll::Ready(Err(*failure)),
                    _ => Poll::Pending,
                }
            }
            OriginExchangeState::Done => Poll::Pending,
        }
    }
}
