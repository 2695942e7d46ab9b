//! `TranslationError`: a mistake in the texts of a language.

use std::error::Error;
use std::fmt;

/// A mistake in the texts of a language.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TranslationError {
    /// A text is not a language tag (RFC 5646).
    Tag {
        /// The text.
        tag: String,
    },
    /// Some text is not Fluent.
    Syntax {
        /// The language or the file.
        of: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// A key has two texts.
    Repeated {
        /// The language or the file.
        of: String,
        /// The key.
        key: String,
    },
    /// The name of a file is not `LANGUAGE.ftl` or `LANGUAGE/NAME.ftl`.
    FileName {
        /// The name.
        name: String,
    },
    /// A file is not UTF-8.
    Encoding {
        /// Its name.
        name: String,
    },
    /// There are no texts of the first language.
    Missing {
        /// The language.
        tag: String,
    },
}

impl fmt::Display for TranslationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag { tag } => {
                write!(f, "{tag:?} is not a language tag, such as `en` or `de-AT`")
            }
            Self::Syntax { of, line, problem } => {
                write!(f, "the texts of {of}, line {line}: {problem}")
            }
            Self::Repeated { of, key } => write!(f, "the texts of {of}: {key} is there twice"),
            Self::FileName { name } => write!(
                f,
                "the file {name:?} has texts of no language: its name has to be `LANGUAGE.ftl` or `LANGUAGE/NAME.ftl`"
            ),
            Self::Encoding { name } => write!(f, "the file {name:?} is not UTF-8"),
            Self::Missing { tag } => write!(f, "there are no texts of the first language, {tag}"),
        }
    }
}

impl Error for TranslationError {}
