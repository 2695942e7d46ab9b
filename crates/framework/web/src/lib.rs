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
//! Those that are said to be are on by default: what an application that faces clients needs. `full` has all of them. An
//! application that needs little, for example behind a proxy that does TLS, builds in a fraction of the time without them:
//!
//! ```toml
//! apus = { version = "0.1", default-features = false, features = ["macros", "templates"] }
//! ```
//!
//! | feature | what it adds |
//! | --- | --- |
//! | `account` | tokens in links and cookies, remembered log-ins, rules of passwords |
//! | `acme` | certificates by ACME, for example of Let's Encrypt |
//! | `auth` | by default: sessions, CSRF tokens, and the layers of authentication: Basic, tokens, signed links |
//! | `blocked-stacks` | under `apus dev`, where a handler is that blocks its worker |
//! | `bots` | the layer for bots that prove who they are, by signatures or by DNS |
//! | `cache` | a shared cache in front of a service |
//! | `compress` | by default: compressed responses: gzip, Brotli, Zstandard |
//! | `control` | by default: a control socket, for `apus status` and `apus stop` |
//! | `cookies` | by default: the extractor for cookies, which also sets them |
//! | `etag` | by default: the layer for entity tags |
//! | `files` | static files, and files by hashed names; compressed with `compress` |
//! | `full` | everything |
//! | `http3` | by default: HTTP/3 over QUIC, with `tls` |
//! | `i18n` | texts in several languages |
//! | `idna` | by default: hosts with names in other scripts than ASCII |
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
//! | `regex` | by default: regular expressions in paths of routes and names of hosts; rules for files by patterns of paths |
//! | `s3` | object stores that are compatible with S3, for `storage` |
//! | `settings` | settings from a TOML file, a .env file and the environment |
//! | `sites` | sites with server names and locations, as in `apus.toml` |
//! | `sql` | SQLite, PostgreSQL and MariaDB, with migrations |
//! | `storage` | files of an application, in a folder or an object store |
//! | `templates` | pages from templates |
//! | `tls` | by default: TLS: HTTPS |
//! | `tower` | services of the tower ecosystem in an `App`, and the reverse |
//! | `validate` | forms, queries and JSON whose fields have rules |
//! | `value-cache` | a cache of values, in memory or in Redis |
//! | `websocket` | by default: handlers and rooms of WebSockets |
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
#[cfg(feature = "auth")]
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
#[cfg(feature = "auth")]
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
#[cfg(feature = "websocket")]
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
#[cfg(all(feature = "macros", feature = "websocket"))]
pub use attributes::ws;
#[cfg(feature = "macros")]
pub use attributes::{delete, embedded, get, handler, http_error, patch, post, put, route};
#[cfg(feature = "files")]
pub use files::Files;
pub use router::{RouteError, RouteErrors};
#[cfg(feature = "acme")]
pub use server::Acme;
pub use server::{Running, Server, StartError, StopHandle, Stopping};
pub use sse::Sse;
#[cfg(feature = "validate")]
pub use validate::Valid;
#[cfg(feature = "websocket")]
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
#[cfg(feature = "tls")]
pub use apus_transport::tls::Certificate;
pub use http::HeaderMap;
/// The tokio that workers and tasks run on: for timers, channels, sockets. Each worker has a runtime for
/// itself, on one thread, so `tokio::task::spawn_local` starts a task beside a request.
pub use tokio;
