//! Rate limits of clients: 429 (RFC 6585 section 4) and the `RateLimit` fields.
//!
//! The fields are defined in draft-ietf-httpapi-ratelimit-headers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use apus_access::{LimitOutcome, Rate, RateDecision};
use apus_conditions::Condition;
use apus_handler::{Error, Middleware, Next, Rendering};
use apus_http::{HeaderName, Request, Response, ResponseFuture, StatusCode};

use crate::counted_units::CountedUnits;
use crate::limit::{LimitHandle, Partition, PolicyFields, REMEMBERED_KEYS, sleep};
use crate::limit_key::{KeyValue, LimitKey};

/// A layer that responds 429 to clients that send too many requests.
///
/// Clients are identified by their address (an IPv6 /64 network is one client), unless
/// [`RateLimit::by_header`], [`RateLimit::by_key`] or [`RateLimit::by`] is set. All workers count together. The quota refills evenly
/// (GCRA): a client without quota may send one request after each share of the period.
///
/// `RateLimit` in responses has the number of requests that are left (`r`) and the seconds until the full
/// burst is available (`t`). A 429 has the time of the next request in `Retry-After`.
///
/// Behind a proxy, put [`apus_handler::TrustedProxies`] further out. Clients without an address, on a Unix
/// socket, are not limited.
#[derive(Clone)]
pub struct RateLimit {
    limit: LimitHandle,
    quota: RateQuota,
    tiers: Arc<HashMap<Box<[u8]>, RateQuota>>,
    status: StatusCode,
    counted: CountedUnits,
}

/// A rate, and the fields that tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RateQuota {
    rate: Rate,
    fields: PolicyFields,
}

impl RateQuota {
    fn new(rate: Rate, name: &Arc<str>, unit: Option<&str>) -> Self {
        Self {
            rate,
            fields: PolicyFields::quota(name, rate.burst(), (rate.window(), unit)),
        }
    }
}

impl RateLimit {
    /// A number of requests in a period, all of which may come at once. The minimum is one request, and one
    /// nanosecond for each.
    pub fn new(requests: u32, period: Duration) -> Self {
        let limit = LimitHandle::new(REMEMBERED_KEYS);
        Self {
            quota: RateQuota::new(Rate::new(requests.into(), period), &limit.name, None),
            limit,
            tiers: Arc::default(),
            status: StatusCode::TOO_MANY_REQUESTS,
            counted: CountedUnits::Requests,
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
    pub fn burst(self, requests: u32) -> Self {
        let rate = self.quota.rate.with_burst(requests.into());
        self.with_rate(rate)
    }

    /// How long requests beyond the burst may wait for their time in place of being refused. They go on one after the
    /// other, at the rate. Default: not at all.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        let rate = self.quota.rate.with_delay(delay);
        self.with_rate(rate)
    }

    fn with_rate(mut self, rate: Rate) -> Self {
        self.quota = RateQuota::new(rate, &self.limit.name, self.counted.unit());
        self.limit.reset();
        self
    }

    /// The number of clients that are remembered, with about 20 bytes each. Default: 100,000. Above it, the
    /// least frequent clients are forgotten and start with a full quota.
    #[must_use]
    pub fn remembered_clients(mut self, count: usize) -> Self {
        self.limit.keys = count.max(1);
        self.limit.reset();
        self
    }

    /// The name of this limit in the header fields, for requests with several limits: letters, digits, `-`
    /// and `_`. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.limit.set_name(name);
        self.renew_quotas()
    }

    /// Makes the fields anew.
    fn renew_quotas(mut self) -> Self {
        let unit = self.counted.unit();
        self.quota = RateQuota::new(self.quota.rate, &self.limit.name, unit);
        let tiers = self.tiers.iter().map(|(value, quota)| {
            let quota = RateQuota::new(quota.rate, &self.limit.name, unit);
            (value.clone(), quota)
        });
        self.tiers = Arc::new(tiers.collect());
        self
    }

