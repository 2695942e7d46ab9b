//! The responses of streams, whose heads are encoded at once, and whose bodies are scheduled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use apus_codec::h2::{ErrorCode, ExpectedBody, StreamKey};
use apus_http::{Body, Response, ResponseHead, ResponseOutcome, StatusCode};

use super::stream::{BodyChunk, CompletionObservers, StreamKind, StreamWork};
use super::{Http2Connection, tunnel};
use crate::clock::deadline_from;
use crate::connection_table::NEVER;

/// The number of abandoned streams past which those that have ended are removed from the list.
const ABANDONED_MOST: usize = 64;

/// How long the client of an abandoned stream may take to see that its response is complete. curl 7.88, for
/// example, discards a response that is followed by a reset at once.
const ABANDONED_TIME: Duration = Duration::from_secs(1);

/// A response whose last bytes are encoded, and the observers of its completion.
pub(super) struct QueuedCompletion {
    /// The response has left when the connection has written so many bytes.
    at: u64,
    observed: Box<CompletionObservers>,
}

impl Http2Connection<'_> {
    /// Polls the streams that were woken; returns whether there were any.
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
        self.poll_or_schedule_source(key, &mut cx);
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
                        // This abandons the unread body before the response.
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

    /// Encodes the head of a response, and enters its body.
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
            if let Some(request_body) = &mut stream.request_body {
                request_body.take_for_tunnel();
            }
            if status == StatusCode::SWITCHING_PROTOCOLS {
                tracing::error!("a service responded 101 without a tunnel; sent a 500");
                response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            } else if opens {
                tracing::error!("a service accepted CONNECT without a tunnel; sent a 500");
                response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            } else if stream.kind == StreamKind::ExtendedConnect && status.is_success() {
                // The service does not know the protocol, and responded as to a GET. To the client a 2xx
                // would open a tunnel.
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
            let input = stream.request_body.as_mut();
            let input = input.and_then(|request_body| request_body.take_for_tunnel());
            let (duplex, source) = tunnel::over(input);
            stream.source = Some(source);
            stream.work = StreamWork::Tunnel(tunnel(duplex));
            self.queue_completion(key);
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

    /// Queues the completion of a response, to be reported when the encoded bytes have left.
    fn queue_completion(&mut self, key: StreamKey) {
        let at = self.out.added();
        let stream = self.streams.get(key);
        if let Some(observed) = stream.and_then(|stream| stream.observed.take()) {
            self.written.push_back(QueuedCompletion { at, observed });
        }
    }

    /// Ends a stream whose response is encoded to its end.
    pub(super) fn finish(&mut self, key: StreamKey) {
        self.queue_completion(key);
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
            // The rest of the request's body is not wanted, but may have arrived already.
            self.unfinished.push(key);
        }
    }

    /// Removes a stream if both sides have ended it.
    pub(super) fn note_closed(&mut self, key: StreamKey) {
        if self.codec.is_open(key) {
            return;
        }
        if let Some(stream) = self.streams.remove(key)
            && let StreamWork::Tunnel(tunnel) = stream.work
        {
            // The stream has ended, but the tunnel may have to clean up, and the slot is used again.
            tokio::task::spawn_local(tunnel);
        }
    }

    /// Ends the streams of tunnels that have ended.
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

    /// Discards bodies that will not be read, and later asks clients to send no more of them.
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

    /// Resets abandoned streams whose clients still send after their time; returns the next deadline of one.
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

    /// Cuts a response off whose source failed.
    pub(super) fn break_off(&mut self, key: StreamKey) {
        self.worker.counters.broken_responses.add(1);
        let frames = self.out.frames(&self.worker.buffers);
        self.codec.reset(key, ErrorCode::INTERNAL_ERROR, frames);
        if let Some(mut stream) = self.streams.remove(key)
            && let Some(observed) = stream.observed.take()
        {
            observed.notify(ResponseOutcome::SourceFailed);
        }
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
}
