//! The limits and timeouts of a WebSocket.

use std::time::Duration;

use crate::codec::Compression;

/// The limits, timeouts and compression of a socket.
#[derive(Clone, Debug)]
pub struct WebSocketSettings {
    /// The maximum length of a received message in bytes, after decompression. A longer one closes the
    /// connection with 1009.
    pub max_message: usize,
    /// The time in which a message of the client has to be complete. A longer message may take as long as its
    /// bytes need at the least rate of request bodies, `client_body_rate` of `apus.toml`.
    pub message_timeout: Duration,
    /// The number of unsent bytes from which on [`super::Sender::send`] waits, and rooms treat the receiver
    /// as slow.
    pub send_buffer: usize,
    /// The time without input after which a client is sent a ping; `None` sends no pings.
    pub ping_interval: Option<Duration>,
    /// The time without input, not even a pong, after which a connection is closed.
    pub idle_timeout: Duration,
    /// The time that a client has to respond to a close.
    pub close_timeout: Duration,
    /// Compression, if the client supports it; `None` disables it.
    pub compression: Option<Compression>,
}

impl Default for WebSocketSettings {
    /// Messages of 1 MiB within 60 seconds, a send buffer of 256 KiB, a ping after 30 seconds without input and the end after
    /// 75, 5 seconds to close, compression without context takeover.
    fn default() -> Self {
        Self {
            max_message: 1 << 20,
            message_timeout: Duration::from_secs(60),
            send_buffer: 256 << 10,
            ping_interval: Some(Duration::from_secs(30)),
            idle_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(5),
            compression: Some(Compression::default()),
        }
    }
}
