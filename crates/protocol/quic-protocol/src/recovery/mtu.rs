//! Discovery of the largest packets that a path passes (RFC 8899, RFC 9000 section 14.3).

use std::time::{Duration, Instant};

/// The size that every path passes (RFC 9000 section 14.1).
pub(crate) const BASE_SIZE: u16 = 1_200;
/// The largest size that is tried by default: 1,500 bytes without the headers of IPv6 and UDP.
pub(crate) const DEFAULT_LARGEST: u16 = 1_452;
/// Probes of one size that are lost before it is given up, `MAX_PROBES` (RFC 8899 section 5.1.2).
const MAX_LOST_PROBES: u8 = 3;
/// A search ends when it can gain less.
const MIN_GAIN: u16 = 20;
/// Larger sizes are tried again after this time, `PMTU_RAISE_TIMER` (RFC 8899 section 5.1.1).
const RAISE_AFTER: Duration = Duration::from_secs(600);
/// And after this time if the path has stopped to pass large packets.
// Shorter than the usual time: a route that has changed often changes back, and the loss of a probe does no harm.
const RAISE_AFTER_BLACK_HOLE: Duration = Duration::from_secs(60);

/// The size of the packets of a path, and the search for larger ones. Sizes are those of UDP payloads, in bytes.
///
/// The largest size is tried first, as most paths pass it, then half of what remains.
#[derive(Clone, Debug)]
pub(crate) struct MtuDiscovery {
    current: u16,
    largest: u16,
    search: Search,
    black_hole: BlackHoleDetector,
}

#[derive(Clone, Debug)]
enum Search {
    /// Sizes above `high` do not pass.
    Running {
        high: u16,
        probe: Option<u16>,
        lost: u8,
        /// The next size, if it is not half of what remains.
        next: Option<u16>,
    },
    WaitingUntil(Option<Instant>),
}

impl Search {
    fn up_to(largest: u16) -> Self {
        Self::Running {
            high: largest,
            probe: None,
            lost: 0,
            next: Some(largest),
        }
    }
}

impl MtuDiscovery {
    /// A path that begins with 1,200 bytes and searches up to `largest`.
    pub(crate) fn new(largest: u16) -> Self {
        let largest = largest.max(BASE_SIZE);
        Self {
            current: BASE_SIZE,
            largest,
            search: Search::up_to(largest),
            black_hole: BlackHoleDetector::new(),
        }
    }

    /// A path whose packets always have 1,200 bytes.
    pub(crate) fn disabled() -> Self {
        Self::new(BASE_SIZE)
    }

    /// The `max_udp_payload_size` of the peer (RFC 9000 section 18.2).
    pub(crate) fn on_peer_limit(&mut self, limit: u16) {
        self.largest = self.largest.min(limit.max(BASE_SIZE));
        self.current = self.current.min(self.largest);
        if let Search::Running { high, next, .. } = &mut self.search {
            *high = self.largest.min(*high);
            *next = next.map(|size| size.min(self.largest));
        }
    }

    /// The size of packets.
    pub(crate) fn current(&self) -> u16 {
        self.current
    }

    /// The size of a probe that is to be sent now, which is in flight from then on until it is acknowledged or lost. Only
    /// for paths whose handshake is confirmed.
    pub(crate) fn poll_probe(&mut self, now: Instant) -> Option<u16> {
        match self.search {
            Search::WaitingUntil(Some(time)) if now >= time => {
                self.search = Search::up_to(self.largest);
            }
            Search::WaitingUntil(_) => return None,
            Search::Running { .. } => {}
        }
        let Search::Running {
            high, probe, next, ..
        } = &mut self.search
        else {
            return None;
        };
        if probe.is_some() {
            return None;
        }
        let left = high.saturating_sub(self.current);
        // The largest size first: halving alone takes a round trip for each of four steps up the usual path of 1,452
        // bytes, ends below it, and a response of 100 KB is over before.
        let size = next
            .take()
            .filter(|size| *size > self.current)
            .or_else(|| (left >= MIN_GAIN).then(|| self.current + left.div_ceil(2)));
        match size {
            Some(size) => *probe = Some(size),
            None => {
                let again = (self.current < self.largest).then(|| now.checked_add(RAISE_AFTER));
                self.search = Search::WaitingUntil(again.flatten());
            }
        }
        size
    }

