//! The bodies of requests, limited by the windows of streams and by time.
//!
//! They are read as they arrive, because the other streams of the connection must not wait for a reader.

use std::task::Context;
use std::time::Duration;

use apus_http::{Body, BodyError, Headers, StatusCode};
use apus_transport::{BodyReceiver, BodySender, TICK, UnreadBytes, deadline_from};

use super::{RequestStreams, SlotKey, StreamProtocol};
use crate::connection_table::NEVER;
use crate::limits::Limits;

/// The body of a request, from the driver's side.
pub(super) struct StreamRequestBody {
    sender: BodySender,
    expects_continue: bool,
    /// The receiver for a tunnel, until it is known whether there is one.
    for_tunnel: Option<BodyReceiver>,
    /// Whether the time limits of the client apply.
    timed: bool,
    failed: bool,
    received: u64,
    /// The tick since which the server waits for the client, and the ticks that it waited before.
    waiting_since: Option<u32>,
    waited: u32,
}

impl StreamRequestBody {
    /// The driver's side of a request's body, and the body for the service.
    pub(super) fn new(
        length: Option<u64>,
        expects_continue: bool,
        unread: &UnreadBytes,
    ) -> (Box<Self>, Body) {
        let (sender, receiver) = BodySender::counted(length, unread);
        let request_body = Self {
            sender,
            expects_continue,
            for_tunnel: None,
            timed: true,
            failed: false,
            received: 0,
            waiting_since: None,
            waited: 0,
        };
        (Box::new(request_body), Body::stream(receiver))
    }

    /// The input of a stream that may become a tunnel; it is empty if the client has `ended` the stream.
    pub(super) fn for_tunnel(ended: bool, unread: &UnreadBytes) -> Box<Self> {
        let (sender, receiver) = BodySender::counted(None, unread);
        if ended {
            sender.end(Ok(None), &Context::from_waker(std::task::Waker::noop()));
        }
        Box::new(Self {
            sender,
            expects_continue: false,
            for_tunnel: Some(receiver),
            // Both ends of a tunnel may be silent for long, as a WebSocket between two messages is: what runs the
            // tunnel limits that.
            timed: false,
            failed: false,
            received: 0,
            waiting_since: None,
            waited: 0,
        })
    }

    /// The input of the tunnel. Without a tunnel it is discarded.
    pub(super) fn take_for_tunnel(&mut self) -> Option<BodyReceiver> {
        self.for_tunnel.take()
    }

    fn stop_waiting(&mut self, now: u32) {
        if let Some(since) = self.waiting_since.take() {
            self.waited = self.waited.saturating_add(now.saturating_sub(since));
        }
    }

    /// The tick by which the next chunk has to arrive; [`NEVER`] if it is not waited for.
    fn deadline(&self, limits: &Limits) -> u32 {
        match self.waiting_since {
            Some(since) if self.timed => deadline_from(since, limits.body_timeout),
            _ => NEVER,
        }
    }

    /// Whether the body arrived too slowly, over all the time that the server waited for it.
    fn is_too_slow(&self, limits: &Limits) -> bool {
        let waited = TICK.saturating_mul(self.waited);
        self.timed
            && waited > limits.body_timeout
            && self.received / waited.as_secs().max(1) < limits.body_rate
    }
}

