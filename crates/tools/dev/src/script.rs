//! The script that loads a page again: itself, its event stream, and how it gets into pages.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_http::{
    Body, BodyError, BodyStream, EventLines, Frame, HeaderValue, Headers, Response, StatusCode,
    header,
};
use apus_net::worker_stop;
use bytes::Bytes;
use tokio::sync::watch;

use crate::content_security::AllowedScript;
use crate::meta_policies::MetaPolicies;
use crate::state::DevState;

/// The path of the script.
pub(crate) const SCRIPT_PATH: &str = "/__apus_dev/reload.js";

/// The path of the event stream, beside the script.
pub(crate) const EVENTS_PATH: &str = "/__apus_dev/events";

/// Fields that describe a body byte by byte.
const BODY_FIELDS: [&str; 8] = [
    "content-length",
    "etag",
    "last-modified",
    "accept-ranges",
    "content-md5",
    "content-digest",
    "repr-digest",
    "digest",
];

/// The response to a request for the script.
pub(crate) fn script() -> Response {
    Response::new(StatusCode::OK)
        .with_header(
            &header::CONTENT_TYPE,
            &HeaderValue::from_static("text/javascript; charset=utf-8"),
        )
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-cache"),
        )
        .with_body(include_str!("page/reload.js"))
}

/// The response to a request for the events: the version of the pages now, and after each change.
pub(crate) fn events(run: String, mut state: watch::Receiver<DevState>) -> Response {
    state.mark_changed();
    let mut response = Response::new(StatusCode::OK)
        .with_header(
            &header::CONTENT_TYPE,
            &HeaderValue::from_static("text/event-stream"),
        )
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        )
        .with_body(Body::stream(VersionEvents {
            run,
            next: next_version(state, None),
            stopping: Box::pin(worker_stop()),
        }));
    response.set_coding_chosen(true);
    response
}

type NextVersion = Pin<Box<dyn Future<Output = Option<(watch::Receiver<DevState>, u64)>>>>;

/// The next version that is not this one; `None` when the server ends.
fn next_version(mut state: watch::Receiver<DevState>, last: Option<u64>) -> NextVersion {
    Box::pin(async move {
        loop {
            state.changed().await.ok()?;
            let version = state.borrow_and_update().version;
            if last != Some(version) {
                return Some((state, version));
            }
        }
    })
}

/// The body of the event stream.
struct VersionEvents {
    run: String,
    next: NextVersion,
    stopping: Pin<Box<dyn Future<Output = ()>>>,
}

impl BodyStream for VersionEvents {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if self.stopping.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        let Some((state, version)) = ready!(self.next.as_mut().poll(cx)) else {
            return Poll::Ready(None);
        };
        self.next = next_version(state, Some(version));
        let mut event = EventLines::default();
        event.field("event", "version");
        event.data(&format!("{}-{version}", self.run));
        Poll::Ready(Some(Ok(Frame::Data(event.finish()))))
    }
}

/// The script in a page of one version.
pub(crate) struct ReloadScript {
    version: String,
    /// The scheme, host and port of the page.
    origin: String,
    /// Whether the page is the response to a form, which must not be sent again by itself.
    is_of_form: bool,
}

impl ReloadScript {
    pub(crate) fn new(version: String, origin: String, is_of_form: bool) -> Self {
        Self {
            version,
            origin,
            is_of_form,
        }
    }

    /// Adds the script to the end of a response, if it is a whole HTML page. Its policies, also those in the page, allow the
    /// script then.
    pub(crate) fn add_to(&self, response: &mut Response) {
        if !is_page(response) {
            return;
        }
        let [script, events] =
            [SCRIPT_PATH, EVENTS_PATH].map(|path| format!("{}{path}", self.origin));
        let mut allowed = AllowedScript::new(script, events);
        let headers = response.headers_mut();
        allowed.change_fields(headers);
        for name in BODY_FIELDS {
            headers.remove(name);
        }
        let page = response.take_body();
        *response.body_mut() = Body::stream(PageWithScript {
            body: page,
            policies: MetaPolicies::default(),
            end: Some(ScriptElement {
                version: self.version.clone(),
                is_of_form: self.is_of_form,
                allowed,
            }),
            trailers: None,
        });
    }
}

/// The element with the script.
struct ScriptElement {
    version: String,
    is_of_form: bool,
    allowed: AllowedScript,
}

impl ScriptElement {
    /// The element, when all policies of the page are known.
    fn text(&self) -> String {
        let nonce = self.allowed.nonce();
        let nonce = nonce.map_or_else(String::new, |nonce| format!(" nonce=\"{nonce}\""));
        let form = if self.is_of_form { " data-form" } else { "" };
        let version = &self.version;
        format!("<script src=\"{SCRIPT_PATH}?v={version}\"{nonce}{form} async></script>")
    }
}

