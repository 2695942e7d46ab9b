//! Quotas of clients in an hour, a day or a month of the calendar: 429 (RFC 6585 section 4) and the `RateLimit` fields.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use apus_access::{LimitOutcome, QuotaCalendar, QuotaExceeded, QuotaPeriod, QuotaWindow, TimeZone};
use apus_conditions::Condition;
use apus_handler::gate::{Gate, GateDecision, GatePass, QuotaLeft};
use apus_handler::middleware::Hook;
use apus_handler::{Middleware, Next, Rendering};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

use crate::counted_units::CountedUnits;
use crate::limit::{LimitHandle, PolicyFields, QuotaTerms, REMEMBERED_KEYS, RefusedRequest};
use crate::limit_key::{KeyValue, LimitKey};

/// A layer that responds 429 to clients that have used up their quota of an hour, a day or a month.
///
/// The windows are those of the calendar in a time zone, by default that of the system: at midnight, or on the first of the month, everybody has
/// the whole quota again. All workers count together. A server of `apus.toml` stores what was used about once a second, so that it outlasts
/// a restart and a crash; elsewhere it lasts as long as the process.
///
/// Clients are identified as by a [`RateLimit`](crate::RateLimit), which is the limit for what comes in a short time.
#[derive(Clone)]
pub struct QuotaLimit {
    limit: LimitHandle,
    calendar: Arc<QuotaCalendar>,
    quota: QuotaAmount,
    tiers: Arc<HashMap<Box<[u8]>, QuotaAmount>>,
    status: StatusCode,
    counted: CountedUnits,
}

/// How much a quota is, and the fields that tell it for each length of the window.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QuotaAmount {
    units: u64,
    fields: Arc<[PolicyFields]>,
}

impl QuotaAmount {
    fn new(units: u64, (name, window, unit): (&Arc<str>, QuotaWindow, Option<&str>)) -> Self {
        let units = units.max(1);
        let fields = window.lengths().iter();
        let fields = fields.map(|length| PolicyFields::quota(name, units, (*length, unit)));
        Self {
            units,
            fields: fields.collect(),
        }
    }
}

impl QuotaLimit {
    /// So many requests in each window of the calendar.
    pub fn new(requests: u64, window: QuotaWindow) -> Self {
        let mut limit = LimitHandle::new(REMEMBERED_KEYS);
        let calendar = Arc::new(QuotaCalendar::new(window, TimeZone::system()));
        limit.quota = Some(QuotaTerms {
            calendar: Arc::clone(&calendar),
            unit: CountedUnits::Requests.name(),
            units: requests,
        });
        Self {
            quota: QuotaAmount::new(requests, (&limit.name, window, None)),
            limit,
            calendar,
            tiers: Arc::default(),
            status: StatusCode::TOO_MANY_REQUESTS,
            counted: CountedUnits::Requests,
        }
    }

    /// Requests in an hour.
    pub fn per_hour(requests: u64) -> Self {
        Self::new(requests, QuotaWindow::Hour)
    }

    /// Requests in a day.
    pub fn per_day(requests: u64) -> Self {
        Self::new(requests, QuotaWindow::Day)
    }

    /// Requests in a month.
    pub fn per_month(requests: u64) -> Self {
        Self::new(requests, QuotaWindow::Month)
    }

    /// The zone of the calendar. Default: that of the system.
    #[must_use]
    pub fn zone(mut self, zone: TimeZone) -> Self {
        self.calendar = Arc::new(QuotaCalendar::new(self.calendar.window(), zone));
        self.renewed()
    }

