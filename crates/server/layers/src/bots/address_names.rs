//! The names of addresses by reverse and forward DNS (RFC 1034 section 5.2.1, RFC 1035 section 3.5): what operators of crawlers
//! recommend to tell theirs.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{ConnectionConfig, NameServerConfig, ResolverConfig};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RData;
use tokio::sync::watch;

use super::host_pattern::HostPattern;
use crate::client_network::client_network;

/// The addresses that are remembered: those with names, and as many others, so that others push out none.
const MAX_ADDRESSES: usize = 4096;
/// The look-ups at once, of all workers, and of one client.
const MAX_LOOKUPS: usize = 32;
const MAX_LOOKUPS_OF_CLIENT: usize = 2;
/// The names of an address that are looked at.
const MAX_NAMES: usize = 4;
/// How long a name is remembered, whatever its TTL is.
const MIN_AGE: Duration = Duration::from_secs(600);
const MAX_AGE: Duration = Duration::from_secs(86_400);
/// How long an old name is still valid while it is looked up again, or cannot be.
const GRACE: Duration = Duration::from_secs(3600);
/// How long it is remembered that an address has no name of a bot, and that it could not be looked up.
const NEGATIVE_AGE: Duration = Duration::from_secs(600);
const FAILURE_AGE: Duration = Duration::from_secs(30);
/// The longest time of a look-up.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The queries of a step of it.
const ATTEMPTS: u32 = 2;

/// The names of addresses. All workers share them.
pub(super) struct AddressNames {
    /// The name servers; without any, those of the system.
    servers: Vec<SocketAddr>,
    /// The names that are of interest.
    patterns: Vec<HostPattern>,
    table: Mutex<NameTable>,
}

#[derive(Default)]
struct NameTable {
    named: HashMap<IpAddr, KnownAddress>,
    others: HashMap<IpAddr, KnownAddress>,
    lookups: HashMap<IpAddr, watch::Receiver<()>>,
}

#[derive(Clone)]
struct KnownAddress {
    names: Names,
    until: Duration,
}

/// What is known of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// It has these names of bots, and they have it.
    Confirmed(Arc<[Box<str>]>),
    /// It has no such name.
    None,
    /// DNS does not respond.
    Unknown,
}

/// The names of an address, or how to wait for them.
pub(super) enum NameAnswer {
    Known(Names),
    Wait(watch::Receiver<()>),
}

impl AddressNames {
    pub(super) fn new(servers: Vec<SocketAddr>, patterns: Vec<HostPattern>) -> Self {
        Self {
            servers,
            patterns,
            table: Mutex::default(),
        }
    }

