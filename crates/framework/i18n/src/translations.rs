//! `Translations`: the texts of each language.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use fluent_bundle::FluentArgs;

use crate::language_texts::LanguageTexts;
use crate::{TranslationError, bundles, negotiation};

/// The texts of an application in several languages. As a layer, it selects the language of each request: the one in
/// the cookie `language` if the application has it, or else the one that `Accept-Language` prefers, or else the
/// first. [`Translations::chosen_by`] asks a function before, as for a session.
///
/// A text that a language lacks is shown in the first language, and a warning is logged. [`Translations::missing`] lists them for
/// a test.
#[derive(Clone)]
pub struct Translations(Arc<Vec<LanguageTexts>>);

impl Translations {
    /// The texts of the first language, in Fluent.
    ///
    /// # Errors
    /// A mistake in them.
    pub fn new(tag: &str, texts: &str) -> Result<Self, TranslationError> {
        Self(Arc::default()).and(tag, texts)
    }

    /// The texts of files, by their names: `de.ftl`, or `de/shop.ftl` and others for one language. The first language is named,
    /// the others are in the order of their names. `apus::embedded!("languages")` compiles a folder into the program.
    ///
    /// # Errors
    /// A mistake in them, or a file with another name.
    pub fn embedded<N, T>(
        first: &str,
        files: impl IntoIterator<Item = (N, T)>,
    ) -> Result<Self, TranslationError>
    where
        N: AsRef<str>,
        T: AsRef<[u8]>,
    {
        let mut files: Vec<(N, T)> = files.into_iter().collect();
        files.sort_by(|(one, _), (other, _)| one.as_ref().cmp(other.as_ref()));
        let mut languages = vec![LanguageTexts::new(first)?];
        for (name, text) in &files {
            let name = name.as_ref();
            let stem = name.strip_suffix(".ftl").filter(|stem| !stem.is_empty());
            let stem = stem.ok_or_else(|| TranslationError::FileName {
                name: name.to_owned(),
            })?;
            let tag = stem.split('/').next().unwrap_or(stem);
            let text = str::from_utf8(text.as_ref()).map_err(|_| TranslationError::Encoding {
                name: name.to_owned(),
            })?;
            let known = languages.iter().position(|known| *known.tag == *tag);
            let index = match known {
                Some(index) => index,
                None => {
                    languages.push(LanguageTexts::new(tag)?);
                    languages.len().saturating_sub(1)
                }
            };
            if let Some(language) = languages.get_mut(index) {
                language.add(name, text)?;
            }
        }
        match languages.first() {
            Some(language) if language.resources.is_empty() => Err(TranslationError::Missing {
                tag: first.to_owned(),
            }),
            _ => Ok(Self(Arc::new(languages))),
        }
    }

    /// Adds a language, or more texts of one that is there.
    ///
    /// # Errors
    /// A mistake in its texts.
    pub fn and(self, tag: &str, texts: &str) -> Result<Self, TranslationError> {
        let mut languages = self.0.to_vec();
        match languages.iter_mut().find(|known| *known.tag == *tag) {
            Some(known) => known.add(tag, texts)?,
            None => {
                let mut language = LanguageTexts::new(tag)?;
                language.add(tag, texts)?;
                languages.push(language);
            }
        }
        Ok(Self(Arc::new(languages)))
    }

