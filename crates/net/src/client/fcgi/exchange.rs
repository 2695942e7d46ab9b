//! One FastCGI request and its response on a connection.

use std::ops::Range;
use std::task::{Context, Poll, ready};

use apus_codec::fastcgi::{CgiResponseHead, FastCgiConnection, FastCgiError, FastCgiEvent};
use apus_http::Method;
use bytes::Bytes;
use smallvec::SmallVec;

use super::FastCgiClientConnection;
use crate::client::exchange::{ClientExchange, SerialConnection};
use crate::client::upload::RequestUpload;
use crate::client::{ClientRequest, FailureCause, RequestFailure, RequestPhase};

/// What an application sent.
pub(super) enum FastCgiResponsePart {
    Head(CgiResponseHead),
    Data(Bytes),
    End,
}

impl FastCgiClientConnection {
    /// Encodes a request and gets ready to send it.
    pub(super) fn begin(&mut self, request: ClientRequest) -> Result<(), RequestFailure> {
        let ClientRequest {
            head,
            body,
            interim: _,
            timeouts,
            stderr,
        } = request;
        let mut out = self.wire.buffers.take();
        let is_head = head.method == Method::HEAD;
        let keep = self.connection_return.is_some();
        let sent = match &head.params {
            Some(params)
                if self
                    .wire
                    .codec
                    .send_request(params, is_head, keep, &mut out) =>
            {
                Ok(())
            }
            Some(_) => Err("the connection carries another request"),
            None => Err("the request has no parameters for an application"),
        };
        if let Err(fault) = sent {
            self.wire.buffers.put(out);
            return Err(RequestFailure {
                body: Some(body),
                ..RequestFailure::unsent(RequestPhase::Send, FailureCause::Request(fault.into()))
            });
        }
        let length = body.len();
        let upload = RequestUpload::new(out, body, length, false);
        self.wire.begin(upload, timeouts);
        self.head = Some(head);
        self.stderr = stderr;
        Ok(())
    }

    /// Sends the request until the head of its answer comes.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CgiResponseHead, (RequestPhase, FailureCause)>> {
        self.wire.send(cx)?;
        let is_sent = self.wire.upload.is_over();
        let phase = match is_sent {
            true => RequestPhase::Head,
            false => RequestPhase::Send,
        };
        match self.poll_part(cx) {
            Poll::Ready(Ok(FastCgiResponsePart::Head(head))) => {
                self.wire.limits.read_until = None;
                return Poll::Ready(Ok(head));
            }
            // The codec gives a head before anything else.
            Poll::Ready(Ok(_)) => {
                let cause = FailureCause::Protocol(FastCgiError::UnexpectedRecord.into());
                return Poll::Ready(Err((phase, cause)));
            }
            Poll::Ready(Err(cause)) => {
                return Poll::Ready(Err(match (self.wire.lost.take(), cause) {
                    (Some(lost), FailureCause::Closed) => {
                        (RequestPhase::Send, FailureCause::Io(lost))
                    }
                    (_, cause) => (phase, cause),
                }));
            }
            Poll::Pending => {}
        }
        if is_sent || self.wire.lost.is_some() {
            self.wire.limits.expect(|timeouts| timeouts.first_byte);
        }
        ready!(self.wire.limits.poll(cx));
        Poll::Ready(Err((phase, FailureCause::TimedOut)))
    }

    /// Whether the answer was read to its end.
    pub(super) fn is_done(&self) -> bool {
        self.wire.codec.is_done()
    }

    /// What there is to tell of a request without an answer.
    pub(super) fn failure(
        &mut self,
        (phase, cause): (RequestPhase, FailureCause),
    ) -> RequestFailure {
        // Its server says that the application did not look at it.
        let is_rejected = match &cause {
            FailureCause::Protocol(error) => {
                error.downcast_ref().is_some_and(FastCgiError::is_rejection)
            }
            _ => false,
        };
        RequestFailure {
            phase,
            cause,
            request_sent: self.wire.upload.sent() > 0 && !is_rejected,
            body: self.wire.upload.give_back(),
        }
    }
}

impl ClientExchange for FastCgiClientConnection {
    type Codec = FastCgiConnection;
    type Part = FastCgiResponsePart;

    fn wire(&mut self) -> &mut SerialConnection<FastCgiConnection> {
        &mut self.wire
    }

    /// What the application sent, as far as it was read. Content that came in several records is joined.
    fn parse_part(&mut self) -> Result<Option<FastCgiResponsePart>, FailureCause> {
        let mut parts: SmallVec<[Range<usize>; 16]> = SmallVec::new();
        let mut consumed = 0;
        while !self.wire.codec.is_done() {
            let unread = self.wire.input.unread().get(consumed..).unwrap_or_default();
            let (bytes, event) = match self.wire.codec.handle_input(unread) {
                Ok(found) => found,
                // It comes again when there is nothing before it.
                Err(_) if !parts.is_empty() => break,
                Err(FastCgiError::Truncated) => return Err(FailureCause::Closed),
                Err(error) => return Err(FailureCause::Protocol(error.into())),
            };
            let start = consumed;
            consumed += bytes;
            match event {
                FastCgiEvent::Data(range) => parts.push(start + range.start..start + range.end),
                FastCgiEvent::Stderr(range) => {
                    if let (Some(stderr), Some(head)) = (&self.stderr, &self.head) {
                        stderr(head, unread.get(range).unwrap_or_default());
                    }
                }
                FastCgiEvent::Head(head) => {
                    self.wire.input.consume(consumed);
                    return Ok(Some(FastCgiResponsePart::Head(head)));
                }
                FastCgiEvent::End { .. } => {}
                FastCgiEvent::Incomplete => break,
            }
        }
        if !parts.is_empty() {
            let bytes = self.wire.input.take_joined(&parts, consumed);
            return Ok(Some(FastCgiResponsePart::Data(bytes)));
        }
        self.wire.input.consume(consumed);
        Ok(self
            .wire
            .codec
            .is_done()
            .then_some(FastCgiResponsePart::End))
    }

    fn handle_eof(&mut self) -> Result<FastCgiResponsePart, FailureCause> {
        let _ = self.wire.codec.handle_eof();
        Err(FailureCause::Closed)
    }
}
