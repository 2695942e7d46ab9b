//! Packet headers and packet protection (RFC 9000 section 17, RFC 9001 section 5.4).

use std::ops::Range;

use rustls::quic::{HeaderProtectionKey, PacketKey};

use crate::connection_id::ConnectionId;
use crate::varint::{self, Reader};
use crate::version::QuicVersion;

/// The bit of long headers.
pub(crate) const LONG_HEADER: u8 = 0x80;
/// The bit that is set unless the peer allows otherwise (RFC 9287).
pub(crate) const FIXED_BIT: u8 = 0x40;
/// The bit of the key phase in short headers.
pub(crate) const KEY_PHASE: u8 = 0x04;
/// The reserved bits of long and short headers.
const LONG_RESERVED: u8 = 0x0c;
const SHORT_RESERVED: u8 = 0x18;
/// The bytes after the start of the packet number at which the sample for header protection begins, and its bytes.
const SAMPLE_AT: usize = 4;
const SAMPLE: usize = 16;
/// The bytes of the tag of a packet or of a Retry packet.
pub(crate) const TAG: usize = 16;
/// The bytes of the Length field of packets that are sent.
// The length is written once the packet is complete. A field of fixed size needs no move of the payload, and two bytes
// hold 16,383.
const LENGTH: usize = 2;

/// A packet number space (RFC 9000 section 12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    Initial,
    Handshake,
    Data,
}

impl Space {
    pub(crate) const ALL: [Self; 3] = [Self::Initial, Self::Handshake, Self::Data];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketKind {
    /// Initial.
    Initial,
    /// 0-RTT.
    ZeroRtt,
    /// Handshake.
    Handshake,
    /// Retry.
    Retry,
    /// 1-RTT, the only one with a short header.
    OneRtt,
    /// Version Negotiation.
    VersionNegotiation,
}

impl PacketKind {
    /// The space of its packet number.
    pub(crate) fn space(self) -> Option<Space> {
        match self {
            Self::Initial => Some(Space::Initial),
            Self::Handshake => Some(Space::Handshake),
            Self::ZeroRtt | Self::OneRtt => Some(Space::Data),
            Self::Retry | Self::VersionNegotiation => None,
        }
    }
}

impl QuicVersion {
    /// The types of packets with long headers, in the order of their bits (RFC 9000 section 17.2, RFC 9369 section 3.2).
    const fn types(self) -> [PacketKind; 4] {
        use PacketKind::{Handshake, Initial, Retry, ZeroRtt};
        match self {
            Self::V1 => [Initial, ZeroRtt, Handshake, Retry],
            Self::V2 => [Retry, Initial, ZeroRtt, Handshake],
        }
    }

    /// The type of a packet whose first byte is this.
    pub(crate) fn packet_kind(self, first: u8) -> PacketKind {
        let [zero, one, two, three] = self.types();
        match first >> 4 & 3 {
            0 => zero,
            1 => one,
            2 => two,
            _ => three,
        }
    }

    /// The bits of a type in the first byte of a packet.
    pub(crate) fn type_bits(self, kind: PacketKind) -> u8 {
        let position = self.types().into_iter().position(|other| other == kind);
        (position.unwrap_or_default() as u8) << 4
    }
}

/// A packet in a datagram, still protected.
#[derive(Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) kind: PacketKind,
    /// That of a long header, other than Version Negotiation.
    pub(crate) version: Option<QuicVersion>,
    pub(crate) destination: ConnectionId,
    /// Empty in short headers.
    pub(crate) source: ConnectionId,
    /// Where the token of an Initial or Retry packet is.
    pub(crate) token: Range<usize>,
    /// Where the packet number begins, or the list of versions.
    pub(crate) number_at: usize,
    pub(crate) bytes: &'a mut [u8],
}

/// Why the rest of a datagram is no packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HeaderError {
    Invalid,
    /// A packet of another version, with the connection IDs of up to 255 bytes that all versions have (RFC 8999).
    UnsupportedVersion,
}

/// What header protection hides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unprotected {
    pub(crate) first: u8,
    /// The least significant bytes of the packet number.
    pub(crate) truncated: u64,
    pub(crate) number_length: usize,
}

impl Unprotected {
    /// Whether bits are set that must be zero.
    pub(crate) fn has_reserved_bits(self) -> bool {
        let reserved = match self.first & LONG_HEADER {
            0 => SHORT_RESERVED,
            _ => LONG_RESERVED,
        };
        self.first & reserved != 0
    }

    pub(crate) fn key_phase(self) -> bool {
        self.first & KEY_PHASE != 0
    }

