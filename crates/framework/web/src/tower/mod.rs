//! `tower` services in an [`App`](crate::App), and an `App` as a `tower` service.
//!
//! [`TowerMount`] mounts a `tower::Service` of `http` messages, for example an axum `Router`, under a path:
//!
//! ```
//! use apus::App;
//! use apus::testing::TestClient;
//! use apus::tower::TowerMount;
//! use axum::{Router, routing::get};
//!
//! let router = Router::new().route("/hello", get(async || "from axum"));
//! let app = App::new().mount("/axum", TowerMount::new(router));
//! TestClient::new(app).get("/axum/hello").send().assert_ok().assert_text("from axum");
//! ```
//!
//! The service gets paths without that prefix, as a nested `Router` does. Bodies are streamed in both
//! directions with back-pressure. Each worker has its own clone, whose futures need not be `Send`; other
//! routes are not affected. An upgrade, as to a WebSocket of axum, goes through an in-memory connection, since
//! axum takes it from a type that only hyper can make.
//!
//! An `App` can be a service of another server in two ways:
//!
//! - [`TowerApp`] runs on the thread of its caller, like a worker. The service and its futures are not `Send`:
//!   use it in tests by `ServiceExt::oneshot`, and in servers on one thread, as hyper's `serve_connection` in
//!   a `LocalSet`. [`App`](crate::App) is such a service itself, for one call.
//! - [`SendApp`] sends requests to its own thread, and is `Clone + Send + Sync`: it can be a fallback or a
//!   nested service of an axum `Router`, or an argument of `axum::serve`. Each request changes the thread
//!   twice.

mod app;
mod body;
mod message;
mod mount;
mod send_app;
mod service;
mod upgrade;

pub use self::app::TowerApp;
pub use self::body::{LocalBody, SendBody};
pub use self::mount::TowerMount;
pub use self::send_app::SendApp;
pub use self::service::TowerService;

/// The error type of services and bodies.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
