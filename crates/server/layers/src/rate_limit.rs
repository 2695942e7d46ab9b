//! Rate limits of clients: 429 (RFC 6585 section 4) and the `RateLimit` fields.
//!
//! The fields are defined in draft-ietf-httpapi-ratelimit-headers.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use apus_access::{Key, LimitOutcome, Rate, RateDecision};
use apus_conditions::Condition;
use apus_handler::gate::{Gate, GateDecision, GatePass, QuotaLeft, ResponseChange};
use apus_handler::middleware::Hook;
use apus_handler::{Error, Middleware, Next, Rendering};
use apus_http::{HeaderName, Request, Response, ResponseFuture, StatusCode};

use crate::client_network::ClientKey;
use crate::counted_units::CountedUnits;
use crate::limit::{
    LimitHandle, Partition, PolicyFields, PolicyLines, REMEMBERED_KEYS, RefusedRequest, sleep,
};
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
    quotas: Arc<RateQuotas>,
    /// The number of the quota of a key.
    tiers: Arc<HashMap<Box<[u8]>, usize>>,
    status: StatusCode,
    counted: CountedUnits,
}

/// A rate, and the fields that tell it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RateQuota {
    rate: Rate,
    fields: PolicyFields,
}

/// The quotas of a limit, by their numbers. Tiers with the same rate have the same quota.
#[derive(Clone, Debug, PartialEq, Eq)]
struct RateQuotas {
    /// Of keys without a tier: number 0.
    default: RateQuota,
    /// The lines of its fields for keys without a partition.
    lines: PolicyLines,
    /// From number 1 on.
    others: Vec<RateQuota>,
}

impl RateQuotas {
    fn new(default: RateQuota, others: Vec<RateQuota>) -> Self {
        Self {
            lines: default.fields.lines(),
            default,
            others,
        }
    }

    fn get(&self, number: usize) -> &RateQuota {
        let other = number.checked_sub(1).and_then(|at| self.others.get(at));
        other.unwrap_or(&self.default)
    }

    fn number(&self, rate: Rate) -> Option<usize> {
        let mut all = [&self.default].into_iter().chain(&self.others);
        all.position(|quota| quota.rate == rate)
    }

    /// The same rates, with other fields.
    fn renewed(&self, name: &Arc<str>, unit: Option<&str>) -> Self {
        let renewed = |quota: &RateQuota| RateQuota::new(quota.rate, name, unit);
        let others = self.others.iter().map(renewed);
        Self::new(renewed(&self.default), others.collect())
    }

    fn write(&self, quota: &QuotaLeft, response: &mut Response) {
        let headers = response.headers_mut();
        match (quota.quota, quota.partition) {
            (0, None) => self.lines.write(headers, quota.left, quota.reset),
            (number, partition) => {
                let (fields, partition) = (&self.get(number).fields, Partition::of(partition));
                fields.write(headers, partition, quota.left, quota.reset);
            }
        }
    }
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
            quotas: Arc::new(RateQuotas::new(
                RateQuota::new(Rate::new(requests.into(), period), &limit.name, None),
                Vec::new(),
            )),
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
        let rate = self.rate().with_burst(requests.into());
        self.with_rate(rate)
    }

    /// How long requests beyond the burst may wait for their time in place of being refused. They go on one after the
    /// other, at the rate. Default: not at all.
    #[must_use]
    pub fn delay(self, delay: Duration) -> Self {
        let rate = self.rate().with_delay(delay);
        self.with_rate(rate)
    }

    fn with_rate(mut self, rate: Rate) -> Self {
        let quota = RateQuota::new(rate, &self.limit.name, self.counted.unit());
        let others = self.quotas.others.clone();
        self.quotas = Arc::new(RateQuotas::new(quota, others));
        self.limit.reset();
        self
    }

    /// The rate of keys without a tier.
    fn rate(&self) -> Rate {
        self.quotas.default.rate
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
        let renewed = self.quotas.renewed(&self.limit.name, self.counted.unit());
        self.quotas = Arc::new(renewed);
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
        let rate = limit.rate();
        let number = self.quotas.number(rate).unwrap_or_else(|| {
            let quota = RateQuota::new(rate, &self.limit.name, self.counted.unit());
            let others = &mut Arc::make_mut(&mut self.quotas).others;
            others.push(quota);
            others.len()
        });
        Arc::make_mut(&mut self.tiers).insert(key.as_bytes().into(), number);
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
        let rate = self.rate().with_delay(Duration::ZERO);
        match rate.take(table, key, 1, apus_clock::monotonic()) {
            Ok(_) => Ok(()),
            Err(wait) => Err(self.limit.error(self.status, wait)),
        }
    }

    /// What is left for a request, which is not counted: requests, or what else it counts. `None` if the limit is not for the request.
    pub fn left(&self, request: &Request) -> Option<u64> {
        let (number, key, _) = self.key(request)?;
        let (rate, table) = (self.quotas.get(number).rate, &self.limit.state().times);
        let checked = rate.check(table, key, apus_clock::monotonic());
        Some(checked.map_or(0, |decision| decision.remaining))
    }

    /// The number of the quota of a request, its key, and the partition that it belongs to.
    fn key(&self, request: &Request) -> Option<(usize, Key, Partition)> {
        let table = &self.limit.state().times;
        // Most limits are of clients: their keys need no list of bytes.
        if self.limit.key.is_client() {
            let client = ClientKey::new(REQUEST, request.client().ip?);
            return Some((0, table.key(client), Partition::default()));
        }
        let (number, value) = self.quota(request)?;
        let key = table.key((REQUEST, &value.bytes));
        Some((number, key, self.limit.partition(&value)))
    }

    /// The number of the quota of a request, and the value of its key.
    fn quota(&self, request: &Request) -> Option<(usize, KeyValue)> {
        let value = self.limit.key.value(request)?;
        if self.tiers.is_empty() || value.is_plain {
            return Some((0, value));
        }
        match self.tiers.get(value.text()) {
            Some(number) => Some((*number, value)),
            None => Some((0, LimitKey::client().value(request)?)),
        }
    }

    fn refusal(&self, wait: Duration, rendering: &Rendering, about: QuotaLeft) -> Response {
        let mut response = self.limit.refusal(self.status, wait, rendering);
        // The whole burst is there after the time until a request may come, and the time of the others.
        let rate = &self.quotas.get(about.quota).rate;
        let reset = wait
            .saturating_add(rate.window())
            .saturating_add(rate.delay())
            .saturating_sub(rate.interval());
        let reset = Some(reset);
        self.quotas
            .write(&QuotaLeft { reset, ..about }, &mut response);
        response
    }
}

