//! The encoders of Brotli and Zstandard.

use std::io::{self, Write};

use crate::encoding::Encoding;

/// `br`.
pub struct BrotliEncoder(Box<brotli::CompressorWriter<Vec<u8>>>);

/// `zstd`.
pub struct ZstdEncoder(zstd::stream::write::Encoder<'static, Vec<u8>>);

impl BrotliEncoder {
    pub(crate) fn new(encoding: Encoding) -> io::Result<Self> {
        Ok(Self(Box::new(brotli::CompressorWriter::new(
            Vec::new(),
            4096,
            encoding.level.into(),
            encoding.window.unwrap_or(22).into(),
        ))))
    }

    pub(crate) fn writer(&mut self) -> &mut impl Write {
        &mut self.0
    }

    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        self.0.get_mut()
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        Ok(self.0.into_inner())
    }
}

impl ZstdEncoder {
    pub(crate) fn new(encoding: Encoding) -> io::Result<Self> {
        let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), encoding.level.into())?;
        encoder.set_pledged_src_size(encoding.length)?;
        if let Some(window) = encoding.window {
            encoder.window_log(window.into())?;
        }
        Ok(Self(encoder))
    }

    pub(crate) fn writer(&mut self) -> &mut impl Write {
        &mut self.0
    }

    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        self.0.get_mut()
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        self.0.finish()
    }
}
