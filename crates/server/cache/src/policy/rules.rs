//! The caching rules of a location.

use std::time::Duration;

use apus_http::StatusCode;

use super::{CacheNamePattern, CachingContext, KeyRules};

/// The caching rules of a location. The default follows RFC 9111 and the directives of origins, and
/// stores nothing that may be for one client only.
#[derive(Clone, Debug)]
pub struct CacheRules {
    /// Which parts of a request are in the cache key.
    pub key: KeyRules,
    /// The freshness lifetime of responses whose origin sets none; the first entry with the status
    /// counts. Errors get a short lifetime here.
    pub ttl: Vec<StatusTtl>,
    /// Whether `ttl` replaces the lifetime that the origin sets. `private` and `no-store` still
    /// count.
    pub ttl_overrides: bool,
    /// The longest lifetime of any response, whatever its origin sets.
    pub max_ttl: Option<Duration>,
    /// The heuristic lifetime of responses without one (RFC 9111 section 4.2.2).
    pub heuristic: Option<HeuristicLifetime>,
    /// How long stale responses are sent while they are refreshed, if the origin neither sets nor
    /// forbids it (RFC 5861 section 3).
    pub stale_while_revalidate: Duration,
    /// How long stale responses are sent if the origin fails, under the same condition (RFC 5861
    /// section 4).
    pub stale_if_error: Duration,
    /// The largest body that is stored, in bytes.
    pub max_size: u64,
    /// How often a response has to be requested before it is stored.
    pub minimum_uses: u32,
    /// Fields of the origin that are ignored.
    pub ignored: IgnoredFields,
    /// Targeted fields (RFC 9213), in lower case: the first one that a response has replaces
    /// `Cache-Control` and `Expires`.
    pub targeted: Vec<Box<str>>,
    /// Whether `X-Accel-Expires` takes precedence over all other fields, as in nginx: seconds, 0
    /// for `no-store`, or `@` and seconds since 1970.
    pub accel_expires: bool,
    /// What the cache does with responses that have `Set-Cookie`.
    pub set_cookie: SetCookieRule,
    /// Requests that identify the client.
    pub credentials: CredentialRules,
    /// Whether the cache directives of requests count.
    pub client_directives: ClientDirectiveRule,
    /// Whether errors other than 404, 410 and those in `ttl` are stored if the origin sets a
    /// lifetime. A client may cause such an error by what it sends, and others would get it.
    pub store_errors: bool,
    /// Whether partial responses (206) are stored.
    pub store_parts: bool,
    /// Whether a page is not stored if its path ends like the path of an image or a style sheet: it
    /// may be a personal page at a path that an attacker made up (web cache deception).
    pub refuse_disguised: bool,
    /// Fields that contain the tags for purges, in lower case.
    pub tag_fields: Vec<Box<str>>,
    /// Whether those fields are not sent to clients.
    pub hide_tags: bool,
}

impl Default for CacheRules {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        Self {
            key: KeyRules::default(),
            ttl: Vec::new(),
            ttl_overrides: false,
            max_ttl: None,
            heuristic: Some(HeuristicLifetime::default()),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            max_size: 1 << 30,
            minimum_uses: 1,
            ignored: IgnoredFields::default(),
            targeted: names(&["cdn-cache-control"]),
            accel_expires: true,
            // RFC 9111 section 7.3 lets a cache store it, but then all clients would get the session of one.
            set_cookie: SetCookieRule::Refuse,
            credentials: CredentialRules::default(),
            // Otherwise anybody could send each request to the origin with `no-cache`.
            client_directives: ClientDirectiveRule::Trusted,
            store_errors: false,
            store_parts: true,
            refuse_disguised: true,
            tag_fields: names(&["surrogate-key", "xkey", "cache-tag"]),
            hide_tags: true,
        }
    }
}

impl CacheRules {
    /// The configured lifetime for a status.
    pub(super) fn ttl(&self, status: StatusCode) -> Option<Duration> {
        self.ttl
            .iter()
            .find(|rule| (rule.first..=rule.last).contains(&status.as_u16()))
            .map(|rule| rule.ttl)
    }

