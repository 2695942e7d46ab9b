//! What the configuration of a location says about caching.

use std::time::Duration;

use apus_http::StatusCode;

use super::{Conditions, KeyRules, NamePattern};

/// How a location caches. The default follows RFC 9111 and what origins say, and stores nothing that
/// could be for one client only.
#[derive(Clone, Debug)]
pub struct Rules {
    /// What tells stored responses apart.
    pub key: KeyRules,
    /// For how long answers are fresh whose origin says nothing about it; the first that has the
    /// status counts. This is where errors are given a short life.
    pub ttl: Vec<StatusTtl>,
    /// Whether `ttl` counts even if the origin names a lifetime. `private` and `no-store` still hold.
    pub ttl_overrides: bool,
    /// The longest lifetime of any response, whatever its origin says.
    pub max_ttl: Option<Duration>,
    /// How lifetimes are guessed if nobody names one (RFC 9111 section 4.2.2).
    pub heuristic: Option<Heuristic>,
    /// For how long stale responses are sent while they are refreshed, if the origin says nothing
    /// about it and does not forbid it (RFC 5861 section 3).
    pub stale_while_revalidate: Duration,
    /// For how long stale responses are sent if the origin fails, likewise (RFC 5861 section 4).
    pub stale_if_error: Duration,
    /// The largest content that is stored, in bytes.
    pub max_size: u64,
    /// How often something has to be asked for before it is stored.
    pub minimum_uses: u32,
    /// Fields of the origin that do not count.
    pub ignored: Ignored,
    /// Fields that say the same as `Cache-Control` to some caches only, in lower case (RFC 9213);
    /// the first one that a response has replaces `Cache-Control` and `Expires`.
    pub targeted: Vec<Box<str>>,
    /// Whether `X-Accel-Expires` counts, before all others, as nginx has it: seconds, 0 for not to
    /// store, or `@` and seconds since 1970.
    pub accel_expires: bool,
    /// What becomes of responses with `Set-Cookie`.
    pub set_cookie: SetCookie,
    /// Requests that tell who the client is.
    pub credentials: Credentials,
    /// Whether clients can ask for more than a stored response.
    pub client_directives: ClientDirectives,
    /// Whether errors other than 404, 410 and those in `ttl` are stored if the origin names a
    /// lifetime. A client can cause such errors by what it sends, for others.
    pub store_errors: bool,
    /// Whether parts of a representation (206) are stored.
    pub store_parts: bool,
    /// Whether a page is refused whose path ends like that of an image or a style sheet: it may be a
    /// personal page under an address that an attacker made up ("web cache deception").
    pub refuse_disguised: bool,
    /// Fields with tags to purge by, in lower case.
    pub tag_fields: Vec<Box<str>>,
    /// Whether clients do not see those fields.
    pub hide_tags: bool,
}

impl Default for Rules {
    fn default() -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).into()).collect();
        Self {
            key: KeyRules::default(),
            ttl: Vec::new(),
            ttl_overrides: false,
            max_ttl: None,
            heuristic: Some(Heuristic::default()),
            stale_while_revalidate: Duration::ZERO,
            stale_if_error: Duration::ZERO,
            max_size: 1 << 30,
            minimum_uses: 1,
            ignored: Ignored::default(),
            targeted: names(&["cdn-cache-control"]),
            accel_expires: true,
            set_cookie: SetCookie::Refuse,
            credentials: Credentials::default(),
            client_directives: ClientDirectives::Trusted,
            store_errors: false,
            store_parts: true,
            refuse_disguised: true,
            tag_fields: names(&["surrogate-key", "xkey", "cache-tag"]),
            hide_tags: true,
        }
    }
}

impl Rules {
    /// The lifetime that the configuration has for a status.
    pub(super) fn ttl(&self, status: StatusCode) -> Option<Duration> {
        self.ttl
            .iter()
            .find(|rule| (rule.first..=rule.last).contains(&status.as_u16()))
            .map(|rule| rule.ttl)
    }

    /// Whether the directives of this client count.
    pub(super) fn heeds_client(&self, conditions: &Conditions) -> bool {
        match self.client_directives {
            ClientDirectives::Ignore => false,
            ClientDirectives::Trusted => conditions.is_trusted,
            ClientDirectives::Honour => true,
        }
    }
}

/// A lifetime for the responses of some statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusTtl {
    /// The first status.
    pub first: u16,
    /// The last status, itself included.
    pub last: u16,
    /// How long they are fresh, from when they came.
    pub ttl: Duration,
}

/// How a lifetime is guessed from `Last-Modified` (RFC 9111 section 4.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristic {
    /// The part of the time since the last change.
    pub percent: u32,
    /// The longest lifetime that is guessed.
    pub max: Duration,
    /// Whether it is guessed for targets with a query, too. Those are mostly made by programs.
    pub with_query: bool,
}

impl Default for Heuristic {
    fn default() -> Self {
        Self {
            percent: 10,
            max: Duration::from_secs(24 * 60 * 60),
            with_query: false,
        }
    }
}

/// Fields of responses that do not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ignored {
    /// `Cache-Control` and those that replace it, `private` and `no-store` too.
    pub cache_control: bool,
    /// `Expires`.
    pub expires: bool,
    /// `Vary`. What is encoded still goes only to clients that can decode it.
    pub vary: bool,
}

/// What becomes of responses with `Set-Cookie`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetCookie {
    /// They are not stored.
    Refuse,
    /// They are stored without it.
    Remove,
    /// They are stored with it: every client gets the same cookie.
    Keep,
}

/// What is known of clients by their requests.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Requests with `Authorization`, and those of clients that showed a certificate.
    pub authorization: Sharing,
    /// Requests with session cookies.
    pub cookies: Sharing,
    /// The cookies that are of a session. By default all are.
    pub session_cookies: Vec<NamePattern>,
    /// The cookies that are not, whatever the line above says. By default those of statistics.
    pub harmless_cookies: Vec<NamePattern>,
}

impl Default for Credentials {
    fn default() -> Self {
        Self {
            authorization: Sharing::Declared,
            cookies: Sharing::Declared,
            session_cookies: vec![NamePattern::new("*")],
            harmless_cookies: [
                "_ga*", "_gid", "_gat*", "_gcl_*", "__utm*", "_fbp", "_fbc", "_pk_*", "_hj*",
                "_clck", "_clsk", "_uet*", "_ym_*",
            ]
            .map(NamePattern::new)
            .into(),
        }
    }
}

/// When requests with credentials share stored responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// If the origin declared it. Answers to them are stored if they are `public` or have
    /// `s-maxage`, with `Authorization` also if they have `must-revalidate` (RFC 9111 section 3.5).
    /// They are answered from the cache if the origin named the lifetime, not the configuration or
    /// a guess.
    Declared,
    /// As all other requests.
    Always,
}

/// Whether the directives of requests count (RFC 9111 section 5.2.1).
///
/// A client that can have everything fetched anew has the origin do as much work as if there were no
/// cache. nginx and Varnish ignore them for that reason, and so does Apus unless the client is
/// trusted. `no-store` and `only-if-cached` cost the origin nothing, and count always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientDirectives {
    /// They do not count.
    Ignore,
    /// Those of clients count that [`Conditions::is_trusted`] names.
    Trusted,
    /// They count.
    Honour,
}
