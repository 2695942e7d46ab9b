//! `InvalidFields`: the response to a request with fields that do not keep their rules.

use std::collections::BTreeMap;

use apus_handler::{Error, ErrorFormat, IntoResponse, Redirect, Rejection};
use apus_http::{Response, StatusCode};
use garde::Validate;
use serde_json::Value;

use super::FormState;
use super::field_names::sent_path;
use super::form_state::{FieldErrors, FieldTexts, path_of};
use super::messages::MessagesOfRequest;
use crate::session::Session;

/// The messages about the fields of a request, by the paths of the fields: a response with status 422, whose problem
/// details have them as `errors`.
///
/// A handler makes one for a rule that only it can check:
///
/// ```
/// use apus::testing::TestClient;
/// use apus::validate::InvalidFields;
/// use apus::{App, Result};
///
/// async fn register() -> Result<()> {
///     Err(InvalidFields::new("name", "is taken").into())
/// }
///
/// let client = TestClient::new(App::new().post("/users", register));
/// client.post("/users").send().assert_status(422).assert_text("name: is taken\n");
/// let problem: serde_json::Value =
///     client.post("/users").header("accept", "application/json").send().json();
/// assert_eq!(problem["errors"]["name"][0], "is taken");
/// ```
#[derive(Clone, Debug, Default)]
pub struct InvalidFields {
    errors: FieldErrors,
    /// What the client sent, if it was a form or a query.
    sent: FieldTexts,
    /// The reason if there are no fields, as for a body of another media type.
    rejection: Option<Box<Rejection>>,
    is_of_json: bool,
    /// The name of the form, if the page has several.
    form: String,
}

impl InvalidFields {
    /// A message about one field. Inside of [`ValidationMessages`](super::ValidationMessages), a message that is a key of the
    /// texts in the language of the request becomes that text, as the message of a rule does: `not-a-slug` becomes
    /// `validation-not-a-slug`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::default().and(path, message)
    }

    /// These, and a message about a field.
    #[must_use]
    pub fn and(mut self, path: impl Into<String>, message: impl Into<String>) -> Self {
        let message = message.into();
        let translated = MessagesOfRequest::current_rule(&message);
        self.push(path.into(), translated.unwrap_or(message));
        self
    }

    /// Names the form, for a page that has several: [`FormState::named`].
    #[must_use]
    pub fn of_form(mut self, name: impl Into<String>) -> Self {
        self.form = name.into();
        self
    }

    /// Adds a message as it is.
    pub(super) fn push(&mut self, path: String, message: String) {
        self.errors.entry(path).or_default().push(message);
    }

    /// The messages by the paths of their fields. There are none if the body could not be read.
    pub fn errors(&self) -> &BTreeMap<String, Vec<String>> {
        &self.errors
    }

    /// The form with the values that the client sent, and the messages.
    ///
    /// # Errors
    /// The body could not be read: it was too long, for example.
    pub fn into_form(self) -> Result<FormState, Error> {
        match self.rejection {
            Some(rejection) => Err(Error::from(*rejection)),
            None => Ok(FormState::new(self.sent, self.errors).with_name(self.form)),
        }
    }

    /// Checks the rules of a value.
    pub(super) fn check<T>(value: &T, messages: &MessagesOfRequest) -> Result<(), Self>
    where
        T: Validate<Context: Default>,
    {
        messages.validate(value).map_err(|report| {
            let errors = report.iter();
            errors.fold(Self::default(), |mut invalid, (path, error)| {
                let message = messages.rule(error.message()).into_owned();
                invalid.push(path.to_string(), message);
                invalid
            })
        })
    }

    /// A value that serde could not read.
    pub(super) fn unreadable(rejection: Rejection, messages: &MessagesOfRequest) -> Self {
        match rejection.field().filter(|field| !field.path().is_empty()) {
            Some(field) => {
                let mut invalid = Self::default();
                let message = messages.unreadable(field).into_owned();
                invalid.push(field.path().to_owned(), message);
                invalid
            }
            None => Self::from(rejection),
        }
    }

    /// These, and what the client sent.
    pub(super) fn with_sent(mut self, sent: FieldTexts) -> Self {
        self.sent = sent;
        self
    }

    /// These with the names that clients send in place of those in Rust.
    pub(super) fn with_names(mut self, fields: &[&str], sent: &Value) -> Self {
        let errors = std::mem::take(&mut self.errors).into_iter();
        let renamed = errors.map(|(path, messages)| (sent_path(&path, fields, sent), messages));
        self.errors = renamed.collect();
        self
    }

    /// The client sent JSON, and so reads it.
    pub(super) fn of_json(mut self) -> Self {
        self.is_of_json = true;
        self
    }
}

impl FormState {
    /// Stores the form in the session for the page at this location, and redirects to it.
    ///
    /// # Errors
    /// The body could not be read.
    pub fn redirect(
        invalid: InvalidFields,
        session: &Session,
        location: impl Into<String>,
    ) -> Result<Redirect, Error> {
        let location = location.into();
        invalid.into_form()?.store(session, path_of(&location))?;
        Ok(Redirect::to(location))
    }
}

/// A request that could not be read.
impl From<Rejection> for InvalidFields {
    fn from(rejection: Rejection) -> Self {
        Self {
            rejection: Some(Box::new(rejection)),
            ..Self::default()
        }
    }
}

impl From<InvalidFields> for Error {
    fn from(invalid: InvalidFields) -> Self {
        if let Some(rejection) = invalid.rejection {
            return Self::from(*rejection);
        }
        let lines = invalid.errors.iter().flat_map(|(path, messages)| {
            messages.iter().map(move |message| match &**path {
                "" => message.clone(),
                path => format!("{path}: {message}"),
            })
        });
        let detail = lines.collect::<Vec<_>>().join("; ");
        let error = Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail);
        let error = error.with("errors", invalid.errors);
        if invalid.is_of_json {
            error.prefer(ErrorFormat::Json)
        } else {
            error
        }
    }
}

impl IntoResponse for InvalidFields {
    fn into_response(self) -> Response {
        Error::from(self).into_response()
    }
}
