//! A request and its response on the wire: sending and receiving at the same time, within the limits
//! of time.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_http::h1::{
    BodyFraming, ClientConnection, ClientEvent, OutgoingRequest, ProtocolError, ResponseHead,
};
use apus_http::{Headers, StatusCode};
use bytes::Bytes;

use super::Inner;
use crate::client::exchange::{Exchange, Sending};
use crate::client::upload::{Broken, Upload};
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
            self.codec.close();
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
        let mut out = self.buffers.take();
        match self.codec.send_request(outgoing, &mut out) {
            Ok(framing) => {
                let length = match framing {
                    BodyFraming::Length(length) => Some(length),
                    BodyFraming::None => Some(0),
                    BodyFraming::Chunked | BodyFraming::UntilClose => None,
                };
                let is_held = head.expects_continue && framing != BodyFraming::None;
                self.upload = Upload::new(out, body, length, is_held);
            }
            Err(error) => {
                self.buffers.put(out);
                return Err(Failure {
                    body: Some(body),
                    ..Failure::unsent(Phase::Send, Cause::Request(error.into()))
                });
            }
        }
        self.requests += 1;
        self.interim = interim;
        self.limits.begin(timeouts);
        Ok(())
    }

    /// Sends the request until the head of its response comes.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<ResponseHead, (Phase, Cause)>> {
        loop {
            if !self.upload.is_over() && self.lost.is_none() {
                match self.sending().poll(cx) {
                    Poll::Pending | Poll::Ready(Ok(())) => {}
                    Poll::Ready(Err(Broken::Source(error))) => {
                        return Poll::Ready(Err((Phase::Send, Cause::Source(error))));
                    }
                    // It may have said why before it went away. What it said can be read, even if
                    // it is not there yet for who asks; and if there is nothing, that is told, too.
                    Poll::Ready(Err(Broken::Origin(error))) => {
                        self.lost = Some(error);
                        self.limits.write_until = None;
                    }
                }
            }
            let phase = match self.upload.is_over() {
                true => Phase::Head,
                false => Phase::Send,
            };
            let held = self.upload.is_held();
            match self.poll_received(cx) {
                Poll::Ready(Ok(Received::Head(head))) => {
                    self.limits.read_until = None;
                    if head.status.as_u16() >= 400 || self.lost.is_some() {
                        self.upload.stop(&self.buffers);
                    }
                    return Poll::Ready(Ok(head));
                }
                // Content comes behind a head only.
                Poll::Ready(Ok(_)) => {
                    let cause = Cause::Protocol(ProtocolError::UnaskedResponse.into());
                    return Poll::Ready(Err((phase, cause)));
                }
                Poll::Ready(Err(cause)) => {
                    return Poll::Ready(Err(match self.lost.take() {
                        Some(lost) => (Phase::Send, Cause::Io(lost)),
                        None => (phase, cause),
                    }));
                }
                // The origin asked for the content.
                Poll::Pending if held && !self.upload.is_held() => continue,
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
        let is_held = self.upload.is_held() && !self.upload.is_blocked();
        if is_held || self.upload.is_over() || self.lost.is_some() {
            self.limits.expect(|timeouts| match is_held {
                true => CONTINUE,
                false => timeouts.first_byte,
            });
        }
        ready!(self.limits.poll(cx));
        if is_held && self.limits.write_until.is_none() {
            self.limits.read_until = None;
            self.upload.release();
            return Poll::Ready(false);
        }
        Poll::Ready(true)
    }

    /// What the origin sent, as far as it was read.
    pub(super) fn take_received(&mut self) -> Result<Option<Received>, Cause> {
        loop {
            let found = self.codec.handle_input(self.input.unread());
            let (consumed, event) = found.map_err(|error| Cause::Protocol(error.into()))?;
            if let ClientEvent::Data(range) = event {
                return Ok(Some(Received::Data(self.input.take(range, consumed))));
            }
            self.input.consume(consumed);
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
        if self.codec.ends_with_connection() && self.transport.is_cut_off() {
            return Err(Cause::Closed);
        }
        match self.codec.handle_eof() {
            Ok(ClientEvent::End(trailers)) => Ok(Received::End(trailers)),
            _ => Err(Cause::Closed),
        }
    }

    /// Passes an interim response on.
    fn inform(&mut self, status: StatusCode, headers: Headers) {
        if status == StatusCode::CONTINUE && self.upload.is_held() {
            self.limits.read_until = None;
            self.upload.release();
        }
        if let Some(interim) = &self.interim {
            interim.send(status, headers);
        }
    }
}

impl Exchange for Inner {
    type Codec = ClientConnection;
    type Received = Received;

    fn sending(&mut self) -> Sending<'_, ClientConnection> {
        Sending {
            upload: &mut self.upload,
            limits: &mut self.limits,
            transport: &mut self.transport,
            codec: &mut self.codec,
            buffers: &self.buffers,
            is_lost: self.lost.is_some(),
        }
    }

    fn poll_received(&mut self, cx: &mut Context<'_>) -> Poll<Result<Received, Cause>> {
        loop {
            if let Some(received) = self.take_received()? {
                return Poll::Ready(Ok(received));
            }
            let room = self.input.room(&self.buffers);
            let polled = self.transport.poll_read(cx, room);
            if polled.is_pending() {
                self.input.rest(&self.buffers);
            }
            if ready!(polled).map_err(Cause::Io)? == 0 {
                return Poll::Ready(self.received_all());
            }
        }
    }
}
