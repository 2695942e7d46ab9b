//! QUIC (RFC 9000, RFC 9001, RFC 9002) for the tasks of a worker: sockets, timers, connections and streams.
//!
//! The protocol is [`apus_quic_protocol`], which does no I/O, and the system calls are quinn-udp. This crate puts a loop
//! between them that fits a worker: one thread, tasks, no locks. It knows nothing of HTTP.
//!
//! - [`QuicWorkers`] exists once per process. It binds sockets ([`QuicWorkers::bind`]), and knows which endpoint each
//!   connection ID belongs to.
//! - Each worker makes a [`QuicEndpoint`] of each socket, spawns its [`EndpointTask`], and calls
//!   [`QuicEndpoint::accept`] in a loop.
//! - Each [`QuicConnection`] belongs to one task, which calls [`QuicConnection::poll_event`] until it is pending, and
//!   reads and writes streams in between.
//! - To end, a worker calls [`QuicEndpoint::stop`], lets the tasks finish their streams and close their connections,
//!   and waits for the [`EndpointTask`]; [`QuicEndpoint::close_all`] ends those that take too long.
//!
//! # Modules
//!
//! - `workers`, `steering`: the number of an endpoint is in every connection ID that it issues, scrambled. A program of
//!   the kernel gives each packet to the socket of that endpoint, whatever addresses it has; packets that reach another
//!   one are handed over.
//! - `task`, `endpoint`: an endpoint receives packets in batches, wakes the task of each connection once for a batch,
//!   and sends what they wrote after they have run.
//! - `receive`, `send`, `udp`: batches of datagrams (GRO, GSO, ECN). `half_open`, `memory`, `path_budget`: what clients
//!   may cost.
//! - `tls`: selects the certificate by the ClientHello, and accepts 0-RTT only with sessions that have state. `core`:
//!   the seam to apus-quic-protocol. `qlog`: files with the packets of connections, written by a thread of their own.
//!
//! # Decisions
//!
//! - **Settings of QUIC are tested on virtual time** (`simulation`): two ends with the settings of an endpoint, and a
//!   path with delay, a queue, loss, reordering and duplication between them. The goodput beside the theoretical bound
//!   is in `docs/http3.md`.
//! - **Unread data has a budget of the process** (`memory`), and half-open connections have shares of addresses
//!   (`half_open`). A window for each stream alone would let a client with many connections take all memory.
//!
//! # Tests
//!
//! `tests/it`: errors of peers with their codes (`conformance`), quinn at the other end (`interop`), and connections
//! over loopback. Those on virtual time are in `src/simulation`.

mod connection;
mod connection_id;
mod core;
mod counters;
mod descriptor;
mod endpoint;
mod endpoint_state;
mod events;
mod half_open;
mod keys;
mod memory;
mod path_budget;
mod qlog;
mod receive;
mod send;
mod settings;
#[cfg(test)]
mod simulation;
mod steering;
mod task;
mod timers;
mod tls;
mod udp;
mod work;
mod workers;

pub use apus_quic_protocol::{
    ConnectError, ConnectionStats, Dir, QuicVersion, Side, StreamEvent, StreamId,
};

pub use connection::QuicConnection;
pub use counters::QuicCounters;
pub use endpoint::QuicEndpoint;
pub use events::{QuicCloseReason, QuicEvent, StreamError, StreamRead};
pub use keys::{QuicKeys, QuicKeysError};
pub use settings::{CongestionControl, LARGEST_STREAM_RECEIVE_WINDOW, QuicSettings, RetryMode};
pub use task::EndpointTask;
pub use tls::{QuicClientTls, QuicHandshake, QuicServerTls, QuicTlsError, SelectServerTls};
pub use workers::{QuicSocket, QuicWorkers, Steering};
