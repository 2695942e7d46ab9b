//! Constructing responses from stored ones (RFC 9111 section 4).

use std::time::Duration;

use apus_http::StatusCode;
use apus_http::fields::{ForwardReason, MaxStale, RequestDirectives};

use super::stored::ResponseFlags;
use super::{CacheRules, CachingContext, PresentedRequest, StoredResponse, Timestamp};

/// What to do with a request for which a response is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReuseDecision {
    /// The stored response is fresh and is sent, with `age` as `Age`.
    Fresh {
        /// Its age.
        age: u32,
    },
    /// The stored response is stale and is sent, with `age` as `Age`.
    Stale {
        /// Its age.
        age: u32,
        /// Whether it is refreshed in the background (RFC 5861 section 3). If not, the client
        /// accepts stale responses.
        refresh: bool,
    },
    /// The stored response has to be validated: [`super::add_conditions`].
    Validate(ForwardReason),
    /// The request is forwarded to the origin; the stored response does not apply to it.
    Forward(ForwardReason),
    /// The client accepts only a stored response (`only-if-cached`): 504.
    GatewayTimeout,
}

/// Decides whether a stored response is sent for a request.
pub fn decide_reuse(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    rules: &CacheRules,
    conditions: &CachingContext,
    now: Timestamp,
) -> ReuseDecision {
    if !request.is_read() {
        return ReuseDecision::Forward(ForwardReason::Method);
    }
    let mismatch = if conditions.bypass {
        Some(ForwardReason::Bypass)
    } else if !stored.matches(request) {
        Some(ForwardReason::VaryMiss)
    } else if !stored.flags.has(ResponseFlags::DECLARED)
        && !rules.credentials.allow_undeclared(request)
    {
        Some(ForwardReason::Bypass)
    } else {
        None
    };
    if let Some(reason) = mismatch {
        return without_origin(request).unwrap_or(ReuseDecision::Forward(reason));
    }
    let age = stored.age(now);
    let directives = EffectiveDirectives::of(request, rules, conditions);
    match directives.evaluate(stored, now) {
        FreshnessVerdict::Fresh => ReuseDecision::Fresh { age },
        FreshnessVerdict::Stale { refresh } => ReuseDecision::Stale { age, refresh },
        FreshnessVerdict::Unusable(reason) => {
            without_origin(request).unwrap_or(ReuseDecision::Validate(reason))
        }
    }
}

/// Whether a request without a stored response gets 504, because the client accepts only a stored
/// one (RFC 9111 section 5.2.1.7).
pub fn must_not_forward(request: &PresentedRequest<'_>) -> bool {
    request.is_read() && RequestDirectives::of(request.headers).only_if_cached
}

/// The age of a stored response that matches the request, if it may be sent because the origin is
/// unreachable or failed (RFC 9111 section 4.2.4, RFC 5861 section 4).
pub fn may_serve_on_error(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    rules: &CacheRules,
    conditions: &CachingContext,
    now: Timestamp,
) -> Option<u32> {
    // RFC 9111 section 4.2.4: `no-cache` forbids a stale response even if the origin cannot be reached.
    if stored.flags.has(ResponseFlags::NO_CACHE) {
        return None;
    }
    let mut until = stored.times.error_until;
    if rules.honours_client_directives(conditions)
        && !stored.flags.has(ResponseFlags::NEVER_STALE)
        && let Some(seconds) = RequestDirectives::of(request.headers).stale_if_error
    {
        let accepted = Duration::from_secs(seconds.into());
        until = until.max(stored.times.fresh_until.after(accepted));
    }
    stored.is_within(now, until).then(|| stored.age(now))
}

/// Whether a status is a failure for which a stale response may be sent (RFC 5861 section 4).
pub(super) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

fn without_origin(request: &PresentedRequest<'_>) -> Option<ReuseDecision> {
    must_not_forward(request).then_some(ReuseDecision::GatewayTimeout)
}

/// The directives of the request that count (RFC 9111 section 5.2.1).
struct EffectiveDirectives(RequestDirectives);

enum FreshnessVerdict {
    Fresh,
    Stale { refresh: bool },
    Unusable(ForwardReason),
}

impl EffectiveDirectives {
    fn of(request: &PresentedRequest<'_>, rules: &CacheRules, conditions: &CachingContext) -> Self {
        Self(if rules.honours_client_directives(conditions) {
            RequestDirectives::of(request.headers)
        } else {
            RequestDirectives::default()
        })
    }

    fn evaluate(&self, stored: &StoredResponse, now: Timestamp) -> FreshnessVerdict {
        let Self(directives) = self;
        let times = &stored.times;
        if stored.flags.has(ResponseFlags::NO_CACHE) {
            return FreshnessVerdict::Unusable(ForwardReason::Stale);
        }
        let is_fresh = stored.is_within(now, times.fresh_until);
        let is_too_old = directives.max_age.is_some_and(|max_age| stored.age(now) > max_age)
            // An immutable response need not be validated while it is fresh (RFC 8246).
            && !(is_fresh && stored.flags.has(ResponseFlags::IMMUTABLE));
        let is_nearly_stale = directives.min_fresh.is_some_and(|seconds| {
            now.after(Duration::from_secs(seconds.into())) > times.fresh_until
        });
        if directives.no_cache || is_too_old || is_nearly_stale {
            return FreshnessVerdict::Unusable(if is_fresh {
                ForwardReason::Request
            } else {
                ForwardReason::Stale
            });
        }
        if is_fresh {
            return FreshnessVerdict::Fresh;
        }
        if stored.is_within(now, times.revalidate_until) {
            return FreshnessVerdict::Stale { refresh: true };
        }
        let is_accepted = match directives.max_stale {
            None => false,
            Some(_) if stored.flags.has(ResponseFlags::NEVER_STALE) => false,
            Some(MaxStale::Any) => true,
            Some(MaxStale::Seconds(seconds)) => {
                let accepted = times.fresh_until.after(Duration::from_secs(seconds.into()));
                now <= accepted && !stored.is_from_the_future(now)
            }
        };
        if is_accepted {
            return FreshnessVerdict::Stale { refresh: false };
        }
        FreshnessVerdict::Unusable(ForwardReason::Stale)
    }
}
