//! Types of values with their own syntax: addresses, names, patterns, statuses.
//!
//! Each is parsed by the type of the service that uses it, so that a value which is read is valid
//! there.

pub(super) mod acme;
pub(super) mod caching;
pub(super) mod limit;
pub(super) mod origin;
pub(super) mod php;
pub(super) mod receiver;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use apus_http::is_identity_field;
use apus_layers::HostPattern;
use apus_net::ListenAddress;
use apus_patterns::Glob;
use apus_sites::{FileCondition, LocationPattern, ServerName};
use http::{HeaderName, HeaderValue, StatusCode};
use serde_json::json;
use toml::de::DeValue;

use super::description::TypeDescription;
use super::keys::{ConfigReader, KeyType, StringType, ValueError, ValueNode, parse_string};
use super::value::Int;

/// Parses a type by `FromStr`.
fn parsed<T: FromStr<Err: ToString>>(text: &str) -> Result<T, ValueError> {
    text.parse()
        .map_err(|error: T::Err| one_line(&error.to_string()).into())
}

/// The last line of an error. Errors of regular expressions show the expression on lines of its
/// own, and the reason on the last one.
pub(super) fn one_line(message: &str) -> String {
    let mut lines = message.lines();
    let first = lines.next().unwrap_or_default();
    match lines.last() {
        Some(last) => format!("{} {}", first.trim_end(), last.trim_start()),
        None => first.to_owned(),
    }
}

/// The names of the hosts of a bot.
#[derive(Clone, Debug)]
pub(super) struct BotHost(pub(super) HostPattern);

impl StringType for BotHost {
    const EXPECTED: &'static str = "a name of hosts as \"*.example.com\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(|_| ValueError::Unexpected)
    }
}

/// A host name of a site.
#[derive(Clone, Debug)]
pub(super) enum SiteHost {
    /// `_`: hosts that no site has.
    Other,
    /// A name or a pattern, and its text.
    Name(ServerName, String),
}

impl SiteHost {
    /// The name for SNI and certificates; `None` for other hosts and for patterns that no
    /// certificate can have.
    pub(super) fn tls_name(&self) -> Option<String> {
        match self {
            Self::Name(name, text) if !text.starts_with('~') && !text.ends_with(".*") => {
                Some(name.to_string())
            }
            Self::Name(..) | Self::Other => None,
        }
    }
}

impl StringType for SiteHost {
    const EXPECTED: &'static str = "a server name";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text {
            "_" => Ok(Self::Other),
            _ if text.contains("://") => Err("a server name has no scheme".into()),
            _ => parsed(text).map(|name| Self::Name(name, text.to_owned())),
        }
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ListenSpec {
    /// All addresses.
    Port(u16),
    /// One address.
    Tcp(SocketAddr),
    /// A Unix socket, relative to the file.
    Unix(PathBuf),
    /// A socket of systemd.
    Inherited(String),
}

struct ListenSpecText(ListenSpec);

impl StringType for ListenSpecText {
    const EXPECTED: &'static str =
        "a port, \"address:port\", \"[::1]:port\", \"unix:/path\" or \"systemd:name\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.len() {
                0 => Err("the path is missing".into()),
                // The kernel's limit for the address of a Unix socket, with its NUL.
                108.. => Err("the path of a socket has at most 107 bytes".into()),
                _ => Ok(Self(ListenSpec::Unix(path.into()))),
            };
        }
        if let Some(name) = text.strip_prefix("systemd:") {
            return if name.is_empty() {
                Err("the name is missing".into())
            } else {
                Ok(Self(ListenSpec::Inherited(name.to_owned())))
            };
        }
        if let Ok(port) = text.parse() {
            return Ok(Self(ListenSpec::Port(port)));
        }
        if let Some(port) = text.strip_prefix("*:").and_then(|port| port.parse().ok()) {
            return Ok(Self(ListenSpec::Port(port)));
        }
        if let Some(port) = text.strip_prefix("localhost:") {
            return Err(format!("write \"127.0.0.1:{port}\" or \"[::1]:{port}\"").into());
        }
        text.parse()
            .map(|address| Self(ListenSpec::Tcp(address)))
            .map_err(|_| match text.parse::<IpAddr>() {
                Ok(_) => "the port is missing".into(),
                Err(_) => ValueError::Unexpected,
            })
    }
}

