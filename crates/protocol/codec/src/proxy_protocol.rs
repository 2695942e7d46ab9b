//! Parses and writes the PROXY protocol header, versions 1 and 2 (HAProxy's `doc/proxy-protocol.txt`).
//!
//! The header sets the client's address, so it may only be parsed on connections from trusted senders.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use apus_http::{Peer, Request};

/// The addresses of the connection between the client and the proxy. IPv4-mapped IPv6 addresses are
/// converted to IPv4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyHeader {
    /// The client; `None` if the connection is the sender's own, as for a health check, or the client did
    /// not connect over TCP.
    pub source: Option<SocketAddr>,
    /// The address that the client connected to; set if `source` is.
    pub destination: Option<SocketAddr>,
}

impl ProxyHeader {
    /// The header that sends the client of this request, as trusted proxies named it, to an origin.
    pub fn of(request: &Request) -> Self {
        match (request.client().peer(), request.connection().local) {
            (Peer::Ip(source), Peer::Ip(destination)) => Self {
                source: Some(source),
                destination: Some(destination),
            },
            _ => Self::default(),
        }
    }
}

/// The connection does not start with a PROXY protocol header: the sender is not configured to send one,
/// or is not a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidProxyHeader;

impl fmt::Display for InvalidProxyHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the connection must start with a PROXY protocol header of version 1 or 2")
    }
}

impl std::error::Error for InvalidProxyHeader {}

/// A version of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

const V1_START: &[u8] = b"PROXY ";
/// Maximum bytes of a version 1 header, including CRLF.
// The specification counts the longest line: two IPv6 addresses and two ports of five digits.
const V1_MAX_BYTES: usize = 107;
const V2_START: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Maximum accepted bytes of a version 2 header: two Unix socket addresses, and the type-length-value
/// vectors that senders add in practice.
const V2_MAX_BYTES: usize = 536;

/// Parses the header at the start of a connection. Returns its length with it; `None` if it is
/// incomplete, and the next `input` has to start with the same bytes.
///
/// # Errors
/// There is no header, or it is longer than 107 bytes (version 1) or 536 bytes (version 2).
pub fn parse(input: &[u8]) -> Result<Option<(usize, ProxyHeader)>, InvalidProxyHeader> {
    if input.starts_with(V1_START) {
        parse_v1(input)
    } else if input.starts_with(V2_START) {
        parse_v2(input)
    // Any other first byte ends the connection at once: behind a proxy, a client without the header would otherwise be
    // taken for the proxy.
    } else if V1_START.starts_with(input) || V2_START.starts_with(input) {
        Ok(None)
    } else {
        Err(InvalidProxyHeader)
    }
}

fn parse_v1(input: &[u8]) -> Result<Option<(usize, ProxyHeader)>, InvalidProxyHeader> {
    let window = input.get(..V1_MAX_BYTES).unwrap_or(input);
    let Some(end) = memchr::memchr(b'\n', window) else {
        return if window.len() < V1_MAX_BYTES {
            Ok(None)
        } else {
            Err(InvalidProxyHeader)
        };
    };
    let line = window
        .get(V1_START.len()..end)
        .and_then(|line| line.strip_suffix(b"\r"))
        .filter(|line| line.iter().all(|byte| matches!(byte, b' '..=b'~')))
        .and_then(|line| std::str::from_utf8(line).ok())
        .ok_or(InvalidProxyHeader)?;
    let header = match line.split_once(' ') {
        Some(("TCP4", rest)) => v1_addresses::<Ipv4Addr>(rest)?,
        Some(("TCP6", rest)) => v1_addresses::<Ipv6Addr>(rest)?,
        // The rest of the line after UNKNOWN has to be ignored.
        Some(("UNKNOWN", _)) => ProxyHeader::default(),
        None if line == "UNKNOWN" => ProxyHeader::default(),
        _ => return Err(InvalidProxyHeader),
    };
    Ok(Some((end.saturating_add(1), header)))
}

