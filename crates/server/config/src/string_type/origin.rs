//! Types of values of origins: addresses, hosts, cookies, media types and statuses.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use apus_client::{Address, Protocol};
use apus_http::url::{UrlParts, split_scheme};
use apus_upstream::plan::{self, NodeTarget};
use http::HeaderName;
use serde_json::json;
use toml::de::DeValue;

use super::MediaType;
use crate::description::TypeDescription;
use crate::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, parse_string};
use crate::value::Int;

/// The name of a group of origins.
#[derive(Clone, Debug)]
pub(crate) struct GroupName(pub(crate) String);

impl StringType for GroupName {
    const EXPECTED: &'static str = "a name of letters, digits, `-`, `_` and `.`";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if is_group_name(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

pub(crate) fn is_group_name(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !text.is_empty() && text.bytes().all(is_valid)
}

/// The key of consistent hashing.
#[derive(Clone, Debug)]
pub(crate) struct HashKeyText(pub(crate) plan::HashKey);

impl StringType for HashKeyText {
    const EXPECTED: &'static str = "\"address\", \"uri\", \"header:NAME\" or \"cookie:NAME\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(Self(match text.split_once(':') {
            None if text == "address" => plan::HashKey::Address,
            None if text == "uri" => plan::HashKey::Uri,
            Some(("header", name)) => plan::HashKey::Header(
                HeaderName::from_str(name).map_err(|_| format!("`{name}` is not a field name"))?,
            ),
            Some(("cookie", name)) => plan::HashKey::Cookie(Token::parse(name)?.0.into()),
            _ => return Err(ValueError::Unexpected),
        }))
    }
}

/// A token (RFC 9110 section 5.6.2), such as the name of a cookie.
#[derive(Clone, Debug)]
pub(crate) struct Token(pub(crate) String);

impl StringType for Token {
    const EXPECTED: &'static str = "a name";

    fn parse(text: &str) -> Result<Self, ValueError> {
        HeaderName::from_str(text)
            .map(|_| Self(text.to_owned()))
            .map_err(|_| ValueError::Unexpected)
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// The address of a node, and whether its scheme means TLS.
#[derive(Clone, Debug)]
pub(crate) struct NodeAddress {
    /// The address as it is written.
    pub(crate) text: String,
    pub(crate) target: NodeTarget,
    /// Whether TLS is used, if the address has a scheme.
    pub(crate) tls: Option<bool>,
}

impl NodeAddress {
    /// The host; `None` for a Unix socket or a service.
    pub(crate) fn host(&self) -> Option<String> {
        match &self.target {
            NodeTarget::Address(Address::Ip(address)) => Some(address.ip().to_string()),
            NodeTarget::Name { host, .. } => Some(host.to_string()),
            NodeTarget::Address(Address::Unix(_)) | NodeTarget::Service(_) => None,
        }
    }

    /// The address with an absolute path.
    pub(crate) fn resolved(mut self, node: &ValueNode<'_>, reader: &ConfigReader<'_>) -> Self {
        if let NodeTarget::Address(Address::Unix(path)) = &self.target {
            let path: Arc<_> = reader.sources.resolve(&node.span, path).into();
            self.target = NodeTarget::Address(Address::Unix(path));
        }
        self
    }
}

struct NodeAddressText(NodeAddress);

impl StringType for NodeAddressText {
    const EXPECTED: &'static str = "\"host:port\", \"[::1]:port\", \"unix:/path\", \
         \"https://host:port\" or \"srv:_http._tcp.example.com\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (tls, rest) = match split_scheme(text) {
            None => (None, text),
            Some(("http", rest)) => (Some(false), rest),
            Some(("https", rest)) => (Some(true), rest),
            Some((scheme, _)) => {
                return Err(format!(
                    "no node has the scheme {scheme}; say what is spoken with `protocol`"
                )
                .into());
            }
        };
        let target = match rest.split_once(':') {
            Some(("unix", path)) => unix(path)?,
            Some(("srv", name)) => NodeTarget::Service(name_of_host(name)?.into()),
            _ => {
                let default = tls.map(|tls| if tls { 443 } else { 80 });
                let rest = match tls {
                    Some(_) => rest.strip_suffix('/').unwrap_or(rest),
                    None => rest,
                };
                if rest.contains('/') {
                    return Err("a node has no path; `upstream` of a location may".into());
                }
                host_and_port(rest, default)?
            }
        };
        Ok(Self(NodeAddress {
            text: text.to_owned(),
            target,
            tls,
        }))
    }
}

