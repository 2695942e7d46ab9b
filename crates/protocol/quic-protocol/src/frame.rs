//! Frames (RFC 9000 section 19).

use std::ops::RangeInclusive;

use crate::connection_id::{ConnectionId, RESET_TOKEN_LENGTH, ResetToken};
use crate::error::TransportError;
use crate::range_set::RangeSet;
use crate::recovery::EcnCounts;
use crate::stream_id::{Dir, StreamId};
use crate::varint::{self, Reader};

/// The most streams of a kind (section 4.6).
pub(crate) const MAX_STREAM_COUNT: u64 = 1 << 60;
/// The most bytes of a reason that is sent.
const MAX_REASON: usize = 512;

/// The types of frames.
pub(crate) mod kind {
    pub(crate) const PADDING: u8 = 0x00;
    pub(crate) const PING: u8 = 0x01;
    pub(crate) const ACK: u8 = 0x02;
    pub(crate) const ACK_ECN: u8 = 0x03;
    pub(crate) const RESET_STREAM: u8 = 0x04;
    pub(crate) const STOP_SENDING: u8 = 0x05;
    pub(crate) const CRYPTO: u8 = 0x06;
    pub(crate) const NEW_TOKEN: u8 = 0x07;
    pub(crate) const STREAM: u8 = 0x08;
    pub(crate) const STREAM_LAST: u8 = 0x0f;
    pub(crate) const MAX_DATA: u8 = 0x10;
    pub(crate) const MAX_STREAM_DATA: u8 = 0x11;
    pub(crate) const MAX_STREAMS_BIDI: u8 = 0x12;
    pub(crate) const MAX_STREAMS_UNI: u8 = 0x13;
    pub(crate) const DATA_BLOCKED: u8 = 0x14;
    pub(crate) const STREAM_DATA_BLOCKED: u8 = 0x15;
    pub(crate) const STREAMS_BLOCKED_BIDI: u8 = 0x16;
    pub(crate) const STREAMS_BLOCKED_UNI: u8 = 0x17;
    pub(crate) const NEW_CONNECTION_ID: u8 = 0x18;
    pub(crate) const RETIRE_CONNECTION_ID: u8 = 0x19;
    pub(crate) const PATH_CHALLENGE: u8 = 0x1a;
    pub(crate) const PATH_RESPONSE: u8 = 0x1b;
    pub(crate) const CONNECTION_CLOSE: u8 = 0x1c;
    pub(crate) const APPLICATION_CLOSE: u8 = 0x1d;
    pub(crate) const HANDSHAKE_DONE: u8 = 0x1e;
}

/// The bits in the type of a STREAM frame (section 19.8).
const STREAM_OFFSET: u8 = 0x04;
const STREAM_LENGTH: u8 = 0x02;
const STREAM_FIN: u8 = 0x01;

