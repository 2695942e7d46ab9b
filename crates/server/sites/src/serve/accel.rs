//! Internal redirects by `X-Accel-Redirect` and `X-Sendfile`, and for error pages.

use std::mem;
use std::rc::Rc;

use apus_http::{
    Headers, KnownField, Method, Request, Response, ResponseFuture, RuleChoice, StatusCode,
};

use super::{RequestState, SiteState};
use apus_http::CacheBypass;
use apus_http::path;
use apus_http::trace::{Step, StepKind};

/// Fields of the application's response that replace fields of the redirected one.
const APPLICATION_FIELDS: [&str; 6] = [
    "content-type",
    "content-disposition",
    "content-language",
    "cache-control",
    "expires",
    "set-cookie",
];

/// Fields that describe the body of a request, which a redirected request does not have.
const BODY_FIELDS: [&str; 6] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-type",
    "expect",
    "trailer",
];

/// Preconditions and ranges (RFC 9110 sections 13.1 and 14.2); an error page is sent whole.
const CONDITIONAL_FIELDS: [&str; 6] = [
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "range",
];

/// Where an internal redirect leads.
pub(super) enum AccelTarget {
    /// To this path of the site.
    Path(String),
    /// Nowhere, as the location does not allow it.
    NotAllowed,
    /// To a file that no folder of the configuration holds.
    NoFolder,
}

impl SiteState {
    /// A copy of the request without its body, if a redirect may need it.
    pub(super) fn redirect_copy(&self, request: &Request) -> Option<Box<Request>> {
        (self.has_accel || self.has_error_page_paths).then(|| Box::new(copy(request)))
    }

    /// Where the response of a service redirects to; `None` if it is a response like others.
    pub(super) fn accel_target(
        &self,
        context: &RequestState,
        response: &Response,
    ) -> Option<AccelTarget> {
        let headers = response.headers();
        if !headers.has(KnownField::Internal) {
            return None;
        }
        let (path, file) = (
            headers.get_str("x-accel-redirect"),
            headers.get_str("x-sendfile"),
        );
        if path.is_none() && file.is_none() {
            return None;
        }
        let Some(accel) = self.location(&context.route).accel.as_ref() else {
            return Some(AccelTarget::NotAllowed);
        };
        if let Some(path) = path {
            return Some(AccelTarget::Path(path.to_owned()));
        }
        let file = file.unwrap_or_default();
        let path = accel.files.iter().find_map(|(folder, path)| {
            let rest = file.strip_prefix(&**folder)?;
            Some(format!("{path}{}", path::encode(rest.as_bytes())))
        });
        Some(match path {
            Some(path) => AccelTarget::Path(path),
            None => AccelTarget::NoFolder,
        })
    }

    /// Logs that an internal redirect leads nowhere.
    pub(super) fn log_refused_redirect(&self, response: &Response, why: &str) {
        let headers = response.headers();
        let field = |name| headers.get_str(name);
        let target = field("x-accel-redirect").or_else(|| field("x-sendfile"));
        tracing::error!(
            site = &*self.name,
            target = target.unwrap_or_default(),
            "{why}"
        );
    }

    /// Responds with what the site has at `path`.
    pub(super) fn redirect_internally(
        self: &Rc<Self>,
        mut context: RequestState,
        response: Response,
        path: &str,
    ) -> ResponseFuture {
        if let Some(trace) = &context.trace {
            trace.push(Step::new(
                StepKind::Rewrite,
                path,
                "the application redirects internally",
            ));
        }
        let Some(request) = context
            .route
            .redirect_copy
            .take()
            .and_then(|request| redirected_request(*request, path))
        else {
            tracing::error!(
                site = &*self.name,
                path,
                "an application redirects to an invalid path, or redirects a second time"
            );
            context.route.location.set(None);
            return self.complete(context, Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        };
        // The layers of the application may still have its route.
        let route = self.spare_routes.begin(|route| route.is_internal.set(true));
        let redirected = self.respond(request, &route);
        self.spare_routes
            .put_back(mem::replace(&mut context.route, route));
        let site = Rc::clone(self);
        ResponseFuture::later(async move {
            let mut found = redirected.wait().await;
            if found.status().is_success() {
                copy_application_fields(response.headers(), found.headers_mut());
            }
            site.complete(context, found).wait().await
        })
    }
}

/// Whether a response has no body, so that an application has sent nothing but its redirect.
pub(super) fn is_empty(response: &mut Response) -> bool {
    let length = response.headers().get("content-length");
    length.is_none_or(|length| length == b"0") && response.body_mut().len() == Some(0)
}

/// Replaces the fields of [`APPLICATION_FIELDS`] that the application set.
fn copy_application_fields(from: &Headers, to: &mut Headers) {
    let keeps_type = to.contains("content-type") && has_default_type(from);
    let is_copied = |name: &[u8]| {
        is_one_of(&APPLICATION_FIELDS, name) && !(keeps_type && name == b"content-type")
    };
    for name in APPLICATION_FIELDS
        .into_iter()
        .filter(|name| is_copied(name.as_bytes()) && from.contains(name))
    {
        to.remove(name);
    }
    to.append_from(from, |name, _| is_copied(name));
}

/// Whether the type of a response is the one that PHP adds if its script names none (`default_mimetype`).
fn has_default_type(headers: &Headers) -> bool {
    let media = headers.get("content-type").unwrap_or_default();
    let media = media.split(|byte| *byte == b';').next().unwrap_or_default();
    media.trim_ascii().eq_ignore_ascii_case(b"text/html")
}

/// A copy of a request without its body and the fields that describe it.
pub(super) fn copy(request: &Request) -> Request {
    let mut copy = request.without_body();
    copy.restore_target();
    copy.headers_mut()
        .retain(|name| !is_one_of(&BODY_FIELDS, name));
    *copy.extensions_mut() = request.extensions().clone();
    copy
}

/// A GET request of the same client for an error page.
pub(super) fn error_page_request(mut request: Request, path: &str) -> Option<Request> {
    request.set_method(Method::GET);
    request
        .headers_mut()
        .retain(|name| !is_one_of(&CONDITIONAL_FIELDS, name));
    with_path(request, path)
}

/// The request for another path, as GET unless it is HEAD.
fn redirected_request(mut request: Request, path: &str) -> Option<Request> {
    if *request.method() != Method::HEAD {
        request.set_method(Method::GET);
    }
    with_path(request, path)
}

/// The request for a path of the site. Like in nginx, an application there gets the original target.
fn with_path(mut request: Request, path: &str) -> Option<Request> {
    request.set_path_and_query(path).ok()?;
    request.extensions_mut().insert(CacheBypass);
    // What the application names has its own origins.
    request.extensions_mut().remove::<RuleChoice>();
    Some(request)
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|other| other.as_bytes() == name)
}