/// The address of a node.
pub(crate) fn parse_node(text: &str) -> Result<NodeAddress, ValueError> {
    NodeAddressText::parse(text).map(|NodeAddressText(address)| address)
}

impl KeyType for NodeAddress {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, NodeAddressText::EXPECTED)?;
        let NodeAddressText(address) = parse_string(&text, &node.span, reader)?;
        Some(address.resolved(node, reader))
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(NodeAddressText::EXPECTED, json!({"type": "string"}))
    }
}

fn unix(path: &str) -> Result<NodeTarget, ValueError> {
    match path.len() {
        0 => Err("the path is missing".into()),
        // The kernel's limit for the address of a Unix socket, with its NUL.
        108.. => Err("the path of a socket has at most 107 bytes".into()),
        _ => Ok(NodeTarget::Address(Address::Unix(
            PathBuf::from(path).into(),
        ))),
    }
}

fn host_and_port(text: &str, default: Option<u16>) -> Result<NodeTarget, ValueError> {
    if let Ok(address) = text.parse() {
        return Ok(NodeTarget::Address(Address::Ip(address)));
    }
    let no_port = || "the port is missing".to_owned();
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
        if ip.is_ipv6() && bare.is_none() {
            return Err(format!("write [{ip}]:port").into());
        }
        let port = default.ok_or_else(no_port)?;
        return Ok(NodeTarget::Address(Address::Ip(SocketAddr::new(ip, port))));
    }
    let (host, port) = match text.split_once(':') {
        Some((host, port)) => {
            let port = port.parse().ok().filter(|port| *port > 0);
            (host, port.ok_or("the port is from 1 to 65535")?)
        }
        None => {
            name_of_host(text)?;
            (text, default.ok_or_else(no_port)?)
        }
    };
    Ok(NodeTarget::Name {
        host: name_of_host(host)?.into(),
        port,
    })
}

/// A host name in lower case, without the dot at its end.
fn name_of_host(text: &str) -> Result<String, ValueError> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = text.strip_suffix('.').unwrap_or(text);
    let is_name = name.len() <= 253
        && name
            .split('.')
            .all(|label| (1..64).contains(&label.len()) && label.bytes().all(is_valid));
    // Digits alone would be an invalid address.
    let is_number = name
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    if is_name && !is_number {
        Ok(name.to_ascii_lowercase())
    } else {
        Err(ValueError::Unexpected)
    }
}

/// The value of `upstream`.
#[derive(Clone, Debug)]
pub(crate) struct UpstreamName {
    pub(crate) target: UpstreamTarget,
    /// The path that replaces the path of the location.
    pub(crate) path: Option<String>,
}

/// A group by its name, or an origin by its URL.
#[derive(Clone, Debug)]
pub(crate) enum UpstreamTarget {
    Group(String),
    Origin {
        node: NodeAddress,
        protocol: Protocol,
        /// The authority of the URL.
        authority: Option<String>,
    },
}

struct UpstreamNameText(UpstreamName);

impl StringType for UpstreamNameText {
    const EXPECTED: &'static str = "the name of a group, or a URL as \"http://127.0.0.1:3000\", \
         \"https://host\", \"h2c://host:port\", \"grpc://host:port\", \"grpcs://host\", \
         \"h3://host\" or \"unix:/path\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.contains(['?', '#']) || text.chars().any(|c| c.is_control() || c == ' ') {
            return Err("it has a query, a fragment, or a blank".into());
        }
        if let Some(rest) = text.strip_prefix("unix:") {
            let (socket, path) = match rest.find(":/").and_then(|at| rest.split_at_checked(at)) {
                Some((socket, path)) => (socket, path.strip_prefix(':').map(str::to_owned)),
                None => (rest, None),
            };
            return Ok(Self(UpstreamName {
                target: UpstreamTarget::Origin {
                    node: NodeAddress {
                        text: format!("unix:{socket}"),
                        target: unix(socket)?,
                        tls: None,
                    },
                    protocol: Protocol::Http1,
                    authority: None,
                },
                path,
            }));
        }
        let Some(UrlParts {
            scheme,
            authority,
            rest,
        }) = UrlParts::split(text)
        else {
            let (name, path) = match text.find('/').and_then(|at| text.split_at_checked(at)) {
                Some((name, path)) => (name, Some(path.to_owned())),
                None => (text, None),
            };
            return if is_group_name(name) {
                Ok(Self(UpstreamName {
                    target: UpstreamTarget::Group(name.to_owned()),
                    path,
                }))
            } else if name.contains(':') {
                Err(format!("write \"http://{text}\"").into())
            } else {
                Err(ValueError::Unexpected)
            };
        };
        let (tls, protocol) = match scheme {
            "http" => (false, Protocol::Http1),
            "https" => (true, Protocol::Http1),
            "h2c" | "grpc" => (false, Protocol::Http2),
            "grpcs" => (true, Protocol::Http2),
            "h3" => (true, Protocol::Http3),
            _ => return Err(format!("no origin has the scheme {scheme}").into()),
        };
        let target = host_and_port(authority, Some(if tls { 443 } else { 80 }))?;
        Ok(Self(UpstreamName {
            target: UpstreamTarget::Origin {
                node: NodeAddress {
                    text: format!("{scheme}://{}", authority.to_ascii_lowercase()),
                    target,
                    tls: Some(tls),
                },
                protocol,
                authority: Some(authority.to_owned()),
            },
            path: Some(rest.to_owned()).filter(|path| !path.is_empty()),
        }))
    }
}

