//! Storing responses in caches (RFC 9111 section 3).

use std::time::Duration;

use apus_http::fields::{
    DeltaSeconds, EntityTag, RequestDirectives, ResponseDirectives, surrogate_keys,
};
use apus_http::{Headers, Method, StatusCode};

use super::content_range::content_length;
use super::freshness::{Freshness, date, is_heuristically_cacheable, last_modified};
use super::stored::{ResponseFlags, ResponseTimes};
use super::{
    CacheRules, CachingContext, ContentRange, OriginResponse, PresentedRequest, SetCookieRule,
    StoreRefusal, StoredResponse, Timestamp, VaryFields, deception, fields,
};

/// Request fields by which frameworks replace the method or the target.
const OVERRIDE_FIELDS: [&str; 5] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// The most tags of one response.
const MAX_TAGS: usize = 256;

/// A response that may be stored.
#[derive(Clone, Debug)]
pub struct StorableResponse {
    /// The stored response.
    pub stored: StoredResponse,
    /// The range that the response contains, if it is partial. It may be stored beside ranges that
    /// [`StoredResponse::may_combine`] with it, and so may the received part of an interrupted
    /// response.
    pub part: Option<ContentRange>,
}

/// Decides whether a response may be stored, before its body is read. The body must then be no
/// larger than [`CacheRules::max_size`].
///
/// # Errors
/// The reason why it may not be stored.
pub fn may_store(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &CacheRules,
    conditions: &CachingContext,
) -> Result<StorableResponse, StoreRefusal> {
    // RFC 9111 section 3 allows more methods. A response to HEAD has no body, and a response to POST or PUT does not represent the target.
    if *request.method != Method::GET {
        return Err(StoreRefusal::Method);
    }
    if conditions.no_store {
        return Err(StoreRefusal::Configured);
    }
    if conditions.uses < rules.minimum_uses {
        return Err(StoreRefusal::TooFewUses);
    }
    check_request(request, rules)?;
    let part = content_range(response, rules)?;
    check_credentials(request, response, rules)?;
    let stored = evaluate(request, response, rules)?;
    let length = match part {
        Some(part) => Some(part.complete),
        None => content_length(response.headers),
    };
    if length.is_some_and(|length| length > rules.max_size) {
        return Err(StoreRefusal::TooLarge);
    }
    if part.is_some() && !stored.has_strong_validator() {
        return Err(StoreRefusal::Part);
    }
    Ok(StorableResponse {
        stored: match part {
            Some(part) => as_complete(stored, part),
            None => stored,
        },
        part,
    })
}

/// Checks whether the response to a request may change what other clients get: by being stored, or
/// by updating or removing a stored response.
pub(super) fn check_request(
    request: &PresentedRequest<'_>,
    rules: &CacheRules,
) -> Result<(), StoreRefusal> {
    if RequestDirectives::of(request.headers).no_store {
        return Err(StoreRefusal::RequestNoStore);
    }
    // The origin may have responded to something other than the key says. It holds for 304s and responses to HEAD, too:
    // they once updated what was stored for all, although their requests had a body or named another method.
    if request.has_body || has_override(request, rules) {
        return Err(StoreRefusal::UnkeyedInput);
    }
    Ok(())
}

/// Checks whether the response may be stored for all clients, although the request identifies one.
pub(super) fn check_credentials(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &CacheRules,
) -> Result<(), StoreRefusal> {
    if rules.credentials.allow_undeclared(request) {
        return Ok(());
    }
    let (directives, _) = directives(response, rules);
    rules.credentials.allow_storing(request, &directives)
}

