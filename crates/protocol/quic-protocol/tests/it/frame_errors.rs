//! Frames that are wrong by their fields or by the state of either end, with the code of their error (RFC 9000 section 19).

use apus_quic_protocol::{Dir, Side};

use crate::harness::wire::{crypto, integer, integers, kind, new_connection_id, stream};
use crate::harness::*;

const FLOW_CONTROL_ERROR: u64 = 0x3;
const STREAM_LIMIT_ERROR: u64 = 0x4;
const STREAM_STATE_ERROR: u64 = 0x5;
const FINAL_SIZE_ERROR: u64 = 0x6;
const FRAME_ENCODING_ERROR: u64 = 0x7;
const CONNECTION_ID_LIMIT_ERROR: u64 = 0x9;
const PROTOCOL_VIOLATION: u64 = 0xa;
const CRYPTO_BUFFER_EXCEEDED: u64 = 0xd;

/// Limits of both ends.
const BIDI_STREAMS: u64 = 100;
const UNI_STREAMS: u64 = 8;
const STREAM_WINDOW: u64 = 1 << 20;

/// The greatest integer, and the most streams (sections 4.6 and 16).
const MAX_INTEGER: u64 = (1 << 62) - 1;
const MAX_STREAM_COUNT: u64 = 1 << 60;

