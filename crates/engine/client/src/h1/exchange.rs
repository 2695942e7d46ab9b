//! One HTTP/1.1 request and its response on a connection.

use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_codec::h1::{BodyFraming, Http1Error, Http1ResponseHead, OutgoingRequest};
use apus_http::Body;
use apus_transport::yield_to_ready_tasks;

use super::response_part::Http1ResponsePart;
use super::{Http1ClientConnection, response_body};
use crate::exchange::ClientExchange;
use crate::upload::RequestUpload;
use crate::{
    ClientResponse, FailureCause, RequestFailure, RequestPhase, RequestTemplate, refuses_body,
};

/// How long a body is held back for an origin that sends nothing (RFC 9110 section 10.1.1).
// curl waits as long (`CURLOPT_EXPECT_100_TIMEOUT_MS`).
const CONTINUE: Duration = Duration::from_secs(1);

/// A request that is being sent, and the wait for the head of its response.
pub(crate) struct Http1Exchange {
    /// `None` once there is a response or a failure.
    connection: Option<Box<Http1ClientConnection>>,
    /// Whether the other tasks that were ready have run.
    has_yielded: bool,
}

impl Http1Exchange {
    /// The exchange of a request that was [begun](Http1ClientConnection::begin).
    pub(super) fn new(connection: Box<Http1ClientConnection>) -> Self {
        Self {
            connection: Some(connection),
            has_yielded: false,
        }
    }

    /// Sends the request, and waits for its response.
    pub(crate) fn poll_response(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ClientResponse, RequestFailure>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Pending;
        };
        if !self.has_yielded {
            self.has_yielded = true;
            // Other requests that have arrived are read before this one is written, so that the origin wakes up
            // once for several of them: this saves 5 to 10% of a proxied request. The same for responses saved
            // nothing.
            yield_to_ready_tasks(cx);
            return Poll::Pending;
        }
        let result = if std::mem::take(&mut connection.checks_again) && !connection.is_usable() {
            Err((RequestPhase::Send, FailureCause::Closed))
        } else {
            ready!(connection.poll_head(cx))
        };
        let Some(mut connection) = self.connection.take() else {
            return Poll::Pending;
        };
        Poll::Ready(match result {
            Ok(head) => Ok(response_body::respond(connection, head)),
            Err((phase, cause)) => Err(RequestFailure {
                phase,
                cause,
                request_sent: connection.serial.upload.sent() > 0,
                body: connection.serial.upload.give_back(),
            }),
        })
    }
}

impl Http1ClientConnection {
    /// Encodes a request and prepares its upload.
    pub(super) fn begin(
        &mut self,
        template: &RequestTemplate,
        body: Body,
    ) -> Result<(), RequestFailure> {
        let head = &*template.head;
        if self.connection_return.is_none() {
            self.serial.codec.close();
        }
        // The other tasks run before it is sent. If the origin closes the connection meanwhile, the request goes over another one:
        // later, one that is not idempotent could not be sent again (RFC 9110 section 9.2.2).
        self.checks_again = self.serial.requests > 0 && !head.method.is_idempotent();
        let outgoing = OutgoingRequest {
            method: &head.method,
            target: &head.target,
            host: &head.authority,
            headers: &head.headers,
            content_length: body.len(),
            upgrade: head.upgrade.as_deref(),
            te_trailers: head.te_trailers,
            expects_continue: head.expects_continue,
        };
        let mut out = self.serial.buffers.take();
        match self.serial.codec.send_request(outgoing, &mut out) {
            Ok(framing) => {
                let length = match framing {
                    BodyFraming::Length(length) => Some(length),
                    BodyFraming::None => Some(0),
                    BodyFraming::Chunked | BodyFraming::UntilClose => None,
                };
                // Without a body there is nothing to expect 100 for (RFC 9110 section 10.1.1).
                let is_held = head.expects_continue && framing != BodyFraming::None;
                let upload = RequestUpload::new(out, body, length, is_held);
                self.serial.begin(upload, Rc::clone(&template.timeouts));
                self.interim = template.interim.clone();
                Ok(())
            }
            Err(error) => {
                self.serial.buffers.put(out);
                Err(RequestFailure {
                    body: Some(body),
                    ..RequestFailure::unsent(
                        RequestPhase::Send,
                        FailureCause::Request(error.into()),
                    )
                })
            }
        }
    }

    /// Sends the request until the head of its response arrives.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Http1ResponseHead, (RequestPhase, FailureCause)>> {
        loop {
            self.serial.send(cx)?;
            let phase = if self.serial.upload.is_over() {
                RequestPhase::Head
            } else {
                RequestPhase::Send
            };
            let held = self.serial.upload.is_held();
            match self.poll_part(cx) {
                Poll::Ready(Ok(Http1ResponsePart::Head(head))) => {
                    self.serial.limits.read_until = None;
                    // A client that sees an error while it sends stops sending (RFC 9112 section 9.5).
                    if refuses_body(head.status) || self.serial.send_error.is_some() {
                        self.serial.upload.stop(&self.serial.buffers);
                    } else {
                        // The origin may read the body although it sent no 100, as one that echoes it does.
                        self.serial.upload.release();
                    }
                    return Poll::Ready(Ok(head));
                }
                // The codec returns a head before a body.
                Poll::Ready(Ok(_)) => {
                    let cause = FailureCause::Protocol(Http1Error::UnexpectedResponse.into());
                    return Poll::Ready(Err((phase, cause)));
                }
                Poll::Ready(Err(cause)) => {
                    // The write failed first, and that there is no response follows from it.
                    return Poll::Ready(Err(match self.serial.send_error.take() {
                        Some(send_error) => (RequestPhase::Send, FailureCause::Io(send_error)),
                        None => (phase, cause),
                    }));
                }
                // The origin asked for the body.
                Poll::Pending if held && !self.serial.upload.is_held() => continue,
                Poll::Pending => {}
            }
            if ready!(self.poll_head_deadline(cx)) {
                return Poll::Ready(Err((phase, FailureCause::TimedOut)));
            }
        }
    }

    /// Waits until the deadline of the head passes, and returns true; or releases a body that was held back
    /// long enough, and returns false.
    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // While the head has not left, the origin cannot know that it is to send 100.
        let is_held = self.serial.upload.is_held() && !self.serial.upload.is_blocked();
        if is_held || self.serial.upload.is_over() || self.serial.send_error.is_some() {
            self.serial.limits.expect(|timeouts| {
                if is_held {
                    CONTINUE
                } else {
                    timeouts.first_byte
                }
            });
        }
        ready!(self.serial.limits.poll(cx));
        if is_held && self.serial.limits.write_until.is_none() {
            self.serial.limits.read_until = None;
            self.serial.upload.release();
            return Poll::Ready(false);
        }
        Poll::Ready(true)
    }
}
