//! WebSocket connections (RFC 6455, RFC 7692, RFC 8441): the codec, the sockets of a worker, and rooms of sockets.
//!
//! [`WebSocketUpgrade`] reads the handshake of a client. [`WebSocketUpgrade::run`] returns the response and
//! gives the handler a [`WebSocket`] that sends and receives messages. [`Rooms`] send messages to the sockets
//! of all workers. [`codec`] is the protocol without I/O.
//!
//! # Modules
//!
//! - [`codec`]: frames, messages, and compression (RFC 7692: `deflate`, `inflate`, `extension`). A message is inflated
//!   when it is complete.
//! - `upgrade`, `origin`: handshakes over HTTP/1.1, HTTP/2 and HTTP/3, and pages of other origins, which are rejected
//!   unless they are listed.
//! - `socket`, `driver`, `state`: the two halves of a socket, and the task that reads and writes it. `memory`: the
//!   budget of all sockets.
//! - `rooms`: messages to the sockets of a room. `worker_rooms` has the rooms of one worker, `process_rooms`
//!   joins all workers, and `redis` other machines.
//!
//! # Decisions
//!
//! - **This crate is on the shelf of the server**, not of the framework, because the proxy reads handshakes and PHP has
//!   sockets and rooms, too.
//! - **All sockets of a worker have one budget of memory.** When it is used up, the socket that holds most is closed
//!   with 1013, and the others go on.
//!
//! # Tests
//!
//! `tests/it`: the tables of the RFC, properties, tungstenite as the oracle. `conformance/autobahn` runs the Autobahn
//! suite.

#![forbid(unsafe_code)]

pub mod codec;
mod driver;
mod memory;
mod origin;
mod process_rooms;
#[cfg(feature = "redis")]
mod redis;
mod rooms;
mod settings;
mod socket;
mod state;
mod upgrade;
mod worker_rooms;

pub use self::origin::WebSocketOrigins;
pub use self::rooms::Rooms;
pub use self::settings::WebSocketSettings;
pub use self::socket::{Receiver, Sender, WebSocket};
pub use self::state::{DisconnectReason, SendError};
pub use self::upgrade::WebSocketUpgrade;
pub use apus_net::SlowReceivers;

pub use crate::codec::{
    ByteString, Close, CloseCode, Compression, ConnectionClosed, InvalidHandshake, Message,
    PreparedMessage, WebSocketProtocolError,
};
