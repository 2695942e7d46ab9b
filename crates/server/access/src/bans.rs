//! `Bans`: which addresses are banned now, for all workers, without locks.
//!
//! Single clients are in a [`KeyTable`], whose values are the end of the ban and how often the client was banned. A client has two places
//! in it, so that newcomers need not take the place of a ban that is in force. Networks of
//! operators and of lists are in sets that are replaced as a whole.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

use apus_conditions::NetworkSet;
use arc_swap::ArcSwap;
use tokio::sync::{mpsc, watch};

use crate::banned_network::BannedNetwork;
use crate::key_table::{Key, KeyTable};

/// The bits of a value that count the bans of a client.
const TIMES_BITS: u32 = 6;
const MAX_TIMES: u64 = (1 << TIMES_BITS) - 1;
/// The latest end, in milliseconds since the start: 139 years.
const MAX_END: u64 = (1 << (48 - TIMES_BITS)) - 1;

/// The bit of [`Bans::state`] that there are banned networks.
const HAS_NETWORKS: u64 = 1 << 63;

/// Bans that wait to be written to the log and to disk. More of them are in force, but not listed.
const MAX_WAITING: usize = 65_536;
/// The time between a ban and the end of what the client has open. The refusal of the request that led to it has arrived by then.
const END_AFTER: Duration = Duration::from_secs(1);
/// The keys that the table of banned clients has room for, for each ban that may be in force.
const PLACES: usize = 4;

/// Which addresses are banned. One table serves all workers.
#[derive(Debug)]
pub struct Bans {
    /// 0 if nothing is banned. Otherwise the end of the ban of a client that ends last, and [`HAS_NETWORKS`].
    state: AtomicU64,
    clients: OnceLock<KeyTable>,
    networks: ArcSwap<BannedNetworks>,
    settings: ArcSwap<BanSettings>,
    started: Instant,
    made: mpsc::Sender<Ban>,
    /// Reports each ban, once it is in force.
    changes: watch::Sender<()>,
    unlisted: AtomicU64,
    refused_requests: AtomicU64,
}

/// The settings of bans.
#[derive(Clone, Debug)]
pub struct BanSettings {
    /// The longest ban that repetition leads to.
    pub longest: Duration,
    /// After this time without a ban, earlier ones are forgotten.
    pub forget_after: Duration,
    /// How many bans of single clients and networks there may be. Past it, those that end first give way.
    pub most: usize,
    /// Addresses that no rule and no list bans.
    pub never: Arc<NetworkSet>,
}

impl Default for BanSettings {
    fn default() -> Self {
        Self {
            longest: Duration::from_secs(7 * 24 * 3600),
            forget_after: Duration::from_secs(24 * 3600),
            most: 65_536,
            never: Arc::default(),
        }
    }
}

/// The networks that are banned.
#[derive(Debug, Default)]
pub(crate) struct BannedNetworks {
    /// By operators, who may ban any.
    pub(crate) named: NetworkSet,
    /// By lists.
    pub(crate) listed: Arc<NetworkSet>,
}

/// A ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The network.
    pub network: BannedNetwork,
    /// When it ends; `None`: when it is removed.
    pub until: Option<SystemTime>,
    /// How often it was banned, before it was forgotten.
    pub times: u32,
    /// Why.
    pub reason: Box<str>,
}

/// What came of a decision to ban a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanResult {
    /// It is banned for this time.
    Banned(Duration),
    /// It was banned already, by another worker or over another connection.
    Already,
    /// Its address is never banned.
    Never,
}

impl Bans {
    /// Nothing is banned, and no log or list learns of the bans that are made: for applications.
    pub fn in_memory() -> Arc<Self> {
        Self::new().0
    }

    /// Nothing is banned. The bans that workers make come out of the receiver.
    pub fn new() -> (Arc<Self>, mpsc::Receiver<Ban>) {
        let (made, receiver) = mpsc::channel(MAX_WAITING);
        let bans = Self {
            state: AtomicU64::new(0),
            clients: OnceLock::new(),
            networks: ArcSwap::default(),
            settings: ArcSwap::default(),
            started: Instant::now(),
            made,
            changes: watch::Sender::new(()),
            unlisted: AtomicU64::new(0),
            refused_requests: AtomicU64::new(0),
        };
        (Arc::new(bans), receiver)
    }

