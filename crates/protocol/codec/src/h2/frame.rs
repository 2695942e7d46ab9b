//! Encodes and decodes frames (RFC 9113 sections 4.1 and 6, RFC 9218 section 7.1).

use super::ErrorCode;

/// The connection preface of a client (section 3.4).
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Bytes of a frame header.
pub(super) const HEADER_BYTES: usize = 9;

/// The payload size that every peer accepts (section 6.5.2).
pub(super) const DEFAULT_MAX_PAYLOAD: usize = 16_384;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameType {
    Data,
    Headers,
    Priority,
    RstStream,
    Settings,
    PushPromise,
    Ping,
    GoAway,
    WindowUpdate,
    Continuation,
    PriorityUpdate,
    /// A type that has to be ignored (section 4.1).
    Unknown,
}

impl FrameType {
    fn of(byte: u8) -> Self {
        match byte {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x2 => Self::Priority,
            0x3 => Self::RstStream,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x6 => Self::Ping,
            0x7 => Self::GoAway,
            0x8 => Self::WindowUpdate,
            0x9 => Self::Continuation,
            0x10 => Self::PriorityUpdate,
            _ => Self::Unknown,
        }
    }
}

pub(super) const END_STREAM: u8 = 0x1;
pub(super) const ACK: u8 = 0x1;
pub(super) const END_HEADERS: u8 = 0x4;
pub(super) const PADDED: u8 = 0x8;
pub(super) const PRIORITY: u8 = 0x20;

/// The header of a received frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    pub(super) len: usize,
    pub(super) kind: FrameType,
    flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    /// Parses the header at the start of `input`; `None` if it is incomplete.
    pub(super) fn read(input: &[u8]) -> Option<Self> {
        let [a, b, c, kind, flags, stream @ ..] = *input.first_chunk::<HEADER_BYTES>()?;
        Some(Self {
            len: usize::try_from(u32::from_be_bytes([0, a, b, c])).unwrap_or(usize::MAX),
            kind: FrameType::of(kind),
            flags,
            stream: identifier(stream),
        })
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// A stream identifier or another number of 31 bits, after a reserved bit.
pub(super) fn identifier(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes) & 0x7fff_ffff
}

/// Appends a frame's header.
pub(super) fn header(len: usize, kind: u8, flags: u8, stream: u32, out: &mut Vec<u8>) {
    let [_, a, b, c] = u32::try_from(len).unwrap_or(0).to_be_bytes();
    let [d, e, f, g] = stream.to_be_bytes();
    out.extend_from_slice(&[a, b, c, kind, flags, d, e, f, g]);
}

/// Appends the header of a DATA frame.
pub(super) fn data(len: usize, end: bool, stream: u32, out: &mut Vec<u8>) {
    header(len, 0x0, if end { END_STREAM } else { 0 }, stream, out);
}

/// Appends RST_STREAM.
pub(super) fn rst_stream(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    header(4, 0x3, 0, stream, out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends SETTINGS.
pub(super) fn settings(settings: &[(u16, u32)], out: &mut Vec<u8>) {
    header(settings.len().saturating_mul(6), 0x4, 0, 0, out);
    for (setting, value) in settings {
        out.extend_from_slice(&setting.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of SETTINGS.
pub(super) fn settings_ack(out: &mut Vec<u8>) {
    header(0, 0x4, ACK, 0, out);
}

/// Appends PING.
pub(super) fn ping(opaque: [u8; 8], ack: bool, out: &mut Vec<u8>) {
    header(8, 0x6, if ack { ACK } else { 0 }, 0, out);
    out.extend_from_slice(&opaque);
}

/// Appends GOAWAY.
pub(super) fn go_away(last: u32, code: ErrorCode, debug: &str, out: &mut Vec<u8>) {
    header(debug.len().saturating_add(8), 0x7, 0, 0, out);
    out.extend_from_slice(&last.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
    out.extend_from_slice(debug.as_bytes());
}

/// Appends WINDOW_UPDATE.
pub(super) fn window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    header(4, 0x8, 0, stream, out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a field block as HEADERS and as many CONTINUATION frames as it needs.
///
/// `encode` appends the block. A block that fits into one frame is not copied.
pub(super) fn field_block(
    stream: u32,
    end: bool,
    max_payload: usize,
    out: &mut Vec<u8>,
    encode: impl FnOnce(&mut Vec<u8>),
) {
    let start = out.len();
    let end_stream = if end { END_STREAM } else { 0 };
    header(0, 0x1, end_stream | END_HEADERS, stream, out);
    encode(out);
    let block = start.saturating_add(HEADER_BYTES);
    let len = out.len().saturating_sub(block);
    if len <= max_payload {
        if let (Some(length), [_, a, b, c]) = (
            out.get_mut(start..).and_then(<[u8]>::first_chunk_mut),
            u32::try_from(len).unwrap_or(0).to_be_bytes(),
        ) {
            *length = [a, b, c];
        }
        return;
    }
    let encoded = out.split_off(block);
    out.truncate(start);
    let mut parts = encoded.chunks(max_payload.max(1)).peekable();
    let (mut kind, mut flags) = (0x1, end_stream);
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            flags |= END_HEADERS;
        }
        header(part.len(), kind, flags, stream, out);
        out.extend_from_slice(part);
        (kind, flags) = (0x9, 0);
    }
}

/// The payload of a frame without its padding (section 6.1); `None` if the padding is too long.
pub(super) fn without_padding(frame: FrameHeader, payload: &[u8]) -> Option<&[u8]> {
    if !frame.has(PADDED) {
        return Some(payload);
    }
    let (padding, rest) = payload.split_first()?;
    rest.get(..rest.len().checked_sub(usize::from(*padding))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_a_block_that_is_too_large_for_one_frame() {
        let mut out = vec![0xff];
        field_block(7, true, 4, &mut out, |out| {
            out.extend_from_slice(b"abcdefghij")
        });
        let mut expected = vec![0xff];
        header(4, 0x1, END_STREAM, 7, &mut expected);
        expected.extend_from_slice(b"abcd");
        header(4, 0x9, 0, 7, &mut expected);
        expected.extend_from_slice(b"efgh");
        header(2, 0x9, END_HEADERS, 7, &mut expected);
        expected.extend_from_slice(b"ij");
        assert_eq!(out, expected);
    }

    #[test]
    fn removes_padding_that_fits_the_frame() {
        let frame = FrameHeader::read(&[0, 0, 4, 0, PADDED, 0, 0, 0, 1]).unwrap();
        assert_eq!(without_padding(frame, &[2, 9, 0, 0]), Some(&[9][..]));
        assert_eq!(without_padding(frame, &[3, 0, 0, 0]), Some(&[][..]));
        assert_eq!(without_padding(frame, &[4, 0, 0, 0]), None);
        assert_eq!(without_padding(frame, &[]), None);
    }
}