    /// The packet number, if this one is expected (RFC 9000 appendix A.3).
    pub(crate) fn number(self, expected: u64) -> u64 {
        let window = 1u64 << (8 * self.number_length);
        let candidate = (expected & !(window - 1)) | self.truncated;
        if candidate + window / 2 <= expected && candidate + window <= varint::MAX {
            candidate + window
        } else if candidate > expected + window / 2 && candidate >= window {
            candidate - window
        } else {
            candidate
        }
    }
}

impl<'a> Packet<'a> {
    /// The first packet of a datagram, and the rest. Short headers have a connection ID of this length.
    pub(crate) fn parse(
        datagram: &'a mut [u8],
        id_length: usize,
    ) -> Result<(Self, &'a mut [u8]), HeaderError> {
        let header = Header::read(datagram, id_length)?;
        let (bytes, rest) = datagram
            .split_at_mut_checked(header.end)
            .ok_or(HeaderError::Invalid)?;
        let packet = Self {
            kind: header.kind,
            version: header.version,
            destination: header.destination,
            source: header.source,
            token: header.token,
            number_at: header.number_at,
            bytes,
        };
        Ok((packet, rest))
    }

    /// Removes header protection; `None` if the packet is too short.
    pub(crate) fn unprotect(&mut self, key: &dyn HeaderProtectionKey) -> Option<Unprotected> {
        let (header, payload) = self.bytes.split_at_mut_checked(self.number_at)?;
        let (number, sample) = payload.split_at_mut_checked(SAMPLE_AT)?;
        let sample = sample.get(..SAMPLE)?;
        let first = header.first_mut()?;
        // Four bytes are taken for the number although it may be shorter: its length is under the protection, too (RFC
        // 9001 section 5.4.2).
        key.decrypt_in_place(sample, first, number).ok()?;
        let number_length = usize::from(*first & 3) + 1;
        let truncated = number
            .iter()
            .take(number_length)
            .fold(0, |number, byte| number << 8 | u64::from(*byte));
        Some(Unprotected {
            first: *first,
            truncated,
            number_length,
        })
    }

    /// The payload of a packet whose header is not protected any more; `None` if it is not authentic.
    pub(crate) fn decrypt(
        &mut self,
        key: &dyn PacketKey,
        unprotected: Unprotected,
        number: u64,
    ) -> Option<&[u8]> {
        let (header, payload) = self
            .bytes
            .split_at_mut_checked(self.number_at + unprotected.number_length)?;
        // In place: a copy of each packet was a part of what quinn-proto takes for one.
        key.decrypt_in_place(number, header, payload).ok()
    }
}

/// The part of a header that is not protected.
#[derive(Debug)]
struct Header {
    kind: PacketKind,
    version: Option<QuicVersion>,
    destination: ConnectionId,
    source: ConnectionId,
    token: Range<usize>,
    number_at: usize,
    end: usize,
}

impl Header {
    fn read(datagram: &[u8], id_length: usize) -> Result<Self, HeaderError> {
        let total = datagram.len();
        let mut reader = Reader::new(datagram);
        let first = reader.byte().ok_or(HeaderError::Invalid)?;
        if first & LONG_HEADER == 0 {
            let id = reader.bytes(id_length).ok_or(HeaderError::Invalid)?;
            return Ok(Self {
                kind: PacketKind::OneRtt,
                version: None,
                destination: ConnectionId::new(id),
                source: ConnectionId::new(&[]),
                token: 0..0,
                number_at: 1 + id_length,
                end: total,
            });
        }
        Self::read_long(first, reader, total)
    }

    fn read_long(first: u8, mut reader: Reader<'_>, total: usize) -> Result<Self, HeaderError> {
        const INVALID: HeaderError = HeaderError::Invalid;
        let number = u32::from_be_bytes(reader.array().ok_or(INVALID)?);
        let version = QuicVersion::of_number(number);
        if version.is_none() && number != 0 {
            return Err(HeaderError::UnsupportedVersion);
        }
        let mut id = || {
            let length = reader.byte()?;
            ConnectionId::checked(reader.bytes(length.into())?)
        };
        let destination = id().ok_or(INVALID)?;
        let source = id().ok_or(INVALID)?;
        let at = |reader: &Reader<'_>| total - reader.remaining();
        let mut header = Self {
            kind: PacketKind::VersionNegotiation,
            version,
            destination,
            source,
            token: 0..0,
            number_at: at(&reader),
            end: total,
        };
        let Some(version) = version else {
            return Ok(header);
        };
        header.kind = version.packet_kind(first);
        if header.kind == PacketKind::Retry {
            // A Retry packet has no length: it takes the rest of its datagram (RFC 9000 section 17.2.5).
            let end = total
                .checked_sub(TAG)
                .filter(|end| *end >= header.number_at)
                .ok_or(INVALID)?;
            header.token = header.number_at..end;
            return Ok(header);
        }
        if header.kind == PacketKind::Initial {
            let token = reader.prefixed().ok_or(INVALID)?;
            header.token = at(&reader) - token.len()..at(&reader);
        }
        let length = reader.integer().ok_or(INVALID)?;
        header.number_at = at(&reader);
        // A length beyond the datagram is no packet: whatever was coalesced behind it cannot be found.
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length <= reader.remaining());
        header.end = header.number_at + length.ok_or(INVALID)?;
        Ok(header)
    }
}

