//! What a load over WebSocket does, and what its connections know of one another.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

/// What a load over WebSocket does with its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebSocketMode {
    /// The server sends each message back, and the latency is that of the way there and back.
    Echo,
    /// One connection of each thread sends messages, and the server sends each to all connections, the sender too. Each is
    /// one response, with the latency from when it was due to its reception.
    Broadcast,
}

/// What all connections of a load that sends to all of them share.
#[derive(Debug)]
pub(crate) struct BroadcastCounts {
    /// The time from which messages count theirs.
    pub(crate) epoch: Instant,
    pub(crate) sent: AtomicU64,
    /// Connections that send no more.
    pub(crate) senders_done: AtomicUsize,
}

impl BroadcastCounts {
    pub(crate) fn new() -> Self {
        Self {
            epoch: Instant::now(),
            sent: AtomicU64::new(0),
            senders_done: AtomicUsize::new(0),
        }
    }
}
