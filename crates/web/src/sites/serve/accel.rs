//! Another answer of the site in the place of the one that a service gave: an application decides,
//! the site sends the file.

use std::rc::Rc;

use apus_http::{Answer, Body, Headers, Method, Request, RequestParts, Response, StatusCode};

use super::{Client, Exchange, Inner};
use crate::path;
use crate::php::Untold;
use crate::trace::{Step, StepKind};

/// Fields that the application decides on. The others are those of the answer in its place.
const KEPT: [&str; 6] = [
    "content-type",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
    "set-cookie",
];

/// Fields of a request that are about its content or its connection, which another answer to it has
/// nothing of.
const OF_CONTENT: [&str; 11] = [
    "connection",
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "expect",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
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
    pub(super) fn kept(&self, request: &Request) -> Option<Client> {
        (self.accelerates || self.replays).then(|| Client::of(request))
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
        let Some(request) = exchange.client.take().and_then(|client| client.again(path)) else {
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

impl Client {
    fn of(request: &Request) -> Self {
        let mut headers = Headers::with_capacity(request.headers().wire().len());
        headers.append_from(request.headers(), |name, _| !OF_CONTENT.contains(&name));
        Self {
            id: request.id(),
            method: request.method().clone(),
            target: request.original_target().clone(),
            version: request.version(),
            headers,
            connection: request.connection().clone(),
            extensions: request.extensions().clone(),
        }
    }

    /// A GET by this client, for a page that is sent whole.
    pub(super) fn page(mut self, path: &str) -> Option<Request> {
        self.method = Method::GET;
        for name in OF_PART {
            self.headers.remove(name);
        }
        self.ask(path)
    }

    /// The request again, for another path; as GET, unless it is HEAD.
    fn again(mut self, path: &str) -> Option<Request> {
        if self.method != Method::HEAD {
            self.method = Method::GET;
        }
        self.ask(path)
    }

    /// The request for a path of the site. A program behind that is told the target that the client sent,
    /// as nginx does it.
    fn ask(self, path: &str) -> Option<Request> {
        let mut request = Request::new(RequestParts {
            target: self.target,
            method: self.method,
            version: self.version,
            headers: self.headers,
            body: Body::Empty,
            connection: self.connection,
            extensions: self.extensions,
        });
        request.set_id(self.id);
        request.set_path_and_query(path).ok()?;
        request.extensions_mut().insert(Untold);
        Some(request)
    }
}
