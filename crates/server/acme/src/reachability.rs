//! Whether names point to this machine, before a certificate is ordered for them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use apus_tokens::{Hexadecimal, random_bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::challenges::PendingChallenges;
use crate::dns::DnsLookup;
use crate::issue_error::IssueError;
use crate::names::is_public;
use crate::settings::{ChallengeKind, ManagedCertificate};

/// How long an address may take to respond.
const PROBE_PATIENCE: Duration = Duration::from_secs(4);
/// The most bytes of its response that are read.
const MAX_BYTES: u64 = 4096;
/// The most addresses of a name that are looked at.
const MAX_ADDRESSES: usize = 8;
const HTTP_PORT: u16 = 80;

/// What was found at an address of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressFinding {
    /// It is an address of this machine, or requests to it come here.
    Here,
    /// Another server responds.
    Elsewhere,
    /// Nothing responds.
    Silent {
        /// Whether this machine has a public address of that kind itself, so that no router in front of it can have the
        /// address of the name.
        is_excluded: bool,
    },
}

/// Checks that an authority which looks at the names of a certificate comes to this machine. Where that cannot be known,
/// the authority decides.
pub(crate) async fn check_names(
    managed: &ManagedCertificate,
    challenges: &Arc<PendingChallenges>,
) -> Result<(), IssueError> {
    let settings = &managed.settings;
    let by_dns = settings
        .allowed_challenges()
        .all(|kind| kind == ChallengeKind::Dns);
    if by_dns || settings.skip_dns_check {
        return Ok(());
    }
    let lookup = DnsLookup::new(settings.resolver);
    let names = managed.names.iter();
    for name in names.filter(|name| is_public(name) && !name.starts_with("*.")) {
        match lookup.addresses(name).await {
            Ok(addresses) => check_name(name, &addresses, challenges).await?,
            Err(error) => {
                tracing::debug!(name, %error, "whether a name points here cannot be checked");
            }
        }
    }
    Ok(())
}

async fn check_name(
    name: &str,
    addresses: &[IpAddr],
    challenges: &Arc<PendingChallenges>,
) -> Result<(), IssueError> {
    let [token, value] = [random_text()?, random_text()?];
    let _open = challenges.add_http(&token, &value);
    let mut findings = Vec::new();
    for address in addresses.iter().take(MAX_ADDRESSES) {
        let finding = if is_local(*address) {
            AddressFinding::Here
        } else {
            probe(name, (*address, HTTP_PORT).into(), &token, &value).await
        };
        findings.push((*address, finding));
    }
    judge(name, &findings)
}

fn judge(name: &str, findings: &[(IpAddr, AddressFinding)]) -> Result<(), IssueError> {
    if findings.is_empty() {
        return Err(IssueError::not_ready(format!(
            "{name} has no address in DNS: no certificate is ordered until it points to this machine"
        )));
    }
    let is_here = |(_, finding): &(IpAddr, AddressFinding)| *finding == AddressFinding::Here;
    let others: Vec<String> = findings
        .iter()
        .filter(|finding| !is_here(finding))
        .map(|(address, _)| address.to_string())
        .collect();
    let others = others.join(", ");
    if findings.iter().any(is_here) {
        if !others.is_empty() {
            tracing::warn!(name, others, "a name points to other machines, too");
        }
        return Ok(());
    }
    let is_certain = findings.iter().any(|(_, finding)| {
        matches!(
            finding,
            AddressFinding::Elsewhere | AddressFinding::Silent { is_excluded: true }
        )
    });
    if is_certain {
        Err(IssueError::not_ready(format!(
            "{name} points to {others}, which is not this machine: no certificate is ordered until DNS points here (behind a \
             load balancer, set acme_check_dns = false)"
        )))
    } else {
        tracing::warn!(
            name,
            others,
            "it cannot be known whether a name points to this machine: its addresses do not respond from here"
        );
        Ok(())
    }
}

/// Whether an address is one of this machine.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// Whether packets of this machine to the Internet have a public address as their source. Nothing is sent.
fn has_public_address(is_ipv4: bool) -> bool {
    let (any, target): (IpAddr, IpAddr) = if is_ipv4 {
        (
            Ipv4Addr::UNSPECIFIED.into(),
            Ipv4Addr::new(1, 1, 1, 1).into(),
        )
    } else {
        (
            Ipv6Addr::UNSPECIFIED.into(),
            Ipv6Addr::new(0x2606, 0x4700, 0x4700, 0, 0, 0, 0, 0x1111).into(),
        )
    };
    let local = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((target, 53))?;
        socket.local_addr()
    });
    local.is_ok_and(|local| is_global(local.ip()))
}

