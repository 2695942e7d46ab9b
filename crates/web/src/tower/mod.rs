//! `tower` services in an [`App`](crate::App), and an `App` as a `tower` service.
//!
//! [`TowerMount`] puts any `tower::Service` of `http` messages, an axum `Router` for one, under a path:
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
//! It sees paths without that front part, as a nested `Router` does. Content is streamed both ways, held
//! back by whoever reads it more slowly. Each worker has a clone of its own, whose futures need not be
//! `Send`; what is mounted elsewhere costs other routes nothing. An upgrade, as to a WebSocket of axum, goes
//! through a connection in memory, since only hyper can make what axum takes it from.
//!
//! Where others serve, there are two ways for an `App` to be a service:
//!
//! - [`TowerApp`] answers on the thread that calls it, as a worker does. It is not `Send`, nor are its futures:
//!   it suits tests by `ServiceExt::oneshot`, and servers that stay on one thread, as hyper's
//!   `serve_connection` in a `LocalSet`. [`App`](crate::App) is such a service itself, for one call.
//! - [`SendApp`] hands requests to a thread of its own, and is `Clone + Send + Sync`: it can be a fallback or
//!   a nested service of an axum `Router`, or be given to `axum::serve`. That costs two changes of threads
//!   for each request.

mod app;
mod body;
mod message;
mod mount;
mod send_app;
mod upgrade;

pub use self::app::TowerApp;
pub use self::body::{LocalBody, SendBody};
pub use self::mount::{TowerMount, TowerService};
pub use self::send_app::SendApp;

/// What the errors of services and contents are made into.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
