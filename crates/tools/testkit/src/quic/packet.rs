//! Packets of QUIC, sealed and opened (RFC 9000 section 17, RFC 9001 section 5).

use std::collections::{BTreeMap, BTreeSet};

use rustls::quic::{DirectionalKeys, Keys};

use super::frame::{ServerFrameReader, integer};

/// The version (RFC 9000 section 15).
pub(super) const VERSION: u32 = 1;

/// Bytes of the tag of each cipher (RFC 9001 section 5.3).
const TAG: usize = 16;

/// The encryption level of a packet (RFC 9001 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PacketLevel {
    /// Initial packets.
    Initial,
    /// 0-RTT packets, which only clients send.
    Early,
    /// Handshake packets.
    Handshake,
    /// 1-RTT packets.
    Application,
}

/// The header of a packet to send.
#[derive(Clone, Debug)]
pub struct PacketHeader {
    /// The encryption level.
    pub level: PacketLevel,
    /// The destination connection ID.
    pub destination: Vec<u8>,
    /// The source connection ID of a long header.
    pub source: Vec<u8>,
    /// The token of an Initial packet.
    pub token: Vec<u8>,
    /// The packet number, which is sent in 4 bytes.
    pub number: u64,
    /// Bits of the first byte that are changed: the reserved ones, or the key phase.
    pub changed_bits: u8,
}

/// The packet number space of a level (RFC 9000 section 12.3).
#[derive(Default)]
pub(super) struct PacketSpace {
    pub(super) keys: Option<Keys>,
    pub(super) next_number: u64,
    pub(super) received: BTreeSet<u64>,
    pub(super) crypto_sent: u64,
    crypto_received: u64,
    crypto_waiting: BTreeMap<u64, Vec<u8>>,
}

impl PacketSpace {
    /// Adds a part of the handshake; returns what is now in order.
    pub(super) fn add_crypto(&mut self, offset: u64, data: &[u8]) -> Vec<u8> {
        self.crypto_waiting.insert(offset, data.to_vec());
        let mut ordered = Vec::new();
        while let Some(entry) = self.crypto_waiting.first_entry() {
            let skipped = match self.crypto_received.checked_sub(*entry.key()) {
                Some(skipped) => skipped as usize,
                None => break,
            };
            let data = entry.remove();
            if let Some(new) = data.get(skipped..) {
                ordered.extend(new);
                self.crypto_received += new.len() as u64;
            }
        }
        ordered
    }
}

impl PacketHeader {
    fn first_byte(&self) -> u8 {
        // A packet number of 4 bytes.
        let first = match self.level {
            PacketLevel::Initial => 0xc3,
            PacketLevel::Early => 0xd3,
            PacketLevel::Handshake => 0xe3,
            PacketLevel::Application => 0x43,
        };
        first ^ self.changed_bits
    }

    /// Seals a packet with these frames.
    pub(super) fn seal(&self, keys: &DirectionalKeys, frames: &[u8]) -> Vec<u8> {
        let mut packet = vec![self.first_byte()];
        let is_long = self.level != PacketLevel::Application;
        if is_long {
            packet.extend(VERSION.to_be_bytes());
            packet.push(self.destination.len() as u8);
        }
        packet.extend(&self.destination);
        if is_long {
            packet.push(self.source.len() as u8);
            packet.extend(&self.source);
        }
        if self.level == PacketLevel::Initial {
            packet.extend(integer(self.token.len() as u64));
            packet.extend(&self.token);
        }
        if is_long {
            let length = (4 + frames.len() + TAG) as u16;
            packet.extend((length | 0x4000).to_be_bytes());
        }
        let number_at = packet.len();
        packet.extend((self.number as u32).to_be_bytes());
        let header_length = packet.len();
        packet.extend(frames);
        let (header, payload) = packet.split_at_mut(header_length);
        let tag = keys
            .packet
            .encrypt_in_place(self.number, header, payload)
            .unwrap();
        packet.extend(tag.as_ref());
        let sample: Vec<_> = packet[number_at + 4..][..keys.header.sample_len()].to_vec();
        let (first, rest) = packet.split_at_mut(1);
        let number = &mut rest[number_at - 1..][..4];
        keys.header
            .encrypt_in_place(&sample, &mut first[0], number)
            .unwrap();
        packet
    }
}

