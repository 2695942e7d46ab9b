//! What limits on rates and on requests at once have in common: their state, their counters, and what they say.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use apus_access::{
    Bans, Key, LimitCounts, LimitId, LimitOutcome, LimitSize, LimitState, LimitStates,
    QuotaCalendar, QuotaUsage, Rate,
};
use apus_handler::{Error, ErrorTemplate, Rendering};
use apus_http::response_head::decimal;
use apus_http::trace::{self, Step, StepKind};
use apus_http::{Headers, Request, RequestEvent, RequestRecord, Response, StatusCode, header};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::client_network::ClientKey;
use crate::limit_key::{KeyValue, LimitKey};

/// The keys that a limit remembers unless it is told otherwise.
pub(crate) const REMEMBERED_KEYS: usize = 100_000;

/// The problem type of draft-ietf-httpapi-ratelimit-headers-10.
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const QUOTA_EXCEEDED_TITLE: &str =
    "Request cannot be satisfied as assigned quota has been exceeded";

/// A limit as a configuration and the status of a server know it. Its state is made by the first request, or continues that of a
/// limit of an earlier configuration ([`LimitHandle::continue_in`]).
#[derive(Clone)]
pub struct LimitHandle {
    pub(crate) name: Arc<str>,
    pub(crate) key: LimitKey,
    /// About how many keys it remembers; 0 for a limit that remembers no more than what runs.
    pub(crate) keys: usize,
    pub(crate) is_dry_run: bool,
    /// What a quota is of; `None` if it is none.
    pub(crate) quota: Option<QuotaTerms>,
    ban: Option<LimitBan>,
    state: Arc<OnceLock<Arc<LimitState>>>,
    /// What all refusals have in common, made at the first one.
    refusal: Arc<OnceLock<RefusalTemplate>>,
}

/// What the refusals of a limit have in common.
struct RefusalTemplate {
    error: ErrorTemplate,
    /// The line of `Retry-After`, up to its number.
    retry_after: Headers,
}

/// What a quota is of.
#[derive(Clone)]
pub(crate) struct QuotaTerms {
    pub(crate) calendar: Arc<QuotaCalendar>,
    /// What is counted.
    pub(crate) unit: &'static str,
    /// How much, without tiers.
    pub(crate) units: u64,
}

/// What was used of a quota in the current window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaReport {
    /// How much each key may use, without tiers.
    pub units: u64,
    /// What is counted: requests, responses or bytes.
    pub unit: &'static str,
    /// `hour`, `day` or `month`.
    pub window: &'static str,
    /// The time until all keys have their whole quota again.
    pub resets_in: Duration,
    /// The keys that have used something, those that used most first.
    pub keys: Vec<QuotaKeyUsage>,
}

/// What a key has used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaKeyUsage {
    /// The value of the key, without characters that a terminal would obey. One that may be a secret is `#` and a number.
    pub key: String,
    /// The units that it has used.
    pub used: u64,
}

/// The ban of clients that a limit refuses too often.
#[derive(Clone)]
struct LimitBan {
    time: Duration,
    /// The refusals before the one that bans, which are forgotten evenly; `None` if the first one bans.
    refusals: Option<Rate>,
    bans: Arc<OnceLock<Arc<Bans>>>,
}

/// The time in which the refusals that lead to a ban are forgotten.
const REFUSALS_FORGOTTEN: Duration = Duration::from_secs(600);

/// The keys of clients that are refused are other ones than those of requests.
const REFUSED: u8 = 2;

/// Marks a request that a dry run would have refused: the dry runs further in do not count it, as it would not have come to them.
#[derive(Clone, Copy, Debug)]
struct WouldBeRefused;

/// What a limit needs of a request that it refuses.
pub(crate) struct RefusedRequest {
    client: Option<IpAddr>,
    pub(crate) record: Option<RequestRecord>,
}

impl RefusedRequest {
    pub(crate) fn of(request: &Request) -> Self {
        Self {
            client: request.client().ip,
            record: request.record().cloned(),
        }
    }
}

