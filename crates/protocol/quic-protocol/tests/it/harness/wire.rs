//! Packets as an observer sees them who has the secrets of TLS: read, changed and made by code of its own (RFC 9001
//! section 5, RFC 9369 section 3).

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use apus_quic_protocol::{QuicVersion, Side};
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey, quic};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};

/// The length of the connection IDs of both ends.
pub(crate) const ID_LENGTH: usize = 8;
const TAG: usize = 16;

/// The type of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PacketType {
    Initial,
    ZeroRtt,
    Handshake,
    OneRtt,
    Retry,
    VersionNegotiation,
}

impl PacketType {
    fn of(first: u8, version: u32) -> Self {
        if first & 0x80 == 0 {
            return Self::OneRtt;
        }
        let kind = first >> 4 & 0x3;
        match (version, kind) {
            (0, _) => Self::VersionNegotiation,
            (1, 0) | (0x6b33_43cf, 1) => Self::Initial,
            (1, 1) | (0x6b33_43cf, 2) => Self::ZeroRtt,
            (1, 2) | (0x6b33_43cf, 3) => Self::Handshake,
            _ => Self::Retry,
        }
    }

    /// The packet number space: 0-RTT and 1-RTT packets share one.
    fn space(self) -> usize {
        match self {
            Self::Initial => 0,
            Self::Handshake => 1,
            _ => 2,
        }
    }
}

/// A frame: its type, its integers in their order, and the data after them. That of STREAM has the stream, the offset and
/// the length, whether or not they were sent; that of ACK has all integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u64,
    pub(crate) fields: Vec<u64>,
    pub(crate) data: Vec<u8>,
}

/// Types of frames (RFC 9000 section 19).
pub(crate) mod kind {
    pub(crate) const PADDING: u64 = 0x00;
    pub(crate) const PING: u64 = 0x01;
    pub(crate) const ACK: u64 = 0x02;
    pub(crate) const ACK_ECN: u64 = 0x03;
    pub(crate) const RESET_STREAM: u64 = 0x04;
    pub(crate) const STOP_SENDING: u64 = 0x05;
    pub(crate) const CRYPTO: u64 = 0x06;
    pub(crate) const NEW_TOKEN: u64 = 0x07;
    pub(crate) const STREAM: u64 = 0x08;
    pub(crate) const MAX_DATA: u64 = 0x10;
    pub(crate) const MAX_STREAM_DATA: u64 = 0x11;
    pub(crate) const MAX_STREAMS: u64 = 0x12;
    pub(crate) const DATA_BLOCKED: u64 = 0x14;
    pub(crate) const STREAM_DATA_BLOCKED: u64 = 0x15;
    pub(crate) const STREAMS_BLOCKED: u64 = 0x16;
    pub(crate) const NEW_CONNECTION_ID: u64 = 0x18;
    pub(crate) const RETIRE_CONNECTION_ID: u64 = 0x19;
    pub(crate) const PATH_CHALLENGE: u64 = 0x1a;
    pub(crate) const PATH_RESPONSE: u64 = 0x1b;
    pub(crate) const CONNECTION_CLOSE: u64 = 0x1c;
    pub(crate) const APPLICATION_CLOSE: u64 = 0x1d;
    pub(crate) const HANDSHAKE_DONE: u64 = 0x1e;
}

/// An integer in its shortest form (RFC 9000 section 16).
pub(crate) fn integer(value: u64) -> Vec<u8> {
    match value {
        0..0x40 => vec![value as u8],
        0x40..0x4000 => (value as u16 | 0x4000).to_be_bytes().to_vec(),
        0x4000..0x4000_0000 => (value as u32 | 0x8000_0000).to_be_bytes().to_vec(),
        _ => (value | 0xc000_0000_0000_0000).to_be_bytes().to_vec(),
    }
}

/// A frame that consists of integers: its type and its fields.
pub(crate) fn integers(fields: &[u64]) -> Vec<u8> {
    fields.iter().flat_map(|field| integer(*field)).collect()
}

/// A CRYPTO frame.
pub(crate) fn crypto(offset: u64, data: &[u8]) -> Vec<u8> {
    [&integers(&[kind::CRYPTO, offset, data.len() as u64]), data].concat()
}

/// A STREAM frame with an offset and a length.
pub(crate) fn stream(id: u64, offset: u64, data: &[u8], is_end: bool) -> Vec<u8> {
    let kind = kind::STREAM | 0x6 | u64::from(is_end);
    [&integers(&[kind, id, offset, data.len() as u64]), data].concat()
}