    /// Counts the responses of which a condition holds in place of requests, as `status in [401, 403]` for failed log-ins. The request after
    /// the last response that was allowed is refused. Requests at the same time are not known to fail before they have.
    #[must_use]
    pub fn count_responses(mut self, condition: Condition) -> Self {
        self.counted = CountedUnits::Responses(Arc::new(condition));
        self.limit.reset();
        self.renew_quotas()
    }

    /// Counts the bytes of the bodies of responses in place of requests, of all or of those of which a condition holds. The rate and the burst
    /// are bytes then. A response is sent whole, and the requests after it are refused until there are bytes again.
    #[must_use]
    pub fn count_bytes(mut self, condition: Option<Condition>) -> Self {
        self.counted = CountedUnits::Bytes(condition.map(Arc::new));
        self.limit.reset();
        self.renew_quotas()
    }

    /// Identifies clients by a header field, for example an API key, and clients without it, or with several, by address. A
    /// layer further out must check the field: a client that can choose it freely is not limited.
    #[must_use]
    pub fn by_header(self, name: HeaderName) -> Self {
        self.by_key(LimitKey::header(&name))
    }

    /// Identifies clients by the result of a function. `None` is not limited.
    #[must_use]
    pub fn by(self, key: impl Fn(&Request) -> Option<String> + Send + Sync + 'static) -> Self {
        self.by_key(LimitKey::function(key))
    }

    /// Counts by this in place of the client's address.
    #[must_use]
    pub fn by_key(mut self, key: LimitKey) -> Self {
        self.limit.key = key;
        self.limit.reset();
        self
    }

    /// Gives another limit's rate, burst and delay to the requests whose key is this text: a plan of an API key. With such plans, a
    /// request of another key counts for its client, so that nobody gains by making up keys.
    #[must_use]
    pub fn tier(mut self, key: &str, limit: &Self) -> Self {
        let quota = RateQuota::new(limit.quota.rate, &self.limit.name, self.counted.unit());
        Arc::make_mut(&mut self.tiers).insert(key.as_bytes().into(), quota);
        self
    }

    /// The status of refusals in place of 429.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Bans a client after so many refusals, at least one, of which one is forgotten again and again: all of them within ten minutes. The
    /// ban is longer if the client was banned before. A server of `apus.toml` has bans; elsewhere, [`LimitHandle::use_bans`] says
    /// where. Use it with a key of clients, or clients are banned for what others did.
    #[must_use]
    pub fn ban_after(mut self, refusals: u32, time: Duration) -> Self {
        self.limit.set_ban(refusals, time);
        self
    }

    /// Only counts what would be refused or delayed, and logs it.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.limit.is_dry_run = true;
        self
    }

    /// The limit as the status of a server knows it.
    pub fn handle(&self) -> &LimitHandle {
        &self.limit
    }

    /// Counts an attempt of something that a handler names, as the address of an account: a limit that attackers with many
    /// addresses share. The layer counts such names apart from clients.
    ///
    /// # Errors
    /// 429 with `Retry-After`: there were too many.
    pub fn attempt(&self, name: &str) -> Result<(), Error> {
        let table = &self.limit.state().times;
        let key = table.key((ATTEMPT, name));
        let rate = self.quota.rate.with_delay(Duration::ZERO);
        match rate.take(table, key, 1, apus_clock::monotonic()) {
            Ok(_) => Ok(()),
            Err(wait) => Err(self.limit.error(self.status, wait)),
        }
    }

    /// What is left for a request, which is not counted: requests, or what else it counts. `None` if the limit is not for the request.
    pub fn left(&self, request: &Request) -> Option<u64> {
        let (quota, value) = self.quota(request)?;
        let table = &self.limit.state().times;
        let key = table.key((REQUEST, &value.bytes));
        let checked = quota.rate.check(table, key, apus_clock::monotonic());
        Some(checked.map_or(0, |decision| decision.remaining))
    }

    /// The quota and the key of a request.
    fn quota(&self, request: &Request) -> Option<(&RateQuota, KeyValue)> {
        let value = self.limit.key.value(request)?;
        if self.tiers.is_empty() || value.is_plain {
            return Some((&self.quota, value));
        }
        match self.tiers.get(value.text()) {
            Some(quota) => Some((quota, value)),
            None => Some((&self.quota, LimitKey::client().value(request)?)),
        }
    }

    fn refusal(&self, wait: Duration, quota: &RateQuota, about: &Refused<'_>) -> Response {
        let mut response = self.limit.refusal(self.status, wait, about.rendering);
        // The whole burst is there after the time until a request may come, and the time of the others.
        let rate = &quota.rate;
        let reset = wait
            .saturating_add(rate.window())
            .saturating_add(rate.delay())
            .saturating_sub(rate.interval());
        let headers = response.headers_mut();
        quota.fields.write(headers, about.partition, 0, Some(reset));
        response
    }
}

