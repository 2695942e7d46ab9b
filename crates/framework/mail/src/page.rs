//! `MailPage`: a service that lists the caught mails and shows them.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    DevelopmentHosts, HeaderName, HeaderValue, Method, Request, Response, ResponseFuture, Service,
    ServiceFactory, StatusCode, escape_html, header, mount_prefix,
};

use crate::CaughtMail;
use crate::catcher::MailCatcher;

/// The pages of the caught mails, to mount under a path; see [`crate::Mailer::page`].
///
/// The HTML of a mail runs no scripts there, and loads nothing from other hosts. The pages respond at localhost, at loopback addresses, and
/// at hosts that are configured, by `apus dev --host` or [`MailPage::host`]: a page of another site cannot read mails by a name that leads to
/// this machine (DNS rebinding).
#[derive(Clone, Debug)]
pub struct MailPage {
    catcher: Arc<MailCatcher>,
    hosts: DevelopmentHosts,
}

struct MailPageService {
    catcher: Arc<MailCatcher>,
    hosts: DevelopmentHosts,
}

/// The policy of the list and of a mail: only what the page has itself, and the frame with the HTML.
const PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; frame-ancestors 'self'";

/// The policy of the HTML of a mail.
const HTML_POLICY: &str = "sandbox allow-popups; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'";