impl KeyType for UpstreamName {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.text(reader, UpstreamNameText::EXPECTED)?;
        let UpstreamNameText(mut upstream) = parse_string(&text, &node.span, reader)?;
        if let UpstreamTarget::Origin { node: origin, .. } = &mut upstream.target {
            *origin = origin.clone().resolved(node, reader);
        }
        Some(upstream)
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(UpstreamNameText::EXPECTED, json!({"type": "string"}))
    }
}

/// A URL of something that the server fetches, with a query or without.
#[derive(Clone, Debug)]
pub(crate) struct FetchUrl {
    /// The URL.
    pub(crate) text: String,
    /// Its origin.
    pub(crate) origin: UpstreamName,
}

impl StringType for FetchUrl {
    const EXPECTED: &'static str = "a URL as \"https://id.example.com/keys\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let base = text.split('?').next().unwrap_or_default();
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) || text.contains('#') {
            return Err("it has a fragment, or a byte that no URL has".into());
        }
        let is_http = base.starts_with("https://") || base.starts_with("http://");
        let UpstreamNameText(origin) = UpstreamNameText::parse(base)?;
        if !is_http || origin.path.is_none() {
            return Err(ValueError::Unexpected);
        }
        Ok(Self {
            text: text.to_owned(),
            origin,
        })
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.text)
    }
}

/// A host, with a port or without.
#[derive(Clone, Debug)]
pub(crate) struct HostAndPort(pub(crate) String);

impl StringType for HostAndPort {
    const EXPECTED: &'static str = "a host, with a port or without";

    fn parse(text: &str) -> Result<Self, ValueError> {
        http::uri::Authority::from_str(text)
            .ok()
            .filter(|parsed| !parsed.host().is_empty() && !text.contains('@'))
            .map(|_| Self(text.to_owned()))
            .ok_or(ValueError::Unexpected)
    }
}

/// The `Host` of requests to origins.
#[derive(Clone, Debug)]
pub(crate) enum ProxyHost {
    /// The host of the client's request.
    Client,
    /// The host of the client's request, exactly as it was sent.
    Raw,
    /// The host of the URL.
    Origin,
    /// A fixed one.
    Fixed(String),
}

impl StringType for ProxyHost {
    const EXPECTED: &'static str = "`$http_host`, `raw`, `$proxy_host`, or a host";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "$http_host" => Ok(Self::Client),
            "raw" => Ok(Self::Raw),
            "$proxy_host" => Ok(Self::Origin),
            _ => HostAndPort::parse(text).map(|host| Self::Fixed(host.0)),
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(match self {
            Self::Client => "$http_host",
            Self::Raw => "raw",
            Self::Origin => "$proxy_host",
            Self::Fixed(host) => host,
        })
    }
}

/// The domain of a cookie.
#[derive(Clone, Debug)]
pub(crate) struct Domain(pub(crate) String);