    /// Whether another one looks for the same.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        self.servers == other.servers && self.patterns == other.patterns
    }

    /// Begins with what another one has found.
    pub(super) fn continue_from(&self, other: &Self) {
        if std::ptr::eq(self, other) {
            return;
        }
        let (named, others) = {
            let other = other.lock();
            (other.named.clone(), other.others.clone())
        };
        let mut table = self.lock();
        table.named.extend(named);
        table.others.extend(others);
    }

    /// The names of an address, as they are known now.
    pub(super) fn of(self: &Arc<Self>, address: IpAddr) -> NameAnswer {
        let address = address.to_canonical();
        let now = apus_clock::monotonic();
        let mut table = self.lock();
        if let Some(known) = table.named.get(&address) {
            if now < known.until {
                return NameAnswer::Known(known.names.clone());
            }
            if now < known.until.saturating_add(GRACE) {
                let names = known.names.clone();
                self.begin(address, &mut table);
                return NameAnswer::Known(names);
            }
        }
        if let Some(known) = table.others.get(&address)
            && now < known.until
        {
            return NameAnswer::Known(known.names.clone());
        }
        match self.begin(address, &mut table) {
            Some(lookup) => NameAnswer::Wait(lookup),
            // Nobody waits for others: the next request may find a place.
            None => NameAnswer::Known(Names::Unknown),
        }
    }

    /// Begins a look-up, unless one is under way. `None`: there are too many.
    fn begin(
        self: &Arc<Self>,
        address: IpAddr,
        table: &mut NameTable,
    ) -> Option<watch::Receiver<()>> {
        // The sender of one that has ended is gone.
        table
            .lookups
            .retain(|_, lookup| lookup.has_changed().is_ok());
        if let Some(lookup) = table.lookups.get(&address) {
            return Some(lookup.clone());
        }
        let now = apus_clock::monotonic();
        let is_tried = |known: &KnownAddress| now < known.until;
        if table.others.get(&address).is_some_and(is_tried) {
            return None;
        }
        let client = client_network(address);
        let lookups = table.lookups.keys();
        let of_client = lookups.filter(|other| client_network(**other) == client);
        if of_client.count() >= MAX_LOOKUPS_OF_CLIENT || table.lookups.len() >= MAX_LOOKUPS {
            return None;
        }
        let (sender, receiver) = watch::channel(());
        table.lookups.insert(address, receiver.clone());
        let this = Arc::clone(self);
        tokio::task::spawn_local(async move {
            let found = tokio::time::timeout(TIMEOUT, this.look_up(address)).await;
            let (names, age) = match found {
                Ok(Ok((names, ttl))) if names.is_empty() => (Names::None, ttl.min(NEGATIVE_AGE)),
                Ok(Ok((names, ttl))) => (Names::Confirmed(names.into()), ttl),
                Ok(Err(error)) if is_absent(&error) => (Names::None, NEGATIVE_AGE),
                Ok(Err(error)) => {
                    tracing::debug!(%address, %error, "cannot look up the name of a bot");
                    (Names::Unknown, FAILURE_AGE)
                }
                Err(_) => (Names::Unknown, FAILURE_AGE),
            };
            this.lock().remember(address, names, age);
            drop(sender);
        });
        Some(receiver)
    }

    /// The names of an address that are of bots and have the address, and for how long.
    async fn look_up(&self, address: IpAddr) -> Result<(Vec<Box<str>>, Duration), NetError> {
        let resolver = self.resolver()?;
        let reverse = resolver.reverse_lookup(address).await?;
        let mut until = reverse.valid_until();
        let names = reverse
            .answers()
            .iter()
            .filter_map(|record| match &record.data {
                RData::PTR(name) => {
                    Some(name.to_ascii().trim_end_matches('.').to_ascii_lowercase())
                }
                _ => None,
            });
        let names = names.filter(|name| self.patterns.iter().any(|pattern| pattern.matches(name)));
        let mut confirmed = Vec::new();
        for name in names.take(MAX_NAMES) {
            // With a dot at its end it is looked up as it is.
            match resolver.lookup_ip(format!("{name}.").as_str()).await {
                Ok(found) if found.iter().any(|one| one.to_canonical() == address) => {
                    until = until.min(found.valid_until());
                    confirmed.push(name.into());
                }
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let ttl = until.saturating_duration_since(Instant::now());
        Ok((confirmed, ttl.clamp(MIN_AGE, MAX_AGE)))
    }

    /// A resolver for one look-up, as the settings of the system may change.
    fn resolver(&self) -> Result<TokioResolver, NetError> {
        let mut builder = match self.servers.as_slice() {
            [] => TokioResolver::builder_tokio()?,
            servers => TokioResolver::builder_with_config(
                ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect()),
                TokioRuntimeProvider::default(),
            ),
        };
        let options = builder.options_mut();
        options.cache_size = 0;
        options.timeout = TIMEOUT / (2 * ATTEMPTS);
        options.attempts = ATTEMPTS as usize;
        builder.build()
    }

    fn lock(&self) -> MutexGuard<'_, NameTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl NameTable {
    fn remember(&mut self, address: IpAddr, names: Names, age: Duration) {
        let now = apus_clock::monotonic();
        let table = match &names {
            Names::Confirmed(_) => {
                self.others.remove(&address);
                &mut self.named
            }
            Names::None => {
                self.named.remove(&address);
                &mut self.others
            }
            Names::Unknown => &mut self.others,
        };
        if table.len() >= MAX_ADDRESSES && !table.contains_key(&address) {
            table.retain(|_, known| now < known.until);
        }
        if table.len() >= MAX_ADDRESSES && !table.contains_key(&address) {
            let first = table.iter().min_by_key(|(_, known)| known.until);
            if let Some(first) = first.map(|(address, _)| *address) {
                table.remove(&first);
            }
        }
        let until = now.saturating_add(age);
        table.insert(address, KnownAddress { names, until });
    }
}

fn server(address: &SocketAddr) -> NameServerConfig {
    // TCP is for responses that do not fit into a datagram (RFC 7766).
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// Whether DNS says that there is nothing, unlike a server that cannot say it.
fn is_absent(error: &NetError) -> bool {
    matches!(
        error,
        NetError::Dns(DnsError::NoRecordsFound(NoRecords {
            response_code: ResponseCode::NoError | ResponseCode::NXDomain,
            ..
        }))
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_without_a_name_push_out_none_with_one() {
        let mut table = NameTable::default();
        let bot = IpAddr::from([192, 0, 2, 1]);
        let names = Names::Confirmed(["a.example".into()].into());
        table.remember(bot, names.clone(), MAX_AGE);
        for number in 0..10_000 {
            let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
            let names = if number % 2 == 0 {
                Names::None
            } else {
                Names::Unknown
            };
            table.remember(address, names, NEGATIVE_AGE);
        }
        assert_eq!((table.named.len(), table.others.len()), (1, MAX_ADDRESSES));
        // A failure leaves the name, and the end of it does not.
        table.remember(bot, Names::Unknown, FAILURE_AGE);
        assert_eq!(table.named[&bot].names, names);
        table.remember(bot, Names::None, NEGATIVE_AGE);
        assert!(table.named.is_empty());
        for number in 0..10_000 {
            let address = IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + number));
            table.remember(address, names.clone(), MIN_AGE);
        }
        assert_eq!(table.named.len(), MAX_ADDRESSES);
    }
}