/// The version and the connection IDs of a long header of any version (RFC 8999 section 5.1): destination and source.
pub(crate) fn invariants(datagram: &[u8]) -> Option<(u32, &[u8], &[u8])> {
    let mut reader = Reader::new(datagram);
    if reader.byte()? & LONG_HEADER == 0 {
        return None;
    }
    let version = u32::from_be_bytes(reader.array()?);
    let length = reader.byte()?;
    let destination = reader.bytes(length.into())?;
    let length = reader.byte()?;
    Some((version, destination, reader.bytes(length.into())?))
}

/// The bytes of a packet number in a packet, if this is the largest one that the peer has acknowledged (RFC 9000 section
/// 17.1).
#[inline]
pub(crate) fn number_length(number: u64, largest_acknowledged: Option<u64>) -> usize {
    let range = match largest_acknowledged {
        Some(acknowledged) => number.saturating_sub(acknowledged),
        None => number + 1,
    };
    // Twice the range of unacknowledged packets has to fit, as the receiver decides for the nearest number (section
    // 17.1).
    match range.saturating_mul(2) {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x100_0000 => 3,
        _ => 4,
    }
}

/// The header of a packet that is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SentHeader<'a> {
    pub(crate) kind: PacketKind,
    pub(crate) version: QuicVersion,
    pub(crate) destination: &'a ConnectionId,
    pub(crate) source: &'a ConnectionId,
    pub(crate) token: &'a [u8],
    pub(crate) number: u64,
    pub(crate) number_length: usize,
    pub(crate) key_phase: bool,
    /// Whether the fixed bit is zero (RFC 9287).
    pub(crate) is_greased: bool,
}

/// A packet that is being written. The indices are of the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketStart {
    pub(crate) start: usize,
    pub(crate) number_at: usize,
    pub(crate) payload_at: usize,
    number: u64,
}

impl SentHeader<'_> {
    /// Writes it to the end of the buffer.
    pub(crate) fn write(&self, buffer: &mut Vec<u8>) -> PacketStart {
        let start = buffer.len();
        let fixed = if self.is_greased { 0 } else { FIXED_BIT };
        let number_bits = (self.number_length - 1) as u8;
        if self.kind == PacketKind::OneRtt {
            let key_phase = if self.key_phase { KEY_PHASE } else { 0 };
            buffer.push(fixed | key_phase | number_bits);
            buffer.extend_from_slice(self.destination);
        } else {
            let kind = self.version.type_bits(self.kind);
            buffer.push(LONG_HEADER | fixed | kind | number_bits);
            buffer.extend_from_slice(&self.version.number().to_be_bytes());
            buffer.push(self.destination.len() as u8);
            buffer.extend_from_slice(self.destination);
            buffer.push(self.source.len() as u8);
            buffer.extend_from_slice(self.source);
            if self.kind == PacketKind::Initial {
                varint::write(self.token.len() as u64, buffer);
                buffer.extend_from_slice(self.token);
            }
            buffer.extend_from_slice(&[0; LENGTH]);
        }
        let number_at = buffer.len();
        let bytes = (self.number as u32).to_be_bytes();
        buffer.extend_from_slice(bytes.get(4 - self.number_length..).unwrap_or(&bytes));
        PacketStart {
            start,
            number_at,
            payload_at: buffer.len(),
            number: self.number,
        }
    }
}

impl PacketStart {
    /// The least end of the payload, so that there is a sample for header protection.
    pub(crate) fn least_end(&self) -> usize {
        self.number_at + SAMPLE_AT
    }

    /// Encrypts the packet at the end of the buffer, and protects its header. Returns `false` if the keys cannot.
    #[must_use]
    pub(crate) fn seal(
        &self,
        buffer: &mut Vec<u8>,
        header_key: &dyn HeaderProtectionKey,
        packet_key: &dyn PacketKey,
    ) -> bool {
        let end = buffer.len() + TAG;
        let is_long = buffer
            .get(self.start)
            .is_some_and(|first| first & LONG_HEADER != 0);
        if is_long
            && let Some(at) = self.number_at.checked_sub(LENGTH)
            && let Some(length) = buffer.get_mut(at..self.number_at)
        {
            // The two bits say that the integer has two bytes, whatever its value (RFC 9000 section 16).
            let value = 0x4000 | (end - self.number_at) as u16;
            length.copy_from_slice(&value.to_be_bytes());
        }
        let Some(packet) = buffer.get_mut(self.start..) else {
            return false;
        };
        let Some((header, payload)) = packet.split_at_mut_checked(self.payload_at - self.start)
        else {
            return false;
        };
        // The header is associated data and has to be final here; its protection follows, as it samples the encrypted
        // payload.
        let Ok(tag) = packet_key.encrypt_in_place(self.number, header, payload) else {
            return false;
        };
        buffer.extend_from_slice(tag.as_ref());
        self.protect(buffer, header_key).is_some()
    }

