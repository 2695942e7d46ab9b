//! `LanguageTexts`: the texts of one language.

use std::collections::BTreeSet;
use std::sync::Arc;

use fluent_bundle::FluentResource;
use fluent_syntax::ast::Entry;
use unic_langid::LanguageIdentifier;

use crate::TranslationError;

/// The texts of one language.
#[derive(Clone)]
pub(crate) struct LanguageTexts {
    pub(crate) tag: Arc<str>,
    pub(crate) identifier: LanguageIdentifier,
    pub(crate) resources: Vec<Arc<FluentResource>>,
    /// The keys of texts, with the keys of attributes as `key.attribute`.
    pub(crate) keys: BTreeSet<String>,
    /// The keys of terms, which are only parts of texts.
    terms: BTreeSet<String>,
}

impl LanguageTexts {
    pub(crate) fn new(tag: &str) -> Result<Self, TranslationError> {
        let identifier = tag.parse().map_err(|_| TranslationError::Tag {
            tag: tag.to_owned(),
        })?;
        Ok(Self {
            tag: tag.into(),
            identifier,
            resources: Vec::new(),
            keys: BTreeSet::new(),
            terms: BTreeSet::new(),
        })
    }

    /// Adds texts; `of` is the language or the file, for errors.
    pub(crate) fn add(&mut self, of: &str, texts: &str) -> Result<(), TranslationError> {
        let read = FluentResource::try_new(texts.to_owned());
        let resource = read.map_err(|(_, errors)| {
            let error = errors.first();
            let at = error.map_or(0, |error| error.pos.start);
            let before = texts.get(..at).unwrap_or(texts);
            TranslationError::Syntax {
                of: of.to_owned(),
                line: before.matches('\n').count().saturating_add(1),
                problem: error.map_or_else(String::new, |error| error.kind.to_string()),
            }
        })?;
        let mut add = |key: String, is_text: bool| match is_text {
            true if self.keys.insert(key.clone()) => Ok(()),
            false if self.terms.insert(key.clone()) => Ok(()),
            _ => Err(TranslationError::Repeated {
                of: of.to_owned(),
                key,
            }),
        };
        for entry in resource.entries() {
            match entry {
                Entry::Message(message) => {
                    let key = message.id.name;
                    // A message may have attributes only.
                    if message.value.is_some() {
                        add(key.to_owned(), true)?;
                    }
                    for attribute in &message.attributes {
                        add(format!("{key}.{}", attribute.id.name), true)?;
                    }
                }
                Entry::Term(term) => add(format!("-{}", term.id.name), false)?,
                _ => {}
            }
        }
        self.resources.push(Arc::new(resource));
        Ok(())
    }
}
