//! The last steps of a site's response: error pages, field changes, compression and the observer.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    Body, ErrorFormat, FileRange, HeaderName, Request, Response, ResponseFuture, StatusCode, header,
};

use super::accel::{self, AccelTarget};
use super::{RequestRoute, RequestState, SiteState};
use crate::settings::ErrorPage;
use apus_compress::media_type;
use apus_handler::error_page::{self, DEFAULT_FORMAT, ErrorDetails};
use apus_http::trace::{Step, StepKind};

impl SiteState {
    /// Completes the response of a handler.
    pub(super) fn complete(
        self: &Rc<Self>,
        mut context: RequestState,
        mut response: Response,
    ) -> ResponseFuture {
        context.route.enter_innermost();
        response = self.render_layer_error(&context, response);
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
        if self.is_intercepted(&context, &response) {
            clear_body(&mut response);
        }
        if !error_page::lacks_body(&response) {
            return self.finish(context, response).into();
        }
        let page = self.location(&context).error_pages.get(&response.status());
        if let (Some(trace), Some(page)) = (&context.trace, page) {
            let why = format!("the status is {}", response.status());
            trace.push(Step::new(
                StepKind::Content,
                format!("the error page {page}"),
                why,
            ));
        }
        match page {
            None => {
                if let Some(trace) = &context.trace {
                    trace.push(Step::new(
                        StepKind::Content,
                        "the default error page",
                        format!("the status is {}", response.status()),
                    ));
                }
                error_page::write_body(
                    &mut response,
                    context.error_format.unwrap_or(DEFAULT_FORMAT),
                    ErrorDetails::default(),
                );
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
                        Ok(body) => {
                            let extension = media_type::extension(file.as_os_str().as_bytes());
                            let mut media = media_type::of_extension(&extension).to_owned();
                            if media_type::has_charset(&media) {
                                media += "; charset=utf-8";
                            }
                            // Every media type is a valid field value.
                            let _ = response.headers_mut().try_insert("content-type", media);
                            set_body(&mut response, body);
                        }
                        Err(error) => {
                            tracing::error!(file = %file.display(), %error, "cannot read an error page");
                            error_page::write_body(
                                &mut response,
                                context.error_format.unwrap_or(DEFAULT_FORMAT),
                                ErrorDetails::default(),
                            );
                        }
                    }
                    site.finish(context, response)
                })
            }
            Some(ErrorPage::Path(page)) => {
                let (site, page) = (self.clone(), page.clone());
                ResponseFuture::later(async move {
                    let request = context
                        .route
                        .redirect_copy
                        .take()
                        .and_then(|request| accel::error_page_request(*request, &page));
                    let found = match request {
                        Some(request) => {
                            let status = response.status();
                            site.error_page(request, status, context.error_format).await
                        }
                        None => None,
                    };
                    match found {
                        Some(page) => copy_body(&mut response, page),
                        None => error_page::write_body(
                            &mut response,
                            context.error_format.unwrap_or(DEFAULT_FORMAT),
                            ErrorDetails::default(),
                        ),
                    }
                    site.finish(context, response)
                })
            }
        }
    }

    /// Whether an error page of the site replaces the body of an error response.
    fn is_intercepted(&self, context: &RequestState, response: &Response) -> bool {
        let location = self.location(context);
        location.intercepts_errors && location.error_pages.contains_key(&response.status())
    }

    /// The response of the site to a request for an error page. It is `None` unless the status is 200,
    /// or that of the error with a body, as applications send it.
    async fn error_page(
        self: &Rc<Self>,
        request: Request,
        status: StatusCode,
        error_format: Option<ErrorFormat>,
    ) -> Option<Response> {
        let page = request.target().as_str().to_owned();
        let mut context = RequestState {
            route: RequestRoute {
                is_internal: true,
                skips_layers: true,
                ..RequestRoute::default()
            },
            error_format,
            is_secure: request.is_secure(),
            observation: None,
            trace: None,
        };
        let response = self.route(request, &mut context.route).wait().await;
        let is_same_error = response.status() == status && !error_page::lacks_body(&response);
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
        let location = self.location(&context);
        response.remove_internal();
        let changes = context
            .route
            .changes
            .as_ref()
            .unwrap_or(&location.response_fields);
        for change in changes {
            if !change.is_made(response.headers()) {
                change.apply(response.headers_mut());
            }
        }
        if context.is_secure
            && let Some(hsts) = &self.hsts
            && response.headers().get(header::STRICT_TRANSPORT_SECURITY) != Some(hsts.as_bytes())
        {
            response
                .headers_mut()
                .insert(&header::STRICT_TRANSPORT_SECURITY, hsts);
        }
        if let Some(negotiation) = context.route.compression {
            negotiation.apply(&mut response);
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
        if let Some(observation) = context.observation {
            observation.attach(&mut response);
        }
        response
    }
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
