//! The framing of a message body, read and written (RFC 9112 sections 6 and 7).

use std::ops::Range;

use super::chunked::{self, ChunkedDecoder, Decoded};
use super::{BodyFraming, HeadLimits, ProtocolError};
use apus_http::Headers;

/// Content that is being read.
#[derive(Debug)]
pub(super) enum ContentReader {
    /// So many bytes are to come.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Box<ChunkedDecoder>),
    /// All that comes.
    UntilClose,
}

/// What a [`ContentReader`] found at the start of its input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Nothing before more input comes.
    Incomplete,
    /// This range of the input.
    Data(Range<usize>),
    /// The end, and the trailer section if it has one.
    End(Option<Headers>),
}

impl ContentReader {
    /// Reads chunked content of a message whose `Connection` has these values, joined.
    pub(super) fn chunked(connection: &[u8]) -> Self {
        Self::Chunked(Box::new(ChunkedDecoder::new(connection)))
    }

    /// Takes input up to the end of the first run of data in it, or to the end of the content. Tells
    /// how many bytes that is.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, Piece), ProtocolError> {
        let len = match self {
            Self::Length(0) => return Ok((0, Piece::End(None))),
            Self::Length(remaining) => {
                let len = usize::try_from(*remaining)
                    .unwrap_or(usize::MAX)
                    .min(input.len());
                *remaining = remaining.saturating_sub(len as u64);
                len
            }
            Self::UntilClose => input.len(),
            Self::Chunked(decoder) => {
                let (consumed, decoded) = decoder.decode(input, limits)?;
                let piece = match decoded {
                    Decoded::Incomplete => Piece::Incomplete,
                    Decoded::Data { skip, len } => Piece::Data(skip..skip.saturating_add(len)),
                    Decoded::End(trailers) => {
                        Piece::End(Some(trailers).filter(|trailers| !trailers.is_empty()))
                    }
                };
                return Ok((consumed, piece));
            }
        };
        match len {
            0 => Ok((0, Piece::Incomplete)),
            _ => Ok((len, Piece::Data(0..len))),
        }
    }
}

/// Content that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ContentWriter {
    pub(super) framing: BodyFraming,
    chunk_is_open: bool,
}

impl ContentWriter {
    pub(super) fn new(framing: BodyFraming) -> Self {
        Self {
            framing,
            chunk_is_open: false,
        }
    }

    /// Appends what stands before `len` bytes of data.
    pub(super) fn start_chunk(&mut self, len: usize, out: &mut Vec<u8>) {
        // A chunk of no data would be the last one.
        if self.framing == BodyFraming::Chunked && len > 0 {
            self.chunk_is_open = true;
            chunked::encode_size(len, out);
        }
    }

    /// Appends what stands behind the data of a chunk that was started.
    pub(super) fn end_chunk(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.chunk_is_open) {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends what ends the content.
    pub(super) fn end(self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        if self.framing == BodyFraming::Chunked {
            chunked::encode_end(trailers, out);
        }
    }
}
