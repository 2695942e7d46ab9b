//! `Error`: errors of handlers and layers, and their format as a page, text or problem details (RFC 9457).

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use apus_http::{HeaderValue, Response, StatusCode, header};

pub use crate::error_page::ErrorFormat;
use crate::error_page::{self, ErrorDetails, RenderedBody};

/// An error that a handler or a layer returns.
///
/// `?` converts any [`std::error::Error`] to a 500: the error is logged, and the client does not see it. An
/// error for the client has a status and a detail:
///
/// ```
/// # use apus_handler::{Error, Json, OrNotFound, Path, Result};
/// # use apus_http::StatusCode;
/// async fn user(Path(id): Path<usize>) -> Result<Json<&'static str>> {
///     if id == 0 {
///         return Err(Error::bad_request("users are counted from 1"));
///     }
///     if id > 1000 {
///         return Err(Error::new(StatusCode::URI_TOO_LONG, "there are fewer users"));
///     }
///     let name = ["Ada", "Grace"].get(id - 1).or_not_found(format!("there is no user {id}"))?;
///     Ok(Json(name))
/// }
/// ```
///
/// An application with its own error type sets the status by [`HttpError`](crate::HttpError), which `?` keeps.
pub struct Error(Box<ErrorParts>);

struct ErrorParts {
    status: StatusCode,
    description: Description,
    headers: Vec<(header::HeaderName, HeaderValue)>,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
    /// The format for a client that states no preference.
    preferred: ErrorFormat,
}

/// What the body of the response says, of this error alone or of many.
#[derive(Default)]
struct Description {
    own: ErrorDescription,
    /// In place of `own`.
    shared: Option<Arc<SharedDescription>>,
}

#[derive(Clone, Default)]
struct ErrorDescription {
    kind: Option<Cow<'static, str>>,
    title: Option<Cow<'static, str>>,
    detail: Option<String>,
    members: serde_json::Map<String, serde_json::Value>,
}

/// A description whose bodies are made once.
struct SharedDescription {
    status: StatusCode,
    description: ErrorDescription,
    html: OnceLock<RenderedBody>,
    json: OnceLock<RenderedBody>,
    text: OnceLock<RenderedBody>,
}

/// An error that is the response to many requests, such as the refusal of a limit: its bodies are made once, so that a flood of
/// such requests costs little.
#[derive(Clone)]
pub struct ErrorTemplate {
    shared: Arc<SharedDescription>,
    preferred: ErrorFormat,
}

impl ErrorTemplate {
    /// Of an error, without its fields and its cause.
    pub fn new(error: Error) -> Self {
        let mut parts = *error.0;
        Self {
            shared: Arc::new(SharedDescription {
                status: parts.status,
                description: std::mem::take(parts.description.own_mut()),
                html: OnceLock::new(),
                json: OnceLock::new(),
                text: OnceLock::new(),
            }),
            preferred: parts.preferred,
        }
    }

    /// The error of one request.
    pub fn error(&self) -> Error {
        Error(Box::new(ErrorParts {
            status: self.shared.status,
            description: Description {
                own: ErrorDescription::default(),
                shared: Some(Arc::clone(&self.shared)),
            },
            headers: Vec::new(),
            source: None,
            preferred: self.preferred,
        }))
    }

    /// The status of the error.
    pub fn status(&self) -> StatusCode {
        self.shared.status
    }

    /// The response to the error, in this format or in the one of the error.
    pub(crate) fn response(&self, format: Option<ErrorFormat>) -> Response {
        let body = self.shared.body(format.unwrap_or(self.preferred));
        body.response(self.shared.status)
    }
}

impl fmt::Debug for ErrorTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = &self.shared.status;
        f.debug_tuple("ErrorTemplate").field(status).finish()
    }
}

impl SharedDescription {
    fn body(&self, format: ErrorFormat) -> &RenderedBody {
        let rendered = match format {
            ErrorFormat::Html => &self.html,
            ErrorFormat::Json => &self.json,
            ErrorFormat::Text => &self.text,
        };
        rendered.get_or_init(|| {
            let mut description = self.description.clone();
            RenderedBody::new(self.status, format, (&mut description).into())
        })
    }
}

