//! The caching settings of a location.

use std::borrow::Cow;
use std::time::Duration;

use crate::policy::{CacheNamePattern, CacheRules, PresentedRequest, RequestKey};
use apus_conditions::{Condition, RequestFacts};
use apus_http::path::{self, InvalidPath};
use apus_http::{Network, NotCached, Request, Target};

use super::device::device;
use super::purge::PurgeAccess;
use apus_patterns::Glob;

/// The caching settings of a location.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// Which responses may be stored and sent.
    pub rules: CacheRules,
    /// Whether the key contains the target that the client sent, regardless of rewrites: for
    /// programs, which get that target. Otherwise it contains the target that is forwarded.
    pub by_sent_target: bool,
    /// Requests with a cookie that an origin may take for one of these bypass the cache: they get
    /// no stored response, and their responses are not stored.
    pub bypass_cookies: Vec<CacheNamePattern>,
    /// Requests with one of these fields, in lower case, bypass the cache.
    pub bypass_headers: Vec<Box<str>>,
    /// Requests for one of these paths, as the client sent it or after rewrites, bypass the cache.
    pub bypass_paths: Vec<Glob>,
    /// Requests for which this holds bypass the cache.
    pub bypass_when: Option<Condition>,
    /// Networks of clients whose directives count, if the rules trust some clients.
    pub trusted: Vec<Network>,
    /// How long a request waits for the response to another one before it is forwarded.
    pub lock_timeout: Duration,
    /// Whether responses have `Cache-Status` (RFC 9211).
    pub status_field: bool,
    /// Whether responses have `X-FastCGI-Cache`, with the values of nginx.
    pub fastcgi_field: bool,
    /// Which `PURGE` requests are allowed; `None`: none.
    pub purge: Option<PurgeAccess>,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            rules: CacheRules::default(),
            by_sent_target: false,
            bypass_cookies: Vec::new(),
            bypass_headers: Vec::new(),
            bypass_paths: Vec::new(),
            bypass_when: None,
            trusted: Vec::new(),
            lock_timeout: Duration::from_secs(5),
            status_field: true,
            fastcgi_field: false,
            purge: None,
        }
    }
}

impl CacheSettings {
    /// The key under which the response to a request is stored.
    pub fn key(&self, request: &Request) -> RequestKey {
        let mut presented = self.presented(request);
        // A URL with dot segments or doubled slashes once named another key than the requests for it, so that `apus cache
        // purge` said that it had purged, and nothing went. A request whose path is invalid is rejected, whatever its key.
        let path = presented.path;
        let path = path::normalise_encoded(path).unwrap_or(Cow::Borrowed(path));
        presented.path = &path;
        self.rules.key.key(&presented)
    }

    /// The properties of a request that the policy needs.
    pub(super) fn presented<'a>(&self, request: &'a Request) -> PresentedRequest<'a> {
        let target = self.target(request);
        PresentedRequest {
            method: request.method(),
            scheme: request.scheme(),
            authority: request.authority().unwrap_or(""),
            path: target.path(),
            query: target.query(),
            headers: request.headers(),
            device: (self.rules.key.device).then(|| device(request.headers())),
            request: Some(request),
            has_body: request.has_body(),
            has_certificate: (request.connection().tls.as_ref())
                .is_some_and(|tls| tls.client_certificate.is_some()),
        }
    }

    /// The target that is in the key of a request.
    fn target<'a>(&self, request: &'a Request) -> &'a Target {
        if self.by_sent_target {
            request.original_target()
        } else {
            request.target()
        }
    }

    /// Whether a request bypasses the cache.
    pub fn is_bypassed(&self, request: &Request) -> bool {
        let headers = request.headers();
        if (self.bypass_headers.iter()).any(|name| headers.contains(name)) {
            return true;
        }
        // A body is not in the key, and a protocol upgrade has no response to store.
        request.has_body()
            || request.upgrade().is_some()
            || NotCached::applies_to(request)
            || self.has_bypassed_path(request)
            || (self.bypass_when.as_ref())
                .is_some_and(|condition| condition.holds(&RequestFacts::new(request)))
            || CacheNamePattern::matches_any_cookie(&self.bypass_cookies, headers)
    }

    fn has_bypassed_path(&self, request: &Request) -> bool {
        // An ambiguous path may be any path.
        let is_bypassed = |path: Result<&[u8], InvalidPath>| {
            path.ok().is_none_or(|path| {
                let mut globs = self.bypass_paths.iter();
                globs.any(|glob| glob.matches(path))
            })
        };
        if self.bypass_paths.is_empty() {
            return false;
        }
        let sent = path::normalise_for_matching(request.original_target().path());
        is_bypassed(request.normal_path())
            || request.is_rewritten() && is_bypassed(sent.as_deref().map_err(|error| *error))
    }
}
