//! Internal redirects by `X-Accel-Redirect` and `X-Sendfile`, and for error pages.

use std::rc::Rc;

use apus_http::{Headers, Method, Request, Response, ResponseFuture, StatusCode};

use super::{RequestRoute, RequestState, SiteState};
use apus_http::CacheBypass;
use apus_http::path;
use apus_http::trace::{Step, StepKind};

/// Fields of the application's response that replace those of the redirected one.
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

impl SiteState {
    /// A copy of the request without its body, if a redirect may need it.
    pub(super) fn redirect_copy(&self, request: &Request) -> Option<Box<Request>> {
        (self.has_accel || self.has_error_page_paths).then(|| Box::new(copy(request)))
    }

    /// The path that the response of a service redirects to.
    pub(super) fn accel_path(&self, context: &RequestState, response: &Response) -> Option<String> {
        let accel = self.location(context).accel.as_ref()?;
        let headers = response.headers();
        if let Some(path) = headers.get_str("x-accel-redirect") {
            return Some(path.to_owned());
        }
        let file = headers.get_str("x-sendfile")?;
        let path = accel.files.iter().find_map(|(folder, path)| {
            let rest = file.strip_prefix(&**folder)?;
            Some(format!("{path}{}", path::encode(rest.as_bytes())))
        });
        // An empty path fails the redirect: no folder of the configuration holds the file.
        Some(path.unwrap_or_default())
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
            context.route.location = None;
            return self.complete(context, Response::new(StatusCode::INTERNAL_SERVER_ERROR));
        };
        context.route = RequestRoute {
            is_internal: true,
            location: context.route.location,
            ..RequestRoute::default()
        };
        let redirected = self.route(request, &mut context.route);
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

/// Replaces the fields of [`APPLICATION_FIELDS`] that the application set.
fn copy_application_fields(from: &Headers, to: &mut Headers) {
    for name in APPLICATION_FIELDS
        .into_iter()
        .filter(|name| from.contains(name))
    {
        to.remove(name);
    }
    to.append_from(from, |name, _| is_one_of(&APPLICATION_FIELDS, name));
}

/// A copy of a request without its body and the fields that describe it.
fn copy(request: &Request) -> Request {
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
    Some(request)
}

fn is_one_of(names: &[&str], name: &[u8]) -> bool {
    names.iter().any(|other| other.as_bytes() == name)
}