fn v1_addresses<A>(text: &str) -> Result<ProxyHeader, InvalidProxyHeader>
where
    A: std::str::FromStr + Into<IpAddr>,
{
    let mut words = text.split(' ');
    let [source, destination] =
        [(); 2].map(|()| words.next().and_then(|word| word.parse::<A>().ok()));
    let [source_port, destination_port] = [(); 2].map(|()| words.next().and_then(port));
    match (
        source,
        destination,
        source_port,
        destination_port,
        words.next(),
    ) {
        (Some(source), Some(destination), Some(source_port), Some(destination_port), None) => {
            Ok(ProxyHeader {
                source: Some(address(source, source_port)),
                destination: Some(address(destination, destination_port)),
            })
        }
        _ => Err(InvalidProxyHeader),
    }
}

/// A port without a sign or leading zeros.
fn port(text: &str) -> Option<u16> {
    // `u16::from_str` takes a plus sign, which the specification does not.
    let canonical = text == "0" || text.starts_with(|first: char| matches!(first, '1'..='9'));
    text.parse().ok().filter(|_| canonical)
}

fn parse_v2(input: &[u8]) -> Result<Option<(usize, ProxyHeader)>, InvalidProxyHeader> {
    let mut rest = input.get(V2_START.len()..).unwrap_or_default();
    // An invalid header is rejected as early as possible, not only once it is complete.
    let Some([version_command]) = take(&mut rest) else {
        return Ok(None);
    };
    let is_proxied = match version_command {
        // LOCAL: a health check of the proxy itself, to which the addresses of the connection apply.
        0x20 => false,
        0x21 => true,
        _ => return Err(InvalidProxyHeader),
    };
    let Some([family]) = take(&mut rest) else {
        return Ok(None);
    };
    let Some(length) = take(&mut rest).map(u16::from_be_bytes) else {
        return Ok(None);
    };
    let header_len = V2_START
        .len()
        .saturating_add(4)
        .saturating_add(length.into());
    // The bytes of the addresses of TCP over IPv4, TCP over IPv6, Unix sockets, and unknown.
    let min_length = match family {
        _ if !is_proxied => 0,
        0x11 => 12,
        0x21 => 36,
        0x31 => 216,
        0x00 => 0,
        _ => return Err(InvalidProxyHeader),
    };
    if length < min_length || header_len > V2_MAX_BYTES {
        return Err(InvalidProxyHeader);
    }
    if input.len() < header_len {
        return Ok(None);
    }
    let header = match family {
        0x11 if is_proxied => v2_addresses::<4, Ipv4Addr>(rest),
        0x21 if is_proxied => v2_addresses::<16, Ipv6Addr>(rest),
        _ => Some(ProxyHeader::default()),
    };
    header
        .map(|header| Some((header_len, header)))
        .ok_or(InvalidProxyHeader)
}

fn v2_addresses<const BYTES: usize, A>(mut rest: &[u8]) -> Option<ProxyHeader>
where
    A: From<[u8; BYTES]> + Into<IpAddr>,
{
    let source = A::from(take(&mut rest)?);
    let destination = A::from(take(&mut rest)?);
    let source_port = take(&mut rest).map(u16::from_be_bytes)?;
    let destination_port = take(&mut rest).map(u16::from_be_bytes)?;
    Some(ProxyHeader {
        source: Some(address(source, source_port)),
        destination: Some(address(destination, destination_port)),
    })
}

fn take<const BYTES: usize>(rest: &mut &[u8]) -> Option<[u8; BYTES]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

fn address(ip: impl Into<IpAddr>, port: u16) -> SocketAddr {
    // Rules for `192.0.2.1` have to match `::ffff:192.0.2.1`, or a client would get around them by the form of its
    // address.
    SocketAddr::new(ip.into().to_canonical(), port)
}

/// Appends the header with these addresses. Without them it says that the addresses of the connection
/// itself apply.
pub fn write(version: Version, header: &ProxyHeader, out: &mut Vec<u8>) {
    let addresses = match (header.source, header.destination) {
        (Some(source), Some(destination)) => Some(Addresses::new(source, destination)),
        _ => None,
    };
    match version {
        Version::V1 => write_v1(addresses, out),
        Version::V2 => write_v2(addresses, out),
    }
}