impl KeyType for ListenSpec {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if node.value.is_integer() {
            return Int::<0, 65_535>::read(node, reader)
                .and_then(|port| u16::try_from(port.0).ok())
                .map(Self::Port);
        }
        let DeValue::String(_) = node.value else {
            reader.wrong_type(node, ListenSpecText::EXPECTED);
            return None;
        };
        let text = node.text(reader, ListenSpecText::EXPECTED)?;
        match parse_string::<ListenSpecText>(&text, &node.span, reader)?.0 {
            Self::Unix(path) => Some(Self::Unix(reader.sources.resolve(&node.span, path))),
            listen => Some(listen),
        }
    }

    fn type_description() -> TypeDescription {
        TypeDescription::new(
            ListenSpecText::EXPECTED,
            json!({"anyOf": [
                {"type": "integer", "minimum": 0, "maximum": 65_535},
                {"type": "string"},
            ]}),
        )
    }
}

impl ListenSpec {
    /// The address for the engine.
    pub(super) fn address(&self, ipv6_only: bool, mode: u32) -> ListenAddress {
        match self {
            Self::Port(port) => ListenAddress::Tcp {
                address: SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), *port),
                ipv6_only,
            },
            Self::Tcp(address) => ListenAddress::Tcp {
                address: *address,
                ipv6_only: ipv6_only && address.is_ipv6(),
            },
            Self::Unix(path) => ListenAddress::Unix {
                path: path.clone(),
                mode,
            },
            Self::Inherited(name) => ListenAddress::Inherited { name: name.clone() },
        }
    }
}

/// Permission bits as `0660`.
#[derive(Clone, Copy, Debug)]
pub(super) struct FileMode(pub(super) u32);

impl StringType for FileMode {
    const EXPECTED: &'static str = "permission bits in octal, as \"0660\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        u32::from_str_radix(text, 8)
            .ok()
            .filter(|mode| *mode <= 0o777 && !text.starts_with('+'))
            .map(Self)
            .ok_or(ValueError::Unexpected)
    }

    fn as_written(&self) -> Option<&str> {
        (self.0 == 0o666).then_some("0666")
    }
}

/// A network of addresses.
#[derive(Clone, Copy, Debug)]
pub(super) struct NetworkText(pub(super) apus_http::Network);

/// A network, or a list of networks by its name.
#[derive(Clone, Debug)]
pub(super) enum NetworkEntry {
    /// A network.
    Network(apus_http::Network),
    /// `@NAME` of `[global.lists]`.
    List(String),
}

impl StringType for NetworkEntry {
    const EXPECTED: &'static str =
        "a network as \"10.0.0.0/8\", an address, \"unix:\", or \"@NAME\" of [global.lists]";

    fn parse(text: &str) -> Result<Self, ValueError> {
        match text.strip_prefix('@') {
            Some(name) if !name.is_empty() => Ok(Self::List(name.to_owned())),
            Some(_) => Err("the name of the list is missing".into()),
            None => NetworkText::parse(text).map(|network| Self::Network(network.0)),
        }
    }
}

impl StringType for NetworkText {
    const EXPECTED: &'static str = "a network as \"10.0.0.0/8\", an address, or \"unix:\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text == "unix:" {
            return Ok(Self(apus_http::Network::Unix));
        }
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| ValueError::Unexpected)?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("the prefix length is from 0 to {width}"))?,
        };
        Ok(Self(apus_http::Network::Ip { address, bits }))
    }
}

/// The paths of a location.
#[derive(Clone, Debug)]
pub(super) struct LocationPath(pub(super) LocationPattern);

impl StringType for LocationPath {
    const EXPECTED: &'static str = "the path of a location";

    fn parse(text: &str) -> Result<Self, ValueError> {
        parsed(text).map(Self)
    }
}

/// A condition of a rewrite.
#[derive(Clone, Debug)]
pub(super) struct FileConditionText(pub(super) FileCondition);

impl StringType for FileConditionText {
    const EXPECTED: &'static str = "a test";

    fn parse(text: &str) -> Result<Self, ValueError> {
        parsed(text).map(Self)
    }
}

/// A time zone.
#[derive(Clone, Debug)]
pub(super) struct TimeZoneName(pub(super) String);

impl StringType for TimeZoneName {
    const EXPECTED: &'static str = "the name of a time zone, as \"Europe/Berlin\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.is_empty() {
            return Err(ValueError::Unexpected);
        }
        Ok(Self(text.to_owned()))
    }
}

/// A regular expression.
#[derive(Clone, Debug)]
pub(super) struct RegexText(pub(super) String);

impl StringType for RegexText {
    const EXPECTED: &'static str = "a regular expression";

    fn parse(text: &str) -> Result<Self, ValueError> {
        parsed::<regex::bytes::Regex>(text).map(|_| Self(text.to_owned()))
    }
}