/// The keys of attempts are other ones than those of requests.
const ATTEMPT: u8 = 1;
const REQUEST: u8 = 0;

/// What the response to a refused request depends on.
struct Refused<'a> {
    rendering: &'a Rendering,
    partition: Partition,
}

impl Middleware<()> for RateLimit {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let Some((quota, value)) = self.quota(&request) else {
            self.limit
                .note(&request, || "no key, so no limit".to_owned());
            return next.call(request);
        };
        if self.limit.is_passed_by(&request) {
            return next.call(request);
        }
        let table = &self.limit.state().times;
        let key = table.key((REQUEST, &value.bytes));
        let now = apus_clock::monotonic();
        let taken = match self.counted {
            CountedUnits::Requests => quota.rate.take(table, key, 1, now),
            _ => quota.rate.check(table, key, now),
        };
        self.limit
            .note(&request, || shown(&taken, &quota.rate, &self.counted));
        let left = match taken {
            Ok(left) => left,
            Err(_) if self.limit.is_dry_run => {
                self.limit.count_dry(&mut request);
                return next.call(request);
            }
            Err(wait) => {
                self.limit.refuse(request.client().ip);
                let about = Refused {
                    rendering: &next.rendering(&request),
                    partition: self.limit.partition(&value),
                };
                return self.refusal(wait, quota, &about).into();
            }
        };
        let waits = !left.wait.is_zero();
        self.limit.count(match (waits, self.limit.is_dry_run) {
            (false, _) => LimitOutcome::Allowed,
            (true, false) => LimitOutcome::Delayed,
            (true, true) => LimitOutcome::WouldDelay,
        });
        let charge = self.counted.charge(&request, || {
            let (rate, state) = (quota.rate, Arc::clone(self.limit.state()));
            move |units| rate.charge(&state.times, key, units, apus_clock::monotonic())
        });
        if self.limit.is_dry_run {
            return match charge {
                None => next.call(request),
                Some(charge) => next.call_and_change(request, move |response| charge.of(response)),
            };
        }
        let (fields, partition) = (quota.fields.clone(), self.limit.partition(&value));
        let write_fields = move |mut response: Response| {
            let headers = response.headers_mut();
            fields.write(headers, partition, left.remaining, Some(left.reset));
            response
        };
        if let Some(charge) = charge {
            let change = move |response| write_fields(charge.of(response));
            return next.call_and_change(request, change);
        }
        if !waits {
            return next.call_and_change(request, write_fields);
        }
        ResponseFuture::later(async move {
            sleep(left.wait).await;
            write_fields(next.call(request).wait().await)
        })
    }
}

/// A decision in words.
fn shown(taken: &Result<RateDecision, Duration>, rate: &Rate, counted: &CountedUnits) -> String {
    let units = counted.name();
    match taken {
        Ok(left) if left.wait.is_zero() => {
            format!("{} of {} {units} are left", left.remaining, rate.burst())
        }
        Ok(left) => format!("the request waits for {:?}", left.wait),
        Err(wait) => format!("the limit is exceeded for {wait:?}"),
    }
}

impl fmt::Debug for RateLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("limit", &self.limit)
            .field("quota", &self.quota)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_limit_of_nothing_is_one_request() {
        for limit in [
            RateLimit::new(0, Duration::ZERO),
            RateLimit::per_hour(1).burst(0),
        ] {
            assert_eq!(limit.quota.rate.burst(), 1);
            assert!(limit.attempt("ada").is_ok());
        }
    }
}
