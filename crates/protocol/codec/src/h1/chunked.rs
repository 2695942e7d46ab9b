//! Decodes and encodes the chunked transfer coding (RFC 9112 section 7.1).

use super::line::LineReader;
use super::{HeadLimits, Http1Error, field};
use apus_http::Headers;
use apus_http::grammar::{is_field_value, trim};
use apus_http::list;
use apus_http::trailers::is_allowed_in_trailers;

/// Decodes a chunked body.
#[derive(Debug, Default)]
pub(super) struct ChunkedDecoder {
    state: ChunkState,
    /// Digits of the chunk size that were read.
    digits: u8,
    /// The chunk size that was read so far, then the bytes of the chunk that are still expected.
    remaining: u64,
    /// Bytes of this chunk's extensions.
    extension: u32,
    /// Bytes of the extensions of all chunks.
    extensions: u32,
    trailer_lines: LineReader,
    /// Lines of the trailer section so far, including those that were dropped.
    trailer_fields: usize,
    trailers: Headers,
    /// The joined values of the head's `Connection` fields. The fields that they name are dropped from
    /// the trailer section, too (RFC 9110 section 7.6.1).
    connection: Box<[u8]>,
    /// Whether the message is a response, which has one recipient: whitespace after a chunk size and fields that no
    /// trailer section may have are dropped. In a request they are attacks on servers that read it differently.
    is_response: bool,
    /// Whether lines may end with LF alone, and lines without a colon are dropped.
    is_lenient: bool,
}

#[derive(Clone, Copy, Debug, Default)]
enum ChunkState {
    #[default]
    Size,
    SizeSpace,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailers,
}

/// The first piece that a [`ChunkedDecoder`] finds in its input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ChunkedPiece {
    /// More input is needed.
    Incomplete,
    /// `len` bytes of data after `skip` bytes of framing.
    Data { skip: usize, len: usize },
    /// The end of the body, with the trailer section.
    End(Headers),
}

impl ChunkedDecoder {
    /// Maximum digits of a chunk size, including leading zeros.
    // Sixteen hold 2^64 - 1. A parser that lets the number overflow reads another size than the one that does not;
    // leading zeros count, as they would otherwise be without an end.
    const SIZE_DIGITS: u8 = 16;
    /// Maximum bytes of one chunk's extensions.
    // CVE-2023-39326: extensions of megabytes around single bytes of data made servers read without any progress of
    // the body.
    const CHUNK_EXTENSION: u32 = 256;
    /// Maximum bytes of all chunk extensions of a message. Extensions are ignored, so long ones would
    /// only cost time.
    const MESSAGE_EXTENSIONS: u32 = 16 * 1024;

    /// A decoder for one body. `connection` is the joined values of the message's `Connection` fields.
    pub(super) fn new(connection: &[u8]) -> Self {
        Self {
            connection: connection.into(),
            ..Self::default()
        }
    }

    /// As [`Self::new`], for the body of a response.
    pub(super) fn of_response(connection: &[u8], is_lenient: bool) -> Self {
        let mut decoder = Self::new(connection);
        decoder.is_response = true;
        decoder.is_lenient = is_lenient;
        decoder.trailer_lines.is_lenient = is_lenient;
        decoder
    }

