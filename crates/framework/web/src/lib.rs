//! The web framework of Apus.
//!
//! ```no_run
//! use apus::{App, Path};
//!
//! async fn hello(Path(name): Path<String>) -> String {
//!     format!("Hello, {name}!\n")
//! }
//!
//! fn main() -> Result<(), apus::StartError> {
//!     App::new().get("/hello/{name}", hello).serve("127.0.0.1:8080")
//! }
//! ```
//!
//! # Features
//!
//! None is on by default: a hello world needs none. `full` has all of them.
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `account` | tokens in links and cookies, remembered log-ins, rules of passwords |
//! | `acme` | certificates by ACME, for example of Let's Encrypt |
//! | `blocked-stacks` | under `apus dev`, where a handler is that blocks its worker |
//! | `cache` | a shared cache in front of a service |
//! | `compress` | compressed responses: gzip, Brotli, Zstandard |
//! | `files` | static files, and files by hashed names |
//! | `full` | everything |
//! | `i18n` | texts in several languages |
//! | `jobs` | background jobs and schedules |
//! | `jwt` | the layer for JSON Web Tokens |
//! | `macros` | attributes: `#[get("/users/{id}")]`, `#[handler]`, `#[http_error]` |
//! | `mail` | mails by SMTP, and their catch-all in development |
//! | `openapi` | a description of the routes, and a page that shows it |
//! | `password` | stored passwords |
//! | `php` | PHP, over FastCGI or resident |
//! | `proxy` | the reverse proxy |
//! | `rate-limit` | the layer for limits on the rate of requests |
//! | `redis` | sessions and rooms of WebSockets in Redis |
//! | `s3` | object stores that are compatible with S3, for `storage` |
//! | `settings` | settings from a TOML file, a .env file and the environment |
//! | `sites` | sites with server names and locations, as in `apus.toml` |
//! | `sql` | SQLite, PostgreSQL and MariaDB, with migrations |
//! | `storage` | files of an application, in a folder or an object store |
//! | `templates` | pages from templates |
//! | `tower` | services of the tower ecosystem in an `App`, and the reverse |
//! | `validate` | forms, queries and JSON whose fields have rules |
//! | `value-cache` | a cache of values, in memory or in Redis |
//!
//! # How a request is served
//!
//! 1. When a worker starts, `app::route_table` turns groups, hosts and nested applications into one router per host.
//!    Mistakes are reported with the line of source that made the route.
//! 2. `app::outermost` begins the span of the request, catches panics, and gives errors their form that have none yet.
//! 3. `app::service` passes every request through the layers of the application, before it is routed.
//! 4. `router` finds by host, path and method a route, a mount or a fallback.
//! 5. `app::service` passes the request through the layers of its groups, the outermost first, and of its handler.
//! 6. apus-handler makes the arguments of the handler, calls it, and turns its result into a response.
//!
//! # Where things are
//!
//! | subject | module |
//! | --- | --- |
//! | routes, groups, hooks, names | `app`, `router` |
//! | which group the error of a path belongs to | `app::service` (`errors`) |
//! | sessions (signed and encrypted cookies: `sealed`), flash messages | `session` |
//! | log-in by forms, CSRF tokens (`token`), requests of other sites (`origin`) | `auth`, `auth::csrf` |
//! | rules of fields, forms that are shown again | `validate` |
//! | templates, files by hashed names | `template`, `assets` |
//! | Server-Sent Events | `sse` |
//! | the description in OpenAPI (types: `describe`) | `openapi` |
//! | tests of applications | `testing` |
//! | services of tower | `tower` |
//! | listeners, background tasks, ACME, and what `apus status` shows | `server` |
//!
//! Accounts, databases, jobs, mail, settings, storage, texts and cached values are crates beside this one, which
//! re-exports them.
//!
//! # Decisions
//!
//! - **An application is a service like any other**, so it can stand beside files and a proxy in one program, and a
//!   site can contain it.
//! - **Layers run before routing or behind it, as they are added to the application or to a group**, so that a layer of
//!   a group costs other routes nothing.
//!
//! # Tests
//!
//! `tests/it`, by subject, in process and over sockets. Each store of sessions is tested by the contract in
//! `tests/it/session/stores.rs`.

