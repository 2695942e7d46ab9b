//! Rate limits of clients: 429 (RFC 6585 section 4) and the `RateLimit` fields.
//!
//! The fields are defined in draft-ietf-httpapi-ratelimit-headers.

use std::convert::Infallible;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{HeaderName, Headers, Request, Response, ResponseFuture, StatusCode, header};
use governor::clock::Clock;
use governor::middleware::StateInformationMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed, StateStore};
use governor::{Quota, RateLimiter};
use quick_cache::sync::Cache;

use apus_handler::{Error, Rendering};
use apus_handler::{Middleware, Next};

use crate::client_network::client_network;

/// The default of [`RateLimit::remembered_clients`].
const CLIENTS: usize = 100_000;

/// A layer that responds 429 to clients that send too many requests.
///
/// Clients are identified by their address (an IPv6 /64 network is one client), unless
/// [`RateLimit::by_header`] or [`RateLimit::by`] is set. All workers count together. The quota refills evenly
/// (GCRA): a client without quota may send one request after each share of the period.
///
/// `RateLimit` in responses has the number of requests that are left (`r`) and the seconds until the full
/// burst is available (`t`). A 429 has the time of the next request in `Retry-After`.
///
/// Behind a proxy, put [`apus_handler::TrustedProxies`] further out. Clients without an address, on a Unix
/// socket, are not limited.
#[derive(Clone)]
pub struct RateLimit {
    policy: QuotaPolicy,
    clients: usize,
    by: ClientKey,
    state: Arc<RateLimitState>,
}

/// The quota and its name.
#[derive(Clone, Debug)]
struct QuotaPolicy {
    name: Arc<str>,
    quota: Quota,
}

/// The identity of clients.
#[derive(Clone)]
enum ClientKey {
    Address,
    Header(HeaderName),
    Function(Arc<Function>),
}

type Function = dyn Fn(&Request) -> Option<String> + Send + Sync;

/// The counters, which all workers share.
struct RateLimitState {
    limiter: RateLimiter<u128, ClientStates, QuotaClock, StateInformationMiddleware>,
    hashers: [RandomState; 2],
}

impl RateLimit {
    /// A number of requests in a period, all of which may come at once. The minimum is one request, and one
    /// nanosecond for each.
    pub fn new(requests: u32, period: Duration) -> Self {
        let requests = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
        let each = period
            .checked_div(requests.get())
            .unwrap_or(period)
            .max(Duration::from_nanos(1));
        let quota = Quota::with_period(each)
            .unwrap_or(Quota::per_second(requests))
            .allow_burst(requests);
        Self {
            policy: QuotaPolicy {
                name: "default".into(),
                quota,
            },
            clients: CLIENTS,
            by: ClientKey::Address,
            state: RateLimitState::new(quota, CLIENTS),
        }
    }

