//! The web framework of Apus: what an application is written with, and the services that the server
//! is made of.
//!
//! ```no_run
//! use apus::{App, Path};
//!
//! async fn hello(Path(name): Path<String>) -> String {
//!     format!("Hello, {name}!\n")
//! }
//!
//! fn main() -> std::io::Result<()> {
//!     App::new().get("/hello/{name}", hello).serve("127.0.0.1:8080")
//! }
//! ```

#![forbid(unsafe_code)]

mod app;
#[cfg(feature = "files")]
pub mod assets;
#[cfg(feature = "macros")]
pub mod attributes;
pub mod auth;
#[cfg(feature = "cache")]
pub mod cached;
mod error;
pub mod extract;
#[cfg(doctest)]
mod guide;
mod handler;
mod http_error;
pub mod layers;
mod middleware;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(any(feature = "redis", feature = "sql"))]
mod per_worker;
#[cfg(feature = "php")]
pub mod php;
mod respond;
mod router;
mod served;
mod server;
pub mod session;
#[cfg(feature = "sql")]
pub mod sql;
pub mod sse;
#[cfg(feature = "templates")]
pub mod template;
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "proxy")]
pub mod upstream;
pub mod websocket;

#[cfg(feature = "files")]
pub use apus_files as files;
#[cfg(feature = "proxy")]
pub use apus_proxy as proxy;
#[cfg(feature = "sites")]
pub use apus_sites as sites;

pub use app::{App, UrlError, Urls};
#[cfg(feature = "compress")]
pub use apus_compress::Compressed;
pub use apus_error_page::error_page;
#[cfg(feature = "macros")]
pub use attributes::{delete, embedded, get, patch, post, put, route, ws};
pub use error::{Error, ErrorFormat, OrNotFound, Rendering};
pub use extract::{
    Extension, Form, FromRequest, FromRequestHead, Matched, Path, Query, Rejection, State,
};
#[cfg(feature = "files")]
pub use files::Files;
pub use handler::{Handler, HandlerExt, ReadsContent, Surrounded, With};
pub use http_error::HttpError;
pub use middleware::{Middleware, Next};
pub use respond::{
    AtOnce, Awaited, Html, IntoAnswer, IntoResponse, Json, PassedOn, Redirect, Streaming,
};
pub use router::{RouteError, RouteErrors};
pub use server::{Running, Server, StopHandle, Stopping};
pub use sse::Sse;
pub use websocket::{Rooms, WebSocket, WebSocketUpgrade};

pub use apus_http::{
    Answer, Body, BodyError, BodyStream, Client, Completion, ConnectionInfo, FileRange, Frame,
    HeaderName, HeaderValue, Headers, Method, MountedAt, Network, Outcome, Peer, Request, Response,
    RouteInfo, Service, ServiceFactory, StatusCode, Target, Version, header, mounted_at, path,
    service_fn, trace,
};
pub use apus_net::Limits;
pub use apus_net::tls::Certificate;
pub use http::HeaderMap;
/// The tokio that workers and tasks run on: for timers, channels, sockets. Each worker has a runtime for
/// itself, on one thread, so that `tokio::task::spawn_local` is what starts a task beside a request.
pub use tokio;

/// What a handler returns that may fail; see [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