#![forbid(unsafe_code)]
// docs.rs shows which feature an item needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod app;
#[cfg(feature = "files")]
pub mod assets;
#[cfg(feature = "macros")]
pub mod attributes;
pub mod auth;
#[cfg(feature = "cache")]
pub mod cached;
mod declared_errors;
#[cfg(doctest)]
mod guide;
pub mod layers;
#[cfg(feature = "openapi")]
pub mod openapi;
#[cfg(feature = "openapi")]
mod operation;
#[cfg(feature = "php")]
pub mod php;
mod router;
mod server;
mod server_service;
pub mod session;
pub mod sse;
#[cfg(feature = "templates")]
pub mod template;
pub mod testing;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "proxy")]
pub mod upstream;
#[cfg(feature = "validate")]
pub mod validate;
pub mod websocket;

#[cfg(feature = "account")]
pub use apus_account as account;
pub use apus_clock as time;
#[cfg(feature = "sql")]
pub use apus_database as sql;
#[cfg(feature = "files")]
pub use apus_files as files;
#[cfg(feature = "i18n")]
pub use apus_i18n as i18n;
#[cfg(feature = "jobs")]
pub use apus_jobs as jobs;
#[cfg(feature = "mail")]
pub use apus_mail as mail;
#[cfg(feature = "proxy")]
pub use apus_proxy as proxy;
#[cfg(feature = "redis")]
pub use apus_redis as redis;
#[cfg(feature = "settings")]
pub use apus_settings as settings;
#[cfg(feature = "sites")]
pub use apus_sites as sites;
#[cfg(feature = "storage")]
pub use apus_storage as storage;
#[cfg(feature = "value-cache")]
pub use apus_value_cache as cache;

pub use app::{App, UrlError, Urls};
#[cfg(feature = "compress")]
pub use apus_compress::CompressedFactory;
pub use apus_handler::error_page;
#[cfg(feature = "blocked-stacks")]
pub use apus_handler::report_blocked_stacks;
#[cfg(feature = "macros")]
pub use attributes::{delete, embedded, get, handler, http_error, patch, post, put, route, ws};
#[cfg(feature = "files")]
pub use files::Files;
pub use router::{RouteError, RouteErrors};
#[cfg(feature = "acme")]
pub use server::Acme;
pub use server::{Running, Server, StartError, StopHandle, Stopping};
pub use sse::Sse;
#[cfg(feature = "validate")]
pub use validate::Valid;
pub use websocket::{Rooms, WebSocket, WebSocketUpgrade};

pub use apus_handler::{
    BodyMarker, Created, Error, ErrorFormat, Extension, Form, FromRequest, FromRequestHead,
    FutureMarker, Handler, HandlerExt, Html, HttpError, IntoResponse, IntoResponseFuture, Json,
    Layered, LayeredHandler, LayeredMarker, Matched, Middleware, Next, OrNotFound, Path, Query,
    Redirect, Rejection, Rendering, ResponseMarker, Result, ServiceResponseMarker, State,
    Streaming, blocking, extract,
};
pub use apus_http::{
    Body, BodyError, BodyStream, Client, Completion, ConnectionInfo, FileRange, Frame, HeaderName,
    HeaderValue, Headers, Method, MountPrefix, Network, Peer, Request, Response, ResponseFuture,
    ResponseOutcome, RouteInfo, Service, ServiceFactory, StatusCode, Target, Version, header,
    mount_prefix, path, service_fn, trace,
};
pub use apus_layers::Readiness;
pub use apus_net::Limits;
pub use apus_transport::tls::Certificate;
pub use http::HeaderMap;
/// The tokio that workers and tasks run on: for timers, channels, sockets. Each worker has a runtime for
/// itself, on one thread, so `tokio::task::spawn_local` starts a task beside a request.
pub use tokio;