    /// Whether the directives of this client count.
    pub(super) fn honours_client_directives(&self, conditions: &CachingContext) -> bool {
        match self.client_directives {
            ClientDirectiveRule::Ignore => false,
            ClientDirectiveRule::Trusted => conditions.is_trusted,
            ClientDirectiveRule::Honour => true,
        }
    }
}

/// A lifetime for the responses of some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusTtl {
    /// The first status.
    pub first: u16,
    /// The last status, inclusive.
    pub last: u16,
    /// The lifetime, from the receipt of the response.
    pub ttl: Duration,
}

/// The heuristic lifetime from `Last-Modified` (RFC 9111 section 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeuristicLifetime {
    /// The percentage of the time since the last modification.
    pub percent: u32,
    /// The longest heuristic lifetime.
    pub max: Duration,
    /// Whether it applies to targets with a query, too. Their responses are mostly dynamic.
    pub with_query: bool,
}

impl Default for HeuristicLifetime {
    fn default() -> Self {
        Self {
            // RFC 9111 section 4.2.2 calls a tenth typical. A file unchanged for years would stay for months without
            // the limit.
            percent: 10,
            max: Duration::from_secs(24 * 60 * 60),
            // As RFC 2616 section 13.9 demanded. RFC 9111 section 4.2.2 dropped that, because few caches did it.
            with_query: false,
        }
    }
}

/// Fields of responses that are ignored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IgnoredFields {
    /// `Cache-Control` and the fields that replace it, including `private` and `no-store`.
    pub cache_control: bool,
    /// `Expires`.
    pub expires: bool,
    /// `Vary`. A response with a content coding still goes only to clients that accept the coding.
    pub vary: bool,
}

/// What the cache does with responses that have `Set-Cookie`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookieRule {
    /// They are not stored.
    Refuse,
    /// They are stored without it.
    Remove,
    /// They are stored with it: all clients get the same cookie.
    Keep,
}

/// Which requests identify the client, and when they share stored responses.
#[derive(Clone, Debug)]
pub struct CredentialRules {
    /// Requests with `Authorization`, or with a client certificate.
    pub authorization: SharingRule,
    /// Requests with session cookies.
    pub cookies: SharingRule,
    /// The cookies that identify a session. Default: all.
    pub session_cookies: Vec<CacheNamePattern>,
    /// The cookies that never identify a session, which take precedence. Default: the cookies of
    /// web analytics.
    pub harmless_cookies: Vec<CacheNamePattern>,
}

impl Default for CredentialRules {
    fn default() -> Self {
        Self {
            authorization: SharingRule::Declared,
            cookies: SharingRule::Declared,
            // Only the application knows which cookie carries its session.
            session_cookies: vec![CacheNamePattern::new("*")],
            harmless_cookies: [
                "_ga*", "_gid", "_gat*", "_gcl_*", "__utm*", "_fbp", "_fbc", "_pk_*", "_hj*",
                "_clck", "_clsk", "_uet*", "_ym_*",
            ]
            .map(CacheNamePattern::new)
            .into(),
        }
    }
}

/// When requests with credentials share stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharingRule {
    /// If the origin declares it. Responses to them are stored if they are `public` or have
    /// `s-maxage`, and with `Authorization` also if they have `must-revalidate` (RFC 9111 section
    /// 3.5). They get a stored response if the origin set its lifetime, not the configuration or a
    /// heuristic.
    Declared,
    /// Always, as all other requests do.
    Always,
}

/// Whether the directives of requests count (RFC 9111 section 5.2.1).
///
/// If every client could force a fetch, the origin would have as much work as without a cache.
/// nginx and Varnish ignore these directives for that reason, and Apus does so unless the client is
/// trusted. `no-store` and `only-if-cached` cost the origin nothing and always count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientDirectiveRule {
    /// They do not count.
    Ignore,
    /// They count for clients with [`CachingContext::is_trusted`].
    Trusted,
    /// They count.
    Honour,
}
