//! `BanBook`: the list of bans, with their reasons, in the form in which they are kept over restarts.
//!
//! It belongs to the thread that controls the server, and no request waits for it.

use std::collections::{BTreeSet, HashMap};
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use apus_conditions::NetworkSet;
use apus_http::Network;

use crate::banned_network::BannedNetwork;
use crate::bans::{Ban, BannedNetworks, Bans};

/// The first line of the file of bans.
const HEADING: &str = "# Bans of Apus, version 1: network, end, times, reason";
/// The last line has the number of bans behind this, so that a part of a file is not taken for the whole.
const FOOTING: &str = "# end";
/// An end that never comes.
const NEVER: u64 = u64::MAX;

/// The bans in force, and those before that count as repetition.
#[derive(Debug)]
pub struct BanBook {
    bans: Arc<Bans>,
    entries: HashMap<BannedNetwork, BanEntry>,
    /// The same by their ends, in seconds since 1970.
    ends: BTreeSet<(u64, BannedNetwork)>,
}

#[derive(Debug)]
struct BanEntry {
    end: u64,
    times: u32,
    reason: Box<str>,
}

impl BanBook {
    /// A list of no bans, of this table.
    pub fn new(bans: Arc<Bans>) -> Self {
        Self {
            bans,
            entries: HashMap::new(),
            ends: BTreeSet::new(),
        }
    }

    /// Lists a ban that a worker made, which is in force already.
    pub fn record(&mut self, ban: Ban) {
        let end = ban.until.map_or(NEVER, seconds);
        self.enter(ban.network, end, ban.times, ban.reason);
    }

    /// Bans a network for a time, or until it is removed. Also one that workers do not ban.
    pub fn add(&mut self, network: BannedNetwork, time: Option<Duration>, reason: &str) {
        let now = SystemTime::now();
        let end = time.map_or(NEVER, |time| now.checked_add(time).map_or(NEVER, seconds));
        let before = self.entries.get(&network).map(|entry| entry.end);
        self.enter(network, end, 1, reason.into());
        if let Some(client) = network.client() {
            let in_table = client_in_table(network, end);
            let left = in_table.map_or(Duration::ZERO, |_| left(end, now));
            self.bans.set_client(client, left, 1);
        }
        if [before, Some(end)]
            .into_iter()
            .flatten()
            .any(|end| client_in_table(network, end).is_none())
        {
            self.set_networks(None);
        }
    }

    /// Ends a ban, and forgets it. Returns whether there was one.
    pub fn remove(&mut self, network: BannedNetwork) -> bool {
        let Some(entry) = self.entries.remove(&network) else {
            return false;
        };
        self.ends.remove(&(entry.end, network));
        match client_in_table(network, entry.end) {
            Some(client) => self.bans.set_client(client, Duration::ZERO, 0),
            None => self.set_networks(None),
        }
        entry.end > seconds(SystemTime::now())
    }

    /// Replaces the networks of lists.
    pub fn set_lists(&self, networks: impl IntoIterator<Item = Network>) {
        self.set_networks(Some(Arc::new(NetworkSet::new(networks))));
    }

    /// Ends bans of networks whose time is over, and forgets those that no longer count as repetition. Returns whether a list
    /// differs now. It has to be called about once a second.
    pub fn sweep(&mut self) -> bool {
        let now = seconds(SystemTime::now());
        let forgotten = now.saturating_sub(self.bans.settings().forget_after.as_secs());
        let mut has_changed = false;
        while let Some(&(end, network)) = self.ends.first() {
            if end > forgotten {
                break;
            }
            self.ends.pop_first();
            self.entries.remove(&network);
            has_changed = true;
        }
        let has_ended =
            |(end, network): &&(u64, BannedNetwork)| *end <= now && network.client().is_none();
        let ended: Vec<_> = self
            .ends
            .iter()
            .take_while(|(end, _)| *end <= now)
            .filter(has_ended)
            .copied()
            .collect();
        // A network has no repetition.
        for (end, network) in &ended {
            self.ends.remove(&(*end, *network));
            self.entries.remove(network);
        }
        if !ended.is_empty() {
            has_changed = true;
            self.set_networks(None);
        }
        self.bans.settle();
        has_changed
    }

