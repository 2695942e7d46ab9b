//! Chunked transfer coding (RFC 9112 section 7.1), both ways.

use super::line::LineReader;
use super::{HeadLimits, ProtocolError, field};
use apus_http::Headers;
use apus_http::grammar::{is_field_value, trim};
use apus_http::list;
use apus_http::trailers::may_trail;

/// Takes chunked content apart.
#[derive(Debug, Default)]
pub(super) struct ChunkedDecoder {
    state: State,
    /// Digits of the size so far.
    digits: u8,
    /// The size so far, then the bytes of the chunk that are to come.
    remaining: u64,
    /// Bytes of the extension of this chunk.
    extension: u32,
    /// Bytes of extensions of the chunks before.
    extensions: u32,
    trailer_lines: LineReader,
    /// Lines of the trailer section so far, with those that were left out.
    trailer_fields: usize,
    trailers: Headers,
    /// The values of the head's `Connection` fields, joined. What they name is no end-to-end field,
    /// in the trailer section neither (RFC 9110 section 7.6.1).
    connection: Box<[u8]>,
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Size,
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailers,
}

/// What a [`ChunkedDecoder`] found at the start of its input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// Nothing before more input comes.
    Incomplete,
    /// So many bytes of data, after `skip` bytes of framing.
    Data { skip: usize, len: usize },
    /// The end, with the trailer section.
    End(Headers),
}

impl ChunkedDecoder {
    /// Digits of a chunk size, leading zeros with them.
    const SIZE_DIGITS: u8 = 16;
    /// Bytes of the extension of one chunk.
    const CHUNK_EXTENSION: u32 = 256;
    /// Bytes of all chunk extensions of a message: nobody reads them, so that many cost nothing
    /// but time.
    const MESSAGE_EXTENSIONS: u32 = 16 * 1024;

    /// For the content of a message whose `Connection` has these values, joined.
    pub(super) fn new(connection: &[u8]) -> Self {
        Self {
            connection: connection.into(),
            ..Self::default()
        }
    }

    /// Takes input up to the end of the first run of data in it, or to the end of the content.
    /// Tells how many bytes that is.
    pub(super) fn decode(
        &mut self,
        input: &[u8],
        limits: &HeadLimits,
    ) -> Result<(usize, Decoded), ProtocolError> {
        let mut consumed = 0_usize;
        while let Some(rest @ [byte, ..]) = input.get(consumed..) {
            match (self.state, *byte) {
                (State::Data, _) => {
                    let len = usize::try_from(self.remaining)
                        .unwrap_or(usize::MAX)
                        .min(rest.len());
                    self.remaining = self.remaining.saturating_sub(len as u64);
                    if self.remaining == 0 {
                        self.state = State::DataReturn;
                    }
                    let data = Decoded::Data {
                        skip: consumed,
                        len,
                    };
                    return Ok((consumed.saturating_add(len), data));
                }
                (State::Trailers, _) => {
                    let Some((line, bytes)) = self.trailer_line(rest, limits)? else {
                        break;
                    };
                    consumed = consumed.saturating_add(bytes);
                    if line.is_empty() {
                        let trailers = std::mem::take(&mut self.trailers);
                        return Ok((consumed, Decoded::End(trailers)));
                    }
                    self.trailer_field(line, limits)?;
                    continue;
                }
                (state, byte) => self.state = self.framing(state, byte)?,
            }
            consumed = consumed.saturating_add(1);
        }
        Ok((consumed, Decoded::Incomplete))
    }

    /// The state after a byte of a chunk's size line, or of the line end after its data.
    fn framing(&mut self, state: State, byte: u8) -> Result<State, ProtocolError> {
        match (state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F')
                if self.digits < Self::SIZE_DIGITS =>
            {
                let digit = char::from(byte).to_digit(16).unwrap_or_default();
                self.digits = self.digits.saturating_add(1);
                // 16 digits fit.
                self.remaining = self.remaining.wrapping_shl(4) | u64::from(digit);
                Ok(State::Size)
            }
            (State::Size, b';') if self.digits > 0 => Ok(State::Extension),
            (State::Size, b'\r') if self.digits > 0 => Ok(State::SizeLineFeed),
            (State::Size, b'\n') if self.digits > 0 => Err(ProtocolError::BareLineFeed),
            (State::Size, _) => Err(ProtocolError::ChunkSize),
            (State::Extension, b'\r') => Ok(State::SizeLineFeed),
            (State::Extension, b'\n') => Err(ProtocolError::BareLineFeed),
            (State::Extension, byte) => {
                self.extension = self.extension.saturating_add(1);
                self.extensions = self.extensions.saturating_add(1);
                if is_field_value(byte)
                    && self.extension <= Self::CHUNK_EXTENSION
                    && self.extensions <= Self::MESSAGE_EXTENSIONS
                {
                    Ok(State::Extension)
                } else {
                    Err(ProtocolError::ChunkExtension)
                }
            }
            (State::SizeLineFeed, b'\n') => {
                self.digits = 0;
                self.extension = 0;
                Ok(if self.remaining == 0 {
                    State::Trailers
                } else {
                    State::Data
                })
            }
            (State::SizeLineFeed, _) => Err(ProtocolError::ChunkSize),
            (State::DataReturn, b'\r') => Ok(State::DataLineFeed),
            (State::DataReturn, b'\n') => Err(ProtocolError::BareLineFeed),
            (State::DataLineFeed, b'\n') => Ok(State::Size),
            (_, _) => Err(ProtocolError::ChunkEnd),
        }
    }

    fn trailer_line<'a>(
        &mut self,
        input: &'a [u8],
        limits: &HeadLimits,
    ) -> Result<Option<(&'a [u8], usize)>, ProtocolError> {
        let section = (limits.head_bytes, ProtocolError::HeadTooLarge);
        self.trailer_lines.next(input, section, section)
    }

    fn trailer_field(&mut self, line: &[u8], limits: &HeadLimits) -> Result<(), ProtocolError> {
        let (name, value) = field::split(line)?;
        // Those that are left out count as well, since each of them is compared.
        self.trailer_fields = self.trailer_fields.saturating_add(1);
        if self.trailer_fields > limits.fields {
            return Err(ProtocolError::TooManyFields);
        }
        let name = name.to_ascii_lowercase();
        if REFUSED_TRAILERS.contains(&name.as_slice()) {
            return Err(ProtocolError::TrailerField);
        }
        let is_named = || list::has_member(&self.connection, &name);
        if may_trail(&name) && !is_named() {
            self.trailers.push(&name, trim(value));
        }
        Ok(())
    }
}

/// Fields of framing and routing: in a trailer section they are an attack.
const REFUSED_TRAILERS: [&[u8]; 3] = [b"content-length", b"host", b"transfer-encoding"];

/// Appends the line before the data of a chunk. A size of 0 would end the content: it is for the
/// caller to leave out.
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
        if may_trail(name) {
            out.extend_from_slice(line);
        }
    }
    out.extend_from_slice(b"\r\n");
}