    /// Requests per second.
    pub fn per_second(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(1))
    }

    /// Requests per minute.
    pub fn per_minute(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(60))
    }

    /// Requests per hour.
    pub fn per_hour(requests: u32) -> Self {
        Self::new(requests, Duration::from_secs(3600))
    }

    /// The number of requests that may come at once. Default: the requests of the whole period.
    #[must_use]
    pub fn burst(mut self, requests: u32) -> Self {
        let requests = NonZeroU32::new(requests).unwrap_or(NonZeroU32::MIN);
        self.policy.quota = self.policy.quota.allow_burst(requests);
        self.state = RateLimitState::new(self.policy.quota, self.clients);
        self
    }

    /// The number of clients that are remembered, with about 150 bytes each. Default: 100,000. Above it, the
    /// least frequent clients are forgotten and start with a full quota.
    #[must_use]
    pub fn remembered_clients(mut self, count: usize) -> Self {
        self.clients = count.max(1);
        self.state = RateLimitState::new(self.policy.quota, self.clients);
        self
    }

    /// The name of this limit in the header fields, for requests with several limits: letters, digits, `-`
    /// and `_`. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        let is_plain = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let plain: String = name.chars().filter(|byte| is_plain(*byte)).collect();
        self.policy.name = plain.into();
        self
    }

    /// Identifies clients by a header field, for example an API key, and clients without it by address. A
    /// layer further out must check the field: a client that can choose it freely is not limited.
    #[must_use]
    pub fn by_header(mut self, name: HeaderName) -> Self {
        self.by = ClientKey::Header(name);
        self
    }

    /// Identifies clients by the result of a function. `None` is not limited.
    #[must_use]
    pub fn by(mut self, key: impl Fn(&Request) -> Option<String> + Send + Sync + 'static) -> Self {
        self.by = ClientKey::Function(Arc::new(key));
        self
    }

    /// Counts an attempt of something that a handler names, as the address of an account: a limit that attackers with many
    /// addresses share. The layer counts such names apart from clients.
    ///
    /// # Errors
    /// 429 with `Retry-After`: there were too many.
    pub fn attempt(&self, name: &str) -> Result<(), Error> {
        let limiter = &self.state.limiter;
        let checked = limiter.check_key(&self.state.hash((2u8, name)));
        checked
            .map(|_| ())
            .map_err(|until| Self::error(until.wait_time_from(limiter.clock().now())))
    }

    fn error(wait: Duration) -> Error {
        let detail = "there were too many requests; please wait a moment";
        Error::new(StatusCode::TOO_MANY_REQUESTS, detail)
            .header(header::RETRY_AFTER, seconds(wait).max(1).into())
    }

    /// The key of the client.
    fn key(&self, request: &Request) -> Option<u128> {
        let text = match &self.by {
            ClientKey::Address => None,
            ClientKey::Header(name) => request.headers().get(name).map(<[u8]>::to_vec),
            ClientKey::Function(function) => Some(function(request)?.into_bytes()),
        };
        match text {
            Some(text) => Some(self.state.hash((0u8, text))),
            None => Some(self.state.hash((1u8, client_network(request.client().ip?)))),
        }
    }

    fn refusal(&self, wait: Duration, rendering: &Rendering) -> Response {
        let mut response = rendering.respond(Self::error(wait));
        self.policy.write_headers(response.headers_mut(), 0);
        response
    }
}

impl Middleware<()> for RateLimit {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let Some(key) = self.key(&request) else {
            return next.call(request);
        };
        let limiter = &self.state.limiter;
        match limiter.check_key(&key) {
            Ok(state) => {
                let (policy, left) = (self.policy.clone(), state.remaining_burst_capacity());
                next.call_and_change(request, move |mut response| {
                    policy.write_headers(response.headers_mut(), left);
                    response
                })
            }
            Err(until) => {
                let wait = until.wait_time_from(limiter.clock().now());
                self.refusal(wait, &next.rendering(&request)).into()
            }
        }
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

impl QuotaPolicy {
    /// Writes the header fields with the rest of the quota.
    fn write_headers(&self, headers: &mut Headers, left: u32) {
        let (name, burst) = (&self.name, self.quota.burst_size().get());
        let each = self.quota.replenish_interval();
        let until_full = each.saturating_mul(burst.saturating_sub(left));
        let window = each.saturating_mul(burst);
        let state = format!("\"{name}\";r={left};t={}", seconds(until_full));
        let policy = format!("\"{name}\";q={burst};w={}", seconds(window));
        // These characters are always valid in field values.
        let _ = headers.try_append("ratelimit", state);
        let _ = headers.try_append("ratelimit-policy", policy);
    }
}

impl RateLimitState {
    fn new(quota: Quota, clients: usize) -> Arc<Self> {
        let clients = ClientStates(Cache::new(clients));
        Arc::new(Self {
            limiter: RateLimiter::new(quota, clients, QuotaClock),
            hashers: [RandomState::new(), RandomState::new()],
        })
    }

    /// A keyed hash of 128 bits, so that long keys need no memory and clients cannot cause collisions.
    fn hash(&self, key: impl std::hash::Hash) -> u128 {
        let [high, low] = &self.hashers;
        u128::from(high.hash_one(&key)) << 64 | u128::from(low.hash_one(&key))
    }
}

/// The time of the application, which tests can move.
#[derive(Clone, Copy, Debug)]
struct QuotaClock;

impl Clock for QuotaClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        apus_clock::monotonic()
    }
}

