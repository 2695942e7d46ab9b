//! The encoder of the content codings without the feature `codings`: there is none.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;

use crate::encoding::Encoding;

/// Compresses all of a body at once.
///
/// # Errors
/// Always: the feature `codings` is off.
pub fn compress(_: &[u8], encoding: Encoding) -> io::Result<Vec<u8>> {
    ContentEncoder::new(encoding)?.finish()
}

/// What a gzip file contains: nothing that can be read without the feature `codings`.
pub fn gunzip(_: &[u8], _: u64) -> Option<Vec<u8>> {
    None
}

/// An encoder that writes to memory.
pub struct ContentEncoder(Infallible);

impl ContentEncoder {
    /// An encoder with these settings.
    ///
    /// # Errors
    /// Always: the feature `codings` is off.
    pub fn new(_: Encoding) -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Whether the encoder holds back twice its window unless it is flushed.
    pub(crate) fn holds_back(&self) -> bool {
        match self.0 {}
    }

    /// Compresses some bytes.
    ///
    /// # Errors
    /// The library failed.
    pub fn write(&mut self, _: &[u8]) -> io::Result<()> {
        match self.0 {}
    }

    /// Makes everything that was written so far readable for the client.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        match self.0 {}
    }

    /// The output since the last call.
    pub(crate) fn take(&mut self) -> Bytes {
        match self.0 {}
    }

    /// Ends the encoding, and returns the output since the last call of `take`.
    ///
    /// # Errors
    /// The library failed.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {}
    }
}
