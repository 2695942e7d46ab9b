//! Handshake messages of TLS that QUIC does not allow (RFC 9001 sections 4, 6 and 8).

use apus_quic_protocol::Side;

use crate::harness::messages::{TRANSPORT_PARAMETERS, add_session_id, message, remove_extension};
use crate::harness::wire::{Packet, PacketType, crypto, kind};
use crate::harness::*;

const PROTOCOL_VIOLATION: u64 = 0xa;
/// The code of an alert.
const ALERT: u64 = 0x100;
const UNEXPECTED_MESSAGE: u64 = ALERT + 10;
const MISSING_EXTENSION: u64 = ALERT + 109;

/// Changes the first packet of this type of an end. Returns the code by which the other end closes the connection, which
/// the first one has to learn.
fn code_after(
    side: Side,
    kind: PacketType,
    edit: impl FnOnce(&mut Packet) + 'static,
) -> Option<u64> {
    let mut pair = Pair::new();
    pair.edit(side, kind, edit);
    pair.run_for(ms(60));
    let code = pair.end(!side).own_error();
    assert_eq!(pair.end(side).peer_error(), code);
    code
}

/// Section 8.2.
#[test]
fn a_handshake_without_transport_parameters_is_an_error_of_either_end() {
    for (side, kind) in [
        (Client, PacketType::Initial),
        (Server, PacketType::Handshake),
    ] {
        let code = code_after(side, kind, |packet| {
            remove_extension(packet, TRANSPORT_PARAMETERS);
        });
        assert_eq!(code, Some(MISSING_EXTENSION), "{side:?}");
    }
}

/// Section 8.4: QUIC has no use for the compatibility mode of TLS.
#[test]
fn a_client_hello_with_a_session_id_is_an_error() {
    let code = code_after(Client, PacketType::Initial, add_session_id);
    assert_eq!(code, Some(PROTOCOL_VIOLATION));
}

/// Sections 6 and 8.3 forbid KeyUpdate and EndOfEarlyData, section 4.4 a CertificateRequest after the handshake. The others
/// are messages of the other end, or come at the wrong time (RFC 8446 section 4).
#[test]
fn messages_of_tls_that_an_end_must_not_send_are_errors_in_each_level() {
    const END_OF_EARLY_DATA: u8 = 5;
    const CERTIFICATE_REQUEST: u8 = 13;
    const FINISHED: u8 = 20;
    const KEY_UPDATE: u8 = 24;
    for (kind, body) in [
        (KEY_UPDATE, &[0][..]),
        (KEY_UPDATE, &[1]),
        (END_OF_EARLY_DATA, &[]),
        (CERTIFICATE_REQUEST, &[0, 0, 0]),
        (FINISHED, &[7; 32]),
    ] {
        let message = message(kind, body);
        for side in [Client, Server] {
            for level in [PacketType::Initial, PacketType::Handshake] {
                // The Finished of a client is right in Handshake packets, and wrong for its contents.
                if (side, level, kind) == (Client, PacketType::Handshake, FINISHED) {
                    continue;
                }
                let payload = crypto(0, &message);
                let code = code_after(side, level, |packet| packet.payload = payload);
                assert_eq!(code, Some(UNEXPECTED_MESSAGE), "{kind} {side:?} {level:?}");
            }
            let mut pair = Pair::connected();
            let packets = pair.packets(side).into_iter();
            let ends = packets
                .filter(|packet| packet.kind == PacketType::OneRtt)
                .flat_map(|packet| packet.frames())
                .filter(|frame| frame.kind == kind::CRYPTO)
                .map(|frame| frame.fields[0] + frame.fields[1]);
            let offset = ends.max().unwrap_or(0);
            pair.inject(side, crypto(offset, &message));
            pair.run_for(ms(60));
            assert_eq!(
                pair.end(!side).own_error(),
                Some(UNEXPECTED_MESSAGE),
                "{kind} {side:?}"
            );
        }
    }
}

/// Section 4.1.3: what is behind the last message of a level, or behind a gap after it, has no keys any more.
#[test]
fn handshake_data_that_is_left_when_its_level_is_over_is_an_error() {
    for side in [Client, Server] {
        for distance in [0, 1, 100] {
            let code = code_after(side, PacketType::Initial, move |packet| {
                let end = end_of_crypto(packet);
                packet.payload.extend(crypto(end + distance, &[8, 0]));
            });
            assert!(
                [PROTOCOL_VIOLATION, UNEXPECTED_MESSAGE].contains(&code.unwrap_or(0)),
                "{side:?} {distance} {code:x?}"
            );
        }
    }
    // Before the Finished of the client, with which the keys of the level are discarded.
    let code = code_after(Client, PacketType::Handshake, |packet| {
        let left = crypto(end_of_crypto(packet) + 1, &[8, 0]);
        packet.payload = [&left[..], &packet.payload].concat();
    });
    assert_eq!(code, Some(PROTOCOL_VIOLATION));
}

fn end_of_crypto(packet: &Packet) -> u64 {
    let frames = packet.frames().into_iter();
    let ends = frames
        .filter(|frame| frame.kind == kind::CRYPTO)
        .map(|frame| frame.fields[0] + frame.fields[1]);
    ends.max().unwrap()
}