/// The state of a bounded number of clients.
struct ClientStates(Cache<u128, Arc<InMemoryState>>);

impl StateStore for ClientStates {
    type Key = u128;

    fn measure_and_replace<T, F, E>(&self, key: &u128, measure: F) -> Result<T, E>
    where
        F: Fn(Option<Nanos>) -> Result<(T, Nanos), E>,
    {
        let new = || Ok::<_, Infallible>(Arc::default());
        let Ok(state) = self.0.get_or_insert_with(key, new);
        state.measure_and_replace(&NotKeyed::NonKey, measure)
    }
}

/// Whole seconds, rounded up.
fn seconds(duration: Duration) -> u64 {
    duration
        .as_secs()
        .saturating_add(u64::from(duration.subsec_nanos() > 0))
}

#[cfg(test)]
mod tests {
    use apus_handler::rendering::ErrorRules;

    use super::*;

    #[test]
    fn a_started_second_is_a_whole_one() {
        let second = 1_000_000_000;
        for (nanoseconds, expected) in [
            (0, 0),
            (1, 1),
            (second - 1, 1),
            (second, 1),
            (second + 1, 2),
        ] {
            let duration = Duration::from_nanos(nanoseconds);
            assert_eq!(seconds(duration), expected, "{nanoseconds}");
        }
        assert_eq!(seconds(Duration::MAX), u64::MAX);
        let wait = |duration| {
            let request = apus_testkit::get("/").request();
            let rendering = Rendering::of(&request, &ErrorRules::default());
            let response = rendering.respond(RateLimit::error(duration));
            response
                .headers()
                .get_str("retry-after")
                .unwrap()
                .to_owned()
        };
        assert_eq!(wait(Duration::ZERO), "1");
        assert_eq!(wait(Duration::from_millis(1001)), "2");
    }

    #[test]
    fn an_attempt_is_free_when_its_time_has_passed_and_not_a_moment_before() {
        let clock = apus_clock::TestClock::default();
        let _entered = clock.enter();
        clock.freeze();
        // One in ten seconds, of which three may come at once.
        let limit = RateLimit::new(6, Duration::from_secs(60)).burst(3);
        let is_allowed = || limit.attempt("ada").is_ok();
        assert_eq!([(); 4].map(|()| is_allowed()), [true, true, true, false]);
        clock.advance(Duration::from_nanos(9_999_999_999));
        assert!(!is_allowed());
        clock.advance(Duration::from_nanos(1));
        assert_eq!([(); 2].map(|()| is_allowed()), [true, false]);
        // Above the burst nothing is saved up.
        clock.advance(Duration::from_secs(3600));
        assert_eq!([(); 4].map(|()| is_allowed()), [true, true, true, false]);
    }

    #[test]
    fn the_fields_tell_the_rest_of_the_quota_and_when_it_is_full() {
        let limit = RateLimit::new(3, Duration::from_secs(10)).name("a\"b-_7 é");
        for (left, expected) in [
            (3, "\"ab-_7\";r=3;t=0"),
            (2, "\"ab-_7\";r=2;t=4"),
            (0, "\"ab-_7\";r=0;t=10"),
            (4, "\"ab-_7\";r=4;t=0"),
        ] {
            let mut headers = Headers::new();
            limit.policy.write_headers(&mut headers, left);
            assert_eq!(headers.get_str("ratelimit"), Some(expected));
            let policy = headers.get_str("ratelimit-policy");
            assert_eq!(policy, Some("\"ab-_7\";q=3;w=10"));
        }
    }

    #[test]
    fn a_limit_of_nothing_is_one_request() {
        for limit in [
            RateLimit::new(0, Duration::ZERO),
            RateLimit::per_hour(1).burst(0),
        ] {
            assert_eq!(limit.policy.quota.burst_size().get(), 1);
            assert!(limit.attempt("ada").is_ok());
        }
    }
}
