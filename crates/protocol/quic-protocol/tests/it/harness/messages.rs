//! Handshake messages of TLS that are changed (RFC 8446 section 4).

use super::wire::{Packet, crypto, kind};

/// The extension `quic_transport_parameters` (RFC 9001 section 8.2).
pub(crate) const TRANSPORT_PARAMETERS: u16 = 0x39;

const CLIENT_HELLO: u8 = 1;
/// The version and the random value, which are before the session ID of a ClientHello.
const BEFORE_SESSION_ID: usize = 2 + 32;

/// The packet has only its first handshake message, a ClientHello or EncryptedExtensions, without this extension.
pub(crate) fn remove_extension(packet: &mut Packet, extension: u16) {
    let data = begin(packet);
    packet.payload = crypto(0, &without_extension(&data, extension));
}

/// The ClientHello of the packet has a session ID, as TLS over TCP has it for middleboxes.
pub(crate) fn add_session_id(packet: &mut Packet) {
    let data = begin(packet);
    let (kind, body) = first_message(&data);
    let (before, after) = body.split_at(BEFORE_SESSION_ID);
    assert_eq!((kind, after[0]), (CLIENT_HELLO, 0));
    let body = [before, &[32], &[7; 32], &after[1..]].concat();
    packet.payload = crypto(0, &message(kind, &body));
}

/// A handshake message.
pub(crate) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&[kind], &length[1..], body].concat()
}

/// The data of the first CRYPTO frame of a packet.
fn begin(packet: &Packet) -> Vec<u8> {
    let mut frames = packet.frames().into_iter();
    let frame = frames.find(|frame| frame.kind == kind::CRYPTO).unwrap();
    assert_eq!(frame.fields[0], 0, "the packet has the begin of a message");
    frame.data
}

fn first_message(data: &[u8]) -> (u8, &[u8]) {
    let length = u32::from_be_bytes([0, data[1], data[2], data[3]]) as usize;
    (data[0], &data[4..4 + length])
}

fn without_extension(data: &[u8], extension: u16) -> Vec<u8> {
    let (kind, body) = first_message(data);
    let mut at = 0;
    if kind == CLIENT_HELLO {
        // The session ID, the cipher suites and the compression methods.
        at = BEFORE_SESSION_ID;
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
    let length = (extensions.len() as u16).to_be_bytes();
    message(kind, &[&body[..at], &length, &extensions].concat())
}

fn read(bytes: &[u8]) -> usize {
    usize::from(u16::from_be_bytes([bytes[0], bytes[1]]))
}
