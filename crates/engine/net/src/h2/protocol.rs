//! The codec of an HTTP/2 connection and its output, as the protocol of its streams.

use std::collections::VecDeque;
use std::rc::Rc;

use apus_codec::h2::{ConnectionError, ErrorCode, ExpectedBody, Http2Codec, StreamKey};
use apus_http::{Headers, ResponseHead, ResponseOutcome, StatusCode};
use apus_transport::buffers::BufferPool;
use apus_transport::write_batch::{FRAME_HEADER, WriteBatch};
use bytes::Bytes;

use super::MAX_OUT;
use crate::streams::{self, CompletionObservers, ResetReason, Stall, StreamProtocol};

/// The codec and the bytes to write.
pub(super) struct Http2Protocol {
    pub(super) codec: Http2Codec,
    /// The bytes to write.
    pub(super) out: WriteBatch,
    buffers: Rc<BufferPool>,
    /// The responses in `out` whose completion is to be reported when they have left.
    written: VecDeque<QueuedCompletion>,
    /// Why the connection failed. The GOAWAY is in `out`.
    pub(super) failure: Option<ConnectionError>,
}

/// A response whose last bytes are encoded, and the observers of its completion.
struct QueuedCompletion {
    /// The bytes that the connection has written when the response has left.
    at: u64,
    observed: Box<CompletionObservers>,
}

impl Http2Protocol {
    pub(super) fn new(codec: Http2Codec, out: WriteBatch, buffers: Rc<BufferPool>) -> Self {
        Self {
            codec,
            out,
            buffers,
            written: VecDeque::new(),
            failure: None,
        }
    }

    /// The codec, and the buffer to append frames to.
    pub(super) fn parts(&mut self) -> (&mut Http2Codec, &mut Vec<u8>) {
        (&mut self.codec, self.out.frames(&self.buffers))
    }

    /// Reports the responses that have left.
    pub(super) fn complete_written(&mut self) {
        while let Some(first) = self.written.front()
            && first.at <= self.out.written()
        {
            if let Some(written) = self.written.pop_front() {
                written.observed.notify(ResponseOutcome::Complete);
            }
        }
    }

    /// Reports the responses that cannot leave any more.
    pub(super) fn fail_unwritten(&mut self) {
        for written in self.written.drain(..) {
            written.observed.notify(ResponseOutcome::ClientGone);
        }
    }

    /// Releases the tables, while no stream is open.
    pub(super) fn shrink(&mut self) {
        self.codec.release_memory();
        self.out.shrink();
        self.written.shrink_to_fit();
    }

    /// Encodes the header of a DATA frame; returns whether the connection stands.
    fn send_data(&mut self, stream: StreamKey, len: usize, end: bool) -> bool {
        let (codec, frames) = self.parts();
        match codec.send_data(stream, len, end, frames) {
            Ok(()) => true,
            Err(error) => {
                self.failure = Some(error);
                false
            }
        }
    }

    /// How many bytes `encode` appends.
    fn appended<T>(&mut self, encode: impl FnOnce(&mut Http2Codec, &mut Vec<u8>) -> T) -> (T, u64) {
        let (codec, frames) = self.parts();
        let before = frames.len();
        let encoded = encode(codec, frames);
        (encoded, (frames.len() - before) as u64)
    }
}

impl streams::SlotKey for StreamKey {
    fn slot(self) -> usize {
        self.slot()
    }

    fn number(self) -> u32 {
        self.id()
    }
}

impl StreamProtocol for Http2Protocol {
    type Key = StreamKey;

    fn is_open(&self, stream: StreamKey) -> bool {
        self.codec.is_open(stream)
    }

    fn stall(&self, stream: StreamKey) -> Option<Stall> {
        if !self.codec.is_stalled(stream) {
            return None;
        }
        Some(if self.codec.is_connection_stalled() {
            Stall::Connection
        } else {
            Stall::Stream
        })
    }

    fn unsent(&self, _: StreamKey) -> u64 {
        0
    }

    fn has_room(&self) -> bool {
        self.out.len() < MAX_OUT
    }

    fn send_head(&mut self, stream: StreamKey, head: ResponseHead<'_>) -> (ExpectedBody, u64) {
        self.appended(|codec, frames| codec.send_head(stream, head, frames))
    }

    fn send_informational(&mut self, stream: StreamKey, status: StatusCode, headers: &Headers) {
        let (codec, frames) = self.parts();
        codec.send_informational(stream, status, headers, frames);
    }

    fn want_send(&mut self, stream: StreamKey) {
        self.codec.want_send(stream);
    }

    fn send_bytes(&mut self, stream: StreamKey, chunk: Bytes, end: bool) -> Option<u64> {
        if !self.send_data(stream, chunk.len(), end) {
            return None;
        }
        self.out.add(chunk, &self.buffers);
        Some(FRAME_HEADER as u64)
    }

    fn room(&mut self, most: usize) -> &mut [u8] {
        self.out.room(most, &self.buffers)
    }

    fn send_read(&mut self, stream: StreamKey, len: usize, end: bool) -> Option<u64> {
        if !self.send_data(stream, len, end) {
            return None;
        }
        self.out.add_read(len);
        Some(FRAME_HEADER as u64)
    }

    fn send_trailers(&mut self, stream: StreamKey, trailers: &Headers) -> u64 {
        let ((), bytes) =
            self.appended(|codec, frames| codec.send_trailers(stream, trailers, frames));
        bytes
    }

    fn complete(&mut self, _: StreamKey, observed: Box<CompletionObservers>) {
        let at = self.out.added();
        self.written.push_back(QueuedCompletion { at, observed });
    }

    fn abandon(&mut self, stream: StreamKey) {
        let (codec, frames) = self.parts();
        codec.abandon(stream, frames);
    }

    fn reset(&mut self, stream: StreamKey, why: ResetReason) {
        let code = match why {
            // With this code, and after a complete response only, a client does not discard the response (RFC 9113
            // section 8.1).
            ResetReason::Complete => ErrorCode::NO_ERROR,
            ResetReason::Failed => ErrorCode::INTERNAL_ERROR,
            ResetReason::Stalled | ResetReason::Unsent => ErrorCode::CANCEL,
        };
        let (codec, frames) = self.parts();
        codec.reset(stream, code, frames);
    }

    fn consumed(&mut self, stream: StreamKey, bytes: usize) {
        let (codec, frames) = self.parts();
        codec.consumed(stream, bytes, frames);
    }
}
