//! The pages of a challenge: without files beside them, in English and Chinese.

use std::borrow::Cow;

use apus_http::fields::PageLanguage;
use apus_http::{Headers, Request, Response, StatusCode, header};

use super::token::ChallengeLevel;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Marks the request that the page of the first level sends, as the last parameter of its query.
pub(super) const MARK: &str = "apus-challenge=1";

/// What a page is about.
pub(super) enum PageSubject<'a> {
    /// A ticket that the browser has to answer.
    Ticket {
        text: &'a str,
        level: ChallengeLevel,
        bits: u8,
    },
    /// The browser came back without its cookie.
    NoCookies,
}

/// The texts of a language.
struct Texts {
    language: &'static str,
    title: &'static str,
    why: &'static str,
    wait: &'static str,
    manual: &'static str,
    proceed: &'static str,
    unsent: &'static str,
    reload: &'static str,
    resend: &'static str,
    ready: &'static str,
    send_again: &'static str,
    no_script: &'static str,
    failed: &'static str,
    cookies_title: &'static str,
    cookies: &'static str,
    try_again: &'static str,
}

const ENGLISH: Texts = Texts {
    language: "en",
    title: "Checking your browser",
    why: "This site protects itself against automated requests. The page that you asked for opens in a moment.",
    wait: "Please wait.",
    manual: "If nothing happens within a few seconds:",
    proceed: "continue to the page",
    unsent: "This site protects itself against automated requests. What you have sent was not accepted yet.",
    reload: "Wait a second, then reload this page and confirm that your browser sends it again.",
    resend: "After the check you can send it again.",
    ready: "The check is done. Your browser may ask you to confirm that it sends your data again.",
    send_again: "Send again",
    no_script: "The check needs JavaScript. Allow it for this site, then reload the page.",
    failed: "The check cannot run in this browser. Reload the page, or use another browser.",
    cookies_title: "Cookies are needed",
    cookies: "The check needs a cookie, and this browser did not send it. Allow cookies for this site, then try again.",
    try_again: "Try again",
};

const CHINESE: Texts = Texts {
    language: "zh-Hans",
    title: "正在检查您的浏览器",
    why: "本网站正在防范自动化请求。您请求的页面稍后就会打开。",
    wait: "请稍候。",
    manual: "如果几秒钟后没有反应，请",
    proceed: "继续访问该页面",
    unsent: "本网站正在防范自动化请求。您提交的内容尚未被接受。",
    reload: "请等待一秒钟，然后重新加载此页面，并在浏览器询问时确认重新提交。",
    resend: "检查完成后，您可以重新提交。",
    ready: "检查已完成。浏览器可能会要求您确认重新提交数据。",
    send_again: "重新提交",
    no_script: "检查需要 JavaScript。请为本网站启用 JavaScript，然后重新加载页面。",
    failed: "此浏览器无法完成检查。请重新加载页面，或换用其他浏览器。",
    cookies_title: "需要 Cookie",
    cookies: "检查需要 Cookie，但此浏览器没有发送。请允许本网站使用 Cookie，然后重试。",
    try_again: "重试",
};

/// The page for a request.
pub(super) fn page(
    request: &Request,
    subject: &PageSubject<'_>,
    status: StatusCode,
    nonce: &str,
) -> Response {
    let texts = texts(request.headers());
    let is_sent_again = !super::is_safe(request);
    let (title, why, more, refresh) = match subject {
        PageSubject::NoCookies => {
            let url = escaped(&clean_target(request));
            let more = format!("<p><a href=\"{url}\">{}</a></p>\n", texts.try_again);
            (texts.cookies_title, texts.cookies, more, String::new())
        }
        PageSubject::Ticket { text, level, bits } => {
            let (more, refresh) = match level {
                ChallengeLevel::Refresh => refresh_parts(request, texts, is_sent_again),
                _ => {
                    let more = script_parts(texts, (text, *level, *bits), is_sent_again, nonce);
                    (more, String::new())
                }
            };
            let why = if is_sent_again {
                texts.unsent
            } else {
                texts.why
            };
            (texts.title, why, more, refresh)
        }
    };
    let body = filled(|name| match name {
        "lang" => texts.language.into(),
        "refresh" => refresh.as_str().into(),
        "title" => title.into(),
        "nonce" => nonce.into(),
        "css" => STYLE.into(),
        "host" => escaped(request.host().unwrap_or_default()).into(),
        "why" => why.into(),
        "more" => more.as_str().into(),
        _ => "".into(),
    });
    let mut response = Response::new(status);
    let headers = response.headers_mut();
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; worker-src blob:; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    );
    for (name, value) in [
        ("content-type", "text/html; charset=utf-8"),
        ("content-language", texts.language),
        ("content-security-policy", &policy),
        ("referrer-policy", "same-origin"),
        ("x-content-type-options", "nosniff"),
        ("x-robots-tag", "noindex"),
    ] {
        // These values are valid.
        let _ = headers.try_insert(name, value);
    }
    never_store(headers);
    *response.body_mut() = body.into();
    response
}

/// Keeps a response out of caches.
pub(super) fn never_store(headers: &mut Headers) {
    let _ = headers.try_insert(header::CACHE_CONTROL.as_str(), "no-store");
}

