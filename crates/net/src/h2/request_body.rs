//! The bodies of requests, held back by the window of the stream and by time limits.
//!
//! They are taken as they come, since the other streams of the connection must not wait for a
//! reader.

use std::ops::Range;
use std::task::Context;
use std::time::Duration;

use apus_codec::h2::StreamKey;
use apus_http::{Body, BodyError, Headers, StatusCode};

use super::Http2Connection;
use crate::body::{BodyReceiver, BodySender};
use crate::clock::{TICK, deadline_from};
use crate::connection_table::NEVER;
use crate::limits::Limits;

/// The content of a request, as the driver sees it.
pub(super) struct Http2RequestBody {
    content: BodySender,
    expects_continue: bool,
    /// What a tunnel will read, until it is known whether there is one.
    for_tunnel: Option<BodyReceiver>,
    /// Whether the client has to send in time.
    timed: bool,
    failed: bool,
    received: u64,
    /// The tick since which the client is waited for, and the ticks that this took before.
    waiting_since: Option<u32>,
    waited: u32,
}

impl Http2RequestBody {
    /// The content of a request, and the body that reads it.
    pub(super) fn new(length: Option<u64>, expects_continue: bool) -> (Box<Self>, Body) {
        let (content, stream) = BodySender::new(length);
        let incoming = Self {
            content,
            expects_continue,
            for_tunnel: None,
            timed: true,
            failed: false,
            received: 0,
            waiting_since: None,
            waited: 0,
        };
        (Box::new(incoming), Body::stream(stream))
    }

    /// What comes over a stream that may become a tunnel; nothing if the client has `ended` it.
    pub(super) fn for_tunnel(ended: bool) -> Box<Self> {
        let (content, stream) = BodySender::new(None);
        if ended {
            content.end(Ok(None), &Context::from_waker(std::task::Waker::noop()));
        }
        Box::new(Self {
            content,
            expects_continue: false,
            for_tunnel: Some(stream),
            timed: false,
            failed: false,
            received: 0,
            waiting_since: None,
            waited: 0,
        })
    }

    /// What the tunnel reads. If nobody takes it, what comes is thrown away.
    pub(super) fn take_for_tunnel(&mut self) -> Option<BodyReceiver> {
        self.for_tunnel.take()
    }

    fn stop_waiting(&mut self, now: u32) {
        if let Some(since) = self.waiting_since.take() {
            self.waited = self.waited.saturating_add(now.saturating_sub(since));
        }
    }

    /// The tick by which the next piece has to come; [`NEVER`] if nothing is waited for.
    fn deadline(&self, limits: &Limits) -> u32 {
        match self.waiting_since {
            Some(since) if self.timed => deadline_from(since, limits.body_timeout),
            _ => NEVER,
        }
    }

    /// Whether the content came slower than allowed, over all the time that it was waited for.
    fn is_too_slow(&self, limits: &Limits) -> bool {
        let waited = TICK.saturating_mul(self.waited);
        self.timed
            && waited > limits.body_timeout
            && self.received / waited.as_secs().max(1) < limits.body_rate
    }
}

