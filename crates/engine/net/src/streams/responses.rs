//! The responses of streams, whose heads are encoded at once, and whose bodies are scheduled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll};
use std::time::Duration;

use apus_codec::h2::ExpectedBody;
use apus_http::{Body, Response, ResponseHead, ResponseOutcome};
use apus_transport::{BodyChunk, deadline_from, tunnel};

use super::completion::CompletionObservers;
use super::table::StreamWork;
use super::{RequestStreams, ResetReason, SlotKey, StreamProtocol};
use crate::connection_table::NEVER;
use crate::tunnel_refusal::refuse_without_tunnel;

/// The number of abandoned streams past which those that have ended are removed from the list.
const MAX_ABANDONED: usize = 64;

/// How long the client of an abandoned stream may take to see that its response is complete. curl 7.88, for
/// example, discards a response that is followed by a reset at once.
const ABANDONED_TIME: Duration = Duration::from_secs(1);

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// Polls the streams that were woken; returns whether there were any.
    pub(crate) fn poll_streams(&mut self) -> bool {
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

    fn poll_stream(&mut self, key: P::Key) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let mut cx = Context::from_waker(&waker);
        self.poll_work(key, &mut cx);
        self.poll_or_schedule_source(key, &mut cx);
        self.note_progress(key, &cx);
    }

    fn poll_work(&mut self, key: P::Key, cx: &mut Context<'_>) {
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
    pub(super) fn respond(&mut self, key: P::Key, mut response: Response) {
        self.send_interims();
        self.ask_for_unread_body(key);
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        response.remove_internal_of_origin();
        self.is_ended_by_response |= response.ends_connection();
        if response.is_unsent() {
            return self.reset_unsent(key, response);
        }
        if response.is_of_panic() {
            self.worker.counters.panics.add(1);
        }
        let mut tunnel = response.take_tunnel();
        if !stream.kind.begins_tunnel(response.status()) || tunnel.is_none() {
            tunnel = None;
            if let Some(request_body) = &mut stream.request_body {
                request_body.take_for_tunnel();
            }
            refuse_without_tunnel(&mut response, stream.kind);
        }
        let mut observed = CompletionObservers::of(&mut response, stream.arrived);
        let body = match tunnel {
            Some(_) => Body::Empty,
            None => response.take_body_to_send(),
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
            alt_svc: self.alt_svc.value(),
        };
        let (content, head_bytes) = self.protocol.send_head(key, head);
        drop(server);
        if let Some(observed) = &mut observed {
            observed.sent_head(response.status(), head_bytes);
            if matches!(&body, Body::Stream(_) | Body::File(_)) || tunnel.is_some() {
                observed.note_first_byte();
            }
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
            let (duplex, source) = tunnel::over_stream(input);
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
                    _ => self.protocol.want_send(key),
                }
            }
        }
    }

    /// Has the completion of a response reported when the encoded bytes have left.
    fn queue_completion(&mut self, key: P::Key) {
        let stream = self.streams.get(key);
        if let Some(observed) = stream.and_then(|stream| stream.observed.take()) {
            self.protocol.complete(key, observed);
        }
    }

    /// Ends a stream whose response is encoded to its end.
    pub(super) fn finish(&mut self, key: P::Key) {
        self.queue_completion(key);
        if !self.protocol.is_open(key) {
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
    pub(super) fn note_closed(&mut self, key: P::Key) {
        if self.protocol.is_open(key) {
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
    fn note_tunnel(&mut self, key: P::Key) {
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
    pub(crate) fn abandon_unfinished(&mut self) {
        if self.unfinished.is_empty() {
            return;
        }
        if self.abandoned.len() > MAX_ABANDONED {
            let protocol = &self.protocol;
            self.abandoned.retain(|(key, _)| protocol.is_open(*key));
        }
        for key in self.unfinished.drain(..) {
            self.protocol.abandon(key);
            if self.protocol.is_open(key) {
                let now = self.worker.clock.ticks();
                self.abandoned.push((key, now));
                self.examine_at = self.examine_at.min(deadline_from(now, ABANDONED_TIME));
            }
        }
    }

    /// Resets abandoned streams whose clients still send after their time; returns the next deadline of one.
    pub(super) fn examine_abandoned(&mut self, now: u32) -> u32 {
        let protocol = &mut self.protocol;
        let mut next = NEVER;
        self.abandoned.retain(|(key, since)| {
            let deadline = deadline_from(*since, ABANDONED_TIME);
            if deadline <= now {
                protocol.reset(*key, ResetReason::Complete);
            } else if protocol.is_open(*key) {
                next = next.min(deadline);
            }
            protocol.is_open(*key)
        });
        next
    }

    /// Resets a stream whose client gets no response.
    #[cold]
    fn reset_unsent(&mut self, key: P::Key, mut response: Response) {
        self.protocol.reset(key, ResetReason::Unsent);
        let stream = self.streams.remove(key);
        let arrived = stream.and_then(|stream| stream.arrived);
        if let Some(mut observed) = CompletionObservers::of(&mut response, arrived) {
            observed.sent_head(response.status(), 0);
            observed.notify(ResponseOutcome::Complete);
        }
    }

    /// Cuts a response off whose source failed.
    pub(super) fn break_off(&mut self, key: P::Key) {
        self.worker.counters.broken_responses.add(1);
        self.protocol.reset(key, ResetReason::Failed);
        if let Some(mut stream) = self.streams.remove(key)
            && let Some(observed) = stream.observed.take()
        {
            observed.notify(ResponseOutcome::SourceFailed);
        }
    }
}
