//! The requests over the streams of one connection, which HTTP/2 and HTTP/3 share.
//!
//! The driver of a connection reads events and passes them on to [`RequestStreams`], which calls the service,
//! polls the streams that were woken, and sends the responses by means of a [`StreamProtocol`].

mod completion;
mod deadlines;
mod idle;
mod interim;
mod protocol;
mod request_body;
mod requests;
mod responses;
mod send;
mod table;

use std::rc::Rc;
use std::task::Context;
use std::time::Instant;

use apus_http::{ConnectionInfo, InterimQueue};
use apus_transport::{PollBudget, StreamWakers, UnreadBytes};

pub(crate) use self::completion::CompletionObservers;
pub(crate) use self::idle::IdlePeriod;
pub(crate) use self::protocol::{ResetReason, SlotKey, Stall, StreamProtocol};
use self::table::ServerStreams;
use crate::alt_svc::AltSvc;
use crate::connection_table::NEVER;
use crate::limits::Limits;
use crate::worker::{Worker, WorkerListener};

/// The requests over the streams of a connection.
pub(crate) struct RequestStreams<'a, P: StreamProtocol> {
    worker: &'a Worker,
    listener: &'a WorkerListener,
    /// The limits in force.
    pub(crate) limits: Rc<Limits>,
    /// The connection.
    pub(crate) info: Rc<ConnectionInfo>,
    /// Whether the client has shown that it receives at its address, so that what goes wrong is its fault.
    pub(crate) is_client_proven: bool,
    /// The offer of HTTP/3.
    alt_svc: AltSvc,
    /// The codec and its output.
    pub(crate) protocol: P,
    streams: ServerStreams<P::Key>,
    /// How many streams the client may open.
    stream_slots: usize,
    wakers: StreamWakers,
    /// The interim responses of services.
    interims: InterimQueue,
    /// The slots that are polled now; stored to reuse their memory.
    woken: Vec<usize>,
    /// Streams with a complete response whose request is not complete.
    unfinished: Vec<P::Key>,
    /// The streams among them whose clients still send, and since when.
    abandoned: Vec<(P::Key, u32)>,
    /// When the deadlines of the streams have to be checked.
    examine_at: u32,
    /// When something was read last.
    pub(crate) arrived: Instant,
    /// The requests so far.
    pub(crate) requests: u64,
    /// Whether a response demands that the connection ends.
    pub(crate) is_ended_by_response: bool,
    /// The bytes of bodies that were sent so far.
    sent: u64,
    /// What services have not read of the bodies of requests.
    pub(crate) unread: UnreadBytes,
    /// The work of the current poll.
    pub(crate) budget: PollBudget,
}

impl<'a, P: StreamProtocol> RequestStreams<'a, P> {
    /// No streams, of which the client may open `stream_slots`.
    pub(crate) fn new(
        (worker, listener): (&'a Worker, &'a WorkerListener),
        (info, alt_svc): (Rc<ConnectionInfo>, AltSvc),
        protocol: P,
        stream_slots: usize,
    ) -> Self {
        Self {
            worker,
            listener,
            limits: worker.limits(),
            info,
            is_client_proven: true,
            alt_svc,
            protocol,
            streams: ServerStreams::default(),
            stream_slots,
            wakers: StreamWakers::default(),
            interims: InterimQueue::default(),
            woken: Vec::new(),
            unfinished: Vec::new(),
            abandoned: Vec::new(),
            examine_at: NEVER,
            arrived: Instant::now(),
            requests: 0,
            is_ended_by_response: false,
            sent: 0,
            unread: UnreadBytes::default(),
            budget: PollBudget::default(),
        }
    }

    /// Prepares a poll of the connection's task.
    pub(crate) fn begin_poll(&mut self, cx: &mut Context<'_>) {
        self.wakers.bind(cx.waker());
        self.interims.watch(cx);
        // A reload may have changed them.
        self.limits = self.worker.limits();
        self.budget = PollBudget::default();
    }

    /// Releases the tables, while no stream is open.
    pub(crate) fn shrink(&mut self) {
        self.streams.shrink();
        self.wakers.shrink();
        self.woken = Vec::new();
        self.unfinished = Vec::new();
        self.abandoned = Vec::new();
    }
}