/// Two addresses of one family, and their ports.
#[derive(Clone, Copy)]
enum Addresses {
    V4([Ipv4Addr; 2], [u16; 2]),
    V6([Ipv6Addr; 2], [u16; 2]),
}

impl Addresses {
    fn new(source: SocketAddr, destination: SocketAddr) -> Self {
        let ports = [source.port(), destination.port()];
        match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Self::V4([source, destination], ports),
            addresses => Self::V6([v6(addresses.0), v6(addresses.1)], ports),
        }
    }
}

fn v6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn write_v1(addresses: Option<Addresses>, out: &mut Vec<u8>) {
    let line = match addresses {
        Some(Addresses::V4([source, destination], [from, to])) => {
            format!("PROXY TCP4 {source} {destination} {from} {to}\r\n")
        }
        Some(Addresses::V6([source, destination], [from, to])) => {
            format!("PROXY TCP6 {source} {destination} {from} {to}\r\n")
        }
        None => "PROXY UNKNOWN\r\n".to_owned(),
    };
    out.extend_from_slice(line.as_bytes());
}

fn write_v2(addresses: Option<Addresses>, out: &mut Vec<u8>) {
    out.extend_from_slice(V2_START);
    let ports = match addresses {
        Some(Addresses::V4(addresses, ports)) => {
            out.extend_from_slice(&[0x21, 0x11, 0, 12]);
            for address in addresses {
                out.extend_from_slice(&address.octets());
            }
            ports
        }
        Some(Addresses::V6(addresses, ports)) => {
            out.extend_from_slice(&[0x21, 0x21, 0, 36]);
            for address in addresses {
                out.extend_from_slice(&address.octets());
            }
            ports
        }
        None => return out.extend_from_slice(&[0x20, 0x00, 0, 0]),
    };
    for port in ports {
        out.extend_from_slice(&port.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(source: &str, destination: &str) -> ProxyHeader {
        ProxyHeader {
            source: Some(source.parse().unwrap()),
            destination: Some(destination.parse().unwrap()),
        }
    }

    fn v2(version_command: u8, family: u8, content: &[u8]) -> Vec<u8> {
        let length = u16::try_from(content.len()).unwrap().to_be_bytes();
        [V2_START, &[version_command, family], &length, content].concat()
    }

    const TCP4: [u8; 12] = [192, 0, 2, 1, 198, 51, 100, 2, 0x1f, 0x90, 0x01, 0xbb];

    #[test]
    fn reads_version_1() {
        for (line, expected) in [
            (
                "PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n",
                header("192.0.2.1:8080", "198.51.100.2:443"),
            ),
            (
                "PROXY TCP6 2001:db8::1 ::1 65535 0\r\n",
                header("[2001:db8::1]:65535", "[::1]:0"),
            ),
            (
                "PROXY TCP6 ::ffff:192.0.2.1 ::1 1 2\r\n",
                header("192.0.2.1:1", "[::1]:2"),
            ),
            ("PROXY UNKNOWN\r\n", ProxyHeader::default()),
            ("PROXY UNKNOWN ::1 junk 0 0 0\r\n", ProxyHeader::default()),
        ] {
            let input = format!("{line}GET /");
            assert_eq!(parse(input.as_bytes()), Ok(Some((line.len(), expected))));
        }
    }

    #[test]
    fn reads_version_2() {
        let tcp4 = header("192.0.2.1:8080", "198.51.100.2:443");
        let mut tcp6 = [0; 36];
        tcp6[15] = 1;
        tcp6[31] = 2;
        tcp6[33] = 3;
        tcp6[35] = 4;
        let with_vector = [&TCP4[..], b"\x04\x00\x01\x00"].concat();
        for (input, expected) in [
            (v2(0x21, 0x11, &TCP4), tcp4),
            (v2(0x21, 0x11, &with_vector), tcp4),
            (v2(0x21, 0x21, &tcp6), header("[::1]:3", "[::2]:4")),
            (v2(0x21, 0x31, &[0; 216]), ProxyHeader::default()),
            (v2(0x21, 0x00, &[]), ProxyHeader::default()),
            (v2(0x20, 0x00, &[]), ProxyHeader::default()),
            (v2(0x20, 0x11, &TCP4), ProxyHeader::default()),
        ] {
            let len = input.len();
            assert_eq!(
                parse(&[&input, &b"GET"[..]].concat()),
                Ok(Some((len, expected)))
            );
        }
    }

    #[test]
    fn waits_for_the_rest_of_a_head() {
        for whole in [
            b"PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n".to_vec(),
            v2(0x21, 0x11, &TCP4),
        ] {
            for end in 0..whole.len() {
                assert_eq!(parse(&whole[..end]), Ok(None), "{end}");
            }
        }
    }

    #[test]
    fn reads_what_it_writes() {
        for (written, read) in [
            (
                header("192.0.2.1:8080", "198.51.100.2:443"),
                header("192.0.2.1:8080", "198.51.100.2:443"),
            ),
            (
                header("[2001:db8::1]:65535", "[::2]:0"),
                header("[2001:db8::1]:65535", "[::2]:0"),
            ),
            (
                header("[::ffff:192.0.2.1]:1", "198.51.100.2:2"),
                header("192.0.2.1:1", "198.51.100.2:2"),
            ),
            (
                header("192.0.2.1:1", "[::2]:2"),
                header("192.0.2.1:1", "[::2]:2"),
            ),
            (ProxyHeader::default(), ProxyHeader::default()),
        ] {
            for version in [Version::V1, Version::V2] {
                let mut out = Vec::new();
                write(version, &written, &mut out);
                assert_eq!(parse(&out), Ok(Some((out.len(), read))), "{version:?}");
            }
        }
    }

    #[test]
    fn writes_both_versions_as_specified() {
        let addresses = header("192.0.2.1:8080", "198.51.100.2:443");
        let mut out = Vec::new();
        write(Version::V1, &addresses, &mut out);
        assert_eq!(out, b"PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n");
        out.clear();
        write(Version::V2, &addresses, &mut out);
        assert_eq!(out, v2(0x21, 0x11, &TCP4));
        out.clear();
        write(Version::V2, &ProxyHeader::default(), &mut out);
        assert_eq!(out, v2(0x20, 0x00, &[]));
    }

    #[test]
    fn rejects_version_1_that_is_not_exact() {
        for line in [
            "GET / HTTP/1.1\r\n",
            "PROXY\r\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.2 8080 443\r\n",
            "PROXY TCP4 192.0.2.1  198.51.100.2 8080 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 8080 443 \r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 8080\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 08080 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 +8080 443\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.2 65536 443\r\n",
            "PROXY TCP4 192.0.2.01 198.51.100.2 1 2\r\n",
            "PROXY TCP4 ::1 ::1 1 2\r\n",
            "PROXY TCP6 192.0.2.1 ::1 1 2\r\n",
            "PROXY TCP6 fe80::1%eth0 ::1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.2 1 2\r\n",
            "PROXY UNKNOWN\n",
            "PROXY UNKNOWN\0\r\n",
            "PROXY UNKNOWNS\r\n",
        ] {
            assert_eq!(parse(line.as_bytes()), Err(InvalidProxyHeader), "{line:?}");
        }
        let long = format!("PROXY UNKNOWN {}", "x".repeat(V1_MAX_BYTES));
        assert_eq!(parse(long.as_bytes()), Err(InvalidProxyHeader));
    }

    #[test]
    fn rejects_version_2_that_is_not_exact() {
        for input in [
            v2(0x11, 0x11, &TCP4),
            v2(0x22, 0x11, &TCP4),
            v2(0x21, 0x12, &TCP4),
            v2(0x21, 0x41, &TCP4),
            v2(0x21, 0x11, &TCP4[..11]),
            v2(0x21, 0x21, &TCP4),
            v2(0x21, 0x31, &TCP4),
            v2(0x20, 0x00, &[0; V2_MAX_BYTES]),
        ] {
            assert_eq!(parse(&input), Err(InvalidProxyHeader), "{input:x?}");
        }
    }
}