/// The checks that depend neither on the body nor on the client: for new responses, and for stored
/// ones whose fields were updated.
pub(super) fn evaluate(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &CacheRules,
) -> Result<StoredResponse, StoreRefusal> {
    let headers = response.headers;
    // The site replaces this response, or its body, by another one, which may be for this client alone.
    if ["x-accel-redirect", "x-sendfile", "x-apus-challenge"]
        .iter()
        .any(|name| headers.contains(name))
    {
        return Err(StoreRefusal::InternalRedirect);
    }
    let (directives, is_targeted) = directives(response, rules);
    check_status(response, &directives, rules)?;
    check_directives(response.status, &directives)?;
    // A response that names it in `private` or `no-cache` is stored without it (RFC 9111 sections 5.2.2.4 and
    // 5.2.2.7).
    if rules.set_cookie == SetCookieRule::Refuse
        && headers.contains("set-cookie")
        && !directives.private.names("set-cookie")
        && !directives.no_cache.names("set-cookie")
    {
        return Err(StoreRefusal::SetCookie);
    }
    let vary = VaryFields::of(headers, rules)?;
    if rules.refuse_disguised
        && response.status.is_success()
        && deception::has_unexpected_type(request.path, headers)
    {
        return Err(StoreRefusal::UnexpectedType);
    }
    let freshness = Freshness::of(
        response,
        &directives,
        is_targeted,
        request.query.is_some(),
        rules,
    );
    // RFC 9111 section 3: without a lifetime, only `public` or a status with heuristic caching lets a response be
    // stored.
    if freshness.is_unknown && !directives.public && !is_heuristically_cacheable(response.status) {
        return Err(StoreRefusal::NoLifetime);
    }
    let mut stored = StoredResponse {
        status: response.status,
        flags: flags(response, &directives, &freshness),
        times: times(response, &directives, &freshness, rules),
        secondary_key: vary.secondary_key(request),
        vary,
        tags: tags(headers, rules),
        headers: fields::storable(headers, &directives, rules, response.received),
    };
    // Only validators that are stored count.
    for (flag, name) in [
        (ResponseFlags::HAS_ENTITY_TAG, "etag"),
        (ResponseFlags::HAS_LAST_MODIFIED, "last-modified"),
    ] {
        let is_stored = stored.flags.has(flag) && stored.headers.contains(name);
        stored.flags.set(flag, is_stored);
    }
    let is_useful = response.received < stored.useful_until() || stored.can_be_validated();
    let is_never_current = stored.flags.has(ResponseFlags::NO_CACHE) && !stored.can_be_validated();
    if !is_useful || is_never_current {
        return Err(if freshness.is_unknown {
            StoreRefusal::NoLifetime
        } else {
            StoreRefusal::StaleOnArrival
        });
    }
    Ok(stored)
}

/// The directives for this cache: from `X-Accel-Expires`, from the first valid targeted field, or
/// from `Cache-Control` (RFC 9213 section 2.2). The flag is false for `Cache-Control`.
fn directives(response: &OriginResponse<'_>, rules: &CacheRules) -> (ResponseDirectives, bool) {
    if rules.ignored.cache_control {
        return (ResponseDirectives::default(), false);
    }
    let headers = response.headers;
    if rules.accel_expires
        && let Some(directives) = accel_expires(response)
    {
        return (directives, true);
    }
    let mut targeted = rules.targeted.iter();
    match targeted.find_map(|name| ResponseDirectives::targeted(headers, name)) {
        Some(directives) => (directives, true),
        None => (ResponseDirectives::of(headers), false),
    }
}

/// `X-Accel-Expires` as directives; `None` if it is absent or invalid.
fn accel_expires(response: &OriginResponse<'_>) -> Option<ResponseDirectives> {
    let value = response.headers.get_str("x-accel-expires")?;
    let seconds = match value.strip_prefix('@') {
        Some(time) => {
            let time = Timestamp::from_unix_seconds(time.parse().ok()?);
            let left = time.since(date(response)).as_secs();
            u32::try_from(left).unwrap_or(u32::MAX)
        }
        None => value.parse().ok()?,
    };
    Some(ResponseDirectives {
        max_age: Some(DeltaSeconds::Valid(seconds)),
        no_store: seconds == 0,
        ..ResponseDirectives::default()
    })
}

/// Whether the request has a field that may replace the method or the target and is not in the key.
fn has_override(request: &PresentedRequest<'_>, rules: &CacheRules) -> bool {
    let is_keyed = |name: &str| rules.key.headers.iter().any(|keyed| **keyed == *name);
    OVERRIDE_FIELDS
        .iter()
        .any(|name| request.headers.contains(name) && !is_keyed(name))
}

fn content_range(
    response: &OriginResponse<'_>,
    rules: &CacheRules,
) -> Result<Option<ContentRange>, StoreRefusal> {
    if response.status != StatusCode::PARTIAL_CONTENT {
        return Ok(None);
    }
    match ContentRange::of(response.headers) {
        Some(part) if rules.store_parts => Ok(Some(part)),
        _ => Err(StoreRefusal::Part),
    }
}

/// Gives a partial response the status and the length of the complete one.
fn as_complete(mut stored: StoredResponse, part: ContentRange) -> StoredResponse {
    // The store has the whole representation, of which this is a part, so that other parts can join it (RFC 9111
    // section 3.4).
    stored.status = StatusCode::OK;
    stored.headers.remove("content-range");
    // A number is a valid field value.
    let _ = stored
        .headers
        .try_insert("content-length", part.complete.to_string());
    stored
}

