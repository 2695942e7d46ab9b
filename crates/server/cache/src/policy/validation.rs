//! Validation of stored responses (RFC 9111 section 4.3).

use apus_http::fields::EntityTag;
use apus_http::{Headers, StatusCode};

use super::content_range::content_length;
use super::reuse::is_failure;
use super::stored::ResponseFlags;
use super::storing::{check_credentials, check_request, evaluate};
use super::{
    CacheRules, CachingContext, OriginResponse, PresentedRequest, StoreRefusal, StoredResponse,
    Timestamp, fields, may_serve_on_error,
};

/// Makes a request validate these stored responses (RFC 9111 section 4.3.1). The conditions and the
/// range of the client are removed: the caller evaluates them against the stored response
/// afterwards.
///
/// All responses have to have the same key. `Last-Modified` is used if there is only one.
pub fn add_conditions(stored: &[&StoredResponse], headers: &mut Headers) {
    // The client's own conditions are about the version that it has, and its range about a part of the body: a 304, 412 or
    // 206 to them would say nothing about what is stored for all.
    for name in [
        "if-match",
        "if-none-match",
        "if-modified-since",
        "if-unmodified-since",
        "if-range",
        "range",
    ] {
        headers.remove(name);
    }
    let mut tags: Vec<&[u8]> = stored
        .iter()
        .filter(|stored| stored.flags.has(ResponseFlags::HAS_ENTITY_TAG))
        .filter_map(|stored| stored.headers.get("etag"))
        .collect();
    tags.dedup();
    if !tags.is_empty() {
        // Both values come from valid fields.
        let _ = headers.try_append("if-none-match", tags.join(&b", "[..]));
    }
    if let [only] = stored
        && only.flags.has(ResponseFlags::HAS_LAST_MODIFIED)
        && let Some(date) = only.headers.get("last-modified")
    {
        let _ = headers.try_append("if-modified-since", date);
    }
}

/// The result of a validation (RFC 9111 section 4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidationResult {
    /// 304: the stored response that [`select_validated`] returns is current, and is freshened and
    /// sent.
    Current,
    /// The response is sent, and may replace the stored one.
    Replaced,
    /// The origin failed. The stored response is sent, with `age` as `Age`.
    ServeStale {
        /// Its age.
        age: u32,
    },
    /// The origin failed. Its response is sent, and the stored one is kept.
    Failed,
}

/// Interprets the response to a validation of `stored`.
pub fn evaluate_validation(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    status: StatusCode,
    rules: &CacheRules,
    conditions: &CachingContext,
    now: Timestamp,
) -> ValidationResult {
    if status == StatusCode::NOT_MODIFIED {
        return ValidationResult::Current;
    }
    if !is_failure(status) {
        return ValidationResult::Replaced;
    }
    // RFC 9111 section 4.3.3: after a 5xx, a cache may send what is stored as if the origin had not answered.
    match may_serve_on_error(request, stored, rules, conditions, now) {
        Some(age) => ValidationResult::ServeStale { age },
        None => ValidationResult::Failed,
    }
}

/// The index of the stored response that a 304 is about (RFC 9111 section 4.3.4). `None` if it is
/// about none of them; the request is then repeated without conditions.
pub fn select_validated(stored: &[&StoredResponse], not_modified: &Headers) -> Option<usize> {
    let newest = |matches: &dyn Fn(&StoredResponse) -> bool| {
        stored
            .iter()
            .enumerate()
            .filter(|(_, stored)| matches(stored))
            .max_by_key(|(_, stored)| stored.times.received)
            .map(|(at, _)| at)
    };
    if let Some(value) = not_modified.get("etag") {
        let tag = EntityTag::parse(value)?;
        return newest(&|stored| {
            stored.entity_tag().is_some_and(|own| {
                // RFC 9111 section 4.3.4: a strong tag of the 304 is only about responses with the same strong tag.
                if tag.weak {
                    own.weak_eq(&tag)
                } else {
                    own.strong_eq(&tag)
                }
            })
        });
    }
    if let Some(date) = not_modified
        .get("last-modified")
        .and_then(Timestamp::from_http_date)
    {
        return newest(&|stored| {
            stored.flags.has(ResponseFlags::HAS_LAST_MODIFIED) && stored.times.changed == date
        });
    }
    // Without a validator it can only be about the one that was validated.
    (stored.len() == 1).then_some(0)
}

