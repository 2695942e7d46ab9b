//! The settings of compression without the feature `codings`: nothing is compressed.

use apus_http::fields::Coding;

/// No response is compressed: the feature `codings` is off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// The minimum length in bytes. Shorter bodies are not compressed.
    pub min_length: u64,
}

impl Compression {
    /// No compression.
    pub const NONE: Self = Self { min_length: 0 };

    /// No compression either.
    pub const DEFAULT: Self = Self::NONE;

    /// Whether responses get this coding.
    pub fn allows(&self, _: Coding) -> bool {
        false
    }

    /// The level of a coding.
    pub(crate) fn level(&self, _: Coding) -> u8 {
        0
    }
}
