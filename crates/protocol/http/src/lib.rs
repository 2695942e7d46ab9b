//! HTTP messages (RFC 9110), header fields with a grammar, and the trait [`Service`], without I/O, clocks and codecs.
//!
//! # Messages and services
//!
//! A codec makes a [`Request`], a [`Service`] takes it and returns a [`ResponseFuture`], and a codec encodes the
//! [`Response`]. Everything that this crate needs of I/O is behind [`Body`].
//!
//! - `headers`, `field_section`, `scan`, `known_field`, `encoded`: the field lines of a message, and how they are found
//!   and encoded.
//! - `fields`: fields with a grammar, such as preconditions (`conditional`), ranges (`range`), `Accept` and cookies. A
//!   new field is parsed and written here.
//! - `request`, `target`, `path`, `percent`, `authority`, `trusted_proxies`, `client`, `identity`, `hop_by_hop`: the facts of a
//!   request, which are established once.
//! - `response`, `completion`: a response, and who is told of its end.
//! - `body`, `response_memory`: what a message carries, and the memory that clients can make the server use for it.
//! - `trace`: the steps of a decision, which `apus explain` shows. Each service that decides something adds its own.
//! - `request_record`, `request_records`: what happened to the last requests, which `apus explain --id` shows. The same services add to it.
//! - `service`, `interim`, `duplex`, `trailers`: the interface between the engine and services.
//!
//! # Decisions
//!
//! - **A service returns `ResponseFuture::{Now, Later}`** instead of being an `async fn`. The signature is `fn
//!   call(&self, Request) -> ResponseFuture`. An `async fn` in a trait object costs a heap-allocated future for each
//!   layer and each request. Most responses of a file server exist at once and cost none. Handlers of the framework are
//!   plain `async fn`s.
//! - **The facts of a request are established once**: the client, the scheme, authority and port, the normalised path,
//!   whether there is a body. The codecs remove the hop-by-hop fields and those that `Connection` names (`hop_by_hop`).
//!   The sites of a listener, or the layer `TrustedProxies` of an application, accept the client's address from trusted
//!   proxies, and remove the fields by which a client could claim another one (`identity`). Everything else reads
//!   [`Request`], and derives none of this again.
//! - **The format of errors is a value of one byte** (`error_format`). Who responds to an error rarely has the request any
//!   more: sites, handlers and layers each kept a copy of `Accept` on the heap, for each request. Now `Accept` is read
//!   when the first of them asks, and the others copy the byte.
//! - **The path is normalised once** (`path`). Locations, rules, files and the keys of caches use this form. Origins
//!   get it in the encoding of the client, or the path as it was sent (`PathForm` of apus-proxy).
//! - **The port of a request is the port of its authority**, or the default of the scheme, and not the port of the
//!   socket. Links need that port, and origins learn nothing that the cache key does not have.
//! - **Field lines are stored in the wire format of HTTP/1.1**, in one buffer with an index (`headers`). Writing a
//!   header section is a copy of the buffer, and no line can contain CR or LF. [`Headers`] is as large as a pointer,
//!   since messages move through many functions. `scan` finds the ends of names and values 16 bytes at a time, and
//!   `known_field` numbers the fields that are looked for in most messages. Cache and responses share them by `Rc`, so
//!   a hit copies nothing unless it changes a field.
//! - **[`Body`] is an enum that the engine can match on**: empty, bytes, sealed memory, a file range, a stream. So a
//!   file is sent by `sendfile`, and a cached response by one write.
//! - **Memory that clients could multiply has one budget** (`response_memory`). A compressor takes a hundred times the
//!   memory of its stream, and clients decide how many there are. Two atomic operations per compressor cost little; a
//!   share for each worker would leave most of the budget unused.
//! - **The record of a request has facts, and no text** (`request_record`): copies of numbers, references to names, and what the client sent up
//!   to a bound. It is in a ring of its worker, and the request and its copies have the number of it, so that no service allocates for it and
//!   a late event of a request that is forgotten goes nowhere. The end of a response needs no closure: it is found by the number in
//!   [`ResponseKey`].
//! - **[`Interim`] is a queue, not a future.** A service sends a 103 and continues; the engine writes it at its next
//!   poll.
//!
//! # Tests
//!
//! Unit tests and the tables of the RFCs stand at the end of each module. The facts of a request are tested from
//! outside in `crates/tools/cli/tests/it/server/request_facts.rs`, with a row for each.

