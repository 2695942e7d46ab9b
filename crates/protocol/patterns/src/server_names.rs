//! Server names, and the lookup of the site of a host.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use crate::host_name::canonical_host_name;
use crate::regex_name::{InvalidNameRegex, NameRegex};

/// A server name of a site: `example.com`, `*.example.com`, `www.example.*` or `~regex`.
///
/// An exact name has priority over the longest leading wildcard, which has priority over the longest trailing
/// wildcard, which has priority over the first regular expression, in the order in which sites were added.
#[derive(Clone, Debug)]
pub struct ServerName(ServerNameKind);

#[derive(Clone, Debug)]
enum ServerNameKind {
    Exact(Box<str>),
    /// `example.com` of `*.example.com`.
    Leading(Box<str>),
    /// `www.example` of `www.example.*`.
    Trailing(Box<str>),
    Regex(NameRegex),
}

impl FromStr for ServerName {
    type Err = InvalidServerName;

    fn from_str(text: &str) -> Result<Self, InvalidServerName> {
        if let Some(pattern) = text.strip_prefix('~') {
            return NameRegex::parse(pattern)
                .map(|regex| Self(ServerNameKind::Regex(regex)))
                .map_err(InvalidServerName::Regex);
        }
        if !cfg!(feature = "idna") && !text.is_ascii() {
            return Err(InvalidServerName::NotAscii);
        }
        let name = canonical_host_name(text).ok_or(InvalidServerName::Host)?;
        if let Some(rest) = name.strip_prefix("*.") {
            return host_name(rest).map(|rest| Self(ServerNameKind::Leading(rest)));
        }
        if let Some(rest) = name.strip_suffix(".*") {
            return host_name(rest).map(|rest| Self(ServerNameKind::Trailing(rest)));
        }
        host_name(&name).map(|name| Self(ServerNameKind::Exact(name)))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            ServerNameKind::Exact(name) => f.write_str(name),
            ServerNameKind::Leading(rest) => write!(f, "*.{rest}"),
            ServerNameKind::Trailing(rest) => write!(f, "{rest}.*"),
            ServerNameKind::Regex(regex) => write!(f, "~{regex}"),
        }
    }
}

/// A host name, an IPv4 address, or an IPv6 address in brackets.
fn host_name(text: &str) -> Result<Box<str>, InvalidServerName> {
    if let Some(address) = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
    {
        return match address.parse::<std::net::Ipv6Addr>() {
            Ok(_) => Ok(text.into()),
            Err(_) => Err(InvalidServerName::Host),
        };
    }
    if text.contains('*') {
        return Err(InvalidServerName::Wildcard);
    }
    if text.contains(':') {
        return Err(InvalidServerName::Port);
    }
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if text.split('.').any(str::is_empty) || !text.bytes().all(valid) {
        return Err(InvalidServerName::Host);
    }
    Ok(text.into())
}

/// Why a server name is invalid.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum InvalidServerName {
    /// Not a host name.
    Host,
    /// A name in another script than ASCII, without the feature `idna`.
    NotAscii,
    /// A `*` that is neither the first nor the last label.
    Wildcard,
    /// A port, which belongs into `listen`.
    Port,
    /// The regular expression has an error.
    Regex(InvalidNameRegex),
}

impl fmt::Display for InvalidServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => f.write_str("a server name is a host name such as example.com"),
            Self::NotAscii => f.write_str(
                "a name in another script needs the feature `idna`, or A-labels (`xn--...`)",
            ),
            Self::Wildcard => f.write_str(
                "a * stands for whole labels at one end: *.example.com or www.example.*",
            ),
            Self::Port => f.write_str("a server name has no port; `listen` names ports"),
            Self::Regex(error) => write!(f, "the regular expression has an error: {error}"),
        }
    }
}

impl std::error::Error for InvalidServerName {}

/// The kind of server name that matched a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerNameMatch {
    /// By the name itself.
    Exact,
    /// By a wildcard at the start.
    Leading,
    /// By a wildcard at the end.
    Trailing,
    /// By a regular expression.
    Regex,
}

impl fmt::Display for ServerNameMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "an exact server name",
            Self::Leading => "a server name with a leading wildcard",
            Self::Trailing => "a server name with a trailing wildcard",
            Self::Regex => "a regular expression among the server names",
        })
    }
}

/// The server names of all sites, each with the index of its site.
#[derive(Clone, Debug, Default)]
pub struct ServerNames {
    exact: HashMap<Box<str>, usize>,
    leading: HashMap<Box<str>, usize>,
    trailing: HashMap<Box<str>, usize>,
    regexes: Vec<(NameRegex, usize)>,
}

impl ServerNames {
    /// Adds a name.
    ///
    /// # Errors
    /// Another site has the name; its index.
    pub fn insert(&mut self, name: &ServerName, site: usize) -> Result<(), usize> {
        let (map, key) = match &name.0 {
            ServerNameKind::Exact(name) => (&mut self.exact, name),
            ServerNameKind::Leading(rest) => (&mut self.leading, rest),
            ServerNameKind::Trailing(rest) => (&mut self.trailing, rest),
            ServerNameKind::Regex(regex) => {
                self.regexes.push((regex.clone(), site));
                return Ok(());
            }
        };
        match *map.entry(key.clone()).or_insert(site) {
            owner if owner == site => Ok(()),
            owner => Err(owner),
        }
    }

