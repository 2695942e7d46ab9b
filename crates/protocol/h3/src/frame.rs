//! Frames (RFC 9114 section 7, RFC 9218 section 7.2).

use crate::varint;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    Data,
    Headers,
    CancelPush,
    Settings,
    PushPromise,
    GoAway,
    MaxPushId,
    /// PRIORITY_UPDATE for a request stream.
    RequestPriority,
    /// PRIORITY_UPDATE for a push.
    PushPriority,
    /// A type of HTTP/2 that is not allowed (section 7.2.8).
    Http2,
    /// A type that has to be ignored (section 9).
    Extension,
}

impl FrameKind {
    fn of(number: u64) -> Self {
        match number {
            0x0 => Self::Data,
            0x1 => Self::Headers,
            0x3 => Self::CancelPush,
            0x4 => Self::Settings,
            0x5 => Self::PushPromise,
            0x7 => Self::GoAway,
            0xd => Self::MaxPushId,
            0xf0700 => Self::RequestPriority,
            0xf0701 => Self::PushPriority,
            0x2 | 0x6 | 0x8 | 0x9 => Self::Http2,
            _ => Self::Extension,
        }
    }
}

/// The type of a frame, and the length of its payload in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameStart {
    pub(crate) kind: FrameKind,
    pub(crate) len: u64,
}

impl FrameStart {
    /// Takes type and length from `input`, of which `begun` has the first bytes. If they are incomplete, all of
    /// `input` is moved there.
    #[inline]
    pub(crate) fn take(begun: &mut Vec<u8>, input: &mut &[u8]) -> Option<Self> {
        // Nearly every start comes in one piece, and nothing is copied then.
        if begun.is_empty() {
            let mut rest = *input;
            if let Some(start) = Self::read(&mut rest) {
                *input = rest;
                return Some(start);
            }
        }
        let before = begun.len();
        // No more than a start is moved: what follows is the payload, which stays where it is.
        let missing = MAX_START_BYTES.saturating_sub(before).min(input.len());
        let (added, rest) = input.split_at_checked(missing)?;
        begun.extend_from_slice(added);
        let mut unread = begun.as_slice();
        let Some(start) = Self::read(&mut unread) else {
            *input = rest;
            return None;
        };
        let used = begun.len().saturating_sub(unread.len());
        *input = input.get(used.saturating_sub(before)..).unwrap_or_default();
        begun.clear();
        Some(start)
    }

    fn read(input: &mut &[u8]) -> Option<Self> {
        let kind = FrameKind::of(varint::take(input)?);
        let len = varint::take(input)?;
        Some(Self { kind, len })
    }
}

/// Bytes of the longest type and length.
const MAX_START_BYTES: usize = 2 * varint::MAX_BYTES;

/// Appends type and length of a DATA frame.
#[inline]
pub(crate) fn data(len: usize, out: &mut Vec<u8>) {
    out.push(0x0);
    varint::put(u64::try_from(len).unwrap_or(varint::MAX), out);
}

/// Appends a HEADERS frame, whose field section `encode` appends.
#[inline]
pub(crate) fn headers(out: &mut Vec<u8>, encode: impl FnOnce(&mut Vec<u8>)) {
    // Nearly every length fits two bytes.
    out.extend_from_slice(&[0x1, 0x40, 0]);
    let start = out.len();
    encode(out);
    let len = out.len().saturating_sub(start);
    let length_at = start.saturating_sub(2)..start;
    match varint::two_bytes(len) {
        Some(bytes) => {
            if let Some(length) = out.get_mut(length_at) {
                length.copy_from_slice(&bytes);
            }
        }
        None => {
            let mut length = Vec::with_capacity(varint::MAX_BYTES);
            varint::put(u64::try_from(len).unwrap_or(varint::MAX), &mut length);
            out.splice(length_at, length);
        }
    }
}

/// Appends GOAWAY.
pub(crate) fn go_away(id: u64, out: &mut Vec<u8>) {
    let mut payload = Vec::with_capacity(varint::MAX_BYTES);
    varint::put(id, &mut payload);
    whole(0x7, &payload, out);
}

/// Appends a frame with this payload.
pub(crate) fn whole(kind: u64, payload: &[u8], out: &mut Vec<u8>) {
    varint::put(kind, out);
    varint::put(u64::try_from(payload.len()).unwrap_or(varint::MAX), out);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_a_start_that_comes_in_pieces() {
        let bytes = [0x80, 0x0f, 0x07, 0x00, 0x7f, 0xff, 9, 9];
        let expected = FrameStart {
            kind: FrameKind::RequestPriority,
            len: 0x3fff,
        };
        for split in 0..bytes.len() {
            let mut begun = Vec::new();
            let (mut first, mut second) = bytes.split_at(split);
            let start = FrameStart::take(&mut begun, &mut first);
            if split < 6 {
                assert_eq!((start, first), (None, &[][..]));
                assert_eq!(FrameStart::take(&mut begun, &mut second), Some(expected));
                assert_eq!(second, [9, 9]);
            } else {
                assert_eq!(start, Some(expected));
                assert_eq!(first.len(), split - 6);
            }
            assert!(begun.is_empty());
        }
    }

    #[test]
    fn a_long_field_section_gets_a_longer_length() {
        for len in [0, 0x3fff, 0x4000] {
            let mut out = vec![7];
            headers(&mut out, |out| out.resize(out.len() + len, 8));
            let mut rest = &out[1..];
            let start = FrameStart::take(&mut Vec::new(), &mut rest).unwrap();
            assert_eq!((start.kind, start.len), (FrameKind::Headers, len as u64));
            assert_eq!(rest, vec![8; len]);
        }
    }
}
