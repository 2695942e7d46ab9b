//! What an endpoint counts.

/// What an endpoint has counted since it exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuicCounters {
    /// Packets that it received or was handed.
    pub received: u64,
    /// Packets that it handed to other endpoints.
    pub handed_over: u64,
    /// Packets that other endpoints handed to it.
    pub handed_in: u64,
    /// Connections that the application accepted.
    pub accepted: u64,
    /// Server connections that ended before their handshake was complete.
    pub failed_handshakes: u64,
    /// Retry packets: one for each packet in which a client sent its ClientHello.
    pub retries: u64,
    /// Refusals, because too many connections were half-open or the endpoint stops: one for each packet in which a
    /// client sent its ClientHello.
    pub refused: u64,
    /// Connections that gave way to others: half-open ones to further ones, and those that held most data which nobody has
    /// read.
    pub evicted: u64,
    /// Packets of new clients that were ignored, because others of their address were half-open. They are repeated.
    pub ignored: u64,
    /// Sends that waited because the buffer of the socket was full.
    pub blocked_sends: u64,
    /// Packets that were dropped because the socket did not take them: responses outside of connections while its
    /// buffer was full, and packets that the kernel rejected.
    pub unsent: u64,
}