const HEAD: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<style>
  :root { color-scheme: light dark }
  body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem }
  table { border-collapse: collapse; width: 100% }
  td, th { text-align: left; padding: .4rem .8rem .4rem 0; border-bottom: 1px solid #8885; vertical-align: top }
  pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: 1rem; border-radius: .4rem }
  iframe { width: 100%; height: 30rem; border: 1px solid #8885; border-radius: .4rem; background: #fff }
</style>
"#;

impl MailPage {
    pub(crate) fn new(catcher: Arc<MailCatcher>) -> Self {
        Self {
            catcher,
            hosts: DevelopmentHosts::of_process(),
        }
    }

    /// Another name of this machine, or an address, at which the pages respond.
    #[must_use]
    pub fn host(self, name: &str) -> Self {
        let known = self.hosts.to_variable();
        let hosts = DevelopmentHosts::new(known.split(',').chain([name]));
        Self { hosts, ..self }
    }
}

impl ServiceFactory for MailPage {
    fn service(&self) -> Rc<dyn Service> {
        Rc::new(MailPageService {
            catcher: self.catcher.clone(),
            hosts: self.hosts.clone(),
        })
    }
}

impl Service for MailPageService {
    fn call(&self, request: Request) -> ResponseFuture {
        if !self.hosts.contain(&request) {
            let host = escape_html(request.host().unwrap_or("no host"));
            let text = format!(
                "{HEAD}<title>Mails</title>\n<p>Mails are shown at localhost, and not for {host}.\n"
            );
            let mut response = respond(text, "text/html; charset=utf-8", PAGE_POLICY);
            response.set_status(StatusCode::MISDIRECTED_REQUEST);
            return response.into();
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let allow = HeaderValue::from_static("GET, HEAD, OPTIONS");
            return Response::refuse_method(request.method(), &allow).into();
        }
        let base = escape_html(mount_prefix(&request));
        let mut segments = request
            .path()
            .split('/')
            .filter(|segment| !segment.is_empty());
        let [number, part, index] = [segments.next(), segments.next(), segments.next()];
        let response = match number {
            None => Some(self.list(&base)),
            Some(number) => number
                .parse()
                .ok()
                .and_then(|number| self.catcher.get(number))
                .and_then(|mail| match (part, index) {
                    (None, _) => Some(show(&mail, &base)),
                    (Some("html"), None) => mail
                        .html
                        .as_ref()
                        .map(|html| respond(html.clone(), "text/html; charset=utf-8", HTML_POLICY)),
                    (Some("source"), None) => {
                        Some(respond(mail.source.clone(), "text/plain", HTML_POLICY))
                    }
                    (Some("attachments"), Some(index)) => {
                        let index: usize = index.parse().ok()?;
                        let file = mail.attachments.get(index)?;
                        let octets = "application/octet-stream";
                        Some(respond(file.bytes.clone(), octets, HTML_POLICY))
                    }
                    _ => None,
                }),
        };
        response
            .unwrap_or_else(|| Response::new(StatusCode::NOT_FOUND))
            .into()
    }
}

impl MailPageService {
    fn list(&self, base: &str) -> Response {
        let mut page = format!("{HEAD}<title>Mails</title>\n<h1>Mails</h1>\n");
        let mails = self.catcher.all();
        if mails.is_empty() {
            page.push_str("<p>No mail was sent yet.</p>\n");
        } else {
            page.push_str("<table>\n<tr><th>To<th>Subject\n");
            for mail in mails.iter().rev() {
                let _ = writeln!(
                    page,
                    "<tr><td>{}<td><a href=\"{base}/{}\">{}</a>",
                    escape_html(&mail.to.join(", ")),
                    mail.number,
                    subject(mail),
                );
            }
            page.push_str("</table>\n");
        }
        respond(page, "text/html; charset=utf-8", PAGE_POLICY)
    }
}

/// The page of one mail.
fn show(mail: &CaughtMail, base: &str) -> Response {
    let (subject, number) = (subject(mail), mail.number);
    let mut page = format!("{HEAD}<title>{subject}</title>\n<h1>{subject}</h1>\n");
    let _ = writeln!(
        page,
        "<p>From {}<br>To {}</p>\n<pre>{}</pre>",
        escape_html(&mail.from),
        escape_html(&mail.to.join(", ")),
        linked(&mail.text),
    );
    if mail.html.is_some() {
        let _ = writeln!(
            page,
            "<iframe title=\"HTML\" src=\"{base}/{number}/html\"></iframe>"
        );
    }
    for (index, file) in mail.attachments.iter().enumerate() {
        let _ = writeln!(
            page,
            "<p><a download=\"{name}\" href=\"{base}/{number}/attachments/{index}\">{name}</a>, {} bytes</p>",
            file.bytes.len(),
            name = escape_html(&file.name),
        );
    }
    let _ = writeln!(
        page,
        "<p><a href=\"{base}/{number}/source\">Source</a> · <a href=\"{base}/\">All mails</a></p>"
    );
    respond(page, "text/html; charset=utf-8", PAGE_POLICY)
}

fn subject(mail: &CaughtMail) -> String {
    if mail.subject.is_empty() {
        "(no subject)".to_owned()
    } else {
        escape_html(&mail.subject)
    }
}

fn respond(
    body: impl Into<apus_http::Body>,
    media_type: &'static str,
    policy: &'static str,
) -> Response {
    const NO_SNIFF: (HeaderName, HeaderValue) = (
        header::X_CONTENT_TYPE_OPTIONS,
        HeaderValue::from_static("nosniff"),
    );
    let (name, value) = NO_SNIFF;
    Response::new(StatusCode::OK)
        .with_header(&header::CONTENT_TYPE, &HeaderValue::from_static(media_type))
        .with_header(
            &header::CONTENT_SECURITY_POLICY,
            &HeaderValue::from_static(policy),
        )
        .with_header(
            &header::CACHE_CONTROL,
            &HeaderValue::from_static("no-store"),
        )
        .with_header(
            &header::REFERRER_POLICY,
            &HeaderValue::from_static("no-referrer"),
        )
        .with_header(&name, &value)
        .with_body(body)
}

/// A text in HTML, with its links.
fn linked(text: &str) -> String {
    let mut html = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        let link = word.trim_end();
        let rest = word.get(link.len()..).unwrap_or("");
        if link.starts_with("https://") || link.starts_with("http://") {
            let link = escape_html(link);
            let _ = write!(html, "<a href=\"{link}\">{link}</a>{rest}");
        } else {
            html.push_str(&escape_html(word));
        }
    }
    html
}
