//! The task of an HTTP/2 connection to an origin.
//!
//! It reads the input, opens streams for queued requests, polls the streams that were woken, writes once, and
//! repeats.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use apus_codec::h2::{ConnectionError, ErrorCode, Http2Codec as Codec, Http2Config, StreamKey};
use apus_http::BodyError;

use super::stream::{ClientStream, ClientStreams, ResponseState};
use super::timers::ClientTimers;
use super::{ConnectionState, OUT_MOST, RECEIVE_WINDOW, STREAMS, unsent};
use crate::buffers::BufferPool;
use crate::client::{FailureCause, RequestFailure, RequestPhase, Timeouts};
use crate::clock::coarse_now;
use crate::h2::poll_budget::PollBudget;
use crate::h2::wakers::StreamWakers;
use crate::h2::write::{UNSENT_MOST, WriteBatch};
use crate::input::InputBuffer;
use crate::transport::Transport;

/// Limits of a field section of a response.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_FIELDS: usize = 256;

/// The time limit of the last write.
const END_WITHIN: Duration = Duration::from_secs(1);

/// The task's side of a connection.
pub(super) struct Http2ClientDriver {
    pub(super) shared: Rc<ConnectionState>,
    pub(super) transport: Transport,
    pub(super) codec: Codec,
    pub(super) input: InputBuffer,
    /// Whether the input may have complete frames.
    pub(super) unhandled: bool,
    /// The bytes to write.
    pub(super) out: WriteBatch,
    /// Whether the last write may have filled the socket.
    pub(super) wrote_much: bool,
    pub(super) buffers: Rc<BufferPool>,
    pub(super) streams: ClientStreams,
    pub(super) wakers: StreamWakers,
    /// The slots that are polled now; stored to reuse their memory.
    woken: Vec<usize>,
    /// Streams whose responses are to be delivered.
    pub(super) pending: Vec<StreamKey>,
    pub(super) timers: ClientTimers,
    pub(super) budget: PollBudget,
    /// Why the connection ends, once `out` is written.
    pub(super) end: Option<CloseReason>,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// No handle is left, or the origin ended the connection in order.
    Closed,
    Io(io::Error),
    TimedOut,
    Protocol(ConnectionError),
}

impl Http2ClientDriver {
    /// A connection over a transport on which nothing was sent or received.
    pub(super) fn new(
        mut transport: Transport,
        timeouts: &Timeouts,
        shared: Rc<ConnectionState>,
    ) -> Self {
        transport.limit_unsent(UNSENT_MOST);
        let buffers = BufferPool::of_thread();
        let mut out = WriteBatch::default();
        let config = Http2Config {
            max_concurrent_streams: u32::try_from(STREAMS).unwrap_or(u32::MAX),
            max_frame_size: 16 * 1024,
            target_bytes: 0,
            head_bytes: HEAD_BYTES,
            fields: HEAD_FIELDS,
            receive_window: RECEIVE_WINDOW,
            extended_connect: false,
        };
        let codec = Codec::client(config, out.frames(&buffers));
        Self {
            shared,
            transport,
            codec,
            input: InputBuffer::default(),
            unhandled: false,
            out,
            wrote_much: false,
            buffers,
            streams: ClientStreams::default(),
            wakers: StreamWakers::default(),
            woken: Vec::new(),
            pending: Vec::new(),
            timers: ClientTimers::new(timeouts),
            budget: PollBudget::default(),
            end: None,
        }
    }

    /// Drives the connection to its end.
    pub(super) async fn run(mut self) {
        let reason = poll_fn(|cx| self.poll(cx)).await;
        if !matches!(reason, CloseReason::Closed) {
            tracing::debug!(error = %reason, "a connection to an origin ended");
        }
        self.fail_all(&reason);
        if matches!(reason, CloseReason::Closed | CloseReason::Protocol(_)) {
            let _ = tokio::time::timeout(END_WITHIN, poll_fn(|cx| self.poll_shutdown(cx))).await;
        }
    }

    /// Polls the connection until there is no progress, or until its share of the worker is spent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.watch(cx);
        self.budget = PollBudget::default();
        self.codec
            .advance(coarse_now().saturating_duration_since(self.shared.opened_at));
        loop {
            self.budget.rounds += 1;
            let progress = match self.round(cx) {
                Ok(progress) => progress,
                Err(reason) => return Poll::Ready(reason),
            };
            self.update_capacity();
            if let Some(reason) = self.ended() {
                return Poll::Ready(reason);
            }
            if progress {
                if self.budget.is_spent() {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            self.input.release(&self.buffers);
            self.out.release(&self.buffers);
            ready!(self.poll_timer(cx));
            if let Err(reason) = self.handle_deadline(Instant::now()) {
                return Poll::Ready(reason);
            }
        }
    }

    /// Reads, polls the streams and writes; returns whether there was any progress.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progress = self.poll_input(cx)?;
        // Streams that end free their slots for queued requests, whose first data leaves with their heads.
        progress |= self.poll_streams();
        if self.open_queued() {
            progress = true;
            self.poll_streams();
        }
        progress |= self.poll_output(cx)?;
        Ok(progress)
    }

