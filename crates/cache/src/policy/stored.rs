//! A stored response: everything about it that decides on its reuse.

use std::time::Duration;

use apus_http::fields::{EntityTag, Validators};
use apus_http::{Headers, StatusCode};

use super::{PresentedRequest, Timestamp, Variance, Variant};

/// What is stored beside the content of a response (RFC 9111 section 3).
///
/// It is worked out once, when the response comes or is validated, and never changes: an update
/// makes a new one for the same content. It can be shared by threads, and kept as bytes
/// ([`Stored::encode`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub(super) status: StatusCode,
    pub(super) flags: Flags,
    pub(super) times: Times,
    pub(super) variance: Variance,
    pub(super) variant: Variant,
    /// Each ended by a line feed, which no field value can hold.
    pub(super) tags: Box<[u8]>,
    pub(super) headers: Headers,
}

/// The times of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Times {
    /// When its age was 0.
    pub(super) born: Timestamp,
    /// When it came, or was validated.
    pub(super) received: Timestamp,
    /// When it becomes stale.
    pub(super) fresh_until: Timestamp,
    /// Until when it may be sent while it is refreshed.
    pub(super) revalidate_until: Timestamp,
    /// Until when it may be sent if the origin fails.
    pub(super) error_until: Timestamp,
    /// What `If-Modified-Since` is compared with (RFC 9111 section 4.3.2).
    pub(super) changed: Timestamp,
}

/// What is true of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags(pub(super) u8);

impl Flags {
    /// It is validated before each use.
    pub(super) const NO_CACHE: u8 = 1;
    /// It is not sent stale because a client accepts that.
    pub(super) const NEVER_STALE: u8 = 2;
    /// The origin named its lifetime.
    pub(super) const DECLARED: u8 = 4;
    /// It does not change while it is fresh (RFC 8246).
    pub(super) const IMMUTABLE: u8 = 8;
    /// It has a `Last-Modified`.
    pub(super) const HAS_LAST_MODIFIED: u8 = 16;
    /// That is so much older than its `Date` that it is a strong validator.
    pub(super) const STRONG_DATE: u8 = 32;
    /// It has an `ETag`.
    pub(super) const HAS_ENTITY_TAG: u8 = 64;

    pub(super) const ALL: u8 = 127;

    pub(super) fn has(self, flag: u8) -> bool {
        self.0 & flag != 0
    }

    pub(super) fn set(&mut self, flag: u8, is_set: bool) {
        if is_set {
            self.0 |= flag;
        } else {
            self.0 &= !flag;
        }
    }
}

impl Stored {
    /// The status. That of a stored part is 200, as is that of the whole.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The field lines to send. `Age` is not among them.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The fields of requests by which the response was chosen.
    pub fn variance(&self) -> &Variance {
        &self.variance
    }

    /// What the request had in those fields.
    pub fn variant(&self) -> &Variant {
        &self.variant
    }

    /// Whether it was made for requests like this one (RFC 9111 section 4.1).
    pub fn matches(&self, request: &PresentedRequest<'_>) -> bool {
        self.variance.is_empty() || self.variance.variant(request) == self.variant
    }

    /// The tags by which it can be purged, each once.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        self.tags
            .split(|byte| *byte == b'\n')
            .filter(|tag| !tag.is_empty())
    }

    /// When it came, or was validated.
    pub fn received(&self) -> Timestamp {
        self.times.received
    }

    /// When it becomes stale.
    pub fn fresh_until(&self) -> Timestamp {
        self.times.fresh_until
    }

    /// From when on it can only be used if it is validated; without a validator it is of no use then.
    pub fn useful_until(&self) -> Timestamp {
        let times = &self.times;
        times
            .fresh_until
            .max(times.revalidate_until)
            .max(times.error_until)
    }

    /// Whether it is fresh (RFC 9111 section 4.2), and need not be validated first.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.is_within(now, self.times.fresh_until) && !self.flags.has(Flags::NO_CACHE)
    }

    /// Whether it came later than now: the clock was set back since, and how old it is is not known.
    pub(super) fn is_of_the_future(&self, now: Timestamp) -> bool {
        now < self.times.received
    }

    /// Whether one of its times has not passed. All of them have for a response of the future, which
    /// would have them for as long as the clock went back.
    pub(super) fn is_within(&self, now: Timestamp, until: Timestamp) -> bool {
        now < until && !self.is_of_the_future(now)
    }

    /// Seconds since the origin made or validated it (RFC 9111 section 4.2.3): the value of `Age`.
    pub fn age(&self, now: Timestamp) -> u32 {
        u32::try_from(now.since(self.times.born).as_secs()).unwrap_or(u32::MAX)
    }

    /// Seconds for which it stays fresh; negative once it is stale. For `Cache-Status`.
    pub fn ttl(&self, now: Timestamp) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        if now <= self.times.fresh_until {
            seconds(self.times.fresh_until.since(now))
        } else {
            seconds(now.since(self.times.fresh_until)).saturating_neg()
        }
    }

    /// What identifies this version of the representation, for ranges.
    pub fn validators(&self) -> Validators<'_> {
        let has_last_modified = self.flags.has(Flags::HAS_LAST_MODIFIED);
        Validators {
            entity_tag: self.entity_tag(),
            last_modified: has_last_modified.then(|| self.times.changed.into()),
        }
    }

    /// Whether a request with these fields that it would answer is answered with 304 instead (RFC
    /// 9111 section 4.3.2).
    pub fn is_not_modified(&self, request: &Headers) -> bool {
        if self.status != StatusCode::OK {
            return false;
        }
        let validators = Validators {
            entity_tag: self.entity_tag(),
            last_modified: Some(self.times.changed.into()),
        };
        validators.is_not_modified(request)
    }

    /// Whether the origin can be asked if it is still current.
    pub fn can_be_validated(&self) -> bool {
        self.flags
            .has(Flags::HAS_ENTITY_TAG | Flags::HAS_LAST_MODIFIED)
    }

    /// Whether it has a strong validator (RFC 9110 section 8.8.1): what more is fetched of it can be
    /// joined with what is there.
    pub fn has_strong_validator(&self) -> bool {
        match self.entity_tag() {
            Some(tag) => !tag.weak,
            None => self.flags.has(Flags::STRONG_DATE),
        }
    }

    /// The value of `If-Range` with which more of it is fetched; `None` without a strong validator.
    pub fn if_range(&self) -> Option<&[u8]> {
        if !self.has_strong_validator() {
            return None;
        }
        let name = match self.flags.has(Flags::HAS_ENTITY_TAG) {
            true => "etag",
            false => "last-modified",
        };
        self.headers.get(name)
    }

    /// Whether a part of `other` is a part of the same version: both have the same strong validator
    /// (RFC 9111 section 3.4).
    pub fn may_combine(&self, other: &Self) -> bool {
        self.if_range()
            .is_some_and(|own| other.if_range() == Some(own))
    }

    /// Makes it stale now, as a soft purge does. It can still be sent while it is refreshed, or if the
    /// origin fails, for as long as it could have been after it would have become stale.
    pub fn make_stale(&mut self, now: Timestamp) {
        let times = &mut self.times;
        if now < times.fresh_until {
            let earlier = times.fresh_until.since(now);
            times.fresh_until = now;
            times.revalidate_until = times.revalidate_until.before(earlier);
            times.error_until = times.error_until.before(earlier);
        }
    }

    pub(super) fn entity_tag(&self) -> Option<EntityTag<'_>> {
        if !self.flags.has(Flags::HAS_ENTITY_TAG) {
            return None;
        }
        self.headers.get("etag").and_then(EntityTag::parse)
    }
}
