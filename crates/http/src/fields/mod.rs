//! Field values with a grammar of their own (RFC 9110), parsed into types that are only valid.

pub mod accept;
mod accept_encoding;
mod conditional;
mod entity_tag;
mod quality;
mod range;

pub use accept_encoding::{AcceptEncoding, Coding};
pub use conditional::{Precondition, Validators};
pub use entity_tag::{EntityTag, EntityTagList, EntityTags};
pub use range::{ByteRange, MAX_RANGES, Ranges};
