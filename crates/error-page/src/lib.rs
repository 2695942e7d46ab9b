//! Default bodies of error responses: a page, problem details (RFC 9457), or text.
//!
//! The form is what the client accepts (RFC 9110 section 12.5.1).

#![forbid(unsafe_code)]

use apus_http::fields::Quality;
use apus_http::fields::accept::media_ranges;
use apus_http::{Body, HeaderValue, Headers, Request, Response, StatusCode, header};

/// The form of the content of an error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// A page for people.
    Html,
    /// ProblemDetails details for programs.
    Json,
    /// A line of text.
    Text,
}

impl ErrorFormat {
    /// The form that the client prefers; text if it has no preference.
    pub fn of(request: &Request) -> Self {
        Self::negotiate(request.headers())
    }

    fn negotiate(headers: &Headers) -> Self {
        let mut best = (Quality::NONE, Self::Text);
        for range in media_ranges(headers) {
            let format = match range.name.to_ascii_lowercase().as_slice() {
                b"text/html" | b"application/xhtml+xml" | b"text/*" => Self::Html,
                b"application/json" | b"application/*" => Self::Json,
                name if name.starts_with(b"application/") && name.ends_with(b"+json") => Self::Json,
                b"text/plain" => Self::Text,
                _ => continue,
            };
            if range.quality > best.0 {
                best = (range.quality, format);
            }
        }
        best.1
    }
}

/// An error response with the content that a site gives it by default.
pub fn error_page(request: &Request, status: StatusCode) -> Response {
    let mut response = Response::new(status);
    write_body(
        &mut response,
        ErrorFormat::of(request),
        ErrorDetails::default(),
    );
    response
}

/// Whether a response is an error that says nothing.
pub fn lacks_body(response: &Response) -> bool {
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && matches!(response.body(), Body::Empty)
}

/// What there is to say about an error besides its status (RFC 9457 section 3.1).
#[derive(Default)]
pub struct ErrorDetails<'a> {
    /// The type of problems.
    pub kind: Option<&'a str>,
    /// The title; by default the reason phrase of the status.
    pub title: Option<&'a str>,
    /// What went wrong with this request, for the person who sent it.
    pub detail: Option<&'a str>,
    /// Further members, for programs.
    pub members: serde_json::Map<String, serde_json::Value>,
}

/// Gives an error response its content.
pub fn write_body(response: &mut Response, format: ErrorFormat, details: ErrorDetails<'_>) {
    let status = response.status();
    let title = details
        .title
        .or(status.canonical_reason())
        .unwrap_or("Error");
    let code = status.as_str();
    let (content_type, content) = match format {
        ErrorFormat::Html => (
            "text/html; charset=utf-8",
            page(code, title, details.detail.unwrap_or(explanation(status))),
        ),
        ErrorFormat::Json => (
            "application/problem+json",
            problem(status, title, details).unwrap_or_default(),
        ),
        ErrorFormat::Text => (
            "text/plain; charset=utf-8",
            match details.detail {
                Some(detail) => format!("{detail}\n"),
                None => format!("{code} {title}\n"),
            },
        ),
    };
    let headers = response.headers_mut();
    headers.remove("content-length");
    headers.remove("content-encoding");
    headers.insert(
        &header::CONTENT_TYPE,
        &HeaderValue::from_static(content_type),
    );
    if is_temporary(status) && !headers.contains("cache-control") {
        headers.insert(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        );
    }
    headers.append(&header::VARY, &HeaderValue::from_static("accept"));
    *response.body_mut() = content.into();
}

fn page(code: &str, title: &str, text: &str) -> String {
    let escaped = |text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace('>', "&gt;")
    };
    // What was put in is not looked at again.
    let mut page = String::new();
    for part in include_str!("page.html").split_inclusive('}') {
        match part.rsplit_once('{') {
            Some((before, "status}")) => page.extend([before, code]),
            Some((before, "title}")) => page.extend([before, &escaped(title)]),
            Some((before, "text}")) => page.extend([before, &escaped(text)]),
            _ => page.push_str(part),
        }
    }
    page
}

fn problem(
    status: StatusCode,
    title: &str,
    details: ErrorDetails<'_>,
) -> serde_json::Result<String> {
    #[derive(serde::Serialize)]
    struct ProblemDetails<'a> {
        r#type: &'a str,
        title: &'a str,
        status: u16,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
        #[serde(flatten)]
        members: serde_json::Map<String, serde_json::Value>,
    }
    serde_json::to_string(&ProblemDetails {
        r#type: details.kind.unwrap_or("about:blank"),
        title,
        status: status.as_u16(),
        detail: details.detail,
        members: details.members,
    })
}

