//! The settings of an endpoint, and the transport parameters (RFC 9000 section 18.2) that follow from them.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_quic_protocol::{CongestionAlgorithm, StartObserver, TransportConfig};

use crate::half_open::HalfOpenConnections;

/// Bytes that an application may always write ahead of what can be in flight: as much as it writes while the packets of
/// one turn are sent.
const WRITTEN_AHEAD: u64 = 128 * 1024;

/// Bytes that a new connection may have in flight (RFC 9002 section 7.2): ten packets, as over TCP.
pub(crate) const INITIAL_CONGESTION_WINDOW: u64 = 12_000;

/// The largest window of a stream that servers should give: 2 MiB, with which an upload over 200 Mbit/s at 80 ms is not
/// slowed down. A peer can make a connection hold as much of each of its streams, up to the window of the connection.
pub const LARGEST_STREAM_RECEIVE_WINDOW: u32 = 2 << 20;

/// The settings of an endpoint.
///
/// A peer can make a connection hold at most twice [`receive_window`](Self::receive_window) bytes that the application has
/// not read and 4 KiB for each stream, [`send_window`](Self::send_window) bytes that the peer has not acknowledged, 16 KiB of handshake data
/// for each of three encryption levels, and the state of the streams that
/// [`max_bidirectional_streams`](Self::max_bidirectional_streams) and
/// [`max_unidirectional_streams`](Self::max_unidirectional_streams) allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuicSettings {
    /// Bytes that the peer may send over all streams before the application reads them.
    pub receive_window: u32,
    /// Bytes that the peer may send over one stream before the application reads them.
    pub stream_receive_window: u32,
    /// Bytes that the application may write over all streams before the peer acknowledges them. Below this, it may write
    /// a quarter more than the congestion window, and 128 KiB.
    pub send_window: u32,
    /// A connection without packets for this time ends silently (RFC 9000 section 10.1). Of both ends, the shorter
    /// one counts. Zero disables it.
    pub max_idle_timeout: Duration,
    /// After this time without packets, this end asks the peer for a sign of life, so that the connection does not end.
    pub keep_alive: Option<Duration>,
    /// A handshake that takes longer ends the connection.
    pub handshake_timeout: Duration,
    /// When a client has to prove its address by a Retry packet (RFC 9000 section 8.1.2).
    pub retry: RetryMode,
    /// The most server connections whose handshake is going on or has failed a moment ago, or that nobody has accepted. A
    /// client, which is an IPv4 address or an IPv6 network of 64 bits, may have a quarter of them. A further one takes the
    /// place of the oldest one of the client with most of them, if that is older than a second. Otherwise it is ignored if
    /// it is of that client, and refused if not.
    pub max_half_open: usize,
    /// The most bytes of data that came over the connections of all endpoints of [`QuicWorkers`](crate::QuicWorkers) and
    /// that nobody has read, with what they take in memory. Past it, connections that hold much of it are closed.
    pub receive_memory: u64,
    /// The error code of the application for these connections.
    pub overload_code: u64,
    /// The congestion controller.
    pub congestion: CongestionControl,
    /// The most bidirectional streams of the peer that are open at a time.
    pub max_bidirectional_streams: u32,
    /// The most unidirectional streams of the peer that are open at a time.
    pub max_unidirectional_streams: u32,
    /// The folder in which connections are logged in the qlog format, each in a file: at most 100 of a process at a time, 4 MiB
    /// of each, and 500 files, of which the oldest are removed.
    pub qlog: Option<PathBuf>,
}

impl Default for QuicSettings {
    fn default() -> Self {
        Self {
            receive_window: 2 << 20,
            stream_receive_window: 1 << 20,
            send_window: 2 << 20,
            max_idle_timeout: Duration::from_secs(30),
            keep_alive: None,
            handshake_timeout: Duration::from_secs(10),
            retry: RetryMode::Auto,
            max_half_open: 1_000,
            receive_memory: u64::MAX,
            overload_code: 0,
            congestion: CongestionControl::Cubic,
            max_bidirectional_streams: 100,
            max_unidirectional_streams: 8,
            qlog: None,
        }
    }
}