impl LimitHandle {
    pub(crate) fn new(keys: usize) -> Self {
        Self {
            name: "default".into(),
            key: LimitKey::client(),
            keys,
            is_dry_run: false,
            quota: None,
            ban: None,
            state: Arc::default(),
            refusal: Arc::default(),
        }
    }

    /// Sets the name, without the characters that a field would have to escape.
    pub(crate) fn set_name(&mut self, name: &str) {
        let is_plain = |byte: char| byte.is_ascii_alphanumeric() || matches!(byte, '-' | '_');
        let plain: String = name.chars().filter(|byte| is_plain(*byte)).collect();
        self.name = plain.into();
        self.refusal = Arc::default();
    }

    /// Bans a client after so many refusals, at least one.
    pub(crate) fn set_ban(&mut self, refusals: u32, time: Duration) {
        let before = u64::from(refusals.saturating_sub(1));
        let rate = || Rate::new(before, REFUSALS_FORGOTTEN);
        self.ban = Some(LimitBan {
            time,
            refusals: (before > 0).then(rate),
            bans: Arc::default(),
        });
        self.keys = if self.keys == 0 {
            REMEMBERED_KEYS
        } else {
            self.keys
        };
        self.reset();
    }

    /// Where it bans clients, if it does. Without effect after the first call.
    pub fn use_bans(&self, bans: &Arc<Bans>) {
        if let Some(ban) = &self.ban {
            ban.bans.get_or_init(|| Arc::clone(bans));
        }
    }

    /// Counts a refusal, and bans the client if it was refused often.
    pub(crate) fn refuse(&self, refused: &RefusedRequest, now: Duration) {
        self.count_refusal(LimitOutcome::Refused, now);
        self.record(refused.record.as_ref(), LimitOutcome::Refused);
        let (Some(ban), Some(client)) = (&self.ban, refused.client) else {
            return;
        };
        let table = &self.state().times;
        let is_often = ban.refusals.is_none_or(|rate| {
            let key = table.key(ClientKey::new(REFUSED, client));
            rate.take(table, key, 1, now).is_err()
        });
        if let Some(bans) = ban.bans.get().filter(|_| is_often) {
            bans.ban(client, ban.time, &format!("limit {}", self.name));
        }
    }