    /// Whether anything is banned, by one load.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }

    /// Counts a request of a banned client, over a connection that was not refused.
    pub fn count_refused_request(&self) {
        self.refused_requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The requests of banned clients.
    pub fn refused_requests(&self) -> u64 {
        self.refused_requests.load(Ordering::Relaxed)
    }

    /// Whether an address is banned. While nothing is banned, this is one load.
    #[inline]
    pub fn is_banned(&self, client: IpAddr) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state != 0 && self.is_found(state, client, self.started.elapsed())
    }

    /// Changes each time that more clients are banned.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }

    /// Waits until a client is banned, and a second more if it is not already. It looks once in a second at most, however many bans
    /// there are.
    pub async fn until_banned(self: Arc<Self>, client: IpAddr) {
        let mut changes = self.changes();
        while !self.is_banned(client) {
            // The sender is a part of the bans.
            let _ = changes.changed().await;
            tokio::time::sleep(END_AFTER).await;
            // What changes from here on is looked at in the next round.
            changes.mark_unchanged();
        }
    }

    /// Bans a client: an address of IPv4, or 64 bits of an address of IPv6. The time doubles with each ban, until
    /// [`BanSettings::longest`]. It holds for all workers when this returns.
    pub fn ban(&self, client: IpAddr, time: Duration, reason: &str) -> BanResult {
        self.ban_at(client, time, reason, self.started.elapsed())
    }

    /// The bans that are in force and not listed, because too many were made at once.
    pub fn unlisted(&self) -> u64 {
        self.unlisted.load(Ordering::Relaxed)
    }

    /// Changes the settings, for bans that are made from now on.
    pub fn configure(&self, settings: BanSettings) {
        self.settings.store(Arc::new(settings));
    }

    /// The settings.
    pub fn settings(&self) -> Arc<BanSettings> {
        self.settings.load_full()
    }

    pub(crate) fn ban_at(
        &self,
        client: IpAddr,
        time: Duration,
        reason: &str,
        now: Duration,
    ) -> BanResult {
        let settings = self.settings.load();
        if settings.never.contains(client) {
            return BanResult::Never;
        }
        let network = BannedNetwork::of_client(client);
        let table = self.clients();
        let at = milliseconds(now);
        let forget = milliseconds(settings.forget_after);
        let mut made = (Duration::ZERO, 0);
        let entered = table.update(place(table, network, at), |held| {
            let (end, times) = held.map_or((0, 0), unpacked);
            if end > at {
                return Err(());
            }
            let is_repeated = times > 0 && at < end.saturating_add(forget);
            let times = if is_repeated { times + 1 } else { 1 }.min(MAX_TIMES);
            let doublings = u32::try_from(times.saturating_sub(1)).unwrap_or(u32::MAX);
            let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
            let length = time
                .saturating_mul(factor.max(1))
                .min(settings.longest.max(time));
            made = (length, times);
            Ok(packed(
                at.saturating_add(milliseconds(length).max(1)),
                times,
            ))
        });
        if entered.is_err() {
            return BanResult::Already;
        }
        let (length, times) = made;
        self.raise(at.saturating_add(milliseconds(length).max(1)));
        self.changes.send_replace(());
        let ban = Ban {
            network,
            until: SystemTime::now().checked_add(length),
            times: u32::try_from(times).unwrap_or(u32::MAX),
            reason: reason.into(),
        };
        if self.made.try_send(ban).is_err() {
            self.unlisted.fetch_add(1, Ordering::Relaxed);
        }
        BanResult::Banned(length)
    }

    /// Ends the ban of a client, and forgets that it was banned. Networks of operators and of lists stay.
    pub fn unban(&self, client: IpAddr) {
        self.set_client(client, Duration::ZERO, 0);
    }

