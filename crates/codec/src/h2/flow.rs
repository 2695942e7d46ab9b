//! Flow control of what the peer sends (RFC 9113 section 5.2).
//!
//! The windows grow with the measured bandwidth-delay product.
//!
//! A window that is smaller than what is on the way within one round trip holds a fast peer back; a
//! large one for everybody is memory that an attacker may claim. So windows start small, and
//! grow only while content is read as fast as it comes: what arrives between a PING and its answer is
//! the product of bandwidth and delay, and a window gets room for twice that.

use super::frame;

/// The window of a stream before anything is measured (section 6.9.2).
pub(super) const STREAM_WINDOW: u32 = 65_535;

/// How many windows of a stream the connection's window has room for, so that one reader that
/// waits does not hold up the others.
const STREAMS_PER_CONNECTION: u32 = 4;

/// Content that was used is given back to the connection's window in parts of no more than this.
const UPDATE_MOST: u32 = 1024 * 1024;

/// The receiving side of a connection's flow control.
#[derive(Debug)]
pub(super) struct Receive {
    /// What the peer may still send over the connection.
    window: i64,
    /// Used and not yet given back.
    unannounced: u32,
    /// The size that windows of streams have.
    stream_target: u32,
    stream_most: u32,
    most: u32,
    /// What the connection's window is at least.
    least: u32,
    /// Bytes since the last sample began.
    received: u32,
    /// Whether a PING is on its way that ends the current sample.
    sampling: bool,
}

impl Receive {
    /// The receiving side before anything came, and the connection's window in addition to the one
    /// that every connection starts with.
    pub(super) fn new(most: u32, out: &mut Vec<u8>) -> Self {
        let most = most.clamp(STREAM_WINDOW, 0x7fff_ffff);
        Self::with(most, STREAM_WINDOW, most, out)
    }

    /// As [`Self::new`], with the connection's window open up to `most` from the start. A stream's
    /// window grows to no more than its share, if there are as many `streams`: each can wait for its
    /// reader with a full window, and none waits for another's.
    pub(super) fn undivided(most: u32, streams: usize, out: &mut Vec<u8>) -> Self {
        let most = most.clamp(STREAM_WINDOW, 0x7fff_ffff);
        let streams = u32::try_from(streams).unwrap_or(u32::MAX);
        let share = most
            .saturating_sub(UPDATE_MOST)
            .checked_div(streams)
            .unwrap_or(0);
        Self::with(most, most, share.max(STREAM_WINDOW), out)
    }

    fn with(most: u32, least: u32, stream_most: u32, out: &mut Vec<u8>) -> Self {
        let mut receive = Self {
            window: i64::from(STREAM_WINDOW),
            unannounced: 0,
            stream_target: STREAM_WINDOW,
            stream_most,
            most,
            least,
            received: 0,
            sampling: false,
        };
        let more = receive.target().saturating_sub(STREAM_WINDOW);
        if more > 0 {
            frame::window_update(0, more, out);
            receive.window = i64::from(receive.target());
        }
        receive
    }

    /// The size that the connection's window has.
    fn target(&self) -> u32 {
        self.stream_target
            .saturating_mul(STREAMS_PER_CONNECTION)
            .max(self.least)
            .min(self.most)
    }

    /// The size that windows of streams have.
    pub(super) fn stream_target(&self) -> u32 {
        self.stream_target
    }

    /// Takes a DATA frame of so many bytes; tells whether the window allowed it.
    #[must_use]
    pub(super) fn take(&mut self, len: u32) -> bool {
        self.window = self.window.saturating_sub(i64::from(len));
        self.window >= 0
    }

    /// Counts content for the measurement. Tells whether a PING has to be sent to begin a sample.
    #[must_use]
    pub(super) fn count(&mut self, len: u32) -> bool {
        self.received = self.received.saturating_add(len);
        let begins = !self.sampling
            && self.stream_target < self.stream_most
            && self.received > self.stream_target / 4;
        if begins {
            self.sampling = true;
            self.received = 0;
        }
        begins
    }