    /// The bans in force, those that end last first.
    pub fn list(&self) -> impl Iterator<Item = Ban> + '_ {
        let now = seconds(SystemTime::now());
        let ends = self.ends.iter().rev();
        ends.take_while(move |(end, _)| *end > now)
            .filter_map(|(end, network)| {
                let entry = self.entries.get(network)?;
                Some(Ban {
                    network: *network,
                    until: moment(*end),
                    times: entry.times,
                    reason: entry.reason.clone(),
                })
            })
    }

    /// How many bans are in force.
    pub fn len(&self) -> usize {
        let now = seconds(SystemTime::now());
        let ends = self.ends.iter().rev();
        ends.take_while(|(end, _)| *end > now).count()
    }

    /// Whether nothing is remembered, not even bans that are over.
    pub fn is_unused(&self) -> bool {
        self.ends.is_empty()
    }

    /// Whether no ban is in force.
    pub fn is_empty(&self) -> bool {
        self.list().next().is_none()
    }

    /// The list as text, to keep it over a restart.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEADING}\n");
        for (end, network) in &self.ends {
            let Some(entry) = self.entries.get(network) else {
                continue;
            };
            let reason = &entry.reason;
            let _ = match *end {
                NEVER => writeln!(text, "{network} - {} {reason}", entry.times),
                end => writeln!(text, "{network} {end} {} {reason}", entry.times),
            };
        }
        let _ = writeln!(text, "{FOOTING} {}", self.ends.len());
        text
    }

    /// Puts the bans of a text of [`Self::to_text`] in force.
    ///
    /// # Errors
    /// The text is damaged. No ban of it is in force.
    pub fn restore(&mut self, text: &[u8]) -> Result<(), DamagedBans> {
        let text = std::str::from_utf8(text).map_err(|_| DamagedBans)?;
        let rest = text.strip_prefix(HEADING).ok_or(DamagedBans)?;
        let rest = rest.strip_prefix('\n').ok_or(DamagedBans)?;
        let (lines, count) = rest.rsplit_once(FOOTING).ok_or(DamagedBans)?;
        let stored: Vec<_> = lines
            .lines()
            .map(|line| stored_ban(line).ok_or(DamagedBans))
            .collect::<Result<_, _>>()?;
        if count
            .strip_prefix(' ')
            .and_then(|count| count.trim_end().parse().ok())
            != Some(stored.len())
        {
            return Err(DamagedBans);
        }
        let now = SystemTime::now();
        for (network, entry) in stored {
            if let Some(client) = client_in_table(network, entry.end) {
                // A ban that is over counts as repetition from when it ended, or from now, which is later.
                let end = left(entry.end, now).max(Duration::from_millis(1));
                self.bans.set_client(client, end, entry.times);
            }
            self.enter(network, entry.end, entry.times, entry.reason);
        }
        self.set_networks(None);
        Ok(())
    }

    fn enter(&mut self, network: BannedNetwork, end: u64, times: u32, reason: Box<str>) {
        // A line of the file has one reason, and so has a line of a list.
        let reason = if reason.contains(char::is_control) {
            reason.replace(char::is_control, " ").into()
        } else {
            reason
        };
        let entry = BanEntry { end, times, reason };
        if let Some(before) = self.entries.insert(network, entry) {
            self.ends.remove(&(before.end, network));
        }
        self.ends.insert((end, network));
        let most = self.bans.settings().most.max(1);
        let mut has_lost_network = false;
        while self.ends.len() > most {
            // Those that are over go first, and then those that end first.
            let Some((end, network)) = self.ends.pop_first() else {
                break;
            };
            self.entries.remove(&network);
            match client_in_table(network, end) {
                Some(client) => self.bans.set_client(client, Duration::ZERO, 0),
                None => has_lost_network = true,
            }
        }
        if has_lost_network {
            self.set_networks(None);
        }
    }

    /// Puts the networks that are not in the table of clients in force, and lists, if they are new.
    fn set_networks(&self, listed: Option<Arc<NetworkSet>>) {
        let now = seconds(SystemTime::now());
        let named = self.ends.iter().rev();
        let named = named
            .take_while(|(end, _)| *end > now)
            .filter(|(end, network)| client_in_table(*network, *end).is_none())
            .map(|(_, network)| Network::from(*network));
        self.bans.set_networks(BannedNetworks {
            named: NetworkSet::new(named),
            listed: listed.unwrap_or_else(|| self.bans.listed()),
        });
    }
}