/// A NEW_CONNECTION_ID frame.
pub(crate) fn new_connection_id(sequence: u64, retire_prior_to: u64, id: &[u8]) -> Vec<u8> {
    let mut frame = integers(&[kind::NEW_CONNECTION_ID, sequence, retire_prior_to]);
    frame.push(id.len() as u8);
    frame.extend(id);
    frame.extend([sequence as u8; 16]);
    frame
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn integer(&mut self) -> Option<u64> {
        let length = 1 << (self.0.first()? >> 6);
        let bytes = self.take(length)?;
        let first = u64::from(bytes[0] & 0x3f);
        Some(
            bytes[1..]
                .iter()
                .fold(first, |value, byte| value << 8 | u64::from(*byte)),
        )
    }

    fn frame(&mut self) -> Option<Frame> {
        while let [0, rest @ ..] = self.0 {
            self.0 = rest;
        }
        let kind = self.integer()?;
        let mut fields = Vec::new();
        let mut data = Vec::new();
        let count = match kind {
            kind::PING | kind::HANDSHAKE_DONE => 0,
            kind::ACK | kind::ACK_ECN => {
                for _ in 0..3 {
                    fields.push(self.integer()?);
                }
                1 + 2 * fields[2] as usize + if kind == kind::ACK_ECN { 3 } else { 0 }
            }
            kind::RESET_STREAM | kind::CONNECTION_CLOSE => 3,
            kind::STOP_SENDING | kind::CRYPTO | kind::MAX_STREAM_DATA => 2,
            kind::STREAM_DATA_BLOCKED => 2,
            kind::APPLICATION_CLOSE | kind::NEW_CONNECTION_ID => 2,
            kind::NEW_TOKEN | kind::MAX_DATA | 0x12..=0x14 | 0x16 | 0x17 => 1,
            kind::RETIRE_CONNECTION_ID => 1,
            0x08..=0x0f => {
                fields.push(self.integer()?);
                fields.push(if kind & 0x4 != 0 { self.integer()? } else { 0 });
                let length = if kind & 0x2 != 0 {
                    self.integer()?
                } else {
                    self.0.len() as u64
                };
                fields.push(length);
                0
            }
            kind::PATH_CHALLENGE | kind::PATH_RESPONSE => 0,
            _ => panic!("a frame of type {kind:#x}"),
        };
        for _ in 0..count {
            fields.push(self.integer()?);
        }
        let length = match kind {
            kind::CRYPTO | kind::NEW_TOKEN | 0x08..=0x0f => *fields.last()? as usize,
            kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE => *fields.last()? as usize,
            kind::PATH_CHALLENGE | kind::PATH_RESPONSE => 8,
            kind::NEW_CONNECTION_ID => {
                let length = usize::from(*self.take(1)?.first()?);
                data.extend(self.take(length)?);
                self.take(16)?;
                0
            }
            _ => 0,
        };
        data.extend(self.take(length)?);
        Some(Frame { kind, fields, data })
    }
}

/// The frames of a payload.
pub(crate) fn frames(payload: &[u8]) -> Vec<Frame> {
    let mut bytes = Bytes(payload);
    std::iter::from_fn(|| bytes.frame()).collect()
}

/// A packet that was read. Those of Retry and version negotiation have no number and no payload.
#[derive(Clone)]
pub(crate) struct Packet {
    pub(crate) kind: PacketType,
    pub(crate) version: u32,
    pub(crate) destination: Vec<u8>,
    pub(crate) source: Vec<u8>,
    pub(crate) token: Vec<u8>,
    pub(crate) number: u64,
    pub(crate) number_length: usize,
    /// Without header protection.
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
    /// How often the keys were updated before.
    generation: usize,
    /// The destination from which the keys of an Initial packet follow.
    initial_destination: Vec<u8>,
    /// The bytes of the packet in its datagram.
    pub(crate) size: usize,
    /// Whether it is made with as many frames as it has, although its header cannot be protected without padding.
    pub(crate) is_without_padding: bool,
}

impl Packet {
    pub(crate) fn frames(&self) -> Vec<Frame> {
        frames(&self.payload)
    }

    pub(crate) fn has(&self, kind: u64) -> bool {
        self.frames().iter().any(|frame| frame.kind == kind)
    }