/// The name of a field.
#[derive(Clone, Debug)]
pub(super) struct FieldName(pub(super) String);

/// The name of a field by which proxies identify a client.
#[derive(Clone, Debug)]
pub(super) struct IdentityFieldName(pub(super) String);

impl StringType for IdentityFieldName {
    const EXPECTED: &'static str = "a field about the client as \"CF-Connecting-IP\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let name = FieldName::parse(text)?.0.to_ascii_lowercase();
        if is_identity_field(&name) {
            Ok(Self(name))
        } else {
            Err("every field that is not about the client is passed anyway".into())
        }
    }
}

impl StringType for FieldName {
    const EXPECTED: &'static str = "a field name";

    fn parse(text: &str) -> Result<Self, ValueError> {
        parsed::<HeaderName>(text)
            .map(|_| Self(text.to_owned()))
            .map_err(|_| ValueError::Unexpected)
    }

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }
}

/// A response body, which may hold variables and line breaks.
#[derive(Clone, Debug)]
pub(super) struct BodyText(pub(super) String);

impl StringType for BodyText {
    const EXPECTED: &'static str = "a text";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(Self(text.to_owned()))
    }
}

macro_rules! texts {
    ($( $(#[doc = $doc:literal])* $Name:ident: $expected:literal, )*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug)]
        pub(super) struct $Name(pub(super) String);

        impl StringType for $Name {
            const EXPECTED: &'static str = $expected;

            fn parse(text: &str) -> Result<Self, ValueError> {
                if text.chars().any(|c| c.is_control() && c != '\t') {
                    return Err("it has control characters".into());
                }
                Ok(Self(text.to_owned()))
            }
        }
    )*};
}

texts! {
    /// The value of a field, which may hold variables.
    FieldValue: "a text",
    /// A path or a URI, which may hold variables.
    UriTemplate: "a path or a URI",
}

/// A pattern of paths of files.
#[derive(Clone, Debug)]
pub(super) struct PathPattern(pub(super) Glob);

impl StringType for PathPattern {
    const EXPECTED: &'static str = "a pattern as \"*.css\" or \"/assets/**\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        Glob::parse(text).map(Self).map_err(ValueError::of)
    }
}

/// The value of a field, without variables.
#[derive(Clone, Debug)]
pub(super) struct HeaderText(pub(super) HeaderValue);

impl StringType for HeaderText {
    const EXPECTED: &'static str = "the value of a field";

    fn parse(text: &str) -> Result<Self, ValueError> {
        HeaderValue::from_str(text)
            .map(Self)
            .map_err(|_| ValueError::Unexpected)
    }
}

/// A media type.
#[derive(Clone, Debug)]
pub(super) struct MediaType(pub(super) String);

impl StringType for MediaType {
    const EXPECTED: &'static str = "a media type as \"text/html\"";

    fn as_written(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (kind, subtype) = text.split_once('/').ok_or(ValueError::Unexpected)?;
        let subtype = subtype.split(';').next().unwrap_or_default().trim_end();
        let token = |part: &str| HeaderName::from_str(part).is_ok();
        if token(kind) && token(subtype) && !text.chars().any(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

/// A path of the site.
#[derive(Clone, Debug)]
pub(super) struct SitePath(pub(super) String);

impl StringType for SitePath {
    const EXPECTED: &'static str = "a path of the site as \"/404.html\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        if text.starts_with('/') && !text.chars().any(char::is_control) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ValueError::Unexpected)
        }
    }
}

/// The status of a `return`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusNumber(pub(super) StatusCode);

impl KeyType for StatusNumber {
    fn read(node: &ValueNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Int::<200, 599>::read(node, reader)
            .and_then(|status| u16::try_from(status.0).ok())
            .and_then(|status| StatusCode::from_u16(status).ok())
            .map(Self)
    }

    fn type_description() -> TypeDescription {
        Int::<200, 599>::type_description()
    }
}

/// A status, or a class of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StatusSet {
    /// The first status of the set.
    pub(super) first: u16,
    /// The last one.
    pub(super) last: u16,
}

impl StringType for StatusSet {
    const EXPECTED: &'static str = "an error status from 400 to 599, \"4xx\" or \"5xx\"";

    fn parse(text: &str) -> Result<Self, ValueError> {
        let (first, last) = match text {
            "4xx" => (400, 499),
            "5xx" => (500, 599),
            _ => text
                .parse()
                .ok()
                .filter(|status| (400..600).contains(status))
                .map(|status| (status, status))
                .ok_or(ValueError::Unexpected)?,
        };
        Ok(Self { first, last })
    }
}