impl StringType for Domain {
    const EXPECTED: &'static str = "a domain as \"example.com\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let name = text.strip_prefix('.').unwrap_or(text);
        if name.parse::<IpAddr>().is_ok() || name_of_host(name).is_ok() {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

/// The domain that replaces the domain of a cookie; empty for none.
#[derive(Clone, Debug)]
pub(crate) struct NewDomain(pub(crate) String);

impl StringType for NewDomain {
    const EXPECTED: &'static str = "a domain, or an empty string";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "" => Ok(Self(String::new())),
            _ => Domain::parse(text).map(|domain| Self(domain.0)),
        }
    }
}

/// The path of a cookie (RFC 6265 section 4.1.1).
#[derive(Clone, Debug)]
pub(crate) struct CookiePath(pub(crate) String);

impl StringType for CookiePath {
    const EXPECTED: &'static str = "the path of a cookie as \"/app/\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b';';
        if text.starts_with('/') && text.bytes().all(is_valid) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// A path with a query, or without one.
#[derive(Clone, Debug)]
pub(crate) struct PathAndQuery(pub(crate) String);

impl StringType for PathAndQuery {
    const EXPECTED: &'static str = "a path as \"/verify\", with a query or without";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let is_valid = |byte: u8| byte.is_ascii_graphic() && byte != b'#';
        if text.starts_with('/') && text.bytes().all(is_valid) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// The start of a URI.
#[derive(Clone, Debug)]
pub(crate) struct UriPrefix(pub(crate) String);

impl StringType for UriPrefix {
    const EXPECTED: &'static str = "the start of a URI as \"/\" or \"http://internal/\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

/// A text to search for.
#[derive(Clone, Debug)]
pub(crate) struct SearchText(pub(crate) String);

impl StringType for SearchText {
    const EXPECTED: &'static str = "a text that is not empty";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            Err(ValueError::Unexpected)
        } else {
            Ok(Self(text.to_owned()))
        }
    }
}

/// A media type, or all.
#[derive(Clone, Debug)]
pub(crate) struct MediaRangeText(pub(crate) String);

impl StringType for MediaRangeText {
    const EXPECTED: &'static str = "a media type as \"text/html\", or \"*\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "*" => Ok(Self(text.to_owned())),
            _ if text.contains(';') => Err("a parameter has no meaning here".into()),
            _ => MediaType::parse(text).map(|kind| Self(kind.0)),
        }
    }
}

/// The name of a protocol for `Upgrade`.
#[derive(Clone, Debug)]
pub(crate) struct UpgradeName(pub(crate) String);

impl StringType for UpgradeName {
    const EXPECTED: &'static str = "a protocol as \"websocket\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let name = text.split('/').next().unwrap_or_default();
        let is_token = HeaderName::from_bytes(name.as_bytes()).is_ok()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_graphic() && !matches!(byte, b',' | b'"'));
        match text.to_ascii_lowercase().as_str() {
            "h2c" | "h2" => Err("requests of HTTP/2 would go past locations and cache".into()),
            lower if is_token => Ok(Self(lower.to_owned())),
            _ => Err(ValueError::Unexpected),
        }
    }
}

/// The address of a DNS server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DnsServer(pub(crate) SocketAddr);

impl StringType for DnsServer {
    const EXPECTED: &'static str = "an address as \"192.0.2.53\", with a port or without";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse()
            .or_else(|_| text.parse().map(|ip: IpAddr| SocketAddr::new(ip, 53)))
            .map(Self)
            .map_err(|_| ValueError::Unexpected)
    }
}

/// A status, or a class of statuses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statuses {
    pub(crate) first: u16,
    pub(crate) last: u16,
}

const STATUSES: &str = "a status from 200 to 599, or \"2xx\" to \"5xx\"";

impl KeyType for Statuses {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if node.value.is_integer() {
            let status = Int::<200, 599>::read(node, reader)?;
            let status = u16::try_from(status.0).ok()?;
            return Some(Self {
                first: status,
                last: status,
            });
        }
        let DeValue::String(_) = node.value else {
            reader.wrong_type(node, STATUSES);
            return None;
        };
        let text = node.text(reader, STATUSES)?;
        parse_string::<StatusClass>(&text, &node.span, reader).map(|class| class.0)
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            STATUSES,
            json!({"anyOf": [
                {"type": "integer", "minimum": 200, "maximum": 599},
                {"enum": ["2xx", "3xx", "4xx", "5xx"]},
            ]}),
        )
    }
}

struct StatusClass(Statuses);

impl StringType for StatusClass {
    const EXPECTED: &'static str = STATUSES;