fn check_status(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    rules: &CacheRules,
) -> Result<(), StoreRefusal> {
    let status = response.status;
    let is_allowed = match status.as_u16() {
        // Interim responses, 304 for a condition of the client, and 416 for a range of the client.
        0..200 | 304 | 416 => false,
        404 | 410 => true,
        400.. => rules.store_errors || rules.ttl(status).is_some(),
        _ => true,
    };
    if !is_allowed {
        return Err(StoreRefusal::Status);
    }
    if directives.must_understand && !is_understood(status) {
        return Err(StoreRefusal::NotUnderstood);
    }
    Ok(())
}

fn check_directives(
    status: StatusCode,
    directives: &ResponseDirectives,
) -> Result<(), StoreRefusal> {
    // An origin that sends both means no-store for caches that do not implement must-understand
    // (RFC 9111 section 5.2.2.3).
    let is_overridden = directives.must_understand && is_understood(status);
    if directives.no_store && !is_overridden {
        return Err(StoreRefusal::NoStore);
    }
    if directives.private.is_whole() {
        return Err(StoreRefusal::Private);
    }
    Ok(())
}

/// Whether the status is one of RFC 9110 section 15, whose caching semantics are implemented here.
fn is_understood(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        200..=206 | 300..=303 | 305 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 500..=505
    )
}

fn flags(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    freshness: &Freshness,
) -> ResponseFlags {
    let headers = response.headers;
    let last_modified = last_modified(response);
    // RFC 9110 section 8.8.2.2: two changes within one second have the same date.
    let is_strong = last_modified.is_some_and(|last_modified| {
        headers.contains("date") && date(response).since(last_modified) >= Duration::from_secs(1)
    });
    let has_entity_tag = headers
        .get("etag")
        .is_some_and(|tag| EntityTag::parse(tag).is_some());
    let mut flags = ResponseFlags::default();
    flags.set(ResponseFlags::NO_CACHE, directives.no_cache.is_whole());
    flags.set(
        ResponseFlags::NEVER_STALE,
        is_staleness_forbidden(directives) || directives.s_maxage.is_some(),
    );
    flags.set(
        ResponseFlags::DECLARED,
        freshness.is_declared || directives.public,
    );
    flags.set(ResponseFlags::IMMUTABLE, directives.immutable);
    flags.set(ResponseFlags::HAS_LAST_MODIFIED, last_modified.is_some());
    flags.set(ResponseFlags::STRONG_DATE, is_strong);
    flags.set(ResponseFlags::HAS_ENTITY_TAG, has_entity_tag);
    flags
}

/// Whether the response may never be sent stale (RFC 9111 section 4.2.4).
fn is_staleness_forbidden(directives: &ResponseDirectives) -> bool {
    directives.must_revalidate || directives.proxy_revalidate || directives.no_cache.is_whole()
}

fn times(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    freshness: &Freshness,
    rules: &CacheRules,
) -> ResponseTimes {
    let Freshness {
        generated,
        fresh_until,
        ..
    } = *freshness;
    // With s-maxage, a stale response has to be validated (RFC 9111 section 5.2.2.10). An origin
    // that allows stale responses beside it means caches that implement RFC 5861. The configuration
    // cannot allow them, nor for a response that was never meant to be sent without validation.
    let is_configurable = directives.s_maxage.is_none() && fresh_until > generated;
    let window = |directive: Option<DeltaSeconds>, configured: Duration| match directive {
        _ if is_staleness_forbidden(directives) => Duration::ZERO,
        Some(seconds) => Duration::from_secs(seconds.seconds().into()),
        None if is_configurable => configured,
        None => Duration::ZERO,
    };
    let revalidate = window(
        directives.stale_while_revalidate,
        rules.stale_while_revalidate,
    );
    let error = window(directives.stale_if_error, rules.stale_if_error);
    ResponseTimes {
        generated,
        received: response.received,
        fresh_until,
        revalidate_until: fresh_until.after(revalidate),
        error_until: fresh_until.after(error),
        changed: last_modified(response).unwrap_or_else(|| date(response)),
    }
}

/// The tags of all tag fields, each once.
fn tags(headers: &Headers, rules: &CacheRules) -> Box<[u8]> {
    let mut tags: Vec<&[u8]> = rules
        .tag_fields
        .iter()
        .flat_map(|name| surrogate_keys(headers, name))
        .collect();
    tags.sort_unstable();
    tags.dedup();
    tags.truncate(MAX_TAGS);
    let mut joined = Vec::new();
    for tag in tags {
        joined.extend_from_slice(tag);
        joined.push(b'\n');
    }
    joined.into()
}
