//! The client's side of connections: to the origins that a proxy asks.
//!
//! [`connect()`] opens a connection to an [`Origin`]; what it gives is [`Connection::Http1`] or
//! [`Connection::FastCgi`], which carry one request at a time, or [`Connection::Http2`], which carries
//! many. Whoever keeps connections for later requests, such as a pool, is the [`Home`] of the former
//! and clones the latter. Nothing here decides where a request goes, or whether it is sent again: a [`Failure`]
//! tells all that is needed for that.
//!
//! Everything stays on the thread of the worker that opened it, but for [`ParkedFastCgi`].

mod connect;
mod deadline;
mod exchange;
mod failure;
mod fcgi;
mod h1;
mod h2;
mod home;
mod message;
mod origin;
mod tls;
mod upload;

pub use self::connect::{Connection, connect};
pub use self::failure::{Cause, Failure, Phase};
pub use self::fcgi::{FastCgi, ParkedFastCgi};
pub use self::h1::Http1;
pub use self::h2::Http2;
pub use self::home::Home;
pub use self::message::{ClientRequest, ClientResponse, RequestHead, Stderr, Timeouts};
pub use self::origin::{Address, Origin, Protocol, ProxyHead};
pub use self::tls::{Tls, TlsSettings};
