//! `ValidationMessages`: the language of the messages about fields.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use apus_handler::extract::UnreadableField;
use apus_handler::middleware::{Middleware, Next};
use apus_http::{Request, ResponseFuture};
use garde::i18n::{I18n, with_i18n};
use garde::{Report, Validate};

/// The messages about fields in one language: messages of rules, which [`I18n`] has, and messages about values that
/// cannot be read.
pub trait FieldMessages: I18n + Send + Sync + 'static {
    /// A field has no value.
    fn missing(&self) -> Cow<'static, str> {
        "is missing".into()
    }

    /// A field has a value of another type; `explanation` comes from serde, in English.
    fn unreadable<'a>(&self, explanation: &'a str) -> Cow<'a, str> {
        explanation.into()
    }

    /// The text for a message of a rule of the application (`custom`), which may be a key.
    fn rule<'a>(&self, message: &'a str) -> Cow<'a, str> {
        message.into()
    }
}

/// A layer that selects the language of the messages of [`super::Valid`] for each request. Without it, and for requests
/// that the function returns `None` for, they are in English.
///
/// ```
/// use std::borrow::Cow;
/// use std::fmt::Display;
/// use std::sync::Arc;
///
/// use apus::testing::TestClient;
/// use apus::validate::garde::{Validate, i18n::*};
/// use apus::validate::{FieldMessages, ValidationMessages};
/// use apus::{App, Query, Request, Valid};
///
/// struct German;
///
/// impl I18n for German {
///     fn length_lower_than(&self, min: usize) -> Cow<'static, str> {
///         format!("braucht mindestens {min} Zeichen").into()
///     }
///     # fn length_greater_than(&self, max: usize) -> Cow<'static, str> { format!("{max}").into() }
///     # fn range_lower_than(&self, min: &dyn Display) -> Cow<'static, str> { format!("{min}").into() }
///     # fn range_greater_than(&self, max: &dyn Display) -> Cow<'static, str> { format!("{max}").into() }
///     # fn credit_card_invalid(&self, _: InvalidCreditCard) -> Cow<'static, str> { "?".into() }
///     # fn pattern_no_match(&self, _: &dyn Display) -> Cow<'static, str> { "?".into() }
///     # fn contains_missing(&self, _: &dyn Display) -> Cow<'static, str> { "?".into() }
///     # fn url_invalid(&self, _: InvalidUrl) -> Cow<'static, str> { "?".into() }
///     # fn prefix_missing(&self, _: &dyn Display) -> Cow<'static, str> { "?".into() }
///     # fn suffix_missing(&self, _: &dyn Display) -> Cow<'static, str> { "?".into() }
///     # fn phone_number_invalid(&self, _: InvalidPhoneNumber) -> Cow<'static, str> { "?".into() }
///     # fn ip_invalid(&self, _: IpKind) -> Cow<'static, str> { "?".into() }
///     # fn matches_field_mismatch(&self, _: &dyn Display) -> Cow<'static, str> { "?".into() }
///     # fn email_invalid(&self, _: InvalidEmail) -> Cow<'static, str> { "?".into() }
///     # fn ascii_invalid(&self) -> Cow<'static, str> { "?".into() }
///     # fn alphanumeric_invalid(&self) -> Cow<'static, str> { "?".into() }
///     # fn required_not_set(&self) -> Cow<'static, str> { "?".into() }
///     // and the other methods
/// }
///
/// impl FieldMessages for German {
///     fn missing(&self) -> Cow<'static, str> {
///         "fehlt".into()
///     }
/// }
///
/// #[derive(serde::Deserialize, garde::Validate)]
/// struct Search {
///     #[garde(length(min = 3))]
///     q: String,
/// }
///
/// let german: Arc<dyn FieldMessages> = Arc::new(German);
/// let app = App::new()
///     .layer(ValidationMessages::by(move |request: &Request| {
///         let language = request.headers().get_str("accept-language")?;
///         language.starts_with("de").then(|| german.clone())
///     }))
///     .get("/", async |Valid(Query(search)): Valid<Query<Search>>| search.q);
/// let client = TestClient::new(app).header("accept-language", "de");
/// client.get("/?q=a").send().assert_text("q: braucht mindestens 3 Zeichen\n");
/// client.get("/").send().assert_text("q: fehlt\n");
/// ```
pub struct ValidationMessages(Box<SelectFn>);