    /// Sets the ban of a client for a time from now, zero for none, and how often it was banned.
    pub(crate) fn set_client(&self, client: IpAddr, left: Duration, times: u32) {
        if left.is_zero() && self.clients.get().is_none() {
            return;
        }
        let table = self.clients();
        let end = match milliseconds(left) {
            0 => 0,
            left => milliseconds(self.started.elapsed()).saturating_add(left),
        };
        let now = milliseconds(self.started.elapsed());
        let key = place(table, BannedNetwork::of_client(client), now);
        let times = u64::from(times).min(MAX_TIMES);
        let _ = table.update(key, |_| Ok::<_, ()>(packed(end, times)));
        if end > 0 {
            self.raise(end);
            self.changes.send_replace(());
        }
    }

    /// Replaces the networks.
    pub(crate) fn set_networks(&self, networks: BannedNetworks) {
        let has_any = !networks.named.is_empty() || !networks.listed.is_empty();
        self.networks.store(Arc::new(networks));
        if has_any {
            self.state.fetch_or(HAS_NETWORKS, Ordering::Relaxed);
            self.changes.send_replace(());
        } else {
            self.state.fetch_and(!HAS_NETWORKS, Ordering::Relaxed);
        }
    }

    pub(crate) fn listed(&self) -> Arc<NetworkSet> {
        Arc::clone(&self.networks.load().listed)
    }

    /// Forgets when the last ban ends, if that is over: nothing is looked up any more then.
    pub(crate) fn settle(&self) {
        let now = milliseconds(self.started.elapsed());
        let state = self.state.load(Ordering::Relaxed);
        // A ban that is made meanwhile ends later, so that the exchange fails.
        if state & !HAS_NETWORKS != 0 && state & !HAS_NETWORKS <= now {
            let order = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self
                .state
                .compare_exchange(state, state & HAS_NETWORKS, order.0, order.1);
        }
    }

    fn clients(&self) -> &KeyTable {
        // Four times as large as needed: with two places for each client, and little more than one of seven slots in use on average, one
        // of 20,000 bans finds both of its buckets full of bans in force in one table of ten thousand. In a table of half that size it was
        // one table of three. To choose the place with more room needs fewer slots, but then two workers that ban one client at the
        // same time may choose different places, and both ban it.
        let most = self.settings.load().most;
        self.clients
            .get_or_init(|| KeyTable::kept_by_value(most.saturating_mul(PLACES)))
    }

    fn raise(&self, end: u64) {
        let end = end.min(MAX_END);
        let raised = |state: u64| {
            let networks = state & HAS_NETWORKS;
            (state & !HAS_NETWORKS < end).then_some(networks | end)
        };
        let _ = self
            .state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, raised);
    }

    fn is_found(&self, state: u64, client: IpAddr, now: Duration) -> bool {
        if state & HAS_NETWORKS != 0 {
            let networks = self.networks.load();
            if networks.named.contains(client)
                || networks.listed.contains(client) && !self.settings.load().never.contains(client)
            {
                return true;
            }
        }
        let at = milliseconds(now);
        if state & !HAS_NETWORKS <= at {
            return false;
        }
        let Some(table) = self.clients.get() else {
            return false;
        };
        let places = places(table, BannedNetwork::of_client(client));
        let mut held = places.into_iter().filter_map(|place| table.value(place));
        held.any(|held| unpacked(held).0 > at)
    }

    #[cfg(test)]
    pub(crate) fn is_banned_at(&self, client: IpAddr, now: Duration) -> bool {
        self.is_found(self.state.load(Ordering::Relaxed), client, now)
    }
}

/// The two places that the ban of a client may have in a table.
fn places(table: &KeyTable, network: BannedNetwork) -> [Key; 2] {
    [table.key((0_u8, network)), table.key((1_u8, network))]
}

/// The place of a client in a table: where it is, or where no ban that is in force has to give way.
fn place(table: &KeyTable, network: BannedNetwork, now: u64) -> Key {
    let [first, second] = places(table, network);
    if table.value(first).is_some() {
        return first;
    }
    let is_in_force = packed(now.saturating_add(1), 0);
    if table.value(second).is_some() || !table.has_room(first, is_in_force) {
        second
    } else {
        first
    }
}

