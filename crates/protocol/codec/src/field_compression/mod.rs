//! What HPACK (RFC 7541) and QPACK (RFC 9204) have in common: integers, strings, the dynamic table, and which
//! fields are indexed.

mod error;
mod field;
pub mod huffman;
pub mod integer;
mod policy;
mod string;
mod table;

pub use self::error::CodingError;
pub use self::field::{Field, FieldValidity};
pub use self::policy::{IndexingPolicy, TABLE_NAME_BITS, indexing_policy, line_mark};
pub use self::string::{StringBuffer, decode_string, encode_string};
pub use self::table::{DynamicTable, TableEntry, entry_size};
