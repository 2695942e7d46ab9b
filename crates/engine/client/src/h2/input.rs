//! The input of an HTTP/2 connection to an origin: reads it and handles its frames.

use std::task::{Context, Poll};

use apus_codec::h2::{ConnectionError, ErrorCode, Http2Event};

use super::MAX_OUT;
use super::driver::Http2ClientDriver;
use crate::streams::CloseReason;

/// The most bytes that are read before they are handled.
const MAX_READ: usize = 16 * 1024;

impl Http2ClientDriver {
    /// Reads the input and handles its frames; returns whether there was any.
    pub(super) fn poll_input(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Result<bool, CloseReason<ConnectionError>> {
        // Replies to frames would gather here. Bodies are read all the same: an origin that waits until its
        // responses are read might never read the request that blocks us.
        if self.streams.protocol.end.is_some() || self.is_choked() {
            return Ok(false);
        }
        if !self.unhandled && self.poll_fill(cx)? == 0 {
            return Ok(false);
        }
        self.handle_input();
        // Only now: a response whose body has come with its head is passed on as bytes instead of a stream.
        self.streams.deliver_pending();
        if self.streams.take_received() {
            self.timers.note_response();
        }
        Ok(true)
    }

    /// Whether more input would only produce more output.
    fn is_choked(&self) -> bool {
        self.streams.protocol.out.len() >= MAX_OUT
    }

    /// Reads the available input, up to a buffer.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Result<usize, CloseReason<ConnectionError>> {
        let mut read = 0;
        while read < MAX_READ {
            let room = self.input.room(&self.streams.protocol.buffers);
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
        while self.streams.protocol.end.is_none() && !self.is_choked() {
            let protocol = &mut self.streams.protocol;
            let frames = protocol.out.frames(&protocol.buffers);
            let (consumed, event) = match protocol.codec.handle_input(self.input.unread(), frames) {
                Ok(found) => found,
                Err(error) => {
                    // The connection does not end at once: the codec has added GOAWAY, which names the error to the
                    // origin.
                    protocol.end = Some(CloseReason::Protocol(error));
                    return;
                }
            };
            match event {
                Http2Event::Incomplete => {
                    self.input.consume(consumed);
                    self.unhandled = false;
                    return;
                }
                Http2Event::Data { stream, range, end } => {
                    let bytes = self.input.unread().get(range).unwrap_or_default();
                    self.streams.take_data(stream, bytes, end);
                }
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
            } => self.streams.take_interim(stream, status, *headers),
            Http2Event::Response {
                stream,
                status,
                headers,
                end,
            } => self.streams.take_head(stream, status, headers, end),
            Http2Event::Trailers { stream, trailers } => {
                self.streams.take_end(stream, Some(*trailers));
            }
            Http2Event::Reset { stream, code } => {
                tracing::debug!(%code, "an origin reset a stream");
                // Such a request was not processed, and can be sent again with any method (RFC 9113 section 8.7).
                self.streams
                    .take_reset(stream, code == ErrorCode::REFUSED_STREAM);
            }
            Http2Event::Malformed { stream, fault } => match stream {
                Some(stream) => self.streams.take_malformed(stream, Box::new(fault)),
                None => tracing::debug!(error = %fault, "an origin sent a malformed message"),
            },
            Http2Event::GoAway { last, code } => {
                tracing::debug!(%code, "an origin ends its connection");
                // It has not processed later streams (RFC 9113 section 6.8).
                self.streams.refuse(|id| id > last);
            }
            // Handled by the caller, or events of a server.
            Http2Event::Incomplete
            | Http2Event::Data { .. }
            | Http2Event::Request(_)
            | Http2Event::Refused { .. } => {}
        }
    }
}
