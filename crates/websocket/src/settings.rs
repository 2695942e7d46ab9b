//! What a socket is bound by.

use std::time::Duration;

use crate::codec::Compression;

/// How long the messages of a socket may be, how long it may be quiet, what waits for it.
#[derive(Clone, Debug)]
pub struct WebSocketSettings {
    /// Bytes of a message that is received, decompressed. Longer ones close the connection with 1009.
    pub max_message: usize,
    /// Bytes that wait to be sent, past which [`super::Sender::send`] waits, and rooms find the
    /// receiver slow.
    pub send_buffer: usize,
    /// A client that said nothing for so long is sent a ping; `None` sends none.
    pub ping_interval: Option<Duration>,
    /// A client that said nothing for so long, not even a pong, is taken for gone.
    pub idle_timeout: Duration,
    /// How long a client may take to answer a close.
    pub close_timeout: Duration,
    /// Compression, if the client can; `None` compresses nothing.
    pub compression: Option<Compression>,
}

impl Default for WebSocketSettings {
    /// Messages of a megabyte, 256 KiB to be sent, a ping after 30 seconds of silence and the end
    /// after 75, 5 seconds to close, compression without contexts.
    fn default() -> Self {
        Self {
            max_message: 1 << 20,
            send_buffer: 256 << 10,
            ping_interval: Some(Duration::from_secs(30)),
            idle_timeout: Duration::from_secs(75),
            close_timeout: Duration::from_secs(5),
            compression: Some(Compression::default()),
        }
    }
}
