//! Header compression (RFC 7541), both ways.
//!
//! A [`Decoder`] reads the field blocks of one connection, an [`Encoder`] writes those of the other
//! direction. Each has to see every block of its direction, in order, because both ends keep the
//! same table of what was sent before.

mod decoder;
mod encoder;
mod error;
mod huffman;
mod integer;
mod prepared;
mod static_table;
mod table;

pub use self::decoder::{Decoder, Field};
pub use self::encoder::Encoder;
pub use self::error::DecodeError;

/// Bytes of a dynamic table, as section 4.1 counts them, before a peer asks for another size (RFC
/// 9113 section 6.5.2).
pub const DEFAULT_TABLE_SIZE: usize = 4096;