/// The keys of attempts are other ones than those of requests.
const ATTEMPT: u8 = 1;
const REQUEST: u8 = 0;

impl Middleware<()> for RateLimit {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        next.call_gate(self, request, || {
            let quotas = Arc::clone(&self.quotas);
            move |quota: &QuotaLeft, response: &mut Response| quotas.write(quota, response)
        })
    }

    fn hook(&self) -> Option<Hook<'_>> {
        Some(Hook::Gate(self))
    }
}

impl Gate for RateLimit {
    fn enter(
        &self,
        request: &mut Request,
        rendering: &dyn Fn(&Request) -> Rendering,
    ) -> GateDecision {
        let Some((number, key, partition)) = self.key(request) else {
            self.limit
                .note(request, || "no key, so no limit".to_owned());
            return GateDecision::Pass(GatePass::default());
        };
        if self.limit.is_passed_by(request) {
            return GateDecision::Pass(GatePass::default());
        }
        let (rate, table) = (&self.quotas.get(number).rate, &self.limit.state().times);
        let now = apus_clock::monotonic();
        let taken = match self.counted {
            CountedUnits::Requests => rate.take(table, key, 1, now),
            _ => rate.check(table, key, now),
        };
        self.limit
            .note(request, || shown(&taken, rate, &self.counted));
        let about = QuotaLeft {
            quota: number,
            partition: partition.number(),
            left: 0,
            reset: None,
        };
        let decision = match taken {
            Ok(decision) => decision,
            Err(_) if self.limit.is_dry_run => {
                self.limit.count_dry(request);
                return GateDecision::Pass(GatePass::default());
            }
            Err(wait) => {
                self.limit.refuse(&RefusedRequest::of(request), now);
                return GateDecision::Respond(self.refusal(wait, &rendering(request), about));
            }
        };
        let waits = !decision.wait.is_zero();
        let outcome = match (waits, self.limit.is_dry_run) {
            (false, _) => LimitOutcome::Allowed,
            (true, false) => LimitOutcome::Delayed,
            (true, true) => LimitOutcome::WouldDelay,
        };
        self.limit.count(request.record(), outcome);
        let charge = self.counted.charge(request, || {
            let (rate, state) = (*rate, Arc::clone(self.limit.state()));
            move |units| rate.charge(&state.times, key, units, apus_clock::monotonic())
        });
        let quota = QuotaLeft {
            left: decision.remaining,
            reset: Some(decision.reset),
            ..about
        };
        let pass = GatePass {
            quota: (!self.limit.is_dry_run).then_some(quota),
            change: charge.map(|charge| {
                Box::new(move |response: &mut Response| charge.of(response)) as ResponseChange
            }),
        };
        if !waits || self.limit.is_dry_run {
            return GateDecision::Pass(pass);
        }
        GateDecision::Wait(Box::pin(async move {
            sleep(decision.wait).await;
            Ok(pass)
        }))
    }

    fn write_quota(&self, quota: &QuotaLeft, response: &mut Response) {
        self.quotas.write(quota, response);
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
            .field("quota", &self.quotas.default)
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
            assert_eq!(limit.rate().burst(), 1);
            assert!(limit.attempt("ada").is_ok());
        }
    }
}
