//! Protocol codecs without I/O: they decode the bytes of a connection into messages and encode messages into bytes.
//!
//! No code in this crate does I/O, reads a clock or starts a thread. `apus-net` and `apus-client` drive the codecs
//! over connections.
//!
//! # Codecs
//!
//! - [`h1`]: HTTP/1.1 (RFC 9112). `request`, `response`, `framing` and `chunked` decode, `encode` writes the status
//!   line and the framing around field lines that already have their wire format; `server` and `client` are the two
//!   roles. An ambiguous request gets 400, and the connection is closed.
//! - [`h2`]: HTTP/2 (RFC 9113). `connection` turns frames into events, `flow` has the windows, `hpack` the header
//!   compression (RFC 7541), whose dynamic table is `field_compression::table`. A malformed message is an error of its
//!   stream, a malformed frame an error of the connection.
//! - [`messages`]: how requests and responses become field sections of HTTP/2 and HTTP/3, and the reverse.
//! - `request_kind`: which responses begin a tunnel, and which are final, in all versions.
//! - [`flood`]: budgets of HTTP/2 and HTTP/3 for events that only cost the server: resets (rapid reset,
//!   CVE-2023-44487), frames that must be acknowledged, frames without data, tiny windows. They are token buckets, and
//!   useful work refills them.
//! - [`schedule`] and [`priority`]: which stream sends next (RFC 9218), for HTTP/2 and HTTP/3.
//! - [`fastcgi`]: FastCGI with CGI parameters and the CGI header block (RFC 3875), in the role of a client.
//! - [`client_hello`]: fingerprints of TLS clients.
//! - [`proxy_protocol`]: the PROXY protocol, versions 1 and 2.
//!
//! # Decisions
//!
//! - **Codecs do no I/O.** They can be fuzzed, tested without sockets, and compared with hyper. Time is an argument.
//! - **One state machine serves both ends of HTTP/2.** A server and a client differ in who opens streams and which
//!   messages they read; frames, windows, compression and flood budgets are the same code, and the tests run the two
//!   ends against each other.
//! - **The HTTP/2 codec selects the stream, the engine sends its data.** The codec knows windows and priorities and
//!   holds no bodies; the engine holds the bodies and asks `next_send`. So the engine cannot send what a window does
//!   not allow.
//! - **Streams without a priority share the connection.** By RFC 9218 they would be sent one after another, and a large
//!   download would delay all requests after it. Only clients that ask for it are served in sequence.
//! - **HTTP/2 frames have at most 16 KiB** unless configured otherwise. Bodies are passed on as they arrive, so larger
//!   frames would save nothing and delay other streams.
//! - **The number of requests of a connection is not limited by default**, over HTTP/2 as over HTTP/1.1. A limit makes
//!   a busy client repeat the handshake, without a gain here; the key `h2_max_requests_per_conn` exists for balancing.
//!
//! # Tests
//!
//! `tests/it`: what counts as a valid request (`framing`), tables of the RFCs, properties, hyper and h2 as oracles, and
//! HTTP/2 in `h2`. The fuzz targets are in `fuzz`; `conformance/h2spec` runs h2spec.

#![forbid(unsafe_code)]
// Arithmetic that wraps around breaks framing.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

pub mod client_hello;
pub mod fastcgi;
pub mod field_compression;
pub mod flood;
pub mod h1;
pub mod h2;
pub mod messages;
pub mod priority;
pub mod proxy_protocol;
mod request_kind;
pub mod schedule;
pub mod stream_table;