    /// Begins with a state of its own: limits that were cloned before have another one.
    pub(crate) fn reset(&mut self) {
        self.state = Arc::default();
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it counts by, as it is written.
    pub fn key(&self) -> &LimitKey {
        &self.key
    }

    /// Whether it only counts.
    pub fn is_dry_run(&self) -> bool {
        self.is_dry_run
    }

    /// Continues what the limit of this name counted for an earlier configuration. Without effect after the first request.
    pub fn continue_in(&self, states: &LimitStates, site: Option<&str>, location: Option<&str>) {
        let id = LimitId {
            site: site.map(str::to_owned),
            location: location.map(str::to_owned),
            name: self.name.to_string(),
            key: match &self.quota {
                None => self.key.to_string(),
                // Another window has other numbers, and bytes are no requests.
                Some(terms) => {
                    let window = terms.calendar.window().name();
                    format!("{}, {} in a {window}", self.key, terms.unit)
                }
            },
        };
        self.state.get_or_init(|| states.state(&id, self.size()));
    }

    /// What it has decided so far.
    pub fn counts(&self) -> LimitCounts {
        let state = self.state.get();
        state.map_or_else(LimitCounts::default, |state| state.counters.counts())
    }

    pub(crate) fn state(&self) -> &Arc<LimitState> {
        self.state
            .get_or_init(|| Arc::new(LimitState::new(self.size())))
    }

    fn size(&self) -> LimitSize {
        match &self.quota {
            None => LimitSize {
                rates: self.keys,
                quotas: None,
            },
            Some(_) => LimitSize {
                rates: self.ban.as_ref().map_or(0, |_| REMEMBERED_KEYS),
                quotas: Some(self.keys),
            },
        }
    }

    /// What was used of a quota in the current window; `None` if it is none.
    pub fn quota_report(&self) -> Option<QuotaReport> {
        let terms = self.quota.as_ref()?;
        let now = apus_clock::unix_time();
        let period = terms.calendar.period(now);
        let table = self.state.get().and_then(|state| state.quotas.as_ref());
        let usage = table.map_or_else(Vec::new, |table| table.usage());
        let mut keys: Vec<QuotaKeyUsage> = usage
            .into_iter()
            .map(|usage| QuotaKeyUsage {
                used: usage.used(period),
                key: match usage.name {
                    Some(name) => name.into(),
                    None => numbered(usage.key),
                },
            })
            .filter(|usage| usage.used > 0)
            .collect();
        keys.sort_by(|one, other| (other.used, &one.key).cmp(&(one.used, &other.key)));
        Some(QuotaReport {
            units: terms.units,
            unit: terms.unit,
            window: terms.calendar.window().name(),
            resets_in: period.left(now),
            keys,
        })
    }

    /// Gives a key its whole quota again, or all keys. The key is its text, or what [`LimitHandle::quota_report`] calls it. Returns how many
    /// keys had used something.
    pub fn reset_quota(&self, key: Option<&str>) -> usize {
        let Some(table) = self.state.get().and_then(|state| state.quotas.as_ref()) else {
            return 0;
        };
        let usage = table.usage();
        let is_meant = |usage: &&QuotaUsage| match key {
            None => true,
            Some(text) => usage.name.as_deref() == Some(text) || numbered(usage.key) == text,
        };
        let mut keys: Vec<Key> = usage.iter().filter(is_meant).map(QuotaUsage::key).collect();
        if let Some(bytes) = key.and_then(|text| self.key.bytes_of(text)) {
            keys.push(table.key(&bytes));
        }
        keys.into_iter().filter(|key| table.reset(*key)).count()
    }

    /// Counts a decision that is no refusal.
    #[inline]
    pub(crate) fn count(&self, record: Option<&RequestRecord>, outcome: LimitOutcome) {
        self.state().counters.count(outcome);
        self.record(record, outcome);
    }

    /// Counts a refusal, or what would have been one, and logs a line for many.
    fn count_refusal(&self, outcome: LimitOutcome, now: Duration) {
        let counters = &self.state().counters;
        counters.count(outcome);
        if let Some(requests) = counters.refusals_to_log(now) {
            let action = match outcome {
                LimitOutcome::WouldRefuse => "would have refused",
                _ => "refused",
            };
            let (limit, key) = (&*self.name, &self.key);
            tracing::info!(limit, %key, requests, "a limit {action} requests");
        }
    }

    /// Whether a dry run further out would have refused the request, and this is one, too.
    pub(crate) fn is_passed_by(&self, request: &Request) -> bool {
        self.is_dry_run && request.extensions().get::<WouldBeRefused>().is_some()
    }

    /// Adds a decision to the record of a request, if it has one.
    #[inline]
    pub(crate) fn record(&self, record: Option<&RequestRecord>, outcome: LimitOutcome) {
        if let Some(record) = record {
            record.note(RequestEvent::Limit {
                name: Arc::clone(&self.name),
                outcome: match outcome {
                    LimitOutcome::Allowed => "allowed",
                    LimitOutcome::Delayed => "delayed",
                    LimitOutcome::Refused => "refused",
                    LimitOutcome::WouldDelay => "would delay",
                    LimitOutcome::WouldRefuse => "would refuse",
                },
            });
        }
    }

    /// Counts a request that this dry run would have refused.
    pub(crate) fn count_dry(&self, request: &mut Request) {
        self.record(request.record(), LimitOutcome::WouldRefuse);
        self.count_refusal(LimitOutcome::WouldRefuse, apus_clock::monotonic());
        request.extensions_mut().insert(WouldBeRefused);
    }

    /// Adds a step to the trace of a request.
    pub(crate) fn note(&self, request: &Request, what: impl FnOnce() -> String) {
        trace::note(request, || self.step(what()));
    }

    fn step(&self, what: String) -> Step {
        let dry = if self.is_dry_run { ", a dry run" } else { "" };
        let why = format!("limit {} by {}{dry}", self.name, self.key);
        Step::new(StepKind::Handler, what, why)
    }

    /// The error of a refusal.
    pub(crate) fn error(&self, status: StatusCode, wait: Duration) -> Error {
        let error = self.refusal_template(status).error.error().status(status);
        error.header(header::RETRY_AFTER, retry_seconds(wait).into())
    }

    /// The response of a refusal, without the fields of the quota.
    pub(crate) fn refusal(
        &self,
        status: StatusCode,
        wait: Duration,
        rendering: &Rendering,
    ) -> Response {
        let RefusalTemplate { error, retry_after } = self.refusal_template(status);
        let mut response = if error.status() == status {
            rendering.respond_with(error)
        } else {
            rendering.respond(error.error().status(status))
        };
        let headers = response.headers_mut();
        // The function of an application for errors may have set it.
        if !headers.contains("retry-after") {
            headers.append_all(retry_after);
            headers.extend_last(|value| decimal(retry_seconds(wait), value));
        }
        response
    }

    fn refusal_template(&self, status: StatusCode) -> &RefusalTemplate {
        self.refusal.get_or_init(|| {
            let detail = match self.quota {
                None => "there were too many requests; please wait a moment",
                Some(_) => "the quota is used up",
            };
            let error = Error::new(status, detail)
                .kind(QUOTA_EXCEEDED)
                .title(QUOTA_EXCEEDED_TITLE)
                .with("violated-policies", [&*self.name]);
            let mut retry_after = Headers::new();
            retry_after.push(b"retry-after", b"");
            RefusalTemplate {
                error: ErrorTemplate::new(error),
                retry_after,
            }
        })
    }

    /// The partition of a key for the fields (parameter `pk`). The address of a client is none, as the client knows it, and others
    /// who see the response need not.
    pub(crate) fn partition(&self, value: &KeyValue) -> Partition {
        Partition((!value.is_plain).then(|| self.state().partition(&value.bytes)))
    }
}

/// The partition of a quota.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Partition(Option<u64>);

impl Partition {
    /// The partition of this number.
    pub(crate) fn of(number: Option<u64>) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) fn number(self) -> Option<u64> {
        self.0
    }
}

