//! The HTTP/3 driver of a connection (RFC 9114): one task for all its streams, without locks.
//!
//! QUIC ([`apus_quic`]) wakes the task once for all packets of a batch, and sends what it wrote when the tasks that were
//! woken have run. One poll handles all events of the connection, reads its streams, polls the requests that were
//! woken, and passes their responses to QUIC in the order of their priorities, until its windows are full.
//!
//! # Memory
//!
//! A connection holds at most `send_window` bytes that its client has not acknowledged, and as many as it sent and the
//! services have not read, up to `receive_window`. The body of a request is read from QUIC only when its service
//! reads it, so that the window of its stream closes. The rest of a response that QUIC does not take stays where it is.

mod endpoint;
mod input;
mod output;
mod protocol;
mod sockets;
mod timers;

use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use apus_h3::{H3Config, H3Connection, H3Error, H3ErrorCode};
use apus_h3_quic::{Http3Input, Http3Transport};
use apus_http::{ConnectionInfo, Peer, ResponseOutcome};
use apus_quic::QuicConnection;
pub(crate) use apus_quic::QuicSocket;
use apus_transport::{canonical, yield_to_events};
use bytes::Bytes;

use self::endpoint::EndpointListener;
pub(crate) use self::endpoint::Http3Endpoint;
use self::protocol::Http3Protocol;
pub(crate) use self::sockets::{
    Http3Sockets, NewSockets, bind_until_udp_is_free, needs_free_udp_port,
};
use self::timers::Http3Timers;
use crate::alt_svc::AltSvc;
use crate::connection_table::ConnectionSlot;
use crate::streams::RequestStreams;
use crate::worker::Worker;

/// The table with which clients may compress their field sections (RFC 9204 section 3.2.3): as large as in HTTP/2.
const DECODER_TABLE_BYTES: usize = 4096;

/// The table with which field sections of responses are compressed, if the client allows one. It takes memory as it fills.
const ENCODER_TABLE_BYTES: usize = 2048;

/// The most streams of a client that wait for inserts into that table.
// Each blocked stream holds its encoded section until the insert comes. Clients use few: losing one insert blocks all
// that refer to it.
const BLOCKED_STREAMS: usize = 16;

/// A connection that speaks HTTP/3.
struct Http3Connection<'a> {
    worker: &'a Worker,
    endpoint: &'a EndpointListener,
    slot: &'a ConnectionSlot,
    /// The requests, with the codec and QUIC.
    streams: RequestStreams<'a, Http3Protocol>,
    input: Http3Input,
    timers: Http3Timers,
    /// How long QUIC keeps a connection without packets.
    max_idle_timeout: Duration,
    /// The step of a graceful shutdown.
    ending: Http3Shutdown,
    /// The connection is over.
    closed: bool,
}

/// The steps of a graceful shutdown (RFC 9114 section 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Http3Shutdown {
    None,
    /// The first GOAWAY was sent, at this tick.
    Announced(u32),
    /// The last GOAWAY was sent, at this tick.
    Final(u32),
}

impl<'a> Http3Connection<'a> {
    fn new(
        worker: &'a Worker,
        endpoint: &'a EndpointListener,
        slot: &'a ConnectionSlot,
        (quic, info): (QuicConnection, ConnectionInfo),
    ) -> Self {
        worker.counters.h3_connections.add(1);
        let limits = worker.limits();
        let codec = H3Connection::server(H3Config {
            max_concurrent_streams: limits.h2_max_concurrent_streams,
            target_bytes: limits.target_bytes,
            head_bytes: limits.head_bytes,
            fields: limits.head_fields,
            extended_connect: true,
            decoder_table_bytes: DECODER_TABLE_BYTES,
            blocked_streams: BLOCKED_STREAMS,
            encoder_table_bytes: ENCODER_TABLE_BYTES,
        });
        let slots = usize::try_from(limits.h2_max_concurrent_streams).unwrap_or(1);
        let protocol = Http3Protocol::new(Http3Transport::new(codec, quic));
        let mut streams = RequestStreams::new(
            (worker, &endpoint.listener),
            (Rc::new(info), AltSvc::default()),
            protocol,
            slots,
        );
        // Until the handshake is complete, anybody can have sent the packets in the name of the client.
        streams.is_client_proven = false;
        Self {
            worker,
            endpoint,
            slot,
            streams,
            input: Http3Input::default(),
            timers: Http3Timers::new(worker.clock.ticks()),
            max_idle_timeout: endpoint.max_idle_timeout(),
            ending: Http3Shutdown::None,
            closed: false,
        }
    }

