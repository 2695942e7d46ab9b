//! The last steps of a site's response: error pages, field changes, compression and the observer.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_http::{
    Body, FileRange, Glitch, HeaderName, Response, ResponseFuture, StatusCode, header,
};

use super::accel::{self, AccelTarget};
use super::route::RequestRoute;
use super::{RequestState, SiteState};
use crate::rules::Hold;
use crate::settings::ErrorPage;
use apus_compress::media_type;
use apus_handler::error_page::{self, DEFAULT_FORMAT, ErrorDetails};
use apus_http::trace::{Step, StepKind};

impl SiteState {
    /// Completes the response to a request, whether a handler, a layer or the site made it.
    pub(super) fn complete(
        self: &Rc<Self>,
        mut context: RequestState,
        mut response: Response,
    ) -> ResponseFuture {
        if context.route.has_gates() {
            Self::leave_gates(&context.route, &mut response);
        }
        if response.is_unsent() {
            return self.finish(context, response).into();
        }
        let mut response = self.render_layer_error(&context, response);
        match self.accel_target(&context, &response) {
            None => {}
            Some(AccelTarget::Path(path)) => {
                return self.redirect_internally(context, response, &path);
            }
            Some(AccelTarget::NoFolder) => {
                let why = "an application sends a file that no folder of `accel.files` holds";
                self.log_refused_redirect(&response, why);
                response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
            }
            Some(AccelTarget::NotAllowed) => {
                let why = "an application redirects internally, and `accel` does not allow it";
                self.log_refused_redirect(&response, why);
                if accel::is_empty(&mut response) {
                    response = Response::new(StatusCode::INTERNAL_SERVER_ERROR);
                }
            }
        }
        if context.rules_since.is_some() {
            response = self.apply_response_rules(&mut context, response);
            let delay = context.route.take_delay();
            if !delay.is_zero() {
                return self.complete_after(context, response, delay);
            }
        }
        self.complete_behind_rules(context, response)
    }

    /// Holds a response as rules say.
    #[cold]
    fn complete_after(
        self: &Rc<Self>,
        context: RequestState,
        response: Response,
        delay: Duration,
    ) -> ResponseFuture {
        let site = Rc::clone(self);
        let rules = context.route.rules.take();
        let request = rules.as_ref().and_then(|rules| rules.request.as_ref());
        let hold = request.map(Hold::begin);
        context.route.rules.replace(rules);
        ResponseFuture::later(async move {
            let response = match hold {
                Some(Ok(hold)) => {
                    hold.wait(delay).await;
                    response
                }
                Some(Err(refusal)) => *refusal,
                None => response,
            };
            site.complete_behind_rules(context, response).wait().await
        })
    }

    fn complete_behind_rules(
        self: &Rc<Self>,
        context: RequestState,
        mut response: Response,
    ) -> ResponseFuture {
        if response.is_unsent() {
            return self.finish(context, response).into();
        }
        let status = response.status();
        if !status.is_client_error() && !status.is_server_error() {
            return self.finish(context, response).into();
        }
        if status.is_client_error() {
            self.note_error(&context);
        }
        if self.is_intercepted(&context, &response) {
            clear_body(&mut response);
        }
        if error_page::lacks_body(&response) {
            self.add_error_page(context, response)
        } else {
            self.finish(context, response).into()
        }
    }

    /// Counts an error response. An explanation is no request of the client.
    #[cold]
    fn note_error(&self, context: &RequestState) {
        if let (Some(glitches), Some(client), None) =
            (&self.glitches, context.client, &context.trace)
        {
            glitches.note(client, Glitch::ErrorResponse);
        }
    }

    /// Gives an error its page, and finishes the response.
    fn add_error_page(
        self: &Rc<Self>,
        context: RequestState,
        mut response: Response,
    ) -> ResponseFuture {
        let pages = &self.location(&context.route).error_pages;
        let page = match &self.maintenance_page {
            Some(page) if context.route.is_in_maintenance => Some(page),
            _ => pages.get(&response.status()),
        };
        if let Some(trace) = &context.trace {
            let page = match page {
                Some(page) => format!("the error page {page}"),
                None => "the default error page".to_owned(),
            };
            let why = format!("the status is {}", response.status());
            trace.push(Step::new(StepKind::Content, page, why));
        }
        match page {
            None => {
                write_default_page(&mut response, &context);
                self.finish(context, response).into()
            }
            Some(ErrorPage::Body { content_type, body }) => {
                response
                    .headers_mut()
                    .insert(&header::CONTENT_TYPE, content_type);
                set_body(&mut response, body.clone().into());
                self.finish(context, response).into()
            }
            Some(ErrorPage::File(file)) => {
                let (site, file) = (self.clone(), file.clone());
                ResponseFuture::later(async move {
                    match open(file.clone()).await {
                        Ok(body) => set_file(&mut response, &file, body),
                        Err(error) => {
                            tracing::error!(file = %file.display(), %error, "cannot read an error page");
                            write_default_page(&mut response, &context);
                        }
                    }
                    site.finish(context, response)
                })
            }
            Some(ErrorPage::Path(page)) => {
                let (site, page) = (self.clone(), page.clone());
                ResponseFuture::later(async move {
                    match site.request_error_page(&context, &page, &response).await {
                        Some(page) => copy_body(&mut response, page),
                        None => write_default_page(&mut response, &context),
                    }
                    site.finish(context, response)
                })
            }
        }
    }

