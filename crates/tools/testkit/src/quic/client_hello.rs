//! The ClientHello (RFC 8446 section 4.1.2), as whoever records the packets of a client sees it.

use rustls::Side;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::quic::Version;

use super::frame::{ServerFrame, ServerFrameReader};
use super::initial_suite;
use super::packet::{PacketLevel, PacketSpace, SealedPacket};

/// The types of extensions (RFC 8446 section 4.2).
pub mod extension {
    /// A session that the client wants to resume.
    pub const PRE_SHARED_KEY: u16 = 41;
    /// That it sends early data.
    pub const EARLY_DATA: u16 = 42;
}

/// The types of the extensions of the ClientHello in the datagrams with which a connection began.
pub fn client_hello_extensions(datagrams: &[Vec<u8>]) -> Vec<u16> {
    let hello = client_hello(datagrams);
    // The type, the length, the version and the random.
    let mut reader = ServerFrameReader(&hello[1 + 3 + 2 + 32..]);
    let session = reader.bytes(1)[0];
    reader.bytes(session.into());
    let suites = short(&mut reader);
    reader.bytes(suites.into());
    let compressions = reader.bytes(1)[0];
    reader.bytes(compressions.into());
    short(&mut reader);
    let mut extensions = Vec::new();
    while !reader.0.is_empty() {
        extensions.push(short(&mut reader));
        let length = short(&mut reader);
        reader.bytes(length.into());
    }
    extensions
}

/// The message, from Initial packets, whose keys everybody knows (RFC 9001 section 5.2).
fn client_hello(datagrams: &[Vec<u8>]) -> Vec<u8> {
    let length: usize = datagrams[0][5].into();
    let destination = &datagrams[0][6..][..length];
    let suite = initial_suite(&default_provider());
    let mut space = PacketSpace::default();
    space.keys = Some(suite.keys(destination, Side::Server, Version::V1));
    let mut hello = Vec::new();
    for datagram in datagrams {
        let Some((packet, _)) = SealedPacket::split(datagram, 0) else {
            continue;
        };
        let Some((_, frames)) = packet
            .open(&space)
            .filter(|_| packet.level == PacketLevel::Initial)
        else {
            continue;
        };
        let mut reader = ServerFrameReader(&frames);
        while let Some(frame) = reader.frame() {
            if let ServerFrame::Crypto { offset, data } = frame {
                hello.extend(space.add_crypto(offset, &data));
            }
        }
    }
    hello
}

fn short(reader: &mut ServerFrameReader<'_>) -> u16 {
    u16::from_be_bytes(reader.bytes(2).try_into().unwrap())
}
