//! Counts of the busiest sites, nodes, clients and paths, while somebody watches.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use apus_http::{Completion, Request, StatusCode};
use apus_metrics::{FrequentKey, SpaceSaving};

use crate::observe::OnCompletion;

/// How many sites, nodes, clients and paths each worker counts.
const CAPACITY: usize = 100;

/// The longest path that is counted by itself, in bytes. Longer ones with the same beginning are one.
const MAX_PATH: usize = 128;

/// Counts the requests of sites by site, node, client and path while somebody watches. Clones are the same.
///
/// While nobody does, a request reads one flag, and no worker has tables. Otherwise each worker has its own, of a bounded size.
#[derive(Clone, Default)]
pub struct TrafficWatch(Arc<WatchState>);

#[derive(Default)]
struct WatchState {
    /// Whether a worker has to look into its tables.
    is_on: AtomicBool,
    workers: Mutex<WatchedWorkers>,
}

#[derive(Default)]
struct WatchedWorkers {
    /// When counting began; `None`: nobody watches.
    began: Option<Instant>,
    /// The tables of each thread that serves sites.
    tables: HashMap<ThreadId, WorkerTables>,
}

/// The tables of a worker; `None` while nobody watches.
type WorkerTables = Arc<Mutex<Option<Box<TrafficTables>>>>;

/// What was counted of some requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// The requests.
    pub requests: u64,
    /// The bytes that were sent, before TLS.
    pub bytes: u64,
    /// The responses by the class of their status, from 1xx to 5xx.
    pub statuses: [u64; 5],
    /// The sum of the times that the requests took; for a node, until the heads of its responses.
    pub time: Duration,
}

/// A client: an IPv4 address, a /64 network of IPv6, or, without an address, who connects to a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficClient(Option<IpAddr>);

/// A path of a site without the query, as clients send it. A long one is cut, and ends with `…`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TrafficPath {
    /// The name of the site.
    pub site: Arc<str>,
    /// The path.
    pub path: Box<str>,
}

/// What was counted on all workers. The most requests come first.
#[derive(Clone, Debug)]
pub struct TrafficReading {
    /// For how long.
    pub time: Duration,
    /// All requests.
    pub total: TrafficCounts,
    /// Sites by name.
    pub sites: Vec<FrequentKey<Arc<str>, TrafficCounts>>,
    /// Nodes of upstream groups, and other origins, by address, with what they responded.
    pub nodes: Vec<FrequentKey<Arc<str>, TrafficCounts>>,
    /// Clients.
    pub clients: Vec<FrequentKey<TrafficClient, TrafficCounts>>,
    /// Paths.
    pub paths: Vec<FrequentKey<TrafficPath, TrafficCounts>>,
}

impl TrafficWatch {
    /// Begins to count anew.
    pub fn begin(&self) {
        let mut workers = self.workers();
        workers.forget_ended();
        workers.began = Some(Instant::now());
        for tables in workers.tables.values() {
            *lock(tables) = Some(Box::default());
        }
        self.0.is_on.store(true, Ordering::Relaxed);
    }

    /// Ends counting, and frees what was counted.
    pub fn end(&self) {
        self.0.is_on.store(false, Ordering::Relaxed);
        let mut workers = self.workers();
        workers.began = None;
        for tables in workers.tables.values() {
            *lock(tables) = None;
        }
        workers.forget_ended();
    }

    /// Whether requests are counted.
    pub fn is_on(&self) -> bool {
        self.0.is_on.load(Ordering::Relaxed)
    }

    /// What was counted since counting began; `None` if requests are not counted.
    pub fn reading(&self) -> Option<TrafficReading> {
        let workers = self.workers();
        let began = workers.began?;
        // A worker waits for a copy of its tables at most.
        let tables = workers.tables.values();
        let tables: Vec<_> = tables.filter_map(|own| lock(own).clone()).collect();
        drop(workers);
        let mut total = TrafficCounts::default();
        for own in &tables {
            total.add(&own.total);
        }
        Some(TrafficReading {
            time: began.elapsed(),
            total,
            sites: merge(tables.iter().map(|own| &own.sites)),
            nodes: merge(tables.iter().map(|own| &own.nodes)),
            clients: merge(tables.iter().map(|own| &own.clients)),
            paths: merge(tables.iter().map(|own| &own.paths)),
        })
    }

    /// What counts on the calling worker. All sites of a worker have the same.
    pub(crate) fn worker(&self) -> WorkerTraffic {
        let mut workers = self.workers();
        let is_on = workers.began.is_some();
        let tables = workers.tables.entry(thread::current().id());
        let tables = tables.or_insert_with(|| {
            let own = is_on.then(Box::default);
            Arc::new(Mutex::new(own))
        });
        WorkerTraffic {
            watch: self.clone(),
            tables: Arc::clone(tables),
        }
    }

    fn workers(&self) -> MutexGuard<'_, WatchedWorkers> {
        lock(&self.0.workers)
    }
}

impl WatchedWorkers {
    /// Forgets the tables of threads that serve no site any more.
    fn forget_ended(&mut self) {
        self.tables.retain(|_, own| Arc::strong_count(own) > 1);
    }
}

impl fmt::Debug for TrafficWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TrafficWatch")
            .field("is_on", &self.is_on())
            .finish_non_exhaustive()
    }
}

/// Counts on one worker.
pub(crate) struct WorkerTraffic {
    watch: TrafficWatch,
    tables: WorkerTables,
}