    /// A probe is acknowledged. Returns whether the size of packets has changed.
    pub(crate) fn on_probe_acked(&mut self, number: u64, size: u16) -> bool {
        match &mut self.search {
            Search::Running { probe, lost, .. } if *probe == Some(size) => {
                *probe = None;
                *lost = 0;
            }
            // A search before has ended.
            _ => return false,
        }
        self.black_hole.on_acked(number, size);
        // The peer may have announced a smaller limit since.
        let size = size.min(self.largest);
        let is_larger = size > self.current;
        self.current = self.current.max(size);
        is_larger
    }

    /// The probe is lost, or the socket has refused it.
    pub(crate) fn on_probe_lost(&mut self) {
        if let Search::Running {
            high,
            probe,
            lost,
            next,
        } = &mut self.search
            && let Some(size) = probe.take()
        {
            // Three losses and not one: a probe is lost by congestion as any packet is.
            *lost += 1;
            if *lost < MAX_LOST_PROBES {
                *next = Some(size.min(*high));
            } else {
                *lost = 0;
                *high = size.saturating_sub(1).min(*high);
            }
        }
    }

    /// A packet that is no probe is acknowledged.
    #[inline]
    pub(crate) fn on_packet_acked(&mut self, number: u64, size: u16) {
        if size >= self.black_hole.acked_size {
            self.black_hole.on_acked(number, size);
        }
    }

    /// A packet that is no probe is lost. Packets are passed in the order of their numbers.
    pub(crate) fn on_packet_lost(&mut self, number: u64, size: u16) {
        self.black_hole.on_lost(number, size);
    }

    /// All packets that were found lost at a time were passed to [`on_packet_lost`](Self::on_packet_lost). Returns whether
    /// the size of packets has changed to 1,200 bytes, as the path seems not to pass larger ones any more.
    pub(crate) fn on_losses_end(&mut self, now: Instant) -> bool {
        if !self.black_hole.is_detected() || self.current == BASE_SIZE {
            return false;
        }
        self.black_hole = BlackHoleDetector::new();
        // To the size that every path passes, not to the next smaller one: each further wrong guess loses a window of
        // packets.
        self.current = BASE_SIZE;
        self.search = Search::WaitingUntil(now.checked_add(RAISE_AFTER_BLACK_HOLE));
        true
    }
}

/// Bursts of lost packets that may be lost because of their size, until it is likely that they are.
const SUSPICIOUS_BURSTS: usize = 4;

/// Finds that large packets do not pass any more (RFC 8899 section 4.3).
///
/// Packets with consecutive numbers that are lost are one burst, as they may be lost for one reason. The reason may be
/// their size, if all are larger than [`BASE_SIZE`], and none of the size of the smallest was acknowledged that was sent
/// later.
#[derive(Clone, Debug)]
struct BlackHoleDetector {
    /// The smallest sizes of suspicious bursts, zero where there is none.
    suspicious: [u16; SUSPICIOUS_BURSTS],
    burst: Option<LossBurst>,
    /// The largest size that was acknowledged of the packets that were sent after the last suspicious burst, at least
    /// [`BASE_SIZE`].
    acked_size: u16,
    /// The largest packet number of this size that was acknowledged.
    acked_number: u64,
}

#[derive(Clone, Copy, Debug)]
struct LossBurst {
    last: u64,
    smallest: u16,
}

impl BlackHoleDetector {
    fn new() -> Self {
        Self {
            suspicious: [0; SUSPICIOUS_BURSTS],
            burst: None,
            acked_size: BASE_SIZE,
            acked_number: 0,
        }
    }

    fn on_acked(&mut self, number: u64, size: u16) {
        if size > self.acked_size {
            self.acked_size = size;
            self.acked_number = number;
            for smallest in &mut self.suspicious {
                if *smallest <= size {
                    *smallest = 0;
                }
            }
        } else if size == self.acked_size {
            self.acked_number = self.acked_number.max(number);
        }
    }

    fn on_lost(&mut self, number: u64, size: u16) {
        match &mut self.burst {
            Some(burst) if burst.last.checked_add(1) == Some(number) => {
                burst.last = number;
                burst.smallest = burst.smallest.min(size);
            }
            _ => {
                self.end_burst();
                self.burst = Some(LossBurst {
                    last: number,
                    smallest: size,
                });
            }
        }
    }

    fn end_burst(&mut self) {
        let Some(burst) = self.burst.take() else {
            return;
        };
        let is_before_acked = burst.last < self.acked_number;
        // A burst with a small packet was lost by congestion, and so was one that is older than a large packet that
        // arrived.
        if burst.smallest <= BASE_SIZE || (is_before_acked && burst.smallest <= self.acked_size) {
            return;
        }
        if !is_before_acked {
            self.acked_size = BASE_SIZE;
        }
        if let Some(free) = self.suspicious.iter_mut().find(|smallest| **smallest == 0) {
            *free = burst.smallest;
        }
    }

