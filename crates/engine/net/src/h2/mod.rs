//! The HTTP/2 driver of a connection (RFC 9113): one task for all its streams, without locks.
//!
//! One poll of the task reads the input and handles all frames in it. The service is called for each request
//! as soon as its head is found. A response that is ready is encoded at once; the future of a later one is
//! stored in the stream's slot. Then the streams that were woken are polled, and the heads and data of all
//! streams leave in one write, in the order of their priorities. This repeats while the socket takes it, with
//! a look at the input between two writes, until the connection has used its share of the worker.
//!
//! # Memory
//!
//! While it works, a connection holds an input buffer of 64 KiB, or more if its largest frame needs it; and a
//! batch of at most [`BATCH`] bytes with data, which is not copied if it is in memory, or [`MAX_OUT`] of
//! heads and other frames. The kernel holds [`MAX_UNSENT`] bytes that it cannot send yet. TLS gets a batch
//! only when the socket has space for it, so that it normally holds no encrypted bytes and never more than a
//! batch. A client that does not take its responses is not read.
//!
//! A stream has a slot of about 200 bytes, the state of its handler, the unread part of the request's body,
//! and one frame of the response's body. The unread bodies of a connection have at most `h2_receive_window`
//! bytes, and twice that in memory.
//!
//! A connection without an open stream holds no buffer, and soon no tables: it costs its task, the codec with
//! its compression tables, and TLS.

mod half_closed;
mod input;
mod output;
mod protocol;
mod timers;

use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use apus_codec::h2::{Http2Codec as Codec, Http2Config};
use apus_http::ConnectionInfo;
use apus_transport::write_batch::{BATCH, MAX_UNSENT, WriteBatch};
use apus_transport::{InputBuffer, Transport, yield_to_events};

use self::half_closed::Http2HalfClose;
use self::protocol::Http2Protocol;
use self::timers::ServerTimers;
use crate::alt_svc::AltSvc;
use crate::connection_table::ConnectionSlot;
use crate::linger::{LINGER_AT_END, LINGER_IDLE, LingerLimits, linger};
use crate::streams::RequestStreams;
use crate::worker::{Worker, WorkerListener};

/// The least size of a batch, one TLS record, for clients that take less than they are sent: bytes that the
/// socket does not take hold up more urgent ones.
const MIN_BATCH: usize = 16 * 1024;

/// The most bytes of output; past it nothing more is read.
const MAX_OUT: usize = BATCH;

/// The most bytes that are read and discarded after a connection has ended: bytes that may have been in
/// flight, and not those that the client sends later.
const MAX_LINGER: usize = 1024 * 1024;

/// A connection that speaks HTTP/2.
struct Http2Connection<'a> {
    worker: &'a Worker,
    listener: &'a WorkerListener,
    slot: &'a ConnectionSlot,
    transport: Transport,
    input: InputBuffer,
    /// Whether the input may have complete frames.
    unhandled: bool,
    /// The requests, with the codec and the bytes to write.
    streams: RequestStreams<'a, Http2Protocol>,
    /// The bytes that were written.
    sent: u64,
    /// Whether the last write may have filled the socket.
    wrote_much: bool,
    /// The current size of a batch.
    batch: usize,
    timers: ServerTimers,
    /// Whether a graceful shutdown has begun.
    ending: bool,
    /// Whether the client is gone, or has to go.
    client_left: bool,
    /// Set once the client has ended its side: it can still get its responses.
    half_closed: Option<Http2HalfClose>,
    /// How the connection ends, once `out` is written.
    end: Option<Http2End>,
}

/// What HTTP/2 takes over of a connection before its first frame.
pub(crate) struct Http2Handoff {
    pub(crate) transport: Transport,
    pub(crate) info: Rc<ConnectionInfo>,
    /// The client's preface, or a part of it.
    pub(crate) input: InputBuffer,
    pub(crate) alt_svc: AltSvc,
}

impl Http2Handoff {
    /// Serves the connection to its end.
    pub(crate) async fn serve(
        self: Box<Self>,
        worker: &Worker,
        listener: &WorkerListener,
        slot: &ConnectionSlot,
    ) {
        let _open = worker.counters.h2_open.count_one();
        let mut connection = Box::new(Http2Connection::new(worker, listener, slot, *self));
        connection.serve().await;
    }
}

/// How a connection ends.
#[derive(Clone, Copy)]
enum Http2End {
    /// The client closed.
    Close,
    /// The client may still be sending.
    Linger,
}

