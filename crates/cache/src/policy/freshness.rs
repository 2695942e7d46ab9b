//! How old a response is, and for how long it is fresh (RFC 9111 section 4.2).

use std::time::Duration;

use apus_http::StatusCode;
use apus_http::fields::{DeltaSeconds, ResponseDirectives, age};

use super::{OriginResponse, Rules, Timestamp};

/// What the times in a response say.
pub(super) struct Freshness {
    /// When its age was 0, as far as that can be known.
    pub(super) born: Timestamp,
    /// When it becomes stale.
    pub(super) fresh_until: Timestamp,
    /// Whether the origin named the lifetime.
    pub(super) is_declared: bool,
    /// Whether nobody did, and none could be guessed.
    pub(super) is_unknown: bool,
}

impl Freshness {
    /// Works it out for a response whose directives are known. `is_targeted` says that they are of a
    /// targeted field, which replaces `Expires` too (RFC 9213 section 2.2).
    pub(super) fn of(
        response: &OriginResponse<'_>,
        directives: &ResponseDirectives,
        is_targeted: bool,
        has_query: bool,
        rules: &Rules,
    ) -> Self {
        let date = date(response);
        let born = born(response, date);
        let declared = Self::declared(response, directives, is_targeted, date, rules);
        let ttl = rules.ttl(response.status);
        let configured = ttl.filter(|_| rules.ttl_overrides || declared.is_none());
        let guessed = || guess(response, directives, date, has_query, rules);
        let lifetime = declared.or_else(guessed);
        let fresh_until = match configured {
            // The configuration knows nothing of the origin's clock.
            Some(ttl) => response.received.after(ttl),
            None => born.after(lifetime.unwrap_or(Duration::ZERO)),
        };
        let latest = rules.max_ttl.map(|max| response.received.after(max));
        Self {
            born,
            fresh_until: latest.map_or(fresh_until, |latest| fresh_until.min(latest)),
            is_declared: configured.is_none() && declared.is_some(),
            is_unknown: configured.is_none() && lifetime.is_none(),
        }
    }

    /// The freshness lifetime that the origin names (section 4.2.1), for a shared cache.
    fn declared(
        response: &OriginResponse<'_>,
        directives: &ResponseDirectives,
        is_targeted: bool,
        date: Timestamp,
        rules: &Rules,
    ) -> Option<Duration> {
        if let Some(seconds) = directives.s_maxage.or(directives.max_age) {
            return Some(Duration::from_secs(DeltaSeconds::seconds(seconds).into()));
        }
        if is_targeted || rules.ignored.expires {
            return None;
        }
        let mut lines = response.headers.get_all("expires");
        let first = lines.next()?;
        // What cannot be read, such as "0", and what contradicts itself has expired.
        let is_single = lines.all(|line| line == first);
        let expires = Timestamp::from_http_date(first).filter(|_| is_single);
        Some(expires.map_or(Duration::ZERO, |expires| expires.since(date)))
    }
}

/// When the origin made the response; when it came, if it does not say.
pub(super) fn date(response: &OriginResponse<'_>) -> Timestamp {
    response
        .headers
        .get("date")
        .and_then(Timestamp::from_http_date)
        .unwrap_or(response.received)
}

/// When the response changed last, by its own account.
pub(super) fn last_modified(response: &OriginResponse<'_>) -> Option<Timestamp> {
    response
        .headers
        .get("last-modified")
        .and_then(Timestamp::from_http_date)
}

/// The time of its receipt less its corrected initial age (section 4.2.3).
fn born(response: &OriginResponse<'_>, date: Timestamp) -> Timestamp {
    // Dates have whole seconds; the rest of a second is not age.
    let received = Timestamp::from_unix_seconds(response.received.as_unix_seconds());
    let apparent_age = received.since(date);
    let age_value = Duration::from_secs(age(response.headers).unwrap_or(0).into());
    let response_delay = response.received.since(response.requested);
    let corrected_age = age_value.saturating_add(response_delay);
    response.received.before(apparent_age.max(corrected_age))
}

/// A heuristic lifetime (section 4.2.2).
fn guess(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    date: Timestamp,
    has_query: bool,
    rules: &Rules,
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
