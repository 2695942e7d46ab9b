//! The QUIC protocol (RFC 9000, RFC 9001, RFC 9002) as a state machine without I/O.
//!
//! Nothing here opens a socket or sets a timer: datagrams and the time are passed in, and datagrams come out. Only tokens,
//! which outlive the process, take the time of the system. An
//! [`ProtocolEndpoint`] knows which connection a datagram belongs to, and responds to those of none. A [`Connection`] is the rest:
//! TLS by rustls, streams, loss detection and congestion control. Both belong to one thread.
//!
//! - A datagram goes to [`ProtocolEndpoint::handle`], which says what to do with it: to pass it to
//!   [`Connection::handle_datagram`], to send a response, or to decide on a new connection.
//! - After any input of a connection, its owner takes the outputs (see [`Connection`]).
//!
//! Versions 1 and 2 (RFC 9369) are spoken, with compatible version negotiation at the server (RFC 9368), path MTU discovery
//! (RFC 8899), ECN, and grease of the fixed bit (RFC 9287).

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
pub use statistics::{ConnectionStats, FrameStats, PathStats, UdpStats};
pub use stream_id::{Dir, Side, StreamId};
pub use streams::{ReadState, StreamEvent, StreamReadError, StreamWriteError};
pub use tls::{ServerOffer, StartTlsSession, TlsSession};
pub use token::TokenKey;
pub use version::QuicVersion;