/// Whether a response is a whole page in HTML that is not compressed.
fn is_page(response: &Response) -> bool {
    let headers = response.headers();
    let is_html = headers.get_str("content-type").is_some_and(|value| {
        let essence = value.split(';').next().unwrap_or_default().trim();
        essence.eq_ignore_ascii_case("text/html")
    });
    let is_whole = !matches!(
        response.status(),
        StatusCode::NO_CONTENT | StatusCode::PARTIAL_CONTENT | StatusCode::NOT_MODIFIED
    );
    let is_identity = match headers.get_str("content-encoding") {
        Some(coding) => coding.eq_ignore_ascii_case("identity"),
        None => !headers.contains("content-encoding"),
    };
    is_html && is_whole && is_identity && !response.body().is_empty()
}

/// The body of a page with the script at its end.
struct PageWithScript {
    body: Body,
    policies: MetaPolicies,
    end: Option<ScriptElement>,
    /// The trailers of the body, which come after the end.
    trailers: Option<Headers>,
}

impl BodyStream for PageWithScript {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        while let Some(end) = &mut self.end {
            match ready!(self.body.poll_frame(cx)) {
                Some(Ok(Frame::Data(data))) => {
                    let mut change = |policy: &str| end.allowed.changed_policy(policy);
                    let data = self.policies.push(&data, &mut change);
                    if !data.is_empty() {
                        return Poll::Ready(Some(Ok(Frame::Data(data.into()))));
                    }
                }
                Some(Ok(Frame::Trailers(trailers))) => self.trailers = Some(trailers),
                // A file, which the proxy does not have, or an error.
                Some(frame) => return Poll::Ready(Some(frame)),
                None => {
                    let mut rest = self.policies.finish();
                    rest.extend_from_slice(end.text().as_bytes());
                    self.end = None;
                    return Poll::Ready(Some(Ok(Frame::Data(Bytes::from(rest)))));
                }
            }
        }
        Poll::Ready(self.trailers.take().map(Frame::Trailers).map(Ok))
    }
}

#[cfg(test)]
mod tests {
    use apus_testkit::{block_on, collect};

    use super::*;

    fn page(fields: &[(&str, &str)]) -> Response {
        let mut headers = Headers::new();
        for (name, value) in fields {
            headers.try_append(name, value).unwrap();
        }
        Response::with_headers(StatusCode::OK, headers, Body::from("<h1>a</h1>"))
    }

    fn with_script(mut response: Response) -> (Response, String) {
        let script = ReloadScript::new("7-1".to_owned(), "http://a:80".to_owned(), false);
        script.add_to(&mut response);
        let mut body = response.take_body();
        let text = block_on(collect(&mut body)).unwrap();
        (response, String::from_utf8(text).unwrap())
    }

    #[test]
    fn a_page_gets_the_script_at_its_end() {
        let (response, text) = with_script(page(&[
            ("content-type", "Text/HTML; charset=utf-8"),
            ("content-length", "10"),
            ("etag", "\"a\""),
        ]));
        let script = "<script src=\"/__apus_dev/reload.js?v=7-1\" async></script>";
        assert_eq!(text, format!("<h1>a</h1>{script}"));
        assert!(!response.headers().contains("content-length"));
        assert!(!response.headers().contains("etag"));
        let (_, text) = with_script(page(&[
            ("content-type", "text/html"),
            ("content-security-policy", "script-src 'nonce-abc'"),
        ]));
        assert!(text.contains(" nonce=\"abc\" "), "{text}");
    }

    #[test]
    fn a_policy_in_the_page_allows_the_script() {
        let policy = "<meta http-equiv=Content-Security-Policy content=\"script-src 'nonce-xyz'; connect-src 'self'\">";
        let response =
            page(&[("content-type", "text/html")]).with_body(format!("{policy}<h1>a</h1>"));
        let (_, text) = with_script(response);
        let expected = "content=\"script-src 'nonce-xyz'; connect-src 'self' http://a:80/__apus_dev/events\"><h1>a</h1>\
                        <script src=\"/__apus_dev/reload.js?v=7-1\" nonce=\"xyz\" async>";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn other_responses_stay_as_they_are() {
        let html = ("content-type", "text/html");
        for fields in [
            &[("content-type", "application/json")][..],
            &[],
            &[html, ("content-encoding", "gzip")],
        ] {
            assert_eq!(with_script(page(fields)).1, "<h1>a</h1>", "{fields:?}");
        }
        let mut partial = page(&[html]);
        partial.set_status(StatusCode::PARTIAL_CONTENT);
        assert_eq!(with_script(partial).1, "<h1>a</h1>");
        assert_eq!(with_script(page(&[html]).with_body(Body::Empty)).1, "");
    }
}
