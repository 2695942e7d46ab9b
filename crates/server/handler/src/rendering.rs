//! `Rendering`: the one place where the responses to errors get their form.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error_page::{DEFAULT_FORMAT, ErrorDetails, lacks_body};
use apus_http::fields::PageLanguage;
use apus_http::{Request, Response};

use crate::error::{Error, ErrorFormat, ErrorTemplate};

/// A function that makes the response to an error, or leaves it to the default.
pub type OnError = dyn Fn(&Error, ErrorFormat) -> Option<Response> + Send + Sync;

/// The settings of an application or a group for responses to errors.
#[derive(Clone, Default)]
pub struct ErrorRules {
    /// The function of the application.
    pub on_error: Option<Arc<OnError>>,
    /// The format for all clients.
    pub format: Option<ErrorFormat>,
    /// Whether the service around the layers makes the responses to errors: they keep their [`Error`] until
    /// [`Rendering::apply`] of that service makes the body.
    pub is_deferred: bool,
}

impl ErrorRules {
    /// These settings; settings that are not set are taken from the outer group.
    pub fn or(&self, outer: Option<&Self>) -> Self {
        Self {
            on_error: (self.on_error.clone()).or_else(|| outer?.on_error.clone()),
            format: self.format.or_else(|| outer?.format),
            is_deferred: self.is_deferred,
        }
    }

    /// Whether nothing is set.
    pub fn is_default(&self) -> bool {
        self.on_error.is_none() && self.format.is_none() && !self.is_deferred
    }
}

impl fmt::Debug for ErrorRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrorRules")
            .field("format", &self.format)
            .finish_non_exhaustive()
    }
}

/// The form of the responses to errors of a request.
#[derive(Clone)]
pub struct Rendering {
    /// The format that the application chose.
    chosen: Option<ErrorFormat>,
    /// The format that the client prefers, where the application chose none.
    preferred: Option<ErrorFormat>,
    /// The language of the default page, for a client that prefers HTML.
    language: Option<PageLanguage>,
    is_deferred: bool,
    on_error: Option<Arc<OnError>>,
}

/// Attached to a response without a body that a function of the application has seen, so that no outer layer
/// calls the function again.
struct HandledError;

impl Rendering {
    /// For the errors of this request.
    pub fn of(request: &Request, rules: &ErrorRules) -> Self {
        Self {
            chosen: rules.format,
            preferred: match rules.format {
                Some(_) => None,
                None => request.error_format(),
            },
            language: request.error_page_language(),
            is_deferred: rules.is_deferred,
            on_error: rules.on_error.clone(),
        }
    }

    /// For a client that prefers this format.
    pub fn for_client(preferred: Option<ErrorFormat>) -> Self {
        Self {
            chosen: None,
            preferred,
            language: None,
            is_deferred: false,
            on_error: None,
        }
    }

    /// These, for a request that belongs to a group with other rules.
    #[must_use]
    pub fn with_rules(mut self, rules: &ErrorRules) -> Self {
        self.chosen = rules.format;
        self.on_error.clone_from(&rules.on_error);
        self
    }

    /// Whether [`Self::apply`] may make another response of this one.
    pub fn changes(response: &Response) -> bool {
        response.attached().is_some() || lacks_body(response)
    }

    /// The response to an error.
    pub fn respond(&self, error: Error) -> Response {
        self.apply(crate::IntoResponse::into_response(error))
    }

    /// The response to an error of which there are many. Nothing is logged for each of them.
    pub fn respond_with(&self, template: &ErrorTemplate) -> Response {
        if self.is_deferred || self.on_error.is_some() {
            return self.respond(template.error());
        }
        template.response(self.chosen.or(self.preferred))
    }

    /// The response, or the response to the error in its extensions, or to its error status if it has no
    /// body. The response to an error keeps the header fields that are set already.
    pub fn apply(&self, mut response: Response) -> Response {
        if self.is_deferred || !Self::changes(&response) {
            return response;
        }
        let error = match response
            .take_attached()
            .map(<Box<dyn Any>>::downcast::<Error>)
        {
            Some(Ok(error)) => {
                let error = error.status(response.status());
                error.log();
                error
            }
            Some(Err(other)) => {
                response.attach(other);
                return response;
            }
            None if self.on_error.is_none() && self.chosen.is_none() => return response,
            None => Error::of(response.status()),
        };
        self.form(error, response)
    }

    /// As [`Self::apply`], and an error without a body gets the default one.
    pub fn complete(&self, response: Response) -> Response {
        let mut response = self.apply(response);
        if lacks_body(&response) {
            let format = self.format_or(DEFAULT_FORMAT);
            let details = ErrorDetails::in_language(self.language);
            crate::error_page::write_body(&mut response, format, details);
        }
        response
    }

    fn format_or(&self, default: ErrorFormat) -> ErrorFormat {
        self.chosen.or(self.preferred).unwrap_or(default)
    }

    /// Makes the response to an error of one that has its status and header fields.
    fn form(&self, mut error: Error, mut response: Response) -> Response {
        let format = self.format_or(error.preferred());
        let hook = self.on_error.as_ref();
        let made = hook.and_then(|hook| hook(&error, format));
        for (name, _) in error.fields() {
            response.headers_mut().remove(name);
        }
        // Of one name there may be several, such as the challenges of a 401.
        for (name, value) in error.fields() {
            response.headers_mut().append(name, value);
        }
        match made {
            Some(mut made) => {
                let own = made.headers().clone();
                let is_missing = |name: &[u8], _: &[u8]| match name {
                    b"content-length" | b"content-type" | b"content-encoding" => false,
                    b"set-cookie" => true,
                    name => !own.names().any(|other| other == name),
                };
                made.headers_mut()
                    .append_from(response.headers(), is_missing);
                if response.is_of_panic() {
                    made.set_of_panic();
                }
                if let Some(origin) = response.origin() {
                    made.set_origin(origin.clone());
                }
                made.add_observers(response.take_observers());
                response = made;
            }
            None => error.write_body(&mut response, format, self.chosen.is_some()),
        }
        if hook.is_some() && lacks_body(&response) {
            response.attach(Box::new(HandledError));
        }
        response
    }
}

impl fmt::Debug for Rendering {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rendering")
            .field("chosen", &self.chosen)
            .finish_non_exhaustive()
    }
}
