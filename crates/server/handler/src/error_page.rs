//! Default bodies of error responses: an HTML page in English or Chinese, problem details (RFC 9457), or text, as the client accepts.

use apus_http::fields::PageLanguage;
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
        ErrorDetails::in_language(request.error_page_language()),
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
    /// The language of the page, if the client was asked for it. A title or a detail of its own is in English.
    pub language: Option<PageLanguage>,
}

impl ErrorDetails<'_> {
    /// The default title and explanation in the language that the client prefers.
    pub fn in_language(language: Option<PageLanguage>) -> Self {
        Self {
            language,
            ..Self::default()
        }
    }
}

/// Sets the body of an error response, and the fields about it.
pub fn write_body(response: &mut Response, format: ErrorFormat, details: ErrorDetails<'_>) {
    RenderedBody::new(response.status(), format, details).write(response);
}

/// The body of responses to an error, and the fields about it.
pub(crate) struct RenderedBody {
    body: Bytes,
    fields: Headers,
    /// Where a page has the id of its request, and what stands before it.
    id: Option<(usize, &'static str)>,
}

impl RenderedBody {
    pub(crate) fn new(status: StatusCode, format: ErrorFormat, details: ErrorDetails<'_>) -> Self {
        let reason = status.canonical_reason().unwrap_or("Error");
        let title = details.title.unwrap_or(reason);
        let code = status.as_str();
        let has_own_text = details.title.is_some() || details.detail.is_some();
        let language = details.language.filter(|_| !has_own_text);
        let mut id = None;
        let (content_type, body) = match format {
            ErrorFormat::Html => {
                let texts = match language.unwrap_or_default() {
                    PageLanguage::English => PageTexts {
                        language: PageLanguage::English,
                        title,
                        text: details.detail.unwrap_or(explanation(status)),
                        id: "Request",
                    },
                    PageLanguage::Chinese => {
                        let (title, text) = chinese(status);
                        PageTexts {
                            language: PageLanguage::Chinese,
                            title,
                            text,
                            id: "请求编号",
                        }
                    }
                };
                let (page, id_at) = render_page(code, &texts);
                id = id_at.map(|at| (at, texts.id));
                ("text/html; charset=utf-8", page)
            }
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
        // Who gets JSON or text would get it in any language.
        let vary: &[u8] = if format == ErrorFormat::Html && language.is_some() {
            b"accept, accept-language"
        } else {
            b"accept"
        };
        fields.push(b"vary", vary);
        Self {
            body: body.into(),
            fields,
            id,
        }
    }

    /// A response with this body, and no other fields.
    pub(crate) fn response(&self, status: StatusCode) -> Response {
        Response::with_headers(status, self.fields.clone(), self.body.clone().into())
    }

    /// Makes this the body of a response. A page has the id of the request, if the response has it.
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
        let id = self
            .id
            .and_then(|id| Some((id, headers.get_str("x-request-id")?)));
        let body = match id {
            Some((place, id)) => self.with_id(place, id),
            None => self.body.clone(),
        };
        *response.body_mut() = body.into();
    }

    /// The page with the id of a request, which an origin may have chosen.
    fn with_id(&self, (at, label): (usize, &str), id: &str) -> Bytes {
        const MAX_ID: usize = 128;

        let (before, after) = self.body.split_at_checked(at).unwrap_or_default();
        let id: String = id.chars().take(MAX_ID).collect();
        let id = escaped(&id);
        let line = format!("<p class=\"id\">{label} <code>{id}</code></p>\n");
        [before, line.as_bytes(), after].concat().into()
    }
}

/// The texts of a page.
struct PageTexts<'a> {
    language: PageLanguage,
    title: &'a str,
    text: &'a str,
    /// What stands before the id of the request.
    id: &'static str,
}

fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;")
}

