//! The `return` handler: a status, a redirect or a text.

use std::fmt;

use apus_http::{HeaderValue, Response, StatusCode, header};

use super::rewrite::redirect;
use super::template::{Form, InvalidTemplate, Scope, Template};

/// A handler that always returns the same: a status, a redirect or a text.
#[derive(Clone, Debug)]
pub struct Return {
    status: StatusCode,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    None,
    Location(Template),
    Text {
        content_type: HeaderValue,
        text: Template,
    },
}

impl Return {
    /// A status alone; errors get their error page.
    pub fn status(status: StatusCode) -> Self {
        Self {
            status,
            content: Content::None,
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
            content: Content::Location(Template::parse(location).map_err(InvalidReturn::Template)?),
        })
    }

    /// A text, which may hold variables.
    ///
    /// # Errors
    /// A response with this status has no content, or there is no such variable.
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
            content: Content::Text {
                content_type,
                text: Template::parse(text).map_err(InvalidReturn::Template)?,
            },
        })
    }

    pub(super) fn has_captures(&self) -> bool {
        match &self.content {
            Content::None => false,
            Content::Location(template) | Content::Text { text: template, .. } => {
                template.has_captures()
            }
        }
    }

    pub(super) fn respond(&self, scope: &Scope<'_>) -> Response {
        match &self.content {
            Content::None => Response::new(self.status),
            Content::Location(location) => redirect(self.status, &location.expand_uri(scope)),
            Content::Text { content_type, text } => Response::new(self.status)
                .with_header(&header::CONTENT_TYPE, content_type)
                .with_body(text.expand(scope, Form::Plain)),
        }
    }
}

impl fmt::Display for Return {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "return {}", self.status.as_u16())
    }
}

/// Why a `return` was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidReturn {
    /// The status does not go with what is returned.
    Status,
    /// There is no such variable.
    Template(InvalidTemplate),
}

impl fmt::Display for InvalidReturn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status => f.write_str(
                "a redirect has the status 301, 302, 303, 307 or 308; a text any that has content",
            ),
            Self::Template(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidReturn {}