impl WorkerTraffic {
    /// Whether requests are counted.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.watch.is_on()
    }

    /// Begins to count a request. The returned function is called when its response was sent or aborted.
    pub(crate) fn begin(&self, site: &Arc<str>, request: &Request) -> OnCompletion {
        let client = TrafficClient::of(request.client().ip);
        let path = TrafficPath::of(site, request.original_target().path());
        let tables = Arc::clone(&self.tables);
        Box::new(move |completion| {
            // Nobody waits for it but a reader, who copies the tables.
            if let Some(tables) = &mut *lock(&tables) {
                tables.count((client, path), completion);
            }
        })
    }
}

/// What one worker has counted.
#[derive(Clone)]
struct TrafficTables {
    total: TrafficCounts,
    sites: SpaceSaving<Arc<str>, TrafficCounts>,
    nodes: SpaceSaving<Arc<str>, TrafficCounts>,
    clients: SpaceSaving<TrafficClient, TrafficCounts>,
    paths: SpaceSaving<TrafficPath, TrafficCounts>,
}

impl Default for TrafficTables {
    fn default() -> Self {
        Self {
            total: TrafficCounts::default(),
            sites: SpaceSaving::new(CAPACITY),
            nodes: SpaceSaving::new(CAPACITY),
            clients: SpaceSaving::new(CAPACITY),
            paths: SpaceSaving::new(CAPACITY),
        }
    }
}

impl TrafficTables {
    fn count(&mut self, (client, path): (TrafficClient, TrafficPath), completion: &Completion) {
        let counts = TrafficCounts::of(completion.status, completion.bytes, completion.duration);
        self.total.add(&counts);
        self.sites
            .add(Arc::clone(&path.site), |sum| sum.add(&counts));
        self.clients.add(client, |sum| sum.add(&counts));
        self.paths.add(path, |sum| sum.add(&counts));
        if let Some(origin) = &completion.origin {
            let counts = TrafficCounts::of(origin.status, completion.bytes, origin.duration);
            let address = Arc::clone(&origin.address);
            self.nodes.add(address, |sum| sum.add(&counts));
        }
    }
}

impl TrafficCounts {
    /// One request.
    fn of(status: StatusCode, bytes: u64, time: Duration) -> Self {
        let class = usize::from(status.as_u16() / 100);
        let mut statuses = [0; 5];
        if let Some(count) = class
            .checked_sub(1)
            .and_then(|class| statuses.get_mut(class))
        {
            *count = 1;
        }
        Self {
            requests: 1,
            bytes,
            statuses,
            time,
        }
    }

    fn add(&mut self, other: &Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (sum, count) in self.statuses.iter_mut().zip(other.statuses) {
            *sum = sum.saturating_add(count);
        }
        self.time = self.time.saturating_add(other.time);
    }
}

impl TrafficClient {
    fn of(ip: Option<IpAddr>) -> Self {
        Self(ip.map(|ip| match ip.to_canonical() {
            IpAddr::V4(ip) => ip.into(),
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
        }))
    }
}

impl fmt::Display for TrafficClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Some(IpAddr::V6(ip)) => write!(f, "{ip}/64"),
            None => f.write_str("a Unix socket"),
        }
    }
}

impl TrafficPath {
    fn of(site: &Arc<str>, path: &str) -> Self {
        let path = match path
            .char_indices()
            .find(|(at, c)| at + c.len_utf8() > MAX_PATH)
        {
            Some((end, _)) => format!("{}…", path.get(..end).unwrap_or_default()).into(),
            None => path.into(),
        };
        Self {
            site: Arc::clone(site),
            path,
        }
    }
}

/// What workers have counted, those with most requests first.
fn merge<'a, K: Eq + Hash + Ord + 'a>(
    tables: impl Iterator<Item = &'a SpaceSaving<K, TrafficCounts>>,
) -> Vec<FrequentKey<K, TrafficCounts>> {
    let mut keys = SpaceSaving::merge(tables, TrafficCounts::add);
    // By what was certainly counted: keys that come once have the counts of those whose places they took.
    keys.sort_by(|one, other| {
        let certain = other.value.requests.cmp(&one.value.requests);
        let possible = certain.then(other.count.cmp(&one.count));
        possible.then_with(|| one.key.cmp(&other.key))
    });
    keys.truncate(CAPACITY);
    keys
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_addresses_or_networks_of_ipv6() {
        let shown = |ip: &str| TrafficClient::of(Some(ip.parse().unwrap())).to_string();
        assert_eq!(shown("192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(shown("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
        assert_eq!(TrafficClient::of(None).to_string(), "a Unix socket");
    }

    #[test]
    fn long_paths_are_cut_between_characters() {
        let cut = |path: &str| TrafficPath::of(&"site".into(), path).path.into_string();
        let longest = "/".repeat(MAX_PATH);
        assert_eq!(cut(&longest), longest);
        assert_eq!(cut(&(longest.clone() + "a")), longest.clone() + "…");
        let odd = "/".repeat(MAX_PATH - 1);
        assert_eq!(cut(&(odd.clone() + "é")), odd + "…");
        assert_eq!(cut(""), "");
    }

    #[test]
    fn counting_ends_and_frees_what_was_counted() {
        let watch = TrafficWatch::default();
        let worker = watch.worker();
        assert!(!worker.is_on() && watch.reading().is_none());
        watch.begin();
        assert!(worker.is_on() && lock(&worker.tables).is_some());
        // Another site of the same worker counts in the same tables.
        assert!(Arc::ptr_eq(&worker.tables, &watch.worker().tables));
        watch.end();
        assert!(!worker.is_on() && lock(&worker.tables).is_none());
        assert!(watch.reading().is_none());
        drop(worker);
        watch.begin();
        assert!(watch.workers().tables.is_empty());
    }
}
