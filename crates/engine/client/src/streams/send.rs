//! The bodies of requests, gathered from all streams in their turn.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};

use apus_codec::stream_table::StreamKey;
use apus_http::{BodyError, FileRange, Frame, Headers};
use apus_transport::file::{read_away, read_cached, without_first};
use apus_transport::{BodyChunk, ChunkPart, coarse_now};
use bytes::Bytes;

use super::table::RequestBodyState;
use super::{ClientProtocol, OriginStreams, STREAMS};
use crate::FailureCause;
use crate::deadline::after;

/// The result of polling the source of a body.
enum SourcePoll {
    Pending,
    BodyChunk(BodyChunk, u64),
    End(Option<Headers>),
    Failed(BodyError),
}

impl<P: ClientProtocol> OriginStreams<P> {
    /// Notes that the origin took some of a stream's body.
    #[cfg(feature = "http3")]
    pub(crate) fn note_sent(&mut self, key: StreamKey<P::Id>) {
        if let Some(request_body) = self.request_body(key) {
            request_body.moved_at = coarse_now();
        }
    }

    fn request_body(&mut self, key: StreamKey<P::Id>) -> Option<&mut RequestBodyState> {
        self.table.get(key).map(|stream| &mut stream.request_body)
    }

    /// Adds up to `most` bytes of a stream's body to the output.
    pub(crate) fn send_some(&mut self, key: StreamKey<P::Id>, most: usize) {
        let Some(request_body) = self.request_body(key) else {
            return;
        };
        request_body.moved_at = coarse_now();
        match request_body.next.split(most) {
            None => {}
            Some(ChunkPart::Bytes(part)) => self.send_bytes(key, part),
            Some(ChunkPart::File(range)) => self.send_file(key, range, most),
        }
    }

    fn send_bytes(&mut self, key: StreamKey<P::Id>, part: Bytes) {
        let Some(end) = self.ends_with_next(key) else {
            return;
        };
        if self.protocol.send_bytes(key, part, end) {
            self.sent(key, end);
        }
    }

    /// Sends the part of a file that is in memory, or has it read from its disk while other streams are sent.
    fn send_file(&mut self, key: StreamKey<P::Id>, range: FileRange, most: usize) {
        let most = usize::try_from(range.len).unwrap_or(usize::MAX).min(most);
        let room = self.protocol.room(most);
        match read_cached(&range, room, range.offset) {
            None => {
                if let Some(request_body) = self.request_body(key) {
                    request_body.next = BodyChunk::File(range.clone());
                    request_body.reading = Some(Box::pin(read_away(range)));
                    self.wakers.mark(key.slot(), STREAMS);
                }
            }
            Some(Ok(read)) if read > 0 => {
                if let Some(request_body) = self.request_body(key) {
                    request_body.next = BodyChunk::file(without_first(&range, read as u64));
                }
                let Some(end) = self.ends_with_next(key) else {
                    return;
                };
                if self.protocol.send_read(key, read, end) {
                    self.sent(key, end);
                }
            }
            Some(result) => self.break_off(key, file_error(result.err())),
        }
    }

    /// Whether nothing of a body follows the part that is sent next; `None` if the stream is gone.
    fn ends_with_next(&mut self, key: StreamKey<P::Id>) -> Option<bool> {
        let request_body = self.request_body(key)?;
        Some(request_body.next.is_empty() && request_body.source.is_none())
    }

    /// Continues a stream after a frame of data.
    fn sent(&mut self, key: StreamKey<P::Id>, end: bool) {
        let Some(request_body) = self.request_body(key) else {
            return;
        };
        if end {
            self.request_ended(key);
        } else if request_body.next.is_empty() {
            let waker = self.wakers.waker(key.slot(), STREAMS);
            self.poll_sending(key, &mut Context::from_waker(&waker));
        } else {
            self.protocol.want_send(key);
        }
    }

    /// Starts to send a body that was held back, or is not.
    pub(super) fn begin_sending(&mut self, key: StreamKey<P::Id>) {
        let Some(request_body) = self.request_body(key) else {
            return;
        };
        request_body.held_until = None;
        request_body.moved_at = coarse_now();
        if !request_body.next.is_empty() {
            self.protocol.want_send(key);
        } else if request_body.source.is_some() {
            self.wakers.mark(key.slot(), STREAMS);
        } else if !request_body.ended {
            self.send_end(key, None);
        }
    }