type SelectFn = dyn Fn(&Request) -> Option<Arc<dyn FieldMessages>> + Send + Sync;

impl ValidationMessages {
    /// The messages that the function selects for a request.
    pub fn by(
        select: impl Fn(&Request) -> Option<Arc<dyn FieldMessages>> + Send + Sync + 'static,
    ) -> Self {
        Self(Box::new(select))
    }
}

#[cfg(feature = "i18n")]
impl ValidationMessages {
    /// The messages in the language of the request, inside of the layer [`Translations`](apus_i18n::Translations): its texts
    /// `validation-length-min` and so on, which [`Language`](apus_i18n::Language) lists. What a language lacks is in English.
    pub fn translated() -> Self {
        Self::by(|request| {
            let language = apus_i18n::Language::of(request)?;
            Some(Arc::new(language))
        })
    }
}

#[cfg(feature = "i18n")]
impl FieldMessages for apus_i18n::Language {
    fn missing(&self) -> Cow<'static, str> {
        let text = self.missing_field();
        text.map_or("is missing".into(), Cow::Owned)
    }

    fn unreadable<'a>(&self, explanation: &'a str) -> Cow<'a, str> {
        let text = self.unreadable_field();
        text.map_or(explanation.into(), Cow::Owned)
    }

    fn rule<'a>(&self, message: &'a str) -> Cow<'a, str> {
        let text = self.message_of_rule(message);
        text.map_or(message.into(), Cow::Owned)
    }
}

/// Marks this layer, which implements `Middleware` itself.
#[derive(Debug)]
pub enum MessagesMarker {}

impl Middleware<MessagesMarker> for ValidationMessages {
    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let Some(messages) = (self.0)(&request) else {
            return next.call(request);
        };
        let messages = MessagesOfRequest(Some(messages));
        request.extensions_mut().insert(messages.clone());
        // A handler makes messages, too.
        match CURRENT.sync_scope(messages.clone(), || next.call(request)) {
            ResponseFuture::Now(response) => ResponseFuture::Now(response),
            ResponseFuture::Later(response) => {
                ResponseFuture::later(CURRENT.scope(messages, response))
            }
        }
    }
}

impl fmt::Debug for ValidationMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ValidationMessages").finish_non_exhaustive()
    }
}

tokio::task_local! {
    /// The messages for the request that is handled.
    static CURRENT: MessagesOfRequest;
}

/// The messages for a request; `None` stands for English.
#[derive(Clone)]
pub(super) struct MessagesOfRequest(Option<Arc<dyn FieldMessages>>);

impl MessagesOfRequest {
    pub(super) fn of(request: &Request) -> Self {
        let selected = request.extensions().get::<Self>().cloned();
        selected.unwrap_or(Self(None))
    }

    /// The text for a message of a rule in the language of the request that is handled.
    pub(super) fn current_rule(message: &str) -> Option<String> {
        let rule = |messages: &Self| {
            let messages = messages.0.as_deref()?;
            Some(messages.rule(message).into_owned())
        };
        CURRENT.try_with(rule).ok().flatten()
    }

    /// Checks the rules of a value, and reports in the language of the request.
    pub(super) fn validate<T>(&self, value: &T) -> Result<(), Report>
    where
        T: Validate<Context: Default>,
    {
        match &self.0 {
            Some(messages) => with_i18n(&**messages, || value.validate()),
            None => value.validate(),
        }
    }

    /// The text for a message of a rule.
    pub(super) fn rule<'a>(&self, message: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(messages) => messages.rule(message),
            None => message.into(),
        }
    }

    /// The message about a value that serde could not read.
    pub(super) fn unreadable<'a>(&self, field: &'a UnreadableField) -> Cow<'a, str> {
        match (&self.0, field.is_missing()) {
            (Some(messages), true) => messages.missing(),
            (Some(messages), false) => messages.unreadable(field.message()),
            (None, _) => field.message().into(),
        }
    }
}
