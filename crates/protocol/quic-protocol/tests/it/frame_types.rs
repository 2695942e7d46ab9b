//! Each type of frame in each type of packet (RFC 9000 section 12.4, table 3, and section 12.5).

use apus_quic_protocol::{Dir, Side};

use crate::harness::wire::{PacketType, crypto, integer, integers, kind, new_connection_id};
use crate::harness::*;

const FRAME_ENCODING_ERROR: u64 = 0x7;
const PROTOCOL_VIOLATION: u64 = 0xa;

/// The number of a stream.
fn stream_id(initiator: Side, direction: Dir) -> u64 {
    initiator as u64 + 2 * direction as u64
}

/// A frame that is valid in a 1-RTT packet of this end, and the packets that may have it: I, H, 0 and 1.
fn frames(sender: Side) -> Vec<(u64, Vec<u8>, &'static str)> {
    let own = stream_id(sender, Dir::Bi);
    let opaque = |kind| [integer(kind), vec![7; 8]].concat();
    let of_server = if sender == Server { "1" } else { "" };
    let mut frames = vec![
        (integers(&[kind::PADDING]), "IH01"),
        (integers(&[kind::PING]), "IH01"),
        (integers(&[kind::ACK, 0, 0, 0, 0]), "IH1"),
        (integers(&[kind::ACK_ECN, 0, 0, 0, 0, 0, 0, 0]), "IH1"),
        (integers(&[kind::RESET_STREAM, own, 0, 0]), "01"),
        (integers(&[kind::STOP_SENDING, own, 0]), "01"),
        // The begin of a message, or one that was read before.
        (crypto(0, b"a"), "IH1"),
        (
            [integers(&[kind::NEW_TOKEN, 1]), vec![7]].concat(),
            of_server,
        ),
        (integers(&[kind::MAX_DATA, 1 << 40]), "01"),
        (integers(&[kind::MAX_STREAM_DATA, own, 1 << 40]), "01"),
        (integers(&[kind::MAX_STREAMS, 200]), "01"),
        (integers(&[kind::MAX_STREAMS + 1, 200]), "01"),
        (integers(&[kind::DATA_BLOCKED, 0]), "01"),
        (integers(&[kind::STREAM_DATA_BLOCKED, own, 0]), "01"),
        (integers(&[kind::STREAMS_BLOCKED, 0]), "01"),
        (integers(&[kind::STREAMS_BLOCKED + 1, 0]), "01"),
        (new_connection_id(3, 0, &[9; 8]), "01"),
        (integers(&[kind::RETIRE_CONNECTION_ID, 1]), "1"),
        (opaque(kind::PATH_CHALLENGE), "01"),
        (opaque(kind::PATH_RESPONSE), "1"),
        (integers(&[kind::CONNECTION_CLOSE, 0, 0, 0]), "IH01"),
        (integers(&[kind::APPLICATION_CLOSE, 0, 0]), "01"),
        (integers(&[kind::HANDSHAKE_DONE]), of_server),
    ];
    // A STREAM frame without an offset, without a length, and with an end.
    for flags in 0..8 {
        let mut fields = vec![kind::STREAM | flags, own];
        fields.extend((flags & 0x4 != 0).then_some(0));
        fields.extend((flags & 0x2 != 0).then_some(0));
        frames.push((integers(&fields), "01"));
    }
    let frames = frames.into_iter();
    frames
        .map(|(frame, packets)| (frame[0].into(), frame, packets))
        .collect()
}

/// The code by which the other end closes the connection after a packet of this type that has only this frame.
fn code_after(sender: Side, packet: PacketType, frame: &[u8]) -> Option<u64> {
    let mut pair = match packet {
        PacketType::OneRtt | PacketType::ZeroRtt => Pair::connected(),
        _ => Pair::new(),
    };
    match packet {
        PacketType::ZeroRtt => {
            pair.connect();
            pair.client.send(Dir::Uni, data(100), true);
            pair.step();
        }
        PacketType::OneRtt => {}
        // Both ends have sent Initial packets, and have not got those that end this level. The same for Handshake packets.
        PacketType::Initial => pair.run_for(ms(15)),
        _ => pair.run_for(ms(25)),
    }
    let next = pair.last_packet(sender, packet).following(2, frame);
    if packet == PacketType::ZeroRtt {
        // Behind the first packet, with which the server opens the connection.
        pair.run_for(ms(10));
    }
    pair.forge(sender, &next);
    pair.run_for(ms(1));
    pair.end(!sender).own_error()
}

#[test]
fn each_frame_is_an_error_in_packets_that_must_not_have_it() {
    for sender in [Client, Server] {
        for (kind, frame, allowed) in frames(sender) {
            for (name, packet) in [
                ('I', PacketType::Initial),
                ('H', PacketType::Handshake),
                ('0', PacketType::ZeroRtt),
                ('1', PacketType::OneRtt),
            ] {
                if (packet, sender) == (PacketType::ZeroRtt, Server) {
                    continue;
                }
                let code = code_after(sender, packet, &frame);
                let expected = (!allowed.contains(name)).then_some(PROTOCOL_VIOLATION);
                assert_eq!(code, expected, "{kind:#x} {sender:?} {packet:?}");
            }
        }
    }
}

/// Section 12.4: of extensions that were not negotiated, and of none.
#[test]
fn a_frame_of_an_unknown_type_is_an_error_in_each_packet() {
    // DATAGRAM (RFC 9221), ACK_FREQUENCY, and types of two, four and eight bytes.
    for kind in [0x1f, 0x20, 0x30, 0x31, 0xaf, 0x4000_0000, (1 << 62) - 1] {
        for sender in [Client, Server] {
            for packet in [
                PacketType::Initial,
                PacketType::Handshake,
                PacketType::OneRtt,
            ] {
                let frame = integers(&[kind, 0, 0]);
                let code = code_after(sender, packet, &frame);
                assert_eq!(
                    code,
                    Some(FRAME_ENCODING_ERROR),
                    "{kind:#x} {sender:?} {packet:?}"
                );
            }
        }
    }
}
