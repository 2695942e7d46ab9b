//! Responses and their bodies, resets, and the progress of their readers.

use std::error::Error;
use std::task::Context;

use apus_codec::messages::RequestKind;
use apus_codec::stream_table::StreamKey;
use apus_http::{Body, BodyError, Headers, StatusCode};
use apus_transport::{BodyReceiver, BodySender, tunnel};
use bytes::Bytes;

use super::table::{ClientStream, PendingResponse, ResponseState};
use super::{ClientProtocol, OriginStreams, STREAMS};
use crate::deadline::after;
use crate::{ClientResponse, FailureCause, refuses_body};

impl<P: ClientProtocol> OriginStreams<P> {
    /// Handles an interim response.
    pub(crate) fn take_interim(
        &mut self,
        key: StreamKey<P::Id>,
        status: StatusCode,
        headers: Headers,
    ) {
        let Some(stream) = self.table.get(key) else {
            return;
        };
        if let Some(interim) = &stream.interim {
            interim.send(status, headers);
        }
        if status == StatusCode::CONTINUE && stream.request_body.held_until.is_some() {
            self.begin_sending(key);
        }
    }

    /// Handles the head of a response.
    pub(crate) fn take_head(
        &mut self,
        key: StreamKey<P::Id>,
        status: StatusCode,
        mut headers: Box<Headers>,
        end: bool,
    ) {
        let Some(stream) = self.table.get(key) else {
            return;
        };
        self.has_received = true;
        stream.receive_by = None;
        if status == StatusCode::NO_CONTENT {
            // A 204 has no length (RFC 9110 section 8.6).
            headers.remove("content-length");
        }
        let begins = RequestKind::ExtendedConnect.begins_tunnel_over_stream(status);
        // If the head ends the stream, there is no tunnel.
        if stream.tunnel.is_some() && begins && !end {
            return self.open_tunnel(key, *headers);
        }
        let has_body = !stream.is_head
            && status != StatusCode::NO_CONTENT
            && status != StatusCode::NOT_MODIFIED;
        stream.response = ResponseState::Pending(PendingResponse::new(status, headers));
        let is_held = stream.request_body.held_until.is_some();
        if is_held && refuses_body(status) {
            // The body that was held back is not wanted; the stream is reset at its end.
            stream.request_body.forget();
        } else if is_held || stream.tunnel.is_some() {
            // The wait for 100 is over, or there is no tunnel.
            self.begin_sending(key);
        }
        if end {
            self.take_end(key, None);
        } else if has_body {
            self.pending.push(key);
        } else {
            self.deliver(key, Body::Empty);
            self.receive_in_time(key);
        }
    }

    /// Delivers a stream that the origin accepted as a tunnel.
    fn open_tunnel(&mut self, key: StreamKey<P::Id>, mut headers: Headers) {
        let (sender, receiver) = BodySender::new(None);
        let (duplex, source) = tunnel::over_stream(Some(receiver));
        let Some(stream) = self.table.get(key) else {
            return;
        };
        stream.request_body.source = Some(source);
        if let Some(protocol) = stream.tunnel.as_deref() {
            // As an origin over HTTP/1.1 does. The name is a valid value: it was sent in the request.
            let _ = headers.try_insert("upgrade", protocol);
        }
        stream.response = ResponseState::Body(sender);
        if let Some(response_slot) = stream.response_slot.take() {
            response_slot.settle(Ok(ClientResponse {
                status: StatusCode::SWITCHING_PROTOCOLS,
                version: P::VERSION,
                headers,
                body: Body::Empty,
                tunnel: Some(duplex),
            }));
        }
        self.wakers.mark(key.slot(), STREAMS);
    }

    /// Passes a chunk of a body to its reader.
    pub(crate) fn take_data(&mut self, key: StreamKey<P::Id>, bytes: &[u8], end: bool) {
        let waker = self.wakers.waker(key.slot(), STREAMS);
        let cx = Context::from_waker(&waker);
        let len = bytes.len();
        self.has_received = true;
        if let Some(stream) = self.table.get(key) {
            match &mut stream.response {
                ResponseState::Body(sender) => {
                    stream.receive_by = None;
                    sender.push_behind(bytes, &cx);
                    self.wakers.mark(key.slot(), STREAMS);
                }
                ResponseState::Pending(pending) => pending.add(bytes, &cx),
                ResponseState::Head | ResponseState::Ended => self.consume(key, len),
            }
        }
        if end {
            self.take_end(key, None);
        }
    }

    /// Handles the end of a response.
    pub(crate) fn take_end(&mut self, key: StreamKey<P::Id>, trailers: Option<Headers>) {
        let trailers = trailers.filter(|trailers| !trailers.is_empty());
        let waker = self.wakers.waker(key.slot(), STREAMS);
        let cx = Context::from_waker(&waker);
        let Some(stream) = self.table.get(key) else {
            return;
        };
        match &mut stream.response {
            ResponseState::Body(sender) => {
                sender.end(Ok(trailers), &cx);
                if stream.tunnel.is_some() && self.protocol.is_open(key) {
                    // The other direction is still open.
                    return;
                }
            }
            ResponseState::Pending(pending) => {
                let body = match (&pending.flow, trailers) {
                    (None, None) => pending.piece.take().map_or(Body::Empty, Body::from),
                    (_, trailers) => {
                        pending.flow(&cx).0.end(Ok(trailers), &cx);
                        let flow = pending.flow.take();
                        flow.map_or(Body::Empty, |(_, stream)| Body::stream(stream))
                    }
                };
                self.deliver(key, body);
            }
            ResponseState::Head | ResponseState::Ended => {}
        }
        // The response is complete, so the rest of the request is of no use.
        self.cancel(key);
    }