/// The fields of a policy: `RateLimit-Policy` and `RateLimit` (draft-ietf-httpapi-ratelimit-headers-10 sections 3 and 4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyFields(Arc<PolicyText>);

#[derive(Debug, PartialEq, Eq)]
struct PolicyText {
    /// The policy without a partition.
    policy: Box<str>,
    /// What stands before the number of `r`.
    state: Box<str>,
}

/// The lines of a policy without a partition, up to the number of `r`.
// Each response of a limit of clients has these fields: written from their names and parts, they were a third of its instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PolicyLines(Headers);

impl PolicyFields {
    /// Of so many requests in a time, or of another unit.
    pub(crate) fn quota(
        name: &Arc<str>,
        quota: u64,
        (window, unit): (Duration, Option<&str>),
    ) -> Self {
        let window = seconds(window);
        let policy = match unit {
            None => format!("\"{name}\";q={quota};w={window}"),
            Some(unit) => format!("\"{name}\";q={quota};qu=\"{unit}\";w={window}"),
        };
        Self::new(name, policy)
    }

    /// Of so many requests at once.
    pub(crate) fn concurrent(name: &Arc<str>, quota: u32) -> Self {
        let policy = format!("\"{name}\";q={quota};qu=\"concurrent-requests\"");
        Self::new(name, policy)
    }

    fn new(name: &str, policy: String) -> Self {
        Self(Arc::new(PolicyText {
            policy: policy.into(),
            state: format!("\"{name}\";r=").into(),
        }))
    }

