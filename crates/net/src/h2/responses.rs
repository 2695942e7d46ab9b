//! Responses: their heads are encoded at once, their bodies are scheduled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use apus_codec::h2::{ErrorCode, ExpectedBody, StreamKey};
use apus_http::{Body, Outcome, Response, ResponseHead, StatusCode};

use super::stream::{BodyChunk, CompletionObservers, StreamKind, StreamWork};
use super::{Http2Connection, tunnel};
use crate::clock::deadline_from;
use crate::connection_table::NEVER;

/// ServerStreams that are remembered as abandoned before those that have ended are forgotten.
const ABANDONED_MOST: usize = 64;

/// How long the client of an abandoned stream may take to see that its answer is whole. A reset that
/// follows the answer at once makes curl 7.88, for one, forget the answer.
const ABANDONED_TIME: Duration = Duration::from_secs(1);

/// An answer whose last bytes are encoded, and who wants to know when they left.
pub(super) struct QueuedCompletion {
    /// They are out when so many bytes of the connection are.
    at: u64,
    observed: Box<CompletionObservers>,
}

impl Http2Connection<'_> {
    /// Polls what streams wait for, where that may go on now; tells whether there was any.
    pub(super) fn poll_streams(&mut self) -> bool {
        if !self.wakers.is_any_woken() {
            return false;
        }
        let mut woken = std::mem::take(&mut self.woken);
        self.wakers.take_woken(self.streams.slots(), &mut woken);
        for slot in woken.drain(..) {
            if let Some(key) = self.streams.key(slot) {
                self.poll_stream(key);
            }
        }
        self.woken = woken;
        true
    }

    fn poll_stream(&mut self, key: StreamKey) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let mut cx = Context::from_waker(&waker);
        self.poll_work(key, &mut cx);
        self.ask_source(key, &mut cx);
        self.note_progress(key, &cx);
    }

    fn poll_work(&mut self, key: StreamKey, cx: &mut Context<'_>) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        match std::mem::take(&mut stream.work) {
            StreamWork::None => {}
            StreamWork::Response(mut future) => {
                match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                    Ok(Poll::Pending) => stream.work = StreamWork::Response(future),
                    Ok(Poll::Ready(response)) => {
                        // What it kept of the request's content is abandoned before the answer.
                        drop(future);
                        self.respond(key, response);
                    }
                    Err(_) => {
                        let response = self.panicked();
                        self.respond(key, response);
                    }
                }
            }
            StreamWork::Reading(mut reading) => match reading.as_mut().poll(cx) {
                Poll::Pending => stream.work = StreamWork::Reading(reading),
                Poll::Ready(read) => self.take_read(key, read),
            },
            StreamWork::Tunnel(mut tunnel) => {
                match catch_unwind(AssertUnwindSafe(|| tunnel.as_mut().poll(cx))) {
                    Ok(Poll::Pending) => stream.work = StreamWork::Tunnel(tunnel),
                    Ok(Poll::Ready(())) => drop(tunnel),
                    Err(_) => {
                        self.worker.counters.panics.add(1);
                        tracing::error!(peer = %self.info.peer, "a tunnel panicked");
                    }
                }
                self.note_tunnel(key);
            }
        }
    }

    /// Encodes an answer's head, and enters what follows it.
    pub(super) fn respond(&mut self, key: StreamKey, mut response: Response) {
        self.send_interims();
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let status = response.status();
        let mut tunnel = response.take_tunnel();
        let opens = match stream.kind {
            StreamKind::Regular => false,
            StreamKind::Connect => status.is_success(),
            StreamKind::ExtendedConnect => status == StatusCode::SWITCHING_PROTOCOLS,
        };
        if !opens || tunnel.is_none() {
            tunnel = None;
            if let Some(incoming) = &mut stream.incoming {
                incoming.take_for_tunnel();
            }
            if status == StatusCode::SWITCHING_PROTOCOLS {
                tracing::error!("a service answered 101 and took no stream over; sent a 500");
                response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            } else if opens {
                tracing::error!("a service accepted CONNECT and took no stream over; sent a 500");
                response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            } else if stream.kind == StreamKind::ExtendedConnect && status.is_success() {
                // The service does not know the protocol, and answered what it took for a GET. To the
                // client a 2xx would be a tunnel.
                response = Response::new(StatusCode::NOT_IMPLEMENTED);
            }
        }
        let mut observed = CompletionObservers::of(&mut response, self.arrived);
        let body = match tunnel {
            Some(_) => Body::Empty,
            None => response.take_body(),
        };
        let (date, server) = (self.worker.clock.date(), self.worker.server_field());
        let head = ResponseHead {
            status: response.status(),
            headers: response.headers(),
            content_length: match tunnel {
                Some(_) => None,
                None => body.len(),
            },
            date: &date,
            server: server.as_deref(),
        };
        let frames = self.out.frames(&self.worker.buffers);
        let before = frames.len();
        let content = self.codec.send_head(key, head, frames);
        let head_bytes = (frames.len() - before) as u64;
        drop(server);
        if let Some(observed) = &mut observed {
            observed.sent_head(response.status(), head_bytes);
        }
        stream.moved_at = self.worker.clock.ticks();
        stream.observed = observed;
        let length = match content {
            ExpectedBody::None => return self.finish(key),
            ExpectedBody::Data(length) => length,
        };
        if let Some(tunnel) = tunnel {
            let input = stream.incoming.as_mut();
            let input = input.and_then(|incoming| incoming.take_for_tunnel());
            let (duplex, source) = tunnel::over(input);
            stream.source = Some(source);
            stream.work = StreamWork::Tunnel(tunnel(duplex));
            self.tell_written(key);
            self.wakers.mark(key.slot(), self.stream_slots);
            return;
        }
        match body {
            Body::Stream(source) => {
                stream.source = Some(source);
                stream.left = length;
                self.wakers.mark(key.slot(), self.stream_slots);
            }
            whole => {
                stream.next = whole.into();
                match &stream.next {
                    BodyChunk::Empty => self.send_end(key),
                    _ => self.codec.want_send(key),
                }
            }
        }
    }

    /// Has those who wait for the end of an answer told of it once what was encoded has left.
    fn tell_written(&mut self, key: StreamKey) {
        let at = self.out.added();
        let stream = self.streams.get(key);
        if let Some(observed) = stream.and_then(|stream| stream.observed.take()) {
            self.written.push_back(QueuedCompletion { at, observed });
        }
    }

    /// Lets go of a stream whose answer is encoded to its end.
    pub(super) fn finish(&mut self, key: StreamKey) {
        self.tell_written(key);
        if !self.codec.is_open(key) {
            self.note_closed(key);
            return;
        }
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        stream.source = None;
        if !matches!(stream.work, StreamWork::Tunnel(_)) {
            self.streams.remove(key);
            // The rest of the request's content is not wanted, but it may have come already.
            self.unfinished.push(key);
        }
    }

    /// Lets go of a stream that both sides may have ended.
    pub(super) fn note_closed(&mut self, key: StreamKey) {
        if self.codec.is_open(key) {
            return;
        }
        if let Some(stream) = self.streams.remove(key)
            && let StreamWork::Tunnel(tunnel) = stream.work
        {
            // All is said, but it may have to clean up; its slot is another's now.
            tokio::task::spawn_local(tunnel);
        }
    }

    /// Ends the streams of tunnels that are over.
    fn note_tunnel(&mut self, key: StreamKey) {
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        let is_over = matches!(stream.work, StreamWork::None) && stream.source.is_none();
        if is_over {
            self.streams.remove(key);
            self.unfinished.push(key);
        }
    }

    /// Throws away content that nobody will read, or asks clients to send no more of it.
    pub(super) fn abandon_unfinished(&mut self) {
        if self.unfinished.is_empty() || self.unhandled {
            return;
        }
        if self.abandoned.len() > ABANDONED_MOST {
            let codec = &self.codec;
            self.abandoned.retain(|(key, _)| codec.is_open(*key));
        }
        for key in self.unfinished.drain(..) {
            let frames = self.out.frames(&self.worker.buffers);
            self.codec.abandon(key, frames);
            if self.codec.is_open(key) {
                let now = self.worker.clock.ticks();
                self.abandoned.push((key, now));
                self.timers.examine_by(deadline_from(now, ABANDONED_TIME));
            }
        }
    }

    /// Resets streams whose clients take too long to end what nobody reads; gives the tick at which
    /// the next has to be over.
    pub(super) fn examine_abandoned(&mut self, now: u32) -> u32 {
        let Self { codec, out, .. } = self;
        let frames = out.frames(&self.worker.buffers);
        let mut next = NEVER;
        self.abandoned.retain(|(key, since)| {
            let deadline = deadline_from(*since, ABANDONED_TIME);
            if deadline <= now {
                codec.reset(*key, ErrorCode::NO_ERROR, frames);
            } else if codec.is_open(*key) {
                next = next.min(deadline);
            }
            codec.is_open(*key)
        });
        next
    }

    /// Cuts an answer off whose source failed.
    pub(super) fn break_off(&mut self, key: StreamKey) {
        self.worker.counters.broken_responses.add(1);
        let frames = self.out.frames(&self.worker.buffers);
        self.codec.reset(key, ErrorCode::INTERNAL_ERROR, frames);
        if let Some(mut stream) = self.streams.remove(key)
            && let Some(observed) = stream.observed.take()
        {
            observed.tell(Outcome::SourceFailed);
        }
    }

    /// Tells of the answers that have left.
    pub(super) fn settle_written(&mut self) {
        while let Some(first) = self.written.front()
            && first.at <= self.out.written()
        {
            if let Some(written) = self.written.pop_front() {
                written.observed.tell(Outcome::Complete);
            }
        }
    }

    /// Tells of the answers that will not leave any more.
    pub(super) fn settle_lost(&mut self) {
        for written in self.written.drain(..) {
            written.observed.tell(Outcome::ClientGone);
        }
    }
}