impl<P: StreamProtocol> RequestStreams<'_, P> {
    /// Passes a chunk of a body, or its end, to its reader.
    pub(crate) fn take_data(&mut self, key: P::Key, piece: &[u8], end: bool) {
        let now = self.worker.clock.ticks();
        let len = piece.len();
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let stream = self.streams.get(key);
        let request_body = stream.and_then(|stream| stream.request_body.as_mut());
        let Some(request_body) = request_body.filter(|request_body| !request_body.failed) else {
            // The body is not wanted, or was refused before.
            self.consume(key, len);
            return;
        };
        request_body.stop_waiting(now);
        request_body.received = request_body.received.saturating_add(len as u64);
        let mut poll = request_body.sender.push_behind(piece, &cx);
        if end {
            poll |= request_body.sender.end(Ok(None), &cx);
        }
        if request_body.sender.is_abandoned() {
            self.note_progress(key, &cx);
        } else if !end && self.is_too_slow(key) {
            self.fail_body(key, BodyError::TimedOut);
        }
        if poll {
            self.wakers.mark(key.slot(), self.stream_slots);
        }
        if end {
            self.note_closed(key);
        }
    }

    /// Passes the trailer section to the reader of the body.
    pub(crate) fn take_trailers(&mut self, key: P::Key, trailers: Headers) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let stream = self.streams.get(key);
        if let Some(request_body) = stream.and_then(|stream| stream.request_body.as_mut())
            && !request_body.failed
        {
            request_body.stop_waiting(self.worker.clock.ticks());
            let trailers = Some(trailers).filter(|trailers| !trailers.is_empty());
            if request_body.sender.end(Ok(trailers), &cx) {
                self.wakers.mark(key.slot(), self.stream_slots);
            }
        }
        self.note_closed(key);
    }

    /// Breaks a body off for its reader. The rest of it is discarded.
    pub(crate) fn fail_body(&mut self, key: P::Key, error: BodyError) {
        let waker = self.wakers.waker(key.slot(), self.stream_slots);
        let cx = Context::from_waker(&waker);
        let Some(stream) = self.streams.get(key) else {
            return;
        };
        if let Some(request_body) = &mut stream.request_body {
            request_body.failed = true;
            request_body.waiting_since = None;
            if matches!(error, BodyError::TimedOut) {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "the body of a request came too slowly");
            }
            if request_body.sender.end(Err(error), &cx) {
                self.wakers.mark(key.slot(), self.stream_slots);
            }
        }
    }

    /// Breaks off all bodies that are incomplete: the client has ended its side of the connection.
    pub(crate) fn fail_bodies(&mut self) {
        let keys: Vec<P::Key> = self.streams.keys().collect();
        for key in keys {
            let stream = self.streams.get(key);
            let is_open = stream
                .and_then(|stream| stream.request_body.as_ref())
                .is_some_and(|request_body| {
                    !request_body.failed && !request_body.sender.is_ended()
                });
            if is_open {
                self.fail_body(key, BodyError::Disconnected);
            }
        }
    }

    /// Acts on the progress of a body's reader: opens the window, and sends `100 Continue` to a client that
    /// waits for it.
    pub(super) fn note_progress(&mut self, key: P::Key, cx: &Context<'_>) {
        let stream = self.streams.get(key);
        let Some(request_body) = stream.and_then(|stream| stream.request_body.as_mut()) else {
            return;
        };
        let progress = request_body.sender.progress(cx);
        let mut proceed = false;
        if progress.wanted && !request_body.failed {
            proceed = std::mem::take(&mut request_body.expects_continue);
            if request_body.waiting_since.is_none() {
                request_body.waiting_since = Some(self.worker.clock.ticks());
            }
        }
        if request_body.sender.is_abandoned() && !request_body.failed {
            // More of it would not be read either, so the window stays as it is.
            request_body.failed = true;
            self.protocol.abandon(key);
        }
        self.consume(key, progress.used);
        if proceed {
            // Interim responses that were queued before come first.
            self.send_interims();
            let none = Headers::new();
            self.protocol
                .send_informational(key, StatusCode::CONTINUE, &none);
        }
    }

    /// Asks a client for the body that it holds back, if the response that begins now still reads it, as an echo does:
    /// behind the head of the response nothing could ask for it.
    pub(super) fn ask_for_unread_body(&mut self, key: P::Key) {
        let stream = self.streams.get(key);
        let request_body = stream.and_then(|stream| stream.request_body.as_ref());
        let is_read = request_body.is_some_and(|request_body| {
            !request_body.failed && !request_body.sender.is_abandoned()
        });
        if is_read && self.take_expectation(key) {
            let none = Headers::new();
            self.protocol
                .send_informational(key, StatusCode::CONTINUE, &none);
        }
    }

    /// Whether the client waits for `100 Continue`; the expectation is cleared.
    pub(super) fn take_expectation(&mut self, key: P::Key) -> bool {
        let stream = self.streams.get(key);
        let request_body = stream.and_then(|stream| stream.request_body.as_mut());
        request_body.is_some_and(|request_body| std::mem::take(&mut request_body.expects_continue))
    }

    fn consume(&mut self, key: P::Key, bytes: usize) {
        if bytes > 0 {
            self.protocol.consumed(key, bytes);
        }
    }

    fn is_too_slow(&mut self, key: P::Key) -> bool {
        let stream = self.streams.get(key);
        let request_body = stream.and_then(|stream| stream.request_body.as_ref());
        request_body.is_some_and(|request_body| request_body.is_too_slow(&self.limits))
    }

    /// Breaks off a body that is past its deadline; returns the deadline otherwise.
    pub(super) fn examine_body(&mut self, key: P::Key, now: u32) -> u32 {
        let stream = self.streams.get(key);
        let Some(request_body) = stream.and_then(|stream| stream.request_body.as_ref()) else {
            return NEVER;
        };
        let deadline = request_body.deadline(&self.limits);
        if deadline > now {
            return deadline;
        }
        self.fail_body(key, BodyError::TimedOut);
        NEVER
    }
}

/// The shortest time limit of a stream.
pub(super) fn shortest(limits: &Limits) -> Duration {
    limits.body_timeout.min(limits.send_timeout)
}
