//! Clients for the tests of an application, in process or over sockets.
//!
//! [`TestClient`] calls an application on the thread of the test, as a worker does, without sockets:
//!
//! ```
//! use apus::testing::TestClient;
//! use apus::{App, Json, Path};
//! use serde_json::json;
//!
//! let app = App::new()
//!     .get("/hello/{name}", async |Path(name): Path<String>| format!("Hello, {name}!"))
//!     .post("/sum", async |Json(numbers): Json<Vec<i64>>| Json(numbers.iter().sum::<i64>()));
//!
//! let client = TestClient::new(app);
//! client.get("/hello/you").send().assert_ok().assert_text("Hello, you!");
//! client.post("/sum").json(&[1, 2]).send().assert_ok().assert_json(json!(3));
//! client.post("/sum").body("?").send().assert_status(415);
//! ```
//!
//! [`TestServer`] serves it on a free port of the loopback interface, with real workers, and its
//! [`TestServer::client`] is used in the same way:
//!
//! ```
//! use apus::testing::TestServer;
//! use apus::{App, Peer};
//!
//! let server = TestServer::start(App::new().get("/", async |peer: Peer| peer.to_string()));
//! server.client().get("/").send().assert_ok().assert_contains("127.0.0.1:");
//! ```
//!
//! A client sends the cookies of its responses with later requests. [`TestResponse::chunk`] reads a body
//! piece by piece, so that streams can be tested, [`TestResponse::event`] reads the events of a stream, and
//! [`TestRequest::websocket`] opens a WebSocket connection.
//!
//! All errors and failed assertions are panics, which fail the test; so is a response that does not arrive
//! within 30 seconds. The types block, so they cannot be used in an `async` test.

mod client;
mod cookies;
mod events;
mod html;
mod pipe;
mod request;
mod response;
mod server;
#[cfg(feature = "websocket")]
mod socket;
mod transport;

pub use self::client::TestClient;
pub use self::events::TestEvent;
pub use self::request::TestRequest;
pub use self::response::TestResponse;
pub use self::server::TestServer;
#[cfg(feature = "websocket")]
pub use self::socket::TestSocket;

/// Fails the test.
#[expect(clippy::panic, reason = "so fails a test")]
#[track_caller]
fn fail(message: impl std::fmt::Display) -> ! {
    panic!("{message}")
}
