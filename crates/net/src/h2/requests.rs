//! The events of the codec: requests, for which the service is called, and errors.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::h2::{
    ConnectionError, Flood, HeadRefusal, Http2Event, Http2RequestHead, StreamKey,
};
use apus_http::{Body, BodyError, Method, Request, Response, ResponseFuture, ResponseOutcome};

use super::request_body::Http2RequestBody;
use super::stream::{StreamKind, StreamWork};
use super::{Http2Connection, Http2End, OUT_MOST};

/// The most bytes that are read before they are handled.
const READ_MOST: usize = 16 * 1024;

impl Http2Connection<'_> {
    /// Reads the input and handles its frames; returns whether there was any.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // Frames whose replies cannot be sent are not read: the replies would gather here.
        if self.end.is_some() || self.out.len() >= OUT_MOST {
            return Ok(false);
        }
        if !self.unhandled && self.poll_fill(cx)? == 0 && !self.client_left {
            return Ok(false);
        }
        self.handle_input();
        Ok(true)
    }

    /// Reads the available input, up to a buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut read = 0;
        while read < READ_MOST {
            let room = self.input.room(&self.worker.buffers);
            match self.transport.poll_read(cx, room) {
                Poll::Ready(Ok(0)) => {
                    self.client_left = true;
                    break;
                }
                Poll::Ready(Ok(more)) => read += more,
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        if read > 0 {
            self.worker.counters.bytes_in.add(read as u64);
            self.timers.read_at = self.worker.clock.ticks();
            self.arrived = Instant::now();
        }
        Ok(read)
    }

    /// Handles the frames in the input, up to the share of this poll.
    fn handle_input(&mut self) {
        let mut moved = false;
        let mut ended_head = false;
        self.unhandled = true;
        while self.end.is_none() && self.out.len() < OUT_MOST && !self.budget.is_full_of_requests()
        {
            let frames = self.out.frames(&self.worker.buffers);
            let (consumed, event) = match self.codec.handle_input(self.input.unread(), frames) {
                Ok(found) => found,
                Err(error) => return self.fail(error),
            };
            moved |= consumed > 0;
            match event {
                Http2Event::Data { stream, range, end } => self.take_data(stream, range, end),
                Http2Event::Incomplete => {
                    self.input.consume(consumed);
                    self.unhandled = false;
                    break;
                }
                event => {
                    ended_head = true;
                    self.handle(event);
                }
            }
            self.input.consume(consumed);
        }
        let inside_head = self.codec.is_inside_head();
        let begun = inside_head || !self.input.is_empty();
        let anew = ended_head || (moved && !inside_head);
        self.timers
            .note_partial_input(begun, anew, self.worker.clock.ticks());
    }

    fn handle(&mut self, event: Http2Event) {
        match event {
            Http2Event::Request(head) => self.call(head),
            Http2Event::Refused { stream, why } => self.refuse(stream, why),
            Http2Event::Malformed { stream, fault } => {
                self.worker.counters.bad_requests.add(1);
                tracing::debug!(peer = %self.info.peer, error = %fault, "refused a request");
                if let Some(stream) = stream {
                    self.fail_body(stream, BodyError::Malformed);
                    self.drop_stream(stream);
                }
            }
            Http2Event::Trailers { stream, trailers } => self.take_trailers(stream, *trailers),
            Http2Event::Reset { stream, code } => {
                tracing::debug!(peer = %self.info.peer, %code, "a client reset a stream");
                self.drop_stream(stream);
            }
            Http2Event::GoAway { code, .. } => {
                tracing::debug!(peer = %self.info.peer, %code, "a client ends its connection");
            }
            // Handled by the caller, or events of a client.
            Http2Event::Data { .. }
            | Http2Event::Incomplete
            | Http2Event::Informational { .. }
            | Http2Event::Response { .. } => {}
        }
    }

    /// Calls the service for a request.
    fn call(&mut self, request: Http2RequestHead) {
        self.worker.counters.requests.add(1);
        self.requests += 1;
        self.budget.requests += 1;
        let key = request.stream;
        let kind = match request.head.method {
            _ if request.is_tunnel => StreamKind::ExtendedConnect,
            Method::CONNECT => StreamKind::Connect,
            _ => StreamKind::Regular,
        };
        let (request_body, body) = if kind != StreamKind::Regular {
            (Some(Http2RequestBody::for_tunnel(request.end)), Body::Empty)
        } else if request.end {
            (None, Body::Empty)
        } else {
            let (request_body, body) =
                Http2RequestBody::new(request.content_length, request.expects_continue);
            (Some(request_body), body)
        };
        let stream = self.streams.enter(key);
        stream.kind = kind;
        stream.request_body = request_body;
        stream.moved_at = self.worker.clock.ticks();
        let mut request = Request::from_head(request.head, body, Rc::clone(&self.info));
        request.set_interim(self.interim(key));
        let service = self.listener.service();
        match catch_unwind(AssertUnwindSafe(|| service.call(request))) {
            Ok(ResponseFuture::Now(response)) => self.respond(key, response),
            Ok(ResponseFuture::Later(future)) => {
                if let Some(stream) = self.streams.get(key) {
                    stream.work = StreamWork::Response(future);
                    self.wakers.mark(key.slot(), self.stream_slots);
                }
            }
            Err(_) => {
                let response = self.panicked();
                self.respond(key, response);
            }
        }
    }

    /// Responds to a request that was refused by the codec.
    fn refuse(&mut self, key: StreamKey, why: HeadRefusal) {
        self.worker.counters.bad_requests.add(1);
        tracing::debug!(peer = %self.info.peer, error = %why, "refused a request");
        self.streams.enter(key).moved_at = self.worker.clock.ticks();
        let status = why.status();
        let reason = status.canonical_reason().unwrap_or_default();
        let text = format!("{} {reason}: {why}\n", status.as_u16());
        self.respond(key, Response::text(status, text));
    }

    pub(super) fn panicked(&self) -> Response {
        self.worker.panicked(&self.info)
    }

    /// Ends the connection of a client that broke the protocol or spent a budget. The GOAWAY is encoded
    /// already.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        let counters = &self.worker.counters;
        let counter = match error {
            ConnectionError::Flood(Flood::Resets) => &counters.stopped_reset_floods,
            ConnectionError::Flood(Flood::FieldBlock) => &counters.stopped_field_block_floods,
            ConnectionError::Flood(Flood::Acks) => &counters.stopped_reply_floods,
            ConnectionError::Flood(Flood::Overhead) => &counters.stopped_idle_floods,
            ConnectionError::Flood(Flood::TinyWindows) => &counters.stopped_tiny_window_floods,
            _ => &counters.bad_requests,
        };
        counter.add(1);
        tracing::debug!(peer = %self.info.peer, %error, "closed an HTTP/2 connection");
        self.unhandled = false;
        self.drop_all_streams();
        self.end = Some(Http2End::Linger);
    }

    /// Drops a stream that the client ended.
    pub(super) fn drop_stream(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.remove(key) else {
            return;
        };
        if let Some(observed) = stream.observed {
            observed.notify(ResponseOutcome::ClientGone);
        }
        // Their other ends fail now.
        drop((stream.request_body, stream.source));
        if let StreamWork::Tunnel(tunnel) = stream.work {
            tokio::task::spawn_local(tunnel);
        }
    }

    /// Drops all streams.
    pub(super) fn drop_all_streams(&mut self) {
        let keys: Vec<StreamKey> = self.streams.keys().collect();
        for key in keys {
            self.drop_stream(key);
        }
    }
}
