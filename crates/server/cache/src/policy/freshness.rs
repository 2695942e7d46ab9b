//! The age and the freshness lifetime of a response (RFC 9111 section 4.2).

use std::time::Duration;

use apus_http::StatusCode;
use apus_http::fields::{DeltaSeconds, ResponseDirectives, age};

use super::{CacheRules, OriginResponse, Timestamp};

/// The freshness of a response, computed from its header fields.
pub(super) struct Freshness {
    /// The time at which its age was 0.
    pub(super) generated: Timestamp,
    /// When it becomes stale.
    pub(super) fresh_until: Timestamp,
    /// Whether the lifetime was set by the origin.
    pub(super) is_declared: bool,
    /// Whether there is no lifetime, neither set nor heuristic.
    pub(super) is_unknown: bool,
}

impl Freshness {
    /// Computes the freshness of a response. `is_targeted` says that the directives come from a
    /// targeted field, which also replaces `Expires` (RFC 9213 section 2.2).
    pub(super) fn of(
        response: &OriginResponse<'_>,
        directives: &ResponseDirectives,
        is_targeted: bool,
        has_query: bool,
        rules: &CacheRules,
    ) -> Self {
        let date = date(response);
        let generated = generated(response, date);
        let declared = Self::declared(response, directives, is_targeted, date, rules);
        let ttl = rules.ttl(response.status);
        let configured = ttl.filter(|_| rules.ttl_overrides || declared.is_none());
        let heuristic = || heuristic_lifetime(response, directives, date, has_query, rules);
        let lifetime = declared.or_else(heuristic);
        let fresh_until = match configured {
            // A configured lifetime starts at the receipt: it does not depend on the clock of the
            // origin.
            Some(ttl) => response.received.after(ttl),
            None => generated.after(lifetime.unwrap_or(Duration::ZERO)),
        };
        let latest = rules.max_ttl.map(|max| response.received.after(max));
        Self {
            generated,
            fresh_until: latest.map_or(fresh_until, |latest| fresh_until.min(latest)),
            is_declared: configured.is_none() && declared.is_some(),
            is_unknown: configured.is_none() && lifetime.is_none(),
        }
    }

    /// The freshness lifetime that the origin sets for a shared cache (section 4.2.1).
    fn declared(
        response: &OriginResponse<'_>,
        directives: &ResponseDirectives,
        is_targeted: bool,
        date: Timestamp,
        rules: &CacheRules,
    ) -> Option<Duration> {
        // RFC 9111 section 4.2.1: a shared cache uses the first of `s-maxage`, `max-age` and `Expires`.
        if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
            return Some(Duration::from_secs(DeltaSeconds::seconds(seconds).into()));
        }
        if is_targeted || rules.ignored.expires {
            return None;
        }
        let mut lines = response.headers.get_all("expires");
        let first = lines.next()?;
        // A value that is not a date, such as "0", or contradictory lines mean that the response
        // has expired.
        let is_single = lines.all(|line| line == first);
        let expires = Timestamp::from_http_date(first).filter(|_| is_single);
        Some(expires.map_or(Duration::ZERO, |expires| expires.since(date)))
    }
}

/// When the origin generated the response; the time of receipt if it does not say.
pub(super) fn date(response: &OriginResponse<'_>) -> Timestamp {
    // RFC 9110 section 6.6.1: without `Date`, the time of receipt stands for it.
    response
        .headers
        .get("date")
        .and_then(Timestamp::from_http_date)
        .unwrap_or(response.received)
}

/// When the resource was last modified, according to the response.
pub(super) fn last_modified(response: &OriginResponse<'_>) -> Option<Timestamp> {
    response
        .headers
        .get("last-modified")
        .and_then(Timestamp::from_http_date)
}

/// The time of receipt minus the corrected initial age (section 4.2.3).
fn generated(response: &OriginResponse<'_>, date: Timestamp) -> Timestamp {
    // Dates have whole seconds; the fraction of a second does not count as age.
    let received = Timestamp::from_unix_seconds(response.received.as_unix_seconds());
    let apparent_age = received.since(date);
    let age_value = Duration::from_secs(age(response.headers).unwrap_or(0).into());
    let response_delay = response.received.since(response.requested);
    let corrected_age = age_value.saturating_add(response_delay);
    // RFC 9111 section 4.2.3 takes the greater age: a cache on the way may not send `Age`, and the clock of the
    // origin may be wrong.
    response.received.before(apparent_age.max(corrected_age))
}

/// A heuristic lifetime (section 4.2.2).
fn heuristic_lifetime(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    date: Timestamp,
    has_query: bool,
    rules: &CacheRules,
) -> Option<Duration> {
    let heuristic = rules.heuristic?;
    if has_query && !heuristic.with_query {
        return None;
    }
    if !directives.public && !is_heuristically_cacheable(response.status) {
        return None;
    }
    let unchanged = date.since(last_modified(response)?);
    let part = unchanged.saturating_mul(heuristic.percent) / 100;
    Some(part.min(heuristic.max))
}

/// Statuses whose responses may be stored without a lifetime (RFC 9110 section 15.1).
pub(super) fn is_heuristically_cacheable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200 | 203 | 204 | 206 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501
    )
}
