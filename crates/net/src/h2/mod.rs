//! Drives the HTTP/2 codec over a connection (RFC 9113): one task for all its streams, without locks.
//!
//! A turn of the task reads what is there and handles all frames in it. The service is called for
//! each request where it is found; an answer that is there at once is encoded at once, one that has
//! to be waited for stays in the stream's slot. Then those streams are polled that were woken, and
//! the heads and content of all streams that have any leave in one write, in the order that
//! priorities ask for. This repeats while the socket takes it, with a look at the input between two
//! writes, until the connection has had its share of the worker.
//!
//! # Memory
//!
//! While it works, a connection holds an input buffer of 64 KiB, or as much more as its largest
//! frame needs; and a batch of at most [`BATCH`] bytes with content, not copied where it is in
//! memory, or [`OUT_MOST`] of heads and other frames. The kernel holds [`UNSENT_MOST`] bytes that it
//! cannot send yet. TLS is given a batch only when the socket has room for it, so that what it has
//! to keep encrypted is as a rule nothing and never more than a batch. A client that does not take
//! its answers is not read.
//!
//! A stream has a slot of about 200 bytes, what its handler keeps, content of the request that was
//! not read yet, and one frame of the answer's content. All unread content of a connection is at most
//! `h2_receive_window`, and twice that in memory.
//!
//! A connection without an open stream holds no buffer, and soon no tables either: what it costs is
//! its task, the codec with its compression tables, and TLS.

mod interim;
mod request_body;
mod requests;
mod responses;
mod send;
pub(crate) mod stream;
mod timers;
pub(crate) mod tunnel;
pub(crate) mod wakers;
pub(crate) mod write;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use apus_codec::h2::{Http2Codec as Codec, Http2Config, StreamKey};
use apus_http::{ConnectionInfo, InterimQueue};

use self::responses::QueuedCompletion;
use self::stream::ServerStreams;
use self::timers::ServerTimers;
use self::wakers::StreamWakers;
use self::write::WriteBatch;
use crate::connection_table::ConnectionSlot;
use crate::input::InputBuffer;
use crate::limits::Limits;
use crate::linger::{LINGER_AT_END, LINGER_IDLE, LingerLimits, linger};
use crate::transport::Transport;
use crate::worker::{Worker, WorkerListener};

/// Bytes that one write takes: eight full TLS records. A small answer waits for no more than this of
/// a large one on its connection, and for less where the client is slow ([`BATCH_LEAST`]).
const BATCH: usize = 128 * 1024;

/// Bytes that one write takes at least, one TLS record, where clients take less than they are given:
/// what the socket does not take holds up what is more urgent.
const BATCH_LEAST: usize = 16 * 1024;

/// Bytes that the kernel holds while it cannot send them. A client with a long way to it needs more
/// on the way, not here: the kernel counts only what no congestion window has let go.
const UNSENT_MOST: u32 = 128 * 1024;

/// Bytes that are to be written past which nothing more is read.
const OUT_MOST: usize = BATCH;

/// Bytes that are read and thrown away of a client whose connection has ended: what may have been on
/// its way, and not what it goes on to send.
const LINGER_MOST: usize = 1024 * 1024;

/// What is written or done before other connections get their turn.
const TURN_BYTES: usize = 2 * BATCH;
const TURN_REQUESTS: usize = 128;
const TURN_ROUNDS: usize = 16;

/// A connection that speaks HTTP/2.
pub(crate) struct Http2Connection<'a> {
    worker: &'a Worker,
    listener: &'a WorkerListener,
    slot: &'a ConnectionSlot,
    limits: Rc<Limits>,
    transport: Transport,
    info: Rc<ConnectionInfo>,
    codec: Codec,
    input: InputBuffer,
    /// Whether there may be whole frames in the input.
    unhandled: bool,
    /// What is to be written.
    out: WriteBatch,
    /// Whether the last write may have filled the socket.
    wrote_much: bool,
    /// Bytes that the next write takes.
    batch: usize,
    streams: ServerStreams,
    /// How many streams the client may have open.
    stream_slots: usize,
    wakers: StreamWakers,
    /// What services want said before their answers.
    interims: InterimQueue,
    /// The slots that are polled now; kept for its memory.
    woken: Vec<usize>,
    /// ServerStreams that were answered before their request was whole.
    unfinished: Vec<StreamKey>,
    /// Those of them whose clients still send, and since when.
    abandoned: Vec<(StreamKey, u32)>,
    /// Whose answers are in `out`, waiting to be told how it went.
    written: VecDeque<QueuedCompletion>,
    timers: ServerTimers,
    turn: Turn,
    /// When something was read last.
    arrived: Instant,
    requests: u64,
    /// Whether a graceful end was begun.
    ending: bool,
    /// Whether the client sends nothing more.
    client_left: bool,
    /// How it ends, once `out` is written.
    end: Option<Http2End>,
}

/// How a connection ends.
#[derive(Clone, Copy)]
enum Http2End {
    /// The client is gone.
    Close,
    /// The client may still be sending.
    Linger,
}

/// What was done in this turn of the task.
#[derive(Default)]
struct Turn {
    rounds: usize,
    requests: usize,
    bytes: usize,
}

