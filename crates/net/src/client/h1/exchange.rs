//! One HTTP/1.1 request and its response on a connection.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_codec::h1::{
    BodyFraming, ClientConnection, ClientEvent, OutgoingRequest, ProtocolError, ResponseHead,
};
use apus_http::{Headers, StatusCode};
use bytes::Bytes;

use super::Inner;
use crate::client::exchange::{Exchange, Wire};
use crate::client::upload::Upload;
use crate::client::{Cause, ClientRequest, Failure, Phase};

/// For how long content is held back for an origin that says nothing (RFC 9110 section 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);

/// What an origin sent.
pub(super) enum Received {
    Head(ResponseHead),
    Data(Bytes),
    End(Option<Headers>),
}

impl Inner {
    /// Encodes a request and gets ready to send it.
    pub(super) fn begin(&mut self, request: ClientRequest) -> Result<(), Failure> {
        let ClientRequest {
            head,
            body,
            interim,
            timeouts,
            stderr: _,
        } = request;
        if self.home.is_none() {
            self.wire.codec.close();
        }
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
        let mut out = self.wire.buffers.take();
        match self.wire.codec.send_request(outgoing, &mut out) {
            Ok(framing) => {
                let length = match framing {
                    BodyFraming::Length(length) => Some(length),
                    BodyFraming::None => Some(0),
                    BodyFraming::Chunked | BodyFraming::UntilClose => None,
                };
                let is_held = head.expects_continue && framing != BodyFraming::None;
                let upload = Upload::new(out, body, length, is_held);
                self.wire.begin(upload, timeouts);
                self.interim = interim;
                Ok(())
            }
            Err(error) => {
                self.wire.buffers.put(out);
                Err(Failure {
                    body: Some(body),
                    ..Failure::unsent(Phase::Send, Cause::Request(error.into()))
                })
            }
        }
    }

    /// Sends the request until the head of its response comes.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, (Phase, Cause)>> {
        loop {
            self.wire.send(cx)?;
            let phase = match self.wire.upload.is_over() {
                true => Phase::Head,
                false => Phase::Send,
            };
            let held = self.wire.upload.is_held();
            match self.poll_received(cx) {
                Poll::Ready(Ok(Received::Head(head))) => {
                    self.wire.limits.read_until = None;
                    if head.status.as_u16() >= 400 || self.wire.lost.is_some() {
                        self.wire.upload.stop(&self.wire.buffers);
                    }
                    return Poll::Ready(Ok(head));
                }
                // Content comes behind a head only.
                Poll::Ready(Ok(_)) => {
                    let cause = Cause::Protocol(ProtocolError::UnaskedResponse.into());
                    return Poll::Ready(Err((phase, cause)));
                }
                Poll::Ready(Err(cause)) => {
                    return Poll::Ready(Err(match self.wire.lost.take() {
                        Some(lost) => (Phase::Send, Cause::Io(lost)),
                        None => (phase, cause),
                    }));
                }
                // The origin asked for the content.
                Poll::Pending if held && !self.wire.upload.is_held() => continue,
                Poll::Pending => {}
            }
            if ready!(self.poll_head_deadline(cx)) {
                return Poll::Ready(Err((phase, Cause::TimedOut)));
            }
        }
    }

    /// Waits for the time that a head may take to pass, and tells so; or, if content was held back
    /// long enough, lets it flow and gives false.
    fn poll_head_deadline(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let is_held = self.wire.upload.is_held() && !self.wire.upload.is_blocked();
        if is_held || self.wire.upload.is_over() || self.wire.lost.is_some() {
            self.wire.limits.expect(|timeouts| match is_held {
                true => CONTINUE,
                false => timeouts.first_byte,
            });
        }
        ready!(self.wire.limits.poll(cx));
        if is_held && self.wire.limits.write_until.is_none() {
            self.wire.limits.read_until = None;
            self.wire.upload.release();
            return Poll::Ready(false);
        }
        Poll::Ready(true)
    }

    /// Passes an interim response on.
    fn inform(&mut self, status: StatusCode, headers: Headers) {
        if status == StatusCode::CONTINUE && self.wire.upload.is_held() {
            self.wire.limits.read_until = None;
            self.wire.upload.release();
        }
        if let Some(interim) = &self.interim {
            interim.send(status, headers);
        }
    }
}

impl Exchange for Inner {
    type Codec = ClientConnection;
    type Received = Received;

    fn wire(&mut self) -> &mut Wire<ClientConnection> {
        &mut self.wire
    }

    /// What the origin sent, as far as it was read.
    fn take_received(&mut self) -> Result<Option<Received>, Cause> {
        loop {
            let found = self.wire.codec.handle_input(self.wire.input.unread());
            let (consumed, event) = found.map_err(|error| Cause::Protocol(error.into()))?;
            if let ClientEvent::Data(range) = event {
                return Ok(Some(Received::Data(self.wire.input.take(range, consumed))));
            }
            self.wire.input.consume(consumed);
            match event {
                ClientEvent::Informational(status, headers) => self.inform(status, headers),
                ClientEvent::Response(head) => return Ok(Some(Received::Head(head))),
                ClientEvent::End(trailers) => return Ok(Some(Received::End(trailers))),
                ClientEvent::Incomplete | ClientEvent::Data(_) => return Ok(None),
            }
        }
    }

    /// What the end of the connection means.
    fn received_all(&mut self) -> Result<Received, Cause> {
        if self.wire.codec.ends_with_connection() && self.wire.transport.is_cut_off() {
            return Err(Cause::Closed);
        }
        match self.wire.codec.handle_eof() {
            Ok(ClientEvent::End(trailers)) => Ok(Received::End(trailers)),
            _ => Err(Cause::Closed),
        }
    }
}
