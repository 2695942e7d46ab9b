//! HTTP messages (RFC 9110), header fields with a grammar, and the trait [`Service`], without I/O, clocks and codecs.

#![forbid(unsafe_code)]
// A length that overflows breaks the framing of a message.
#![cfg_attr(not(test), warn(clippy::arithmetic_side_effects))]

mod authority;
mod body;
mod cache_bypass;
mod characters;
mod client;
mod connection;
mod development_hosts;
mod duplex;
mod encoded;
mod event_stream;
mod extensions;
mod field_section;
mod field_summary;
pub mod fields;
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
mod remote_user;
mod request;
mod request_id;
mod response;
pub mod response_head;
mod response_memory;
mod route_info;
mod scan;
mod service;
mod target;
pub mod trace;
pub mod trailers;
mod trusted_proxies;
pub mod url;

pub use apus_memfd::SealedMemory;
pub use authority::Authority;
pub use body::{Body, BodyError, BodyStream, FileRange, Frame, SharedBodyLimit};
pub use cache_bypass::CacheBypass;
pub use client::Client;
pub use connection::{ClientCertificate, ConnectionInfo, KeptValue, Peer, TlsInfo, TlsVersion};
pub use development_hosts::DevelopmentHosts;
pub use duplex::{Duplex, Tunnel};
pub use encoded::FieldCompression;
pub use event_stream::EventLines;
pub use extensions::Extensions;
pub use field_summary::FieldSummary;
pub use headers::{Headers, InvalidField};
pub use hop_by_hop::HopByHopFields;
pub use html::escape_html;
pub use identity::is_identity_field;
pub use interim::{Interim, InterimQueue};
pub use known_field::{FieldSet, KnownField};
pub use mount_prefix::{MountPrefix, mount_prefix};
pub use network::{InvalidNetwork, Network};
pub use remote_user::{RemoteUser, RemoteUserSlot};
pub use request::{Head, Request, RequestParts};
pub use request_id::RequestId;
pub use response::{Completion, Response, ResponseOrigin, ResponseOutcome};
pub use response_head::ResponseHead;
pub use response_memory::{ConnectionReservation, Reservation, ResponseMemory};
pub use route_info::RouteInfo;
pub use service::{ResponseFuture, Service, ServiceFactory, service_fn};
pub use target::{InvalidTarget, Target};
pub use trusted_proxies::{ForwardedField, TrustedProxies};

pub use http::{HeaderName, HeaderValue, Method, StatusCode, Version, header};