/// The result of freshening a stored response by a 304.
#[derive(Clone, Debug)]
pub enum FreshenResult {
    /// The updated response replaces the older one, with the same body.
    Stored(Box<StoredResponse>),
    /// The response is for this request only.
    NotStored {
        /// The fields to send.
        headers: Headers,
        /// Why it is not stored.
        refusal: StoreRefusal,
        /// Whether the older response is removed, because the origin no longer allows to store it.
        /// Otherwise the reason is about this request, and the older response stays.
        is_revoked: bool,
        /// The replacement of the older response, with the same body: only the times and validators
        /// come from the 304, since its other fields may be for one client. `None` if the older
        /// response stays unchanged.
        renewed: Option<Box<StoredResponse>>,
    },
}

/// Updates a stored response by a 304 that is about it (RFC 9111 sections 3.2 and 4.3.4).
pub fn freshen(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    not_modified: &OriginResponse<'_>,
    rules: &CacheRules,
) -> FreshenResult {
    let as_current = |headers| OriginResponse {
        status: stored.status,
        headers,
        ..*not_modified
    };
    let mut merged = fields::updated(&stored.headers, not_modified.headers, |_| true);
    let current = as_current(&merged);
    let allowed =
        check_request(request, rules).and_then(|()| check_credentials(request, &current, rules));
    let refusal = match allowed.and_then(|()| renewed(request, stored, &current, rules)) {
        Ok(newer) => return FreshenResult::Stored(Box::new(newer)),
        Err(refusal) => refusal,
    };
    // A client with a session renews what is stored for all, too, but nothing that is only for it may stay: the fields
    // about freshness and version are all that is taken.
    let renewed = match refusal {
        StoreRefusal::Authorization
        | StoreRefusal::ClientCertificate
        | StoreRefusal::SessionCookie
        | StoreRefusal::SetCookie => {
            let headers = fields::updated(&stored.headers, not_modified.headers, |name| {
                fields::is_of_freshness(name, rules)
            });
            renewed(request, stored, &as_current(&headers), rules).ok()
        }
        _ => None,
    };
    merged.remove("age");
    FreshenResult::NotStored {
        headers: merged,
        refusal,
        is_revoked: !refusal.is_about_request(),
        renewed: renewed.map(Box::new),
    }
}

/// The stored response with the fields of `current`.
fn renewed(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    current: &OriginResponse<'_>,
    rules: &CacheRules,
) -> Result<StoredResponse, StoreRefusal> {
    let mut newer = evaluate(request, current, rules)?;
    // A 304 need not repeat the tags (RFC 9110 section 15.4.5), but purges by tag still have to find the response.
    if newer.tags.is_empty() {
        newer.tags = stored.tags.clone();
    }
    // The 304 may confirm a response that was stored for another secondary key.
    if !stored.vary.is_empty() && newer.vary == stored.vary {
        newer.secondary_key = stored.secondary_key.clone();
    }
    Ok(newer)
}

/// The result of updating a stored response by a response to HEAD.
#[derive(Clone, Debug)]
pub enum HeadUpdate {
    /// The updated response replaces the older one, with the same body.
    Stored(Box<StoredResponse>),
    /// The response is of another version, or forbids storing: the stored one is not current.
    Invalid,
    /// The response says nothing about the stored one.
    Unchanged,
}

/// Updates a stored response by the response to a HEAD request with the same key (RFC 9111 section
/// 4.3.5).
pub fn update_by_head(
    request: &PresentedRequest<'_>,
    stored: &StoredResponse,
    response: &OriginResponse<'_>,
    rules: &CacheRules,
) -> HeadUpdate {
    // RFC 9111 section 4.3.5 lets only a 200 update what is stored.
    if response.status != StatusCode::OK
        || stored.status != StatusCode::OK
        || !stored.matches(request)
        || check_request(request, rules).is_err()
    {
        return HeadUpdate::Unchanged;
    }
    let is_same = |name: &str| match response.headers.get(name) {
        Some(value) => stored.headers.get(name) == Some(value),
        None => true,
    };
    let length = |headers: &Headers| content_length(headers);
    let has_same_length = match (length(response.headers), length(&stored.headers)) {
        (Some(newer), Some(stored)) => newer == stored,
        _ => true,
    };
    let is_encoded_alike =
        response.headers.get("content-encoding") == stored.headers.get("content-encoding");
    if !is_same("etag") || !is_same("last-modified") || !has_same_length || !is_encoded_alike {
        return HeadUpdate::Invalid;
    }
    match freshen(request, stored, response, rules) {
        FreshenResult::Stored(newer)
        | FreshenResult::NotStored {
            renewed: Some(newer),
            ..
        } => HeadUpdate::Stored(newer),
        FreshenResult::NotStored {
            is_revoked: true, ..
        } => HeadUpdate::Invalid,
        FreshenResult::NotStored { .. } => HeadUpdate::Unchanged,
    }
}