/// A packet of the server that is still sealed.
pub(super) struct SealedPacket<'a> {
    pub(super) level: PacketLevel,
    /// The source connection ID of a long header.
    pub(super) source: Option<Vec<u8>>,
    number_at: usize,
    bytes: &'a [u8],
}

impl<'a> SealedPacket<'a> {
    /// The first packet of a datagram for a connection ID of this length, and what follows it; `None` if it is neither
    /// of a handshake nor 1-RTT.
    pub(super) fn split(datagram: &'a [u8], id_length: usize) -> Option<(Self, &'a [u8])> {
        let first = *datagram.first()?;
        if first & 0x80 == 0 {
            let packet = Self {
                level: PacketLevel::Application,
                source: None,
                number_at: 1 + id_length,
                bytes: datagram,
            };
            return Some((packet, &[]));
        }
        let level = match first >> 4 & 0x3 {
            0 => PacketLevel::Initial,
            2 => PacketLevel::Handshake,
            _ => return None,
        };
        let mut reader = ServerFrameReader(&datagram[1..]);
        if reader.bytes(4) != VERSION.to_be_bytes() {
            return None;
        }
        let length = reader.bytes(1)[0];
        reader.bytes(length.into());
        let length = reader.bytes(1)[0];
        let source = reader.bytes(length.into());
        if level == PacketLevel::Initial {
            let length = reader.integer();
            reader.bytes(length as usize);
        }
        let length = reader.integer() as usize;
        let number_at = datagram.len() - reader.0.len();
        let (bytes, rest) = datagram.split_at(number_at + length);
        let packet = Self {
            level,
            source: Some(source),
            number_at,
            bytes,
        };
        Some((packet, rest))
    }

    /// The key phase of a 1-RTT packet (RFC 9001 section 6).
    pub(super) fn key_phase(&self, space: &PacketSpace) -> Option<bool> {
        let (packet, _) = self.unprotect(space)?;
        Some(packet[0] & 0x4 != 0)
    }

    /// The packet without the protection of its header, and the keys.
    fn unprotect<'k>(&self, space: &'k PacketSpace) -> Option<(Vec<u8>, &'k DirectionalKeys)> {
        let keys = &space.keys.as_ref()?.remote;
        let mut packet = self.bytes.to_vec();
        let sample = packet.get(self.number_at + 4..)?;
        let sample = sample.get(..keys.header.sample_len())?.to_vec();
        let (first, rest) = packet.split_at_mut(1);
        let number = &mut rest[self.number_at - 1..][..4];
        keys.header
            .decrypt_in_place(&sample, &mut first[0], number)
            .ok()?;
        Some((packet, keys))
    }

    /// The packet number and the frames; `None` if the keys do not open it.
    pub(super) fn open(&self, space: &PacketSpace) -> Option<(u64, Vec<u8>)> {
        let (mut packet, keys) = self.unprotect(space)?;
        let length = usize::from(packet[0] & 0x3) + 1;
        let truncated = packet[self.number_at..][..length].iter();
        let truncated = truncated.fold(0, |value, byte| value << 8 | u64::from(*byte));
        let expected = space.received.last().map_or(0, |number| number + 1);
        let number = nearest(truncated, 8 * length as u32, expected);
        let (header, payload) = packet.split_at_mut(self.number_at + length);
        let opened = keys.packet.decrypt_in_place(number, header, payload).ok()?;
        Some((number, opened.to_vec()))
    }
}

/// The packet number with these last bits that is nearest to the expected one (RFC 9000 appendix A.3).
fn nearest(truncated: u64, bits: u32, expected: u64) -> u64 {
    let window = 1 << bits;
    let candidate = (expected & !(window - 1)) | truncated;
    if candidate + window / 2 <= expected {
        candidate + window
    } else if candidate > expected + window / 2 && candidate >= window {
        candidate - window
    } else {
        candidate
    }
}

/// A transport parameter (RFC 9000 section 18).
pub fn parameter(id: u64, value: &[u8]) -> Vec<u8> {
    let head = [integer(id), integer(value.len() as u64)].concat();
    [&head, value].concat()
}
