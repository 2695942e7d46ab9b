//! The encoders of Brotli and Zstandard without the feature `codings`: there are none.

use std::convert::Infallible;
use std::io;

use crate::encoding::Encoding;

/// `br`.
pub struct BrotliEncoder(Infallible);

/// `zstd`.
pub struct ZstdEncoder(Infallible);

impl BrotliEncoder {
    pub(crate) fn new(_: Encoding) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn writer(&mut self) -> &mut io::Sink {
        match self.0 {}
    }

    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {}
    }
}

impl ZstdEncoder {
    pub(crate) fn new(_: Encoding) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(crate) fn writer(&mut self) -> &mut io::Sink {
        match self.0 {}
    }

    pub(crate) fn output(&mut self) -> &mut Vec<u8> {
        match self.0 {}
    }

    pub(crate) fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {}
    }
}