/// A frame. A run of PADDING frames is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum QuicFrame<'a> {
    Padding,
    Ping,
    Ack(Ack<'a>),
    ResetStream {
        stream: StreamId,
        code: u64,
        final_size: u64,
    },
    StopSending {
        stream: StreamId,
        code: u64,
    },
    Crypto {
        offset: u64,
        data: &'a [u8],
    },
    NewToken(&'a [u8]),
    Stream(StreamFrame<'a>),
    MaxData(u64),
    MaxStreamData {
        stream: StreamId,
        most: u64,
    },
    MaxStreams {
        direction: Dir,
        most: u64,
    },
    DataBlocked,
    StreamDataBlocked(StreamId),
    StreamsBlocked,
    NewConnectionId(NewConnectionId),
    RetireConnectionId(u64),
    PathChallenge([u8; 8]),
    PathResponse([u8; 8]),
    Close {
        /// Whether the application closed the connection, not the transport.
        by_application: bool,
        code: u64,
        reason: &'a [u8],
    },
    HandshakeDone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamFrame<'a> {
    pub(crate) stream: StreamId,
    pub(crate) offset: u64,
    pub(crate) data: &'a [u8],
    pub(crate) fin: bool,
}

/// An ACK frame, whose ranges are valid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ack<'a> {
    pub(crate) largest: u64,
    /// In units of the exponent that the peer announced.
    pub(crate) delay: u64,
    first_range: u64,
    /// Pairs of gap and length.
    ranges: &'a [u8],
    pub(crate) ecn: Option<EcnCounts>,
}

impl<'a> Ack<'a> {
    /// In descending order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = RangeInclusive<u64>> + use<'a> {
        let smallest = self.largest.saturating_sub(self.first_range);
        let mut reader = Reader::new(self.ranges);
        let mut before = smallest;
        let rest = std::iter::from_fn(move || {
            let largest = before.checked_sub(reader.integer()?)?.checked_sub(2)?;
            before = largest.checked_sub(reader.integer()?)?;
            Some(before..=largest)
        });
        std::iter::once(smallest..=self.largest).chain(rest)
    }

    /// Whether it has one range.
    pub(crate) fn is_single_range(&self) -> bool {
        self.ranges.is_empty()
    }

    fn read(reader: &mut Reader<'a>, has_ecn: bool) -> Option<Self> {
        let largest = reader.integer()?;
        let delay = reader.integer()?;
        let count = reader.integer()?;
        let first_range = reader.integer()?;
        let mut smallest = largest.checked_sub(first_range)?;
        let before = *reader;
        for _ in 0..count {
            smallest = smallest.checked_sub(reader.integer()?)?.checked_sub(2)?;
            smallest = smallest.checked_sub(reader.integer()?)?;
        }
        let mut ranges = before;
        let ranges = ranges.bytes(before.remaining() - reader.remaining())?;
        let ecn = if has_ecn {
            Some(EcnCounts {
                ect0: reader.integer()?,
                ect1: reader.integer()?,
                ce: reader.integer()?,
            })
        } else {
            None
        };
        Some(Self {
            largest,
            delay,
            first_range,
            ranges,
            ecn,
        })
    }
}

/// A connection ID that its issuer offers (section 19.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NewConnectionId {
    pub(crate) sequence: u64,
    pub(crate) retire_prior_to: u64,
    pub(crate) id: ConnectionId,
    pub(crate) reset_token: ResetToken,
}

impl<'a> QuicFrame<'a> {
    /// Reads the next frame of a payload, which is not at its end.
    #[inline]
    pub(crate) fn read(reader: &mut Reader<'a>) -> Result<Self, TransportError> {
        let kind = reader.integer();
        let error = || TransportError {
            frame: kind,
            ..TransportError::frame_encoding("a frame that is cut off or has invalid fields")
        };
        let kind = kind
            .and_then(|kind| u8::try_from(kind).ok())
            .ok_or_else(error)?;
        match kind {
            kind::STREAM..=kind::STREAM_LAST => StreamFrame::read(reader, kind).map(Self::Stream),
            kind::ACK => Ack::read(reader, false).map(Self::Ack),
            kind::ACK_ECN => Ack::read(reader, true).map(Self::Ack),
            kind::PADDING => {
                reader.skip_zeros();
                Some(Self::Padding)
            }
            _ => Self::read_other(reader, kind),
        }
        .ok_or_else(error)
    }