impl<'a> Http2Connection<'a> {
    fn new(
        worker: &'a Worker,
        listener: &'a WorkerListener,
        slot: &'a ConnectionSlot,
        handoff: Http2Handoff,
    ) -> Self {
        let Http2Handoff {
            mut transport,
            info,
            input,
            alt_svc,
        } = handoff;
        // What stands in the socket cannot be overtaken: the priorities of responses have an effect for what is behind
        // it only.
        transport.limit_unsent(MAX_UNSENT);
        worker.counters.h2_connections.add(1);
        let limits = worker.limits();
        let config = Http2Config {
            max_concurrent_streams: limits.h2_max_concurrent_streams,
            max_frame_size: limits.h2_max_frame_size,
            target_bytes: limits.target_bytes,
            head_bytes: limits.head_bytes,
            fields: limits.head_fields,
            receive_window: limits.h2_receive_window,
            stream_receive_window: None,
            extended_connect: true,
        };
        let mut out = WriteBatch::default();
        let codec = Codec::server(config, out.frames(&worker.buffers));
        let protocol = Http2Protocol::new(codec, out, Rc::clone(&worker.buffers));
        let slots = usize::try_from(limits.h2_max_concurrent_streams).unwrap_or(1);
        Self {
            worker,
            listener,
            slot,
            transport,
            unhandled: !input.is_empty(),
            input,
            streams: RequestStreams::new((worker, listener), (info, alt_svc), protocol, slots),
            sent: 0,
            wrote_much: false,
            batch: BATCH,
            timers: ServerTimers::new(worker.clock.ticks()),
            ending: false,
            client_left: false,
            half_closed: None,
            end: None,
        }
    }

    /// Serves the connection to its end.
    async fn serve(&mut self) {
        let end = poll_fn(|cx| self.poll(cx)).await;
        // The rest could not be sent.
        self.streams.note_client_left();
        self.streams.drop_all_streams();
        self.streams.protocol.fail_unwritten();
        self.release_buffers();
        match end {
            Ok(Http2End::Close) => {}
            Ok(Http2End::Linger) => {
                self.shrink();
                let idle = if self.is_shutdown_requested() {
                    LINGER_AT_END
                } else {
                    LINGER_IDLE
                };
                let patience = LingerLimits {
                    idle,
                    bytes: MAX_LINGER,
                };
                linger(self.worker, self.slot, &mut self.transport, patience).await;
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                self.worker.counters.timeouts.add(1);
                tracing::debug!(peer = %self.streams.info.peer, "closed on a client that was too slow");
            }
            Err(_) => {}
        }
    }

    /// Polls the connection until there is no progress, or until its share of the worker is spent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Http2End>> {
        self.slot.register(cx);
        self.streams.begin_poll(cx);
        self.advance_clock();
        let mut is_due = self.slot.is_expired();
        if is_due {
            // What waits in the socket of a busy worker has come in time.
            self.poll_input(cx)?;
            self.handle_deadline()?;
        }
        loop {
            self.streams.budget.rounds += 1;
            self.shut_down_if_requested();
            let mut progress = self.poll_input(cx)?;
            progress |= self.streams.poll_streams();
            progress |= self.streams.send_interims();
            // Only when all frames were seen: the end of a body that is still in the input makes a reset of its stream
            // needless.
            if !self.unhandled {
                self.streams.abandon_unfinished();
            }
            progress |= self.poll_output(cx)?;
            if std::mem::take(&mut is_due) && self.end.is_none() {
                // Only now it is known which streams wait for the client. Before the output, a stream whose window had just
                // been opened by a few bytes did not seem to wait: clients that did so at the right times held it.
                self.streams.examine(self.worker.clock.ticks());
                progress = true;
            }
            if let Some(end) = self.ended() {
                return Poll::Ready(Ok(end));
            }
            if !progress {
                self.release_buffers();
                self.set_deadline();
                return Poll::Pending;
            }
            // A client with many streams that are always ready would otherwise keep the worker from its other
            // connections.
            if self.streams.budget.is_spent() {
                self.set_deadline();
                yield_to_events(cx);
                return Poll::Pending;
            }
        }
    }

    /// How the connection ends, if it has.
    fn ended(&self) -> Option<Http2End> {
        if self.client_left {
            return Some(Http2End::Close);
        }
        if !self.streams.protocol.out.is_empty() || self.timers.is_blocked() {
            return None;
        }
        let codec = &self.streams.protocol.codec;
        if self.half_closed.is_some() && !self.unhandled && codec.open_streams() == 0 {
            return Some(Http2End::Close);
        }
        if self.end.is_none() && codec.is_shutting_down() && codec.is_finished() {
            return Some(Http2End::Linger);
        }
        self.end
    }

    /// Begins a graceful shutdown when the server, the listener or the limit of requests requires it.
    fn shut_down_if_requested(&mut self) {
        let limit = self.streams.limits.h2_requests_per_connection;
        let is_requested = self.is_shutdown_requested()
            || self.streams.is_ended_by_response
            || limit > 0 && self.streams.requests >= limit;
        if !self.ending && is_requested {
            self.shut_down();
        }
    }

    /// Begins a graceful shutdown. The last GOAWAY follows a round trip later: until then requests may be on
    /// their way.
    fn shut_down(&mut self) {
        self.ending = true;
        self.timers.ending_since = self.worker.clock.ticks();
        let (codec, frames) = self.streams.protocol.parts();
        codec.shut_down(frames);
    }

    /// Whether the connection has to end after its open requests.
    fn is_shutdown_requested(&self) -> bool {
        self.worker.is_stopping() || self.listener.is_removed()
    }

    /// Returns the buffers to the pool for the time of a wait.
    fn release_buffers(&mut self) {
        self.input.release(&self.worker.buffers);
        self.streams.protocol.out.release(&self.worker.buffers);
    }

    /// Releases the tables, while no stream is open.
    fn shrink(&mut self) {
        self.streams.shrink();
        self.streams.protocol.shrink();
    }
}
