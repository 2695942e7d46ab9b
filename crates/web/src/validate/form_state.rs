//! `FormState`: the values and messages that a page shows in a form.

use std::collections::BTreeMap;

use apus_handler::extract::AsyncExtractor;
use apus_handler::{Error, Redirect};
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::Value;

use super::InvalidFields;
use crate::session::{Session, SessionError};

/// The values of each field.
pub(super) type FieldTexts = BTreeMap<String, Vec<String>>;

/// The messages about each field.
pub(super) type FieldErrors = BTreeMap<String, Vec<String>>;

/// The name of the flash value.
const FLASH: &str = "form";

/// The values of a form and the messages about them, for a template; an extractor of what [`FormState::redirect`] stored.
/// A template reads `form.values.name`, a text that
/// is empty if there is none (a list if the field came more than once), and `form.errors.name`, a list of messages.
///
/// A form that is not valid is shown again, in response to the POST (status 422) or after a redirect:
///
/// ```
/// use apus::session::{MemoryStore, Session, Sessions};
/// use apus::template::{Page, Renderer, Templates, context};
/// use apus::testing::TestClient;
/// use apus::validate::{FormState, InvalidFields};
/// use apus::{App, Form, Redirect, Result, Valid};
///
/// #[derive(serde::Deserialize, garde::Validate)]
/// struct SignUp {
///     #[garde(length(chars, min = 3))]
///     name: String,
/// }
///
/// async fn page(renderer: Renderer, form: FormState) -> Page {
///     renderer.page("sign-up.html", context! { form })
/// }
///
/// async fn sign_up(
///     session: Session,
///     form: Result<Valid<Form<SignUp>>, InvalidFields>,
/// ) -> Result<Redirect> {
///     match form {
///         Ok(Valid(Form(new))) => Ok(Redirect::to(format!("/users/{}", new.name))),
///         Err(invalid) => FormState::redirect(invalid, &session, "/sign-up"),
///     }
/// }
///
/// let templates = Templates::embedded([(
///     "sign-up.html",
///     "<input name=name value=\"{{ form.values.name }}\">\
///      {% for message in form.errors.name %}<p>{{ message }}</p>{% endfor %}",
/// )]);
/// let app = App::new()
///     .layer(Sessions::new(MemoryStore::new()))
///     .state(templates.load()?)
///     .get("/sign-up", page)
///     .post("/sign-up", sign_up);
/// let client = TestClient::new(app);
/// client.get("/sign-up").send().assert_text(r#"<input name=name value="">"#);
/// client.post("/sign-up").form([("name", "<A")]).send().assert_redirect("/sign-up");
/// let again = r#"<input name=name value="&lt;A"><p>length is lower than 3</p>"#;
/// client.get("/sign-up").send().assert_text(again);
/// client.post("/sign-up").form([("name", "Ada")]).send().assert_redirect("/users/Ada");
/// # Ok::<(), apus::template::TemplateError>(())
/// ```
///
/// Fields whose name contains `password`, `secret` or `token` have no value: they are not sent back to the browser,
/// and not stored in the session. [`FormState::without`] removes others.
#[derive(Clone, Debug, Default)]
pub struct FormState {
    values: FieldTexts,
    errors: FieldErrors,
}

impl FormState {
    pub(super) fn new(mut values: FieldTexts, errors: FieldErrors) -> Self {
        values.retain(|name, _| !is_secret(name));
        Self { values, errors }
    }

    /// The form of a value that exists, for a page that changes it: texts, numbers and lists of them by the names of
    /// the fields of a struct.
    pub fn of(value: &impl Serialize) -> Self {
        let Ok(Value::Object(fields)) = serde_json::to_value(value) else {
            return Self::default();
        };
        let fields = fields.into_iter();
        let values = fields.map(|(name, value)| match value {
            Value::Array(values) => (name, values.into_iter().filter_map(text).collect()),
            value => (name, text(value).into_iter().collect()),
        });
        Self::new(values.collect(), FieldErrors::new())
    }

    /// The first value of a field.
    pub fn value(&self, field: &str) -> Option<&str> {
        self.values.get(field)?.first().map(String::as_str)
    }

