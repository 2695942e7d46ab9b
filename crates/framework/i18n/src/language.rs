//! `Language`: the language of a request, an argument of handlers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_handler::{Error, FromRequestHead, Matched, RouteCheck};
use apus_http::Request;
use fluent_bundle::{FluentArgs, FluentValue};
use serde::{Serialize, Serializer};

use crate::Translations;

/// The language of a request behind the layer [`Translations`], or one of [`Translations::language`]. For templates it is its
/// tag, as for `<html lang="{{ language }}">`.
#[derive(Clone)]
pub struct Language {
    translations: Translations,
    index: usize,
    tag: Arc<str>,
    /// Whether the response depends on it.
    was_used: Arc<AtomicBool>,
}

impl Translations {
    /// One of the languages, as for a mail; the first if none of them has the tag.
    pub fn language(&self, tag: &str) -> Language {
        self.at(self.find(tag).unwrap_or(0))
    }

    pub(crate) fn at(&self, index: usize) -> Language {
        let tag = self.tag(index);
        Language::new(self.clone(), index, tag.unwrap_or_default())
    }
}

impl Language {
    fn new(translations: Translations, index: usize, tag: Arc<str>) -> Self {
        Self {
            translations,
            index,
            tag,
            was_used: Arc::default(),
        }
    }

    /// The language of a request behind the layer [`Translations`]; for middleware.
    pub fn of(request: &Request) -> Option<Self> {
        request.extensions().get::<Self>().cloned()
    }

    /// Its tag, as `de`.
    pub fn tag(&self) -> &str {
        self.mark_used();
        &self.tag
    }

    /// The text of a key, or of an attribute as `key.attribute`. A text that no language has is the key, and a warning is logged.
    pub fn text(&self, key: &str) -> String {
        self.text_or_key(key, None)
    }

    /// The text of a key with arguments: `language.text_with("cart", [("count", 2.into())])`.
    pub fn text_with<'a>(
        &self,
        key: &str,
        values: impl IntoIterator<Item = (&'a str, FluentValue<'a>)>,
    ) -> String {
        let arguments: FluentArgs<'_> = values.into_iter().collect();
        self.text_or_key(key, Some(&arguments))
    }

    /// Another language of the same translations.
    #[cfg(feature = "templates")]
    pub(crate) fn other(&self, tag: &str) -> Self {
        self.mark_used();
        self.translations.language(tag)
    }

    fn text_or_key(&self, key: &str, arguments: Option<&FluentArgs<'_>>) -> String {
        self.mark_used();
        let text = self.translations.text(self.index, key, arguments);
        text.unwrap_or_else(|| key.to_owned())
    }

    /// The text of a key that this language may lack.
    #[cfg(feature = "validate")]
    pub(crate) fn own_text(&self, key: &str, arguments: Option<&FluentArgs<'_>>) -> Option<String> {
        self.mark_used();
        self.translations.own_text(self.index, key, arguments)
    }

    fn mark_used(&self) {
        self.was_used.store(true, Ordering::Relaxed);
    }

    /// Writes the fields of a response that depends on the language.
    pub(crate) fn write_headers(&self, headers: &mut apus_http::Headers) {
        if !self.was_used.load(Ordering::Relaxed) {
            return;
        }
        // Caches keep one response for each language (RFC 9110 section 12.5.5).
        let _ = headers.try_append("vary", "accept-language, cookie");
        if !headers.contains("content-language") {
            let _ = headers.try_insert("content-language", &*self.tag);
        }
    }
}

/// Without the layer it is a 500, and an error is logged.
impl FromRequestHead for Language {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        let language = Self::of(request).ok_or_else(|| {
            Error::not_provided(
                "a handler takes a Language, but the App has no layer `Translations`",
            )
        })?;
        // A body that is sent later may use it, when its head is written already.
        language.mark_used();
        Ok(language)
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake("the handler takes a Language, and no layer `Translations` is around it");
        }
    }
}

impl Serialize for Language {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.tag())
    }
}

impl fmt::Debug for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Language").field(&self.tag).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_response_that_used_its_language_varies() {
        use apus_http::Headers;

        let translations = Translations::new("en", "a = A").unwrap();
        let fields = |language: &Language, own: Option<&str>| {
            let mut headers = Headers::new();
            if let Some(own) = own {
                headers.try_insert("content-language", own).unwrap();
            }
            language.write_headers(&mut headers);
            let field = |name: &str| headers.get_str(name).map(str::to_owned);
            (field("vary"), field("content-language"))
        };
        let language = translations.language("en");
        assert_eq!(fields(&language, None), (None, None));
        assert_eq!(fields(&language, Some("pl")).0, None);
        // Also a key that no language has depends on it.
        assert_eq!(language.text("b"), "b");
        let vary = Some("accept-language, cookie".to_owned());
        assert_eq!(
            fields(&language, None),
            (vary.clone(), Some("en".to_owned()))
        );
        assert_eq!(fields(&language, Some("pl")), (vary, Some("pl".to_owned())));
    }
}
