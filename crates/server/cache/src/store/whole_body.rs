//! A complete body in memory, in the form that is cheapest to send.

use std::ops::Range;

use apus_http::{Body, SealedMemory};
use bytes::{Bytes, BytesMut};

/// The complete body of an object. A long one is in a sealed memfd, for `sendfile`.
#[derive(Debug)]
pub(crate) struct WholeBody {
    bytes: Bytes,
    sealed: Option<SealedMemory>,
}

impl WholeBody {
    /// Copies the pieces of the body into a buffer of their exact size.
    pub(crate) fn gather<'a>(pieces: impl Iterator<Item = &'a [u8]> + Clone) -> Self {
        if let Some(sealed) = SealedMemory::gather(pieces.clone()) {
            return sealed.into();
        }
        let mut joined = BytesMut::with_capacity(pieces.clone().map(<[u8]>::len).sum());
        for piece in pieces {
            joined.extend_from_slice(piece);
        }
        Self {
            bytes: joined.freeze(),
            sealed: None,
        }
    }

    /// Takes the body, and copies it only if that makes sending cheaper.
    pub(crate) fn new(bytes: Bytes) -> Self {
        match SealedMemory::gather(std::iter::once(&bytes[..])) {
            Some(sealed) => sealed.into(),
            None => Self {
                bytes,
                sealed: None,
            },
        }
    }

    pub(crate) fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// `range` of it, or all of it, as the body of a response.
    pub(crate) fn body(&self, range: Option<Range<u64>>) -> Body {
        let range = range.unwrap_or(0..u64::MAX);
        let at = |position| usize::try_from(position).unwrap_or(usize::MAX);
        let end = at(range.end).min(self.bytes.len());
        let start = at(range.start).min(end);
        match &self.sealed {
            // `sendfile` saves the copy into the memory of the socket for each client. For less than this, one write
            // together with the head costs no more than the second system call.
            Some(sealed) if end.saturating_sub(start) >= SealedMemory::SHORTEST => {
                sealed.slice(start..end).into()
            }
            _ => self.bytes.slice(start..end).into(),
        }
    }
}

impl From<SealedMemory> for WholeBody {
    fn from(sealed: SealedMemory) -> Self {
        Self {
            bytes: sealed.bytes().clone(),
            sealed: Some(sealed),
        }
    }
}
