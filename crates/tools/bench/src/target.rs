//! The URL of a load: its origin, its address, and whether that is this machine; and durations on the command line.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::str::FromStr;
use std::time::Duration;

use http::Uri;

use crate::BenchError;

/// A URL that requests are sent to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchUrl {
    is_tls: bool,
    is_websocket: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl BenchUrl {
    /// Whether the scheme is `ws` or `wss`.
    pub fn is_websocket(&self) -> bool {
        self.is_websocket
    }

    /// Whether the scheme is `https` or `wss`.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The host, without brackets around an IPv6 address.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the default one if the URL has none.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The host and port as in the URL: the value of `Host`.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The path with the query.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Replaces the path with the query.
    pub fn set_path(&mut self, path: String) {
        self.path = path;
    }

    /// `http` or `https`.
    pub fn scheme(&self) -> &'static str {
        if self.is_tls { "https" } else { "http" }
    }

    /// Whether both URLs are of one server, so that they can share connections.
    pub fn has_same_origin(&self, other: &Self) -> bool {
        (self.is_tls, &self.host, self.port) == (other.is_tls, &other.host, other.port)
    }

    /// Resolves the host to its first address. This may ask a name server.
    ///
    /// # Errors
    /// The host has no address.
    pub fn resolve(&self) -> Result<SocketAddr, BenchError> {
        let unknown = |cause: String| BenchError::Unreachable {
            url: self.to_string(),
            cause,
        };
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        found
            .map_err(|error| unknown(format!("the host {} is unknown: {error}", self.host)))?
            .next()
            .ok_or_else(|| unknown(format!("the host {} has no address", self.host)))
    }
}

impl fmt::Display for BenchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match (self.is_websocket, self.is_tls) {
            (false, _) => self.scheme(),
            (true, false) => "ws",
            (true, true) => "wss",
        };
        write!(f, "{scheme}://{}{}", self.authority, self.path)
    }
}

impl FromStr for BenchUrl {
    type Err = InvalidBenchUrl;

    /// Parses an absolute URL. Without a scheme it is `http`.
    fn from_str(text: &str) -> Result<Self, InvalidBenchUrl> {
        let whole = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let (before_fragment, _) = whole.split_once('#').unwrap_or((&whole, ""));
        let uri: Uri = before_fragment.parse().map_err(InvalidBenchUrl::Syntax)?;
        let is_tls = match uri.scheme_str() {
            Some("http" | "ws") => false,
            Some("https" | "wss") => true,
            _ => return Err(InvalidBenchUrl::Scheme),
        };
        let authority = uri.authority().ok_or(InvalidBenchUrl::NoAuthority)?;
        if authority.as_str().contains('@') {
            return Err(InvalidBenchUrl::UserName);
        }
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']');
        if host.is_empty() {
            return Err(InvalidBenchUrl::NoHost);
        }
        Ok(Self {
            is_tls,
            is_websocket: matches!(uri.scheme_str(), Some("ws" | "wss")),
            host: host.to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.to_string(),
            path: uri
                .path_and_query()
                .map_or("/", |path| path.as_str())
                .to_owned(),
        })
    }
}

/// Why a text is no URL of a load.
#[derive(Debug)]
#[non_exhaustive]
pub enum InvalidBenchUrl {
    /// It breaks the grammar of URLs (RFC 3986).
    Syntax(http::uri::InvalidUri),
    /// Its scheme is another one.
    Scheme,
    /// It has no authority.
    NoAuthority,
    /// It has a user name, which would be sent in no request (RFC 9110 section 4.2.4).
    UserName,
    /// Its authority has no host.
    NoHost,
}

impl fmt::Display for InvalidBenchUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = "expected a URL such as http://127.0.0.1:8080/path";
        match self {
            Self::Syntax(error) => write!(f, "{error}; {expected}"),
            Self::Scheme => write!(f, "the scheme must be http, https, ws or wss; {expected}"),
            Self::NoAuthority => f.write_str(expected),
            Self::UserName => f.write_str(
                "a URL with a user name is not accepted; use --header 'authorization: ...'",
            ),
            Self::NoHost => write!(f, "the URL has no host; {expected}"),
        }
    }
}

impl std::error::Error for InvalidBenchUrl {}

/// Whether an address is one of this machine. Sends nothing.
pub(crate) fn is_this_machine(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    // The kernel sends to its own addresses from the same address.
    let any: IpAddr = match ip {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    UdpSocket::bind((any, 0))
        .and_then(|socket| {
            socket.connect((ip, 9))?;
            socket.local_addr()
        })
        .is_ok_and(|own| own.ip() == ip)
}

/// Parses a duration: a number with `ms`, `s`, `m` or `h`; without a unit, seconds.
///
/// # Errors
/// The text is no such duration.
pub fn parse_duration(text: &str) -> Result<Duration, InvalidDuration> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let number: f64 = digits.parse().map_err(|_| InvalidDuration)?;
    let factor = match text.get(digits.len()..) {
        Some("us") => 1e-6,
        Some("ms") => 1e-3,
        Some("" | "s") => 1.0,
        Some("m") => 60.0,
        Some("h") => 3600.0,
        _ => return Err(InvalidDuration),
    };
    Duration::try_from_secs_f64(number * factor).map_err(|_| InvalidDuration)
}

/// The error for a text that is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDuration;

impl fmt::Display for InvalidDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a duration such as 10s, 500ms, 2m or 1h")
    }
}

impl std::error::Error for InvalidDuration {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_urls_apart() {
        let url: BenchUrl = "https://[::1]/a?b#c".parse().unwrap();
        assert_eq!((url.host(), url.port(), url.path()), ("::1", 443, "/a?b"));
        assert_eq!(url.to_string(), "https://[::1]/a?b");
        let url: BenchUrl = "localhost:8080".parse().unwrap();
        assert_eq!((url.is_tls(), url.port(), url.path()), (false, 8080, "/"));
        for wrong in ["", "ftp://a/", "http://", "http://u:p@a/", "http://a b/"] {
            assert!(wrong.parse::<BenchUrl>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn knows_the_addresses_of_this_machine() {
        for own in [
            "127.0.0.1:1",
            "127.9.9.9:1",
            "[::1]:1",
            "0.0.0.0:1",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(is_this_machine(own.parse().unwrap()), "{own}");
        }
        // Addresses for documentation (RFC 5737, RFC 3849) are no machine's.
        for other in ["192.0.2.1:80", "203.0.113.9:80", "[2001:db8::1]:80"] {
            assert!(!is_this_machine(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn parses_durations() {
        for (text, expected) in [
            ("10s", 10_000),
            ("1.5", 1_500),
            ("250ms", 250),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse_duration(text),
                Ok(Duration::from_millis(expected)),
                "{text}"
            );
        }
        for wrong in ["", "s", "-1s", "10 s", "1d", "nan", "inf"] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