    fn is_detected(&mut self) -> bool {
        self.end_burst();
        self.suspicious.iter().all(|smallest| *smallest > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Probes until the search ends over a path that passes packets of this size. Returns the sizes of the probes.
    fn search(mtu: &mut MtuDiscovery, now: Instant, passes: u16) -> Vec<u16> {
        let mut probes = Vec::new();
        while let Some(size) = mtu.poll_probe(now) {
            assert_eq!(mtu.poll_probe(now), None);
            probes.push(size);
            if size <= passes {
                assert!(mtu.on_probe_acked(0, size));
                assert_eq!(mtu.current(), size);
            } else {
                mtu.on_probe_lost();
            }
        }
        probes
    }

    /// A path that has found 1,452 bytes.
    fn found(now: Instant) -> MtuDiscovery {
        let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
        search(&mut mtu, now, DEFAULT_LARGEST);
        mtu
    }

    #[test]
    fn the_largest_size_is_tried_first() {
        let now = Instant::now();
        let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
        assert_eq!(mtu.current(), 1_200);
        assert_eq!(search(&mut mtu, now, 1_452), [1_452]);
        assert_eq!(mtu.poll_probe(now + 2 * RAISE_AFTER), None);
    }

    #[test]
    fn a_search_halves_what_remains() {
        let now = Instant::now();
        let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
        let probes = search(&mut mtu, now, 1_400);
        let [a, b, c, d] = [1_452, 1_420, 1_404, 1_403];
        assert_eq!(probes, [a, a, a, 1_326, 1_389, b, b, b, c, c, c]);
        assert_eq!(mtu.current(), 1_389);
        assert!(d - mtu.current() < MIN_GAIN);
    }

    #[test]
    fn every_limit_of_a_path_is_found_but_for_less_than_twenty_bytes() {
        let now = Instant::now();
        for largest in [1_200, 1_201, 1_219, 1_220, 1_221, 1_452, 9_000, 65_527] {
            for passes in 1_200..1_500 {
                let mut mtu = MtuDiscovery::new(largest);
                search(&mut mtu, now, passes);
                let best = largest.min(passes);
                assert!(mtu.current() <= best);
                assert!(best - mtu.current() < MIN_GAIN, "{largest} {passes}");
            }
        }
    }

    #[test]
    fn a_size_is_given_up_after_three_probes() {
        let now = Instant::now();
        let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
        for _ in 0..2 {
            assert_eq!(mtu.poll_probe(now), Some(1_452));
            mtu.on_probe_lost();
        }
        assert_eq!(mtu.poll_probe(now), Some(1_452));
        assert!(mtu.on_probe_acked(7, 1_452));
        assert_eq!(mtu.current(), 1_452);
    }

    #[test]
    fn larger_sizes_are_tried_again_after_ten_minutes() {
        let now = Instant::now();
        let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
        search(&mut mtu, now, 1_300);
        let before = RAISE_AFTER - Duration::from_nanos(1);
        assert_eq!(mtu.poll_probe(now + before), None);
        assert_eq!(mtu.poll_probe(now + RAISE_AFTER), Some(1_452));
        assert!(mtu.on_probe_acked(9, 1_452));
    }

    #[test]
    fn the_peer_limits_sizes() {
        let now = Instant::now();
        for (limit, largest) in [
            (1_199, 1_200),
            (1_200, 1_200),
            (1_201, 1_201),
            (1_451, 1_451),
            (1_452, 1_452),
            (1_453, 1_452),
        ] {
            let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
            mtu.on_peer_limit(limit);
            search(&mut mtu, now, u16::MAX);
            assert_eq!(mtu.current(), largest);
            let mut mtu = found(now);
            mtu.on_peer_limit(limit);
            assert_eq!(mtu.current(), largest);
            let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
            assert_eq!(mtu.poll_probe(now), Some(1_452));
            mtu.on_peer_limit(limit);
            mtu.on_probe_acked(0, 1_452);
            assert_eq!(mtu.current(), largest);
        }
    }

    #[test]
    fn a_disabled_search_sends_no_probes() {
        let now = Instant::now();
        let mut mtu = MtuDiscovery::disabled();
        assert_eq!(mtu.poll_probe(now), None);
        assert_eq!(mtu.poll_probe(now + RAISE_AFTER), None);
        assert_eq!(mtu.current(), 1_200);
    }

    #[test]
    fn probes_of_a_search_before_are_ignored() {
        let now = Instant::now();
        let mut mtu = found(now);
        assert!(!mtu.on_probe_acked(1, 1_452));
        mtu.on_probe_lost();
        assert_eq!(mtu.current(), 1_452);
    }

    /// Loses packets of this size, one burst at a time, and says how many bursts it took to find a black hole.
    fn bursts(mtu: &mut MtuDiscovery, now: Instant, size: u16) -> Option<u64> {
        (1..20).find(|burst| {
            mtu.on_packet_lost(burst * 10, size);
            mtu.on_packet_lost(burst * 10 + 1, size);
            mtu.on_losses_end(now)
        })
    }

    #[test]
    fn a_path_that_loses_large_packets_four_times_is_a_black_hole() {
        let now = Instant::now();
        let mut mtu = found(now);
        assert_eq!(bursts(&mut mtu, now, 1_452), Some(4));
        assert_eq!(mtu.current(), 1_200);
        let before = RAISE_AFTER_BLACK_HOLE - Duration::from_nanos(1);
        assert_eq!(mtu.poll_probe(now + before), None);
        assert_eq!(mtu.poll_probe(now + RAISE_AFTER_BLACK_HOLE), Some(1_452));
    }

    #[test]
    fn bursts_of_one_time_count_each() {
        let now = Instant::now();
        let mut mtu = found(now);
        for number in [10, 12, 14, 16] {
            mtu.on_packet_lost(number, 1_452);
        }
        assert!(mtu.on_losses_end(now));
        let mut mtu = found(now);
        for number in [10, 11, 13, 15] {
            mtu.on_packet_lost(number, 1_452);
        }
        assert!(!mtu.on_losses_end(now));
    }

    #[test]
    fn lost_packets_of_the_base_size_have_another_reason() {
        let now = Instant::now();
        assert_eq!(bursts(&mut found(now), now, 1_200), None);
        assert_eq!(bursts(&mut found(now), now, 1_201), Some(4));
        let mut mtu = found(now);
        for burst in 1..20 {
            mtu.on_packet_lost(burst * 10, 1_452);
            mtu.on_packet_lost(burst * 10 + 1, 1_200);
            assert!(!mtu.on_losses_end(now));
        }
    }

    #[test]
    fn an_acknowledged_packet_explains_earlier_losses_of_its_size() {
        let now = Instant::now();
        for (number, size, is_black_hole) in [
            (15, 1_399, true),
            (15, 1_400, true),
            (17, 1_399, true),
            (17, 1_400, false),
            (17, 1_401, false),
        ] {
            let mut mtu = MtuDiscovery::new(DEFAULT_LARGEST);
            assert_eq!(mtu.poll_probe(now), Some(1_452));
            mtu.on_peer_limit(1_410);
            assert!(mtu.on_probe_acked(0, 1_452));
            mtu.black_hole = BlackHoleDetector::new();
            mtu.on_packet_acked(number, size);
            for lost in [10, 12, 14, 16] {
                mtu.on_packet_lost(lost, 1_400);
            }
            // The last burst alone is suspicious if it is after the acknowledged packet.
            for lost in [18, 20, 22] {
                if number == 15 {
                    mtu.on_packet_lost(lost, 1_400);
                }
            }
            assert_eq!(mtu.on_losses_end(now), is_black_hole, "{number} {size}");
        }
    }

    #[test]
    fn random_loss_is_no_black_hole() {
        let now = Instant::now();
        let mut mtu = found(now);
        for number in 0..10_000 {
            match number % 10 {
                7 => {
                    mtu.on_packet_lost(number - 4, 1_452);
                    assert!(!mtu.on_losses_end(now));
                }
                3 => {}
                _ => mtu.on_packet_acked(number, 1_452),
            }
        }
    }

    #[test]
    fn a_large_packet_that_passes_after_bursts_ends_the_suspicion() {
        let now = Instant::now();
        for (size, most) in [(1_452, None), (1_451, Some(1))] {
            let mut mtu = found(now);
            for number in [10, 20, 30] {
                mtu.on_packet_lost(number, 1_452);
                assert!(!mtu.on_losses_end(now));
            }
            mtu.on_packet_acked(31, size);
            mtu.on_packet_lost(40, 1_452);
            assert_eq!(mtu.on_losses_end(now), most.is_some());
        }
    }
}
