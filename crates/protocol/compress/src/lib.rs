//! Content codings (RFC 9110 section 8.4): negotiation, encoders, and bodies that are compressed as they are sent.

#![forbid(unsafe_code)]

mod body;
mod compression;
mod encoder;
pub mod media_type;
mod negotiation;
mod service;

pub use compression::Compression;
pub use encoder::{ContentEncoder, Encoding, compress};
pub use negotiation::{EncodingNegotiation, describe, is_compressible, vary, weaken_tag};
pub use service::CompressedFactory;
