//! DNS lookups of challenges: CNAME delegation, the zone of a name, and what the authoritative name servers have.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use hickory_proto::op::{Message, Query, ResponseCode};
use hickory_proto::rr::{Name, RData, RecordType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::Instant;

use crate::issue_error::IssueError;

/// How long a name server may take for one response.
const QUERY_PATIENCE: Duration = Duration::from_secs(4);
/// How long the authoritative name servers may take until they have a record.
const PROPAGATION_PATIENCE: Duration = Duration::from_secs(180);
/// The interval in which they are asked.
const PROPAGATION_INTERVAL: Duration = Duration::from_secs(1);
/// The most CNAME records that are followed.
const LONGEST_CHAIN: usize = 8;
/// The most addresses of name servers that are asked.
const MAX_SERVERS: usize = 16;
const DNS_PORT: u16 = 53;

/// Lookups through one recursive resolver.
#[derive(Debug)]
pub(crate) struct DnsLookup {
    resolver: SocketAddr,
}

impl DnsLookup {
    /// Through this resolver, or the one of the system. Name servers are asked at the port of the resolver.
    pub(crate) fn new(resolver: Option<SocketAddr>) -> Self {
        let resolver = resolver.or_else(system_resolver);
        Self {
            resolver: resolver.unwrap_or((Ipv4Addr::LOCALHOST, DNS_PORT).into()),
        }
    }

    /// The name that CNAME records delegate `name` to, or itself. A failure is no delegation: the record may be missing.
    pub(super) async fn delegated(&self, name: &str) -> String {
        let mut current = name.to_owned();
        for _ in 0..LONGEST_CHAIN {
            let Ok(asked) = parse_name(&current) else {
                break;
            };
            let Ok(response) = query(self.resolver, asked, RecordType::CNAME).await else {
                break;
            };
            let next = response
                .answers
                .iter()
                .find_map(|record| match &record.data {
                    RData::CNAME(target) if is_same(&record.name, &current) => {
                        Some(plain(&target.0))
                    }
                    _ => None,
                });
            match next {
                Some(next) => current = next,
                None => break,
            }
        }
        current
    }

    /// The addresses of a name.
    pub(crate) async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, IssueError> {
        let asked = parse_name(name)?;
        let mut addresses = Vec::new();
        let mut failure = None;
        for record_type in [RecordType::A, RecordType::AAAA] {
            match query(self.resolver, asked.clone(), record_type).await {
                Ok(response) => addresses.extend(addresses_in(&response)),
                Err(error) => failure = Some(error),
            }
        }
        match (addresses.is_empty(), failure) {
            (true, Some(error)) => Err(error),
            _ => Ok(addresses),
        }
    }

    /// The zone of a name, by the name server that is authoritative for it.
    pub(super) async fn zone_at(&self, server: SocketAddr, name: &str) -> Result<Name, IssueError> {
        zone(server, name).await?.ok_or_else(|| {
            IssueError::new(format!("the name server {server} has no zone for {name}"))
        })
    }

    /// Waits until all authoritative name servers of the zone have a TXT record.
    pub(super) async fn wait_until_visible(
        &self,
        name: &str,
        value: &str,
    ) -> Result<(), IssueError> {
        let servers = self.authoritative(name).await;
        if servers.is_empty() {
            tracing::warn!(
                name,
                "the name servers of a challenge are not found: whether they have its record is not checked"
            );
            return Ok(());
        }
        let asked = parse_name(name)?;
        let begun = Instant::now();
        let mut late = servers;
        loop {
            let mut still_late = Vec::new();
            let mut was_reached = false;
            for server in late {
                match query(server, asked.clone(), RecordType::TXT).await {
                    Ok(response) if has_value(&response, value) => was_reached = true,
                    Ok(_) => {
                        was_reached = true;
                        still_late.push(server);
                    }
                    Err(error) => {
                        tracing::debug!(%server, %error, "a name server cannot be asked");
                        still_late.push(server);
                    }
                }
            }
            if still_late.is_empty() {
                return Ok(());
            }
            if begun.elapsed() > PROPAGATION_PATIENCE {
                let servers: Vec<_> = still_late.iter().map(ToString::to_string).collect();
                let servers = servers.join(", ");
                if !was_reached {
                    // They may be reachable for the authority all the same.
                    tracing::warn!(name, servers, "name servers cannot be asked for a record");
                    return Ok(());
                }
                return Err(IssueError::new(format!(
                    "{name}: the name servers {servers} do not have the TXT record after {} seconds",
                    PROPAGATION_PATIENCE.as_secs()
                )));
            }
            late = still_late;
            tokio::time::sleep(PROPAGATION_INTERVAL).await;
        }
    }

    /// The addresses of the name servers of the zone of a name.
    async fn authoritative(&self, name: &str) -> Vec<SocketAddr> {
        let Ok(Some(zone)) = zone(self.resolver, name).await else {
            return Vec::new();
        };
        let Ok(response) = query(self.resolver, zone, RecordType::NS).await else {
            return Vec::new();
        };
        let names = response
            .answers
            .iter()
            .filter_map(|record| match &record.data {
                RData::NS(server) => Some(server.0.clone()),
                _ => None,
            });
        let mut servers = Vec::new();
        for name in names {
            for record_type in [RecordType::A, RecordType::AAAA] {
                let Ok(response) = query(self.resolver, name.clone(), record_type).await else {
                    continue;
                };
                let port = self.resolver.port();
                servers
                    .extend(addresses_in(&response).map(|address| SocketAddr::new(address, port)));
            }
        }
        servers.truncate(MAX_SERVERS);
        servers
    }
}

/// The zone of a name, as this name server sees it: the owner of the SOA record of the name, or of the closest parent.
async fn zone(server: SocketAddr, name: &str) -> Result<Option<Name>, IssueError> {
    let mut current = parse_name(name)?;
    while !current.is_root() {
        let response = query(server, current.clone(), RecordType::SOA).await?;
        let records = response.answers.iter().chain(&response.authorities);
        let found = records
            .filter(|record| matches!(record.data, RData::SOA(_)))
            .find(|record| record.name.zone_of(&current));
        if let Some(record) = found {
            return Ok(Some(record.name.clone()));
        }
        current = current.base_name();
    }
    Ok(None)
}

fn addresses_in(response: &Message) -> impl Iterator<Item = IpAddr> {
    response
        .answers
        .iter()
        .filter_map(|record| match &record.data {
            RData::A(address) => Some(IpAddr::from(address.0)),
            RData::AAAA(address) => Some(IpAddr::from(address.0)),
            _ => None,
        })
}

fn has_value(response: &Message, value: &str) -> bool {
    response.answers.iter().any(|record| match &record.data {
        RData::TXT(text) => text.txt_data.concat() == value.as_bytes(),
        _ => false,
    })
}

/// The response of a name server, by UDP, and by TCP if that is too small or gets lost.
async fn query(
    server: SocketAddr,
    name: Name,
    record_type: RecordType,
) -> Result<Message, IssueError> {
    let mut message = Message::query();
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(name.clone(), record_type));
    let bytes = message
        .to_vec()
        .map_err(|error| IssueError::new(error.to_string()))?;
    let id = message.metadata.id;
    let by_udp = tokio::time::timeout(QUERY_PATIENCE, exchange_udp(server, &bytes, id)).await;
    let response = match by_udp {
        Ok(Ok(response)) if !response.metadata.truncation => response,
        _ => {
            let received = exchange(server, &bytes).await?;
            Message::from_vec(&received)
                .map_err(|error| IssueError::new(format!("the name server {server}: {error}")))?
        }
    };
    match response.metadata.response_code {
        ResponseCode::NoError | ResponseCode::NXDomain => Ok(response),
        code => Err(IssueError::new(format!(
            "the name server {server} does not say what {name} is: {code}"
        ))),
    }
}

