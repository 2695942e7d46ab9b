//! A path of the simulated network: delay, a bottleneck with a queue, loss, reordering and duplication.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Bytes of a packet before its UDP payload: the headers of IPv4 and UDP.
const HEADERS: usize = 28;

/// What a path does to packets, in each direction.
#[derive(Clone, Copy, Debug)]
pub(super) struct PathSettings {
    /// The time of a packet and its acknowledgement while nothing waits in a queue.
    pub(super) round_trip: Duration,
    /// The bottleneck, in bytes per second.
    pub(super) rate: f64,
    /// Bytes that can wait at the bottleneck. Further packets are dropped.
    pub(super) queue: f64,
    /// The share of packets that are lost.
    pub(super) loss: f64,
    /// The share of packets that take half a round trip longer than those before and after them.
    pub(super) reordering: f64,
    /// The share of packets that arrive twice.
    pub(super) duplication: f64,
}

/// One direction of a path.
pub(super) struct PathDirection {
    settings: PathSettings,
    random: Random,
    /// When the bottleneck has sent all packets that wait.
    idle_at: Instant,
    /// By the time at which they arrive, and in the order in which they were sent.
    packets: BTreeMap<(Instant, u64), Vec<u8>>,
    sent: u64,
}

impl PathDirection {
    pub(super) fn new(settings: PathSettings, seed: u64, now: Instant) -> Self {
        Self {
            settings,
            random: Random(seed),
            idle_at: now,
            packets: BTreeMap::new(),
            sent: 0,
        }
    }

    pub(super) fn send(&mut self, now: Instant, packet: &[u8]) {
        let PathSettings {
            round_trip,
            rate,
            queue,
            loss,
            reordering,
            duplication,
        } = self.settings;
        let size = (packet.len() + HEADERS) as f64;
        let waiting = self.idle_at.saturating_duration_since(now).as_secs_f64() * rate;
        if waiting + size > queue {
            return;
        }
        self.idle_at = self.idle_at.max(now) + Duration::from_secs_f64(size / rate);
        let [is_lost, is_late, is_doubled] =
            [loss, reordering, duplication].map(|share| self.random.happens(share));
        if is_lost {
            return;
        }
        let mut arrival = self.idle_at + round_trip / 2;
        if is_late {
            arrival += round_trip / 2;
        }
        for _ in 0..1 + u32::from(is_doubled) {
            self.packets.insert((arrival, self.sent), packet.to_vec());
            self.sent += 1;
        }
    }

    pub(super) fn next_arrival(&self) -> Option<Instant> {
        self.packets.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_arrival()? > now {
            return None;
        }
        self.packets.pop_first().map(|(_, packet)| packet)
    }
}

/// Random numbers that follow from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn happens(&mut self, share: f64) -> bool {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^= number >> 31;
        (number as f64) < share * u64::MAX as f64
    }
}
