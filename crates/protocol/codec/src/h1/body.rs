//! Reads and writes framed message bodies (RFC 9112 sections 6 and 7).

use std::ops::Range;

use super::chunked::{self, ChunkedDecoder, ChunkedPiece};
use super::{BodyFraming, HeadLimits, Http1Error};
use apus_http::Headers;

/// Finds the data of a message body in the input.
#[derive(Debug)]
pub(super) enum BodyReader {
    /// This many bytes are still expected.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Box<ChunkedDecoder>),
    /// Everything up to the end of the connection.
    UntilClose,
}

/// The first piece that a [`BodyReader`] finds in its input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BodyPiece {
    /// More input is needed.
    Incomplete,
    /// Data in this range of the input.
    Data(Range<usize>),
    /// The end of the body, with the trailer section if there is one.
    End(Option<Headers>),
}

impl BodyReader {
    /// A reader for a chunked body. `connection` is the joined values of the message's `Connection`
    /// fields.
    pub(super) fn chunked(connection: &[u8]) -> Self {
        Self::Chunked(Box::new(ChunkedDecoder::new(connection)))
    }

    /// As [`Self::chunked`], for the body of a response.
    pub(super) fn chunked_response(connection: &[u8], is_lenient: bool) -> Self {
        Self::Chunked(Box::new(ChunkedDecoder::of_response(
            connection, is_lenient,
        )))
    }

    /// Consumes input up to the end of the first run of data, or to the end of the body. Returns
    /// how many bytes that is.
    pub(super) fn read(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, BodyPiece), Http1Error> {
        let len = match self {
            Self::Length(0) => return Ok((0, BodyPiece::End(None))),
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
                    ChunkedPiece::Incomplete => BodyPiece::Incomplete,
                    ChunkedPiece::Data { skip, len } => {
                        BodyPiece::Data(skip..skip.saturating_add(len))
                    }
                    ChunkedPiece::End(trailers) => {
                        BodyPiece::End(Some(trailers).filter(|trailers| !trailers.is_empty()))
                    }
                };
                return Ok((consumed, piece));
            }
        };
        match len {
            0 => Ok((0, BodyPiece::Incomplete)),
            _ => Ok((len, BodyPiece::Data(0..len))),
        }
    }
}

/// Writes the framing around the data of a message body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BodyWriter {
    pub(super) framing: BodyFraming,
    chunk_is_open: bool,
}

impl BodyWriter {
    pub(super) fn new(framing: BodyFraming) -> Self {
        Self {
            framing,
            chunk_is_open: false,
        }
    }

    /// Appends the framing before `len` bytes of data.
    pub(super) fn start_chunk(&mut self, len: usize, out: &mut Vec<u8>) {
        // An empty chunk would end the body.
        if self.framing == BodyFraming::Chunked && len > 0 {
            self.chunk_is_open = true;
            chunked::encode_size(len, out);
        }
    }

    /// Appends the framing after the data of the open chunk.
    pub(super) fn end_chunk(&mut self, out: &mut Vec<u8>) {
        if std::mem::take(&mut self.chunk_is_open) {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the end of the body.
    pub(super) fn end(self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        if self.framing == BodyFraming::Chunked {
            chunked::encode_end(trailers, out);
        }
    }
}
