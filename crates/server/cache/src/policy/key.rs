//! The key under which a response is stored (RFC 9111 section 2).

use std::borrow::Cow;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

use apus_http::{Authority, Method, RuleChoice};
use smallvec::SmallVec;

use super::normal_form::{write_field, write_value};
use super::{CacheNamePattern, PresentedRequest, names};

/// Which parts of a request are in the cache key. The path always is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRules {
    /// Whether `http` and `https` have different keys.
    pub scheme: bool,
    /// Which host is in the key.
    pub host: KeyHostRule,
    /// Which part of the query is in the key.
    pub query: KeyQueryRule,
    /// Whether the order of the parameters in the query is ignored. Parameters that an origin may
    /// treat as one name keep their order.
    pub sort_query: bool,
    /// Header fields of the request whose values are in the key, in lower case.
    pub headers: Vec<Box<str>>,
    /// Cookies whose values are in the key, together with the cookies that an origin may take for
    /// them.
    pub cookies: Vec<Box<str>>,
    /// Whether the class of the device is in the key.
    pub device: bool,
    /// Whether the group of origins and the location that rules chose for the request ([`RuleChoice`]) are in the key.
    pub rule_choice: bool,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self {
            // RFC 9110 section 4.2.2: `http` and `https` are distinct origins, also on the same host.
            scheme: true,
            host: KeyHostRule::Requested,
            query: KeyQueryRule::All,
            sort_query: false,
            headers: Vec::new(),
            cookies: Vec::new(),
            device: false,
            rule_choice: false,
        }
    }
}

/// Which host is in the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyHostRule {
    /// The host of the request, in lower case, without the default port.
    Requested,
    /// This name, for all hosts that serve the same content.
    Named(Box<str>),
}

/// Which part of the query is in the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyQueryRule {
    /// The whole query, unchanged.
    All,
    /// The query is not in the key.
    Ignored,
    /// The parameters that an origin may take for one of these names.
    Only(Vec<CacheNamePattern>),
    /// All parameters except those that every origin takes for one of these names.
    Except(Vec<CacheNamePattern>),
}

/// The cache key of a request: two requests have the same bytes only if the rules allow them to
/// share a response.
///
/// The target comes first (scheme, host, path and query), followed by the other parts that the
/// rules require.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RequestKey {
    bytes: SmallVec<[u8; 128]>,
    uri_end: u32,
}

