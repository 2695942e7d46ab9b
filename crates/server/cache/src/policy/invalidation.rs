//! Invalidation of stored responses by unsafe requests (RFC 9111 section 4.4).

use apus_http::{Headers, Method, StatusCode};
use smallvec::SmallVec;

use super::key::is_same_authority;
use super::{KeyRules, PresentedRequest, RequestKey};

/// The targets that the response to a request invalidates, in the form of [`RequestKey::uri`]: the
/// target of the request, and those in `Location` and `Content-Location`, if the method is unsafe
/// and the response is no error.
///
/// Targets of other origins are not invalidated: otherwise any site could empty the cache of
/// another.
pub fn keys_to_invalidate(
    request: &PresentedRequest<'_>,
    status: StatusCode,
    headers: &Headers,
    rules: &KeyRules,
) -> SmallVec<[RequestKey; 1]> {
    let mut keys = SmallVec::new();
    // RFC 9111 section 4.4: an error says nothing about whether the target changed.
    let is_changed = status.is_success() || status.is_redirection();
    if is_safe(request.method) || !is_changed {
        return keys;
    }
    // Only the target itself, in all its variants. If header fields were in the key, a POST to / once removed everything
    // of the host: all keys began with the key of /.
    keys.push(rules.uri(request));
    for name in ["location", "content-location"] {
        if let Some(reference) = headers.get_str(name)
            && let Some(target) = resolve(request, reference)
        {
            let key = RequestKey::of_uri(rules, request.scheme, request.authority, &target);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
    }
    keys
}

/// Whether a method is safe. An unknown method counts as unsafe.
fn is_safe(method: &Method) -> bool {
    method.is_safe() || matches!(method.as_str(), "PROPFIND" | "REPORT" | "SEARCH" | "QUERY")
}

/// Resolves a reference to a target with its query, if it belongs to the origin of the request (RFC
/// 3986 section 5.2).
fn resolve(request: &PresentedRequest<'_>, reference: &str) -> Option<String> {
    let reference = reference.split('#').next().unwrap_or(reference);
    let is_secure = request.scheme.eq_ignore_ascii_case("https");
    let rest = match split_scheme(reference) {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(request.scheme) => {
            rest.starts_with("//").then_some(rest)?
        }
        // RFC 9110 section 4.3.1: another scheme is another origin, also on the same host.
        Some(_) => return None,
        None => reference,
    };
    let (path, query) = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find(['/', '?']).unwrap_or(rest.len());
            // Otherwise an origin could invalidate what others store (RFC 9111 section 4.4).
            let (authority, rest) = rest.split_at(end);
            if !is_same_authority(authority, request.authority, is_secure) {
                return None;
            }
            let (path, query) = split_query(rest);
            (if path.is_empty() { "/" } else { path }.to_owned(), query)
        }
        None => {
            let (path, query) = split_query(rest);
            if path.is_empty() {
                (request.path.to_owned(), query.or(request.query))
            } else if path.starts_with('/') {
                (path.to_owned(), query)
            } else {
                let folder = request
                    .path
                    .rsplit_once('/')
                    .map_or("", |(folder, _)| folder);
                (format!("{folder}/{path}"), query)
            }
        }
    };
    let mut target = without_dot_segments(&path);
    if let Some(query) = query {
        target.push('?');
        target.push_str(query);
    }
    Some(target)
}

/// Splits the scheme off, if there is one.
fn split_scheme(reference: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = reference.split_once(':')?;
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'));
    is_scheme.then_some((scheme, rest))
}

fn split_query(rest: &str) -> (&str, Option<&str>) {
    match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    }
}

/// RFC 3986 section 5.2.4, for a path that begins with a slash.
fn without_dot_segments(path: &str) -> String {
    let mut segments: Vec<&str> = Vec::new();
    let mut all = path.split('/').skip(1).peekable();
    while let Some(segment) = all.next() {
        let is_last = all.peek().is_none();
        match segment {
            "." if is_last => segments.push(""),
            "." => {}
            ".." => {
                segments.pop();
                if is_last {
                    segments.push("");
                }
            }
            segment => segments.push(segment),
        }
    }
    format!("/{}", segments.join("/"))
}
