//! What a reader of an object gets: the next piece, or the reason why there is none.

use std::fmt;
use std::ops::Range;

use apus_http::FileRange;
use bytes::Bytes;

/// A piece of an object's body.
#[derive(Debug)]
pub enum ObjectPiece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File(FileRange),
}

impl ObjectPiece {
    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(range) => range.len,
        }
    }
}

/// Why a reader does not get the next piece.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The fill broke off, and the rest cannot be fetched because the object has no strong
    /// validator.
    BrokenOff,
    /// The next piece on disk is damaged. The object was removed.
    Damaged,
    /// The object cannot be stored, and this reader was too slow for the others.
    LeftBehind,
    /// No filler fills this range. The reader may continue once it was claimed with
    /// [`Object::fill`](super::Object::fill).
    Gap(Range<u64>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenOff => f.write_str("the fetch of the stored response broke off"),
            Self::Damaged => f.write_str("the stored response is damaged on disk"),
            Self::LeftBehind => f.write_str("the client read too slowly to share the response"),
            Self::Gap(gap) => write!(f, "bytes {} to {} are not stored", gap.start, gap.end),
        }
    }
}

impl std::error::Error for ReadError {}
