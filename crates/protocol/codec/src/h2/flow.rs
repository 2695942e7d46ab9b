//! Flow control of received data, with windows that grow with the bandwidth-delay product (RFC 9113 section 5.2).
//!
//! A window below the bandwidth-delay product slows a fast peer down, and large windows for all peers are
//! memory that an attacker can claim. Windows therefore start small, and grow only while data is consumed
//! as fast as it arrives: the bytes between a PING and its acknowledgement are the bandwidth-delay
//! product, and the window becomes twice that.

use super::frame;
use super::settings::{DEFAULT_WINDOW, Http2Config};

/// The size of the connection's window in stream windows, so that one slow reader does not block the other
/// streams.
const STREAMS_PER_CONNECTION: u32 = 4;

/// Maximum bytes of consumed data before the connection's window is updated.
const MAX_UPDATE: u32 = 1024 * 1024;

/// The receiving side of a connection's flow control.
#[derive(Debug)]
pub(super) struct ReceiveWindow {
    /// Bytes that the peer may still send over the connection.
    window: i64,
    /// Bytes of consumed data that no WINDOW_UPDATE has released yet.
    unreleased: u32,
    /// The current size of stream windows.
    stream_target: u32,
    stream_max: u32,
    max: u32,
    /// The minimum size of the connection's window.
    min: u32,
    /// Bytes since the start of the current sample.
    received: u32,
    /// Whether a PING is in flight whose acknowledgement ends the current sample.
    is_sampling: bool,
}

impl ReceiveWindow {
    /// The initial windows at a server. Appends the WINDOW_UPDATE that opens the connection's window
    /// beyond its default.
    pub(super) fn for_server(config: &Http2Config, out: &mut Vec<u8>) -> Self {
        let max = config.window();
        Self::new(config, DEFAULT_WINDOW, max, out)
    }

    /// The initial windows at a client, whose connection window has its full size from the start. A
    /// stream's window grows to at most an equal share of it, so that no stream waits for the reader of
    /// another one.
    pub(super) fn for_client(config: &Http2Config, out: &mut Vec<u8>) -> Self {
        let max = config.window();
        let streams = u32::try_from(config.max_streams()).unwrap_or(u32::MAX);
        // With the same window for each stream as for the connection, one response that nobody reads would fill
        // it, and all other streams of the connection to the origin would wait for that reader.
        let share = max
            .saturating_sub(MAX_UPDATE)
            .checked_div(streams)
            .unwrap_or(0);
        Self::new(config, max, share, out)
    }

    fn new(config: &Http2Config, min: u32, stream_max: u32, out: &mut Vec<u8>) -> Self {
        let stream = config.stream_window().unwrap_or(DEFAULT_WINDOW);
        let mut windows = Self {
            window: i64::from(DEFAULT_WINDOW),
            unreleased: 0,
            stream_target: stream,
            stream_max: stream_max.max(stream),
            max: config.window(),
            min,
            received: 0,
            is_sampling: false,
        };
        let increment = windows.target().saturating_sub(DEFAULT_WINDOW);
        if increment > 0 {
            frame::window_update(0, increment, out);
            windows.window = i64::from(windows.target());
        }
        windows
    }

    /// The current size of the connection's window.
    fn target(&self) -> u32 {
        self.stream_target
            .saturating_mul(STREAMS_PER_CONNECTION)
            .max(self.min)
            .min(self.max)
    }

    /// The current size of stream windows.
    pub(super) fn stream_target(&self) -> u32 {
        self.stream_target
    }

    /// Subtracts a DATA frame of this size from the connection's window. Returns whether the window
    /// allowed it.
    #[must_use]
    pub(super) fn reserve(&mut self, len: u32) -> bool {
        self.window = self.window.saturating_sub(i64::from(len));
        self.window >= 0
    }

    /// Adds received data to the measurement. Returns whether a PING has to be sent to start a sample.
    #[must_use]
    pub(super) fn measure(&mut self, len: u32) -> bool {
        self.received = self.received.saturating_add(len);
        let begins = !self.is_sampling
            && self.stream_target < self.stream_max
            // A PING only for transfers that come near the window: small uploads gain nothing by a larger one.
            && self.received > self.stream_target / 4;
        if begins {
            self.is_sampling = true;
            self.received = 0;
        }
        begins
    }

    /// Whether a PING is in flight whose acknowledgement ends a sample.
    pub(super) fn is_sampling(&self) -> bool {
        self.is_sampling
    }

    /// Ends a sample when its PING is acknowledged, and enlarges the connection's window. Returns by how
    /// much the window of each stream grows.
    #[must_use]
    pub(super) fn end_sample(&mut self, out: &mut Vec<u8>) -> Option<u32> {
        self.is_sampling = false;
        let product = std::mem::take(&mut self.received);
        // Unconsumed data shows that the reader is slow, not that the window is too small.
        let unconsumed = i64::from(self.target())
            .saturating_sub(self.window)
            .saturating_sub(i64::from(self.unreleased));
        // Less than half a window in a round trip: something else than the window limits the peer.
        if product <= self.stream_target / 2 || unconsumed > i64::from(self.stream_target / 2) {
            return None;
        }
        let (stream, connection) = (self.stream_target, self.target());
        self.stream_target = product.saturating_mul(2).clamp(stream, self.stream_max);
        let increment = self.target().saturating_sub(connection);
        if increment > 0 {
            self.window = self.window.saturating_add(i64::from(increment));
            frame::window_update(0, increment, out);
        }
        Some(self.stream_target.saturating_sub(stream)).filter(|grown| *grown > 0)
    }

