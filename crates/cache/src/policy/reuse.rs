//! Which stored responses are sent (RFC 9111 section 4).

use std::time::Duration;

use apus_http::StatusCode;
use apus_http::fields::{ForwardReason, MaxStale, RequestDirectives};

use super::stored::Flags;
use super::{Conditions, PresentedRequest, Rules, Stored, Timestamp};

/// What becomes of a request for which something is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The stored response is sent, with this many seconds as `Age`.
    Fresh {
        /// Its age.
        age: u32,
    },
    /// The stored response is sent though it is stale, with this many seconds as `Age`.
    Stale {
        /// Its age.
        age: u32,
        /// Whether it is to be refreshed meanwhile (RFC 5861 section 3). If not, the client asked for
        /// stale responses.
        refresh: bool,
    },
    /// The origin is asked whether the stored response is current: [`super::add_conditions`].
    Validate(ForwardReason),
    /// The origin answers the request; the stored response is for others.
    Forward(ForwardReason),
    /// The client wants an answer from the cache or none: 504.
    GatewayTimeout,
}

/// Decides whether a stored response is sent as the answer to a request.
pub fn reuse(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    rules: &Rules,
    conditions: &Conditions,
    now: Timestamp,
) -> Reuse {
    if !request.is_read() {
        return Reuse::Forward(ForwardReason::Method);
    }
    let not_ours = if conditions.bypass {
        Some(ForwardReason::Bypass)
    } else if !stored.matches(request) {
        Some(ForwardReason::VaryMiss)
    } else if !stored.flags.has(Flags::DECLARED) && !rules.credentials.allow_undeclared(request) {
        Some(ForwardReason::Bypass)
    } else {
        None
    };
    if let Some(reason) = not_ours {
        return without_origin(request).unwrap_or(Reuse::Forward(reason));
    }
    let age = stored.age(now);
    let wishes = Wishes::of(request, rules, conditions);
    match wishes.judge(stored, now) {
        Verdict::Fresh => Reuse::Fresh { age },
        Verdict::Stale { refresh } => Reuse::Stale { age, refresh },
        Verdict::Unusable(reason) => without_origin(request).unwrap_or(Reuse::Validate(reason)),
    }
}

/// Whether a request for which nothing is stored is answered with 504, because the client wants an
/// answer from the cache or none (RFC 9111 section 5.2.1.7).
pub fn must_not_forward(request: &PresentedRequest<'_>) -> bool {
    request.is_read() && RequestDirectives::of(request.headers).only_if_cached
}

/// Whether a stored response that matches the request is sent, and its age, now that the origin
/// cannot be reached or answered with an error (RFC 9111 section 4.2.4, RFC 5861 section 4).
pub fn may_serve_on_error(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    rules: &Rules,
    conditions: &Conditions,
    now: Timestamp,
) -> Option<u32> {
    if stored.flags.has(Flags::NO_CACHE) {
        return None;
    }
    let mut until = stored.times.error_until;
    if rules.heeds_client(conditions)
        && !stored.flags.has(Flags::NEVER_STALE)
        && let Some(seconds) = RequestDirectives::of(request.headers).stale_if_error
    {
        let wished = Duration::from_secs(seconds.into());
        until = until.max(stored.times.fresh_until.after(wished));
    }
    stored.is_within(now, until).then(|| stored.age(now))
}

/// Whether a status is an error for which a stale response may be sent (RFC 5861 section 4).
pub(super) fn is_failure(status: StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}

fn without_origin(request: &PresentedRequest<'_>) -> Option<Reuse> {
    must_not_forward(request).then_some(Reuse::GatewayTimeout)
}

/// What the client asks of a stored response (RFC 9111 section 5.2.1), as far as it counts.
struct Wishes(RequestDirectives);

enum Verdict {
    Fresh,
    Stale { refresh: bool },
    Unusable(ForwardReason),
}

impl Wishes {
    fn of(request: &PresentedRequest<'_>, rules: &Rules, conditions: &Conditions) -> Self {
        Self(if rules.heeds_client(conditions) {
            RequestDirectives::of(request.headers)
        } else {
            RequestDirectives::default()
        })
    }

    fn judge(&self, stored: &Stored, now: Timestamp) -> Verdict {
        let Self(wishes) = self;
        let times = &stored.times;
        if stored.flags.has(Flags::NO_CACHE) {
            return Verdict::Unusable(ForwardReason::Stale);
        }
        let is_fresh = stored.is_within(now, times.fresh_until);
        let is_too_old = wishes.max_age.is_some_and(|max_age| stored.age(now) > max_age)
            // A response that never changes need not be asked about (RFC 8246).
            && !(is_fresh && stored.flags.has(Flags::IMMUTABLE));
        let is_nearly_stale = wishes.min_fresh.is_some_and(|seconds| {
            now.after(Duration::from_secs(seconds.into())) > times.fresh_until
        });
        if wishes.no_cache || is_too_old || is_nearly_stale {
            return Verdict::Unusable(match is_fresh {
                true => ForwardReason::Request,
                false => ForwardReason::Stale,
            });
        }
        if is_fresh {
            return Verdict::Fresh;
        }
        if stored.is_within(now, times.revalidate_until) {
            return Verdict::Stale { refresh: true };
        }
        let is_accepted = match wishes.max_stale {
            None => false,
            Some(_) if stored.flags.has(Flags::NEVER_STALE) => false,
            Some(MaxStale::Any) => true,
            Some(MaxStale::Seconds(seconds)) => {
                let accepted = times.fresh_until.after(Duration::from_secs(seconds.into()));
                now <= accepted && !stored.is_of_the_future(now)
            }
        };
        if is_accepted {
            return Verdict::Stale { refresh: false };
        }
        Verdict::Unusable(ForwardReason::Stale)
    }
}