#![forbid(unsafe_code)]
// A length that overflows breaks the framing of a message.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod authority;
mod body;
mod byte_vector;
mod cache_bypass;
mod characters;
mod client;
mod completion;
mod connection;
mod development_hosts;
mod duplex;
mod encoded;
mod error_format;
mod event_stream;
mod extensions;
mod field_section;
mod field_summary;
pub mod fields;
mod glitch;
pub mod grammar;
mod headers;
pub mod hop_by_hop;
mod html;
mod identity;
mod interim;
mod known_field;
pub mod list;
mod mount_prefix;
mod network;
pub mod origin;
pub mod path;
pub mod percent;
mod remote_user;
mod request;
mod request_id;
mod request_record;
mod request_records;
mod request_trace;
mod response;
pub mod response_head;
mod response_memory;
mod route_info;
mod rule_choice;
mod scan;
mod server_load;
mod service;
mod target;
mod tls_fingerprints;
pub mod trace;
mod trace_context;
pub mod trailers;
mod trusted_proxies;
pub mod url;

pub use apus_memfd::SealedMemory;
pub use authority::Authority;
pub use body::{Body, BodyError, BodyStream, FileRange, Frame, SharedBodyLimit};
pub use cache_bypass::{CacheBypass, NotCached};
pub use client::Client;
pub use completion::{
    Completion, ResponseCount, ResponseCounter, ResponseKey, ResponseObserver, ResponseObservers,
    ResponseOrigin, ResponseOutcome, SharedResponseCounter,
};
pub use connection::{ClientCertificate, ConnectionInfo, KeptValue, Peer, TlsInfo, TlsVersion};
pub use development_hosts::DevelopmentHosts;
pub use duplex::{Duplex, Tunnel};
pub use encoded::FieldCompression;
pub use error_format::ErrorFormat;
pub use event_stream::EventLines;
pub use extensions::Extensions;
pub use field_summary::FieldSummary;
pub use glitch::{ClientGlitches, Glitch};
pub use headers::{Headers, InvalidField};
pub use hop_by_hop::HopByHopFields;
pub use html::escape_html;
pub use identity::is_identity_field;
pub use interim::{Interim, InterimQueue, is_interim};
pub use known_field::{FieldSet, KnownField};
pub use mount_prefix::{MountPrefix, mount_prefix};
pub use network::{InvalidNetwork, Network};
pub use remote_user::{RemoteUser, RemoteUserSlot, VerifiedClaims};
pub use request::{Head, Request, RequestParts};
pub use request_id::RequestId;
pub use request_record::{
    OriginAttempt, OriginResult, RecordedEnd, RecordedLocation, RecordedSite, RequestEvent,
    RequestRecord, RequestReport,
};
pub use request_records::{RecordCursor, RequestRecorder, RequestRecords};
pub use request_trace::{EndedRequest, RequestTrace, TraceSampling};
pub use response::Response;
pub use response_head::ResponseHead;
pub use response_memory::{ConnectionReservation, Reservation, ResponseMemory};
pub use route_info::RouteInfo;
pub use rule_choice::RuleChoice;
pub use server_load::ServerLoad;
pub use service::{ResponseFuture, Service, ServiceFactory, service_fn};
pub use target::{InvalidTarget, Target};
pub use tls_fingerprints::TlsFingerprints;
pub use trace_context::TraceContext;
pub use trusted_proxies::{ForwardedField, TrustedProxies};

pub use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
