//! The encoders of the content codings, and the memory that each of them takes.

use std::io::{self, Write};

use apus_http::fields::Coding;
use apus_http::{ConnectionReservation, ResponseMemory};
use bytes::Bytes;

use crate::Compression;

/// The number of bytes that are compressed before other connections have their turn.
pub(crate) const PIECE: usize = 32 * 1024;

/// Compresses all of a body at once.
///
/// # Errors
/// The encoder does not take the settings.
pub fn compress(body: &[u8], encoding: Encoding) -> io::Result<Vec<u8>> {
    let mut encoder = ContentEncoder::new(encoding)?;
    encoder.write(body)?;
    encoder.finish()
}

/// A content coding, and the settings of its encoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// The content coding.
    pub coding: Coding,
    /// The level, in the range of the coding.
    pub level: u8,
    /// The base-2 logarithm of the window in bytes, for Brotli and Zstandard. Without one, Zstandard
    /// takes the best for its level and the length.
    pub window: Option<u8>,
    /// The length of the whole body, if it is known.
    pub length: Option<u64>,
}

impl Encoding {
    /// For a body that is compressed each time that it is sent. A small window makes text larger by a
    /// hundredth, and saves a megabyte of memory.
    pub fn of_dynamic(coding: Coding, compression: Compression) -> Self {
        Self {
            coding,
            level: match coding {
                Coding::Brotli => compression.brotli_level,
                Coding::Zstd => compression.zstd_level,
                Coding::Gzip | Coding::Identity => compression.gzip_level,
            },
            window: Some(17),
            length: None,
        }
    }

    /// The most bytes of memory that a body takes which is compressed like this as it is sent. The
    /// figures are measured and rounded up; `tests/encoder_memory` compares them with a new measurement.
    pub fn memory(self) -> u64 {
        let kilobytes: u64 = match (self.coding, self.level) {
            (Coding::Brotli, 0..=1) => 512,
            (Coding::Brotli, 2..=3) => 1280,
            (Coding::Brotli, 4) => 2048,
            (Coding::Brotli, 5) => 2560,
            (Coding::Brotli, 6) => 3584,
            (Coding::Brotli, 7) => 10 << 10,
            (Coding::Brotli, 8) => 18 << 10,
            (Coding::Brotli, 9) => 35 << 10,
            (Coding::Brotli, _) => 12 << 10,
            (Coding::Zstd, ..=2) => 1280,
            (Coding::Zstd, 3) => 1792,
            (Coding::Zstd, 4) => 3 << 10,
            (Coding::Zstd, 5..=6) => 3584,
            (Coding::Zstd, 7..=8) => 6 << 10,
            (Coding::Zstd, 9) => 11 << 10,
            (Coding::Zstd, 10..=11) => 21 << 10,
            (Coding::Zstd, 12) => 42 << 10,
            (Coding::Zstd, 13) => 34 << 10,
            (Coding::Zstd, 14) => 50 << 10,
            (Coding::Zstd, 15) => 66 << 10,
            (Coding::Zstd, 16..=18) => 51 << 10,
            (Coding::Zstd, _) => 83 << 10,
            (Coding::Gzip | Coding::Identity, _) => 512,
        };
        // With a piece before and behind it.
        (kilobytes << 10).saturating_add(2 * PIECE as u64)
    }

    /// Reserves the memory for a body that is sent over a connection.
    pub fn reserve(self, connection: u64) -> Option<ConnectionReservation> {
        ResponseMemory::of_process().reserve_for(connection, self.memory())
    }
}

/// An encoder that writes to memory.
pub enum ContentEncoder {
    /// `br`.
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    /// `zstd`.
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    /// `gzip`.
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl ContentEncoder {
    /// An encoder with these settings.
    ///
    /// # Errors
    /// The library does not take the settings.
    pub fn new(encoding: Encoding) -> io::Result<Self> {
        let output = Vec::new();
        Ok(match encoding.coding {
            Coding::Brotli => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                output,
                4096,
                encoding.level.into(),
                encoding.window.unwrap_or(22).into(),
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(output, encoding.level.into())?;
                encoder.set_pledged_src_size(encoding.length)?;
                if let Some(window) = encoding.window {
                    encoder.window_log(window.into())?;
                }
                Self::Zstd(encoder)
            }
            Coding::Gzip | Coding::Identity => Self::Gzip(flate2::write::GzEncoder::new(
                output,
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