    fn parse(text: &str) -> Result<Self, ValueError> {
        let first = match text {
            "2xx" => 200,
            "3xx" => 300,
            "4xx" => 400,
            "5xx" => 500,
            _ => return Err(ValueError::Unexpected),
        };
        Ok(Self(Statuses {
            first,
            last: first + 99,
        }))
    }
}

/// The cause of a retry.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RetryCause {
    Error,
    Timeout,
    Status(Statuses),
}

impl KeyType for RetryCause {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        match node.value {
            DeValue::String(text) if text == "error" => Some(Self::Error),
            DeValue::String(text) if text == "timeout" => Some(Self::Timeout),
            _ => Statuses::read(node, reader).map(Self::Status),
        }
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            format!("\"error\", \"timeout\", {STATUSES}"),
            json!({"anyOf": [
                {"enum": ["error", "timeout"]},
                Statuses::type_description().schema,
            ]}),
        )
    }

    fn shown(&self) -> serde_json::Value {
        match self {
            Self::Error => "error".into(),
            Self::Timeout => "timeout".into(),
            Self::Status(_) => serde_json::Value::Null,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(text: &str) -> Result<(NodeTarget, Option<bool>), ValueError> {
        NodeAddressText::parse(text).map(|NodeAddressText(node)| (node.target, node.tls))
    }

    fn ip(text: &str) -> NodeTarget {
        NodeTarget::Address(Address::Ip(text.parse().unwrap()))
    }

    fn name(host: &str, port: u16) -> NodeTarget {
        NodeTarget::Name {
            host: host.into(),
            port,
        }
    }

    #[test]
    fn reads_where_a_node_is() {
        for (text, expected) in [
            ("127.0.0.1:9501", (ip("127.0.0.1:9501"), None)),
            ("[::1]:9501", (ip("[::1]:9501"), None)),
            ("App_1.Internal.:80", (name("app_1.internal", 80), None)),
            ("https://app", (name("app", 443), Some(true))),
            ("https://app/", (name("app", 443), Some(true))),
            ("http://[::1]", (ip("[::1]:80"), Some(false))),
            ("https://10.0.0.1:8443", (ip("10.0.0.1:8443"), Some(true))),
            (
                "srv:_http._tcp.example.com",
                (NodeTarget::Service("_http._tcp.example.com".into()), None),
            ),
        ] {
            assert_eq!(node(text), Ok(expected), "{text}");
        }
        for text in [
            "",
            "app",
            "127.0.0.1",
            "::1",
            "::1:80",
            "app:0",
            "app:99999",
            "app:x",
            "a b:80",
            "app:80/x",
            "https://app/x",
            "ftp://app",
            "unix:",
            "srv:",
            "256.0.0.1:80",
            "a..b:80",
        ] {
            assert!(node(text).is_err(), "{text}");
        }
    }

    #[test]
    fn distinguishes_a_group_from_a_url() {
        let read = |text: &str| UpstreamNameText::parse(text).map(|UpstreamNameText(name)| name);
        let group = read("app/v1/").unwrap();
        assert!(matches!(&group.target, UpstreamTarget::Group(name) if name == "app"));
        assert_eq!(group.path.as_deref(), Some("/v1/"));
        for (text, tls, protocol, path) in [
            ("http://App:3000", false, Protocol::Http1, None),
            ("http://127.0.0.1:3000/", false, Protocol::Http1, Some("/")),
            ("https://app/base/", true, Protocol::Http1, Some("/base/")),
            ("h2c://app:3000", false, Protocol::Http2, None),
            ("grpc://app:3000", false, Protocol::Http2, None),
            ("grpcs://app", true, Protocol::Http2, None),
            ("h3://app:8443/v1", true, Protocol::Http3, Some("/v1")),
            ("unix:/run/app.sock", false, Protocol::Http1, None),
            (
                "unix:/run/app.sock:/base/",
                false,
                Protocol::Http1,
                Some("/base/"),
            ),
        ] {
            let found = read(text).unwrap();
            assert_eq!(found.path.as_deref(), path, "{text}");
            match found.target {
                UpstreamTarget::Origin {
                    node, protocol: p, ..
                } => assert_eq!((node.tls == Some(true), p), (tls, protocol), "{text}"),
                UpstreamTarget::Group(name) => panic!("{text} is the group {name}"),
            }
        }
        for text in [
            "",
            "127.0.0.1:3000",
            "ws://app",
            "http://",
            "http://a?b",
            "http://a b",
            "/a",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
