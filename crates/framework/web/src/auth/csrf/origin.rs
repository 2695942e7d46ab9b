//! The origin check by `Sec-Fetch-Site` (W3C Fetch Metadata section 2.4) or `Origin` (RFC 6454 section 7).

use apus_http::Request;

use apus_http::origin::is_same_origin;

/// Checks that a request comes from a page of this site or of a trusted origin. Clients that are not
/// browsers send neither field; they pass this check and need a token.
pub(super) fn check(request: &Request, trusted: &[Box<str>]) -> Result<(), &'static str> {
    let headers = request.headers();
    let origin = headers.get_str("origin");
    let is_trusted =
        || origin.is_some_and(|origin| trusted.iter().any(|one| one.eq_ignore_ascii_case(origin)));
    let is_own = match (headers.get_str("sec-fetch-site"), origin) {
        (Some(site), _) => matches!(site, "same-origin" | "none"),
        (None, Some(origin)) => is_same_origin(request, origin),
        (None, None) => !headers.contains("sec-fetch-site") && !headers.contains("origin"),
    };
    if is_own || is_trusted() {
        Ok(())
    } else {
        Err("the request comes from a page of another site")
    }
}