    /// The messages about a field.
    pub fn errors(&self, field: &str) -> &[String] {
        self.errors.get(field).map_or(&[], Vec::as_slice)
    }

    /// Whether there are no messages.
    pub fn is_valid(&self) -> bool {
        self.errors.is_empty()
    }

    /// This form without the value of a field.
    #[must_use]
    pub fn without(mut self, field: &str) -> Self {
        self.values.remove(field);
        self
    }

    /// Stores the form in the session for the next page, and redirects to it.
    ///
    /// # Errors
    /// The body could not be read.
    pub fn redirect(
        invalid: InvalidFields,
        session: &Session,
        location: impl Into<String>,
    ) -> Result<Redirect, Error> {
        invalid.into_form()?.flash(session)?;
        Ok(Redirect::to(location))
    }

    /// Stores the form in the session for [`FormState::take`].
    ///
    /// # Errors
    /// As [`Session::flash`].
    pub fn flash(&self, session: &Session) -> Result<(), SessionError> {
        session.flash(FLASH, (&self.values, &self.errors))
    }

    /// The form that the request before this one stored, or an empty one.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn take(session: &Session) -> Result<Self, SessionError> {
        let stored = session.take_flash(FLASH).await?;
        Ok(stored.map_or_else(Self::default, |(values, errors)| Self { values, errors }))
    }
}

/// The form that the request before this one stored, or an empty one.
impl AsyncExtractor for FormState {
    type Arguments = Session;
    type Rejection = Error;

    async fn extract(session: Session) -> Result<Self, Error> {
        Ok(Self::take(&session).await?)
    }
}

/// Whether the value of a field is not shown again.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["password", "secret", "token"]
        .iter()
        .any(|part| name.contains(part))
}

/// A value as it stands in a form.
fn text(value: Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(is_set) => Some(is_set.to_string()),
        _ => None,
    }
}

/// The members `values` and `errors`.
impl Serialize for FormState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("FormState", 2)?;
        #[cfg(feature = "templates")]
        {
            form.serialize_field("values", &in_templates::values(&self.values))?;
            form.serialize_field("errors", &in_templates::errors(&self.errors))?;
        }
        #[cfg(not(feature = "templates"))]
        {
            form.serialize_field("values", &self.values)?;
            form.serialize_field("errors", &self.errors)?;
        }
        form.end()
    }
}

/// Values of templates in which a field that does not exist is an empty one.
#[cfg(feature = "templates")]
mod in_templates {
    use std::sync::Arc;

    use minijinja::Value;
    use minijinja::value::{Enumerator, Object};

    use super::{FieldErrors, FieldTexts};

    #[derive(Debug)]
    struct FieldMap {
        fields: Vec<(String, Value)>,
        missing: Value,
    }

    impl Object for FieldMap {
        fn get_value(self: &Arc<Self>, name: &Value) -> Option<Value> {
            let name = name.as_str()?;
            let known = self.fields.iter().find(|(known, _)| known == name);
            Some(known.map_or(&self.missing, |(_, value)| value).clone())
        }

        fn enumerate(self: &Arc<Self>) -> Enumerator {
            let names = self.fields.iter().map(|(name, _)| Value::from(&**name));
            Enumerator::Values(names.collect())
        }
    }

    pub(super) fn values(values: &FieldTexts) -> Value {
        let fields = values.iter().map(|(name, texts)| match &**texts {
            [text] => (name.clone(), Value::from(&**text)),
            texts => (
                name.clone(),
                Value::from_iter(texts.iter().map(|text| &**text)),
            ),
        });
        Value::from_object(FieldMap {
            fields: fields.collect(),
            missing: Value::from(""),
        })
    }

    pub(super) fn errors(errors: &FieldErrors) -> Value {
        let fields = errors.iter().map(|(name, texts)| {
            let texts = texts.iter().map(|text| &**text);
            (name.clone(), Value::from_iter(texts))
        });
        Value::from_object(FieldMap {
            fields: fields.collect(),
            missing: Value::from_iter([""; 0]),
        })
    }
}