/// When a client has to prove its address by a Retry packet (RFC 9000 section 8.1.2), which costs a round trip.
/// A client with a token of an earlier connection has proved it already (section 8.1.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RetryMode {
    /// While half of [`QuicSettings::max_half_open`] connections are half-open, or half of the share of one client for that
    /// client: its address may be forged.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// A congestion controller (RFC 9002 section 7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CongestionControl {
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 1.
    Bbr,
}

impl QuicSettings {
    /// Whether a client without a proof of its address gets a Retry packet.
    pub(crate) fn requires_retry(&self, half_open: usize, of_client: usize) -> bool {
        match self.retry {
            RetryMode::Always => true,
            RetryMode::Auto => {
                let share = HalfOpenConnections::share(self.max_half_open);
                half_open >= self.max_half_open.div_ceil(2) || of_client >= share.div_ceil(2)
            }
            RetryMode::Never => false,
        }
    }

    /// The send window of a connection that may have this many bytes in flight.
    pub(crate) fn send_window_for(&self, in_flight: u64) -> u64 {
        let ahead = (in_flight / 4).saturating_add(WRITTEN_AHEAD);
        in_flight.saturating_add(ahead).min(self.send_window.into())
    }

    /// The transport parameters of connections, with their observer.
    pub(crate) fn transport(
        &self,
        observer: Option<Arc<dyn StartObserver>>,
    ) -> Arc<TransportConfig> {
        Arc::new(TransportConfig {
            receive_window: self.receive_window.into(),
            stream_receive_window: self.stream_receive_window.into(),
            send_window: self.send_window_for(0),
            max_idle_timeout: (!self.max_idle_timeout.is_zero()).then_some(self.max_idle_timeout),
            keep_alive: self.keep_alive,
            max_bidirectional_streams: self.max_bidirectional_streams.into(),
            max_unidirectional_streams: self.max_unidirectional_streams.into(),
            congestion: match self.congestion {
                CongestionControl::Cubic => CongestionAlgorithm::Cubic,
                CongestionControl::Bbr => CongestionAlgorithm::Bbr,
            },
            initial_window: INITIAL_CONGESTION_WINDOW,
            observer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_is_required_from_half_of_the_half_open_connections_on() {
        for (max_half_open, first) in [(1_000, 500), (3, 2), (1, 1), (0, 0)] {
            let settings = QuicSettings {
                max_half_open,
                ..QuicSettings::default()
            };
            assert!(settings.requires_retry(first, 0));
            assert!(settings.requires_retry(first + 1, 0));
            if let Some(below) = first.checked_sub(1) {
                assert!(!settings.requires_retry(below, 0));
            }
        }
    }

    #[test]
    fn retry_is_required_of_a_client_with_half_of_its_share() {
        let settings = QuicSettings::default();
        for (of_client, is_required) in [(0, false), (124, false), (125, true), (126, true)] {
            assert_eq!(settings.requires_retry(of_client, of_client), is_required);
        }
    }

    #[test]
    fn the_send_window_follows_the_congestion_window_up_to_its_limit() {
        let settings = QuicSettings {
            send_window: 1 << 20,
            ..QuicSettings::default()
        };
        for (in_flight, window) in [
            (0, 131_072),
            (12_000, 146_072),
            (734_002, 1_048_574),
            (734_004, 1_048_576),
            (734_008, 1_048_576),
            (u64::MAX, 1_048_576),
        ] {
            assert_eq!(settings.send_window_for(in_flight), window);
        }
    }

    #[test]
    fn retry_that_is_always_or_never_required_does_not_depend_on_load() {
        for (retry, required) in [(RetryMode::Always, true), (RetryMode::Never, false)] {
            let settings = QuicSettings {
                retry,
                ..QuicSettings::default()
            };
            for half_open in [0, 499, 500, 501, usize::MAX] {
                assert_eq!(settings.requires_retry(half_open, half_open), required);
            }
        }
    }
}