    pub(crate) fn is_ack_eliciting(&self) -> bool {
        self.frames().iter().any(|frame| {
            !matches!(
                frame.kind,
                kind::ACK | kind::ACK_ECN | kind::CONNECTION_CLOSE | kind::APPLICATION_CLOSE
            )
        })
    }

    pub(crate) fn key_phase(&self) -> bool {
        self.first & 0x4 != 0
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {} {} bytes:", self.kind, self.number, self.size)?;
        for frame in self.frames() {
            let fields = &frame.fields[..frame.fields.len().min(5)];
            write!(f, " {:#x}{fields:?}", frame.kind)?;
        }
        Ok(())
    }
}

/// The secrets of the connections, which TLS of both ends logs.
#[derive(Debug, Default)]
pub(crate) struct Secrets(Mutex<HashMap<String, Vec<u8>>>);

impl rustls::KeyLog for Secrets {
    fn log(&self, label: &str, _client_random: &[u8], secret: &[u8]) {
        let mut secrets = self.0.lock().unwrap();
        secrets.insert(label.to_owned(), secret.to_vec());
    }
}

impl Secrets {
    fn of(&self, kind: PacketType, sender: Side) -> Option<Vec<u8>> {
        let label = match (kind, sender) {
            (PacketType::ZeroRtt, _) => "CLIENT_EARLY_TRAFFIC_SECRET",
            (PacketType::Handshake, Side::Client) => "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
            (PacketType::Handshake, Side::Server) => "SERVER_HANDSHAKE_TRAFFIC_SECRET",
            (_, Side::Client) => "CLIENT_TRAFFIC_SECRET_0",
            (_, Side::Server) => "SERVER_TRAFFIC_SECRET_0",
        };
        self.0.lock().unwrap().get(label).cloned()
    }
}

struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label (RFC 8446 section 7.1).
fn expand(secret: &[u8], label: &str, length: usize) -> Vec<u8> {
    let label = format!("tls13 {label}");
    let info = [
        &(length as u16).to_be_bytes()[..],
        &[label.len() as u8],
        label.as_bytes(),
        &[0],
    ];
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let mut bytes = vec![0; length];
    let expanded = prk.expand(&info, Length(length)).unwrap();
    expanded.fill(&mut bytes).unwrap();
    bytes
}

/// The keys of packets.
struct PacketKeys {
    packet: LessSafeKey,
    iv: [u8; 12],
    header: quic::HeaderProtectionKey,
}

impl PacketKeys {
    /// The keys that follow from a secret, and from it after so many updates, which keep the key of headers.
    fn new(version: u32, secret: &[u8], generation: usize) -> Self {
        let prefix = if version == QuicVersion::V2.number() {
            "quicv2"
        } else {
            "quic"
        };
        let label = |name: &str| format!("{prefix} {name}");
        let header = expand(secret, &label("hp"), 16);
        let mut secret = secret.to_vec();
        for _ in 0..generation {
            secret = expand(&secret, &label("ku"), 32);
        }
        let key = expand(&secret, &label("key"), 16);
        Self {
            packet: LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap()),
            iv: expand(&secret, &label("iv"), 12).try_into().unwrap(),
            header: quic::HeaderProtectionKey::new(&quic::AES_128, &header).unwrap(),
        }
    }

    /// The keys of Initial packets (RFC 9001 section 5.2, RFC 9369 section 3.3.1).
    fn initial(version: u32, destination: &[u8], sender: Side) -> Self {
        const SALT: [u8; 20] = [
            0x38, 0x76, 0x2c, 0xf7, 0xf5, 0x59, 0x34, 0xb3, 0x4d, 0x17, 0x9a, 0xe6, 0xa4, 0xc8,
            0x0c, 0xad, 0xcc, 0xbb, 0x7f, 0x0a,
        ];
        const SALT_OF_VERSION_2: [u8; 20] = [
            0x0d, 0xed, 0xe3, 0xde, 0xf7, 0x00, 0xa6, 0xdb, 0x81, 0x93, 0x81, 0xbe, 0x6e, 0x26,
            0x9d, 0xcb, 0xf9, 0xbd, 0x2e, 0xd9,
        ];
        let salt = if version == QuicVersion::V2.number() {
            SALT_OF_VERSION_2
        } else {
            SALT
        };
        let common = aws_lc_rs::hmac::sign(
            &aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &salt),
            destination,
        );
        let label = match sender {
            Side::Client => "client in",
            Side::Server => "server in",
        };
        Self::new(version, &expand(common.as_ref(), label, 32), 0)
    }

    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = self.iv;
        for (byte, number) in nonce[4..].iter_mut().zip(number.to_be_bytes()) {
            *byte ^= number;
        }
        Nonce::assume_unique_for_key(nonce)
    }
}

