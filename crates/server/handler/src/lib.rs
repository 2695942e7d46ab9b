//! Handlers of requests, their extractors and responses, and the middleware around them.
//!
//! # How a function becomes a service
//!
//! 1. [`extract`] makes the arguments of the handler from the request, or responds with the reason why they cannot be
//!    made. `extract::multipart` and [`multipart`] read uploads.
//! 2. [`function`] calls the handler. A handler that is not `async` costs no future.
//! 3. [`respond`] turns its result into a response, and `into_response_future` one that comes later; [`error`] and
//!    [`rendering`] turn errors into the media type that the client accepts. `error_page` is the default body of an error: a page, problem details (RFC 9457), or text.
//!
//! [`middleware`] has the trait `Middleware`, `Next` (the rest of the request's path behind a layer), `Chain` and
//! `Layer`; `layered` is a layer around any service. A chain is the layers, and the service or handler behind them,
//! that `Next` continues with. [`gate`] has layers that need no `Next`.
//!
//! `route_check` is what `App::check` asks extractors and layers; [`requirement`] and [`arguments`] make the messages
//! of the compiler. `blocking` logs handlers that block their worker, and moves work to other threads. `request_span`
//! begins the span of a request.
//!
//! # Decisions
//!
//! - **Handlers and layers are on the shelf of the server**, because a location in `apus.toml` and an application use
//!   the same ones.
//! - **Errors become responses in one place** (`rendering`), so that an application selects their form once, also for
//!   unknown paths, panics and what layers reject.
//!
//! # Tests
//!
//! `tests/it`: extractors and responses, called without a framework and over sockets; the layers share the harness.
//! Programs that do not compile are in `crates/framework/web/tests/it/app/attributes`, with the errors of the compiler;
//! errors and their form in `crates/framework/web/tests/it/app/error_form.rs`, checks in
//! `crates/framework/web/tests/it/app/check.rs`, and what extractors need of an application in
//! `crates/framework/web/tests/it/extract`.

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
pub mod gate;
mod handler_service;
mod http_error;
mod into_response_future;
mod layered;
pub mod matched;
pub mod middleware;
pub mod multipart;
pub mod panic;
pub mod rendering;
mod request_span;
#[doc(hidden)]
pub mod requirement;
pub mod respond;
mod route_check;
pub mod state;
#[cfg(feature = "websocket")]
mod websocket;

pub use arguments::BodyMarker;
#[cfg(feature = "blocked-stacks")]
pub use blocking::report_blocked_stacks;
pub use blocking::{HandlerPlace, blocking};
pub use body_limit::BodyLimit;
pub use client_info::{ClientInfo, ForwardedField, TrustedProxies};
pub use error::{Error, ErrorFormat, ErrorTemplate, OrNotFound};
pub use error_page::error_page;
pub use extract::{Extension, Form, FromRequest, FromRequestHead, Path, Query, Rejection, State};
pub use function::{Handler, HandlerExt, LayeredHandler, LayeredMarker};
pub use handler_service::HandlerService;
pub use http_error::{HttpError, HttpErrorType};
pub use into_response_future::{
    FutureMarker, IntoResponseFuture, ResponseMarker, ServiceResponseMarker,
};
pub use layered::Layered;
pub use matched::Matched;
pub use middleware::{Middleware, Next};
pub use panic::PanicError;
pub use rendering::Rendering;
pub use request_span::RequestSpan;
pub use respond::{Created, Html, IntoResponse, Json, Redirect, Streaming};
pub use route_check::RouteCheck;

/// The result of a handler that may fail; see [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;
