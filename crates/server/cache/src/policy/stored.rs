//! A stored response: its header fields, and what decides on its reuse (RFC 9111 section 3).

use std::time::Duration;

use apus_http::fields::{EntityTag, Validators};
use apus_http::{Headers, StatusCode};

use super::{PresentedRequest, SecondaryKey, Timestamp, VaryFields};

/// The metadata of a stored response (RFC 9111 section 3).
///
/// It is computed once, when the response is received or validated, and never changes: an update
/// creates a new one for the same body. Threads can share it, and it can be encoded
/// ([`StoredResponse::encode`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredResponse {
    pub(super) status: StatusCode,
    pub(super) flags: ResponseFlags,
    pub(super) times: ResponseTimes,
    pub(super) vary: VaryFields,
    pub(super) secondary_key: SecondaryKey,
    /// Each tag ends with a line feed, which no field value contains.
    pub(super) tags: Box<[u8]>,
    pub(super) headers: Headers,
}

/// The times of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResponseTimes {
    /// When its age was 0.
    pub(super) generated: Timestamp,
    /// When it was received or validated.
    pub(super) received: Timestamp,
    /// When it becomes stale.
    pub(super) fresh_until: Timestamp,
    /// Until when it may be sent stale while it is refreshed.
    pub(super) revalidate_until: Timestamp,
    /// Until when it may be sent stale if the origin fails.
    pub(super) error_until: Timestamp,
    /// The time to compare `If-Modified-Since` with (RFC 9111 section 4.3.2).
    pub(super) changed: Timestamp,
}

/// The boolean properties of a stored response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ResponseFlags(pub(super) u8);

impl ResponseFlags {
    /// It has to be validated before each use.
    pub(super) const NO_CACHE: u8 = 1;
    /// It may not be sent stale, even if a client accepts that.
    pub(super) const NEVER_STALE: u8 = 2;
    /// The origin set its lifetime.
    pub(super) const DECLARED: u8 = 4;
    /// It does not change while it is fresh (RFC 8246).
    pub(super) const IMMUTABLE: u8 = 8;
    /// It has a `Last-Modified`.
    pub(super) const HAS_LAST_MODIFIED: u8 = 16;
    /// `Last-Modified` is so much older than `Date` that it is a strong validator.
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

impl StoredResponse {
    /// The status. A stored partial response has the status of the complete one, 200.
    pub fn status(&self) -> StatusCode {
        self.status
    }

    /// The header fields to send, without `Age`.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The request fields that `Vary` names.
    pub fn vary(&self) -> &VaryFields {
        &self.vary
    }

    /// The values of those fields in the request.
    pub fn secondary_key(&self) -> &SecondaryKey {
        &self.secondary_key
    }

    /// Whether the request has the same values in those fields (RFC 9111 section 4.1).
    pub fn matches(&self, request: &PresentedRequest<'_>) -> bool {
        self.vary.is_empty() || self.vary.secondary_key(request) == self.secondary_key
    }

    /// The tags by which it can be purged, each once.
    pub fn tags(&self) -> impl Iterator<Item = &[u8]> {
        self.tags
            .split(|byte| *byte == b'\n')
            .filter(|tag| !tag.is_empty())
    }

    /// When it was received or validated.
    pub fn received(&self) -> Timestamp {
        self.times.received
    }

    /// When it becomes stale.
    pub fn fresh_until(&self) -> Timestamp {
        self.times.fresh_until
    }

    /// From when on it can only be used after validation; without a validator it is useless then.
    pub fn useful_until(&self) -> Timestamp {
        let times = &self.times;
        times
            .fresh_until
            .max(times.revalidate_until)
            .max(times.error_until)
    }

    /// Whether it is fresh (RFC 9111 section 4.2), and needs no validation.
    pub fn is_fresh(&self, now: Timestamp) -> bool {
        self.is_within(now, self.times.fresh_until) && !self.flags.has(ResponseFlags::NO_CACHE)
    }

    /// Whether it was received later than now: the clock was set back since then, and the age is
    /// unknown.
    pub(super) fn is_from_the_future(&self, now: Timestamp) -> bool {
        now < self.times.received
    }

    /// Whether `until` is not reached yet. A response from the future is past all its times;
    /// otherwise it would stay fresh for as long as the clock was set back.
    pub(super) fn is_within(&self, now: Timestamp, until: Timestamp) -> bool {
        now < until && !self.is_from_the_future(now)
    }

    /// Seconds since the origin generated or validated it (RFC 9111 section 4.2.3): the value of
    /// `Age`.
    pub fn age(&self, now: Timestamp) -> u32 {
        u32::try_from(now.since(self.times.generated).as_secs()).unwrap_or(u32::MAX)
    }

    /// The remaining freshness lifetime in seconds; negative for a stale response. For
    /// `Cache-Status`.
    pub fn ttl(&self, now: Timestamp) -> i64 {
        let seconds = |duration: Duration| i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
        if now <= self.times.fresh_until {
            seconds(self.times.fresh_until.since(now))
        } else {
            seconds(now.since(self.times.fresh_until)).saturating_neg()
        }
    }

    /// The validators of this version of the representation, for range requests.
    pub fn validators(&self) -> Validators<'_> {
        let has_last_modified = self.flags.has(ResponseFlags::HAS_LAST_MODIFIED);
        Validators {
            entity_tag: self.entity_tag(),
            last_modified: has_last_modified.then(|| self.times.changed.into()),
        }
    }

    /// Whether a request with these fields gets 304 instead of this response (RFC 9111 section
    /// 4.3.2).
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

    /// Whether it has a validator.
    pub fn can_be_validated(&self) -> bool {
        self.flags
            .has(ResponseFlags::HAS_ENTITY_TAG | ResponseFlags::HAS_LAST_MODIFIED)
    }

    /// Whether it has a strong validator (RFC 9110 section 8.8.1), so that it can be combined with
    /// other parts of the same version.
    pub fn has_strong_validator(&self) -> bool {
        match self.entity_tag() {
            Some(tag) => !tag.weak,
            None => self.flags.has(ResponseFlags::STRONG_DATE),
        }
    }

    /// The value of `If-Range` for fetching missing parts; `None` without a strong validator.
    pub fn if_range(&self) -> Option<&[u8]> {
        if !self.has_strong_validator() {
            return None;
        }
        let name = if self.flags.has(ResponseFlags::HAS_ENTITY_TAG) {
            "etag"
        } else {
            "last-modified"
        };
        self.headers.get(name)
    }

    /// Whether parts of `other` belong to the same version: both have the same strong validator
    /// (RFC 9111 section 3.4).
    pub fn may_combine(&self, other: &Self) -> bool {
        self.if_range()
            .is_some_and(|own| other.if_range() == Some(own))
    }

    /// Makes it stale now, as a soft purge does. It may then be sent stale for as long as it could
    /// have been after its lifetime.
    pub fn make_stale(&mut self, now: Timestamp) {
        let times = &mut self.times;
        if now < times.fresh_until {
            let shift = times.fresh_until.since(now);
            times.fresh_until = now;
            times.revalidate_until = times.revalidate_until.before(shift);
            times.error_until = times.error_until.before(shift);
        }
    }

    pub(super) fn entity_tag(&self) -> Option<EntityTag<'_>> {
        if !self.flags.has(ResponseFlags::HAS_ENTITY_TAG) {
            return None;
        }
        self.headers.get("etag").and_then(EntityTag::parse)
    }
}
