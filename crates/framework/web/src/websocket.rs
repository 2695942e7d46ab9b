//! WebSocket handlers and rooms, over HTTP/1.1 and HTTP/2 (RFC 6455, RFC 8441).
//!
//! ```
//! use apus::App;
//! use apus::websocket::{WebSocket, WebSocketUpgrade};
//!
//! async fn echo(mut socket: WebSocket) {
//!     while let Some(message) = socket.recv().await {
//!         if socket.send(message).await.is_err() {
//!             break;
//!         }
//!     }
//! }
//!
//! let app = App::new().get("/echo", async |upgrade: WebSocketUpgrade| upgrade.run(echo));
//! # app.check().unwrap();
//! ```
//!
//! A socket stays on the worker of its connection. Messages are read as fast as the handler takes them, and
//! [`Sender::send`] waits for a slow client. Pings and pongs are sent without the handler. The connection
//! is closed when the handler ends, and with 1001 when the server stops. [`Rooms`] reach the sockets of all
//! workers, and with the feature `redis`, by `Rooms::through_redis`, the sockets of other machines.

pub use apus_websocket::codec::{
    ByteString, Close, CloseCode, Compression, ConnectionClosed, InvalidHandshake, Message,
    PreparedMessage, WebSocketProtocolError,
};
pub use apus_websocket::{
    DisconnectReason, Receiver, Rooms, SendError, Sender, SlowReceivers, WebSocket,
    WebSocketOrigins, WebSocketSettings, WebSocketUpgrade,
};
