//! Asking the origin whether stored responses are current (RFC 9111 section 4.3).

use apus_http::fields::EntityTag;
use apus_http::{Headers, StatusCode};

use super::part::content_length;
use super::reuse::is_failure;
use super::stored::Flags;
use super::storing::{check_credentials, check_request, evaluate};
use super::{
    Conditions, OriginResponse, PresentedRequest, Refusal, Rules, Stored, Timestamp, fields,
    may_serve_on_error,
};

/// Makes a request one that asks whether any of these stored responses is current (RFC 9111 section
/// 4.3.1), in the place of what the client asked: its own conditions and range are taken out, and are
/// for the caller to answer from what is stored then.
///
/// All have to be of one key. `Last-Modified` is used if there is only one.
pub fn add_conditions(stored: &[&Stored], headers: &mut Headers) {
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
        .filter(|stored| stored.flags.has(Flags::HAS_ENTITY_TAG))
        .filter_map(|stored| stored.headers.get("etag"))
        .collect();
    tags.dedup();
    if !tags.is_empty() {
        // Both fields were valid where they come from.
        let _ = headers.try_append("if-none-match", tags.join(&b", "[..]));
    }
    if let [only] = stored
        && only.flags.has(Flags::HAS_LAST_MODIFIED)
        && let Some(date) = only.headers.get("last-modified")
    {
        let _ = headers.try_append("if-modified-since", date);
    }
}

/// What the answer to a validation means (RFC 9111 section 4.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validated {
    /// 304: the stored response that [`selected`] names is current. It is freshened and sent.
    Current,
    /// The answer is sent, and may be stored in the place of the stored response.
    Replaced,
    /// The origin failed. The stored response is sent, with this many seconds as `Age`.
    ServeStale {
        /// Its age.
        age: u32,
    },
    /// The origin failed. Its answer is sent, and the stored response stays.
    Failed,
}

/// Says what the answer to a validation of `stored` means.
pub fn validated(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    status: StatusCode,
    rules: &Rules,
    conditions: &Conditions,
    now: Timestamp,
) -> Validated {
    if status == StatusCode::NOT_MODIFIED {
        return Validated::Current;
    }
    if !is_failure(status) {
        return Validated::Replaced;
    }
    match may_serve_on_error(request, stored, rules, conditions, now) {
        Some(age) => Validated::ServeStale { age },
        None => Validated::Failed,
    }
}

/// Which of the stored responses that a 304 was asked for it is about (RFC 9111 section 4.3.4): its
/// place in `stored`. `None` if it is about none of them; the request is sent anew without conditions
/// then.
pub fn selected(stored: &[&Stored], not_modified: &Headers) -> Option<usize> {
    let newest = |matches: &dyn Fn(&Stored) -> bool| {
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
            stored.entity_tag().is_some_and(|own| match tag.weak {
                true => own.weak_eq(&tag),
                false => own.strong_eq(&tag),
            })
        });
    }
    if let Some(date) = not_modified
        .get("last-modified")
        .and_then(Timestamp::from_http_date)
    {
        return newest(&|stored| {
            stored.flags.has(Flags::HAS_LAST_MODIFIED) && stored.times.changed == date
        });
    }
    // Without a validator it can only be about what was asked for.
    (stored.len() == 1).then_some(0)
}

/// What a 304 makes of a stored response.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "taken apart where it is returned"
)]
pub enum Freshened {
    /// It is stored in the place of the older one, with the same content.
    Stored(Box<Stored>),
    /// It answers this request only.
    NotStored {
        /// The fields to send.
        headers: Headers,
        /// Why.
        refusal: Refusal,
        /// Whether the older one is to be removed, because the origin took back that it may be
        /// stored. Otherwise it is something about this request, and the older one stays.
        is_revoked: bool,
        /// What is stored in its place, with the same content: the older one with nothing but the
        /// times and validators of the 304, as that may be for one client only. `None` if the older
        /// one stays as it was.
        renewed: Option<Box<Stored>>,
    },
}

/// Updates a stored response by a 304 that is about it (RFC 9111 sections 3.2 and 4.3.4).
pub fn freshen(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    not_modified: &OriginResponse<'_>,
    rules: &Rules,
) -> Freshened {
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
        Ok(newer) => return Freshened::Stored(Box::new(newer)),
        Err(refusal) => refusal,
    };
    let renewed = match refusal {
        Refusal::Authorization
        | Refusal::ClientCertificate
        | Refusal::SessionCookie
        | Refusal::SetCookie => {
            let headers = fields::updated(&stored.headers, not_modified.headers, |name| {
                fields::is_of_freshness(name, rules)
            });
            renewed(request, stored, &as_current(&headers), rules).ok()
        }
        _ => None,
    };
    merged.remove("age");
    Freshened::NotStored {
        headers: merged,
        refusal,
        is_revoked: !refusal.is_of_request(),
        renewed: renewed.map(Box::new),
    }
}

/// The stored response with other fields, from now on.
fn renewed(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    current: &OriginResponse<'_>,
    rules: &Rules,
) -> Result<Stored, Refusal> {
    let mut newer = evaluate(request, current, rules)?;
    if newer.tags.is_empty() {
        newer.tags = stored.tags.clone();
    }
    // It may be another request's: any of those that were asked about can be the current one.
    if !stored.variance.is_empty() && newer.variance == stored.variance {
        newer.variant = stored.variant.clone();
    }
    Ok(newer)
}

/// What the answer to a HEAD request makes of a stored response.
#[derive(Clone, Debug)]
pub enum HeadUpdate {
    /// It is stored in the place of the older one, with the same content.
    Stored(Box<Stored>),
    /// It is of another version, or forbids to store it: the stored response is not current.
    Invalid,
    /// It says nothing about it.
    Unchanged,
}

/// Updates a stored response by the answer to a HEAD request for the same key (RFC 9111 section
/// 4.3.5).
pub fn update_by_head(
    request: &PresentedRequest<'_>,
    stored: &Stored,
    response: &OriginResponse<'_>,
    rules: &Rules,
) -> HeadUpdate {
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
        Freshened::Stored(newer)
        | Freshened::NotStored {
            renewed: Some(newer),
            ..
        } => HeadUpdate::Stored(newer),
        Freshened::NotStored {
            is_revoked: true, ..
        } => HeadUpdate::Invalid,
        Freshened::NotStored { .. } => HeadUpdate::Unchanged,
    }
}
