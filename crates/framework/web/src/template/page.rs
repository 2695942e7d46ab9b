//! `Page`: the response that a template renders.

use apus_http::{HeaderValue, Response, StatusCode, header};

use super::TemplateError;
use apus_handler::respond::IntoResponse;

/// The response of a template, or the error.
#[derive(Debug)]
#[must_use]
pub struct Page {
    made: Result<(String, String), TemplateError>,
    status: StatusCode,
    shows_errors: bool,
}

impl Page {
    pub(super) fn of(text: String, content_type: String) -> Self {
        Self {
            made: Ok((text, content_type)),
            status: StatusCode::OK,
            shows_errors: false,
        }
    }

    pub(super) fn failed(error: TemplateError, shows_errors: bool) -> Self {
        Self {
            made: Err(error),
            status: StatusCode::OK,
            shows_errors,
        }
    }

    /// The same page with another status; an error stays 500.
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// The rendered text.
    ///
    /// # Errors
    /// The template has an error.
    pub fn into_text(self) -> Result<String, TemplateError> {
        self.made.map(|(text, _)| text)
    }
}

impl IntoResponse for Page {
    fn into_response(self) -> Response {
        let (status, text, content_type) = match self.made {
            Ok((text, content_type)) => (self.status, text, content_type),
            Err(error) => {
                error.log();
                if !self.shows_errors {
                    return Response::new(StatusCode::INTERNAL_SERVER_ERROR);
                }
                let content_type = "text/html; charset=utf-8".to_owned();
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    error.html(),
                    content_type,
                )
            }
        };
        let response = Response::new(status).with_body(text);
        match HeaderValue::try_from(content_type) {
            Ok(content_type) => response.with_header(&header::CONTENT_TYPE, &content_type),
            Err(_) => response,
        }
    }
}
