//! One FastCGI request and its response on a connection.

use std::ops::Range;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use apus_codec::fastcgi::{CgiResponseHead, FastCgiConnection, FastCgiError, FastCgiEvent};
use apus_http::{Body, Method};
use bytes::Bytes;
use smallvec::SmallVec;

use super::FastCgiClientConnection;
use crate::exchange::{ClientExchange, SerialConnection};
use crate::upload::RequestUpload;
use crate::{FailureCause, RequestFailure, RequestPhase, RequestTemplate};

/// A part of a response.
pub(super) enum FastCgiResponsePart {
    Head(CgiResponseHead),
    Data(Bytes),
    End,
}

impl FastCgiClientConnection {
    /// Encodes a request and prepares its upload. `is_observed` is whether it has to be known when the
    /// application reads it.
    pub(super) fn begin(
        &mut self,
        template: &RequestTemplate,
        body: Body,
        is_observed: bool,
    ) -> Result<(), RequestFailure> {
        let head = &template.head;
        let mut out = self.serial.buffers.take();
        let is_head = head.method == Method::HEAD;
        let keep = self.connection_return.is_some();
        let sent = match &head.params {
            Some(params)
                if self
                    .serial
                    .codec
                    .send_request(params, is_head, keep, &mut out) =>
            {
                Ok(())
            }
            Some(_) => Err("the connection carries another request"),
            None => Err("the request has no parameters for an application"),
        };
        if let Err(fault) = sent {
            self.serial.buffers.put(out);
            return Err(RequestFailure {
                body: Some(body),
                ..RequestFailure::unsent(RequestPhase::Send, FailureCause::Request(fault.into()))
            });
        }
        let length = body.len();
        // With a body, unread bytes do not tell whether the head was read: a script may leave its body unread.
        let written = if is_observed && length == Some(0) {
            self.write_head(&mut out)
        } else {
            0
        };
        let mut upload = RequestUpload::new(out, body, length, false);
        upload.count_sent(written);
        self.serial.begin(upload, Rc::clone(&template.timeouts));
        self.head = Some(Rc::clone(head));
        self.stderr = template.stderr.clone();
        Ok(())
    }

    /// Sends the request until the head of its response arrives.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<CgiResponseHead, (RequestPhase, FailureCause)>> {
        self.serial.send(cx)?;
        let is_sent = self.serial.upload.is_over();
        let phase = if is_sent {
            RequestPhase::Head
        } else {
            RequestPhase::Send
        };
        match self.poll_part(cx) {
            Poll::Ready(Ok(FastCgiResponsePart::Head(head))) => {
                self.serial.limits.read_until = None;
                return Poll::Ready(Ok(head));
            }
            // The codec returns a head before anything else.
            Poll::Ready(Ok(_)) => {
                let cause = FailureCause::Protocol(FastCgiError::UnexpectedRecord.into());
                return Poll::Ready(Err((phase, cause)));
            }
            Poll::Ready(Err(cause)) => {
                // The write failed first. Its error says more than the end of the connection, which follows from it.
                return Poll::Ready(Err(match (self.serial.send_error.take(), cause) {
                    (Some(send_error), FailureCause::Closed) => {
                        (RequestPhase::Send, FailureCause::Io(send_error))
                    }
                    (_, cause) => (phase, cause),
                }));
            }
            Poll::Pending => {}
        }
        // An application may respond before it has read the body, but need not: its time begins at the end of the
        // request.
        if is_sent || self.serial.send_error.is_some() {
            self.serial.limits.expect(|timeouts| timeouts.first_byte);
        }
        ready!(self.serial.limits.poll(cx));
        Poll::Ready(Err((phase, FailureCause::TimedOut)))
    }

    /// Whether the response was read to its end.
    pub(super) fn is_done(&self) -> bool {
        self.serial.codec.is_done()
    }

    /// Reports a mistake of the script in the head of its response, as if the script had done it.
    fn report(&self, response: &CgiResponseHead) {
        if let (Some(line), Some(stderr), Some(head)) =
            (&response.invalid_line, &self.stderr, &self.head)
        {
            let before = b"a line of the response head is not valid and is left out: ";
            stderr(head, &[before, &**line].concat());
        }
    }

    /// The failure of a request without a response.
    pub(super) fn failure(
        &mut self,
        (phase, cause): (RequestPhase, FailureCause),
    ) -> RequestFailure {
        // The FastCGI server reports that the application did not process the request.
        let is_rejected = match &cause {
            FailureCause::Protocol(error) => {
                error.downcast_ref().is_some_and(FastCgiError::is_rejection)
            }
            _ => false,
        };
        RequestFailure {
            phase,
            cause,
            request_sent: self.serial.upload.sent() > 0 && !is_rejected,
            body: self.serial.upload.give_back(),
        }
    }
}

impl ClientExchange for FastCgiClientConnection {
    type Codec = FastCgiConnection;
    type Part = FastCgiResponsePart;

    fn serial(&mut self) -> &mut SerialConnection<FastCgiConnection> {
        &mut self.serial
    }

    /// The next part of the response that is in the input. Data of several records is joined.
    fn parse_part(&mut self) -> Result<Option<FastCgiResponsePart>, FailureCause> {
        // Applications write small records, each of which would otherwise be a chunk or a frame to the client.
        let mut parts: SmallVec<[Range<usize>; 16]> = SmallVec::new();
        let mut consumed = 0;
        while !self.serial.codec.is_done() {
            let unread = self
                .serial
                .input
                .unread()
                .get(consumed..)
                .unwrap_or_default();
            let (bytes, event) = match self.serial.codec.handle_input(unread) {
                Ok(found) => found,
                // The codec returns the error again after the data.
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
                    self.report(&head);
                    self.serial.input.consume(consumed);
                    return Ok(Some(FastCgiResponsePart::Head(head)));
                }
                FastCgiEvent::End { .. } => {}
                FastCgiEvent::Incomplete => break,
            }
        }
        if !parts.is_empty() {
            let bytes = self.serial.input.take_joined(&parts, consumed);
            return Ok(Some(FastCgiResponsePart::Data(bytes)));
        }
        self.serial.input.consume(consumed);
        Ok(self
            .serial
            .codec
            .is_done()
            .then_some(FastCgiResponsePart::End))
    }

    fn handle_eof(&mut self) -> Result<FastCgiResponsePart, FailureCause> {
        // FastCGI ends a response by a record, FCGI_END_REQUEST, and never by closing the connection.
        let _ = self.serial.codec.handle_eof();
        Err(FailureCause::Closed)
    }
}
