//! The task of an HTTP/2 connection to an origin.
//!
//! It reads what is there, opens streams for queued requests, polls the streams that were woken,
//! writes once, and begins again.

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
use super::{BATCH, ConnectionState, OUT_MOST, RECEIVE_WINDOW, STREAMS, unsent};
use crate::buffers::BufferPool;
use crate::client::{FailureCause, RequestFailure, RequestPhase, Timeouts};
use crate::clock::coarse_now;
use crate::h2::wakers::StreamWakers;
use crate::h2::write::WriteBatch;
use crate::input::InputBuffer;
use crate::transport::Transport;

/// Bytes that the kernel holds while it cannot send them, so that whose turn it is can be decided
/// late.
const UNSENT_MOST: u32 = 128 * 1024;

/// What a field section of a response may have.
const HEAD_BYTES: usize = 64 * 1024;
const HEAD_FIELDS: usize = 256;

/// What is written or done before other tasks get their turn.
const TURN_BYTES: usize = 2 * BATCH;
const TURN_ROUNDS: usize = 16;

/// How long the last bytes may take to leave.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A connection, as its task has it.
pub(super) struct Http2ClientDriver {
    pub(super) shared: Rc<ConnectionState>,
    pub(super) transport: Transport,
    pub(super) codec: Codec,
    pub(super) input: InputBuffer,
    /// Whether there may be whole frames in the input.
    pub(super) unhandled: bool,
    /// What is to be written.
    pub(super) out: WriteBatch,
    /// Whether the last write may have filled the socket.
    pub(super) wrote_much: bool,
    pub(super) buffers: Rc<BufferPool>,
    pub(super) streams: ClientStreams,
    pub(super) wakers: StreamWakers,
    /// The slots that are polled now; kept for its memory.
    woken: Vec<usize>,
    /// ClientStreams whose responses are to be handed on.
    pub(super) fresh: Vec<StreamKey>,
    pub(super) timers: ClientTimers,
    pub(super) turn: Turn,
    /// How it ends, once `out` is written.
    pub(super) end: Option<CloseReason>,
}

/// What was done in this turn of the task.
#[derive(Default)]
pub(super) struct Turn {
    rounds: usize,
    pub(super) bytes: usize,
}

/// Why a connection ends.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// Nobody needs it any more, or the origin ended it in order.
    Closed,
    Io(io::Error),
    TimedOut,
    Protocol(ConnectionError),
}

impl Http2ClientDriver {
    /// A connection over a transport on which nothing was said.
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
            fresh: Vec::new(),
            timers: ClientTimers::new(timeouts),
            turn: Turn::default(),
            end: None,
        }
    }

    /// Drives the connection to its end.
    pub(super) async fn run(mut self) {
        let lost = poll_fn(|cx| self.poll(cx)).await;
        if !matches!(lost, CloseReason::Closed) {
            tracing::debug!(error = %lost, "a connection to an origin ended");
        }
        self.lose_all(&lost);
        if matches!(lost, CloseReason::Closed | CloseReason::Protocol(_)) {
            let _ = tokio::time::timeout(END_WITHIN, poll_fn(|cx| self.poll_shutdown(cx))).await;
        }
    }

    /// One turn of the task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<CloseReason> {
        self.watch(cx);
        self.turn = Turn::default();
        self.codec
            .advance(coarse_now().saturating_duration_since(self.shared.opened_at));
        loop {
            self.turn.rounds += 1;
            let progress = match self.round(cx) {
                Ok(progress) => progress,
                Err(lost) => return Poll::Ready(lost),
            };
            self.tell_room();
            if let Some(lost) = self.ended() {
                return Poll::Ready(lost);
            }
            if progress {
                if self.turn.rounds >= TURN_ROUNDS || self.turn.bytes >= TURN_BYTES {
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                continue;
            }
            self.input.rest(&self.buffers);
            self.out.rest(&self.buffers);
            ready!(self.poll_timer(cx));
            if let Err(lost) = self.on_deadline(Instant::now()) {
                return Poll::Ready(lost);
            }
        }
    }

    /// Does what can be done; tells whether there was anything.
    fn round(&mut self, cx: &mut Context<'_>) -> Result<bool, CloseReason> {
        let mut progress = self.poll_input(cx)?;
        // Those that end make room for others, whose first content leaves with their heads.
        progress |= self.poll_streams();
        if self.open_queued() {
            progress = true;
            self.poll_streams();
        }
        progress |= self.poll_output(cx)?;
        Ok(progress)
    }

    /// Remembers the task for those who have something for it.
    fn watch(&mut self, cx: &Context<'_>) {
        self.wakers.bind(cx.waker());
        let mut task = self.shared.task.borrow_mut();
        match &*task {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *task = Some(cx.waker().clone()),
        }
    }

    /// Tells the handles how many streams there are and may be.
    pub(super) fn tell_room(&self) {
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

    /// How the connection ends, if it is at its end.
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

    /// Polls what was woken; tells whether there was any.
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

    /// Whether more input would only have more to be written.
    pub(super) fn is_choked(&self) -> bool {
        self.out.len() >= OUT_MOST
    }

    /// Takes a request back: the origin is told to forget it.
    pub(super) fn cancel(&mut self, key: StreamKey) -> Option<Box<ClientStream>> {
        let frames = self.out.frames(&self.buffers);
        self.codec.reset(key, ErrorCode::CANCEL, frames);
        self.streams.remove(key)
    }

    /// Tells whoever waits for a stream's response, or reads it, that there is no more of it.
    pub(super) fn fail(&self, stream: Box<ClientStream>, cause: FailureCause, error: BodyError) {
        let ClientStream {
            response_slot,
            sending,
            receiving,
            begins_at,
            ..
        } = *stream;
        if let Some(response_slot) = response_slot {
            let request_sent =
                !matches!(cause, FailureCause::Refused) && self.out.written() > begins_at;
            response_slot.settle(Err(RequestFailure {
                phase: match sending.ended {
                    true => RequestPhase::Head,
                    false => RequestPhase::Send,
                },
                cause,
                request_sent,
                body: sending.give_back(),
            }));
        } else if let ResponseState::Body(content) = receiving {
            let cx = Context::from_waker(std::task::Waker::noop());
            content.end(Err(error), &cx);
        }
    }

    /// Lets go of all streams, and of what is in the queue.
    fn lose_all(&mut self, lost: &CloseReason) {
        self.shared.closed.set(true);
        for key in self.streams.keys() {
            if let Some(stream) = self.streams.remove(key) {
                let error = match lost {
                    CloseReason::TimedOut => BodyError::TimedOut,
                    CloseReason::Protocol(_) => BodyError::Malformed,
                    CloseReason::Closed | CloseReason::Io(_) => BodyError::Disconnected,
                };
                self.fail(stream, lost.cause(), error);
            }
        }
        self.shared.open.set(0);
        loop {
            let next = self.shared.queue.borrow_mut().pop_front();
            let Some(waiting) = next else { break };
            let failure = unsent(waiting.request, lost.cause());
            waiting.response_slot.settle(Err(failure));
        }
    }

    /// Writes what is left, and ends our side.
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
        self.lose_all(&CloseReason::Closed);
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
