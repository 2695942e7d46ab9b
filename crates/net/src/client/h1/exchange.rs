//! One HTTP/1.1 request and its response on a connection.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use apus_codec::h1::{
    BodyFraming, ClientConnection, Http1ClientEvent, Http1Error, Http1ResponseHead, OutgoingRequest,
};
use apus_http::{Headers, StatusCode};
use bytes::Bytes;

use super::Http1ClientConnection;
use crate::client::exchange::{ClientExchange, SerialConnection};
use crate::client::upload::RequestUpload;
use crate::client::{ClientRequest, FailureCause, RequestFailure, RequestPhase};

/// For how long content is held back for an origin that says nothing (RFC 9110 section 10.1.1).
const CONTINUE: Duration = Duration::from_secs(1);

/// What an origin sent.
pub(super) enum Http1ResponsePart {
    Head(Http1ResponseHead),
    Data(Bytes),
    End(Option<Headers>),
}

impl Http1ClientConnection {
    /// Encodes a request and gets ready to send it.
    pub(super) fn begin(&mut self, request: ClientRequest) -> Result<(), RequestFailure> {
        let ClientRequest {
            head,
            body,
            interim,
            timeouts,
            stderr: _,
        } = request;
        if self.connection_return.is_none() {
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
                let upload = RequestUpload::new(out, body, length, is_held);
                self.wire.begin(upload, timeouts);
                self.interim = interim;
                Ok(())
            }
            Err(error) => {
                self.wire.buffers.put(out);
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

    /// Sends the request until the head of its response comes.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Http1ResponseHead, (RequestPhase, FailureCause)>> {
        loop {
            self.wire.send(cx)?;
            let phase = match self.wire.upload.is_over() {
                true => RequestPhase::Head,
                false => RequestPhase::Send,
            };
            let held = self.wire.upload.is_held();
            match self.poll_part(cx) {
                Poll::Ready(Ok(Http1ResponsePart::Head(head))) => {
                    self.wire.limits.read_until = None;
                    if head.status.as_u16() >= 400 || self.wire.lost.is_some() {
                        self.wire.upload.stop(&self.wire.buffers);
                    }
                    return Poll::Ready(Ok(head));
                }
                // Content comes behind a head only.
                Poll::Ready(Ok(_)) => {
                    let cause = FailureCause::Protocol(Http1Error::UnexpectedResponse.into());
                    return Poll::Ready(Err((phase, cause)));
                }
                Poll::Ready(Err(cause)) => {
                    return Poll::Ready(Err(match self.wire.lost.take() {
                        Some(lost) => (RequestPhase::Send, FailureCause::Io(lost)),
                        None => (phase, cause),
                    }));
                }
                // The origin asked for the content.
                Poll::Pending if held && !self.wire.upload.is_held() => continue,
                Poll::Pending => {}
            }
            if ready!(self.poll_head_deadline(cx)) {
                return Poll::Ready(Err((phase, FailureCause::TimedOut)));
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

impl ClientExchange for Http1ClientConnection {
    type Codec = ClientConnection;
    type Part = Http1ResponsePart;

    fn wire(&mut self) -> &mut SerialConnection<ClientConnection> {
        &mut self.wire
    }

    /// What the origin sent, as far as it was read.
    fn parse_part(&mut self) -> Result<Option<Http1ResponsePart>, FailureCause> {
        loop {
            let found = self.wire.codec.handle_input(self.wire.input.unread());
            let (consumed, event) = found.map_err(|error| FailureCause::Protocol(error.into()))?;
            if let Http1ClientEvent::Data(range) = event {
                return Ok(Some(Http1ResponsePart::Data(
                    self.wire.input.take(range, consumed),
                )));
            }
            self.wire.input.consume(consumed);
            match event {
                Http1ClientEvent::Informational(status, headers) => self.inform(status, headers),
                Http1ClientEvent::Response(head) => return Ok(Some(Http1ResponsePart::Head(head))),
                Http1ClientEvent::End(trailers) => {
                    return Ok(Some(Http1ResponsePart::End(trailers)));
                }
                Http1ClientEvent::Incomplete | Http1ClientEvent::Data(_) => return Ok(None),
            }
        }
    }

    /// What the end of the connection means.
    fn handle_eof(&mut self) -> Result<Http1ResponsePart, FailureCause> {
        if self.wire.codec.ends_with_connection() && self.wire.transport.is_cut_off() {
            return Err(FailureCause::Closed);
        }
        match self.wire.codec.handle_eof() {
            Ok(Http1ClientEvent::End(trailers)) => Ok(Http1ResponsePart::End(trailers)),
            _ => Err(FailureCause::Closed),
        }
    }
}