/// The frames that an end sends, in one packet, by the section that tells their error.
fn cases(sender: Side) -> Vec<(&'static str, Vec<u8>, u64)> {
    let id = |initiator: Side, direction: Dir, index| {
        4 * index + initiator as u64 + 2 * direction as u64
    };
    let own_bidi = id(sender, Dir::Bi, 0);
    let own_uni = id(sender, Dir::Uni, 0);
    // None of which is open.
    let others_bidi = id(!sender, Dir::Bi, 0);
    let others_uni = id(!sender, Dir::Uni, 0);
    let reset = |id, size| integers(&[kind::RESET_STREAM, id, 0, size]);
    let at = |offset, data: &[u8], is_end| stream(own_bidi, offset, data, is_end);
    vec![
        // The end of the data is beyond the greatest offset.
        ("19.8", at(MAX_INTEGER, b"a", false), FLOW_CONTROL_ERROR),
        ("4.1", at(STREAM_WINDOW, b"a", false), FLOW_CONTROL_ERROR),
        ("4.1", reset(own_uni, STREAM_WINDOW + 1), FLOW_CONTROL_ERROR),
        // Three streams of which each keeps its own limit, and that of the connection is two of them.
        (
            "4.1",
            [0, 1, 2]
                .map(|index| stream(id(sender, Dir::Bi, index), STREAM_WINDOW - 1, b"a", false))
                .concat(),
            FLOW_CONTROL_ERROR,
        ),
        // The final size.
        (
            "4.5",
            [at(0, b"abc", true), at(3, b"d", false)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [at(0, b"abc", true), at(0, b"ab", true)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [at(0, b"abc", true), at(3, b"d", true)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [at(0, b"abc", false), at(0, b"ab", true)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [at(0, b"abc", false), reset(own_bidi, 2)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [at(0, b"abc", true), reset(own_bidi, 4)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [reset(own_bidi, 3), reset(own_bidi, 4)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [reset(own_bidi, 3), at(3, b"d", false)].concat(),
            FINAL_SIZE_ERROR,
        ),
        (
            "4.5",
            [reset(own_bidi, 3), at(0, b"ab", true)].concat(),
            FINAL_SIZE_ERROR,
        ),
        // Streams beyond the limit, by each frame that opens one.
        (
            "4.6",
            stream(id(sender, Dir::Bi, BIDI_STREAMS), 0, b"", false),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            stream(id(sender, Dir::Uni, UNI_STREAMS), 0, b"", false),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            reset(id(sender, Dir::Bi, BIDI_STREAMS), 0),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            reset(id(sender, Dir::Uni, UNI_STREAMS), 0),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[kind::STOP_SENDING, id(sender, Dir::Bi, BIDI_STREAMS), 0]),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[kind::MAX_STREAM_DATA, id(sender, Dir::Bi, BIDI_STREAMS), 0]),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[
                kind::STREAM_DATA_BLOCKED,
                id(sender, Dir::Bi, BIDI_STREAMS),
                0,
            ]),
            STREAM_LIMIT_ERROR,
        ),
        (
            "4.6",
            integers(&[
                kind::STREAM_DATA_BLOCKED,
                id(sender, Dir::Uni, UNI_STREAMS),
                0,
            ]),
            STREAM_LIMIT_ERROR,
        ),
        // Streams of the other end that it has not opened, and its halves of streams.
        ("19.4", reset(others_bidi, 0), STREAM_STATE_ERROR),
        ("19.4", reset(others_uni, 0), STREAM_STATE_ERROR),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, own_uni, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, others_bidi, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.5",
            integers(&[kind::STOP_SENDING, others_uni, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.8",
            stream(others_bidi, 0, b"a", false),
            STREAM_STATE_ERROR,
        ),
        (
            "19.8",
            stream(others_uni, 0, b"a", false),
            STREAM_STATE_ERROR,
        ),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, own_uni, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, others_bidi, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.10",
            integers(&[kind::MAX_STREAM_DATA, others_uni, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.13",
            integers(&[kind::STREAM_DATA_BLOCKED, others_bidi, 0]),
            STREAM_STATE_ERROR,
        ),
        (
            "19.13",
            integers(&[kind::STREAM_DATA_BLOCKED, others_uni, 0]),
            STREAM_STATE_ERROR,
        ),
        // Counts of streams that no stream can reach.
        (
            "19.11",
            integers(&[kind::MAX_STREAMS, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.11",
            integers(&[kind::MAX_STREAMS + 1, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.14",
            integers(&[kind::STREAMS_BLOCKED, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.14",
            integers(&[kind::STREAMS_BLOCKED + 1, MAX_STREAM_COUNT + 1]),
            FRAME_ENCODING_ERROR,
        ),
        // Numbers of packets below zero.
        (
            "19.3.1",
            integers(&[kind::ACK, 0, 0, 0, 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.3.1",
            integers(&[kind::ACK, 1, 0, 1, 0, 0, 0]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.3.1",
            integers(&[kind::ACK, 2, 0, 1, 0, 0, 1]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "13.1",
            integers(&[kind::ACK, 1_000_000, 0, 0, 0]),
            PROTOCOL_VIOLATION,
        ),
        ("19.6", crypto(MAX_INTEGER, b"a"), CRYPTO_BUFFER_EXCEEDED),
        ("7.5", crypto(100_000, b"a"), CRYPTO_BUFFER_EXCEEDED),
        // Connection IDs, of which each end has got those with the numbers 0, 1 and 2.
        (
            "5.1.1",
            (3..=5)
                .flat_map(|number| new_connection_id(number, 0, &[number as u8; 8]))
                .collect(),
            CONNECTION_ID_LIMIT_ERROR,
        ),
        ("19.15", new_connection_id(3, 0, &[]), FRAME_ENCODING_ERROR),
        (
            "19.15",
            new_connection_id(3, 0, &[9; 21]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.15",
            new_connection_id(3, 4, &[9; 8]),
            FRAME_ENCODING_ERROR,
        ),
        (
            "19.15",
            [
                new_connection_id(3, 0, &[8; 8]),
                new_connection_id(3, 0, &[9; 8]),
            ]
            .concat(),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.15",
            [
                new_connection_id(3, 0, &[8; 8]),
                new_connection_id(4, 0, &[8; 8]),
            ]
            .concat(),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.16",
            integers(&[kind::RETIRE_CONNECTION_ID, 0]),
            PROTOCOL_VIOLATION,
        ),
        (
            "19.16",
            integers(&[kind::RETIRE_CONNECTION_ID, 3]),
            PROTOCOL_VIOLATION,
        ),
    ]
}

fn code_after(pair: &mut Pair, sender: Side, frames: Vec<u8>) -> Option<u64> {
    let next = pair.last_packet(sender, wire::PacketType::OneRtt);
    pair.forge(sender, &next.following(2, &frames));
    pair.run_for(ms(1));
    pair.end(!sender).own_error()
}

#[test]
fn a_wrong_frame_is_an_error_of_either_end() {
    for sender in [Client, Server] {
        for (section, frames, code) in cases(sender) {
            let mut pair = Pair::connected();
            pair.end(!sender).reads = false;
            let found = code_after(&mut pair, sender, frames.clone());
            assert_eq!(found, Some(code), "{section} {sender:?} {frames:x?}");
        }
    }
}

/// Section 12.4: each frame without its last byte.
#[test]
fn a_frame_that_is_cut_off_is_an_error_of_either_end() {
    let opaque = |kind| [integer(kind), vec![0; 8]].concat();
    for frame in [
        integers(&[kind::ACK, 0, 0, 0, 0]),
        integers(&[kind::ACK_ECN, 0, 0, 0, 0, 0, 0, 0]),
        integers(&[kind::RESET_STREAM, 0, 0, 0]),
        integers(&[kind::STOP_SENDING, 0, 0]),
        crypto(0, b"a"),
        [integers(&[kind::NEW_TOKEN, 1]), vec![7]].concat(),
        stream(0, 0, b"a", false),
        integers(&[kind::MAX_DATA, 0]),
        integers(&[kind::MAX_STREAM_DATA, 0, 0]),
        integers(&[kind::MAX_STREAMS, 0]),
        integers(&[kind::DATA_BLOCKED, 0]),
        integers(&[kind::STREAM_DATA_BLOCKED, 0, 0]),
        integers(&[kind::STREAMS_BLOCKED, 0]),
        new_connection_id(3, 0, &[1; 8]),
        integers(&[kind::RETIRE_CONNECTION_ID, 1]),
        opaque(kind::PATH_CHALLENGE),
        opaque(kind::PATH_RESPONSE),
        [integers(&[kind::CONNECTION_CLOSE, 0, 0, 1]), vec![b'a']].concat(),
        [integers(&[kind::APPLICATION_CLOSE, 0, 1]), vec![b'a']].concat(),
    ] {
        for sender in [Client, Server] {
            let mut pair = Pair::connected();
            // A frame before it, so that the packet is large enough without padding, which would be read as its rest.
            let cut_off = &frame[..frame.len() - 1];
            let frames = [&[kind::PING as u8; 4][..], cut_off].concat();
            let found = code_after(&mut pair, sender, frames);
            assert_eq!(found, Some(FRAME_ENCODING_ERROR), "{sender:?} {frame:x?}");
        }
    }
}

/// Section 3: what is right, or came late, after a stream is over.
#[test]
fn frames_for_a_stream_that_is_over_are_ignored_by_either_end() {
    for sender in [Client, Server] {
        let mut pair = Pair::connected();
        let other = !sender;
        let sent = pair.end(sender).send(Dir::Bi, data(3), true);
        pair.run_for(ms(50));
        pair.end(other).send_on(sent, data(3), true);
        pair.run_for(ms(50));
        let id = u64::from(sent);
        for frame in [
            stream(id, 0, &data(3), true),
            stream(id, 0, b"ab", false),
            integers(&[kind::RESET_STREAM, id, 0, 3]),
            integers(&[kind::STOP_SENDING, id, 0]),
            integers(&[kind::MAX_STREAM_DATA, id, 1 << 30]),
            integers(&[kind::STREAM_DATA_BLOCKED, id, 3]),
        ] {
            pair.inject(sender, frame.clone());
            pair.run_for(ms(50));
            assert_eq!(pair.end(other).end(), None, "{sender:?} {frame:x?}");
        }
        pair.transfer(sender, 1_000);
        pair.transfer(other, 1_000);
    }
}
