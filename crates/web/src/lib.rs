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
pub mod assets;
pub mod cached;
mod compress;
mod error_pages;
mod extract;
pub mod files;
mod handler;
mod media_type;
mod middleware;
pub mod path;
pub mod php;
pub mod proxy;
#[cfg(any(feature = "redis", feature = "sql"))]
mod per_worker;
mod respond;
mod router;
pub mod session;
pub mod sites;
#[cfg(feature = "templates")]
pub mod template;
pub mod testing;
#[cfg(feature = "sql")]
pub mod sql;
pub mod trace;
pub mod websocket;

pub use app::App;
pub use compress::Compressed;
pub use error_pages::error_page;
pub use extract::{
    Extension, Form, FromRequest, FromRequestHead, Matched, Path, Query, Rejection, State,
};
pub use files::Files;
pub use handler::{Handler, ReadsContent};
pub use middleware::{Middleware, Next};
pub use respond::{
    AtOnce, Awaited, Error, Html, IntoAnswer, IntoResponse, Json, Redirect, Streaming,
};
pub use router::RouteError;
pub use websocket::{Rooms, WebSocket, WebSocketUpgrade};

pub use apus_http::{
    Answer, Body, BodyError, BodyStream, Completion, ConnectionInfo, FileRange, Frame, HeaderName,
    HeaderValue, Headers, Method, Outcome, Peer, Request, Response, Service, ServiceFactory,
    StatusCode, Target, Version, header, service_fn,
};
pub use http::HeaderMap;

/// What a handler returns that may fail; see [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
