//! The key under which a response is stored (RFC 9111 section 2).

use std::borrow::Cow;
use std::fmt;

use apus_http::{Authority, Method};
use smallvec::SmallVec;

use super::variance::{write_field, write_value};
use super::{NamePattern, PresentedRequest, names};

/// What tells stored responses apart, beside the path, which always does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRules {
    /// Whether `http` and `https` are told apart.
    pub scheme: bool,
    /// The host.
    pub host: Host,
    /// What of the query counts.
    pub query: Query,
    /// Whether parameters of the query count in any order. Several that an origin may take for one name
    /// keep theirs.
    pub sort_query: bool,
    /// Fields of the request whose values count, in lower case.
    pub headers: Vec<Box<str>>,
    /// Cookies whose values count, and those that an origin may take for them.
    pub cookies: Vec<Box<str>>,
    /// Whether the class of the device counts.
    pub device: bool,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            scheme: true,
            host: Host::Requested,
            query: Query::All,
            sort_query: false,
            headers: Vec::new(),
            cookies: Vec::new(),
            device: false,
        }
    }
}

/// The host in a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// That of the request, in lower case, without the default port.
    Requested,
    /// This name, for all hosts that have the same content.
    Named(Box<str>),
}

/// What of the query counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// All of it, as it is.
    All,
    /// Nothing of it.
    Ignored,
    /// Parameters that an origin may take for one of these names.
    Only(Vec<NamePattern>),
    /// All parameters but those that every origin takes for one of these names.
    Except(Vec<NamePattern>),
}

/// A key: bytes that are the same for two requests only if the rules say so.
///
/// First comes what names the target: scheme, host, path and query. Then what else the rules have.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Key {
    bytes: SmallVec<[u8; 128]>,
    uri_end: u32,
}

impl KeyRules {
    /// The key of a request. GET and HEAD have the same.
    pub fn key(&self, request: &PresentedRequest<'_>) -> Key {
        let mut key = self.uri(request);
        let out = &mut key.bytes;
        for name in &self.headers {
            out.push(b'H');
            write_value(name.as_bytes(), out);
            write_field(name, request, out);
        }
        for name in &self.cookies {
            out.push(b'C');
            write_value(name.as_bytes(), out);
            let mut found = request
                .headers
                .get_all("cookie")
                .flat_map(names::cookies)
                .filter(|cookie| {
                    names::may_be(name, cookie.name)
                        || cookie.is_nameless && names::may_be(name, cookie.value)
                });
            match (found.next(), found.next()) {
                (None, _) => out.push(0),
                (Some(cookie), None) if !cookie.is_inside && *cookie.name == *name.as_bytes() => {
                    out.push(1);
                    write_value(cookie.value, out);
                }
                // Which one counts, and whether it does, is for the origin to say.
                (Some(_), _) => {
                    out.push(2);
                    for line in request.headers.get_all("cookie") {
                        write_value(line, out);
                    }
                }
            }
        }
        if self.device {
            out.push(b'D');
            write_value(request.device.unwrap_or_default().as_bytes(), out);
        }
        key
    }

    /// The part of the key that names the target: the same for all requests for it. What is stored
    /// for a target are the keys that begin with it and have the same [`Key::uri`].
    pub fn uri(&self, request: &PresentedRequest<'_>) -> Key {
        let mut bytes = SmallVec::new();
        let is_secure = request.scheme.eq_ignore_ascii_case("https");
        bytes.push(match (self.scheme, is_secure) {
            (false, _) => b'*',
            (true, true) => b's',
            (true, false) => b'h',
        });
        match &self.host {
            Host::Requested => bytes.extend_from_slice(request.authority.as_bytes()),
            Host::Named(name) => {
                // No host of a request holds a space, and a slash is where the path begins.
                bytes.push(b' ');
                for byte in name.bytes() {
                    match byte {
                        b'/' => bytes.extend_from_slice(b"%2F"),
                        b'%' => bytes.extend_from_slice(b"%25"),
                        byte => bytes.push(byte),
                    }
                }
            }
        }
        // A host holds no slash, and the target of a request that can be stored begins with one.
        if !request.path.starts_with('/') {
            bytes.push(b'/');
            bytes.push(b' ');
        }
        bytes.extend_from_slice(request.path.as_bytes());
        if let Some(query) = request.query {
            self.write_query(query, &mut bytes);
        }
        Key {
            uri_end: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            bytes,
        }
    }

