//! Handlers of requests, their extractors and responses, and the middleware around them.

#![forbid(unsafe_code)]

mod body_limit;
mod client_info;
#[cfg(feature = "compress")]
mod compression;
pub mod error;
pub mod extract;
pub mod function;
mod http_error;
mod layered;
pub mod matched;
pub mod middleware;
pub mod multipart;
pub mod respond;
pub mod state;
mod websocket;

pub use body_limit::BodyLimit;
pub use client_info::{ClientInfo, ForwardedField, TrustedProxies};
pub use error::{Error, ErrorFormat, OrNotFound, Rendering};
pub use extract::{Extension, Form, FromRequest, FromRequestHead, Path, Query, Rejection, State};
pub use function::{BodyMarker, Handler, HandlerExt, LayeredHandler, LayeredMarker};
pub use http_error::HttpError;
pub use layered::Layered;
pub use matched::Matched;
pub use middleware::{Middleware, Next};
pub use respond::{
    FutureMarker, Html, IntoResponse, IntoResponseFuture, Json, Redirect, ResponseMarker,
    ServiceResponseMarker, Streaming,
};

/// The result of a handler that may fail; see [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