    /// Whether an error page of the site replaces the body of an error response.
    fn is_intercepted(&self, context: &RequestState, response: &Response) -> bool {
        let location = self.location(&context.route);
        location.intercepts_errors
            && location.error_pages.contains_key(&response.status())
            && !context.route.is_challenged()
    }

    /// The response of the site to a request for an error page. It is `None` unless the status is 200,
    /// or equals the status of the error and comes with a body, as applications send it.
    async fn request_error_page(
        self: &Rc<Self>,
        context: &RequestState,
        page: &str,
        error: &Response,
    ) -> Option<Response> {
        let copy = context.route.redirect_copy.take()?;
        let request = accel::error_page_request(*copy, page)?;
        let page = request.target().as_str().to_owned();
        let route = self.spare_routes.begin(|route| {
            route.is_internal.set(true);
            route.skips_layers = true;
        });
        let response = self.respond(request, &route).wait().await;
        self.spare_routes.put_back(route);
        let is_same_error =
            response.status() == error.status() && !error_page::lacks_body(&response);
        if response.status() == StatusCode::OK || is_same_error {
            return Some(response);
        }
        tracing::error!(
            site = &*self.name,
            page,
            status = response.status().as_u16(),
            "the request for an error page failed"
        );
        None
    }

    /// Makes the changes that every response of the site gets.
    fn finish(&self, context: RequestState, mut response: Response) -> Response {
        response.remove_internal();
        self.change_fields(&context.route, &mut response);
        if context.is_secure
            && let Some(hsts) = &self.hsts
        {
            hsts.set(&mut response);
        }
        if let Some(negotiation) = context.route.compression.get() {
            if self.compress_when.is_some() {
                let route = &context.route;
                route.compress_by_rule(negotiation, &mut response);
            } else {
                negotiation.apply(&mut response);
            }
        }
        if let Some(trace) = context.trace
            && let Some(coding) = response.headers().get_str("content-encoding")
        {
            trace.push(Step::new(
                StepKind::Content,
                coding,
                "the client accepts it",
            ));
        }
        let rules = context.route.rules.take();
        if let Some(observation) = context.observation {
            match rules {
                Some(rules) if rules.changes.is_unlogged => observation.discard(&mut response),
                _ => observation.attach(&mut response),
            }
        }
        if let (Some(counter), Some(count)) = (&self.counter, context.count) {
            counter.attach(count, context.route.location.get(), &mut response);
        }
        self.spare_routes.put_back(context.route);
        response
    }

    /// Makes the changes of response fields, except for those that the response has already: shared lines are not copied
    /// for them.
    fn change_fields(&self, route: &RequestRoute, response: &mut Response) {
        let resolved = route.changes.borrow();
        let changes = resolved
            .as_ref()
            .unwrap_or(&self.location(route).response_fields);
        let rules = route.rules.borrow();
        if let Some(rules) = &*rules {
            // A page of the challenge needs its own policy of what it may run.
            if rules.changes.is_challenged {
                return;
            }
            for line in &rules.changes.set_cookies {
                // The lines are Base64.
                let _ = response.headers_mut().try_append("set-cookie", line);
            }
        }
        for change in changes {
            if !change.is_made(response.headers()) {
                change.apply(response.headers_mut());
            }
        }
        if let Some(rules) = &*rules {
            for change in &rules.changes.response_fields {
                change.apply(response.headers_mut());
            }
        }
    }
}

fn write_default_page(response: &mut Response, context: &RequestState) {
    let format = context.error_format.unwrap_or(DEFAULT_FORMAT);
    error_page::write_body(
        response,
        format,
        ErrorDetails::in_language(context.language),
    );
}

/// Gives an error response a file as its body.
fn set_file(response: &mut Response, file: &Path, body: Body) {
    let extension = media_type::extension(file.as_os_str().as_bytes());
    let mut media = media_type::of_extension(&extension).to_owned();
    if media_type::has_charset(&media) {
        media += "; charset=utf-8";
    }
    // Every media type is a valid field value.
    let _ = response.headers_mut().try_insert("content-type", media);
    set_body(response, body);
}

/// Gives an error response the body of another response.
fn copy_body(response: &mut Response, mut page: Response) {
    const DESCRIPTION: [HeaderName; 4] = [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::VARY,
    ];
    for name in &DESCRIPTION {
        if let Some(value) = page.headers().get(name) {
            // The value comes from another response, so it is valid.
            let _ = response.headers_mut().try_insert(name, value);
        }
    }
    set_body(response, page.take_body());
}

/// Removes the body and the fields that describe it.
pub(super) fn clear_body(response: &mut Response) {
    let headers = response.headers_mut();
    for name in [
        "content-length",
        "content-type",
        "content-encoding",
        "content-language",
        "content-range",
        "etag",
        "last-modified",
        "accept-ranges",
    ] {
        headers.remove(name);
    }
    response.take_body();
}

fn set_body(response: &mut Response, body: Body) {
    response.headers_mut().remove("content-length");
    *response.body_mut() = body;
    response.set_coding_chosen(false);
}

async fn open(path: PathBuf) -> std::io::Result<Body> {
    let opened = tokio::task::spawn_blocking(move || {
        let file = std::fs::File::open(path)?;
        let len = file.metadata()?.len();
        Ok(FileRange {
            file: Arc::new(file),
            offset: 0,
            len,
        })
    });
    opened.await.map_err(std::io::Error::other)?.map(Body::File)
}