/// What the first level needs: a refresh, and a link for browsers that do not follow it.
fn refresh_parts(request: &Request, texts: &Texts, is_sent_again: bool) -> (String, String) {
    if is_sent_again {
        let more = format!("<p role=\"status\">{}</p>\n", texts.reload);
        return (more, String::new());
    }
    let url = escaped(&marked_target(request));
    let more = format!(
        "<p role=\"status\">{}</p>\n<div class=\"bar\" aria-hidden=\"true\"><i></i></div>\n\
         <p class=\"soft\">{} <a href=\"{url}\">{}</a></p>\n",
        texts.wait, texts.manual, texts.proceed
    );
    let refresh = format!("<meta http-equiv=\"refresh\" content=\"1; url={url}\">\n");
    (more, refresh)
}

/// What the other levels need: a script, and a text for browsers without one.
fn script_parts(
    texts: &Texts,
    (text, level, bits): (&str, ChallengeLevel, u8),
    is_sent_again: bool,
    nonce: &str,
) -> String {
    let (status, resend, button) = if is_sent_again {
        let button = format!(
            "<button type=\"button\" id=\"resend\" hidden>{}</button>\n",
            texts.send_again
        );
        (texts.resend, "1", button)
    } else {
        (texts.wait, "", String::new())
    };
    format!(
        "<p role=\"status\" id=\"status\">{status}</p>\n\
         <div class=\"bar\" id=\"bar\" aria-hidden=\"true\"><i></i></div>\n{button}\
         <noscript><p>{}</p></noscript>\n\
         <script nonce=\"{nonce}\" data-ticket=\"{text}\" data-level=\"{}\" data-bits=\"{bits}\" data-resend=\"{resend}\" \
         data-cookies=\"{}\" data-failed=\"{}\" data-ready=\"{}\">{SCRIPT}</script>\n",
        texts.no_script, level as u8, texts.cookies, texts.failed, texts.ready
    )
}

/// The frame with its parts. What stands in a part is not looked at again.
fn filled<'t>(part: impl Fn(&str) -> Cow<'t, str>) -> String {
    let mut pieces = FRAME.split("{{");
    let mut text = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (name, rest) = piece.split_once("}}").unwrap_or((piece, ""));
        text.push_str(&part(name));
        text.push_str(rest);
    }
    text
}

/// The path and the query that the client asked for, with the mark behind them.
fn marked_target(request: &Request) -> String {
    let mut target = clean_target(request);
    target.push(if target.contains('?') { '&' } else { '?' });
    target.push_str(MARK);
    target
}

/// The path and the query that the client asked for, without the mark, as a reference to the same host.
pub(super) fn clean_target(request: &Request) -> String {
    let target = request.original_target();
    let path = target.path();
    let mut clean = String::new();
    // Two slashes would begin a host, and browsers take a backslash for a slash.
    if path.starts_with("//") || path.starts_with("/\\") {
        clean.push_str("/.");
    }
    clean.push_str(path);
    let query = target.query().map(|query| match query.strip_suffix(MARK) {
        Some("") => None,
        Some(rest) => Some(rest.strip_suffix('&').unwrap_or(query)),
        None => Some(query),
    });
    if let Some(Some(query)) = query {
        clean.push('?');
        clean.push_str(query);
    }
    clean
}

/// Whether a request has the mark.
pub(super) fn is_marked(request: &Request) -> bool {
    let query = request.original_target().query();
    let before = query.and_then(|query| query.strip_suffix(MARK));
    before.is_some_and(|before| before.is_empty() || before.ends_with('&'))
}

/// The texts in the language that the client prefers.
fn texts(headers: &Headers) -> &'static Texts {
    match PageLanguage::preferred(headers) {
        PageLanguage::English => &ENGLISH,
        PageLanguage::Chinese => &CHINESE,
    }
}

/// A text in HTML, also in attributes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use apus_http::Body;
    use apus_testkit::get;

    use super::*;

    #[test]
    fn the_target_is_kept_and_never_leads_to_another_host() {
        for (target, clean, marked) in [
            ("/", "/", "/?apus-challenge=1"),
            ("/a?b=c&d", "/a?b=c&d", "/a?b=c&d&apus-challenge=1"),
            ("/a?", "/a?", "/a?&apus-challenge=1"),
            ("/a?apus-challenge=1", "/a", "/a?apus-challenge=1"),
            ("/a?b&apus-challenge=1", "/a?b", "/a?b&apus-challenge=1"),
            (
                "/a?xapus-challenge=1",
                "/a?xapus-challenge=1",
                "/a?xapus-challenge=1&apus-challenge=1",
            ),
            (
                "//evil.test/",
                "/.//evil.test/",
                "/.//evil.test/?apus-challenge=1",
            ),
            (
                "/%2F/evil.test",
                "/%2F/evil.test",
                "/%2F/evil.test?apus-challenge=1",
            ),
        ] {
            let request = get(target).request();
            assert_eq!(clean_target(&request), clean, "{target}");
            assert_eq!(marked_target(&request), marked, "{target}");
            let is_new = clean == target || target.starts_with("//");
            assert_eq!(is_marked(&request), !is_new, "{target}");
        }
    }

    #[test]
    fn what_a_client_sends_is_text_in_the_page() {
        let request = get("/?\"><script>alert(1)</script>'&{{css}}").request();
        let subject = PageSubject::Ticket {
            text: "ticket",
            level: ChallengeLevel::Refresh,
            bits: 0,
        };
        let mut response = page(&request, &subject, StatusCode::FORBIDDEN, "bm9uY2U=");
        let Body::Bytes(body) = response.take_body() else {
            panic!("the body is not in memory");
        };
        let body = String::from_utf8_lossy(&body);
        assert!(!body.contains("<script"), "{body}");
        assert!(
            body.contains("&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&#39;&amp;{{css}}&amp;")
        );
        assert_eq!(body.matches("color-scheme").count(), 2, "{body}");
    }
}