    /// The site of a host in the normal form of `apus_http::Authority::host`.
    pub fn find(&self, host: &str) -> Option<(usize, ServerNameMatch)> {
        if let Some(site) = self.exact.get(host) {
            return Some((*site, ServerNameMatch::Exact));
        }
        if !self.leading.is_empty() {
            let mut rest = host;
            while let Some((_, parent)) = rest.split_once('.') {
                if let Some(site) = self.leading.get(parent) {
                    return Some((*site, ServerNameMatch::Leading));
                }
                rest = parent;
            }
        }
        if !self.trailing.is_empty() {
            let mut rest = host;
            while let Some((front, _)) = rest.rsplit_once('.') {
                if let Some(site) = self.trailing.get(front) {
                    return Some((*site, ServerNameMatch::Trailing));
                }
                rest = front;
            }
        }
        self.regexes
            .iter()
            .find(|(regex, _)| regex.matches(host))
            .map(|(_, site)| (*site, ServerNameMatch::Regex))
    }
}

/// Whether a certificate with these names is valid for the host (RFC 9525 section 6.3).
pub fn certificate_covers(names: &[Box<str>], host: &str) -> bool {
    let host = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(host);
    names.iter().any(|name| match name.strip_prefix("*.") {
        Some(parent) => host.split_once('.').is_some_and(|(label, rest)| {
            !label.is_empty() && rest.eq_ignore_ascii_case(parent) && !is_ipv4(host)
        }),
        None => name.eq_ignore_ascii_case(host),
    })
}

fn is_ipv4(host: &str) -> bool {
    host.parse::<std::net::Ipv4Addr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(names: &[&str]) -> ServerNames {
        let mut table = ServerNames::default();
        for (site, name) in names.iter().enumerate() {
            table.insert(&name.parse().unwrap(), site).unwrap();
        }
        table
    }

    #[test]
    fn prefers_exact_then_leading_then_trailing_then_regex() {
        let table = table(&[
            "~^www\\.",
            "www.example.*",
            "*.example.com",
            "www.example.com",
            "*.b.example.com",
            "www.*",
        ]);
        for (host, site) in [
            ("www.example.com", Some(3)),
            ("x.example.com", Some(2)),
            ("a.b.example.com", Some(4)),
            ("b.example.com", Some(2)),
            ("www.example.org", Some(1)),
            ("www.example.co.uk", Some(1)),
            ("www.other", Some(5)),
            ("example.com", None),
            ("xexample.com", None),
        ] {
            assert_eq!(table.find(host).map(|(site, _)| site), site, "{host}");
        }
    }

    #[test]
    fn prefers_the_first_regex() {
        let table = table(&["~^www\\.", "~.*"]);
        assert_eq!(table.find("www.a"), Some((0, ServerNameMatch::Regex)));
        assert_eq!(table.find("a"), Some((1, ServerNameMatch::Regex)));
    }

    #[test]
    fn ignores_case_and_the_dot_of_the_root() {
        let table = table(&["Example.COM."]);
        assert!(table.find("example.com").is_some());
    }

    #[test]
    fn returns_the_site_that_has_a_name_already() {
        let mut table = table(&["example.com"]);
        assert_eq!(table.insert(&"EXAMPLE.com".parse().unwrap(), 1), Err(0));
        assert_eq!(table.insert(&"example.com".parse().unwrap(), 0), Ok(()));
    }

    #[test]
    fn rejects_invalid_server_names() {
        for name in [
            "",
            "a b",
            "a*.b",
            "*",
            "a.*.b",
            "a:80",
            ".a",
            "a..b",
            "a..",
            "\u{fffd}.de",
            "~(",
            "[::x]",
        ] {
            assert!(name.parse::<ServerName>().is_err(), "{name:?}");
        }
        for name in [
            "localhost",
            "[::1]",
            "127.0.0.1",
            "_",
            "xn--4ca.de",
            "*.a.b",
        ] {
            assert_eq!(name.parse::<ServerName>().unwrap().to_string(), name);
        }
        for (name, expected) in [("ü.de", "xn--tda.de"), ("*.Ü.de.", "*.xn--tda.de")] {
            assert_eq!(name.parse::<ServerName>().unwrap().to_string(), expected);
        }
    }

    #[test]
    fn certificate_wildcards_match_one_label() {
        let names: Vec<Box<str>> = vec!["example.com".into(), "*.example.com".into(), "::1".into()];
        for (host, covered) in [
            ("example.com", true),
            ("EXAMPLE.com", true),
            ("a.example.com", true),
            ("a.b.example.com", false),
            (".example.com", false),
            ("other.com", false),
            ("[::1]", true),
        ] {
            assert_eq!(certificate_covers(&names, host), covered, "{host}");
        }
        assert!(!certificate_covers(&["*.0.0.1".into()], "127.0.0.1"));
    }
}