/// Reads the packets of two ends, and changes them. It remembers the packet numbers that it has seen.
#[derive(Clone, Debug)]
pub(crate) struct Observer {
    secrets: Arc<Secrets>,
    /// The destinations of first packets, from which the keys of Initial packets follow.
    initial_destinations: Vec<Vec<u8>>,
    /// The next packet number of each sender and space.
    expected: [[u64; 3]; 2],
}

/// The header of a packet, and where its parts are.
struct Header {
    kind: PacketType,
    version: u32,
    destination: Vec<u8>,
    source: Vec<u8>,
    token: Vec<u8>,
    number_at: usize,
    end: usize,
}

impl Header {
    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Bytes(bytes);
        let first = *reader.take(1)?.first()?;
        if first & 0x80 == 0 {
            return Some(Self {
                kind: PacketType::OneRtt,
                version: 1,
                destination: reader.take(ID_LENGTH)?.to_vec(),
                source: Vec::new(),
                token: Vec::new(),
                number_at: 1 + ID_LENGTH,
                end: bytes.len(),
            });
        }
        let version = u32::from_be_bytes(reader.take(4)?.try_into().ok()?);
        let kind = PacketType::of(first, version);
        let mut ids = Vec::new();
        for _ in 0..2 {
            let length = usize::from(*reader.take(1)?.first()?);
            ids.push(reader.take(length)?.to_vec());
        }
        let mut token = Vec::new();
        let mut end = bytes.len();
        if matches!(kind, PacketType::Retry | PacketType::VersionNegotiation) {
            token = reader.0.to_vec();
        } else {
            if kind == PacketType::Initial {
                let length = reader.integer()? as usize;
                token = reader.take(length)?.to_vec();
            }
            let length = reader.integer()? as usize;
            end = bytes.len() - reader.0.len() + length;
        }
        Some(Self {
            kind,
            version,
            source: ids.pop()?,
            destination: ids.pop()?,
            token,
            number_at: bytes.len() - reader.0.len(),
            end,
        })
        .filter(|header| header.end <= bytes.len())
    }
}

impl Observer {
    pub(crate) fn new(secrets: Arc<Secrets>) -> Self {
        Self {
            secrets,
            initial_destinations: Vec::new(),
            expected: [[0; 3]; 2],
        }
    }

    /// The packets of a datagram that can be read with the secrets that are known so far.
    pub(crate) fn read(&mut self, sender: Side, datagram: &[u8]) -> Vec<Packet> {
        let mut packets = Vec::new();
        let mut rest = datagram;
        while let Some(header) = Header::read(rest) {
            let (bytes, after) = rest.split_at(header.end);
            packets.extend(self.open(sender, header, bytes));
            rest = after;
        }
        packets
    }

    fn keys(
        &self,
        sender: Side,
        kind: PacketType,
        version: u32,
        generation: usize,
    ) -> Vec<PacketKeys> {
        if kind == PacketType::Initial {
            let destinations = self.initial_destinations.iter();
            return destinations
                .map(|destination| PacketKeys::initial(version, destination, sender))
                .collect();
        }
        let secret = self.secrets.of(kind, sender);
        let versions = match kind {
            PacketType::OneRtt => vec![QuicVersion::V1.number(), QuicVersion::V2.number()],
            _ => vec![version],
        };
        let keys = versions
            .into_iter()
            .filter_map(|version| Some(PacketKeys::new(version, secret.as_deref()?, generation)));
        keys.collect()
    }