/// The client of a ban that is in the table of clients. Bans without an end are among the networks: they would keep workers looking at the
/// table after they were removed.
fn client_in_table(network: BannedNetwork, end: u64) -> Option<IpAddr> {
    network.client().filter(|_| end != NEVER)
}

/// The text is no list of bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DamagedBans;

impl fmt::Display for DamagedBans {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list of bans is damaged or not complete")
    }
}

impl std::error::Error for DamagedBans {}

fn stored_ban(line: &str) -> Option<(BannedNetwork, BanEntry)> {
    let mut words = line.splitn(4, ' ');
    let network = words.next()?;
    // As it is written, an address of IPv6 is one address.
    let network: Network = network.parse().ok()?;
    let Network::Ip { address, bits } = network else {
        return None;
    };
    let end = match words.next()? {
        "-" => NEVER,
        end => end.parse().ok()?,
    };
    let times = words.next()?.parse().ok()?;
    let reason = words.next()?.into();
    let entry = BanEntry { end, times, reason };
    Some((BannedNetwork::new(address, bits), entry))
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

fn moment(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// The time until an end.
fn left(end: u64, now: SystemTime) -> Duration {
    match moment(end) {
        Some(end) => end.duration_since(now).unwrap_or_default(),
        None => Duration::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bans::{BanResult, BanSettings};

    const HOUR: Duration = Duration::from_secs(3600);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn network(text: &str) -> BannedNetwork {
        text.parse().unwrap()
    }

    fn book() -> (Arc<Bans>, BanBook) {
        let (bans, _) = Bans::new();
        (Arc::clone(&bans), BanBook::new(bans))
    }

    #[test]
    fn operators_ban_addresses_and_networks_and_end_bans() {
        let (bans, mut book) = book();
        book.add(network("192.0.2.1"), Some(HOUR), "one");
        book.add(network("198.51.100.0/24"), None, "all of them");
        book.add(network("2001:db8::/32"), Some(HOUR), "");
        for (address, expected) in [
            ("192.0.2.1", true),
            ("192.0.2.2", false),
            ("198.51.100.77", true),
            ("198.51.101.1", false),
            ("2001:db8:ffff::1", true),
            ("2001:db9::1", false),
        ] {
            assert_eq!(bans.is_banned(ip(address)), expected, "{address}");
        }
        let listed: Vec<String> = book.list().map(|ban| ban.network.to_string()).collect();
        assert_eq!(listed[0], "198.51.100.0/24");
        assert_eq!((listed.len(), book.len()), (3, 3));
        assert!(book.remove(network("198.51.100.0/24")));
        assert!(!book.remove(network("198.51.100.0/24")));
        assert!(book.remove(network("192.0.2.1")));
        // A ban replaces the one before, with another end.
        for time in [None, Some(HOUR), None] {
            book.add(network("192.0.2.5"), time, "");
            assert!(bans.is_banned(ip("192.0.2.5")));
        }
        assert!(book.remove(network("192.0.2.5")));
        assert!(!bans.is_banned(ip("192.0.2.5")));
        assert!(!bans.is_banned(ip("198.51.100.77")) && !bans.is_banned(ip("192.0.2.1")));
        assert!(bans.is_banned(ip("2001:db8:ffff::1")));
    }

    #[test]
    fn bans_are_the_same_after_a_restart() {
        let (_, mut before) = book();
        before.add(network("192.0.2.1"), Some(HOUR), "a reason\nof two lines");
        before.add(network("198.51.100.0/24"), None, "");
        before.add(network("2001:db8::1/128"), Some(HOUR), "one address");
        let over = SystemTime::now() - HOUR;
        before.record(Ban {
            network: network("192.0.2.9"),
            until: Some(over),
            times: 3,
            reason: "before".into(),
        });
        let text = before.to_text();
        let (bans, mut after) = book();
        after.restore(text.as_bytes()).unwrap();
        assert_eq!(after.to_text(), text);
        assert_eq!(
            after.list().collect::<Vec<_>>(),
            before.list().collect::<Vec<_>>()
        );
        assert!(bans.is_banned(ip("192.0.2.1")) && bans.is_banned(ip("198.51.100.1")));
        assert!(bans.is_banned(ip("2001:db8::1")) && !bans.is_banned(ip("2001:db8::2")));
        // The fourth ban is eight times as long.
        while bans.is_banned(ip("192.0.2.9")) {
            std::thread::yield_now();
        }
        let fourth = bans.ban(ip("192.0.2.9"), HOUR, "again");
        assert_eq!(fourth, BanResult::Banned(8 * HOUR));
    }

    #[test]
    fn a_damaged_text_changes_nothing() {
        let (_, mut whole) = book();
        whole.add(network("192.0.2.1"), None, "a");
        whole.add(network("192.0.2.2"), None, "b");
        let text = whole.to_text();
        let mut damaged: Vec<Vec<u8>> = (0..text.len() - 1)
            .map(|end| text.as_bytes()[..end].to_vec())
            .collect();
        damaged.push(text.replace("192.0.2.2", "192.0.2.x").into_bytes());
        damaged.push(text.replace("end 2", "end 3").into_bytes());
        damaged.push(text.replace("version 1", "version 2").into_bytes());
        damaged.push([text.as_bytes(), b"\xff"].concat());
        for damaged in damaged {
            let (bans, mut book) = book();
            let shown = String::from_utf8_lossy(&damaged);
            assert_eq!(book.restore(&damaged), Err(DamagedBans), "{shown}");
            assert!(book.is_empty() && !bans.is_banned(ip("192.0.2.1")));
        }
    }

    #[test]
    fn a_full_book_gives_up_the_bans_that_end_first() {
        let (bans, mut book) = book();
        bans.configure(BanSettings {
            most: 3,
            ..BanSettings::default()
        });
        for (address, hours) in [("192.0.2.1", 5), ("192.0.2.2", 2), ("198.51.100.0/24", 3)] {
            book.add(network(address), Some(hours * HOUR), "");
        }
        book.add(network("192.0.2.4"), Some(4 * HOUR), "");
        assert!(!bans.is_banned(ip("192.0.2.2")) && bans.is_banned(ip("192.0.2.4")));
        book.add(network("192.0.2.5"), None, "");
        assert!(!bans.is_banned(ip("198.51.100.1")));
        assert_eq!(book.len(), 3);
    }

    #[test]
    fn the_time_of_a_network_ends_at_a_sweep_and_repetition_is_forgotten_later() {
        let (bans, mut book) = book();
        let over = |network: &str, ago: Duration| Ban {
            network: network.parse().unwrap(),
            until: Some(SystemTime::now() - ago),
            times: 1,
            reason: "".into(),
        };
        book.record(over("192.0.2.1", HOUR));
        book.record(over("192.0.2.2", 25 * HOUR));
        book.record(over("198.51.100.0/24", HOUR));
        book.add(network("203.0.113.0/24"), Some(HOUR), "");
        assert!(book.sweep());
        assert!(!book.sweep());
        assert!(bans.is_banned(ip("203.0.113.1")) && !bans.is_banned(ip("198.51.100.1")));
        let text = book.to_text();
        assert!(
            text.contains("192.0.2.1 ") && !text.contains("192.0.2.2 "),
            "{text}"
        );
        assert!(!text.contains("198.51.100."), "{text}");
    }

    #[test]
    fn a_hundred_thousand_networks_are_read_and_in_force() {
        let (bans, book) = book();
        let lines = (0..100_000_u32).map(|number| {
            let address = std::net::Ipv4Addr::from_bits(number << 12 | 0x0100_0000);
            format!("{address}/{} # {number}\n", 21 + number % 12)
        });
        let text: String = lines.collect();
        let list = crate::NetworkList::parse(text.as_bytes());
        assert_eq!((list.networks.len(), list.invalid_lines), (100_000, 0));
        book.set_lists(list.networks);
        assert!(bans.is_banned(ip("1.0.0.0")) && !bans.is_banned(ip("0.0.0.1")));
    }
}
