//! `FormState`: the values and messages that a page shows in a form.

use std::collections::BTreeMap;

use apus_handler::Error;
use apus_handler::extract::AsyncExtractor;
use serde::ser::{Serialize, SerializeStruct, Serializer};
use serde_json::Value;

use crate::session::{Session, SessionError, normal_path};

/// The values of each field.
pub(super) type FieldTexts = BTreeMap<String, Vec<String>>;

/// The messages about each field.
pub(super) type FieldErrors = BTreeMap<String, Vec<String>>;

/// What the names of the flash values begin with. The path and the name of the form follow, each after a line break, which no
/// path has as such.
const FLASH: &str = "form\n";

/// How long a form waits for the page that shows it, in seconds: that page follows the redirect at once.
const LIFETIME: u64 = 10 * 60;

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
/// A form that was stored is shown by the page that [`FormState::redirect`] leads to, and by no other page that the visitor opens
/// first. A page with several forms gives each a name, by [`InvalidFields::of_form`](super::InvalidFields::of_form):
///
/// ```
/// # use apus::session::{MemoryStore, Session, Sessions};
/// # use apus::testing::TestClient;
/// # use apus::validate::{FormState, InvalidFields};
/// # use apus::{App, Redirect, Result};
/// async fn account(form: FormState) -> String {
///     let [address, password] = ["address", "password"].map(|name| form.named(name));
///     format!("{:?} {:?}", address.errors("email"), password.errors("new"))
/// }
///
/// async fn change_password(session: Session) -> Result<Redirect> {
///     let invalid = InvalidFields::new("new", "is too short").of_form("password");
///     FormState::redirect(invalid, &session, "/account")
/// }
///
/// # let app = App::new()
/// #     .layer(Sessions::new(MemoryStore::new()))
/// #     .get("/account", account)
/// #     .post("/account/password", change_password);
/// # let client = TestClient::new(app);
/// client.post("/account/password").send().assert_redirect("/account");
/// client.get("/account").send().assert_text(r#"[] ["is too short"]"#);
/// client.get("/account").send().assert_text("[] []");
/// ```
///
/// Fields whose name contains `password`, `secret` or `token` have no value: they are not sent back to the browser,
/// and not stored in the session. [`FormState::without`] removes others.
#[derive(Clone, Debug, Default)]
pub struct FormState {
    /// Empty for the only form of a page.
    name: String,
    values: FieldTexts,
    errors: FieldErrors,
    /// The other forms of the page that were stored.
    others: Vec<Self>,
}

impl FormState {
    pub(super) fn new(mut values: FieldTexts, errors: FieldErrors) -> Self {
        values.retain(|name, _| !is_secret(name));
        Self {
            values,
            errors,
            ..Self::default()
        }
    }

    /// This form with a name.
    pub(super) fn with_name(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// The form of a page with several forms that [`InvalidFields::of_form`](super::InvalidFields::of_form) gave this name; an empty one if it was not stored.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        let forms = std::iter::once(self).chain(&self.others);
        let found = forms.into_iter().find(|form| form.name == name);
        found.map_or_else(Self::default, |form| Self {
            others: Vec::new(),
            ..form.clone()
        })
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

    /// Stores the form in the session for the next page that takes one, whatever its path is. [`FormState::redirect`] stores it
    /// for one page.
    ///
    /// # Errors
    /// As [`Session::flash`].
    pub fn flash(&self, session: &Session) -> Result<(), SessionError> {
        self.store(session, "")
    }

    pub(super) fn store(&self, session: &Session, path: &str) -> Result<(), SessionError> {
        let path = match path {
            "" => String::new(),
            path => apus_http::path::encode(&normal_path(path)),
        };
        let name = format!("{FLASH}{path}\n{}", self.name);
        session.flash(&name, (session.now(), &self.values, &self.errors))
    }

    /// The form that was stored for the page of this request, or an empty one.
    ///
    /// # Errors
    /// As [`Session::get`].
    pub async fn take(session: &Session) -> Result<Self, SessionError> {
        let own = apus_http::path::encode(session.path());
        let mut found = Vec::new();
        for flash in session.flash_names(FLASH).await? {
            let key = flash.strip_prefix(FLASH).unwrap_or_default();
            let (path, name) = key.split_once('\n').unwrap_or_default();
            let (stored, values, errors) = session.take_flash(&flash).await?.unwrap_or_default();
            let is_old = session.now().saturating_sub(stored) > LIFETIME;
            if is_old {
                continue;
            }
            if !path.is_empty() && path != own {
                // Another page will take it.
                session.flash(&flash, (stored, values, errors))?;
                continue;
            }
            found.push(Self {
                name: name.to_owned(),
                values,
                errors,
                others: Vec::new(),
            });
        }
        let only = found.iter().position(|form| form.name.is_empty());
        let mut form = only.map_or_else(Self::default, |at| found.swap_remove(at));
        form.others = found;
        Ok(form)
    }
}

/// The path of a location, which is a URL or relative to one, without the query and the fragment.
pub(super) fn path_of(location: &str) -> &str {
    let path = location.split(['?', '#']).next().unwrap_or_default();
    match path.split_once("://") {
        Some((_, rest)) => rest.find('/').and_then(|at| rest.get(at..)).unwrap_or("/"),
        None => path,
    }
}

/// The form that was stored for the page of this request, or an empty one.
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
