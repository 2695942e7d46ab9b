//! Internal redirects: an application names a file or path that the site sends in its place.

use std::rc::Rc;

use apus_http::{Answer, Headers, Method, Request, Response, StatusCode};

use super::{Exchange, Inner};
use apus_http::CacheBypass;
use apus_http::path;
use apus_http::trace::{Step, StepKind};

/// Fields that the application decides on. The others are those of the answer in its place.
const KEPT: [&str; 6] = [
    "content-type",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
    "set-cookie",
];

/// Fields of a request that are about its content, which another answer to it has nothing of.
const OF_CONTENT: [&str; 6] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "expect",
    "trailer",
];

/// Those that ask for less than the whole (RFC 9110 sections 13.1 and 14.2). An error page is sent whole.
const OF_PART: [&str; 6] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

impl Inner {
    /// What has to be kept of a request.
    pub(super) fn kept(&self, request: &Request) -> Option<Request> {
        (self.accelerates || self.replays).then(|| copy(request))
    }

    /// The path of the site that a service has it answer with.
    pub(super) fn accelerated(&self, exchange: &Exchange, response: &Response) -> Option<String> {
        let accel = self.place(exchange).accel.as_ref()?;
        let headers = response.headers();
        if let Some(path) = headers.get_str("x-accel-redirect") {
            return Some(path.to_owned());
        }
        let file = headers.get_str("x-sendfile")?;
        let path = accel.files.iter().find_map(|(folder, path)| {
            let rest = file.strip_prefix(&**folder)?;
            Some(format!("{path}{}", path::encode(rest.as_bytes())))
        });
        // An empty path is none: the file is not for sending.
        Some(path.unwrap_or_default())
    }

    /// Answers with what the site has at `path`.
    pub(super) fn answer_in_place(
        self: &Rc<Self>,
        mut exchange: Exchange,
        response: Response,
        path: &str,
    ) -> Answer {
        if let Some(trace) = &exchange.trace {
            trace.push(Step::new(
                StepKind::Rewrite,
                path,
                "the application says so",
            ));
        }
        let Some(request) = exchange
            .again
            .take()
            .and_then(|request| again(request, path))
        else {
            tracing::error!(
                site = &*self.name,
                path,
                "an application names no path of the site, or names one twice"
            );
            let refusal = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            exchange.location = None;
            return self.complete(exchange, refusal);
        };
        exchange.is_internal = true;
        exchange.changes = None;
        let answer = self.route(request, &mut exchange);
        let site = Rc::clone(self);
        Answer::later(async move {
            let mut found = answer.wait().await;
            if found.status().is_success() {
                take_over(response.headers(), found.headers_mut());
            }
            site.complete(exchange, found).wait().await
        })
    }
}

/// Gives an answer the fields that the application decides on.
fn take_over(from: &Headers, to: &mut Headers) {
    for name in KEPT.into_iter().filter(|name| from.contains(name)) {
        to.remove(name);
    }
    to.append_from(from, |name, _| KEPT.contains(&name));
}

/// A request once more, for what the site answers in another place: without what was about its body.
fn copy(request: &Request) -> Request {
    let mut copy = request.without_body();
    copy.restore_target();
    copy.headers_mut()
        .retain(|name| !OF_CONTENT.contains(&name));
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// A GET by the same client, for a page that is sent whole.
pub(super) fn page(mut request: Request, path: &str) -> Option<Request> {
    request.set_method(Method::GET);
    request
        .headers_mut()
        .retain(|name| !OF_PART.contains(&name));
    at(request, path)
}

/// The request again, for another path; as GET, unless it is HEAD.
fn again(mut request: Request, path: &str) -> Option<Request> {
    if *request.method() != Method::HEAD {
        request.set_method(Method::GET);
    }
    at(request, path)
}

/// The request for a path of the site. A program behind that is told the target that the client sent,
/// as nginx does it.
fn at(mut request: Request, path: &str) -> Option<Request> {
    request.set_path_and_query(path).ok()?;
    request.extensions_mut().insert(CacheBypass);
    Some(request)
}