    fn protect(&self, buffer: &mut [u8], key: &dyn HeaderProtectionKey) -> Option<()> {
        let packet = buffer.get_mut(self.start..)?;
        let (header, protected) = packet.split_at_mut_checked(self.number_at - self.start)?;
        let (number, sample) = protected.split_at_mut_checked(SAMPLE_AT)?;
        let number = number.get_mut(..self.payload_at - self.number_at)?;
        key.encrypt_in_place(sample.get(..SAMPLE)?, header.first_mut()?, number)
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_numbers_are_expanded_as_in_the_appendix() {
        let unprotected = |truncated, number_length| Unprotected {
            first: 0,
            truncated,
            number_length,
        };
        // Appendix A.3.
        assert_eq!(unprotected(0x9b32, 2).number(0xa82f_30eb), 0xa82f_9b32);
        for expected in 0..1_000 {
            for difference in 0..=127 {
                let number: u64 = expected + difference;
                assert_eq!(unprotected(number & 0xff, 1).number(expected), number);
            }
        }
        assert_eq!(unprotected(0xff, 1).number(0x100), 0xff);
    }

    #[test]
    fn packet_numbers_have_twice_the_range_of_what_is_unacknowledged() {
        // Appendix A.2.
        assert_eq!(number_length(0xac_5c02, Some(0xab_e8b3)), 2);
        assert_eq!(number_length(0xac_e8fe, Some(0xab_e8b3)), 3);
        for (number, acknowledged, length) in [
            (0, None, 1),
            (126, None, 1),
            (127, None, 2),
            (127, Some(0), 1),
            (128, Some(0), 2),
        ] {
            assert_eq!(number_length(number, acknowledged), length);
        }
    }

    #[test]
    fn types_of_packets_are_read_as_they_are_written() {
        for version in QuicVersion::ALL {
            for kind in version.types() {
                assert_eq!(version.packet_kind(version.type_bits(kind)), kind);
            }
        }
        assert_eq!(QuicVersion::V2.type_bits(PacketKind::Initial), 0x10);
        assert_eq!(QuicVersion::V2.type_bits(PacketKind::Retry), 0);
    }

    #[test]
    fn long_headers_are_read_as_they_were_written() {
        let id = |byte, length| ConnectionId::new(&vec![byte; length]);
        let kinds = [
            PacketKind::Initial,
            PacketKind::ZeroRtt,
            PacketKind::Handshake,
        ];
        let versions = QuicVersion::ALL.into_iter();
        for (version, kind) in versions.flat_map(|version| kinds.map(|kind| (version, kind))) {
            let mut buffer = Vec::new();
            let header = SentHeader {
                kind,
                version,
                destination: &id(1, 20),
                source: &id(2, 0),
                token: b"token",
                number: 7,
                number_length: 2,
                key_phase: false,
                is_greased: false,
            };
            let start = header.write(&mut buffer);
            buffer.resize(buffer.len() + 40, 0);
            let length = (buffer.len() - start.number_at) as u16;
            buffer[start.number_at - 2..start.number_at]
                .copy_from_slice(&(0x4000 | length).to_be_bytes());
            buffer.extend(b"rest");
            let (packet, rest) = Packet::parse(&mut buffer, 8).unwrap();
            assert_eq!(rest, b"rest");
            assert_eq!((packet.kind, packet.version), (kind, Some(version)));
            assert_eq!(packet.destination, id(1, 20));
            assert_eq!(packet.source, id(2, 0));
            assert_eq!(packet.number_at, start.number_at);
            if kind == PacketKind::Initial {
                assert_eq!(&packet.bytes[packet.token.clone()], b"token");
            }
        }
    }

    #[test]
    fn headers_that_are_cut_off_are_invalid() {
        let mut packet = vec![0xc0, 0, 0, 0, 1, 2, 1, 2, 1, 3, 0, 2, 9, 9];
        assert!(Packet::parse(&mut packet, 8).is_ok());
        for length in 0..packet.len() {
            let result = Packet::parse(&mut packet[..length], 8);
            assert_eq!(result.err(), Some(HeaderError::Invalid));
        }
        packet[4] = 2;
        let result = Packet::parse(&mut packet, 8);
        assert_eq!(result.err(), Some(HeaderError::UnsupportedVersion));
    }
}
