//! Handshake messages of TLS without one of their extensions (RFC 8446 section 4).

use super::wire::{Packet, crypto, kind};

/// The extension `quic_transport_parameters` (RFC 9001 section 8.2).
pub(crate) const TRANSPORT_PARAMETERS: u16 = 0x39;

const CLIENT_HELLO: u8 = 1;

/// The packet has only its first handshake message, a ClientHello or EncryptedExtensions, without this extension.
pub(crate) fn remove_extension(packet: &mut Packet, extension: u16) {
    let mut frames = packet.frames().into_iter();
    let frame = frames.find(|frame| frame.kind == kind::CRYPTO).unwrap();
    assert_eq!(frame.fields[0], 0, "the packet has the begin of a message");
    packet.payload = crypto(0, &without_extension(&frame.data, extension));
}

fn without_extension(data: &[u8], extension: u16) -> Vec<u8> {
    let length = u32::from_be_bytes([0, data[1], data[2], data[3]]) as usize;
    let body = &data[4..4 + length];
    let mut at = 0;
    if data[0] == CLIENT_HELLO {
        // The version and the random value, the session ID, the cipher suites and the compression methods.
        at = 2 + 32;
        at += 1 + usize::from(body[at]);
        at += 2 + read(&body[at..]);
        at += 1 + usize::from(body[at]);
    }
    let mut rest = &body[at + 2..];
    let mut extensions = Vec::new();
    let mut is_found = false;
    while !rest.is_empty() {
        let (found, after) = rest.split_at(4 + read(&rest[2..]));
        rest = after;
        if read(found) == usize::from(extension) {
            is_found = true;
        } else {
            extensions.extend(found);
        }
    }
    assert!(is_found, "the message has the extension");
    let body = [
        &body[..at],
        &(extensions.len() as u16).to_be_bytes(),
        &extensions,
    ]
    .concat();
    let length = (body.len() as u32).to_be_bytes();
    [&data[..1], &length[1..], &body].concat()
}

fn read(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}
