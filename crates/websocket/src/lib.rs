//! WebSocket connections (RFC 6455, RFC 7692, RFC 8441): the codec, the sockets of a worker, and rooms of sockets.
//!
//! [`WebSocketUpgrade`] reads the handshake of a client. [`WebSocketUpgrade::run`] makes the response, after
//! which a handler has a [`WebSocket`] to send and to receive messages. [`Rooms`] reach the sockets of all
//! workers. [`codec`] has the protocol alone, without I/O.

#![forbid(unsafe_code)]

pub mod codec;
mod driver;
mod origin;
#[cfg(feature = "redis")]
mod redis;
mod rooms;
mod settings;
mod socket;
mod state;
mod upgrade;

pub use self::origin::Origins;
pub use self::rooms::{Rooms, SlowReceivers};
pub use self::settings::WebSocketSettings;
pub use self::socket::{Receiver, SendError, Sender, WebSocket};
pub use self::state::Ended;
pub use self::upgrade::WebSocketUpgrade;

pub use crate::codec::{
    ByteString, Close, CloseCode, Closed, Compression, InvalidHandshake, Message, Prepared,
    ProtocolError,
};