/// The page, and where the id of the request has its place.
fn render_page(code: &str, texts: &PageTexts<'_>) -> (String, Option<usize>) {
    let mut id_at = None;
    // Inserted text is not searched for placeholders.
    let mut page = String::new();
    for part in include_str!("error_page.html").split_inclusive('}') {
        match part.rsplit_once('{') {
            Some((before, "status}")) => page.extend([before, code]),
            Some((before, "language}")) => page.extend([before, texts.language.tag()]),
            Some((before, "title}")) => page.extend([before, &escaped(texts.title)]),
            Some((before, "text}")) => page.extend([before, &escaped(texts.text)]),
            Some((before, "id}")) => {
                page.push_str(before);
                id_at = Some(page.len());
            }
            _ => page.push_str(part),
        }
    }
    (page, id_at)
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

/// The title and the explanation in Chinese.
fn chinese(status: StatusCode) -> (&'static str, &'static str) {
    match status {
        StatusCode::BAD_REQUEST => ("请求无效", "服务器无法理解这个请求。"),
        StatusCode::UNAUTHORIZED => ("需要登录", "请先登录，再访问此页面。"),
        StatusCode::FORBIDDEN => ("禁止访问", "您没有权限访问此页面。"),
        StatusCode::NOT_FOUND => ("页面不存在", "此地址没有内容，可能已移走，也可能输入有误。"),
        StatusCode::METHOD_NOT_ALLOWED => ("不支持的请求方法", "此地址不接受这种请求。"),
        StatusCode::NOT_ACCEPTABLE => ("没有可接受的格式", "没有您的客户端能接受的格式。"),
        StatusCode::REQUEST_TIMEOUT => ("请求超时", "请求到达得太慢，请重试。"),
        StatusCode::GONE => ("内容已删除", "此处的内容已永久删除。"),
        StatusCode::PAYLOAD_TOO_LARGE => ("内容过大", "您发送的内容超出了允许的大小。"),
        StatusCode::URI_TOO_LONG => ("地址过长", "请求的地址太长，服务器无法处理。"),
        StatusCode::RANGE_NOT_SATISFIABLE => ("范围无效", "您请求的部分不存在。"),
        StatusCode::MISDIRECTED_REQUEST => ("主机不符", "此服务器不在这里提供该主机的内容。"),
        StatusCode::TOO_MANY_REQUESTS => ("请求过多", "请求过于频繁，请稍候再试。"),
        StatusCode::BAD_GATEWAY => ("网关错误", "后端应用没有返回有效的响应。"),
        StatusCode::SERVICE_UNAVAILABLE => ("服务暂不可用", "服务繁忙或正在维护，请稍后再试。"),
        StatusCode::GATEWAY_TIMEOUT => ("网关超时", "后端应用响应超时。"),
        other if other.is_server_error() => {
            ("服务器错误", "服务器出现问题，与您的操作无关，请稍后再试。")
        }
        _ => ("无法处理请求", "服务器无法处理这个请求。"),
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

    fn page_of(response: &Response) -> String {
        let Body::Bytes(body) = response.body() else {
            panic!("no body");
        };
        String::from_utf8(body.to_vec()).unwrap()
    }

    #[test]
    fn a_page_is_in_the_language_of_the_client_and_says_that_it_varies() {
        for (language, texts, vary) in [
            (None, ["lang=\"en\"", "Not Found"], "accept"),
            (
                Some(PageLanguage::English),
                ["lang=\"en\"", "Not Found"],
                "accept, accept-language",
            ),
            (
                Some(PageLanguage::Chinese),
                ["lang=\"zh-Hans\"", "页面不存在"],
                "accept, accept-language",
            ),
        ] {
            let mut response = Response::new(StatusCode::NOT_FOUND);
            let details = ErrorDetails::in_language(language);
            write_body(&mut response, ErrorFormat::Html, details);
            let page = page_of(&response);
            assert!(texts.iter().all(|text| page.contains(text)), "{page}");
            assert!(
                !page.contains(['{', '}']) || page.contains(":root {"),
                "{page}"
            );
            assert!(
                !page.contains("{id}") && !page.contains("class=\"id\""),
                "{page}"
            );
            assert_eq!(response.headers().get_str("vary"), Some(vary));
        }
        // A detail of its own is in English, for everybody.
        let mut response = Response::new(StatusCode::NOT_FOUND);
        let details = ErrorDetails {
            detail: Some("No such order."),
            ..ErrorDetails::in_language(Some(PageLanguage::Chinese))
        };
        write_body(&mut response, ErrorFormat::Html, details);
        let page = page_of(&response);
        assert!(
            page.contains("lang=\"en\"") && page.contains("No such order."),
            "{page}"
        );
        assert_eq!(response.headers().get_str("vary"), Some("accept"));
        // Programs get what they got before, whatever the language.
        let mut response = Response::new(StatusCode::NOT_FOUND);
        let details = ErrorDetails::in_language(Some(PageLanguage::Chinese));
        write_body(&mut response, ErrorFormat::Text, details);
        assert_eq!(page_of(&response), "404 Not Found\n");
        assert_eq!(response.headers().get_str("vary"), Some("accept"));
    }

    #[test]
    fn a_page_has_the_id_of_its_request_and_no_markup_of_an_origin() {
        let with_id = |id: &'static str, language| {
            let name = header::HeaderName::from_static("x-request-id");
            let mut response = Response::new(StatusCode::BAD_GATEWAY)
                .with_header(&name, &HeaderValue::from_static(id));
            let details = ErrorDetails::in_language(Some(language));
            write_body(&mut response, ErrorFormat::Html, details);
            page_of(&response)
        };
        let page = with_id("0123abcd", PageLanguage::English);
        assert!(
            page.contains("<p class=\"id\">Request <code>0123abcd</code></p>"),
            "{page}"
        );
        let page = with_id("a<script>&", PageLanguage::Chinese);
        assert!(
            page.contains("请求编号 <code>a&lt;script&gt;&amp;</code>"),
            "{page}"
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
