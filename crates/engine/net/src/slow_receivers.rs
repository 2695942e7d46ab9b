//! `SlowReceivers`: what happens to clients that receive the same as others, and read too slowly.

/// What happens to a message for a client whose send buffer is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowReceivers {
    /// The client misses this message.
    Skip,
    /// The connection is closed, a WebSocket with status 1013: a client that reconnects knows that it missed messages.
    #[default]
    Close,
}
