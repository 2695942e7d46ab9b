//! `Glitches`: what each client did wrong lately, counted in one number for all workers, without locks.
//!
//! Time is divided into windows of five minutes. A client has the sums of two of them: what it did in this one counts in full, and what
//! it did in the one before counts less and less until the end of this one, so that all is forgotten within ten minutes. HAProxy measures
//! its rates in this way. One sum that shrinks needs no second number, but whoever misbehaves slowly is never forgotten by it, as each
//! glitch makes what is left new.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use apus_conditions::NetworkSet;
use apus_http::{ClientGlitches, Glitch, ServerLoad};
use arc_swap::ArcSwap;

use crate::banned_network::BannedNetwork;
use crate::key_table::KeyTable;

/// The time of a window, in milliseconds.
const WINDOW: u64 = 5 * 60 * 1000;

/// The clients that are remembered, which takes two megabytes. Those with few glitches give way first.
const CLIENTS: usize = 65_536;

/// The weights are tenths of a glitch.
const TENTHS: u64 = 10;

/// The bits of a sum of a window. More than 104,857 glitches are not counted.
const SUM_BITS: u32 = 20;
const MAX_SUM: u64 = (1 << SUM_BITS) - 1;

/// What clients of this process did wrong lately. One table serves all workers; it takes memory from the first glitch on.
#[derive(Debug)]
pub struct Glitches {
    clients: OnceLock<KeyTable>,
    settings: ArcSwap<GlitchSettings>,
    started: Instant,
    counted: [AtomicU64; Glitch::ALL.len()],
}

/// Whose glitches are counted, and what follows.
#[derive(Clone, Debug, Default)]
pub struct GlitchSettings {
    /// Proxies, whose connections have the requests of others: their glitches are not counted.
    pub proxies: Arc<NetworkSet>,
    /// Clients whose connections are not refused.
    pub never: Arc<NetworkSet>,
    /// When connections are refused; `None`: never.
    pub threshold: Option<GlitchThreshold>,
}

/// When the connections of a client are refused: beyond this many glitches, while the workers are this busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GlitchThreshold {
    /// The most glitches of a client that may connect.
    pub glitches: u64,
    /// The load of the workers ([`ServerLoad::busy`]) up to which everybody may connect, in hundredths of a percent.
    pub load: u32,
}

impl Default for Glitches {
    fn default() -> Self {
        Self {
            clients: OnceLock::new(),
            settings: ArcSwap::default(),
            started: Instant::now(),
            counted: Default::default(),
        }
    }
}

impl Glitches {
    /// No client did anything wrong yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The glitches of this process, which conditions know as `glitches`.
    pub fn of_process() -> Arc<Self> {
        static OF_PROCESS: LazyLock<Arc<Glitches>> = LazyLock::new(|| {
            let glitches = Arc::new(Glitches::new());
            let counted = Arc::clone(&glitches);
            ClientGlitches::count_by(move |client| counted.of(client));
            glitches
        });
        Arc::clone(&OF_PROCESS)
    }