    fn read_other(reader: &mut Reader<'a>, kind: u8) -> Option<Self> {
        Some(match kind {
            kind::PING => Self::Ping,
            kind::RESET_STREAM => Self::ResetStream {
                stream: reader.integer()?.into(),
                code: reader.integer()?,
                final_size: reader.integer()?,
            },
            kind::STOP_SENDING => Self::StopSending {
                stream: reader.integer()?.into(),
                code: reader.integer()?,
            },
            kind::CRYPTO => Self::Crypto {
                offset: reader.integer()?,
                data: reader.prefixed()?,
            },
            kind::NEW_TOKEN => Self::NewToken(reader.prefixed().filter(|token| !token.is_empty())?),
            kind::MAX_DATA => Self::MaxData(reader.integer()?),
            kind::MAX_STREAM_DATA => Self::MaxStreamData {
                stream: reader.integer()?.into(),
                most: reader.integer()?,
            },
            kind::MAX_STREAMS_BIDI | kind::MAX_STREAMS_UNI => Self::MaxStreams {
                direction: match kind {
                    kind::MAX_STREAMS_BIDI => Dir::Bi,
                    _ => Dir::Uni,
                },
                most: reader.integer().filter(|most| *most <= MAX_STREAM_COUNT)?,
            },
            kind::DATA_BLOCKED => {
                reader.integer()?;
                Self::DataBlocked
            }
            kind::STREAM_DATA_BLOCKED => {
                let stream = reader.integer()?.into();
                reader.integer()?;
                Self::StreamDataBlocked(stream)
            }
            kind::STREAMS_BLOCKED_BIDI | kind::STREAMS_BLOCKED_UNI => {
                reader
                    .integer()
                    .filter(|limit| *limit <= MAX_STREAM_COUNT)?;
                Self::StreamsBlocked
            }
            kind::NEW_CONNECTION_ID => Self::NewConnectionId(NewConnectionId::read(reader)?),
            kind::RETIRE_CONNECTION_ID => Self::RetireConnectionId(reader.integer()?),
            kind::PATH_CHALLENGE => Self::PathChallenge(reader.array()?),
            kind::PATH_RESPONSE => Self::PathResponse(reader.array()?),
            kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => {
                let code = reader.integer()?;
                if kind == kind::CONNECTION_CLOSE {
                    reader.integer()?;
                }
                Self::Close {
                    by_application: kind == kind::APPLICATION_CLOSE,
                    code,
                    reason: reader.prefixed()?,
                }
            }
            kind::HANDSHAKE_DONE => Self::HandshakeDone,
            _ => return None,
        })
    }

    /// Whether a packet with it has to be acknowledged (section 13.2).
    pub(crate) fn is_ack_eliciting(&self) -> bool {
        !matches!(self, Self::Padding | Self::Ack(_) | Self::Close { .. })
    }

    /// Whether Initial and Handshake packets may have it (section 12.4).
    pub(crate) fn is_for_handshake(&self) -> bool {
        matches!(
            self,
            Self::Padding
                | Self::Ping
                | Self::Ack(_)
                | Self::Crypto { .. }
                | Self::Close {
                    by_application: false,
                    ..
                }
        )
    }

    /// Whether 0-RTT packets may have it (section 12.4).
    pub(crate) fn is_for_early_data(&self) -> bool {
        !matches!(
            self,
            Self::Ack(_)
                | Self::Crypto { .. }
                | Self::NewToken(_)
                | Self::PathResponse(_)
                | Self::RetireConnectionId(_)
                | Self::HandshakeDone
        )
    }

    /// Whether a packet that has only such frames probes a path (section 9.1).
    pub(crate) fn is_probing(&self) -> bool {
        matches!(
            self,
            Self::Padding
                | Self::PathChallenge(_)
                | Self::PathResponse(_)
                | Self::NewConnectionId(_)
        )
    }
}

impl<'a> StreamFrame<'a> {
    #[inline]
    fn read(reader: &mut Reader<'a>, kind: u8) -> Option<Self> {
        Some(Self {
            stream: reader.integer()?.into(),
            offset: match kind & STREAM_OFFSET {
                0 => 0,
                _ => reader.integer()?,
            },
            data: match kind & STREAM_LENGTH {
                0 => reader.rest(),
                _ => reader.prefixed()?,
            },
            fin: kind & STREAM_FIN != 0,
        })
    }
}

impl NewConnectionId {
    fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let sequence = reader.integer()?;
        let retire_prior_to = reader.integer().filter(|number| *number <= sequence)?;
        let length = reader.byte().filter(|length| *length > 0)?;
        Some(Self {
            sequence,
            retire_prior_to,
            id: ConnectionId::checked(reader.bytes(length.into())?)?,
            reset_token: ResetToken(reader.array::<RESET_TOKEN_LENGTH>()?),
        })
    }

    pub(crate) fn write(&self, buffer: &mut Vec<u8>) {
        write_integers(
            kind::NEW_CONNECTION_ID,
            [self.sequence, self.retire_prior_to],
            buffer,
        );
        buffer.push(self.id.len() as u8);
        buffer.extend_from_slice(&self.id);
        buffer.extend_from_slice(&self.reset_token.0);
    }

    /// The most bytes of the frame.
    pub(crate) const MAX: usize = 1 + 8 + 8 + 1 + 20 + RESET_TOKEN_LENGTH;
}

