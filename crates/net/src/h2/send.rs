//! The bodies of responses over HTTP/2, gathered from all streams in the order of their priorities.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, ready};

use apus_codec::h2::StreamKey;
use apus_http::{FileRange, Frame, Headers};
use bytes::Bytes;

use super::stream::{BodyChunk, ChunkPart, StreamWork};
use super::write::{BATCH, FRAME_HEADER, LARGE_WRITE, SPACE_LEAST};
use super::{BATCH_LEAST, Http2Connection};
use crate::file::{read_away, read_cached, without_first};

/// What follows the current data of a body.
enum BodyTail {
    /// More data, or it is unknown.
    More,
    /// The end.
    End,
    /// Trailers.
    Trailers(Headers),
    /// A source that failed.
    Failed,
}

impl Http2Connection<'_> {
    /// Writes the pending frames together with as much data as fits; returns whether any bytes left.
    pub(super) fn poll_output(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        match self.poll_written(cx) {
            Poll::Ready(result) => result?,
            Poll::Pending => {
                self.timers.blocked(self.worker.clock.ticks());
                return Ok(false);
            }
        }
        // Bytes that could not be written go first, so that the order of the next batch reflects the
        // priorities at its time.
        if self.end.is_none() && !self.out.is_partial() {
            self.fill();
        }
        if self.out.is_empty() {
            self.timers.unblocked();
            return Ok(false);
        }
        let buffers = &self.worker.buffers;
        match self.out.poll_write(cx, &mut self.transport, buffers) {
            Poll::Ready(Ok(written)) => {
                self.worker.counters.bytes_out.add(written as u64);
                self.budget.bytes += written;
                self.wrote_much = written >= LARGE_WRITE;
                self.timers.unblocked();
                let flushed = self.transport.poll_flush(cx);
                self.batch = match flushed.is_ready() && !self.out.is_partial() {
                    true => (2 * self.batch).min(BATCH),
                    false => (self.batch / 2).max(BATCH_LEAST),
                };
                match flushed {
                    Poll::Ready(result) => {
                        result?;
                        self.complete_written();
                    }
                    Poll::Pending => self.timers.blocked(self.worker.clock.ticks()),
                }
                Ok(true)
            }
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => {
                self.timers.blocked(self.worker.clock.ticks());
                Ok(false)
            }
        }
    }

    /// Waits until the written bytes have left, and until the socket has space if there is more to send.
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.transport.poll_flush(cx))?;
        self.complete_written();
        if self.wrote_much && self.codec.is_send_due() {
            ready!(self.transport.poll_writable(cx))?;
            self.wrote_much = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Gathers data up to the size of a batch.
    fn fill(&mut self) {
        while let Some(room) = self.batch.checked_sub(self.out.len() + FRAME_HEADER)
            && room >= SPACE_LEAST
        {
            let Some((key, most)) = self.codec.next_send() else {
                return;
            };
            self.send_some(key, most.min(room));
        }
    }

    /// Adds up to `most` bytes of a stream's body to the batch.
    fn send_some(&mut self, key: StreamKey, most: usize) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.moved_at = self.worker.clock.ticks();
        match stream.next.split(most) {
            // Its source waited for this.
            None => {
                let waker = self.wakers.waker(key.slot(), self.stream_slots);
                self.poll_source(key, &mut Context::from_waker(&waker));
            }
            Some(ChunkPart::Bytes(part)) => self.send_bytes(key, part),
            Some(ChunkPart::File(range)) => self.send_file(key, range, most),
        }
    }

    fn send_bytes(&mut self, key: StreamKey, part: Bytes) {
        let len = part.len();
        let Some(tail) = self.send_data(key, len) else {
            return;
        };
        self.out.add(part, &self.worker.buffers);
        self.sent(key, tail);
    }

    /// Sends the part of a file that is in memory, or has it read from its disk while other streams are sent.
    fn send_file(&mut self, key: StreamKey, range: FileRange, most: usize) {
        let most = usize::try_from(range.len).unwrap_or(usize::MAX).min(most);
        let room = self.out.room(most, &self.worker.buffers);
        match read_cached(&range, room, range.offset) {
            None => {
                if let Some(stream) = self.streams.get(key) {
                    stream.next = BodyChunk::File(range.clone());
                    stream.work = StreamWork::Reading(Box::pin(read_away(range)));
                    self.wakers.mark(key.slot(), self.stream_slots);
                }
            }
            Some(Ok(read)) if read > 0 => {
                if let Some(stream) = self.streams.get(key) {
                    stream.next = BodyChunk::file(without_first(&range, read as u64));
                }
                let Some(tail) = self.send_data(key, read) else {
                    return;
                };
                self.out.add_read(read);
                self.sent(key, tail);
            }
            Some(result) => {
                warn_of_file(result.err());
                self.break_off(key);
            }
        }
    }

    /// Takes bytes that were read of a file from its disk.
    pub(super) fn take_read(&mut self, key: StreamKey, read: io::Result<Bytes>) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        match (std::mem::take(&mut stream.next), read) {
            (BodyChunk::File(range), Ok(bytes)) if !bytes.is_empty() => {
                let rest = without_first(&range, bytes.len() as u64);
                stream.next = BodyChunk::Read(Box::new((bytes, rest)));
                stream.moved_at = self.worker.clock.ticks();
                self.codec.want_send(key);
            }
            (_, result) => {
                warn_of_file(result.err());
                self.break_off(key);
            }
        }
    }

    /// Encodes the header of a frame with the next `len` bytes of a stream; returns what follows them, or
    /// `None` if the stream broke off.
    fn send_data(&mut self, key: StreamKey, len: usize) -> Option<BodyTail> {
        let tail = self.tail(key);
        if matches!(tail, BodyTail::Failed) {
            self.break_off(key);
            return None;
        }
        let frames = self.out.frames(&self.worker.buffers);
        let end = matches!(tail, BodyTail::End);
        if let Err(error) = self.codec.send_data(key, len, end, frames) {
            self.fail(error);
            return None;
        }
        let stream = self.streams.get(key)?;
        if let Some(observed) = &mut stream.observed {
            observed.sent(len as u64, FRAME_HEADER as u64);
        }
        Some(tail)
    }

    /// What follows the bytes that were just taken from a stream. A source without further data is polled, so
    /// that the last frame of data can end the stream.
    fn tail(&mut self, key: StreamKey) -> BodyTail {
        let Some(stream) = self.streams.get(key) else {
            return BodyTail::Failed;
        };
        if !stream.next.is_empty() {
            return BodyTail::More;
        }
        let Some(source) = &mut stream.source else {
            return BodyTail::End;
        };
        if source.remaining() != Some(0) || stream.left.is_some_and(|left| left > 0) {
            return BodyTail::More;
        }
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let mut cx = Context::from_waker(&waker);
        match catch_unwind(AssertUnwindSafe(|| source.poll_frame(&mut cx))) {
            Ok(Poll::Pending) => BodyTail::More,
            Ok(Poll::Ready(None)) => BodyTail::End,
            Ok(Poll::Ready(Some(Ok(Frame::Trailers(trailers))))) => BodyTail::Trailers(trailers),
            Ok(Poll::Ready(Some(Ok(_)))) => {
                tracing::error!("the body of a response is longer than its head says");
                BodyTail::Failed
            }
            Ok(Poll::Ready(Some(Err(error)))) => {
                tracing::warn!(%error, "the body of a response broke off");
                BodyTail::Failed
            }
            Err(_) => {
                self.panicked();
                BodyTail::Failed
            }
        }
    }

    /// Continues a stream after a frame of data.
    fn sent(&mut self, key: StreamKey, tail: BodyTail) {
        match tail {
            BodyTail::End => self.finish(key),
            BodyTail::Trailers(trailers) => self.send_trailers(key, &trailers),
            BodyTail::More | BodyTail::Failed => {
                let stream = self.streams.get(key);
                if stream.is_some_and(|stream| stream.next.is_empty()) {
                    let waker = self.wakers.waker(key.slot(), self.stream_slots);
                    let mut cx = Context::from_waker(&waker);
                    self.poll_or_schedule_source(key, &mut cx);
                    self.note_progress(key, &cx);
                } else {
                    self.codec.want_send(key);
                }
            }
        }
    }

    /// Polls the source of a stream, or schedules the stream if its source has data: then the source is
    /// polled when the stream is sent, so that nothing is produced for clients with closed windows. An end or
    /// trailers need no window, so a source that may have only these left is polled at once.
    pub(super) fn poll_or_schedule_source(&mut self, key: StreamKey, cx: &mut Context<'_>) {
        let Some(stream) = self
            .streams
            .get(key)
            .filter(|stream| stream.next.is_empty())
        else {
            return;
        };
        let Some(source) = &stream.source else {
            return;
        };
        match source.waits_for_window() || stream.left.is_some_and(|left| left > 0) {
            true => self.codec.want_send(key),
            false => self.poll_source(key, cx),
        }
    }

    fn poll_source(&mut self, key: StreamKey, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let Some(source) = stream.source.as_mut().filter(|_| stream.next.is_empty()) else {
            return;
        };
        let frame = match catch_unwind(AssertUnwindSafe(|| source.poll_frame(cx))) {
            Ok(Poll::Pending) => return,
            Ok(Poll::Ready(Some(Ok(frame)))) => Some(frame),
            Ok(Poll::Ready(Some(Err(error)))) => {
                tracing::warn!(%error, "the body of a response broke off");
                return self.break_off(key);
            }
            Ok(Poll::Ready(None)) => None,
            Err(_) => {
                self.panicked();
                return self.break_off(key);
            }
        };
        let (chunk, len) = match frame {
            Some(Frame::Data(bytes)) => {
                let len = bytes.len() as u64;
                (
                    if len > 0 {
                        BodyChunk::Bytes(bytes)
                    } else {
                        BodyChunk::Empty
                    },
                    len,
                )
            }
            Some(Frame::File(range)) => {
                let len = range.len;
                (BodyChunk::file(range), len)
            }
            end => {
                if stream.left.is_some_and(|left| left > 0) {
                    tracing::error!("the body of a response is shorter than its head says");
                    return self.break_off(key);
                }
                return match end {
                    Some(Frame::Trailers(trailers)) => self.send_trailers(key, &trailers),
                    _ => self.send_end(key),
                };
            }
        };
        if let Some(left) = &mut stream.left {
            let Some(rest) = left.checked_sub(len) else {
                tracing::error!("the body of a response is longer than its head says");
                return self.break_off(key);
            };
            *left = rest;
        }
        if chunk.is_empty() {
            // Its source is polled again after the other streams.
            return self.wakers.mark(key.slot(), self.stream_slots);
        }
        stream.next = chunk;
        stream.moved_at = self.worker.clock.ticks();
        self.codec.want_send(key);
    }

    /// Ends a stream without more data.
    pub(super) fn send_end(&mut self, key: StreamKey) {
        self.send_last(key, |connection| {
            let frames = connection.out.frames(&connection.worker.buffers);
            if let Err(error) = connection.codec.send_data(key, 0, true, frames) {
                connection.fail(error);
            }
        });
    }

    fn send_trailers(&mut self, key: StreamKey, trailers: &Headers) {
        self.send_last(key, |connection| {
            let frames = connection.out.frames(&connection.worker.buffers);
            connection.codec.send_trailers(key, trailers, frames);
        });
    }

    fn send_last(&mut self, key: StreamKey, encode: impl FnOnce(&mut Self)) {
        let before = self.out.added();
        encode(self);
        let framing = self.out.added() - before;
        let stream = self.streams.get(key);
        if let Some(observed) = stream.and_then(|stream| stream.observed.as_mut()) {
            observed.sent(0, framing);
        }
        self.finish(key);
    }
}

fn warn_of_file(error: Option<io::Error>) {
    match error {
        Some(error) => tracing::warn!(%error, "a file cannot be read on"),
        None => tracing::warn!("a file became shorter while it was sent"),
    }
}