fn packed(end: u64, times: u64) -> u64 {
    end.min(MAX_END) << TIMES_BITS | times
}

fn unpacked(value: u64) -> (u64, u64) {
    (value >> TIMES_BITS, value & MAX_TIMES)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn configured(settings: BanSettings) -> (Arc<Bans>, mpsc::Receiver<Ban>) {
        let (bans, made) = Bans::new();
        bans.configure(settings);
        (bans, made)
    }

    #[test]
    fn running_bans_outlive_newcomers_up_to_the_most_bans() {
        for most in [3, 100, 20_000_u32] {
            let (bans, _made) = configured(BanSettings {
                most: usize::try_from(most).unwrap(),
                ..BanSettings::default()
            });
            let client = |number: u32| IpAddr::from(std::net::Ipv4Addr::from_bits(number));
            let minute = HOUR / 60;
            // Others that are over, and were asked about often, take no place.
            for number in most..3 * most {
                bans.ban_at(client(number), minute, "", HOUR);
                bans.ban_at(client(number), minute, "", HOUR);
            }
            for number in 0..most {
                let time = minute * (1 + number % 7);
                bans.ban_at(client(number), time, "", 2 * HOUR);
            }
            let lost = (0..most).filter(|number| !bans.is_banned_at(client(*number), 2 * HOUR));
            assert_eq!(lost.count(), 0, "of {most}");
        }
    }

    #[test]
    fn a_ban_holds_for_its_time_and_its_client_alone() {
        let (bans, _made) = Bans::new();
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        assert!(!bans.is_banned(one));
        assert_eq!(
            bans.ban_at(one, HOUR, "test", HOUR),
            BanResult::Banned(HOUR)
        );
        let millisecond = Duration::from_millis(1);
        assert!(bans.is_banned_at(one, HOUR));
        assert!(bans.is_banned_at(one, 2 * HOUR - millisecond));
        assert!(!bans.is_banned_at(one, 2 * HOUR));
        assert!(!bans.is_banned_at(other, HOUR));
        assert!(bans.is_banned_at(ip("::ffff:192.0.2.1"), HOUR));
        assert_eq!(bans.ban_at(one, HOUR, "test", HOUR), BanResult::Already);
    }

    #[test]
    fn a_client_of_ipv6_is_a_network_of_64_bits() {
        let (bans, mut made) = Bans::new();
        bans.ban_at(ip("2001:db8::1"), HOUR, "test", HOUR);
        assert!(bans.is_banned_at(ip("2001:db8::ffff:1"), HOUR));
        assert!(!bans.is_banned_at(ip("2001:db8:0:1::1"), HOUR));
        assert_eq!(
            made.try_recv().unwrap().network.to_string(),
            "2001:db8::/64"
        );
    }

    #[test]
    fn the_time_doubles_up_to_the_longest_and_is_forgiven_after_a_quiet_time() {
        let (bans, mut made) = configured(BanSettings {
            longest: 5 * HOUR,
            forget_after: 10 * HOUR,
            ..BanSettings::default()
        });
        let client = ip("192.0.2.1");
        let mut now = HOUR;
        for (times, hours) in [(1, 1), (2, 2), (3, 4), (4, 5), (5, 5)] {
            assert_eq!(
                bans.ban_at(client, HOUR, "test", now),
                BanResult::Banned(hours * HOUR)
            );
            assert_eq!(made.try_recv().unwrap().times, times);
            now += hours * HOUR;
        }
        let millisecond = Duration::from_millis(1);
        now += 10 * HOUR - millisecond;
        assert_eq!(
            bans.ban_at(client, HOUR, "test", now),
            BanResult::Banned(5 * HOUR)
        );
        now += 5 * HOUR + 10 * HOUR;
        assert_eq!(
            bans.ban_at(client, HOUR, "test", now),
            BanResult::Banned(HOUR)
        );
        // A rule may name a longer time than repetition leads to.
        assert_eq!(
            bans.ban_at(ip("192.0.2.2"), 9 * HOUR, "test", now),
            BanResult::Banned(9 * HOUR)
        );
        // However often, nothing overflows.
        for _ in 0..200 {
            now += 6 * HOUR;
            bans.ban_at(client, HOUR, "test", now);
        }
        assert!(bans.is_banned_at(client, now));
    }

    #[test]
    fn of_several_workers_that_ban_one_client_one_does() {
        let (bans, mut made) = Bans::new();
        let barrier = Barrier::new(4);
        for number in 0..100_u8 {
            let client = IpAddr::from([192, 0, 2, number]);
            let banned: usize = thread::scope(|scope| {
                let workers: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            barrier.wait();
                            bans.ban(client, HOUR, "test")
                        })
                    })
                    .collect();
                let results = workers.into_iter().map(|worker| worker.join().unwrap());
                results
                    .filter(|result| *result == BanResult::Banned(HOUR))
                    .count()
            });
            assert_eq!(banned, 1);
            assert!(bans.is_banned(client));
            assert!(made.try_recv().is_ok() && made.try_recv().is_err());
        }
    }

    #[test]
    fn who_waits_for_a_ban_learns_of_it_and_of_one_from_before() {
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().build().unwrap();
        let (bans, _made) = Bans::new();
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        runtime.block_on(async {
            let local = tokio::task::LocalSet::new();
            let waits = local.spawn_local(Arc::clone(&bans).until_banned(one));
            let of_other = local.spawn_local(Arc::clone(&bans).until_banned(other));
            local.run_until(tokio::task::yield_now()).await;
            bans.ban(one, HOUR, "test");
            local.run_until(waits).await.unwrap();
            assert!(!of_other.is_finished());
            bans.ban(other, HOUR, "test");
            local.run_until(of_other).await.unwrap();
            bans.until_banned(one).await;
        });
    }

    #[test]
    fn addresses_that_are_never_banned_are_not() {
        let never = NetworkSet::new(["127.0.0.0/8".parse().unwrap()]);
        let (bans, _made) = configured(BanSettings {
            never: Arc::new(never),
            ..BanSettings::default()
        });
        let (local, other) = (ip("127.0.0.1"), ip("10.0.0.1"));
        assert_eq!(bans.ban(local, HOUR, "test"), BanResult::Never);
        let everything = || ["10.0.0.0/8", "127.0.0.0/8"].map(|text| text.parse().unwrap());
        bans.set_networks(BannedNetworks {
            named: NetworkSet::default(),
            listed: Arc::new(NetworkSet::new(everything())),
        });
        assert!(bans.is_banned(other) && !bans.is_banned(local));
        // Whoever operates the server may ban any.
        bans.set_networks(BannedNetworks {
            named: NetworkSet::new(everything()),
            listed: Arc::default(),
        });
        assert!(bans.is_banned(other) && bans.is_banned(local));
        bans.set_networks(BannedNetworks::default());
        assert!(!bans.is_banned(other) && !bans.is_banned(local));
        assert_eq!(bans.state.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn nothing_is_looked_up_once_all_bans_are_over() {
        let (bans, _made) = Bans::new();
        bans.set_client(ip("192.0.2.1"), Duration::from_millis(1), 1);
        assert_ne!(bans.state.load(Ordering::Relaxed), 0);
        while bans.is_banned(ip("192.0.2.1")) {
            thread::yield_now();
        }
        bans.settle();
        assert_eq!(bans.state.load(Ordering::Relaxed), 0);
        bans.ban(ip("192.0.2.1"), HOUR, "test");
        bans.settle();
        assert!(bans.is_banned(ip("192.0.2.1")));
    }

    #[test]
    fn more_bans_than_can_be_listed_at_once_are_in_force() {
        let (bans, made) = Bans::new();
        for number in 0..70_000_u32 {
            bans.ban(IpAddr::V4(number.into()), HOUR, "test");
        }
        assert_eq!(made.len(), MAX_WAITING);
        assert_eq!(bans.unlisted(), 70_000 - MAX_WAITING as u64);
        assert!(bans.is_banned(IpAddr::V4(69_999.into())));
    }
}
