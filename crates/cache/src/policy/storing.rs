//! Which responses are stored (RFC 9111 section 3).

use std::time::Duration;

use apus_http::fields::{
    DeltaSeconds, EntityTag, RequestDirectives, ResponseDirectives, surrogate_keys,
};
use apus_http::{Headers, Method, StatusCode};

use super::freshness::{Freshness, date, is_heuristically_cacheable, last_modified};
use super::part::content_length;
use super::stored::{Flags, Times};
use super::{
    Conditions, OriginResponse, Part, PresentedRequest, Refusal, Rules, SetCookie, Stored,
    Timestamp, Variance, deception, fields,
};

/// Fields by which frameworks take a request for one with another method or target.
const OVERRIDES: [&str; 5] = [
    "x-http-method-override",
    "x-http-method",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// More tags than any page has parts.
const MAX_TAGS: usize = 256;

/// A response that may be stored.
#[derive(Clone, Debug)]
pub struct Storable {
    /// What is stored of it.
    pub stored: Stored,
    /// Which part of the content came with it, if it is not the whole: it may be stored beside parts
    /// that [`Stored::may_combine`] with it, as may be what came of a content that broke off.
    pub part: Option<Part>,
}

/// Decides whether a response may be stored, before its content is read. Its content must then turn
/// out no larger than [`Rules::max_size`].
///
/// # Errors
/// It may not, for this reason.
pub fn may_store(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &Rules,
    conditions: &Conditions,
) -> Result<Storable, Refusal> {
    // Answers to HEAD have nothing to store, and PUT and POST not what the next request asks for.
    if *request.method != Method::GET {
        return Err(Refusal::Method);
    }
    if conditions.no_store {
        return Err(Refusal::Configured);
    }
    if conditions.uses < rules.minimum_uses {
        return Err(Refusal::TooFewUses);
    }
    check_request(request, rules)?;
    let part = part(response, rules)?;
    check_credentials(request, response, rules)?;
    let stored = evaluate(request, response, rules)?;
    let length = match part {
        Some(part) => Some(part.complete),
        None => content_length(response.headers),
    };
    if length.is_some_and(|length| length > rules.max_size) {
        return Err(Refusal::TooLarge);
    }
    if part.is_some() && !stored.has_strong_validator() {
        return Err(Refusal::Part);
    }
    Ok(Storable {
        stored: match part {
            Some(part) => as_whole(stored, part),
            None => stored,
        },
        part,
    })
}

/// Whether the response to a request may change what others are sent, whatever it says: store
/// something, update what is stored, or take it out.
pub(super) fn check_request(request: &PresentedRequest<'_>, rules: &Rules) -> Result<(), Refusal> {
    if RequestDirectives::of(request.headers).no_store {
        return Err(Refusal::RequestNoStore);
    }
    // An origin may have responded to something else than what the key says.
    if request.has_body || has_override(request, rules) {
        return Err(Refusal::UnkeyedInput);
    }
    Ok(())
}

/// Whether the response may be stored for all though the request tells who the client is.
pub(super) fn check_credentials(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<(), Refusal> {
    if rules.credentials.allow_undeclared(request) {
        return Ok(());
    }
    let (directives, _) = directives(response, rules);
    rules.credentials.allow_storing(request, &directives)
}

/// Everything that decides on a response and is neither about the content nor the client: for new responses, and for
/// stored ones whose fields were updated.
pub(super) fn evaluate(
    request: &PresentedRequest<'_>,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<Stored, Refusal> {
    let headers = response.headers;
    if ["x-accel-redirect", "x-sendfile"]
        .iter()
        .any(|name| headers.contains(name))
    {
        return Err(Refusal::InternalRedirect);
    }
    let (directives, is_targeted) = directives(response, rules);
    check_status(response, &directives, rules)?;
    check_directives(response.status, &directives)?;
    if rules.set_cookie == SetCookie::Refuse
        && headers.contains("set-cookie")
        && !directives.private.names("set-cookie")
        && !directives.no_cache.names("set-cookie")
    {
        return Err(Refusal::SetCookie);
    }
    let variance = Variance::of(headers, rules)?;
    if rules.refuse_disguised
        && response.status.is_success()
        && deception::is_disguised(request.path, headers)
    {
        return Err(Refusal::Disguised);
    }
    let freshness = Freshness::of(
        response,
        &directives,
        is_targeted,
        request.query.is_some(),
        rules,
    );
    if freshness.is_unknown && !directives.public && !is_heuristically_cacheable(response.status) {
        return Err(Refusal::NoLifetime);
    }
    let mut stored = Stored {
        status: response.status,
        flags: flags(response, &directives, &freshness),
        times: times(response, &directives, &freshness, rules),
        variant: variance.variant(request),
        variance,
        tags: tags(headers, rules),
        headers: fields::storable(headers, &directives, rules, response.received),
    };
    // The validators have to be among what is stored.
    for (flag, name) in [
        (Flags::HAS_ENTITY_TAG, "etag"),
        (Flags::HAS_LAST_MODIFIED, "last-modified"),
    ] {
        let is_kept = stored.flags.has(flag) && stored.headers.contains(name);
        stored.flags.set(flag, is_kept);
    }
    let is_of_use = response.received < stored.useful_until() || stored.can_be_validated();
    let is_never_current = stored.flags.has(Flags::NO_CACHE) && !stored.can_be_validated();
    if !is_of_use || is_never_current {
        return Err(match freshness.is_unknown {
            true => Refusal::NoLifetime,
            false => Refusal::Useless,
        });
    }
    Ok(stored)
}

/// The directives for this cache: of nginx's own field, of the first targeted field that can be read,
/// or of `Cache-Control` (RFC 9213 section 2.2). The flag tells whether it is not the last.
fn directives(response: &OriginResponse<'_>, rules: &Rules) -> (ResponseDirectives, bool) {
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

/// What `X-Accel-Expires` means as directives; `None` if it is absent or cannot be read.
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

/// Whether a field that is not part of the key may name another method or target.
fn has_override(request: &PresentedRequest<'_>, rules: &Rules) -> bool {
    let is_keyed = |name: &str| rules.key.headers.iter().any(|keyed| **keyed == *name);
    OVERRIDES
        .iter()
        .any(|name| request.headers.contains(name) && !is_keyed(name))
}

fn part(response: &OriginResponse<'_>, rules: &Rules) -> Result<Option<Part>, Refusal> {
    if response.status != StatusCode::PARTIAL_CONTENT {
        return Ok(None);
    }
    match Part::of(response.headers) {
        Some(part) if rules.store_parts => Ok(Some(part)),
        _ => Err(Refusal::Part),
    }
}

/// The status and length that the whole has.
fn as_whole(mut stored: Stored, part: Part) -> Stored {
    stored.status = StatusCode::OK;
    // A number has no byte that a value may not have.
    let _ = stored
        .headers
        .try_insert("content-length", part.complete.to_string());
    stored
}

fn check_status(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    rules: &Rules,
) -> Result<(), Refusal> {
    let status = response.status;
    let is_allowed = match status.as_u16() {
        // Not final; about what a client has; about a range that a client asked for.
        0..200 | 304 | 416 => false,
        404 | 410 => true,
        400.. => rules.store_errors || rules.ttl(status).is_some(),
        _ => true,
    };
    if !is_allowed {
        return Err(Refusal::Status);
    }
    if directives.must_understand && !is_understood(status) {
        return Err(Refusal::NotUnderstood);
    }
    Ok(())
}

fn check_directives(status: StatusCode, directives: &ResponseDirectives) -> Result<(), Refusal> {
    // Who sends both means no-store for caches that do not know must-understand (RFC 9111 section
    // 5.2.2.3).
    let is_void = directives.must_understand && is_understood(status);
    if directives.no_store && !is_void {
        return Err(Refusal::NoStore);
    }
    if directives.private.is_whole() {
        return Err(Refusal::Private);
    }
    Ok(())
}

/// Whether the status is one of RFC 9110 section 15, whose meaning for caches is implemented here.
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
) -> Flags {
    let headers = response.headers;
    let last_modified = last_modified(response);
    // RFC 9110 section 8.8.2.2: what changed twice in one second has one date.
    let is_strong = last_modified.is_some_and(|last_modified| {
        headers.contains("date") && date(response).since(last_modified) >= Duration::from_secs(1)
    });
    let has_entity_tag = headers
        .get("etag")
        .is_some_and(|tag| EntityTag::parse(tag).is_some());
    let mut flags = Flags::default();
    flags.set(Flags::NO_CACHE, directives.no_cache.is_whole());
    flags.set(
        Flags::NEVER_STALE,
        is_staleness_forbidden(directives) || directives.s_maxage.is_some(),
    );
    flags.set(Flags::DECLARED, freshness.is_declared || directives.public);
    flags.set(Flags::IMMUTABLE, directives.immutable);
    flags.set(Flags::HAS_LAST_MODIFIED, last_modified.is_some());
    flags.set(Flags::STRONG_DATE, is_strong);
    flags.set(Flags::HAS_ENTITY_TAG, has_entity_tag);
    flags
}

/// Whether nothing allows to send the response stale (RFC 9111 section 4.2.4).
fn is_staleness_forbidden(directives: &ResponseDirectives) -> bool {
    directives.must_revalidate || directives.proxy_revalidate || directives.no_cache.is_whole()
}

fn times(
    response: &OriginResponse<'_>,
    directives: &ResponseDirectives,
    freshness: &Freshness,
    rules: &Rules,
) -> Times {
    let Freshness {
        born, fresh_until, ..
    } = *freshness;
    // By s-maxage a stale response has to be validated (RFC 9111 section 5.2.2.10). An origin that
    // allows stale ones beside it means them for those who know RFC 5861; the configuration cannot.
    // Nor can it for what was never meant to be sent without asking.
    let is_configurable = directives.s_maxage.is_none() && fresh_until > born;
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
    Times {
        born,
        received: response.received,
        fresh_until,
        revalidate_until: fresh_until.after(revalidate),
        error_until: fresh_until.after(error),
        changed: last_modified(response).unwrap_or_else(|| date(response)),
    }
}

/// The tags of all fields for tags, each once.
fn tags(headers: &Headers, rules: &Rules) -> Box<[u8]> {
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