/// Whether the same request may well fare better later, or for somebody else.
fn is_temporary(status: StatusCode) -> bool {
    !matches!(
        status,
        StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::GONE
            | StatusCode::URI_TOO_LONG
            | StatusCode::NOT_IMPLEMENTED
    )
}

fn explanation(status: StatusCode) -> &'static str {
    match status {
        StatusCode::BAD_REQUEST => "The server could not make sense of this request.",
        StatusCode::UNAUTHORIZED => "You need to sign in to see this.",
        StatusCode::FORBIDDEN => "You are not allowed to see this.",
        StatusCode::NOT_FOUND => {
            "There is nothing at this address. It may have moved or be mistyped."
        }
        StatusCode::METHOD_NOT_ALLOWED => "This address does not take requests of this kind.",
        StatusCode::NOT_ACCEPTABLE => "This is not available in a form your client accepts.",
        StatusCode::REQUEST_TIMEOUT => "The request took too long to arrive. Please try again.",
        StatusCode::GONE => "What was here is gone for good.",
        StatusCode::PAYLOAD_TOO_LARGE => "What you sent is larger than allowed here.",
        StatusCode::RANGE_NOT_SATISFIABLE => "The part you asked for does not exist.",
        StatusCode::MISDIRECTED_REQUEST => "This server does not answer for that host here.",
        StatusCode::TOO_MANY_REQUESTS => "There were too many requests. Please wait a moment.",
        StatusCode::BAD_GATEWAY => "The application behind this server gave no valid answer.",
        StatusCode::SERVICE_UNAVAILABLE => {
            "The service is busy or under maintenance. Please try again soon."
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "The application behind this server took too long to answer."
        }
        other if other.is_server_error() => {
            "Something went wrong on the server. It is not your fault; please try again later."
        }
        _ => "The server cannot answer this request.",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_the_form_the_client_prefers() {
        for (accept, format) in [
            ("", ErrorFormat::Text),
            ("text/html", ErrorFormat::Html),
            ("application/json", ErrorFormat::Json),
            ("application/json, text/plain, */*", ErrorFormat::Json),
            ("application/problem+json", ErrorFormat::Json),
            ("application/json;q=0.5, text/html;q=0.8", ErrorFormat::Html),
            ("text/html;q=0, application/json", ErrorFormat::Json),
            ("text/html;q=x", ErrorFormat::Text),
            ("application/json; charset=utf-8", ErrorFormat::Json),
            ("text/plain", ErrorFormat::Text),
            ("image/avif,image/webp,*/*;q=0.8", ErrorFormat::Text),
        ] {
            let mut headers = Headers::new();
            headers.try_append("accept", accept).unwrap();
            assert_eq!(ErrorFormat::negotiate(&headers), format, "{accept}");
        }
    }

    #[test]
    fn keeps_what_the_error_said_and_describes_the_new_content() {
        let mut response = Response::new(StatusCode::METHOD_NOT_ALLOWED)
            .with_header(&header::ALLOW, &HeaderValue::from_static("GET"))
            .with_header(&header::CONTENT_LENGTH, &HeaderValue::from_static("0"));
        write_body(&mut response, ErrorFormat::Json, ErrorDetails::default());
        assert_eq!(response.headers().get_str("allow"), Some("GET"));
        assert_eq!(response.headers().get("content-length"), None);
        assert_eq!(response.headers().get("cache-control"), None);
        let Body::Bytes(content) = response.body() else {
            panic!("no content");
        };
        let problem: serde_json::Value = serde_json::from_slice(content).unwrap();
        assert_eq!(problem["status"], 405);
        assert_eq!(problem["title"], "Method Not Allowed");
    }

    #[test]
    fn a_passing_error_is_not_stored() {
        let mut response = Response::new(StatusCode::BAD_GATEWAY);
        write_body(&mut response, ErrorFormat::Html, ErrorDetails::default());
        assert_eq!(
            response.headers().get_str("cache-control"),
            Some("no-store")
        );
    }

    #[test]
    fn the_page_needs_nothing_from_elsewhere_and_has_both_colour_schemes() {
        let page = include_str!("page.html");
        for outside in ["src=", "href=", "url(", "@import", "http:", "https:"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }
}
