//! The settings of compression: content codings, levels, and the minimum length.

use apus_http::fields::Coding;

/// The content codings for text, the minimum length, and the levels for bodies that are compressed each
/// time that they are sent. Files are compressed once, at separate levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compression {
    /// `gzip`, for clients that accept neither of the others.
    pub gzip: bool,
    /// `br`.
    pub brotli: bool,
    /// `zstd`.
    pub zstd: bool,
    /// The minimum length in bytes. Shorter bodies are not compressed.
    pub min_length: u64,
    /// The level of gzip: 1 to 9.
    pub gzip_level: u8,
    /// The quality of Brotli: 0 to 11.
    pub brotli_level: u8,
    /// The level of Zstandard: 1 to 19.
    pub zstd_level: u8,
}

impl Compression {
    /// No compression.
    pub const NONE: Self = Self {
        gzip: false,
        brotli: false,
        zstd: false,
        min_length: 0,
        ..Self::DEFAULT
    };

    /// All codings, from 1 KB on, at levels that keep up with a fast network on one core.
    pub const DEFAULT: Self = Self {
        gzip: true,
        brotli: true,
        zstd: true,
        min_length: 1024,
        gzip_level: 5,
        brotli_level: 4,
        zstd_level: 3,
    };

    /// Whether responses get this coding.
    pub fn allows(&self, coding: Coding) -> bool {
        match coding {
            Coding::Brotli => self.brotli,
            Coding::Zstd => self.zstd,
            Coding::Gzip => self.gzip,
            Coding::Identity => false,
        }
    }

    /// The level of a coding.
    pub(crate) fn level(&self, coding: Coding) -> u8 {
        match coding {
            Coding::Brotli => self.brotli_level,
            Coding::Zstd => self.zstd_level,
            Coding::Gzip | Coding::Identity => self.gzip_level,
        }
    }
}

impl Default for Compression {
    fn default() -> Self {
        Self::DEFAULT
    }
}