    /// Serves the connection to its end.
    async fn serve(&mut self) {
        poll_fn(|cx| self.poll(cx)).await;
        self.streams.drop_all_streams();
        self.streams
            .protocol
            .report_all(ResponseOutcome::ClientGone);
    }

    /// Polls the connection until there is no progress, or until its share of the worker is spent.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.slot.register(cx);
        self.streams.begin_poll(cx);
        self.advance_clock();
        if self.slot.is_expired() {
            self.handle_deadline();
        }
        loop {
            self.streams.budget.rounds += 1;
            self.shut_down_if_requested();
            let mut progress = self.poll_events(cx);
            progress |= self.read_streams();
            progress |= self.streams.poll_streams();
            progress |= self.streams.send_interims();
            self.streams.abandon_unfinished();
            progress |= self.fill();
            progress |= self.resume_inputs();
            self.close_if_finished();
            if self.closed {
                return Poll::Ready(());
            }
            if !progress {
                self.set_deadline();
                return Poll::Pending;
            }
            if self.streams.budget.is_spent() {
                self.set_deadline();
                yield_to_events(cx);
                return Poll::Pending;
            }
        }
    }

    /// Begins a graceful shutdown when the server, the listener or the limit of requests requires it.
    fn shut_down_if_requested(&mut self) {
        let limit = self.streams.limits.h2_requests_per_connection;
        let is_requested = self.is_shutdown_requested()
            || self.streams.is_ended_by_response
            || limit > 0 && self.streams.requests >= limit;
        if is_requested {
            self.shut_down();
        }
    }

    /// Begins a graceful shutdown. The last GOAWAY follows about a round trip later: until then requests may be on
    /// their way.
    fn shut_down(&mut self) {
        if self.ending == Http3Shutdown::None {
            let now = self.worker.clock.ticks();
            self.ending = Http3Shutdown::Announced(now);
            self.streams.protocol.transport.codec.shut_down();
        }
    }

    /// Whether the connection has to end after its open requests.
    fn is_shutdown_requested(&self) -> bool {
        self.worker.is_stopping() || self.endpoint.is_removed()
    }

    /// Takes the address of the client from QUIC: clients migrate (RFC 9000 section 9). A client that only writes another address
    /// into its packets keeps the one that it has shown to be its own, so that it does nothing in the name of others.
    fn update_address(&mut self) {
        let quic = &self.streams.protocol.transport.quic;
        let current = Peer::Ip(canonical(quic.remote_address()));
        if self.streams.info.peer != current && quic.is_address_validated() {
            let mut info = ConnectionInfo::clone(&self.streams.info);
            info.peer = current;
            self.streams.info = Rc::new(info);
        }
    }

    /// Closes the connection when its shutdown is complete and the client has all responses.
    fn close_if_finished(&mut self) {
        let transport = &self.streams.protocol.transport;
        if !self.closed && transport.codec.is_finished() && transport.is_acknowledged() {
            self.close(H3ErrorCode::NO_ERROR, "");
        }
    }

    /// Ends the connection of a client that broke the protocol or spent a budget.
    fn fail(&mut self, error: H3Error) {
        self.streams.count_fault(match error {
            H3Error::Flood(flood) => Some(flood),
            _ => None,
        });
        tracing::debug!(peer = %self.streams.info.peer, %error, "closed an HTTP/3 connection");
        self.close(error.code(), &error.to_string());
    }

    fn close(&mut self, code: H3ErrorCode, reason: &str) {
        if !std::mem::replace(&mut self.closed, true) {
            let reason = Bytes::copy_from_slice(reason.as_bytes());
            self.streams.protocol.transport.quic.close(code.0, reason);
        }
    }
}
