//! Which header fields are stored (RFC 9111 section 3.1), and which of them a newer response
//! replaces (section 3.2).

use apus_http::fields::ResponseDirectives;
use apus_http::{Headers, list};

use super::{CacheRules, SetCookieRule, Timestamp};

/// Fields that belong to one connection, one message, or the access of one client to a proxy.
const NEVER_STORED: [&str; 12] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    // Computed for each response.
    "age",
    // Obsolete, and no longer true when the stored response is sent (RFC 9111 section 5.5).
    "warning",
];

/// Fields that a newer response without a body does not replace: they describe the stored body.
const DESCRIBES_BODY: [&str; 3] = ["content-length", "content-encoding", "content-range"];

/// The fields of a response that are stored, with a `Date` if it has none (RFC 9110 section 6.6.1).
pub(super) fn storable(
    headers: &Headers,
    directives: &ResponseDirectives,
    rules: &CacheRules,
    received: Timestamp,
) -> Headers {
    let mut stored = Headers::with_capacity(headers.wire().len().saturating_add(40));
    stored.append_from(headers, |name, _| {
        let is_hidden =
            rules.hide_tags && rules.tag_fields.iter().any(|tags| tags.as_bytes() == name);
        let is_removed = name == b"set-cookie" && rules.set_cookie == SetCookieRule::Remove;
        !is_hidden
            && !is_removed
            && !is_one_of(&NEVER_STORED, name)
            && !directives.no_cache.names(name)
            && !directives.private.names(name)
            && !is_nominated(headers, name)
    });
    if !stored.contains("date") {
        // A date is a valid field value.
        let _ = stored.try_append("date", received.to_http_date());
    }
    stored
}

/// The stored fields, updated by those fields of a newer response for which `wanted` holds: the
/// lines of the newer response replace all stored lines of the same name.
pub(super) fn updated(
    stored: &Headers,
    newer: &Headers,
    wanted: impl Fn(&[u8]) -> bool,
) -> Headers {
    let replaces = |name: &[u8]| {
        wanted(name)
            && !is_one_of(&DESCRIBES_BODY, name)
            // `Age` is not stored, but the freshness of the newer response depends on it.
            && (name == b"age" || !is_one_of(&NEVER_STORED, name))
            && !is_nominated(newer, name)
    };
    let mut merged = Headers::with_capacity(stored.wire().len());
    merged.append_from(stored, |name, _| {
        // A newer response without a date is as new as its time of receipt.
        name != b"date" && !(replaces(name) && newer.names().any(|newer| newer == name))
    });
    merged.append_from(newer, |name, _| replaces(name));
    merged
}

/// Whether a field only describes the freshness and the version of a response.
pub(super) fn is_of_freshness(name: &[u8], rules: &CacheRules) -> bool {
    matches!(
        name,
        b"date"
            | b"cache-control"
            | b"expires"
            | b"x-accel-expires"
            | b"etag"
            | b"last-modified"
            | b"vary"
    ) || (rules.targeted.iter()).any(|targeted| targeted.as_bytes() == name)
}

/// Whether `Connection` names the field (RFC 9110 section 7.6.1).
fn is_nominated(headers: &Headers, name: &[u8]) -> bool {
    headers
        .get_all("connection")
        .any(|line| list::has_member(line, name))
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|other| other.as_bytes() == name)
}
