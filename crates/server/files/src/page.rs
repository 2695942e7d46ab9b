//! Whether a request for a path without a file is for a page, which a single-page application shows.

use apus_compress::media_type;
use apus_http::fields::Quality;
use apus_http::fields::accept::media_ranges;
use apus_http::{Headers, Request, Response};

/// What Fetch calls the destinations of documents (`Sec-Fetch-Dest`).
const DOCUMENTS: [&str; 6] = [
    "document",
    "iframe",
    "frame",
    "fencedframe",
    "embed",
    "object",
];

/// The fields that decide, for `Vary`.
const DECIDING_FIELDS: &str = "accept, sec-fetch-dest";

/// Whether a request is for a page. Browsers say so in `Sec-Fetch-Dest` (over HTTPS), or by accepting
/// HTML. The path decides only for other clients, and for what a script of a page fetches: a path
/// that ends like the name of a file of a known type other than HTML is no page.
pub(crate) fn is_for_page(request: &Request, path: &[u8]) -> bool {
    let headers = request.headers();
    match headers.get_str("sec-fetch-dest") {
        Some(destination) if DOCUMENTS.contains(&destination) => return true,
        Some("empty" | "") | None => {}
        Some(_) => return false,
    }
    match accepts_html(headers) {
        Some(accepts) => accepts,
        None => is_page_name(path),
    }
}

/// Whether HTML is among the media types in `Accept`; `None` if it names no type.
fn accepts_html(headers: &Headers) -> Option<bool> {
    let mut names_type = false;
    for range in media_ranges(headers) {
        let is = |name: &str| range.name.eq_ignore_ascii_case(name.as_bytes());
        let is_html = is("text/html") || is("application/xhtml+xml") || is("text/*");
        if is_html && range.quality > Quality::NONE {
            return Some(true);
        }
        names_type |= !is("*/*");
    }
    names_type.then_some(false)
}

fn is_page_name(path: &[u8]) -> bool {
    let extension = media_type::extension(path);
    media_type::of_extension(&extension) == "text/html" || !media_type::is_listed(&extension)
}

/// Adds the fields that decide to the `Vary` of the response: a cache must not send the page for a script.
pub(crate) fn vary_by_page(response: &mut Response) {
    let _ = response.headers_mut().try_append("vary", DECIDING_FIELDS);
}
