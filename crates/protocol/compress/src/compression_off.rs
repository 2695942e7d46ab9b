//! The settings of compression without the feature `codings`: gzip, its level, and the minimum length.

use apus_http::fields::Coding;

/// Whether text is compressed by gzip, the minimum length, and the level for bodies that are compressed each time that they
/// are sent. Files are compressed once, at a level of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// `gzip`.
    pub gzip: bool,
    /// The minimum length in bytes. Shorter bodies are not compressed.
    pub min_length: u64,
    /// The level of gzip: 1 to 9.
    pub gzip_level: u8,
}

impl Compression {
    /// No compression.
    pub const NONE: Self = Self {
        gzip: false,
        min_length: 0,
        ..Self::DEFAULT
    };

    /// gzip, from 1 KB on, at a level that keeps up with a fast network on one core.
    pub const DEFAULT: Self = Self {
        gzip: true,
        min_length: 1024,
        gzip_level: 5,
    };

    /// Whether responses get this coding.
    pub fn allows(&self, coding: Coding) -> bool {
        coding == Coding::Gzip && self.gzip
    }

    /// The level of a coding.
    pub(crate) fn level(&self, _: Coding) -> u8 {
        self.gzip_level
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::DEFAULT
    }
}