impl Http2Connection<'_> {
    /// Hands a piece of content that stands in the input, or its end, to its reader.
    pub(super) fn take_content(&mut self, key: StreamKey, range: Range<usize>, end: bool) {
        let now = self.worker.clock.ticks();
        let len = range.len();
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let stream = self.streams.get(key);
        let incoming = stream.and_then(|stream| stream.incoming.as_mut());
        let Some(incoming) = incoming.filter(|incoming| !incoming.failed) else {
            // Nobody wants it, or it is behind what was refused.
            self.consume(key, len);
            return;
        };
        incoming.stop_waiting(now);
        incoming.received = incoming.received.saturating_add(len as u64);
        let piece = self.input.unread().get(range).unwrap_or_default();
        let mut poll = incoming.content.push_behind(piece, &cx);
        if end {
            poll |= incoming.content.end(Ok(None), &cx);
        }
        if incoming.content.is_abandoned() {
            self.note_progress(key, &cx);
        } else if !end && self.is_too_slow(key) {
            self.fail_content(key, BodyError::TimedOut);
        }
        if poll {
            self.wakers.mark(key.slot(), self.stream_slots);
        }
        if end {
            self.note_closed(key);
        }
    }

    /// Hands the trailer section to the content's reader.
    pub(super) fn take_trailers(&mut self, key: StreamKey, trailers: Headers) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let stream = self.streams.get(key);
        if let Some(incoming) = stream.and_then(|stream| stream.incoming.as_mut())
            && !incoming.failed
        {
            incoming.stop_waiting(self.worker.clock.ticks());
            let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
            if incoming.content.end(Ok(trailers), &cx) {
                self.wakers.mark(key.slot(), self.stream_slots);
            }
        }
        self.note_closed(key);
    }

    /// Breaks content off for its reader. What comes of it still is thrown away.
    pub(super) fn fail_content(&mut self, key: StreamKey, error: BodyError) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        if let Some(incoming) = &mut stream.incoming {
            incoming.failed = true;
            incoming.waiting_since = None;
            if matches!(error, BodyError::TimedOut) {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "a request's content came too slowly");
            }
            if incoming.content.end(Err(error), &cx) {
                self.wakers.mark(key.slot(), self.stream_slots);
            }
        }
    }

    /// Does what the reader of a stream's content asks for by what it did: opens the window for more,
    /// and tells a client that waits for it to go on.
    pub(super) fn note_progress(&mut self, key: StreamKey, cx: &Context<'_>) {
        let stream = self.streams.get(key);
        let Some(incoming) = stream.and_then(|stream| stream.incoming.as_mut()) else {
            return;
        };
        let progress = incoming.content.progress(cx);
        let mut proceed = false;
        if progress.wanted && !incoming.failed {
            proceed = std::mem::take(&mut incoming.expects_continue);
            if incoming.waiting_since.is_none() {
                incoming.waiting_since = Some(self.worker.clock.ticks());
            }
        }
        if incoming.content.is_abandoned() && !incoming.failed {
            // More of it would not be read either; the window stays as it is.
            incoming.failed = true;
            let frames = self.out.frames(&self.worker.buffers);
            self.codec.abandon(key, frames);
        }
        self.consume(key, progress.used);
        if proceed {
            // What was said before comes before.
            self.send_interims();
            let frames = self.out.frames(&self.worker.buffers);
            let none = Headers::new();
            self.codec
                .send_informational(key, StatusCode::CONTINUE, &none, frames);
        }
    }

    /// Whether the client waits to be told to go on with its content; then it does so no more.
    pub(super) fn take_expectation(&mut self, key: StreamKey) -> bool {
        let stream = self.streams.get(key);
        let incoming = stream.and_then(|stream| stream.incoming.as_mut());
        incoming.is_some_and(|incoming| std::mem::take(&mut incoming.expects_continue))
    }

    fn consume(&mut self, key: StreamKey, bytes: usize) {
        if bytes > 0 {
            let frames = self.out.frames(&self.worker.buffers);
            self.codec.consumed(key, bytes, frames);
        }
    }

    fn is_too_slow(&mut self, key: StreamKey) -> bool {
        let stream = self.streams.get(key);
        let incoming = stream.and_then(|stream| stream.incoming.as_ref());
        incoming.is_some_and(|incoming| incoming.is_too_slow(&self.limits))
    }

    /// Breaks off content that did not come in time; gives the tick by which it has to.
    pub(super) fn examine_content(&mut self, key: StreamKey, now: u32) -> u32 {
        let stream = self.streams.get(key);
        let Some(incoming) = stream.and_then(|stream| stream.incoming.as_ref()) else {
            return NEVER;
        };
        let deadline = incoming.deadline(&self.limits);
        if deadline > now {
            return deadline;
        }
        self.fail_content(key, BodyError::TimedOut);
        NEVER
    }
}

/// The shortest time after which any stream can be too slow.
pub(super) fn shortest(limits: &Limits) -> Duration {
    limits.body_timeout.min(limits.send_timeout)
}