    /// Whether a PING is on its way that ends a sample.
    pub(super) fn is_sampling(&self) -> bool {
        self.sampling
    }

    /// Ends a sample, as its PING was answered. Tells by how much the window of each stream grows;
    /// the connection's has grown already.
    #[must_use]
    pub(super) fn end_sample(&mut self, out: &mut Vec<u8>) -> Option<u32> {
        self.sampling = false;
        let product = std::mem::take(&mut self.received);
        // What a reader leaves is no bandwidth: with larger windows it would leave more.
        let held = i64::from(self.target())
            .saturating_sub(self.window)
            .saturating_sub(i64::from(self.unannounced));
        if product <= self.stream_target / 2 || held > i64::from(self.stream_target / 2) {
            return None;
        }
        let (stream, connection) = (self.stream_target, self.target());
        self.stream_target = product.saturating_mul(2).clamp(stream, self.stream_most);
        let more = self.target().saturating_sub(connection);
        if more > 0 {
            self.window = self.window.saturating_add(i64::from(more));
            frame::window_update(0, more, out);
        }
        Some(self.stream_target.saturating_sub(stream)).filter(|grown| *grown > 0)
    }

    /// Gives content back that was used, once it is worth a frame.
    pub(super) fn used(&mut self, len: u32, out: &mut Vec<u8>) {
        self.unannounced = self.unannounced.saturating_add(len);
        if self.unannounced >= (self.target() / 2).min(UPDATE_MOST) {
            let increment = std::mem::take(&mut self.unannounced);
            self.window = self.window.saturating_add(i64::from(increment));
            frame::window_update(0, increment, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn gives_back_what_was_used_and_no_more() {
        let mut out = Vec::new();
        let mut receive = Receive::new(1 << 24, &mut out);
        let whole = 4 * STREAM_WINDOW;
        assert_eq!(increments(&mut out), [whole - STREAM_WINDOW]);
        assert!(receive.take(whole));
        receive.used(whole / 2 - 1, &mut out);
        assert_eq!(increments(&mut out), []);
        receive.used(1, &mut out);
        assert_eq!(increments(&mut out), [whole / 2]);
        assert!(receive.take(whole / 2));
        assert!(!receive.take(1));
    }

    #[test]
    fn grows_while_a_round_trip_fills_the_window_up_to_the_limit() {
        let mut out = Vec::new();
        let mut receive = Receive::new(1 << 20, &mut out);
        out.clear();
        assert!(!receive.count(1000));
        assert!(receive.count(STREAM_WINDOW));
        assert!(!receive.count(60_000));
        assert_eq!(receive.end_sample(&mut out), Some(120_000 - STREAM_WINDOW));
        assert_eq!(increments(&mut out), [4 * (120_000 - STREAM_WINDOW)]);
        // A round trip that leaves the window half empty changes nothing.
        assert!(receive.count(40_000));
        assert!(!receive.count(60_000));
        assert_eq!(receive.end_sample(&mut out), None);
        for _ in 0..10 {
            assert_eq!(receive.count(1 << 20), receive.stream_target() < 1 << 20);
            assert!(!receive.count(1 << 20));
            let _ = receive.end_sample(&mut out);
        }
        assert_eq!(
            (receive.stream_target(), receive.target()),
            (1 << 20, 1 << 20)
        );
    }

    #[test]
    fn stays_as_it_is_while_nobody_reads() {
        let mut out = Vec::new();
        let mut receive = Receive::new(1 << 20, &mut out);
        for used in [0, 30_000] {
            assert!(receive.take(60_000) && receive.count(60_000));
            assert!(receive.take(60_000) && !receive.count(60_000));
            receive.used(used, &mut out);
            assert_eq!(receive.end_sample(&mut out), None);
        }
        assert_eq!(receive.stream_target(), STREAM_WINDOW);
    }
}
