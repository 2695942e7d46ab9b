//! WebSocket connections (RFC 6455, RFC 7692, RFC 8441): the codec, the sockets of a worker, and rooms of sockets.
//!
//! [`WebSocketUpgrade`] reads the handshake of a client. [`WebSocketUpgrade::run`] returns the response and
//! gives the handler a [`WebSocket`] that sends and receives messages. [`Rooms`] send messages to the sockets
//! of all workers. [`codec`] is the protocol without I/O.

#![forbid(unsafe_code)]

pub mod codec;
mod driver;
mod memory;
mod origin;
#[cfg(feature = "redis")]
mod redis;
mod rooms;
mod settings;
mod socket;
mod state;
mod upgrade;

pub use self::origin::WebSocketOrigins;
pub use self::rooms::{Rooms, SlowReceivers};
pub use self::settings::WebSocketSettings;
pub use self::socket::{Receiver, Sender, WebSocket};
pub use self::state::{DisconnectReason, SendError};
pub use self::upgrade::WebSocketUpgrade;

pub use crate::codec::{
    ByteString, Close, CloseCode, Compression, ConnectionClosed, InvalidHandshake, Message,
    PreparedMessage, WebSocketProtocolError,
};
