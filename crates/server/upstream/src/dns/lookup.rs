//! One DNS lookup, of addresses (RFC 1035, RFC 3596) or of services by SRV records (RFC 2782).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use apus_client::Address;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use tokio::time::timeout;

use crate::group::ResolvedAddress;
use crate::plan::{DnsPlan, NodeTarget};

/// The number of queries within the time of a lookup.
// A query over UDP may be lost, and a second one has to fit into the time.
const ATTEMPTS: u32 = 2;

/// The addresses of a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LookupResult {
    /// The addresses, in an order that does not depend on the order of the records.
    pub(super) addresses: Vec<ResolvedAddress>,
    /// The time for which they are valid.
    pub(super) ttl: Duration,
}

/// Looks up the addresses of a node's target.
///
/// # Errors
/// There is no response, or one without addresses.
pub(super) async fn lookup(target: &NodeTarget, plan: &DnsPlan) -> Result<LookupResult, Box<str>> {
    let looking = async {
        let resolver = resolver(plan)?;
        match target {
            NodeTarget::Address(address) => Ok(LookupResult {
                addresses: vec![one_address(address.clone())],
                ttl: plan.max_ttl,
            }),
            NodeTarget::Name { host, port } => addresses(&resolver, host, *port).await,
            NodeTarget::Service(name) => services(&resolver, name).await,
        }
    };
    let found = match timeout(plan.timeout, looking).await {
        Ok(found) => found.map_err(|error| Box::<str>::from(error.to_string())),
        Err(_) => Err("no response in time".into()),
    };
    let mut found: LookupResult = found?;
    if found.addresses.is_empty() {
        return Err("the response has no addresses".into());
    }
    // DNS servers rotate their records: without an order, each response would look like a change, and rebuild the
    // group.
    found.addresses.sort_unstable_by_key(|resolved| {
        let ResolvedAddress {
            address,
            weight,
            backup,
        } = resolved;
        (*backup, address.to_string(), *weight)
    });
    found.addresses.dedup_by(|a, b| a.address == b.address);
    Ok(found)
}

/// Creates a resolver for one lookup, because the system's settings may change, and a cache would add to the
/// TTL.
fn resolver(plan: &DnsPlan) -> Result<TokioResolver, NetError> {
    let mut builder = match plan.servers.as_slice() {
        [] => TokioResolver::builder_tokio()?,
        servers => TokioResolver::builder_with_config(
            ResolverConfig::from_parts(None, Vec::new(), servers.iter().map(server).collect()),
            TokioRuntimeProvider::default(),
        ),
    };
    let options = builder.options_mut();
    options.cache_size = 0;
    options.timeout = plan.timeout / ATTEMPTS;
    options.attempts = ATTEMPTS as usize;
    options.ip_strategy = if plan.ipv6 {
        LookupIpStrategy::Ipv4AndIpv6
    } else {
        LookupIpStrategy::Ipv4Only
    };
    builder.build()
}

fn server(address: &SocketAddr) -> NameServerConfig {
    // TCP is for responses that do not fit into a datagram (RFC 7766).
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections.into())
}

async fn addresses(
    resolver: &TokioResolver,
    host: &str,
    port: u16,
) -> Result<LookupResult, NetError> {
    let found = resolver.lookup_ip(host).await?;
    let address_at = |ip: IpAddr| one_address(Address::Ip(SocketAddr::new(ip, port)));
    Ok(LookupResult {
        addresses: found.iter().map(address_at).collect(),
        ttl: time_left(found.valid_until()),
    })
}

async fn services(resolver: &TokioResolver, name: &str) -> Result<LookupResult, NetError> {
    let found = resolver.srv_lookup(name).await?;
    let services: Vec<_> = found
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::SRV(service) => Some(service),
            _ => None,
        })
        .collect();
    // A client must try the targets with the lowest number that it can reach (RFC 2782), so all others are backups.
    let best = services.iter().map(|service| service.priority).min();
    let mut all = LookupResult {
        addresses: Vec::new(),
        ttl: time_left(found.valid_until()),
    };
    let mut last_error = None;
    for service in services {
        let host = service.target.to_ascii();
        match addresses(resolver, &host, service.port).await {
            Ok(found) => {
                all.ttl = all.ttl.min(found.ttl);
                all.addresses
                    .extend(found.addresses.into_iter().map(|resolved| ResolvedAddress {
                        // A weight of 0 is not never, but rarely (RFC 2782).
                        weight: u32::from(service.weight).max(1),
                        backup: Some(service.priority) != best,
                        ..resolved
                    }));
            }
            // The other services may have addresses.
            Err(error) => last_error = Some(error),
        }
    }
    match last_error {
        Some(error) if all.addresses.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn one_address(address: Address) -> ResolvedAddress {
    ResolvedAddress {
        address,
        weight: 1,
        backup: false,
    }
}

fn time_left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