    /// Registers the task to wake.
    fn watch(&mut self, cx: &Context<'_>) {
        self.wakers.bind(cx.waker());
        let mut task = self.shared.task.borrow_mut();
        match &*task {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// Updates how many streams are open, and how many more can be.
    pub(super) fn update_capacity(&self) {
        let (open, before) = (self.codec.open_streams(), self.shared.open.get());
        if open == 0 && before > 0 {
            self.shared.idle_since.set(coarse_now());
        }
        self.shared.open.set(open);
        self.shared.room.set(self.codec.available_streams());
        if self.codec.is_shutting_down() || self.end.is_some() {
            self.shared.closed.set(true);
        }
    }

    /// Why the connection ends, if it has.
    fn ended(&mut self) -> Option<CloseReason> {
        if self.end.is_some() {
            return self.end.take();
        }
        let is_unused = self.codec.open_streams() == 0 && self.shared.queue.borrow().is_empty();
        let is_unwanted = self.codec.is_shutting_down() || Rc::strong_count(&self.shared) == 1;
        if is_unused && is_unwanted {
            let frames = self.out.frames(&self.buffers);
            self.codec.go_away(ErrorCode::NO_ERROR, frames);
            return Some(CloseReason::Closed);
        }
        None
    }

    /// Polls the streams that were woken; returns whether there were any.
    fn poll_streams(&mut self) -> bool {
        if !self.wakers.is_any_woken() {
            return false;
        }
        let mut woken = std::mem::take(&mut self.woken);
        self.wakers.take_woken(self.streams.slots(), &mut woken);
        for slot in woken.drain(..) {
            let Some(key) = self.streams.key(slot) else {
                continue;
            };
            let waker = self.wakers.waker(slot, STREAMS);
            let mut cx = Context::from_waker(&waker);
            self.poll_sending(key, &mut cx);
            self.note_progress(key, &cx);
        }
        self.woken = woken;
        true
    }

    /// Whether more input would only produce more output.
    pub(super) fn is_choked(&self) -> bool {
        self.out.len() >= OUT_MOST
    }

    /// Cancels a request: resets its stream.
    pub(super) fn cancel(&mut self, key: StreamKey) -> Option<Box<ClientStream>> {
        let frames = self.out.frames(&self.buffers);
        self.codec.reset(key, ErrorCode::CANCEL, frames);
        self.streams.remove(key)
    }

    /// Reports a failure to the sender that waits for a response, or to the reader of its body.
    pub(super) fn fail(&self, stream: Box<ClientStream>, cause: FailureCause, error: BodyError) {
        let ClientStream {
            response_slot,
            request_body,
            response,
            begins_at,
            ..
        } = *stream;
        if let Some(response_slot) = response_slot {
            let request_sent =
                !matches!(cause, FailureCause::Refused) && self.out.written() > begins_at;
            response_slot.settle(Err(RequestFailure {
                phase: match request_body.ended {
                    true => RequestPhase::Head,
                    false => RequestPhase::Send,
                },
                cause,
                request_sent,
                body: request_body.give_back(),
            }));
        } else if let ResponseState::Body(sender) = response {
            let cx = Context::from_waker(std::task::Waker::noop());
            sender.end(Err(error), &cx);
        }
    }

    /// Fails all streams and all queued requests.
    fn fail_all(&mut self, reason: &CloseReason) {
        self.shared.closed.set(true);
        for key in self.streams.keys() {
            if let Some(stream) = self.streams.remove(key) {
                let error = match reason {
                    CloseReason::TimedOut => BodyError::TimedOut,
                    CloseReason::Protocol(_) => BodyError::Malformed,
                    CloseReason::Closed | CloseReason::Io(_) => BodyError::Disconnected,
                };
                self.fail(stream, reason.cause(), error);
            }
        }
        self.shared.open.set(0);
        loop {
            let next = self.shared.queue.borrow_mut().pop_front();
            let Some(waiting) = next else { break };
            let failure = unsent(waiting.request, reason.cause());
            waiting.response_slot.settle(Err(failure));
        }
    }

    /// Writes the remaining bytes, and ends our side.
    fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            ready!(self.out.poll_write(cx, &mut self.transport, &self.buffers))?;
        }
        ready!(self.transport.poll_flush(cx))?;
        self.transport.poll_shutdown(cx)
    }
}

/// The runtime may end before the connection does, and a panic ends it.
impl Drop for Http2ClientDriver {
    fn drop(&mut self) {
        self.fail_all(&CloseReason::Closed);
    }
}

impl CloseReason {
    fn cause(&self) -> FailureCause {
        match self {
            Self::Closed => FailureCause::Closed,
            Self::Io(error) => FailureCause::Io(io::Error::new(error.kind(), error.to_string())),
            Self::TimedOut => FailureCause::TimedOut,
            Self::Protocol(error) => FailureCause::Protocol(Box::new(*error)),
        }
    }
}

impl fmt::Display for CloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause().fmt(f)
    }
}

impl From<io::Error> for CloseReason {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
