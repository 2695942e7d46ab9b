//! The way out of a site: error pages, changes of fields, compression, the observer.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use apus_http::{
    Answer, Body, FileRange, HeaderName, Headers, Request, Response, StatusCode, header,
};

use super::accel;
use super::{Exchange, Inner};
use crate::settings::ErrorPage;
use apus_error_page::{self, Details, ErrorFormat};
use apus_http::trace::{Step, StepKind};
use apus_media_type as media_type;

impl Inner {
    /// From the answer of the handler to the response that leaves.
    pub(super) fn complete(
        self: &Rc<Self>,
        mut exchange: Exchange,
        mut response: Response,
    ) -> Answer {
        if let Some(path) = self.accelerated(&exchange, &response) {
            return self.answer_in_place(exchange, response, &path);
        }
        if self.is_intercepted(&exchange, &response) {
            drop_content(&mut response);
        }
        if !apus_error_page::lacks_content(&response) {
            return self.seal(exchange, response).into();
        }
        let page = self.place(&exchange).error_pages.get(&response.status());
        if let (Some(trace), Some(page)) = (&exchange.trace, page) {
            let why = format!("the status is {}", response.status());
            trace.push(Step::new(
                StepKind::Content,
                format!("the error page {page}"),
                why,
            ));
        }
        match page {
            None => {
                if let Some(trace) = &exchange.trace {
                    trace.push(Step::new(
                        StepKind::Content,
                        "the default error page",
                        format!("the status is {}", response.status()),
                    ));
                }
                apus_error_page::fill(&mut response, exchange.format, Details::default());
                self.seal(exchange, response).into()
            }
            Some(ErrorPage::Content {
                content_type,
                content,
            }) => {
                response
                    .headers_mut()
                    .insert(&header::CONTENT_TYPE, content_type);
                set_content(&mut response, content.clone().into());
                self.seal(exchange, response).into()
            }
            Some(ErrorPage::File(file)) => {
                let (site, file) = (self.clone(), file.clone());
                Answer::later(async move {
                    match open(file.clone()).await {
                        Ok(content) => {
                            let extension = media_type::extension(file.as_os_str().as_bytes());
                            let mut media = media_type::of_extension(&extension).to_owned();
                            if media_type::has_charset(&media) {
                                media += "; charset=utf-8";
                            }
                            // No type holds what a field value must not.
                            let _ = response.headers_mut().try_insert("content-type", media);
                            set_content(&mut response, content);
                        }
                        Err(error) => {
                            tracing::error!(file = %file.display(), %error, "cannot read an error page");
                            apus_error_page::fill(
                                &mut response,
                                exchange.format,
                                Details::default(),
                            );
                        }
                    }
                    site.seal(exchange, response)
                })
            }
            Some(ErrorPage::Path(page)) => {
                let (site, page) = (self.clone(), page.clone());
                Answer::later(async move {
                    let request = exchange
                        .again
                        .take()
                        .and_then(|request| accel::page(request, &page));
                    let found = match request {
                        Some(request) => {
                            let status = response.status();
                            site.error_page(request, status, exchange.format).await
                        }
                        None => None,
                    };
                    match found {
                        Some(page) => take_content(&mut response, page),
                        None => apus_error_page::fill(
                            &mut response,
                            exchange.format,
                            Details::default(),
                        ),
                    }
                    site.seal(exchange, response)
                })
            }
        }
    }

    /// Whether an error response is to have a page of the site in place of its own content.
    fn is_intercepted(&self, exchange: &Exchange, response: &Response) -> bool {
        let place = self.place(exchange);
        place.intercepts_errors && place.error_pages.contains_key(&response.status())
    }

    /// What the site answers to a request for the page of an error, if it is a success, or the same error
    /// in words of its own, as programs say it.
    async fn error_page(
        &self,
        request: Request,
        status: StatusCode,
        format: ErrorFormat,
    ) -> Option<Response> {
        let page = request.target().as_str().to_owned();
        let mut exchange = Exchange {
            location: None,
            is_internal: true,
            format,
            is_secure: request.is_secure(),
            changes: None,
            compression: None,
            observer: None,
            again: None,
            trace: None,
        };
        let response = self.route(request, &mut exchange).wait().await;
        let says_so = response.status() == status && !apus_error_page::lacks_content(&response);
        if response.status() == StatusCode::OK || says_so {
            return Some(response);
        }
        tracing::error!(
            site = &*self.name,
            page,
            status = response.status().as_u16(),
            "an error page is an error itself"
        );
        None
    }

    /// The last changes before the response leaves.
    fn seal(&self, exchange: Exchange, mut response: Response) -> Response {
        let place = self.place(&exchange);
        remove_internal(&mut response);
        let changes = exchange.changes.as_ref().unwrap_or(&place.response_fields);
        for change in changes {
            if !change.is_made(response.headers()) {
                change.apply(response.headers_mut());
            }
        }
        if exchange.is_secure
            && let Some(hsts) = &self.hsts
            && response.headers().get(header::STRICT_TRANSPORT_SECURITY) != Some(hsts.as_bytes())
        {
            response
                .headers_mut()
                .insert(&header::STRICT_TRANSPORT_SECURITY, hsts);
        }
        if let Some(negotiation) = exchange.compression {
            negotiation.apply(&mut response);
        }
        if let Some(trace) = exchange.trace
            && let Some(coding) = response.headers().get_str("content-encoding")
        {
            trace.push(Step::new(
                StepKind::Content,
                coding,
                "the client accepts it",
            ));
        }
        if let Some(observer) = exchange.observer {
            observer.hand_over(&mut response);
        }
        response
    }
}

/// Takes out what applications tell servers and no client: where files are, and how to send them.
fn remove_internal(response: &mut Response) {
    let is_internal = |name: &str| name.starts_with("x-accel-") || name == "x-sendfile";
    let headers = response.headers();
    if headers.iter().any(|(name, _)| is_internal(name)) {
        let mut others = Headers::with_capacity(headers.wire().len());
        others.append_from(headers, |name, _| !is_internal(name));
        *response.headers_mut() = others;
    }
}

/// Gives an error response the content of another response.
fn take_content(response: &mut Response, mut page: Response) {
    const DESCRIPTION: [HeaderName; 4] = [
        header::CONTENT_TYPE,
        header::CONTENT_ENCODING,
        header::CONTENT_LANGUAGE,
        header::VARY,
    ];
    for name in &DESCRIPTION {
        if let Some(value) = page.headers().get(name) {
            // What was a field value stays one.
            let _ = response.headers_mut().try_insert(name, value);
        }
    }
    set_content(response, page.take_body());
}

/// Leaves nothing of the content, nor of what describes it.
fn drop_content(response: &mut Response) {
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

fn set_content(response: &mut Response, content: Body) {
    response.headers_mut().remove("content-length");
    *response.body_mut() = content;
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
