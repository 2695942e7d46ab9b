//! Lists that conditions name with `@`.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use aho_corasick::AhoCorasick;

use crate::network_set::NetworkSet;

/// A list of values, which a condition names with `@`. All conditions with it share it.
#[derive(Clone, Debug)]
pub enum ConditionList {
    /// Networks, for `client`.
    Networks(Arc<NetworkSet>),
    /// Texts, for other facts.
    Texts(Arc<TextSet>),
}

/// Texts, prepared for both questions about them: whether a text is one of them, and whether it contains one.
#[derive(Debug)]
pub struct TextSet {
    pub(crate) whole: HashSet<Box<[u8]>>,
    parts: AhoCorasick,
}

impl TextSet {
    /// The set of these texts.
    ///
    /// # Errors
    /// The texts are too many or too long.
    pub fn new<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, TooManyTexts> {
        let whole: HashSet<Box<[u8]>> = texts
            .into_iter()
            .map(|text| text.as_ref().as_bytes().into())
            .collect();
        let parts = AhoCorasick::new(&whole).map_err(|_| TooManyTexts)?;
        Ok(Self { whole, parts })
    }

    /// Whether one of the texts is a part of this one.
    pub(crate) fn is_part_of(&self, text: &[u8]) -> bool {
        self.parts.is_match(text)
    }
}

/// Texts that are too many or too long to search for at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyTexts;

impl fmt::Display for TooManyTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the list has too many texts, or too long ones")
    }
}

impl std::error::Error for TooManyTexts {}