    /// Consumes input up to the end of the first run of data, or to the end of the body. Returns how
    /// many bytes that is.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, ChunkedPiece), Http1Error> {
        let mut consumed = 0_usize;
        while let Some(rest @ [byte, ..]) = input.get(consumed..) {
            match (self.state, *byte) {
                (ChunkState::Data, _) => {
                    let len = usize::try_from(self.remaining)
                        .unwrap_or(usize::MAX)
                        .min(rest.len());
                    self.remaining = self.remaining.saturating_sub(len as u64);
                    if self.remaining == 0 {
                        self.state = ChunkState::DataReturn;
                    }
                    let data = ChunkedPiece::Data {
                        skip: consumed,
                        len,
                    };
                    return Ok((consumed.saturating_add(len), data));
                }
                (ChunkState::Trailers, _) => {
                    let Some((line, bytes)) = self.trailer_line(rest, limits)? else {
                        break;
                    };
                    consumed = consumed.saturating_add(bytes);
                    if line.is_empty() {
                        let trailers = std::mem::take(&mut self.trailers);
                        return Ok((consumed, ChunkedPiece::End(trailers)));
                    }
                    self.trailer_field(line, limits)?;
                    continue;
                }
                (state, byte) => self.state = self.framing(state, byte)?,
            }
            consumed = consumed.saturating_add(1);
        }
        Ok((consumed, ChunkedPiece::Incomplete))
    }

    /// The state after a byte of a chunk's size line, or of the CRLF after its data.
    fn framing(&mut self, state: ChunkState, byte: u8) -> Result<ChunkState, Http1Error> {
        match (state, byte) {
            (ChunkState::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if self.digits < Self::SIZE_DIGITS =>
            {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.digits = self.digits.saturating_add(1);
                // 16 digits fit.
                self.remaining = self.remaining.wrapping_shl(4) | u64::from(digit);
                Ok(ChunkState::Size)
            }
            // An empty size is zero for some parsers, which is the end of the body.
            (ChunkState::Size, _) if self.digits == 0 => Err(Http1Error::ChunkSize),
            (ChunkState::Size | ChunkState::SizeSpace, b';') => Ok(ChunkState::Extension),
            (ChunkState::Size | ChunkState::SizeSpace | ChunkState::Extension, b'\r') => {
                Ok(ChunkState::SizeLineFeed)
            }
            (ChunkState::Size | ChunkState::SizeSpace | ChunkState::Extension, b'\n') => {
                if self.is_lenient {
                    Ok(self.end_of_size())
                } else {
                    Err(Http1Error::BareLineFeed)
                }
            }
            // BWS, which many servers send that write sizes of a fixed width (RFC 9112 section 7.1.1).
            (ChunkState::Size | ChunkState::SizeSpace, b' ' | b'\t') if self.is_response => {
                self.count_extension(byte)?;
                Ok(ChunkState::SizeSpace)
            }
            (ChunkState::Size | ChunkState::SizeSpace, _) => Err(Http1Error::ChunkSize),
            (ChunkState::Extension, byte) => {
                self.count_extension(byte)?;
                Ok(ChunkState::Extension)
            }
            (ChunkState::SizeLineFeed, b'\n') => Ok(self.end_of_size()),
            (ChunkState::SizeLineFeed, _) => Err(Http1Error::ChunkSize),
            (ChunkState::DataReturn, b'\r') => Ok(ChunkState::DataLineFeed),
            (ChunkState::DataReturn, b'\n') if self.is_lenient => Ok(ChunkState::Size),
            // A recipient that takes a bare LF for the end of a line, beside one that does not, finds another
            // chunk in the same bytes.
            (ChunkState::DataReturn, b'\n') => Err(Http1Error::BareLineFeed),
            (ChunkState::DataLineFeed, b'\n') => Ok(ChunkState::Size),
            // What follows the data must be its CRLF. Servers that skip two bytes unseen let a wrong size move the end
            // of the message.
            (_, _) => Err(Http1Error::ChunkEnd),
        }
    }

    /// The state behind the line of a chunk's size.
    fn end_of_size(&mut self) -> ChunkState {
        self.digits = 0;
        self.extension = 0;
        match self.remaining {
            0 => ChunkState::Trailers,
            _ => ChunkState::Data,
        }
    }

    /// Counts a byte of an extension, or of the whitespace before it.
    fn count_extension(&mut self, byte: u8) -> Result<(), Http1Error> {
        self.extension = self.extension.saturating_add(1);
        self.extensions = self.extensions.saturating_add(1);
        if is_field_value(byte)
            && self.extension <= Self::CHUNK_EXTENSION
            && self.extensions <= Self::MESSAGE_EXTENSIONS
        {
            Ok(())
        } else {
            Err(Http1Error::ChunkExtension)
        }
    }

    fn trailer_line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &HeadLimits,
    ) -> Result<Option<(&'a [u8], usize)>, Http1Error> {
        let section = (limits.head_bytes, Http1Error::HeadTooLarge);
        self.trailer_lines.next(input, section, section)
    }

    fn trailer_field(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), Http1Error> {
        // Dropped fields count as well, because each of them costs comparisons.
        self.trailer_fields = self.trailer_fields.saturating_add(1);
        if self.trailer_fields > limits.fields {
            return Err(Http1Error::TooManyFields);
        }
        if self.is_lenient && field::is_no_field(line) {
            return Ok(());
        }
        let (name, value) = field::split(line)?;
        let name = name.to_ascii_lowercase();
        if !self.is_response && REFUSED_TRAILERS.contains(&name.as_slice()) {
            return Err(Http1Error::TrailerField);
        }
        let is_named = || list::has_member(&self.connection, &name);
        // RFC 9110 section 6.5.1: trailers that frame, route or authenticate would change a message that has been
        // processed already. They are dropped and not refused, as origins send them by mistake.
        if is_allowed_in_trailers(&name) && !is_named() {
            self.trailers.push(&name, trim(value));
        }
        Ok(())
    }
}

/// Fields of framing and routing, which only an attack puts into the trailer section of a request.
const REFUSED_TRAILERS: [&[u8]; 3] = [b"content-length", b"host", b"transfer-encoding"];

/// Appends the line before the data of a chunk. The caller must not pass 0, which would end the body.
pub(super) fn encode_size(size: usize, out: &mut Vec<u8>) {
    let mut digits = [0; 16];
    let mut rest = size;
    let mut used = 0_usize;
    for digit in digits.iter_mut().rev() {
        *digit = char::from_digit((rest & 0xf) as u32, 16).map_or(b'0', |digit| digit as u8);
        used = used.saturating_add(1);
        rest = rest.wrapping_shr(4);
        if rest == 0 {
            break;
        }
    }
    let start = digits.len().saturating_sub(used);
    out.extend_from_slice(digits.get(start..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// Appends the last chunk and the trailer section.
pub(super) fn encode_end(trailers: Option<&Headers>, out: &mut Vec<u8>) {
    out.extend_from_slice(b"0\r\n");
    for (name, _, line) in trailers.iter().flat_map(|trailers| trailers.wire_lines()) {
        if is_allowed_in_trailers(name) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(b"\r\n");
}
