//! The network between the ends, on virtual time: delay, loss, order, duplicates, changed bytes, ECN, and sizes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use apus_quic_protocol::{EcnCodepoint, Side};

/// Random numbers that follow from a seed (SplitMix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    pub(crate) fn happens(&mut self, share: f64) -> bool {
        (self.next() as f64) < share * u64::MAX as f64
    }
}

/// What the network does to the datagrams of a sender.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// How long each takes.
    pub(crate) delay: Duration,
    /// The share that is lost, and how many are lost in a row.
    pub(crate) loss: f64,
    pub(crate) burst: u32,
    /// The share that takes longer, and by how much.
    pub(crate) reordering: f64,
    pub(crate) late: Duration,
    /// The share that arrives twice.
    pub(crate) duplication: f64,
    /// The share in which a byte is changed.
    pub(crate) corruption: f64,
    /// The share of marked ones that get the mark of congestion.
    pub(crate) congestion: f64,
    /// Whether marks are taken away.
    pub(crate) is_bleaching: bool,
    /// Larger ones are lost.
    pub(crate) mtu: usize,
    /// Bytes per second, and bytes that wait at most, unless it is without limit.
    pub(crate) rate: Option<(f64, f64)>,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            delay: Duration::from_millis(10),
            loss: 0.0,
            burst: 1,
            reordering: 0.0,
            late: Duration::from_millis(15),
            duplication: 0.0,
            corruption: 0.0,
            congestion: 0.0,
            is_bleaching: false,
            mtu: 1_500,
            rate: None,
        }
    }
}

/// A datagram on its way.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    pub(crate) sender: Side,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) ecn: Option<EcnCodepoint>,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Clone, Debug)]
struct LinkState {
    idle_at: Option<Instant>,
    left_of_burst: u32,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Network {
    /// From the client, and from the server.
    pub(crate) links: [Link; 2],
    states: [LinkState; 2],
    random: Random,
    queue: BTreeMap<(Instant, u64), Datagram>,
    sent: u64,
}

impl Network {
    pub(crate) fn new(seed: u64) -> Self {
        let state = LinkState {
            idle_at: None,
            left_of_burst: 0,
        };
        Self {
            links: [Link::default(), Link::default()],
            states: [state.clone(), state],
            random: Random(seed),
            queue: BTreeMap::new(),
            sent: 0,
        }
    }

    /// Returns whether it will arrive as it is.
    pub(crate) fn send(&mut self, now: Instant, mut datagram: Datagram) -> bool {
        let side = datagram.sender as usize;
        let link = &self.links[side];
        let state = &mut self.states[side];
        let random = &mut self.random;
        let mut arrival = now + link.delay;
        if let Some((rate, room)) = link.rate {
            let size = datagram.bytes.len() as f64 + 28.0;
            let idle_at = state.idle_at.unwrap_or(now).max(now);
            if (idle_at - now).as_secs_f64() * rate + size > room {
                return false;
            }
            let idle_at = idle_at + Duration::from_secs_f64(size / rate);
            state.idle_at = Some(idle_at);
            arrival = idle_at + link.delay;
        }
        if state.left_of_burst > 0 {
            state.left_of_burst -= 1;
            return false;
        }
        if random.happens(link.loss) {
            state.left_of_burst = link.burst - 1;
            return false;
        }
        if datagram.bytes.len() > link.mtu {
            return false;
        }
        if random.happens(link.reordering) {
            arrival += link.late;
        }
        let mut is_intact = true;
        if random.happens(link.corruption) {
            let at = random.next() as usize % datagram.bytes.len();
            datagram.bytes[at] ^= 1 << (random.next() % 8);
            is_intact = false;
        }
        if link.is_bleaching {
            datagram.ecn = None;
        } else if datagram.ecn.is_some() && random.happens(link.congestion) {
            datagram.ecn = Some(EcnCodepoint::Ce);
        }
        let copies = 1 + u32::from(random.happens(link.duplication));
        for _ in 0..copies {
            self.deliver_at(arrival, datagram.clone());
        }
        is_intact
    }

    /// Delivers a datagram without any harm at this time.
    pub(crate) fn deliver_at(&mut self, arrival: Instant, datagram: Datagram) {
        self.queue.insert((arrival, self.sent), datagram);
        self.sent += 1;
    }

    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    pub(crate) fn receive(&mut self, now: Instant) -> Option<Datagram> {
        if self.next_arrival()? > now {
            return None;
        }
        self.queue.pop_first().map(|(_, datagram)| datagram)
    }

    /// What is on its way is lost.
    pub(crate) fn clear(&mut self) {
        self.queue.clear();
    }
}