    /// The name of this limit in the header fields: letters, digits, `-` and `_`. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.limit.set_name(name);
        self.renewed()
    }

    /// Counts by this in place of the client's address.
    #[must_use]
    pub fn by_key(mut self, key: LimitKey) -> Self {
        self.limit.key = key;
        self.renewed()
    }

    /// The number of keys that are remembered, with about 20 bytes each, and more for their names in a status. Default: 100,000. Above
    /// it, those that used least are forgotten and have their whole quota.
    #[must_use]
    pub fn remembered_keys(mut self, count: usize) -> Self {
        self.limit.keys = count.max(1);
        self.renewed()
    }

    /// Counts the responses of which a condition holds in place of requests.
    #[must_use]
    pub fn count_responses(mut self, condition: Condition) -> Self {
        self.counted = CountedUnits::Responses(Arc::new(condition));
        self.renewed()
    }

    /// Counts the bytes of the bodies of responses in place of requests, of all or of those of which a condition holds. A response is sent
    /// whole, and the requests after it are refused.
    #[must_use]
    pub fn count_bytes(mut self, condition: Option<Condition>) -> Self {
        self.counted = CountedUnits::Bytes(condition.map(Arc::new));
        self.renewed()
    }

    /// Gives the requests whose key is this text another quota: a plan of an API key. With such plans, a request of another key counts for
    /// its client, so that nobody gains by making up keys.
    #[must_use]
    pub fn tier(mut self, key: &str, units: u64) -> Self {
        let window = self.calendar.window();
        let amount = QuotaAmount::new(units, (&self.limit.name, window, self.counted.unit()));
        Arc::make_mut(&mut self.tiers).insert(key.as_bytes().into(), amount);
        self
    }

    /// The status of refusals in place of 429.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Bans a client after so many refusals, as [`RateLimit::ban_after`](crate::RateLimit::ban_after) does.
    #[must_use]
    pub fn ban_after(mut self, refusals: u32, time: Duration) -> Self {
        self.limit.set_ban(refusals, time);
        self
    }

    /// Only counts what would be refused, and logs it.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.limit.is_dry_run = true;
        self
    }

    /// The limit as the status of a server knows it.
    pub fn handle(&self) -> &LimitHandle {
        &self.limit
    }

    /// Makes the fields anew, and begins to count anew.
    fn renewed(mut self) -> Self {
        let (window, unit) = (self.calendar.window(), self.counted.unit());
        let name = &self.limit.name;
        let renewed = |quota: &QuotaAmount| QuotaAmount::new(quota.units, (name, window, unit));
        self.quota = renewed(&self.quota);
        let tiers = self.tiers.iter();
        let tiers = tiers.map(|(value, quota)| (value.clone(), renewed(quota)));
        self.tiers = Arc::new(tiers.collect());
        self.limit.quota = Some(QuotaTerms {
            calendar: Arc::clone(&self.calendar),
            unit: self.counted.name(),
            units: self.quota.units,
        });
        self.limit.reset();
        self
    }

    /// What is left for a request in this window, without counting it: requests, or what else it counts. `None` if the quota is not for
    /// the request.
    pub fn left(&self, request: &Request) -> Option<u64> {
        let (quota, value) = self.quota(request)?;
        let table = self.limit.state().quotas.as_ref()?;
        let period = self.calendar.period(apus_clock::unix_time());
        let checked = table.check(table.key(&value.bytes), quota.units, period);
        Some(checked.unwrap_or(0))
    }

    /// The quota and the key of a request.
    fn quota(&self, request: &Request) -> Option<(&QuotaAmount, KeyValue)> {
        let value = self.limit.key.value(request)?;
        if self.tiers.is_empty() || value.is_plain {
            return Some((&self.quota, value));
        }
        match self.tiers.get(value.text()) {
            Some(quota) => Some((quota, value)),
            None => Some((&self.quota, LimitKey::client().value(request)?)),
        }
    }

    fn fields<'a>(&self, quota: &'a QuotaAmount, period: QuotaPeriod) -> Option<&'a PolicyFields> {
        let index = period.length_index(self.calendar.window());
        quota.fields.get(index)
    }

    /// A decision in words.
    fn shown(&self, taken: Result<u64, QuotaExceeded>, units: u64) -> String {
        let window = self.calendar.window().name();
        match taken {
            Ok(left) => {
                let counted = self.counted.name();
                format!("{left} of {units} {counted} of this {window} are left")
            }
            Err(QuotaExceeded) => format!("the quota of this {window} is used up"),
        }
    }
}

impl Middleware<()> for QuotaLimit {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        // All fields are written by the change of the response.
        next.call_gate(self, request, || |_: &QuotaLeft, _: &mut Response| {})
    }

    fn hook(&self) -> Option<Hook<'_>> {
        Some(Hook::Gate(self))
    }
}

impl Gate for QuotaLimit {
    fn enter(
        &self,
        request: &mut Request,
        rendering: &dyn Fn(&Request) -> Rendering,
    ) -> GateDecision {
        let pass = || GateDecision::Pass(GatePass::default());
        let Some((quota, value)) = self.quota(request) else {
            self.limit
                .note(request, || "no key, so no limit".to_owned());
            return pass();
        };
        if self.limit.is_passed_by(request) {
            return pass();
        }
        // The state of a quota has a table.
        let Some(table) = self.limit.state().quotas.as_ref() else {
            return pass();
        };
        let key = table.key(&value.bytes);
        let now = apus_clock::unix_time();
        let period = self.calendar.period(now);
        let taken = {
            let name = || self.limit.key.shown(request, &value);
            match self.counted {
                CountedUnits::Requests => table.take((key, 1), quota.units, period, name),
                _ => table.check(key, quota.units, period),
            }
        };
        self.limit.note(request, || self.shown(taken, quota.units));
        let reset = period.left(now);
        let partition = self.limit.partition(&value);
        let Ok(left) = taken else {
            if self.limit.is_dry_run {
                self.limit.count_dry(request);
                return pass();
            }
            self.limit
                .refuse(&RefusedRequest::of(request), apus_clock::monotonic());
            let mut response = (self.limit).refusal(self.status, reset, &rendering(request));
            if let Some(fields) = self.fields(quota, period) {
                fields.write(response.headers_mut(), partition, 0, Some(reset));
            }
            return GateDecision::Respond(response);
        };
        self.limit.count(request.record(), LimitOutcome::Allowed);
        let charge = self.counted.charge(request, || {
            let name = self.limit.key.shown(request, &value);
            let (table, calendar) = (Arc::clone(table), Arc::clone(&self.calendar));
            move |units| {
                let period = calendar.period(apus_clock::unix_time());
                table.charge(key, units, period, || name);
            }
        });
        let fields = self.fields(quota, period).cloned();
        let fields = fields.filter(|_| !self.limit.is_dry_run);
        if charge.is_none() && fields.is_none() {
            return pass();
        }
        GateDecision::Pass(GatePass {
            quota: None,
            change: Some(Box::new(move |response: &mut Response| {
                if let Some(charge) = charge {
                    charge.of(response);
                }
                if let Some(fields) = fields {
                    fields.write(response.headers_mut(), partition, left, Some(reset));
                }
            })),
        })
    }
}

impl fmt::Debug for QuotaLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuotaLimit")
            .field("limit", &self.limit)
            .field("calendar", &self.calendar)
            .field("units", &self.quota.units)
            .field("counted", &self.counted)
            // The keys of the others are secrets.
            .field("tiers", &self.tiers.len())
            .finish_non_exhaustive()
    }
}
