//! A request that a connection carries, until its response begins.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use apus_http::Body;

use crate::h1::Http1Exchange;
use crate::streams::StreamResponse;
use crate::{
    ClientRequest, ClientResponse, FastCgiClient, Http1Client, MultiplexedClient, RequestFailure,
    RequestTemplate,
};

/// A request that a connection carries, as the future of its response. Dropping it cancels the request.
///
/// It is a state machine with its own type, so that what waits for it needs no `async` block around it.
#[must_use = "the request is cancelled if nothing waits for its response"]
pub struct OriginExchange(OriginExchangeState);

enum OriginExchangeState {
    Http1(Http1Exchange),
    Multiplexed(StreamResponse),
    // The future of FastCGI is an `async` block, which has no name; the others are types, and need no allocation.
    FastCgi(Pin<Box<dyn Future<Output = Result<ClientResponse, RequestFailure>>>>),
    /// The request could not be sent.
    Failed(Box<RequestFailure>),
    /// The result was returned.
    Done,
}

impl OriginExchange {
    fn new(begun: Result<OriginExchangeState, RequestFailure>) -> Self {
        Self(begun.unwrap_or_else(|failure| OriginExchangeState::Failed(Box::new(failure))))
    }
}

impl Http1Client {
    /// Sends a request.
    ///
    /// The body is sent as fast as the origin takes it, while the response is awaited and read. A final
    /// status of 400 or more ends that, and so does the end of the response: a connection over which a
    /// request was not sent whole is closed. A body that is held back, since the client expects `100
    /// Continue`, is sent when the origin asks for it or sends a final head with a status below 400, or after
    /// a second without a response. With a [`RequestFailure`] the connection is closed.
    pub fn send(self, request: ClientRequest) -> OriginExchange {
        self.send_attempt(&request.template, request.body)
    }

    pub(crate) fn send_attempt(self, template: &RequestTemplate, body: Body) -> OriginExchange {
        OriginExchange::new(self.begin(template, body).map(OriginExchangeState::Http1))
    }
}

impl MultiplexedClient {
    /// Sends a request, for the response or a [`RequestFailure`]. Dropping the future, or the body of the
    /// response, cancels it.
    pub fn send(&self, request: ClientRequest) -> OriginExchange {
        self.send_attempt(&request.template, request.body)
    }

    pub(crate) fn send_attempt(&self, template: &RequestTemplate, body: Body) -> OriginExchange {
        let begun = self.begin(template, body);
        OriginExchange::new(begun.map(OriginExchangeState::Multiplexed))
    }
}

impl FastCgiClient {
    /// Sends a request: its [`params`](crate::ClientRequestHead::params), and its body.
    ///
    /// The body is sent as fast as the application takes it, while the response is awaited and read, and
    /// until the response ends. A response without a body is returned when the application has ended it. With
    /// a [`RequestFailure`] the connection is closed.
    pub fn send(self, request: ClientRequest) -> OriginExchange {
        self.send_attempt(&request.template, request.body)
    }

    pub(crate) fn send_attempt(self, template: &RequestTemplate, body: Body) -> OriginExchange {
        let begun = self.begin(template, body);
        OriginExchange::new(begun.map(|response| OriginExchangeState::FastCgi(Box::pin(response))))
    }
}

impl Future for OriginExchange {
    type Output = Result<ClientResponse, RequestFailure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            OriginExchangeState::Http1(exchange) => exchange.poll_response(cx),
            OriginExchangeState::Multiplexed(response) => Pin::new(response).poll(cx),
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