    /// Writes both fields: what is left, and when all is there again.
    pub(crate) fn write(
        &self,
        headers: &mut Headers,
        partition: Partition,
        left: u64,
        reset: Option<Duration>,
    ) {
        let PolicyText { policy, state } = &*self.0;
        // A key of 8 bytes has 12 characters.
        let mut key = String::new();
        if let Some(number) = partition.0 {
            key.push_str(";pk=:");
            STANDARD.encode_string(number.to_le_bytes(), &mut key);
            key.push(':');
        }
        // These characters are always valid in field values.
        let length = state.len().saturating_add(key.len()).saturating_add(24);
        headers.push_with(b"ratelimit", length, |line| {
            line.extend_from_slice(state.as_bytes());
            write_state(left, reset, line);
            line.extend_from_slice(key.as_bytes());
        });
        let length = policy.len().saturating_add(key.len());
        headers.push_with(b"ratelimit-policy", length, |line| {
            line.extend_from_slice(policy.as_bytes());
            line.extend_from_slice(key.as_bytes());
        });
    }

    /// Its lines without a partition.
    pub(crate) fn lines(&self) -> PolicyLines {
        let PolicyText { policy, state } = &*self.0;
        let mut lines = Headers::new();
        lines.push(b"ratelimit-policy", policy.as_bytes());
        lines.push(b"ratelimit", state.as_bytes());
        PolicyLines(lines)
    }
}

impl PolicyLines {
    /// Writes both fields: what is left, and when all is there again.
    pub(crate) fn write(&self, headers: &mut Headers, left: u64, reset: Option<Duration>) {
        headers.append_all(&self.0);
        headers.extend_last(|value| write_state(left, reset, value));
    }
}

/// Writes the number of `r` and the parameter `t`.
fn write_state(left: u64, reset: Option<Duration>, value: &mut Vec<u8>) {
    decimal(left, value);
    if let Some(reset) = reset {
        value.extend_from_slice(b";t=");
        decimal(seconds(reset), value);
    }
}

impl fmt::Debug for LimitHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitHandle")
            .field("name", &self.name)
            .field("key", &self.key)
            .field("keys", &self.keys)
            .field("is_dry_run", &self.is_dry_run)
            .finish_non_exhaustive()
    }
}

/// What a key is called whose value may be a secret.
fn numbered(key: u64) -> String {
    format!("#{key:016x}")
}

/// Waits for a time that nobody can set but a test.
pub(crate) async fn sleep(time: Duration) {
    match apus_clock::current() {
        Some(_) => apus_clock::sleep(time).await,
        None => tokio::time::sleep(time).await,
    }
}

/// The seconds of `Retry-After`: at least one.
fn retry_seconds(wait: Duration) -> u64 {
    seconds(wait).max(1)
}

/// Whole seconds, rounded up.
pub(crate) fn seconds(duration: Duration) -> u64 {
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
            let error = LimitHandle::new(1).error(StatusCode::TOO_MANY_REQUESTS, duration);
            let response = rendering.respond(error);
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
    fn the_fields_tell_the_rest_of_the_quota_and_when_it_is_full() {
        let mut limit = LimitHandle::new(1);
        limit.set_name("a\"b-_7 é");
        let second = Duration::from_secs(1);
        let fields = PolicyFields::quota(&limit.name, 3, (9 * second + second / 2, None));
        let written = |partition, left, reset| {
            let mut headers = Headers::new();
            fields.write(&mut headers, partition, left, reset);
            let field = |name: &str| headers.get_str(name).unwrap().to_owned();
            [field("ratelimit"), field("ratelimit-policy")]
        };
        assert_eq!(
            written(Partition(None), 2, Some(3 * second + second / 3)),
            ["\"ab-_7\";r=2;t=4", "\"ab-_7\";q=3;w=10"]
        );
        let mut headers = Headers::new();
        let lines = fields.lines();
        lines.write(&mut headers, 2, Some(3 * second + second / 3));
        assert_eq!(
            headers.wire(),
            b"ratelimit-policy: \"ab-_7\";q=3;w=10\r\nratelimit: \"ab-_7\";r=2;t=4\r\n"
        );
        assert_eq!(
            written(Partition(Some(1)), 0, None),
            [
                "\"ab-_7\";r=0;pk=:AQAAAAAAAAA=:",
                "\"ab-_7\";q=3;w=10;pk=:AQAAAAAAAAA=:"
            ]
        );
    }
}