impl Description {
    fn get(&self) -> &ErrorDescription {
        let shared = self.shared.as_ref();
        shared.map_or(&self.own, |shared| &shared.description)
    }

    /// The description, which is shared no longer.
    fn own_mut(&mut self) -> &mut ErrorDescription {
        if let Some(shared) = self.shared.take() {
            self.own = shared.description.clone();
        }
        &mut self.own
    }
}

impl ErrorDescription {
    fn is_empty(&self) -> bool {
        self.detail.is_none()
            && self.kind.is_none()
            && self.title.is_none()
            && self.members.is_empty()
    }
}

impl<'a> From<&'a mut ErrorDescription> for ErrorDetails<'a> {
    fn from(description: &'a mut ErrorDescription) -> Self {
        Self {
            kind: description.kind.as_deref(),
            title: description.title.as_deref(),
            detail: description.detail.as_deref(),
            members: std::mem::take(&mut description.members),
            // An error of an application has its own texts; the default page of others is made where the request is known.
            language: None,
        }
    }
}

macro_rules! by_name {
    ($($(#[$doc:meta])* $name:ident: $status:ident;)*) => {$(
        $(#[$doc])*
        pub fn $name(detail: impl fmt::Display) -> Self {
            Self::new(StatusCode::$status, detail)
        }
    )*};
}

impl Error {
    /// An error with a status, which the client gets with the detail.
    pub fn new(status: StatusCode, detail: impl fmt::Display) -> Self {
        let mut error = Self::of(status);
        error.description_mut().detail = Some(detail.to_string());
        error
    }

    by_name! {
        /// 400: the request is not valid. The text is for the client, also in the following functions.
        bad_request: BAD_REQUEST;
        /// 401: the client has to authenticate.
        unauthorized: UNAUTHORIZED;
        /// 403: the client is not allowed to do this.
        forbidden: FORBIDDEN;
        /// 404: the resource does not exist.
        not_found: NOT_FOUND;
        /// 409: the request conflicts with the state of the resource.
        conflict: CONFLICT;
        /// 410: the resource was removed for good.
        gone: GONE;
        /// 422: the body has valid syntax and invalid values.
        unprocessable: UNPROCESSABLE_ENTITY;
        /// 429: the client sent too many requests.
        too_many_requests: TOO_MANY_REQUESTS;
        /// 503: the server cannot respond now. [`Error::header`] adds a `Retry-After`.
        unavailable: SERVICE_UNAVAILABLE;
    }

    /// An error of which the client sees only the status.
    pub fn of(status: StatusCode) -> Self {
        Self(Box::new(ErrorParts {
            status,
            description: Description::default(),
            headers: Vec::new(),
            source: None,
            preferred: ErrorFormat::Text,
        }))
    }

    /// 500: a handler takes what the application does not provide, as a session without its layer. The client sees only
    /// the status; the log has the text, if the error becomes the response.
    pub fn not_provided(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(StatusCode::INTERNAL_SERVER_ERROR).caused_by(NotProvided(what.into()))
    }

    /// This error with another status.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        if status != self.0.status {
            // Shared bodies tell the status.
            self.description_mut();
            self.0.status = status;
        }
        self
    }

    fn description_mut(&mut self) -> &mut ErrorDescription {
        self.0.description.own_mut()
    }

    /// This error with a type of problems, as a URI reference (RFC 9457 section 3.1.1).
    #[must_use]
    pub fn kind(mut self, kind: impl Into<Cow<'static, str>>) -> Self {
        self.description_mut().kind = Some(kind.into());
        self
    }

    /// This error with a title in place of the status' (RFC 9457 section 3.1.3).
    #[must_use]
    pub fn title(mut self, title: impl Into<Cow<'static, str>>) -> Self {
        self.description_mut().title = Some(title.into());
        self
    }

    /// This error with a further member of its problem details (RFC 9457 section 3.2), for example a list of
    /// invalid fields. A value that cannot be serialized is left out, and logged.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl serde::Serialize) -> Self {
        match serde_json::to_value(value) {
            Ok(value) => {
                self.description_mut()
                    .members
                    .insert(name.to_owned(), value);
            }
            Err(error) => tracing::error!(%error, name, "a member of an error is left out"),
        }
        self
    }

    /// This error with a field of its response, as `Retry-After`. Further fields of the same name are further lines, as the
    /// challenges of a 401.
    #[must_use]
    pub fn header(mut self, name: header::HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// This error in another format than text for a client that states no preference by `Accept`.
    #[must_use]
    pub fn prefer(mut self, format: ErrorFormat) -> Self {
        self.0.preferred = format;
        self
    }

    /// The format for a client that states no preference.
    pub(crate) fn preferred(&self) -> ErrorFormat {
        self.0.preferred
    }

    /// A further member of its problem details, as [`Error::with`] sets it.
    pub fn member(&self, name: &str) -> Option<&serde_json::Value> {
        self.0.description.get().members.get(name)
    }

    /// The status that the client gets.
    pub fn status_code(&self) -> StatusCode {
        self.0.status
    }

    /// The detail for the client.
    pub fn detail(&self) -> Option<&str> {
        self.0.description.get().detail.as_deref()
    }

    /// The cause, which the client does not see.
    pub fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        let source = self.0.source.as_deref();
        source.map(|source| source as &(dyn std::error::Error + 'static))
    }

    /// This error with a cause, which the client does not see.
    pub fn caused_by(mut self, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        self.0.source = Some(Box::new(source));
        self
    }

    /// Logs it, unless it is an error of the client.
    pub(crate) fn log(&self) {
        // Errors of the client are not failures of the handler.
        if self.0.status.is_client_error() && self.detail().is_some() {
            return;
        }
        if let Some(source) = &self.0.source {
            let text = causes(source.as_ref()).join(": ");
            tracing::error!(error = %text, status = self.0.status.as_u16(), "a handler failed");
        } else if self.0.status.is_server_error() {
            let detail = self.detail().unwrap_or("");
            tracing::error!(detail, status = self.0.status.as_u16(), "a handler failed");
        }
    }

    /// Writes the body in a format. There always is one if the application chose the format.
    pub(crate) fn write_body(
        &mut self,
        response: &mut Response,
        format: ErrorFormat,
        is_chosen: bool,
    ) {
        // A response without a detail gets the error page of the site.
        if self.0.description.get().is_empty() && !is_chosen {
            return;
        }
        let Description { own, shared } = &mut self.0.description;
        match shared {
            None => error_page::write_body(response, format, own.into()),
            Some(shared) => shared.body(format).write(response),
        }
    }

    /// The fields of its response.
    pub fn fields(&self) -> &[(header::HeaderName, HeaderValue)] {
        &self.0.headers
    }
}

/// A mistake of the program.
#[derive(Debug)]
struct NotProvided(Cow<'static, str>);

impl fmt::Display for NotProvided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotProvided {}

/// The messages of an error and its causes, each once: a cause that the message before it contains is left out.
pub fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut texts = vec![error.to_string()];
    let mut deeper = error.source();
    while let Some(error) = deeper {
        let text = error.to_string();
        if !texts.last().is_some_and(|known| known.contains(&*text)) {
            texts.push(text);
        }
        deeper = error.source();
    }
    texts
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Error");
        debug.field("status", &self.0.status);
        if let Some(detail) = self.detail() {
            debug.field("detail", &detail);
        }
        if let Some(source) = &self.0.source {
            debug.field("source", source);
        }
        debug.finish()
    }
}

/// Converts `None` to a 404.
pub trait OrNotFound<T> {
    /// The value, or an error with status 404.
    ///
    /// # Errors
    /// It is `None`.
    fn or_404(self) -> Result<T, Error>;

    /// The value, or an error with status 404 and this detail.
    ///
    /// # Errors
    /// It is `None`.
    fn or_not_found(self, detail: impl fmt::Display) -> Result<T, Error>;
}

impl<T> OrNotFound<T> for Option<T> {
    fn or_404(self) -> Result<T, Error> {
        self.ok_or_else(|| Error::of(StatusCode::NOT_FOUND))
    }

    fn or_not_found(self, detail: impl fmt::Display) -> Result<T, Error> {
        self.ok_or_else(|| Error::not_found(detail))
    }
}