    /// The tags of the languages.
    pub fn languages(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|language| &*language.tag)
    }

    /// The keys that a language lacks and another one has, as `de: cart`.
    pub fn missing(&self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.0.iter().flat_map(|known| &known.keys).collect();
        let mut missing = Vec::new();
        for language in self.0.iter() {
            let keys = keys.iter().filter(|key| !language.keys.contains(**key));
            missing.extend(keys.map(|key| format!("{}: {key}", language.tag)));
        }
        missing
    }

    /// The tag of a language.
    pub(crate) fn tag(&self, index: usize) -> Option<Arc<str>> {
        self.0.get(index).map(|language| language.tag.clone())
    }

    pub(crate) fn find(&self, tag: &str) -> Option<usize> {
        negotiation::find(tag, self.languages())
    }

    /// The text of a key in a language, or in the first one.
    pub(crate) fn text(
        &self,
        index: usize,
        key: &str,
        arguments: Option<&FluentArgs<'_>>,
    ) -> Option<String> {
        self.own_text(index, key, arguments).or_else(|| {
            let language = self.0.get(index).map_or("", |language| &*language.tag);
            tracing::warn!(key, language, "a text is not translated");
            self.own_text(0, key, arguments)
        })
    }

    /// The text of a key in a language, if it has it.
    pub(crate) fn own_text(
        &self,
        index: usize,
        key: &str,
        arguments: Option<&FluentArgs<'_>>,
    ) -> Option<String> {
        bundles::format(&self.0, index, key, arguments)
    }
}

impl fmt::Debug for Translations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tags: Vec<_> = self.languages().collect();
        f.debug_tuple("Translations").field(&tags).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_have_their_place() {
        for (made, expected) in [
            (
                Translations::new("not a tag", ""),
                "\"not a tag\" is not a language tag, such as `en` or `de-AT`",
            ),
            (
                Translations::new("en", "a = A\na = B\n"),
                "the texts of en: a is there twice",
            ),
            (
                Translations::new("en", "a = A\n").and_then(|texts| texts.and("en", "a = B\n")),
                "the texts of en: a is there twice",
            ),
            (
                Translations::embedded("en", [("en.txt", "a = A")]),
                "the file \"en.txt\" has texts of no language: its name has to be `LANGUAGE.ftl` or `LANGUAGE/NAME.ftl`",
            ),
            (
                Translations::embedded("en", [("en.ftl", &b"a = \xff"[..])]),
                "the file \"en.ftl\" is not UTF-8",
            ),
            (
                Translations::embedded("en", [("de.ftl", "a = A")]),
                "there are no texts of the first language, en",
            ),
        ] {
            assert_eq!(made.unwrap_err().to_string(), expected);
        }
        let error = Translations::new("en", "a = A\n\nb = { $x\nc = C\n").unwrap_err();
        let TranslationError::Syntax { of, line, .. } = &error else {
            panic!("{error:?}");
        };
        assert_eq!((&**of, *line >= 3), ("en", true), "{error}");
    }

    #[test]
    fn texts_of_several_files_are_one_language() {
        let files = [
            ("de/shop.ftl", "cart = Warenkorb bei { -name }\n"),
            ("de/common.ftl", "-name = Apus\n"),
            (
                "en.ftl",
                "cart = Cart\nlogin = Log in\n    .title = To your account\n",
            ),
        ];
        let translations = Translations::embedded("en", files).unwrap();
        assert_eq!(translations.languages().collect::<Vec<_>>(), ["en", "de"]);
        assert_eq!(translations.missing(), ["de: login", "de: login.title"]);
        assert_eq!(
            translations.language("de").text("cart"),
            "Warenkorb bei Apus"
        );
        assert_eq!(
            translations.language("fr").text("login.title"),
            "To your account"
        );
        assert_eq!(translations.language("de").text("login"), "Log in");
        assert_eq!(translations.language("de").text("no-such"), "no-such");
    }

    #[test]
    fn a_text_is_that_of_the_language_then_that_of_the_first_then_its_key() {
        let translations = Translations::new("en", "both = Both\nfirst = First\n")
            .and_then(|texts| texts.and("de", "both = Beide\nown = Eigen\n"))
            .unwrap();
        for (tag, key, expected) in [
            ("de", "both", "Beide"),
            ("de", "own", "Eigen"),
            ("de", "first", "First"),
            ("de", "none", "none"),
            // The first language has no other to fall back to.
            ("en", "own", "own"),
            ("en", "both", "Both"),
            // A language that there is not is the first one.
            ("fr", "both", "Both"),
        ] {
            assert_eq!(
                translations.language(tag).text(key),
                expected,
                "{tag} {key}"
            );
        }
    }
}