    /// Delivers the responses whose bodies did not end in the current input.
    pub(crate) fn deliver_pending(&mut self) {
        while let Some(key) = self.pending.pop() {
            let waker = self.wakers.waker(key.slot(), STREAMS);
            let cx = Context::from_waker(&waker);
            let Some(stream) = self.table.get(key) else {
                continue;
            };
            let ResponseState::Pending(pending) = &mut stream.response else {
                continue;
            };
            pending.flow(&cx);
            if let Some((sender, receiver)) = pending.flow.take() {
                self.deliver(key, Body::stream(receiver));
                if let Some(stream) = self.table.get(key) {
                    stream.response = ResponseState::Body(sender);
                }
                self.wakers.mark(key.slot(), STREAMS);
            }
        }
    }

    /// Gives the response to its sender.
    fn deliver(&mut self, key: StreamKey<P::Id>, body: Body) {
        let Some(stream) = self.table.get(key) else {
            return;
        };
        let response = std::mem::replace(&mut stream.response, ResponseState::Ended);
        if let (ResponseState::Pending(pending), Some(response_slot)) =
            (response, stream.response_slot.take())
        {
            response_slot.settle(Ok(ClientResponse {
                status: pending.status,
                version: P::VERSION,
                headers: *pending.headers,
                body,
                tunnel: None,
            }));
        }
    }

    /// Handles the reset of a stream by the origin, which `is_refused` if it reports that it did not process the request.
    pub(crate) fn take_reset(&mut self, key: StreamKey<P::Id>, is_refused: bool) {
        let cause = if is_refused {
            FailureCause::Refused
        } else {
            FailureCause::Reset
        };
        if let Some(stream) = self.table.remove(key) {
            self.fail(*stream, cause, BodyError::Disconnected);
        }
    }

    /// The origin needs no more of a request's body, and may still respond (RFC 9114 section 4.1.1).
    #[cfg(feature = "http3")]
    pub(crate) fn take_body_refused(&mut self, key: StreamKey<P::Id>) {
        if let Some(stream) = self.table.get(key) {
            stream.request_body.forget();
            // The body is gone, so that there is none for another attempt.
            stream.request_body.is_untouched = false;
        }
        self.await_response(key);
    }

    /// Handles a malformed message of the origin, whose stream is closed.
    pub(crate) fn take_malformed(
        &mut self,
        key: StreamKey<P::Id>,
        fault: Box<dyn Error + Send + Sync>,
    ) {
        tracing::debug!(error = %fault, "an origin sent a malformed message");
        if let Some(stream) = self.table.remove(key) {
            self.fail(*stream, FailureCause::Protocol(fault), BodyError::Malformed);
        }
    }

    /// Fails the requests that the origin did not process, according to its GOAWAY (RFC 9113 section 6.8, RFC 9114 section
    /// 5.2).
    pub(crate) fn refuse(&mut self, is_refused: impl Fn(P::Id) -> bool) {
        for key in self.table.keys() {
            if is_refused(key.id())
                && let Some(stream) = self.cancel(key)
            {
                self.fail(*stream, FailureCause::Refused, BodyError::Disconnected);
            }
        }
    }

    /// Acts on the progress of a stream's sender and reader: opens windows, or cancels the request.
    pub(super) fn note_progress(&mut self, key: StreamKey<P::Id>, cx: &Context<'_>) {
        let Some(stream) = self.table.get(key) else {
            return;
        };
        let is_gone = |stream: &ClientStream<P::Id>| {
            let response_slot = stream.response_slot.as_ref();
            response_slot.is_some_and(|response_slot| response_slot.is_abandoned())
        };
        if is_gone(stream) {
            self.cancel(key);
            return;
        }
        let ResponseState::Body(sender) = &stream.response else {
            return;
        };
        let progress = sender.progress(cx);
        let is_abandoned = sender.is_abandoned();
        // One direction of a tunnel may end before the other.
        if is_abandoned && (stream.tunnel.is_none() || stream.request_body.ended) {
            self.cancel(key);
            return;
        }
        // The origin's time runs only while the reader waits: a slow reader must not make the origin look slow.
        let is_late = progress.wanted && stream.receive_by.is_none() && stream.tunnel.is_none();
        self.consume(key, progress.used);
        if is_late {
            self.receive_in_time(key);
        }
    }

    /// Sets the deadline of the next part of a response.
    fn receive_in_time(&mut self, key: StreamKey<P::Id>) {
        if let Some(stream) = self.table.get(key) {
            let by = after(stream.timeouts.read);
            stream.receive_by = Some(by);
            self.examine_by(by);
        }
    }

    fn consume(&mut self, key: StreamKey<P::Id>, bytes: usize) {
        if bytes > 0 {
            self.protocol.consumed(key, bytes);
        }
    }
}

impl PendingResponse {
    fn new(status: StatusCode, headers: Box<Headers>) -> Self {
        Self {
            status,
            headers,
            piece: None,
            flow: None,
        }
    }

    /// Adds a chunk of the body. The first chunk may be the whole body.
    fn add(&mut self, bytes: &[u8], cx: &Context<'_>) {
        if bytes.is_empty() {
            return;
        }
        if self.piece.is_none() && self.flow.is_none() {
            self.piece = Some(Bytes::copy_from_slice(bytes));
        } else {
            self.flow(cx).0.push_behind(bytes, cx);
        }
    }

    /// The body as a stream, beginning with its first chunk.
    fn flow(&mut self, cx: &Context<'_>) -> &(BodySender, BodyReceiver) {
        self.flow.get_or_insert_with(|| {
            let length = self.headers.get_str("content-length");
            let flow = BodySender::new(length.and_then(|length| length.parse().ok()));
            if let Some(piece) = self.piece.take() {
                flow.0.push(piece, cx);
            }
            flow
        })
    }
}
