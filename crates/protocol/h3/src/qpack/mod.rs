//! QPACK field compression (RFC 9204).
//!
//! A [`QpackDecoder`] decodes the field sections of the peer with a dynamic table that the peer fills over its
//! encoder stream. A [`QpackEncoder`] encodes the field sections of this end. Sections of different streams may
//! arrive in any order; one that needs inserts that are still on their way waits for them.

mod decoder;
mod encoder;
mod error;
mod instruction;
mod preencoded;
mod representation;
mod static_table;

pub use self::decoder::{QpackDecoder, SectionProgress};
pub use self::encoder::{QpackEncoder, SectionReferences};
pub use self::error::QpackError;
pub use apus_codec::field_compression::Field;

/// How many entries fit into a table of this many bytes at most (section 4.5.1.1).
fn max_entries(table_bytes: u64) -> u64 {
    table_bytes / 32
}
