//! The encoders of the content codings.

use std::io::{self, Read, Write};

use apus_http::fields::Coding;
use bytes::Bytes;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

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

/// What a gzip file contains; `None` if that is more than `max_len` bytes, or the file is damaged.
pub fn gunzip(file: &[u8], max_len: u64) -> Option<Vec<u8>> {
    let mut decoded = Vec::new();
    let mut reader = GzDecoder::new(file).take(max_len.saturating_add(1));
    reader.read_to_end(&mut decoded).ok()?;
    (decoded.len() as u64 <= max_len).then_some(decoded)
}

/// An encoder that writes to memory.
pub enum ContentEncoder {
    /// `br`.
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    /// `zstd`.
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// `gzip`.
    Gzip(GzEncoder<Vec<u8>>),
}

impl ContentEncoder {
    /// An encoder with these settings.
    ///
    /// # Errors
    /// The library does not take the settings.
    pub fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(match encoding.coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                4096,
                encoding.level.into(),
                encoding.window.unwrap_or(22).into(),
            ))),
            Coding::Zstd => Self::Zstd(zstd_encoder(encoding)?),
            Coding::Gzip | Coding::Identity => Self::Gzip(GzEncoder::new(
                Vec::new(),
                flate2::Compression::new(encoding.level.into()),
            )),
        })
    }

    /// Whether the encoder holds back twice its window unless it is flushed.
    pub(crate) fn holds_back(&self) -> bool {
        matches!(self, Self::Brotli(_))
    }

    /// Compresses some bytes.
    ///
    /// # Errors
    /// The library failed.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
            Self::Gzip(encoder) => encoder.write_all(bytes),
        }
    }

    /// Makes everything that was written so far readable for the client.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
            Self::Gzip(encoder) => encoder.flush(),
        }
    }

    /// The output since the last call.
    pub(crate) fn take(&mut self) -> Bytes {
        let output = match self {
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
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
            Self::Brotli(encoder) => encoder.into_inner(),
            Self::Zstd(encoder) => encoder.finish()?,
            Self::Gzip(encoder) => encoder.finish()?,
        };
        output.shrink_to_fit();
        Ok(output)
    }
}

fn zstd_encoder(encoding: Encoding) -> io::Result<zstd::stream::write::Encoder<'static, Vec<u8>>> {
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), encoding.level.into())?;
    encoder.set_pledged_src_size(encoding.length)?;
    if let Some(window) = encoding.window {
        encoder.window_log(window.into())?;
    }
    Ok(encoder)
}
