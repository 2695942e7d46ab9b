//! The settings of HTTP/3 at one address, and the secret of its keys.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use apus_h3::H3ErrorCode;
use apus_quic::{CongestionControl, LARGEST_STREAM_RECEIVE_WINDOW, QuicSettings, RetryMode};

use crate::limits::Limits;

/// Connections of one worker whose handshake is not complete.
const MAX_HALF_OPEN: usize = 1_000;

/// The unidirectional streams of a client: three are used, and one may be for tests of extensibility at a time (RFC 9114
/// section 6.2.3).
const UNIDIRECTIONAL_STREAMS: u32 = 8;

/// The settings of HTTP/3 at one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3Settings {
    /// The most bytes of bodies that one client may have sent before they are used.
    pub receive_window: u32,
    /// The most bytes of the body of one request that may have been sent before they are used.
    pub stream_receive_window: u32,
    /// The most bytes of responses that one client has not acknowledged.
    pub send_window: u32,
    /// How long a connection without packets lasts. Of both ends, the shorter time counts.
    pub max_idle_timeout: Duration,
    /// When a client has to prove its address before the handshake.
    pub retry: RetryMode,
    /// The congestion control.
    pub congestion: CongestionControl,
    /// The folder in which the packets of connections are logged in the qlog format; `None` for none.
    pub qlog: Option<PathBuf>,
}

impl Default for Http3Settings {
    fn default() -> Self {
        Self {
            receive_window: 16 << 20,
            stream_receive_window: LARGEST_STREAM_RECEIVE_WINDOW,
            send_window: 16 << 20,
            max_idle_timeout: Duration::from_secs(30),
            retry: RetryMode::Auto,
            congestion: CongestionControl::Cubic,
            qlog: None,
        }
    }
}

impl Http3Settings {
    /// The settings of QUIC, with the limits for all clients.
    pub(crate) fn quic(&self, limits: &Limits) -> QuicSettings {
        QuicSettings {
            receive_window: self.receive_window,
            stream_receive_window: self.stream_receive_window.min(self.receive_window),
            send_window: self.send_window,
            max_idle_timeout: self.max_idle_timeout,
            keep_alive: None,
            handshake_timeout: limits.handshake_timeout,
            retry: self.retry,
            max_half_open: MAX_HALF_OPEN,
            receive_memory: limits.h3_receive_memory,
            overload_code: H3ErrorCode::EXCESSIVE_LOAD.0,
            congestion: self.congestion,
            qlog: self.qlog.clone(),
            max_bidirectional_streams: limits.h2_max_concurrent_streams,
            max_unidirectional_streams: UNIDIRECTIONAL_STREAMS,
        }
    }
}

/// A secret from which the keys of HTTP/3 are derived: for stateless resets, connection IDs and tokens.
#[derive(Clone, Copy)]
pub struct Http3Secret([u8; 32]);

impl Http3Secret {
    /// These random bytes, which are to be kept secret.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Http3Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Http3Secret")
    }
}
