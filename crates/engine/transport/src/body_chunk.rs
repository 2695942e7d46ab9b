//! The part of a body that a stream of a connection sends next.

use apus_http::{Body, FileRange};
use bytes::Bytes;

/// Data to send.
#[derive(Default)]
pub enum BodyChunk {
    /// Nothing.
    #[default]
    Empty,
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of a file.
    File(FileRange),
    /// A part of a file that was read from a disk, and the rest of the file.
    Read(Box<(Bytes, FileRange)>),
}

/// The next part of a [`BodyChunk`] to send.
pub enum ChunkPart {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of a file.
    File(FileRange),
}

impl BodyChunk {
    /// Takes the next part to send: up to `most` bytes, or a whole file, of which the caller puts back the
    /// rest.
    pub fn split(&mut self, most: usize) -> Option<ChunkPart> {
        match std::mem::take(self) {
            Self::Empty => None,
            Self::Bytes(mut bytes) => {
                let part = bytes.split_to(bytes.len().min(most));
                if !bytes.is_empty() {
                    *self = Self::Bytes(bytes);
                }
                Some(ChunkPart::Bytes(part))
            }
            Self::Read(mut read) => {
                let (bytes, rest) = &mut *read;
                let part = bytes.split_to(bytes.len().min(most));
                *self = if bytes.is_empty() {
                    Self::file(rest.clone())
                } else {
                    Self::Read(read)
                };
                Some(ChunkPart::Bytes(part))
            }
            Self::File(range) => Some(ChunkPart::File(range)),
        }
    }
}

impl BodyChunk {
    /// The data of a part of a file, which may be empty.
    pub fn file(range: FileRange) -> Self {
        match range.len {
            0 => Self::Empty,
            _ => Self::File(range),
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Empty)
    }
}

impl From<Body> for BodyChunk {
    /// The data of a body that is available as a whole: none of a stream.
    fn from(body: Body) -> Self {
        match body {
            Body::Bytes(bytes) if !bytes.is_empty() => Self::Bytes(bytes),
            Body::Sealed(sealed) if !sealed.bytes().is_empty() => Self::Bytes(sealed.into_bytes()),
            Body::File(range) => Self::file(range),
            _ => Self::Empty,
        }
    }
}