impl KeyRules {
    /// The key of a request. GET and HEAD have the same.
    pub fn key(&self, request: &PresentedRequest<'_>) -> RequestKey {
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
                    names::may_be_name(name, cookie.name)
                        || cookie.is_nameless && names::may_be_name(name, cookie.value)
                });
            match (found.next(), found.next()) {
                (None, _) => out.push(0),
                (Some(cookie), None) if !cookie.is_inside && *cookie.name == *name.as_bytes() => {
                    out.push(1);
                    write_value(cookie.value, out);
                }
                // Only the origin can say which of them counts.
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
        if self.rule_choice {
            out.push(b'R');
            let choice = request.request.and_then(RuleChoice::of);
            for chosen in [
                choice.and_then(RuleChoice::upstream),
                choice.and_then(RuleChoice::location),
            ] {
                write_value(chosen.unwrap_or_default().as_bytes(), out);
            }
        }
        key
    }

    /// The part of the key that identifies the target, the same for all requests for it. The stored
    /// responses of a target are those whose keys begin with it and have the same
    /// [`RequestKey::uri`].
    pub fn uri(&self, request: &PresentedRequest<'_>) -> RequestKey {
        let mut bytes = SmallVec::new();
        let is_secure = request.scheme.eq_ignore_ascii_case("https");
        bytes.push(match (self.scheme, is_secure) {
            (false, _) => b'*',
            (true, true) => b's',
            (true, false) => b'h',
        });
        match &self.host {
            KeyHostRule::Requested => bytes.extend_from_slice(request.authority.as_bytes()),
            KeyHostRule::Named(name) => {
                // The host of a request contains no space, and the path begins at the first slash.
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
        // A host contains no slash, and the target of a cacheable request begins with one.
        if !request.path.starts_with('/') {
            bytes.push(b'/');
            bytes.push(b' ');
        }
        bytes.extend_from_slice(request.path.as_bytes());
        if let Some(query) = request.query {
            self.write_query(query, &mut bytes);
        }
        RequestKey {
            uri_end: u32::try_from(bytes.len()).unwrap_or(u32::MAX),
            bytes,
        }
    }

    /// The common prefix of the keys of all responses to the target with this [`KeyRules::uri`],
    /// which no key of another target has. `None` if the target has a single key, which is `uri`.
    pub fn variants_of(&self, uri: &RequestKey) -> Option<Box<[u8]>> {
        let mut prefix = uri.bytes.clone();
        // The length of a name contains a NUL, which no target contains.
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
            (None, None) if self.rule_choice => prefix.extend_from_slice(b"R\0"),
            (None, None) => return None,
        }
        Some(prefix.to_vec().into())
    }

    fn write_query(&self, query: &str, out: &mut SmallVec<[u8; 128]>) {
        let counts: &dyn Fn(&[u8]) -> bool = match &self.query {
            KeyQueryRule::Ignored => return,
            KeyQueryRule::All if !self.sort_query => {
                out.push(b'?');
                out.extend_from_slice(query.as_bytes());
                return;
            }
            KeyQueryRule::All => &|_| true,
            KeyQueryRule::Only(patterns) => &|name| CacheNamePattern::may_match(patterns, name),
            KeyQueryRule::Except(patterns) => {
                &|name| !CacheNamePattern::always_matches(patterns, name)
            }
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

/// Sorts parameters by name, unless an origin may interpret one name as another.
fn sort(parameters: &mut [&str]) {
    let sort_name = |parameter: &&str| names::sort_name(names::name_of(parameter.as_bytes()));
    let is_clear = |parameter: &&str| !parameter.contains(';') && sort_name(parameter).is_some();
    if parameters.iter().all(is_clear) {
        parameters.sort_by_cached_key(sort_name);
    }
}

/// Whether two authorities of the same scheme are equal.
pub(super) fn is_same_authority(one: &str, other: &str, is_secure: bool) -> bool {
    normal(one, is_secure) == normal(other, is_secure)
}

/// The normal form of an authority; an invalid authority is returned unchanged.
fn normal(authority: &str, is_secure: bool) -> Cow<'_, str> {
    match Authority::normalise(authority.as_bytes(), is_secure) {
        Some(authority) => Cow::Owned(authority.as_str().to_owned()),
        None => Cow::Borrowed(authority),
    }
}

impl RequestKey {
    /// A number that is the same for the same key in this process. The key, which may have secrets of the client, cannot be computed from it.
    pub fn hash(&self) -> u64 {
        static SECRET: OnceLock<RandomState> = OnceLock::new();
        SECRET.get_or_init(RandomState::new).hash_one(&self.bytes)
    }

    /// The whole key.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The part that identifies the target. If the path of a target begins with the path of another
    /// one of the same scheme and host, so do these bytes.
    pub fn uri(&self) -> &[u8] {
        self.bytes
            .get(..self.uri_end as usize)
            .unwrap_or(&self.bytes)
    }

    /// The length of [`RequestKey::uri`] in bytes.
    pub fn uri_len(&self) -> usize {
        self.uri().len()
    }

    /// The URI of the target of a key, from its bytes. The other parts, which may be secrets of a client, are left out.
    pub fn uri_of(bytes: &[u8]) -> String {
        // They begin with a letter and a length, which contains a NUL; no target contains one.
        let uri = match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => bytes.get(..end.saturating_sub(1)).unwrap_or_default(),
            None => bytes,
        };
        let (scheme, rest) = uri.split_first().unwrap_or((&b'*', b""));
        format!(
            "{}{}",
            scheme_of(*scheme),
            rest.trim_ascii_start().escape_ascii()
        )
    }

    /// The key of a target without a request, for purges and invalidation.
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
            request: None,
        })
    }
}

/// The beginning of a URI by that of a key.
fn scheme_of(first: u8) -> &'static str {
    match first {
        b's' => "https://",
        b'h' => "http://",
        _ => "//",
    }
}

/// The target as a URI, followed by the printable part of the rest.
impl fmt::Display for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let uri = self.uri();
        let (scheme, rest) = uri.split_first().unwrap_or((&b'*', b""));
        f.write_str(scheme_of(*scheme))?;
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

impl fmt::Debug for RequestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}