    /// Changes the settings. What was counted stays.
    pub fn configure(&self, settings: GlitchSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// Counts what a client did wrong, unless it is a proxy.
    pub fn note(&self, client: IpAddr, glitch: Glitch) {
        self.note_at(client, glitch, self.started.elapsed());
    }

    /// The glitches of a client, rounded down: an address of IPv4, or 64 bits of an address of IPv6.
    pub fn of(&self, client: IpAddr) -> u64 {
        if self.clients.get().is_none() {
            return 0;
        }
        self.of_at(client, self.started.elapsed())
    }

    /// Whether connections of a client are refused now. While no client did anything wrong, this is one load.
    #[inline]
    pub fn refuses(&self, client: IpAddr) -> bool {
        self.clients.get().is_some()
            && ServerLoad::busy()
                .is_some_and(|busy| self.refuses_at(client, busy, self.started.elapsed()))
    }

    /// How many glitches of a kind were counted so far, of all clients.
    pub fn counted(&self, glitch: Glitch) -> u64 {
        self.counter(glitch)
            .map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    /// Whether any client did anything wrong.
    pub fn has_any(&self) -> bool {
        self.clients.get().is_some()
    }

    /// How many clients are remembered. Some of them may have no glitches any more.
    pub fn clients(&self) -> usize {
        self.clients.get().map_or(0, KeyTable::len)
    }

    fn counter(&self, glitch: Glitch) -> Option<&AtomicU64> {
        self.counted.get(glitch as usize)
    }

    fn note_at(&self, client: IpAddr, glitch: Glitch, now: Duration) {
        let settings = self.settings.load();
        if settings.proxies.contains(client) {
            return;
        }
        if let Some(counter) = self.counter(glitch) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let now = milliseconds(now);
        let table = self.clients.get_or_init(|| KeyTable::new(CLIENTS));
        let mut sum = 0;
        let _ = table.update(table.key(BannedNetwork::of_client(client)), |held| {
            let tally = Tally::unpack(held.unwrap_or_default())
                .rolled_to(now)
                .plus(weight(glitch));
            sum = tally.sum(now);
            Ok::<_, Infallible>(tally.pack())
        });
        let is_beyond = |threshold: GlitchThreshold| sum / TENTHS > threshold.glitches;
        if settings.threshold.is_some_and(is_beyond) {
            // Not before: measuring costs a thread that wakes up each second.
            ServerLoad::want();
        }
    }

    fn of_at(&self, client: IpAddr, now: Duration) -> u64 {
        let now = milliseconds(now);
        let Some(table) = self.clients.get() else {
            return 0;
        };
        let held = table.value(table.key(BannedNetwork::of_client(client)));
        held.map_or(0, |held| {
            Tally::unpack(held).rolled_to(now).sum(now) / TENTHS
        })
    }

    fn refuses_at(&self, client: IpAddr, busy: u32, now: Duration) -> bool {
        let settings = self.settings.load();
        settings.threshold.is_some_and(|threshold| {
            busy > threshold.load
                && self.of_at(client, now) > threshold.glitches
                && !settings.never.contains(client)
                && !settings.proxies.contains(client)
        })
    }
}

/// What a glitch weighs, in tenths.
fn weight(glitch: Glitch) -> u64 {
    match glitch {
        // Browsers and libraries never break a protocol or a handshake, apart from bugs and networks that damage data.
        Glitch::Protocol | Glitch::Handshake => TENTHS,
        // A budget is spent by hundreds of frames that carry nothing. A connection that spent one would otherwise count as little as
        // one wrong byte.
        Glitch::Flood => 10 * TENTHS,
        // People close pages while they load, and follow old links; a page with ten images that are gone is no attack.
        Glitch::Abandoned | Glitch::ErrorResponse => 1,
    }
}

/// The sums of a client in two windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    /// The number of the later window.
    window: u64,
    /// The sum of the window before it, in tenths.
    before: u64,
    /// The sum of the later window.
    now: u64,
}

impl Tally {
    fn unpack(value: u64) -> Self {
        Self {
            window: value >> (2 * SUM_BITS),
            before: (value >> SUM_BITS) & MAX_SUM,
            now: value & MAX_SUM,
        }
    }

    /// The number of the window is in the upper bits, so that of clients that were seen as often the one gives way that was quiet for
    /// longer. Its 24 bits last for 159 years.
    fn pack(self) -> u64 {
        self.window << (2 * SUM_BITS) | self.before << SUM_BITS | self.now
    }

    /// The same tally at this time. It is unchanged for a worker whose clock is behind that of the one that counted last.
    fn rolled_to(self, now: u64) -> Self {
        let window = now / WINDOW;
        match window.saturating_sub(self.window) {
            0 => self,
            passed => Self {
                window,
                before: if passed == 1 { self.now } else { 0 },
                now: 0,
            },
        }
    }

