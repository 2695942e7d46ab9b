//! The `return` handler: responds with a status, a redirect or a text.

use std::fmt;

use apus_http::{HeaderValue, Response, StatusCode, header};

use super::rewrite::redirect;
use super::template::{InvalidTemplate, Template, ValueEncoding, VariableScope};

/// The `return` handler: responds with a status, a redirect or a text.
#[derive(Clone, Debug)]
pub struct ReturnHandler {
    status: StatusCode,
    body: ReturnBody,
}

#[derive(Clone, Debug)]
enum ReturnBody {
    None,
    Location(Template),
    Text {
        content_type: HeaderValue,
        text: Template,
    },
}

impl ReturnHandler {
    /// A status alone; errors get their error page.
    pub fn status(status: StatusCode) -> Self {
        Self {
            status,
            body: ReturnBody::None,
        }
    }

    /// A redirect to a URI, which may hold variables.
    ///
    /// # Errors
    /// The status is none of 301, 302, 303, 307 and 308, or there is no such variable.
    pub fn redirect(status: StatusCode, location: &str) -> Result<Self, InvalidReturn> {
        if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
            return Err(InvalidReturn::Status);
        }
        Ok(Self {
            status,
            body: ReturnBody::Location(Template::parse(location).map_err(InvalidReturn::Template)?),
        })
    }

    /// A text, which may hold variables.
    ///
    /// # Errors
    /// A response with this status has no body, or there is no such variable.
    pub fn text(
        status: StatusCode,
        content_type: HeaderValue,
        text: &str,
    ) -> Result<Self, InvalidReturn> {
        if status.is_informational() || matches!(status.as_u16(), 204 | 205 | 304) {
            return Err(InvalidReturn::Status);
        }
        Ok(Self {
            status,
            body: ReturnBody::Text {
                content_type,
                text: Template::parse(text).map_err(InvalidReturn::Template)?,
            },
        })
    }

    pub(super) fn has_captures(&self) -> bool {
        match &self.body {
            ReturnBody::None => false,
            ReturnBody::Location(template) | ReturnBody::Text { text: template, .. } => {
                template.has_captures()
            }
        }
    }

    pub(super) fn respond(&self, scope: &VariableScope<'_>) -> Response {
        match &self.body {
            ReturnBody::None => Response::new(self.status),
            ReturnBody::Location(location) => redirect(self.status, &location.expand_uri(scope)),
            ReturnBody::Text { content_type, text } => Response::new(self.status)
                .with_header(&header::CONTENT_TYPE, content_type)
                .with_body(text.expand(scope, ValueEncoding::Plain)),
        }
    }
}

impl fmt::Display for ReturnHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "return {}", self.status.as_u16())
    }
}

/// A `return` is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidReturn {
    /// The status does not allow this body.
    Status,
    /// There is no such variable.
    Template(InvalidTemplate),
}

impl fmt::Display for InvalidReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str(
                "a redirect has the status 301, 302, 303, 307 or 308; a text any that allows a body",
            ),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidReturn {}