fn is_global(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => {
            let [first, second, ..] = address.octets();
            let is_shared = first == 100 && (64..128).contains(&second);
            !(address.is_private()
                || address.is_loopback()
                || address.is_link_local()
                || address.is_unspecified()
                || address.is_documentation()
                || is_shared)
        }
        IpAddr::V6(address) => {
            let [first, ..] = address.segments();
            first & 0xe000 == 0x2000
        }
    }
}

/// Requests a response at an address that only this server gives.
async fn probe(name: &str, address: SocketAddr, token: &str, value: &str) -> AddressFinding {
    let exchange = async {
        let mut stream = TcpStream::connect(address).await?;
        let request = format!(
            "GET /.well-known/acme-challenge/{token} HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.take(MAX_BYTES).read_to_end(&mut response).await?;
        Ok::<_, std::io::Error>(response)
    };
    match tokio::time::timeout(PROBE_PATIENCE, exchange).await {
        Ok(Ok(response)) if contains(&response, value.as_bytes()) => AddressFinding::Here,
        Ok(Ok(response)) if response.starts_with(b"HTTP/") => AddressFinding::Elsewhere,
        _ => AddressFinding::Silent {
            is_excluded: has_public_address(address.is_ipv4()),
        },
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn random_text() -> Result<String, IssueError> {
    let bytes = random_bytes::<16>().map_err(|_| IssueError::new("there are no random numbers"))?;
    Ok(Hexadecimal(&bytes).to_string())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const HERE: AddressFinding = AddressFinding::Here;
    const ELSEWHERE: AddressFinding = AddressFinding::Elsewhere;

    fn silent(is_excluded: bool) -> AddressFinding {
        AddressFinding::Silent { is_excluded }
    }

    fn judged(findings: &[AddressFinding]) -> Result<(), String> {
        let address = IpAddr::from([203, 0, 113, 9]);
        let findings: Vec<_> = findings.iter().map(|finding| (address, *finding)).collect();
        judge("shop.example.com", &findings).map_err(|error| error.to_string())
    }

    #[test]
    fn a_name_that_points_elsewhere_for_certain_is_refused() {
        for here in [&[HERE][..], &[ELSEWHERE, HERE], &[silent(true), HERE]] {
            assert_eq!(judged(here), Ok(()), "{here:?}");
        }
        // A router in front of this machine may have the address, and not send requests back.
        assert_eq!(judged(&[silent(false)]), Ok(()));
        for elsewhere in [
            &[ELSEWHERE][..],
            &[silent(true)],
            &[silent(false), ELSEWHERE],
        ] {
            let error = judged(elsewhere).unwrap_err();
            assert!(error.contains("points to 203.0.113.9"), "{error}");
            assert!(error.contains("acme_check_dns = false"), "{error}");
        }
        assert!(judged(&[]).unwrap_err().contains("no address in DNS"));
    }

    fn probed(respond: impl FnOnce(String) -> String + Send + 'static) -> AddressFinding {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let length = stream.read(&mut request).unwrap();
            let request = String::from_utf8_lossy(&request[..length]).into_owned();
            stream.write_all(respond(request).as_bytes()).unwrap();
        });
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let finding = runtime.block_on(probe("example.com", address, "token", "value-of-here"));
        server.join().unwrap();
        finding
    }

    #[test]
    fn a_server_that_knows_the_response_is_this_one() {
        let here = probed(|request| {
            assert!(
                request.starts_with(
                    "GET /.well-known/acme-challenge/token HTTP/1.1\r\nhost: example.com\r\n"
                ),
                "{request}"
            );
            "HTTP/1.1 200 OK\r\n\r\nvalue-of-here".to_owned()
        });
        assert_eq!(here, HERE);
        let other = probed(|_| "HTTP/1.1 404 Not Found\r\n\r\n".to_owned());
        assert_eq!(other, ELSEWHERE);
        assert!(matches!(
            probed(|_| String::new()),
            AddressFinding::Silent { .. }
        ));
    }

    #[test]
    fn addresses_of_this_machine_and_public_ones_are_known() {
        assert!(is_local(IpAddr::from([127, 0, 0, 1])));
        assert!(!is_local(IpAddr::from([203, 0, 113, 9])));
        let is_public = |text: &str| is_global(text.parse().unwrap());
        for public in ["8.8.8.8", "100.128.0.1", "2606:4700::1"] {
            assert!(is_public(public), "{public}");
        }
        for private in [
            "10.0.0.1",
            "100.64.0.1",
            "169.254.0.1",
            "fe80::1",
            "fd00::1",
        ] {
            assert!(!is_public(private), "{private}");
        }
    }
}
