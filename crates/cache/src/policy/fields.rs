//! Which field lines are stored (RFC 9111 section 3.1), and which a newer response replaces (3.2).

use apus_http::fields::ResponseDirectives;
use apus_http::{Headers, list};

use super::{Rules, SetCookie, Timestamp};

/// Fields that are about one connection, one message, or one client's access to a proxy.
const NEVER_STORED: [&str; 13] = [
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
    // Worked out anew for each answer.
    "age",
    // Only sensible beside a part, and the whole is what is stored.
    "content-range",
    // Obsolete, and wrong by the time that it is sent (RFC 9111 section 5.5).
    "warning",
];

/// Fields that a newer response without the content does not change: they describe the content as it
/// is stored.
const TIED_TO_CONTENT: [&str; 3] = ["content-length", "content-encoding", "content-range"];

/// The lines of a response that are stored; with a `Date`, if it has none (RFC 9110 section 6.6.1).
pub(super) fn storable(
    headers: &Headers,
    directives: &ResponseDirectives,
    rules: &Rules,
    received: Timestamp,
) -> Headers {
    let mut stored = Headers::with_capacity(headers.wire().len().saturating_add(40));
    stored.append_from(headers, |name, _| {
        let is_hidden = rules.hide_tags && rules.tag_fields.iter().any(|tags| **tags == *name);
        let is_removed = name == "set-cookie" && rules.set_cookie == SetCookie::Remove;
        !is_hidden
            && !is_removed
            && !NEVER_STORED.contains(&name)
            && !directives.no_cache.names(name)
            && !directives.private.names(name)
            && !is_nominated(headers, name)
    });
    if !stored.contains("date") {
        // A date has no byte that a value may not have.
        let _ = stored.try_append("date", received.to_http_date());
    }
    stored
}

/// The stored lines with those of a newer response in their place, as far as they are wanted: all
/// lines of a name that the newer response has are replaced by its own.
pub(super) fn updated(stored: &Headers, newer: &Headers, wanted: impl Fn(&str) -> bool) -> Headers {
    let replaces = |name: &str| {
        wanted(name)
            && !TIED_TO_CONTENT.contains(&name)
            // The age is that of the newer response; it is not stored, but counts.
            && (name == "age" || !NEVER_STORED.contains(&name))
            && !is_nominated(newer, name)
    };
    let mut merged = Headers::with_capacity(stored.wire().len());
    merged.append_from(stored, |name, _| {
        // Without a date of its own the newer response is as new as when it came.
        name != "date" && !(replaces(name) && newer.contains(name))
    });
    merged.append_from(newer, |name, _| replaces(name));
    merged
}

/// Whether a field is only about how long a response is fresh, and which version it is.
pub(super) fn is_of_freshness(name: &str, rules: &Rules) -> bool {
    matches!(
        name,
        "date"
            | "cache-control"
            | "expires"
            | "x-accel-expires"
            | "etag"
            | "last-modified"
            | "vary"
    ) || rules.targeted.iter().any(|targeted| **targeted == *name)
}

/// Whether `Connection` names the field (RFC 9110 section 7.6.1).
fn is_nominated(headers: &Headers, name: &str) -> bool {
    headers
        .get_all("connection")
        .any(|line| list::has_member(line, name))
}