async fn exchange_udp(server: SocketAddr, bytes: &[u8], id: u16) -> std::io::Result<Message> {
    let local: SocketAddr = if server.is_ipv4() {
        (Ipv4Addr::UNSPECIFIED, 0).into()
    } else {
        (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buffer = vec![0; 4096];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let received = buffer.get(..length).unwrap_or_default();
        // Others may send here, too.
        if let Ok(message) = Message::from_vec(received)
            && message.metadata.id == id
        {
            return Ok(message);
        }
    }
}

/// Sends a message by TCP (RFC 1035 section 4.2.2), and returns the response.
pub(super) async fn exchange(server: SocketAddr, bytes: &[u8]) -> Result<Vec<u8>, IssueError> {
    let exchange = async {
        let mut stream = TcpStream::connect(server).await?;
        let length = u16::try_from(bytes.len()).map_err(std::io::Error::other)?;
        stream
            .write_all(&[&length.to_be_bytes()[..], bytes].concat())
            .await?;
        let length = stream.read_u16().await?;
        let mut response = vec![0; usize::from(length)];
        stream.read_exact(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    match tokio::time::timeout(QUERY_PATIENCE, exchange).await {
        Ok(Ok(response)) => Ok(response),
        Ok(Err(error)) => Err(IssueError::new(format!(
            "the name server {server}: {error}"
        ))),
        Err(_) => Err(IssueError::new(format!(
            "the name server {server} does not respond"
        ))),
    }
}

/// A name with its final dot.
pub(super) fn parse_name(name: &str) -> Result<Name, IssueError> {
    let mut parsed = Name::from_ascii(name)
        .map_err(|error| IssueError::new(format!("`{name}` is no name in DNS: {error}")))?;
    parsed.set_fqdn(true);
    Ok(parsed)
}

/// A name without its final dot.
fn plain(name: &Name) -> String {
    name.to_ascii().trim_end_matches('.').to_ascii_lowercase()
}

fn is_same(name: &Name, text: &str) -> bool {
    plain(name).eq_ignore_ascii_case(text.trim_end_matches('.'))
}

/// The first name server of `/etc/resolv.conf`.
fn system_resolver() -> Option<SocketAddr> {
    let text = std::fs::read_to_string("/etc/resolv.conf").ok()?;
    text.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let address = (words.next()? == "nameserver").then(|| words.next())??;
        let address: IpAddr = address.split('%').next()?.parse().ok()?;
        Some(SocketAddr::new(address, DNS_PORT))
    })
}
