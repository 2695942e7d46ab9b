//! Connections to origins, from the client's side.
//!
//! [`connect()`] opens a connection to an [`Origin`]. It returns [`OriginConnection::Http1`] or
//! [`OriginConnection::FastCgi`], which carry one request at a time, or [`OriginConnection::Multiplexed`], which
//! carries many. A pool that keeps connections for later requests is the [`ConnectionReturn`] of the former,
//! and clones the latter. This crate does not decide where a request goes, or whether it is sent again: a
//! [`RequestFailure`] has all that is needed for that.
//!
//! Connections stay on the thread of the worker that opened them, except [`ParkedFastCgi`].
//!
//! # Modules
//!
//! - `connect`, `origin`, `tls`: opens a connection to an origin, in clear text or under TLS, over TCP, a Unix socket
//!   or QUIC.
//! - `h1`: one request at a time. A small response takes one write and one read.
//! - `streams`, `h2`, `h3`: puts the request into the queue of a connection that others share. Its task opens a stream,
//!   sends the body as the windows of the origin allow, and passes the response to its reader. The requests are the
//!   same code for both protocols.
//! - `fcgi`: the same for an application over FastCGI, which gets CGI parameters and sends a CGI header block.
//! - `exchange`, `origin_exchange`: a request over an idle connection as one state machine.
//! - `url_client`: whole requests to URLs, for what is not of a client, such as certificate authorities.
//! - `failure`: why a request failed, in which phase, and whether it can be sent again.
//!
//! # Decisions
//!
//! - **A request and its connection to an origin stay on one worker.** Nothing needs to be `Send`, and a response wakes
//!   no other core. Idle FastCGI connections are the exception, because a process of PHP-FPM serves one connection
//!   until that is closed: [`ParkedFastCgi`] moves between workers.
//!
//! # Tests
//!
//! `tests/it`, against scripted origins: `framing`, `h2`, `h3`, `fastcgi`, `persistence`, `timeouts`, `tunnels`.

#![forbid(unsafe_code)]

mod connect;
mod connection_return;
mod deadline;
mod exchange;
mod failure;
mod fcgi;
mod h1;
mod h2;
#[cfg(feature = "http3")]
mod h3;
mod message;
mod origin;
mod origin_exchange;
mod streams;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "tls_off.rs"]
mod tls;
mod upload;
#[cfg(feature = "tls")]
mod url_client;

pub use self::connect::{OriginConnection, connect};
pub use self::connection_return::ConnectionReturn;
pub use self::failure::{FailureCause, RequestFailure, RequestPhase};
pub use self::fcgi::{FastCgiClient, ParkedFastCgi, SentRequest};
pub use self::h1::Http1Client;
pub use self::message::{
    ClientRequest, ClientRequestHead, ClientResponse, RequestTemplate, Stderr, Timeouts,
};
pub use self::origin::{Address, Origin, Protocol, ProxyHead, ResponseRules};
pub use self::origin_exchange::OriginExchange;
pub use self::streams::MultiplexedClient;
#[cfg(feature = "tls")]
pub use self::tls::{ClientTlsSettings, Tls};
#[cfg(feature = "tls")]
pub use self::url_client::{UrlClient, UrlRequest, UrlRequestError, UrlResponse};

pub(crate) use self::message::refuses_body;
