//! Handlers of requests, their extractors and responses, and the middleware around them.

#![forbid(unsafe_code)]

pub mod arguments;
mod blocking;
mod body_limit;
mod client_info;
#[cfg(feature = "compress")]
mod compression;
pub mod error;
pub mod error_page;
pub mod extract;
pub mod function;
mod http_error;
mod layered;
pub mod matched;
pub mod middleware;
pub mod multipart;
mod panic;
pub mod rendering;
mod request_span;
#[doc(hidden)]
pub mod requirement;
pub mod respond;
mod route_check;
pub mod state;
mod websocket;

pub use arguments::BodyMarker;
#[cfg(feature = "blocked-stacks")]
pub use blocking::report_blocked_stacks;
pub use blocking::{HandlerPlace, blocking};
pub use body_limit::BodyLimit;
pub use client_info::{ClientInfo, ForwardedField, TrustedProxies};
pub use error::{Error, ErrorFormat, OrNotFound};
pub use error_page::error_page;
pub use extract::{Extension, Form, FromRequest, FromRequestHead, Path, Query, Rejection, State};
pub use function::{Handler, HandlerExt, LayeredHandler, LayeredMarker};
pub use http_error::{HttpError, HttpErrorType};
pub use layered::Layered;
pub use matched::Matched;
pub use middleware::{Middleware, Next};
pub use panic::PanicError;
pub use rendering::Rendering;
pub use request_span::RequestSpan;
pub use respond::{
    Created, FutureMarker, Html, IntoResponse, IntoResponseFuture, Json, Redirect, ResponseMarker,
    ServiceResponseMarker, Streaming,
};
pub use route_check::RouteCheck;

/// The result of a handler that may fail; see [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
