//! The encoders of the content codings.

use std::io::{self, Write};

use apus_http::fields::Coding;
use bytes::Bytes;

use crate::codings::{BrotliEncoder, ZstdEncoder};
use crate::encoding::Encoding;

/// Compresses all of a body at once.
///
/// # Errors
/// The encoder does not take the settings.
pub fn compress(body: &[u8], encoding: Encoding) -> io::Result<Vec<u8>> {
    let mut encoder = ContentEncoder::new(encoding)?;
    encoder.write(body)?;
    encoder.finish()
}

/// An encoder that writes to memory.
#[cfg_attr(
    not(feature = "codings"),
    expect(
        clippy::large_enum_variant,
        reason = "the other variants have no values"
    )
)]
pub enum ContentEncoder {
    /// `br`.
    Brotli(BrotliEncoder),
    /// `zstd`.
    Zstd(ZstdEncoder),
    /// `gzip`.
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl ContentEncoder {
    /// An encoder with these settings.
    ///
    /// # Errors
    /// The library does not take the settings.
    pub fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(match encoding.coding {
            Coding::Brotli => Self::Brotli(BrotliEncoder::new(encoding)?),
            Coding::Zstd => Self::Zstd(ZstdEncoder::new(encoding)?),
            Coding::Gzip | Coding::Identity => Self::Gzip(flate2::write::GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(encoding.level.into()),
            )),
        })
    }

    /// Compresses some bytes.
    ///
    /// # Errors
    /// The library failed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.writer().write_all(bytes),
            Self::Zstd(encoder) => encoder.writer().write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Makes everything that was written so far readable for the client.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.writer().flush(),
            Self::Zstd(encoder) => encoder.writer().flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// The output since the last call.
    pub(crate) fn take(&mut self) -> Bytes {
        let output = match self {
            Self::Brotli(encoder) => encoder.output(),
            Self::Zstd(encoder) => encoder.output(),
            Self::Gzip(encoder) => encoder.get_mut(),
        };
        let mut output = std::mem::take(output);
        output.shrink_to_fit();
        output.into()
    }

    /// Ends the encoding, and returns the output since the last call of `take`.
    ///
    /// # Errors
    /// The library failed.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        let mut output = match self {
            Self::Brotli(encoder) => encoder.finish()?,
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        output.shrink_to_fit();
        Ok(output)
    }
}
