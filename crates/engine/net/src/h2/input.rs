//! The input of an HTTP/2 connection, and the events that the codec finds in it.

use std::io;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::h2::{ConnectionError, Http2Event};
use apus_http::BodyError;

use super::{Http2Connection, Http2End, MAX_OUT};

/// The most bytes that are read before they are handled.
// Not the whole socket at once: the requests in it would be served before any response of those before them is
// written.
const MAX_READ: usize = 16 * 1024;

impl Http2Connection<'_> {
    /// Reads the input and handles its frames; returns whether there was any.
    pub(super) fn poll_input(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        // Frames whose replies cannot be sent are not read: the replies would gather here.
        if self.end.is_some() || self.streams.protocol.out.len() >= MAX_OUT {
            return Ok(false);
        }
        let was_open = self.half_closed.is_none();
        if !self.unhandled && self.poll_fill(cx)? == 0 {
            if was_open && self.half_closed.is_some() {
                self.streams.fail_bodies();
            }
            return Ok(false);
        }
        self.handle_input();
        if self.half_closed.is_some() && !self.unhandled {
            // What is incomplete will not be complete any more.
            self.streams.fail_bodies();
        }
        Ok(true)
    }

    /// Reads the available input, up to a buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> io::Result<usize> {
        let mut read = 0;
        while read < MAX_READ && self.half_closed.is_none() {
            let room = self.input.room(&self.worker.buffers);
            match self.transport.poll_read(cx, room) {
                Poll::Ready(Ok(0)) => {
                    self.begin_half_close();
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
            self.streams.arrived = Instant::now();
        }
        Ok(read)
    }

    /// Handles the frames in the input, up to the share of this poll.
    fn handle_input(&mut self) {
        let mut moved = false;
        let mut ended_head = false;
        self.unhandled = true;
        while self.end.is_none()
            && self.streams.protocol.out.len() < MAX_OUT
            && !self.streams.budget.is_full_of_requests()
        {
            let (codec, frames) = self.streams.protocol.parts();
            let (consumed, event) = match codec.handle_input(self.input.unread(), frames) {
                Ok(found) => found,
                Err(error) => return self.fail(error),
            };
            moved |= consumed > 0;
            match event {
                Http2Event::Data { stream, range, end } => {
                    let piece = self.input.unread().get(range).unwrap_or_default();
                    self.streams.take_data(stream, piece, end);
                }
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
        let inside_head = self.streams.protocol.codec.is_inside_head();
        // What is here and has to wait for this end is not late.
        let begun = !self.unhandled && (inside_head || !self.input.is_empty());
        let anew = ended_head || (moved && !inside_head);
        self.timers
            .note_partial_input(begun, anew, self.worker.clock.ticks());
    }

    fn handle(&mut self, event: Http2Event) {
        match event {
            Http2Event::Request(request) => self.streams.call(request),
            Http2Event::Refused { stream, why } => self.streams.refuse(stream, why.status(), &why),
            Http2Event::Malformed { stream, fault } => {
                self.streams.count_malformed();
                tracing::debug!(peer = %self.streams.info.peer, error = %fault, "refused a request");
                if let Some(stream) = stream {
                    self.streams.fail_body(stream, BodyError::Malformed);
                    self.streams.drop_stream(stream);
                }
            }
            Http2Event::Trailers { stream, trailers } => {
                self.streams.take_trailers(stream, *trailers);
            }
            Http2Event::Reset { stream, code } => {
                tracing::debug!(peer = %self.streams.info.peer, %code, "a client reset a stream");
                self.streams.drop_reset_stream(stream);
            }
            Http2Event::GoAway { code, .. } => {
                tracing::debug!(peer = %self.streams.info.peer, %code, "a client ends its connection");
            }
            // Handled by the caller, or events of a client.
            Http2Event::Data { .. }
            | Http2Event::Incomplete
            | Http2Event::Informational { .. }
            | Http2Event::Response { .. } => {}
        }
    }

    /// Ends the connection of a client that broke the protocol or spent a budget. The GOAWAY is encoded
    /// already.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        self.streams.count_fault(match error {
            ConnectionError::Flood(flood) => Some(flood),
            _ => None,
        });
        tracing::debug!(peer = %self.streams.info.peer, %error, "closed an HTTP/2 connection");
        self.unhandled = false;
        self.streams.drop_all_streams();
        self.end = Some(Http2End::Linger);
    }
}