    /// Releases consumed data, once there is enough for a WINDOW_UPDATE.
    pub(super) fn release(&mut self, len: u32, out: &mut Vec<u8>) {
        self.unreleased = self.unreleased.saturating_add(len);
        // Half of the window: a WINDOW_UPDATE for each read would nearly double the frames of an upload, and later
        // than at half, the sender of a long path may run out.
        if self.unreleased >= (self.target() / 2).min(MAX_UPDATE) {
            let increment = std::mem::take(&mut self.unreleased);
            self.window = self.window.saturating_add(i64::from(increment));
            frame::window_update(0, increment, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Http2Config = Http2Config {
        max_concurrent_streams: 10,
        max_frame_size: 16_384,
        target_bytes: 8192,
        head_bytes: 32 * 1024,
        fields: 100,
        receive_window: 1 << 20,
        stream_receive_window: None,
        extended_connect: false,
    };

    fn server(receive_window: u32, out: &mut Vec<u8>) -> ReceiveWindow {
        let config = Http2Config {
            receive_window,
            ..CONFIG
        };
        ReceiveWindow::for_server(&config, out)
    }

    /// The increments of the WINDOW_UPDATE frames in `out`.
    fn increments(out: &mut Vec<u8>) -> Vec<u32> {
        let frames = out.chunks(13).map(|frame| {
            assert_eq!(frame[..9], [0, 0, 4, 8, 0, 0, 0, 0, 0]);
            u32::from_be_bytes(frame[9..].try_into().unwrap())
        });
        let increments = frames.collect();
        out.clear();
        increments
    }

    #[test]
    fn releases_consumed_data_and_no_more() {
        let mut out = Vec::new();
        let mut windows = server(1 << 24, &mut out);
        let connection = 4 * DEFAULT_WINDOW;
        assert_eq!(increments(&mut out), [connection - DEFAULT_WINDOW]);
        assert!(windows.reserve(connection));
        windows.release(connection / 2 - 1, &mut out);
        assert_eq!(increments(&mut out), []);
        windows.release(1, &mut out);
        assert_eq!(increments(&mut out), [connection / 2]);
        assert!(windows.reserve(connection / 2));
        assert!(!windows.reserve(1));
    }

    #[test]
    fn grows_up_to_the_limit_while_a_round_trip_fills_the_window() {
        let mut out = Vec::new();
        let mut windows = server(1 << 20, &mut out);
        out.clear();
        assert!(!windows.measure(1000));
        assert!(windows.measure(DEFAULT_WINDOW));
        assert!(!windows.measure(60_000));
        assert_eq!(windows.end_sample(&mut out), Some(120_000 - DEFAULT_WINDOW));
        assert_eq!(increments(&mut out), [4 * (120_000 - DEFAULT_WINDOW)]);
        // A round trip that leaves the window half empty changes nothing.
        assert!(windows.measure(40_000));
        assert!(!windows.measure(60_000));
        assert_eq!(windows.end_sample(&mut out), None);
        for _ in 0..10 {
            assert_eq!(windows.measure(1 << 20), windows.stream_target() < 1 << 20);
            assert!(!windows.measure(1 << 20));
            let _ = windows.end_sample(&mut out);
        }
        assert_eq!(
            (windows.stream_target(), windows.target()),
            (1 << 20, 1 << 20)
        );
    }

    #[test]
    fn keeps_its_size_while_data_is_not_consumed() {
        let mut out = Vec::new();
        let mut windows = server(1 << 20, &mut out);
        for used in [0, 30_000] {
            assert!(windows.reserve(60_000) && windows.measure(60_000));
            assert!(windows.reserve(60_000) && !windows.measure(60_000));
            windows.release(used, &mut out);
            assert_eq!(windows.end_sample(&mut out), None);
        }
        assert_eq!(windows.stream_target(), DEFAULT_WINDOW);
    }
    #[test]
    fn the_window_of_a_stream_starts_at_its_configured_size_within_that_of_the_connection() {
        const DEFAULT: u32 = DEFAULT_WINDOW;
        for (configured, stream, of_server) in [
            (None, DEFAULT, 4 * DEFAULT),
            (Some(0), DEFAULT, 4 * DEFAULT),
            (Some(DEFAULT - 1), DEFAULT, 4 * DEFAULT),
            (Some(DEFAULT), DEFAULT, 4 * DEFAULT),
            (Some(DEFAULT + 1), DEFAULT + 1, 4 * (DEFAULT + 1)),
            (Some((1 << 20) - 1), (1 << 20) - 1, 1 << 20),
            (Some(1 << 20), 1 << 20, 1 << 20),
            (Some((1 << 20) + 1), 1 << 20, 1 << 20),
        ] {
            let config = Http2Config {
                stream_receive_window: configured,
                ..CONFIG
            };
            let mut out = Vec::new();
            let server = ReceiveWindow::for_server(&config, &mut out);
            assert_eq!(increments(&mut out), [of_server - DEFAULT]);
            let mut client = ReceiveWindow::for_client(&config, &mut out);
            assert_eq!(increments(&mut out), [(1 << 20) - DEFAULT]);
            let targets = [server.stream_target(), client.stream_target()];
            assert_eq!(targets, [stream; 2], "{configured:?}");
            // One that has its full size is not measured.
            let may_grow = stream < client.stream_max;
            assert_eq!(client.measure(1 << 20), may_grow, "{configured:?}");
            let mut settings = Vec::new();
            config.encode(false, &mut settings);
            let sets = [0, 4].into_iter().chain(stream.to_be_bytes());
            let sets: Vec<u8> = sets.collect();
            let is_set = settings.windows(6).any(|bytes| *bytes == sets);
            assert_eq!(is_set, stream > DEFAULT, "{configured:?}");
        }
    }
}
