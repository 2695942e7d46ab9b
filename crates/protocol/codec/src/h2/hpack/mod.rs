//! HPACK header compression (RFC 7541).
//!
//! An [`HpackDecoder`] decodes the field blocks of one direction of a connection, an [`HpackEncoder`] encodes
//! the field blocks of the other direction. Each has to process every block of its direction, in order,
//! because both ends keep the same dynamic table.

mod decoder;
mod encoder;
mod error;
mod preencoded;
mod representation;
mod static_table;

pub use self::decoder::HpackDecoder;
pub use self::encoder::HpackEncoder;
pub use self::error::HpackError;
pub use crate::field_compression::Field;

/// The default size of a dynamic table, as section 4.1 counts it (RFC 9113 section 6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;