    fn open(&mut self, sender: Side, header: Header, bytes: &[u8]) -> Option<Packet> {
        let mut packet = Packet {
            kind: header.kind,
            version: header.version,
            destination: header.destination,
            source: header.source,
            token: header.token,
            number: 0,
            number_length: 0,
            first: bytes[0],
            payload: Vec::new(),
            generation: 0,
            initial_destination: Vec::new(),
            size: bytes.len(),
            is_without_padding: false,
        };
        if matches!(
            header.kind,
            PacketType::Retry | PacketType::VersionNegotiation
        ) {
            return Some(packet);
        }
        if header.kind == PacketType::Initial && sender == Side::Client {
            let destination = &packet.destination;
            if !self.initial_destinations.contains(destination) {
                self.initial_destinations.push(destination.clone());
            }
        }
        let generations = match header.kind {
            PacketType::OneRtt => 0..6,
            _ => 0..1,
        };
        let expected = self.expected[sender as usize][header.kind.space()];
        for generation in generations {
            let keys = self.keys(sender, header.kind, header.version, generation);
            for (position, keys) in keys.into_iter().enumerate() {
                let at = header.number_at;
                let mask = keys.header.new_mask(bytes.get(at + 4..at + 20)?).ok()?;
                let mut head = bytes[..at + 4].to_vec();
                head[0] ^= mask[0] & if head[0] & 0x80 == 0 { 0x1f } else { 0x0f };
                let length = usize::from(head[0] & 0x3) + 1;
                head.truncate(at + length);
                let mut truncated = 0;
                for (byte, mask) in head[at..].iter_mut().zip(&mask[1..]) {
                    *byte ^= mask;
                    truncated = truncated << 8 | u64::from(*byte);
                }
                let window = 1 << (8 * length);
                let mut number = (expected & !(window - 1)) | truncated;
                if number + window / 2 <= expected {
                    number += window;
                } else if number > expected + window / 2 && number >= window {
                    number -= window;
                }
                let mut payload = bytes[at + length..].to_vec();
                let opened =
                    keys.packet
                        .open_in_place(keys.nonce(number), Aad::from(&head), &mut payload);
                if opened.is_ok() {
                    payload.truncate(payload.len() - TAG);
                    packet.first = head[0];
                    packet.number_length = length;
                    packet.number = number;
                    packet.payload = payload;
                    packet.generation = generation;
                    if header.kind == PacketType::Initial {
                        packet.initial_destination = self.initial_destinations[position].clone();
                    }
                    self.expected[sender as usize][header.kind.space()] = expected.max(number + 1);
                    return Some(packet);
                }
            }
        }
        None
    }

    /// The bytes of a packet. Its payload is padded so far as the protection of its header needs.
    pub(crate) fn seal(&self, sender: Side, packet: &Packet) -> Vec<u8> {
        let mut payload = packet.payload.clone();
        if !packet.is_without_padding {
            payload.resize(payload.len().max(4), 0);
        }
        let length = packet.number_length;
        let mut bytes = vec![packet.first];
        if packet.kind != PacketType::OneRtt {
            bytes.extend(packet.version.to_be_bytes());
            for id in [&packet.destination, &packet.source] {
                bytes.push(id.len() as u8);
                bytes.extend(id);
            }
            if packet.kind == PacketType::Initial {
                bytes.extend(integer(packet.token.len() as u64));
                bytes.extend(&packet.token);
            }
            let size = (length + payload.len() + TAG) as u16;
            bytes.extend((size | 0x4000).to_be_bytes());
        } else {
            bytes.extend(&packet.destination);
        }
        let at = bytes.len();
        bytes.extend(&packet.number.to_be_bytes()[8 - length..]);
        let keys = if packet.kind == PacketType::Initial {
            PacketKeys::initial(packet.version, &packet.initial_destination, sender)
        } else {
            let keys = self.keys(sender, packet.kind, packet.version, packet.generation);
            keys.into_iter().next().expect("the secret is known")
        };
        keys.packet
            .seal_in_place_append_tag(keys.nonce(packet.number), Aad::from(&bytes), &mut payload)
            .unwrap();
        bytes.extend(payload);
        let mask = keys.header.new_mask(&bytes[at + 4..at + 20]).unwrap();
        bytes[0] ^= mask[0] & if bytes[0] & 0x80 == 0 { 0x1f } else { 0x0f };
        for (byte, mask) in bytes[at..at + length].iter_mut().zip(&mask[1..]) {
            *byte ^= mask;
        }
        bytes
    }
}

impl Packet {
    /// The packet after this one of the same sender, with these frames.
    pub(crate) fn following(&self, distance: u64, payload: &[u8]) -> Self {
        Self {
            number: self.number + distance,
            payload: payload.to_vec(),
            ..self.clone()
        }
    }

    /// The same first packet of a client, in another connection.
    pub(crate) fn of_another_connection(&self, destination: &[u8]) -> Self {
        Self {
            destination: destination.to_vec(),
            initial_destination: destination.to_vec(),
            ..self.clone()
        }
    }

    /// The same with keys that were updated so many times more.
    pub(crate) fn after_key_updates(mut self, updates: usize) -> Self {
        self.generation += updates;
        if updates % 2 == 1 {
            self.first ^= 0x4;
        }
        self
    }
}