    /// Polls the source of a stream's body, if no data of it is pending.
    pub(super) fn poll_sending(&mut self, key: StreamKey<P::Id>, cx: &mut Context<'_>) {
        let Some(request_body) = self.request_body(key) else {
            return;
        };
        if let Some(reading) = &mut request_body.reading {
            let Poll::Ready(read) = reading.as_mut().poll(cx) else {
                return;
            };
            request_body.reading = None;
            return match (std::mem::take(&mut request_body.next), read) {
                (BodyChunk::File(range), Ok(bytes)) if !bytes.is_empty() => {
                    let rest = without_first(&range, bytes.len() as u64);
                    request_body.next = BodyChunk::Read(Box::new((bytes, rest)));
                    request_body.moved_at = coarse_now();
                    self.protocol.want_send(key);
                }
                (_, read) => self.break_off(key, file_error(read.err())),
            };
        }
        if request_body.held_until.is_some() || !request_body.next.is_empty() {
            return;
        }
        match request_body.ask(cx) {
            SourcePoll::Pending => {}
            SourcePoll::BodyChunk(BodyChunk::Empty, _) => {
                // Its source is polled again after the other streams.
                self.wakers.mark(key.slot(), STREAMS);
            }
            SourcePoll::BodyChunk(chunk, len) => {
                // The origin would take the request for malformed (RFC 9113 section 8.1.1) and reset it, which would
                // look like its own failure.
                if request_body.left.is_some_and(|left| left < len) {
                    return self.break_off(
                        key,
                        BodyError::Source("it is longer than the head says".into()),
                    );
                }
                request_body.left = request_body.left.map(|left| left.saturating_sub(len));
                request_body.next = chunk;
                request_body.moved_at = coarse_now();
                self.protocol.want_send(key);
            }
            SourcePoll::End(trailers) => {
                if request_body.left.is_some_and(|left| left > 0) {
                    return self.break_off(
                        key,
                        BodyError::Source("it is shorter than the head says".into()),
                    );
                }
                self.send_end(key, trailers);
            }
            SourcePoll::Failed(error) => self.break_off(key, error),
        }
    }

    /// Ends the request without more data.
    fn send_end(&mut self, key: StreamKey<P::Id>, trailers: Option<Headers>) {
        if self.protocol.send_end(key, trailers.as_ref()) {
            self.request_ended(key);
        }
    }

    /// The request was sent whole: from now on the origin has to respond in time.
    pub(super) fn request_ended(&mut self, key: StreamKey<P::Id>) {
        if let Some(request_body) = self.request_body(key) {
            request_body.ended = true;
            request_body.source = None;
        }
        self.await_response(key);
        if !self.protocol.is_open(key) {
            self.table.remove(key);
        }
    }

    pub(super) fn await_response(&mut self, key: StreamKey<P::Id>) {
        if let Some(stream) = self.table.get(key)
            // If there is a response already, its body has its own deadlines.
            && stream.response_slot.is_some()
        {
            let by = after(stream.timeouts.first_byte);
            stream.receive_by = Some(by);
            self.examine_by(by);
        }
    }

    /// Cancels a request whose body broke off, so that the origin does not take it for complete.
    fn break_off(&mut self, key: StreamKey<P::Id>, error: BodyError) {
        if let Some(stream) = self.cancel(key) {
            tracing::debug!(%error, "the body of a request to an origin broke off");
            self.fail(
                *stream,
                FailureCause::Source(error),
                BodyError::Disconnected,
            );
        }
    }
}

impl RequestBodyState {
    fn ask(&mut self, cx: &mut Context<'_>) -> SourcePoll {
        let Some(source) = &mut self.source else {
            return SourcePoll::Pending;
        };
        // The source may be code of an application, whose panic must not end the other requests of the connection.
        let Ok(polled) = catch_unwind(AssertUnwindSafe(|| source.poll_frame(cx))) else {
            tracing::error!("the source of a request's body panicked");
            return SourcePoll::Failed(BodyError::Source("its source panicked".into()));
        };
        let Poll::Ready(given) = polled else {
            return SourcePoll::Pending;
        };
        self.is_untouched = false;
        let given = match given {
            Some(Ok(Frame::Data(bytes))) => {
                let len = bytes.len() as u64;
                match len {
                    0 => return SourcePoll::BodyChunk(BodyChunk::Empty, 0),
                    _ => return SourcePoll::BodyChunk(BodyChunk::Bytes(bytes), len),
                }
            }
            Some(Ok(Frame::File(range))) => {
                let len = range.len;
                return SourcePoll::BodyChunk(BodyChunk::file(range), len);
            }
            Some(Ok(Frame::Trailers(trailers))) => SourcePoll::End(Some(trailers)),
            Some(Err(error)) => SourcePoll::Failed(error),
            None => SourcePoll::End(None),
        };
        // The source has ended, and must not be polled again.
        self.source = None;
        given
    }
}

fn file_error(error: Option<io::Error>) -> BodyError {
    match error {
        Some(error) => error.into(),
        None => BodyError::Source("a file became shorter while it was sent".into()),
    }
}