/// Writes a frame that has only integers.
pub(crate) fn write_integers<const COUNT: usize>(
    kind: u8,
    integers: [u64; COUNT],
    buffer: &mut Vec<u8>,
) {
    buffer.push(kind);
    for integer in integers {
        varint::write(integer, buffer);
    }
}

/// The most bytes of a frame that has this many integers.
pub(crate) const fn most_of_integers(count: usize) -> usize {
    1 + 8 * count
}

/// Writes an ACK frame of at most `most` bytes for the largest of these packet numbers. Returns `false` if not even one
/// range has room.
pub(crate) fn write_ack(
    received: &RangeSet,
    delay: u64,
    ecn: Option<EcnCounts>,
    most: usize,
    buffer: &mut Vec<u8>,
) -> bool {
    /// The most bytes without further ranges.
    const MIN: usize = 1 + 8 * 3 + 2 + 8 * 3;
    /// The most ranges, so that their count has one byte.
    const MAX_RANGES: usize = 32;

    let mut ranges = received.iter().rev();
    let Some(first) = ranges.next().filter(|_| most >= MIN) else {
        return false;
    };
    let kind = match ecn {
        Some(_) => kind::ACK_ECN,
        None => kind::ACK,
    };
    let begin = buffer.len();
    write_integers(kind, [first.end - 1, delay], buffer);
    // The number of further ranges, which is known later.
    let count_at = buffer.len();
    buffer.push(0);
    varint::write(first.end - first.start - 1, buffer);
    let mut count = 0;
    let mut before = first.start;
    for range in ranges.take(MAX_RANGES) {
        let gap = before - range.end - 1;
        let length = range.end - range.start - 1;
        let size = varint::size(gap) + varint::size(length);
        // Room for the counts of ECN.
        if buffer.len() - begin + size + 24 > most {
            break;
        }
        varint::write(gap, buffer);
        varint::write(length, buffer);
        before = range.start;
        count += 1;
    }
    if let Some(place) = buffer.get_mut(count_at) {
        *place = count;
    }
    if let Some(ecn) = ecn {
        for integer in [ecn.ect0, ecn.ect1, ecn.ce] {
            varint::write(integer, buffer);
        }
    }
    true
}

/// The bytes of a STREAM frame before its data, if the frame is the last one of its packet.
#[inline]
pub(crate) fn stream_header_size(stream: StreamId, offset: u64) -> usize {
    let offset_size = if offset == 0 { 0 } else { varint::size(offset) };
    1 + varint::size(stream.into()) + offset_size
}

/// Writes the part of a STREAM frame before its data. Without a length, the data extends to the end of the packet.
#[inline]
pub(crate) fn write_stream_header(
    stream: StreamId,
    offset: u64,
    length: Option<u64>,
    fin: bool,
    buffer: &mut Vec<u8>,
) {
    let mut kind = kind::STREAM;
    if offset != 0 {
        kind |= STREAM_OFFSET;
    }
    if length.is_some() {
        kind |= STREAM_LENGTH;
    }
    if fin {
        kind |= STREAM_FIN;
    }
    buffer.push(kind);
    varint::write(stream.into(), buffer);
    if offset != 0 {
        varint::write(offset, buffer);
    }
    if let Some(length) = length {
        varint::write(length, buffer);
    }
}

