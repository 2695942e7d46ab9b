//! The limits of the engine: how much of each resource one client may use.

use std::time::Duration;

/// Limits of the engine. The shipped configuration has the same defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Connections of one worker; past it the connection that was idle longest is closed for a new one.
    pub worker_connections: usize,
    /// Connections of all workers; 0 is no limit but the descriptors.
    pub max_connections: usize,
    /// Connections from one address (an IPv6 /64 counts as one) to one worker; 0 is no limit.
    pub connections_per_address: usize,
    /// Bytes of a request target; past it 414.
    pub target_bytes: usize,
    /// Bytes of a whole request head; past it 431. At most 65,535.
    pub head_bytes: usize,
    /// Field lines of a request head or trailer section; past it 431.
    pub head_fields: usize,
    /// From the first byte of a connection, or of the next request, to the end of the head.
    pub head_timeout: Duration,
    /// From accept to the end of the TLS handshake, or of the PROXY protocol head.
    pub handshake_timeout: Duration,
    /// Between a response and the next request.
    pub idle_timeout: Duration,
    /// Between two reads of a request's body.
    pub body_timeout: Duration,
    /// The least bytes per second of a request's body, measured after `body_timeout` has passed once; 0 is no
    /// limit.
    pub body_rate: u64,
    /// The time in which a client has to take `send_rate` of a response that waits for it.
    pub send_timeout: Duration,
    /// The least bytes per second that a client takes of a response that waits for it, measured over
    /// `send_timeout`; 0 is no limit but one byte in this time.
    pub send_rate: u64,
    /// Bytes of an unread request body that are read and discarded to keep a connection.
    pub drain_bytes: u64,
    /// Requests over one connection; 0 is no limit.
    pub requests_per_connection: u64,
    /// Requests that one HTTP/2 client may have open at once; at most 32,768.
    pub h2_max_concurrent_streams: u32,
    /// Tunnels, such as WebSockets, that one HTTP/2 or HTTP/3 client may have open at once; past it 503.
    pub h2_max_tunnels: usize,
    /// Bytes of the largest HTTP/2 frame that is accepted: 16,384 to 16,777,215.
    pub h2_max_frame_size: u32,
    /// Requests over one HTTP/2 connection; 0 is no limit.
    pub h2_requests_per_connection: u64,
    /// How long an HTTP/2 client with open requests may be silent before it gets a PING. If it is silent as
    /// long again, the connection is closed. Zero sends no PING.
    pub h2_ping_interval: Duration,
    /// The most bytes of bodies that one HTTP/2 client may have sent before they are used.
    pub h2_receive_window: u32,
    /// Bytes of memory for the messages of all WebSockets that are incomplete, not yet taken by their handlers, or
    /// not yet sent. Each worker has an even part, and at least 8 MiB; past it the socket that holds most is closed.
    pub websocket_memory: u64,
    /// Bytes of data that came over HTTP/3 and was not read yet, over all connections of the server, with what they take in
    /// memory; past it, connections that hold much of it are closed.
    pub h3_receive_memory: u64,
    /// How long open requests may take after a shutdown began.
    pub stop_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            worker_connections: 51_200,
            max_connections: 0,
            connections_per_address: 16_384,
            target_bytes: 8 * 1024,
            head_bytes: 32 * 1024,
            head_fields: 100,
            head_timeout: Duration::from_secs(15),
            handshake_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(60),
            body_timeout: Duration::from_secs(30),
            body_rate: 128,
            send_timeout: Duration::from_secs(60),
            send_rate: 128,
            drain_bytes: 256 * 1024,
            requests_per_connection: 0,
            h2_max_concurrent_streams: 256,
            h2_max_tunnels: 64,
            h2_max_frame_size: 16 * 1024,
            h2_requests_per_connection: 0,
            h2_ping_interval: Duration::from_secs(30),
            h2_receive_window: 16 * 1024 * 1024,
            websocket_memory: 64 << 20,
            h3_receive_memory: 64 * 1024 * 1024,
            stop_timeout: Duration::from_secs(30),
        }
    }
}