impl Turn {
    fn is_full_of_requests(&self) -> bool {
        self.requests >= TURN_REQUESTS
    }

    fn is_over(&self) -> bool {
        self.is_full_of_requests() || self.bytes >= TURN_BYTES || self.rounds >= TURN_ROUNDS
    }
}

impl<'a> Http2Connection<'a> {
    /// A connection before the client's preface, some of which may have been read already.
    pub(crate) fn new(
        worker: &'a Worker,
        listener: &'a WorkerListener,
        slot: &'a ConnectionSlot,
        (mut transport, info, input): (Transport, Rc<ConnectionInfo>, InputBuffer),
    ) -> Self {
        transport.limit_unsent(UNSENT_MOST);
        worker.counters.h2_connections.add(1);
        let limits = worker.limits();
        let config = Http2Config {
            max_concurrent_streams: limits.h2_max_concurrent_streams,
            max_frame_size: limits.h2_max_frame_size,
            target_bytes: limits.target_bytes,
            head_bytes: limits.head_bytes,
            fields: limits.head_fields,
            receive_window: limits.h2_receive_window,
            extended_connect: true,
        };
        let mut out = WriteBatch::default();
        let codec = Codec::server(config, out.frames(&worker.buffers));
        Self {
            worker,
            listener,
            slot,
            transport,
            info,
            codec,
            unhandled: !input.is_empty(),
            input,
            out,
            wrote_much: false,
            batch: BATCH,
            streams: ServerStreams::default(),
            stream_slots: usize::try_from(limits.h2_max_concurrent_streams).unwrap_or(1),
            limits,
            wakers: StreamWakers::default(),
            interims: InterimQueue::default(),
            woken: Vec::new(),
            unfinished: Vec::new(),
            abandoned: Vec::new(),
            written: VecDeque::new(),
            timers: ServerTimers::new(worker.clock.ticks()),
            turn: Turn::default(),
            arrived: Instant::now(),
            requests: 0,
            ending: false,
            client_left: false,
            end: None,
        }
    }

    /// Serves the connection to its end.
    pub(crate) async fn serve(&mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        // What is left could not be sent.
        self.lose_all();
        self.settle_lost();
        self.rest();
        match end {
            Ok(Http2End::Close) => {}
            Ok(Http2End::Linger) => {
                self.shrink();
                let idle = match self.is_told_to_end() {
                    true => LINGER_AT_END,
                    false => LINGER_IDLE,
                };
                let patience = LingerLimits {
                    idle,
                    bytes: LINGER_MOST,
                };
                linger(self.worker, self.slot, &mut self.transport, patience).await;
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.info.peer, "closed on a client that was too slow");
            }
            Err(_) => {}
        }
    }

    /// One turn of the task.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Http2End>> {
        self.slot.register(cx);
        self.wakers.bind(cx.waker());
        self.interims.watch(cx);
        // A reload may have changed them.
        self.limits = self.worker.limits();
        self.turn = Turn::default();
        self.keep_time();
        if self.slot.is_expired() {
            self.on_deadline()?;
        }
        loop {
            self.turn.rounds += 1;
            self.end_if_told();
            let mut progress = self.poll_input(cx)?;
            progress |= self.poll_streams();
            progress |= self.send_interims();
            self.abandon_unfinished();
            progress |= self.poll_output(cx)?;
            if let Some(end) = self.ended() {
                return Poll::Ready(Ok(end));
            }
            if !progress {
                self.rest();
                self.set_deadline();
                return Poll::Pending;
            }
            if self.turn.is_over() {
                self.set_deadline();
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }

    /// How the connection ends, if it is at its end.
    fn ended(&self) -> Option<Http2End> {
        if self.client_left {
            return Some(Http2End::Close);
        }
        if !self.out.is_empty() || self.timers.is_blocked() {
            return None;
        }
        if self.end.is_none() && self.codec.is_shutting_down() && self.codec.is_finished() {
            return Some(Http2End::Linger);
        }
        self.end
    }

    /// Begins a graceful end when the server, the listener or the limit of requests asks for it.
    fn end_if_told(&mut self) {
        let limit = self.limits.h2_requests_per_connection;
        if !self.ending && (self.is_told_to_end() || (limit > 0 && self.requests >= limit)) {
            self.ending = true;
            self.timers.ending_since = self.worker.clock.ticks();
            let frames = self.out.frames(&self.worker.buffers);
            self.codec.shut_down(frames);
        }
    }

    /// Whether no further request is wanted on this connection.
    fn is_told_to_end(&self) -> bool {
        self.worker.is_stopping() || self.listener.is_removed()
    }

    /// Gives back the buffers for the time of a wait.
    fn rest(&mut self) {
        self.input.rest(&self.worker.buffers);
        self.out.rest(&self.worker.buffers);
    }

    /// Gives back the tables, where no stream is open.
    fn shrink(&mut self) {
        self.codec.release_memory();
        self.streams.shrink();
        self.wakers.shrink();
        self.out.shrink();
        self.woken = Vec::new();
        self.unfinished = Vec::new();
        self.abandoned = Vec::new();
        self.written.shrink_to_fit();
    }
}