/// Writes a frame that closes the connection, with as much of the reason as has room.
pub(crate) fn write_close(
    by_application: bool,
    code: u64,
    frame: u64,
    reason: &[u8],
    most: usize,
    buffer: &mut Vec<u8>,
) {
    if by_application {
        write_integers(kind::APPLICATION_CLOSE, [code], buffer)
    } else {
        write_integers(kind::CONNECTION_CLOSE, [code, frame], buffer)
    }
    let room = most.saturating_sub(most_of_integers(2) + 2).min(MAX_REASON);
    let reason = reason.get(..room).unwrap_or(reason);
    varint::write(reason.len() as u64, buffer);
    buffer.extend_from_slice(reason);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(bytes: &[u8]) -> Result<QuicFrame<'_>, TransportError> {
        QuicFrame::read(&mut Reader::new(bytes))
    }

    proptest! {
        #[test]
        fn any_bytes_are_frames_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 1..100)) {
            let mut reader = Reader::new(&bytes);
            while !reader.is_empty() {
                match QuicFrame::read(&mut reader) {
                    Ok(QuicFrame::Ack(ack)) => prop_assert!(ack.ranges().count() > 0),
                    Ok(_) => {}
                    Err(_) => break,
                }
            }
        }

        #[test]
        fn acknowledged_ranges_are_read_as_they_were_written(
            ranges in proptest::collection::vec((0u64..1 << 40, 1u64..300), 1..40)
        ) {
            let mut received = RangeSet::default();
            for (start, length) in ranges {
                received.insert(start..start + length);
            }
            let mut buffer = Vec::new();
            let ecn = EcnCounts { ect0: 1, ect1: 2, ce: 3 };
            prop_assert!(write_ack(&received, 9, Some(ecn), 10_000, &mut buffer));
            let Ok(QuicFrame::Ack(ack)) = read(&buffer) else { panic!("no ACK") };
            prop_assert_eq!((ack.delay, ack.ecn), (9, Some(ecn)));
            let expected: Vec<_> = received.iter().rev().take(33).map(|range| range.start..=range.end - 1).collect();
            prop_assert_eq!(ack.ranges().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_ack_fits_into_its_room() {
        let mut received = RangeSet::default();
        for number in 0..100 {
            received.insert(number << 20..(number << 20) + 1);
        }
        for most in 0..400 {
            let mut buffer = Vec::new();
            let is_written = write_ack(&received, 0, None, most, &mut buffer);
            assert_eq!(is_written, !buffer.is_empty());
            assert!(buffer.len() <= most);
            if is_written {
                assert!(matches!(read(&buffer), Ok(QuicFrame::Ack(_))));
            }
        }
    }

    #[test]
    fn stream_frames_are_read_as_they_were_written() {
        for offset in [0, 1, 1 << 40] {
            for length in [None, Some(4)] {
                for fin in [false, true] {
                    let stream = StreamId::from(900);
                    let mut buffer = Vec::new();
                    write_stream_header(stream, offset, length, fin, &mut buffer);
                    if length.is_none() {
                        assert_eq!(buffer.len(), stream_header_size(stream, offset));
                    }
                    buffer.extend(b"data");
                    let data = &b"data"[..];
                    let expected = StreamFrame {
                        stream,
                        offset,
                        data,
                        fin,
                    };
                    assert_eq!(read(&buffer), Ok(QuicFrame::Stream(expected)));
                }
            }
        }
    }

    #[test]
    fn a_reason_is_cut_off_where_there_is_no_room() {
        let mut buffer = Vec::new();
        write_close(true, 7, 0, &[b'a'; 2_000], 100, &mut buffer);
        assert!(buffer.len() <= 100);
        let Ok(QuicFrame::Close {
            by_application: true,
            code: 7,
            reason,
        }) = read(&buffer)
        else {
            panic!("no CONNECTION_CLOSE");
        };
        assert!(reason.len() > 70);
    }

    #[test]
    fn unknown_types_are_errors() {
        for kind in [0x1f, 0x20, 0x30, 0x31, 0xff] {
            let mut buffer = Vec::new();
            varint::write(kind, &mut buffer);
            buffer.resize(50, 0);
            let error = read(&buffer).unwrap_err();
            assert_eq!(error.frame, Some(kind));
        }
    }
}
