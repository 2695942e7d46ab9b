//! One DNS lookup: addresses (RFC 1035, RFC 3596), or services by SRV records (RFC 2782).

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use apus_net::client::Address;
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolverConfig,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::RData;
use tokio::time::timeout;

use crate::group::Target;
use crate::plan::{DnsPlan, Place};

/// How often a resolver is asked within the time of a lookup.
const ATTEMPTS: u32 = 2;

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// In an order that does not depend on that of the answer.
    pub(super) targets: Vec<Target>,
    /// For how long.
    pub(super) ttl: Duration,
}

/// Asks for what a node's place stands for.
///
/// # Errors
/// There is no answer, or one without addresses.
pub(super) async fn lookup(place: &Place, plan: &DnsPlan) -> Result<Found, Box<str>> {
    let looking = async {
        let resolver = resolver(plan)?;
        match place {
            Place::Address(address) => Ok(Found {
                targets: vec![target(address.clone())],
                ttl: plan.max_ttl,
            }),
            Place::Name { host, port } => addresses(&resolver, host, *port).await,
            Place::Service(name) => services(&resolver, name).await,
        }
    };
    let found = match timeout(plan.timeout, looking).await {
        Ok(found) => found.map_err(|error| Box::from(error.to_string())),
        Err(_) => Err("no answer in time".into()),
    };
    let mut found: Found = found?;
    if found.targets.is_empty() {
        return Err("the answer has no addresses".into());
    }
    found.targets.sort_unstable_by_key(|target| {
        let Target {
            address,
            weight,
            backup,
        } = target;
        (*backup, address.to_string(), *weight)
    });
    found.targets.dedup_by(|a, b| a.address == b.address);
    Ok(found)
}

/// A resolver for one lookup: the system's settings may change, and nothing is to be remembered longer
/// than it says.
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
    options.ip_strategy = match plan.ipv6 {
        true => LookupIpStrategy::Ipv4AndIpv6,
        false => LookupIpStrategy::Ipv4Only,
    };
    builder.build()
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let mut connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
    for connection in &mut connections {
        connection.port = address.port();
    }
    NameServerConfig::new(address.ip(), true, connections.into())
}

async fn addresses(resolver: &TokioResolver, host: &str, port: u16) -> Result<Found, NetError> {
    let found = resolver.lookup_ip(host).await?;
    let target_at = |ip: IpAddr| target(Address::Ip(SocketAddr::new(ip, port)));
    Ok(Found {
        targets: found.iter().map(target_at).collect(),
        ttl: left(found.valid_until()),
    })
}

async fn services(resolver: &TokioResolver, name: &str) -> Result<Found, NetError> {
    let found = resolver.srv_lookup(name).await?;
    let services: Vec<_> = found
        .answers()
        .iter()
        .filter_map(|record| match &record.data {
            RData::SRV(service) => Some(service),
            _ => None,
        })
        .collect();
    let best = services.iter().map(|service| service.priority).min();
    let mut all = Found {
        targets: Vec::new(),
        ttl: left(found.valid_until()),
    };
    let mut last_error = None;
    for service in services {
        let host = service.target.to_ascii();
        match addresses(resolver, &host, service.port).await {
            Ok(found) => {
                all.ttl = all.ttl.min(found.ttl);
                all.targets
                    .extend(found.targets.into_iter().map(|target| Target {
                        weight: u32::from(service.weight).max(1),
                        backup: Some(service.priority) != best,
                        ..target
                    }));
            }
            // The others will do.
            Err(error) => last_error = Some(error),
        }
    }
    match last_error {
        Some(error) if all.targets.is_empty() => Err(error),
        _ => Ok(all),
    }
}

fn target(address: Address) -> Target {
    Target {
        address,
        weight: 1,
        backup: false,
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}
