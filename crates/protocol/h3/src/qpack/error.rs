//! The errors of QPACK (RFC 9204 section 6).

use std::fmt;

use apus_codec::field_compression::CodingError;

/// Why a field section or an instruction cannot be decoded. The tables of both ends may differ afterwards, so the
/// connection has to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QpackError {
    /// An integer or a string is invalid, or a section ends in the middle of one.
    Coding(CodingError),
    /// An index is beyond the end of a table, of an evicted entry, or not covered by the section's insert count
    /// (section 2.2.3).
    Index,
    /// The insert count of a section is impossible (section 4.5.1.1).
    InsertCount,
    /// The base of a section is negative (section 4.5.1.2).
    Base,
    /// The capacity of the table is set to more than was allowed (section 4.3.1).
    Capacity,
    /// An entry is larger than the table (section 3.2.2).
    EntryTooLarge,
    /// The acknowledgement of a section that was not sent, or that needs none (section 4.4.1).
    SectionAcknowledgment,
    /// An insert count increment of zero, or beyond the inserts that were sent (section 4.4.3).
    InsertCountIncrement,
}

impl fmt::Display for QpackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Coding(error) => return error.fmt(f),
            Self::Index => "a field section refers to an entry that is not in the tables",
            Self::InsertCount => "the insert count of a field section is impossible",
            Self::Base => "the base of a field section is negative",
            Self::Capacity => "the capacity of the table is set to more than was allowed",
            Self::EntryTooLarge => "an entry is larger than the table",
            Self::SectionAcknowledgment => "a section was acknowledged that was not sent",
            Self::InsertCountIncrement => "inserts were acknowledged that were not sent",
        })
    }
}

impl std::error::Error for QpackError {}

impl From<CodingError> for QpackError {
    fn from(error: CodingError) -> Self {
        Self::Coding(error)
    }
}
