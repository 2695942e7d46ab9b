//! The events of an HTTP/2 connection to an origin: responses and their bodies, resets and the end.

use std::ops::Range;
use std::task::{Context, Poll};

use apus_codec::h2::{ErrorCode, Http2Event, StreamKey};
use apus_http::{Body, BodyError, Headers, StatusCode, Version};
use bytes::Bytes;

use super::STREAMS;
use super::driver::{CloseReason, Http2ClientDriver};
use super::stream::{ClientStream, PendingResponse, ResponseState};
use crate::body::{BodyReceiver, BodySender};
use crate::client::deadline::after;
use crate::client::{ClientResponse, FailureCause};
use crate::h2::tunnel;

/// The most bytes that are read before they are handled.
const READ_MOST: usize = 16 * 1024;

impl Http2ClientDriver {
    /// Reads the input and handles its frames; returns whether there was any.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        // Replies to frames would gather here. Bodies are read all the same: an origin that waits until its
        // responses are read might never read the request that blocks us.
        if self.end.is_some() || self.is_choked() {
            return Ok(false);
        }
        if !self.unhandled && self.poll_fill(cx)? == 0 {
            return Ok(false);
        }
        self.handle_input();
        self.deliver_pending();
        Ok(true)
    }

    /// Reads the available input, up to a buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Result<usize, CloseReason> {
        let mut read = 0;
        while read < READ_MOST {
            let room = self.input.room(&self.buffers);
            match self.transport.poll_read(cx, room)? {
                Poll::Ready(0) if read == 0 => return Err(CloseReason::Closed),
                // The next read returns the end again.
                Poll::Ready(0) | Poll::Pending => break,
                Poll::Ready(more) => read += more,
            }
        }
        if read > 0 {
            self.timers.note_read();
        }
        Ok(read)
    }

    fn handle_input(&mut self) {
        self.unhandled = true;
        while self.end.is_none() && !self.is_choked() {
            let frames = self.out.frames(&self.buffers);
            let (consumed, event) = match self.codec.handle_input(self.input.unread(), frames) {
                Ok(found) => found,
                Err(error) => {
                    self.end = Some(CloseReason::Protocol(error));
                    return;
                }
            };
            match event {
                Http2Event::Incomplete => {
                    self.input.consume(consumed);
                    self.unhandled = false;
                    return;
                }
                Http2Event::Data { stream, range, end } => self.take_data(stream, range, end),
                event => self.handle(event),
            }
            self.input.consume(consumed);
        }
    }

    fn handle(&mut self, event: Http2Event) {
        match event {
            Http2Event::Informational {
                stream,
                status,
                headers,
            } => self.take_interim(stream, status, *headers),
            Http2Event::Response {
                stream,
                status,
                headers,
                end,
            } => self.take_head(stream, status, headers, end),
            Http2Event::Trailers { stream, trailers } => self.take_end(stream, Some(*trailers)),
            Http2Event::Reset { stream, code } => self.take_reset(stream, code),
            Http2Event::Malformed { stream, fault } => {
                tracing::debug!(error = %fault, "an origin sent a malformed message");
                if let Some(stream) = stream.and_then(|key| self.streams.remove(key)) {
                    self.fail(
                        stream,
                        FailureCause::Protocol(Box::new(fault)),
                        BodyError::Malformed,
                    );
                }
            }
            Http2Event::GoAway { last, code } => {
                tracing::debug!(%code, "an origin ends its connection");
                self.refuse_behind(last);
            }
            // Handled by the caller, or events of a server.
            Http2Event::Incomplete
            | Http2Event::Data { .. }
            | Http2Event::Request(_)
            | Http2Event::Refused { .. } => {}
        }
    }

    fn take_interim(&mut self, key: StreamKey, status: StatusCode, headers: Headers) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        if let Some(interim) = &stream.interim {
            interim.send(status, headers);
        }
        if status == StatusCode::CONTINUE && stream.request_body.held_until.is_some() {
            self.begin_sending(key);
        }
    }

    fn take_head(
        &mut self,
        key: StreamKey,
        status: StatusCode,
        mut headers: Box<Headers>,
        end: bool,
    ) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        self.timers.note_response();
        stream.receive_by = None;
        if status == StatusCode::NO_CONTENT {
            // A 204 has no length (RFC 9110 section 8.6).
            headers.remove("content-length");
        }
        if stream.is_tunnel && status.is_success() && !end {
            return self.open_tunnel(key, *headers);
        }
        let has_body = !stream.is_head
            && status != StatusCode::NO_CONTENT
            && status != StatusCode::NOT_MODIFIED;
        stream.response = ResponseState::Pending(PendingResponse::new(status, headers));
        let is_held = stream.request_body.held_until.is_some();
        if is_held && !status.is_success() {
            // The body that was held back is not wanted; the stream is reset at its end.
            stream.request_body.forget();
        } else if is_held || stream.is_tunnel {
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
    fn open_tunnel(&mut self, key: StreamKey, headers: Headers) {
        let (sender, receiver) = BodySender::new(None);
        let (duplex, source) = tunnel::over(Some(receiver));
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.request_body.source = Some(source);
        stream.response = ResponseState::Body(sender);
        if let Some(response_slot) = stream.response_slot.take() {
            response_slot.settle(Ok(ClientResponse {
                status: StatusCode::SWITCHING_PROTOCOLS,
                version: Version::HTTP_2,
                headers,
                body: Body::Empty,
                tunnel: Some(duplex),
            }));
        }
        self.wakers.mark(key.slot(), STREAMS);
    }

    /// Passes a chunk of a body in the input to its reader.
    fn take_data(&mut self, key: StreamKey, range: Range<usize>, end: bool) {
        let waker = self.wakers.waker(key.slot(), STREAMS);
        let cx = Context::from_waker(&waker);
        let bytes = self.input.unread().get(range).unwrap_or_default();
        let len = bytes.len();
        self.timers.note_response();
        if let Some(stream) = self.streams.get(key) {
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
    fn take_end(&mut self, key: StreamKey, trailers: Option<Headers>) {
        let trailers = trailers.filter(|trailers| !trailers.is_empty());
        let waker = self.wakers.waker(key.slot(), STREAMS);
        let cx = Context::from_waker(&waker);
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        match &mut stream.response {
            ResponseState::Body(sender) => {
                sender.end(Ok(trailers), &cx);
                if stream.is_tunnel && self.codec.is_open(key) {
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
    fn deliver_pending(&mut self) {
        while let Some(key) = self.pending.pop() {
            let waker = self.wakers.waker(key.slot(), STREAMS);
            let cx = Context::from_waker(&waker);
            let Some(stream) = self.streams.get(key) else {
                continue;
            };
            let ResponseState::Pending(pending) = &mut stream.response else {
                continue;
            };
            pending.flow(&cx);
            if let Some((sender, receiver)) = pending.flow.take() {
                self.deliver(key, Body::stream(receiver));
                if let Some(stream) = self.streams.get(key) {
                    stream.response = ResponseState::Body(sender);
                }
                self.wakers.mark(key.slot(), STREAMS);
            }
        }
    }

    /// Gives the response to its sender.
    fn deliver(&mut self, key: StreamKey, body: Body) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let response = std::mem::replace(&mut stream.response, ResponseState::Ended);
        if let (ResponseState::Pending(pending), Some(response_slot)) =
            (response, stream.response_slot.take())
        {
            response_slot.settle(Ok(ClientResponse {
                status: pending.status,
                version: Version::HTTP_2,
                headers: *pending.headers,
                body,
                tunnel: None,
            }));
        }
    }

    fn take_reset(&mut self, key: StreamKey, code: ErrorCode) {
        tracing::debug!(%code, "an origin reset a stream");
        let cause = match code {
            ErrorCode::REFUSED_STREAM => FailureCause::Refused,
            _ => FailureCause::Reset,
        };
        if let Some(stream) = self.streams.remove(key) {
            self.fail(stream, cause, BodyError::Disconnected);
        }
    }

    /// The origin has not processed later streams (RFC 9113 section 6.8).
    fn refuse_behind(&mut self, last: u32) {
        for key in self.streams.keys() {
            if key.id() > last
                && let Some(stream) = self.cancel(key)
            {
                self.fail(stream, FailureCause::Refused, BodyError::Disconnected);
            }
        }
    }

    /// Acts on the progress of a stream's sender and reader: opens windows, or cancels the request.
    pub(super) fn note_progress(&mut self, key: StreamKey, cx: &Context<'_>) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let is_gone = |stream: &ClientStream| {
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
        if is_abandoned && (!stream.is_tunnel || stream.request_body.ended) {
            self.cancel(key);
            return;
        }
        let is_late = progress.wanted && stream.receive_by.is_none() && !stream.is_tunnel;
        self.consume(key, progress.used);
        if is_late {
            self.receive_in_time(key);
        }
    }

    /// Sets the deadline of the next part of a response.
    fn receive_in_time(&mut self, key: StreamKey) {
        if let Some(stream) = self.streams.get(key) {
            let by = after(stream.timeouts.read);
            stream.receive_by = Some(by);
            self.timers.examine_by(by);
        }
    }

    fn consume(&mut self, key: StreamKey, bytes: usize) {
        if bytes > 0 {
            let frames = self.out.frames(&self.buffers);
            self.codec.consumed(key, bytes, frames);
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
