//! Content codings (RFC 9110 section 8.4): negotiation, encoders, and bodies that are compressed as they are sent.
//!
//! # Modules
//!
//! - `negotiation`: which coding a client gets ([`EncodingNegotiation`]), and what `Vary` and entity tags say then.
//! - `coding_rule`: what else lets a response be compressed, as an extension of its request.
//! - `encoder`: gzip, Brotli and Zstandard ([`ContentEncoder`]), each with the memory that it reserves of the
//!   budget of the server (`encoding`; `ResponseMemory` of apus-http).
//! - `body`: a body that is compressed while it is sent. `service` puts that around any service.
//! - `media_type`: media types of files by their extensions, and which of them are worth compressing.
//!
//! # Features
//!
//! `codings`: gzip, Brotli and Zstandard, which are most of the build. Without it nothing is compressed, and [`Compression`] has
//! no fields for them.
//!
//! # Decisions
//!
//! - **The memory of compressors has one budget for the whole server**: 2 MB for Brotli and Zstandard, 0.5 MB for gzip.
//!   Without memory a response is sent uncompressed.
//!
//! # Tests
//!
//! `tests/it`: whole responses, and what encoders allocate (`encoder_memory`).

#![forbid(unsafe_code)]

mod body;
mod coding_rule;
#[cfg(feature = "codings")]
mod compression;
#[cfg(not(feature = "codings"))]
#[path = "compression_off.rs"]
mod compression;
#[cfg(feature = "codings")]
mod encoder;
#[cfg(not(feature = "codings"))]
#[path = "encoder_off.rs"]
mod encoder;
mod encoding;
pub mod media_type;
mod negotiation;
mod service;

pub use coding_rule::{CodingRule, RequestCodingRule};
pub use compression::Compression;
pub use encoder::{ContentEncoder, compress, gunzip};
pub use encoding::Encoding;
pub use negotiation::{
    EncodingNegotiation, describe, is_compressible, refuse_codings, vary, weaken_tag,
};
pub use service::CompressedFactory;
