//! The bodies of responses: the chunk of a stream that is sent next, and what follows it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use apus_http::{FileRange, Frame, Headers};
use apus_transport::file::{read_away, read_cached, without_first};
use apus_transport::{BodyChunk, ChunkPart};
use bytes::Bytes;

use super::table::StreamWork;
use super::{RequestStreams, SlotKey, StreamProtocol};

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

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// Sends up to `most` bytes of a stream's body.
    pub(crate) fn send_some(&mut self, key: P::Key, most: usize) {
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

    fn send_bytes(&mut self, key: P::Key, part: Bytes) {
        let len = part.len();
        let Some((tail, end)) = self.tail_of_chunk(key) else {
            return;
        };
        let framing = self.protocol.send_bytes(key, part, end);
        self.sent(key, len, framing, tail);
    }

    /// Sends the part of a file that is in memory, or has it read from its disk while other streams are sent.
    fn send_file(&mut self, key: P::Key, range: FileRange, most: usize) {
        let most = usize::try_from(range.len).unwrap_or(usize::MAX).min(most);
        // The file is read into the output itself: between them would be one more copy of each byte.
        let room = self.protocol.room(most);
        // What is not in the page cache is read on another thread: a disk that takes 10 ms would hold up all
        // connections of the worker.
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
                let Some((tail, end)) = self.tail_of_chunk(key) else {
                    return;
                };
                let framing = self.protocol.send_read(key, read, end);
                self.sent(key, read, framing, tail);
            }
            Some(result) => {
                warn_of_file(result.err());
                self.break_off(key);
            }
        }
    }

    /// Takes bytes that were read of a file from its disk.
    pub(super) fn take_read(&mut self, key: P::Key, read: io::Result<Bytes>) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        match (std::mem::take(&mut stream.next), read) {
            (BodyChunk::File(range), Ok(bytes)) if !bytes.is_empty() => {
                let rest = without_first(&range, bytes.len() as u64);
                stream.next = BodyChunk::Read(Box::new((bytes, rest)));
                stream.moved_at = self.worker.clock.ticks();
                self.protocol.want_send(key);
            }
            (_, result) => {
                warn_of_file(result.err());
                self.break_off(key);
            }
        }
    }

    /// What follows the chunk that was just taken from a stream, and whether it is the end; `None` if the stream
    /// broke off.
    fn tail_of_chunk(&mut self, key: P::Key) -> Option<(BodyTail, bool)> {
        let tail = self.tail(key);
        if matches!(tail, BodyTail::Failed) {
            self.break_off(key);
            return None;
        }
        let end = matches!(tail, BodyTail::End);
        Some((tail, end))
    }

    /// What follows the bytes that were just taken from a stream. A source without further data is polled, so
    /// that the last frame of data can end the stream.
    fn tail(&mut self, key: P::Key) -> BodyTail {
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

    /// Continues a stream after a chunk of `len` bytes and its framing, without which the connection failed.
    fn sent(&mut self, key: P::Key, len: usize, framing: Option<u64>, tail: BodyTail) {
        let (Some(framing), Some(stream)) = (framing, self.streams.get(key)) else {
            return;
        };
        stream.sent = stream.sent.saturating_add(len as u64);
        self.sent = self.sent.saturating_add(len as u64);
        if let Some(observed) = &mut stream.observed {
            observed.sent(len as u64, framing);
        }
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
                    self.protocol.want_send(key);
                }
            }
        }
    }

    /// Polls the source of a stream, or schedules the stream if its source has data: then the source is
    /// polled when the stream is sent, so that nothing is produced for clients with closed windows. An end or
    /// trailers need no window, so a source that may have only these left is polled at once.
    pub(super) fn poll_or_schedule_source(&mut self, key: P::Key, cx: &mut Context<'_>) {
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
        // A body whose length is known, or that is expensive to make, is asked for when it is the turn of its
        // stream. With 256 streams whose windows were shut, a part of each body was fetched, and a compressor made
        // for each.
        if source.waits_for_window() || stream.left.is_some_and(|left| left > 0) {
            self.protocol.want_send(key)
        } else {
            self.poll_source(key, cx)
        }
    }

    fn poll_source(&mut self, key: P::Key, cx: &mut Context<'_>) {
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
        self.protocol.want_send(key);
    }

    /// Ends a stream without more data.
    pub(super) fn send_end(&mut self, key: P::Key) {
        let framing = self.protocol.send_bytes(key, Bytes::new(), true);
        self.sent_last(key, framing.unwrap_or(0));
    }

    fn send_trailers(&mut self, key: P::Key, trailers: &Headers) {
        let framing = self.protocol.send_trailers(key, trailers);
        self.sent_last(key, framing);
    }

    fn sent_last(&mut self, key: P::Key, framing: u64) {
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
