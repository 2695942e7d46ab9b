//! The QUIC protocol (RFC 9000, RFC 9001, RFC 9002) as a state machine without I/O.
//!
//! Nothing here opens a socket or sets a timer: datagrams and the time are passed in, and datagrams come out. Only
//! tokens, which outlive the process, take the time of the system. An [`ProtocolEndpoint`] knows which connection a
//! datagram belongs to, and responds to a datagram that belongs to none. A [`Connection`] is the rest: TLS by rustls,
//! streams, loss detection and congestion control. Both belong to one thread.
//!
//! - A datagram goes to [`ProtocolEndpoint::handle`], which says what to do with it: to pass it to
//!   [`Connection::handle_datagram`], to send a response, or to decide on a new connection.
//! - After any input of a connection, its owner takes the outputs (see [`Connection`]).
//!
//! Versions 1 and 2 (RFC 9369) are spoken, with compatible version negotiation at the server (RFC 9368), path MTU
//! discovery (RFC 8899), ECN, and grease of the fixed bit (RFC 9287).
//!
//! # Modules
//!
//! - `endpoint`: datagrams to connections by their connection IDs, Retry, stateless resets, version negotiation.
//! - `connection`: the state machine of a connection. `receive` and `process` read packets, `transmit` and `write` make
//!   them, `timers` and `timeout` have the time, `migration` and `path` the addresses.
//! - `recovery`: sent packets, loss detection, round-trip times, congestion control (`congestion`), pacing, ECN, path
//!   MTU discovery.
//! - `streams`: send and receive buffers, flow control, and the order in which streams send (`schedule`).
//! - `assembler`, `range_set`: received data with gaps. `local_ids` and `remote_ids`: connection IDs that are issued
//!   and used.
//! - `observer`: the events of a connection for an observer, if it has one, such as the writer of a qlog file.
//! - `packet`, `frame`, `transport_parameters`, `token`, `varint`: wire formats. `tls`: the seam to rustls.
//!
//! # Decisions
//!
//! - **The QUIC protocol is our own.** With quinn-proto, 42% of the CPU time of a response of 100 KB over HTTP/3 was in
//!   it: about 1 us for each of 72 packets, in which it searched trees of sent packets, computed timers, and asked what
//!   to send. Here, sent packets are in a ring that is indexed by their numbers, and a packet with stream data
//!   allocates nothing; timers and the limits of congestion control are computed once for a run of packets;
//!   acknowledgements take time for what they newly acknowledge; streams are in dense tables; packets are decrypted
//!   where they were received. The seam is `ConnectionCore` and `EndpointState` of apus-quic: above it nothing changed.
//!   quinn is the oracle of the tests, as client and as server.
//! - **Streams of one priority are sent one after another**, each with what was written before its turn. To take turns
//!   packet by packet costs 25 to 35% more, and finishes no response earlier but the last.
//! - **Gaps in a stream are bounded by memory, not by their number**: what is received may take twice the bytes that it
//!   has, and 64 KiB. So neither lost packets of an upload through a full queue end its connection, nor can a client
//!   that sends every second byte take memory (RUSTSEC-2026-0185).
//! - **CUBIC is our own**, by RFC 9438. That of quinn-proto does not grow for a third of the time after every second
//!   loss, because its estimate of Reno begins below the window: with 0.1% of loss, downloads took 1.12 (20 ms) and
//!   1.14 (100 ms) of the time over HTTP/2.
//!
//! # Tests
//!
//! Unit tests stand at the end of each module. `tests/it` has two ends on virtual time by topic, over a network that loses,
//! delays, doubles and changes datagrams, with code of its own to read and to change their packets. Transfers with the
//! settings of an endpoint are in `crates/engine/quic/src/simulation`, errors of peers with their codes in
//! `crates/engine/quic/tests/it/conformance.rs`, and quinn as the oracle in `crates/engine/quic/tests/it/interop.rs`.

#![forbid(unsafe_code)]

mod assembler;
mod client_hello;
mod config;
mod connection;
mod connection_id;
mod datagram;
mod endpoint;
mod error;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod local_ids;
mod observer;
mod packet;
mod random;
mod range_set;
mod recovery;
mod remote_ids;
mod statistics;
mod stream_id;
mod streams;
mod tls;
mod token;
mod transport_parameters;
mod varint;
mod version;

pub use config::{
    ClientConfig, CongestionAlgorithm, EndpointConfig, ServerConfig, TokenStore, TransportConfig,
};
pub use connection::{Connection, ConnectionEvent, EndpointEvent, IssuedIds};
pub use connection_id::{ConnectionId, ConnectionIdGenerator};
pub use datagram::{DatagramSource, EcnCodepoint, Transmit};
pub use endpoint::{ConnectionHandle, DatagramEvent, IncomingConnection, ProtocolEndpoint};
pub use error::{ConnectError, ConnectionEnd, TransportError, TransportErrorCode};
pub use observer::{
    ConnectionObserver, DropReason, KeyUpdateReason, LossReason, ObservedEnd, ObservedEvent,
    ObservedFrame, ObservedPacket, ObservedParameters, RecoveryMetrics, StartObserver,
};
pub use packet::PacketKind;
pub use recovery::CongestionPhase;
pub use statistics::{ConnectionStats, FrameStats, PathStats, UdpStats};
pub use stream_id::{Dir, Side, StreamId};
pub use streams::{ReadState, StreamEvent, StreamReadError, StreamWriteError};
pub use tls::{ServerOffer, StartTlsSession, TlsSession};
pub use token::TokenKey;
pub use version::QuicVersion;