    fn plus(self, weight: u64) -> Self {
        Self {
            now: self.now.saturating_add(weight).min(MAX_SUM),
            ..self
        }
    }

    /// What counts at this time, in tenths.
    fn sum(self, now: u64) -> u64 {
        let left = WINDOW.saturating_sub(now % WINDOW);
        self.now
            .saturating_add(self.before.saturating_mul(left) / WINDOW)
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use apus_http::Network;

    use super::*;

    const START: Duration = Duration::from_secs(3000);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn set(networks: &[&str]) -> Arc<NetworkSet> {
        let networks = networks.iter().map(|text| text.parse().unwrap());
        Arc::new(NetworkSet::new(networks.collect::<Vec<Network>>()))
    }

    fn seconds(seconds: u64) -> Duration {
        START + Duration::from_secs(seconds)
    }

    #[test]
    fn glitches_weigh_what_they_are_worth() {
        let glitches = Glitches::new();
        let client = ip("192.0.2.1");
        let count = |glitch, times: u64| {
            let before = glitches.of_at(client, START);
            for _ in 0..times {
                glitches.note_at(client, glitch, START);
            }
            glitches.of_at(client, START) - before
        };
        assert_eq!(count(Glitch::Protocol, 3), 3);
        assert_eq!(count(Glitch::Handshake, 2), 2);
        assert_eq!(count(Glitch::Flood, 2), 20);
        assert_eq!(count(Glitch::ErrorResponse, 9), 0);
        assert_eq!(count(Glitch::Abandoned, 1), 1);
        assert_eq!(count(Glitch::ErrorResponse, 100), 10);
        assert_eq!(glitches.of_at(ip("192.0.2.2"), START), 0);
        let counted = Glitch::ALL.map(|glitch| glitches.counted(glitch));
        assert_eq!(counted, [3, 2, 2, 1, 109]);
        assert_eq!(glitches.clients(), 1);
    }

    #[test]
    fn glitches_are_forgotten_evenly_within_ten_minutes() {
        let glitches = Glitches::new();
        let client = ip("192.0.2.1");
        for _ in 0..100 {
            glitches.note_at(client, Glitch::Protocol, seconds(60));
        }
        for (at, expected) in [
            (60, 100),
            (299, 100),
            (300, 100),
            (303, 99),
            (375, 75),
            (450, 50),
            (599, 0),
            (600, 0),
            (3000, 0),
        ] {
            assert_eq!(glitches.of_at(client, seconds(at)), expected, "{at}");
        }
        // Those of both windows count.
        for _ in 0..10 {
            glitches.note_at(client, Glitch::Protocol, seconds(450));
        }
        assert_eq!(glitches.of_at(client, seconds(450)), 60);
        assert_eq!(glitches.of_at(client, seconds(599)), 10);
        // A worker whose clock is behind loses nothing.
        glitches.note_at(client, Glitch::Protocol, seconds(601));
        glitches.note_at(client, Glitch::Protocol, seconds(599));
        assert_eq!(glitches.of_at(client, seconds(601)), 11);
        assert_eq!(glitches.of_at(client, seconds(10_000)), 0);
    }

    #[test]
    fn a_slow_stream_of_glitches_does_not_add_up() {
        let glitches = Glitches::new();
        let client = ip("192.0.2.1");
        for minute in 0..600 {
            glitches.note_at(client, Glitch::Protocol, seconds(60 * minute));
            assert!(glitches.of_at(client, seconds(60 * minute)) <= 10);
        }
    }

    #[test]
    fn a_client_is_refused_beyond_the_threshold_while_the_workers_are_busy() {
        let glitches = Glitches::new();
        let (client, never) = (ip("192.0.2.1"), ip("198.51.100.1"));
        let settings = GlitchSettings {
            never: set(&["198.51.100.0/24"]),
            threshold: Some(GlitchThreshold {
                glitches: 5,
                load: 9500,
            }),
            ..GlitchSettings::default()
        };
        glitches.configure(settings.clone());
        let is_refused = |client, busy| glitches.refuses_at(client, busy, START);
        for glitch in 1..=6 {
            for client in [client, never] {
                glitches.note_at(client, Glitch::Protocol, START);
            }
            assert_eq!(is_refused(client, 9501), glitch == 6, "{glitch}");
            assert_eq!(ServerLoad::is_wanted(), glitch == 6, "{glitch}");
        }
        for busy in [0, 9499, 9500] {
            assert!(!is_refused(client, busy), "{busy}");
        }
        assert!(is_refused(client, 10_000));
        assert!(!is_refused(never, 10_000) && !is_refused(ip("192.0.2.2"), 10_000));
        // Until enough is forgotten.
        assert!(!glitches.refuses_at(client, 10_000, seconds(301)));
        glitches.configure(GlitchSettings {
            threshold: None,
            ..settings
        });
        assert!(!is_refused(client, 10_000));
        assert_eq!(glitches.of_at(client, START), 6);
    }

    #[test]
    fn proxies_have_no_glitches_and_one_network_of_ipv6_is_one_client() {
        let glitches = Glitches::new();
        glitches.configure(GlitchSettings {
            proxies: set(&["10.0.0.0/8", "unix:"]),
            ..GlitchSettings::default()
        });
        for client in ["10.1.2.3", "::ffff:10.1.2.3"] {
            glitches.note_at(ip(client), Glitch::Protocol, START);
            assert_eq!(glitches.of_at(ip(client), START), 0);
        }
        assert_eq!(glitches.counted(Glitch::Protocol), 0);
        for client in ["2001:db8::1", "2001:db8::ffff:1"] {
            glitches.note_at(ip(client), Glitch::Protocol, START);
        }
        assert_eq!(glitches.of_at(ip("2001:db8::2"), START), 2);
        assert_eq!(glitches.of_at(ip("2001:db8:0:1::1"), START), 0);
        glitches.note_at(ip("192.0.2.1"), Glitch::Protocol, START);
        assert_eq!(glitches.of_at(ip("::ffff:192.0.2.1"), START), 1);
    }

    #[test]
    fn no_client_and_no_number_of_clients_takes_more_than_its_part() {
        let glitches = Glitches::new();
        assert_eq!(glitches.clients(), 0);
        let heavy = ip("192.0.2.1");
        for _ in 0..30_000 {
            glitches.note_at(heavy, Glitch::Flood, START);
        }
        assert_eq!(glitches.of_at(heavy, START), MAX_SUM / TENTHS);
        let capacity = glitches.clients.get().unwrap().capacity();
        assert!(capacity <= 2 * CLIENTS, "{capacity}");
        for number in 0..300_000 {
            let client = Ipv4Addr::from_bits(0x0a00_0000 + number);
            glitches.note_at(client.into(), Glitch::ErrorResponse, START);
        }
        assert!(glitches.clients() <= capacity);
        // Whoever did much is not displaced by many who did little.
        assert_eq!(glitches.of_at(heavy, START), MAX_SUM / TENTHS);
    }

    #[test]
    fn workers_count_together() {
        let glitches = Glitches::new();
        let client = ip("192.0.2.1");
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        glitches.note_at(client, Glitch::Protocol, START);
                    }
                });
            }
        });
        assert_eq!(glitches.of_at(client, START), 4000);
    }

    #[test]
    fn a_tally_survives_its_packing() {
        for tally in [
            Tally::default(),
            Tally {
                window: (1 << 24) - 1,
                before: MAX_SUM,
                now: MAX_SUM,
            },
            Tally {
                window: 7,
                before: 1,
                now: 2,
            },
        ] {
            assert_eq!(Tally::unpack(tally.pack()), tally);
        }
    }
}