    /// What the keys of all responses to one target begin with, whose [`KeyRules::uri`] this is, and no key
    /// of another target does. `None` if they have one key, and that is it.
    pub fn variants_of(&self, uri: &Key) -> Option<Box<[u8]>> {
        let mut prefix = uri.bytes.clone();
        // With the length of a name comes a NUL, which no target holds.
        match (self.headers.first(), self.cookies.first()) {
            (Some(name), _) => {
                prefix.push(b'H');
                write_value(name.as_bytes(), &mut prefix);
            }
            (None, Some(name)) => {
                prefix.push(b'C');
                write_value(name.as_bytes(), &mut prefix);
            }
            (None, None) if self.device => prefix.extend_from_slice(b"D\0"),
            (None, None) => return None,
        }
        Some(prefix.to_vec().into())
    }

    fn write_query(&self, query: &str, out: &mut SmallVec<[u8; 128]>) {
        let counts: &dyn Fn(&[u8]) -> bool = match &self.query {
            Query::Ignored => return,
            Query::All if !self.sort_query => {
                out.push(b'?');
                out.extend_from_slice(query.as_bytes());
                return;
            }
            Query::All => &|_| true,
            Query::Only(patterns) => &|name| NamePattern::may_mean(patterns, name),
            Query::Except(patterns) => &|name| !NamePattern::always_means(patterns, name),
        };
        let mut parameters: SmallVec<[&str; 8]> = query
            .split('&')
            .filter(|parameter| {
                names::parameters_in(parameter.as_bytes()).any(|one| counts(names::name_of(one)))
            })
            .collect();
        if self.sort_query {
            sort(&mut parameters);
        }
        let mut separator = b'?';
        for parameter in parameters {
            out.push(separator);
            out.extend_from_slice(parameter.as_bytes());
            separator = b'&';
        }
    }
}

/// Sorts parameters by their names, unless an origin may take one for another.
fn sort(parameters: &mut [&str]) {
    let sort_name = |parameter: &&str| names::sort_name(names::name_of(parameter.as_bytes()));
    let is_clear = |parameter: &&str| !parameter.contains(';') && sort_name(parameter).is_some();
    if parameters.iter().all(is_clear) {
        parameters.sort_by_cached_key(sort_name);
    }
}

/// Whether two authorities of one scheme are the same.
pub(super) fn is_same_authority(one: &str, other: &str, is_secure: bool) -> bool {
    normal(one, is_secure) == normal(other, is_secure)
}

/// The normal form of an authority. What is none is like no other.
fn normal(authority: &str, is_secure: bool) -> Cow<'_, str> {
    match Authority::normalise(authority.as_bytes(), is_secure) {
        Some(authority) => Cow::Owned(authority.as_str().to_owned()),
        None => Cow::Borrowed(authority),
    }
}

impl Key {
    /// The whole key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The part that names the target. That of a path that begins with another's path begins with
    /// the other's, if the host and the scheme are the same.
    pub fn uri(&self) -> &[u8] {
        self.bytes
            .get(..self.uri_end as usize)
            .unwrap_or(&self.bytes)
    }

    /// How many bytes of [`Key::bytes`] are [`Key::uri`].
    pub fn uri_len(&self) -> usize {
        self.uri().len()
    }

    /// The key of one target, without anything of a request: for purging and the like.
    pub fn of_uri(rules: &KeyRules, scheme: &str, authority: &str, target: &str) -> Self {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let is_secure = scheme.eq_ignore_ascii_case("https");
        rules.uri(&PresentedRequest {
            method: &Method::GET,
            scheme,
            authority: &normal(authority, is_secure),
            path,
            query,
            headers: &apus_http::Headers::new(),
            has_body: false,
            has_certificate: false,
            device: None,
        })
    }
}

/// The target in the form of a URI, and then what else there is, as far as it can be read.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.uri();
        let (scheme, rest) = uri.split_first().unwrap_or((&b'*', b""));
        f.write_str(match scheme {
            b's' => "https://",
            b'h' => "http://",
            _ => "//",
        })?;
        write!(f, "{}", rest.trim_ascii_start().escape_ascii())?;
        let others = self.bytes.get(uri.len()..).unwrap_or_default();
        if others.is_empty() {
            return Ok(());
        }
        f.write_str(" ")?;
        for byte in others {
            match byte {
                b' '..=b'~' => write!(f, "{}", char::from(*byte))?,
                _ => f.write_str(".")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
