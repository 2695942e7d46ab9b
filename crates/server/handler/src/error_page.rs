//! Default bodies of error responses: an HTML page, problem details (RFC 9457), or text, as the client accepts.

use apus_http::{Body, FieldSet, Headers, KnownField, Request, Response, StatusCode};
use bytes::Bytes;

pub use apus_http::ErrorFormat;

/// The format for clients that prefer none: many of them are programs that show the body as it is.
pub const DEFAULT_FORMAT: ErrorFormat = ErrorFormat::Text;

/// An error response with its default body.
pub fn error_page(request: &Request, status: StatusCode) -> Response {
    let mut response = Response::new(status);
    write_body(
        &mut response,
        request.error_format().unwrap_or(DEFAULT_FORMAT),
        ErrorDetails::default(),
    );
    response
}

/// Whether a response is an error without a body.
pub fn lacks_body(response: &Response) -> bool {
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && matches!(response.body(), Body::Empty)
}

/// The members of problem details besides the status (RFC 9457 section 3.1).
#[derive(Default)]
pub struct ErrorDetails<'a> {
    /// The URI of the problem type.
    pub kind: Option<&'a str>,
    /// The title; by default the reason phrase of the status.
    pub title: Option<&'a str>,
    /// The explanation of this occurrence, for people.
    pub detail: Option<&'a str>,
    /// Extension members, for programs.
    pub members: serde_json::Map<String, serde_json::Value>,
}

/// Sets the body of an error response, and the fields about it.
pub fn write_body(response: &mut Response, format: ErrorFormat, details: ErrorDetails<'_>) {
    RenderedBody::new(response.status(), format, details).write(response);
}

/// The body of responses to an error, and the fields about it.
pub(crate) struct RenderedBody {
    body: Bytes,
    fields: Headers,
}

impl RenderedBody {
    pub(crate) fn new(status: StatusCode, format: ErrorFormat, details: ErrorDetails<'_>) -> Self {
        let title = details
            .title
            .or(status.canonical_reason())
            .unwrap_or("Error");
        let code = status.as_str();
        let (content_type, body) = match format {
            ErrorFormat::Html => (
                "text/html; charset=utf-8",
                render_page(code, title, details.detail.unwrap_or(explanation(status))),
            ),
            ErrorFormat::Json => (
                "application/problem+json",
                render_problem(status, title, details).unwrap_or_default(),
            ),
            ErrorFormat::Text => (
                "text/plain; charset=utf-8",
                match details.detail {
                    Some(detail) => format!("{detail}\n"),
                    None => format!("{code} {title}\n"),
                },
            ),
        };
        let mut fields = Headers::new();
        fields.push(b"content-type", content_type.as_bytes());
        if is_temporary(status) {
            fields.push(b"cache-control", b"no-store");
        }
        fields.push(b"vary", b"accept");
        Self {
            body: body.into(),
            fields,
        }
    }

    /// A response with this body, and no other fields.
    pub(crate) fn response(&self, status: StatusCode) -> Response {
        Response::with_headers(status, self.fields.clone(), self.body.clone().into())
    }

    /// Makes this the body of a response.
    pub(crate) fn write(&self, response: &mut Response) {
        const DESCRIPTION: FieldSet = FieldSet::of(&[
            KnownField::ContentLength,
            KnownField::ContentEncoding,
            KnownField::ContentType,
        ]);
        let headers = response.headers_mut();
        if headers.has_any(DESCRIPTION) {
            headers.retain_fields(|field, _, _| !DESCRIPTION.has(field));
        }
        let has_cache_control = headers.has(KnownField::CacheControl);
        headers.append_fields_from(&self.fields, |field, _, _| {
            field != KnownField::CacheControl || !has_cache_control
        });
        *response.body_mut() = self.body.clone().into();
    }
}

fn render_page(code: &str, title: &str, text: &str) -> String {
    let escaped = |text: &str| {
        let text = text.replace('&', "&amp;").replace('<', "&lt;");
        text.replace('>', "&gt;")
    };
    // Inserted text is not searched for placeholders.
    let mut page = String::new();
    for part in include_str!("error_page.html").split_inclusive('}') {
        match part.rsplit_once('{') {
            Some((before, "status}")) => page.extend([before, code]),
            Some((before, "title}")) => page.extend([before, &escaped(title)]),
            Some((before, "text}")) => page.extend([before, &escaped(text)]),
            _ => page.push_str(part),
        }
    }
    page
}

fn render_problem(
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

/// Whether the same request may succeed later or for another client.
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
        StatusCode::BAD_REQUEST => "The server could not understand this request.",
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
        StatusCode::MISDIRECTED_REQUEST => "This server does not serve that host here.",
        StatusCode::TOO_MANY_REQUESTS => "There were too many requests. Please wait a moment.",
        StatusCode::BAD_GATEWAY => {
            "The application behind this server did not send a valid response."
        }
        StatusCode::SERVICE_UNAVAILABLE => {
            "The service is busy or under maintenance. Please try again soon."
        }
        StatusCode::GATEWAY_TIMEOUT => {
            "The application behind this server took too long to respond."
        }
        other if other.is_server_error() => {
            "Something went wrong on the server. It is not your fault; please try again later."
        }
        _ => "The server cannot process this request.",
    }
}

#[cfg(test)]
mod tests {
    use apus_http::{HeaderValue, header};

    use super::*;

    #[test]
    fn keeps_fields_of_the_error_and_describes_the_new_body() {
        let mut response = Response::new(StatusCode::METHOD_NOT_ALLOWED)
            .with_header(&header::ALLOW, &HeaderValue::from_static("GET"))
            .with_header(&header::CONTENT_LENGTH, &HeaderValue::from_static("0"));
        write_body(&mut response, ErrorFormat::Json, ErrorDetails::default());
        assert_eq!(response.headers().get_str("allow"), Some("GET"));
        assert_eq!(response.headers().get("content-length"), None);
        assert_eq!(response.headers().get("cache-control"), None);
        let Body::Bytes(body) = response.body() else {
            panic!("no body");
        };
        let problem: serde_json::Value = serde_json::from_slice(body).unwrap();
        assert_eq!(problem["status"], 405);
        assert_eq!(problem["title"], "Method Not Allowed");
    }

    #[test]
    fn a_temporary_error_is_not_stored() {
        let mut response = Response::new(StatusCode::BAD_GATEWAY);
        write_body(&mut response, ErrorFormat::Html, ErrorDetails::default());
        assert_eq!(
            response.headers().get_str("cache-control"),
            Some("no-store")
        );
    }

    #[test]
    fn the_page_needs_no_other_resource_and_has_both_colour_schemes() {
        let page = include_str!("error_page.html");
        for outside in ["src=", "href=", "url(", "@import", "http:", "https:"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }
}
