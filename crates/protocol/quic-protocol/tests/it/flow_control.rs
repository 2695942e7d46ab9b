//! Flow control of streams and connections (RFC 9000 section 4), at its edges.

use apus_quic_protocol::{ConnectionEvent, Dir, Side, StreamEvent, TransportConfig};

use crate::harness::wire::{PacketType, integers, kind, stream};
use crate::harness::*;

/// The server takes so much for a stream, and over all streams.
fn limited(stream_window: u64, window: u64) -> Pair {
    Pair::connected_with(Settings {
        server: TransportConfig {
            receive_window: window,
            stream_receive_window: stream_window,
            max_bidirectional_streams: 10,
            max_unidirectional_streams: 10,
            ..TransportConfig::default()
        },
        ..Settings::default()
    })
}

/// The highest offset that an end has sent of the first unidirectional stream of the client.
fn highest_offset(pair: &Pair) -> u64 {
    let frames = pair
        .packets(Client)
        .into_iter()
        .flat_map(|packet| packet.frames());
    let ends = frames
        .filter(|frame| frame.kind & 0xf8 == kind::STREAM && frame.fields[0] == 2)
        .map(|frame| frame.fields[1] + frame.fields[2]);
    ends.max().unwrap_or(0)
}

#[test]
fn a_sender_stops_exactly_at_the_limit_of_a_stream() {
    let mut pair = limited(20_000, 1 << 20);
    pair.server.reads = false;
    pair.client.send(Dir::Uni, data(50_000), true);
    pair.run_for(ms(2_000));
    assert_eq!(highest_offset(&pair), 20_000);
    assert_eq!(pair.client.unwritten(), 30_000);
}

#[test]
fn a_sender_stops_exactly_at_the_limit_of_the_connection() {
    let mut pair = limited(20_000, 50_000);
    pair.server.reads = false;
    for _ in 0..4 {
        pair.client.send(Dir::Uni, data(20_000), true);
    }
    pair.run_for(ms(2_000));
    assert_eq!(pair.client.unwritten(), 30_000);
    // Streams beyond the limit do not get any of it.
    assert_eq!(pair.server.end(), None);
}

#[test]
fn reading_lets_the_sender_continue() {
    let mut pair = limited(20_000, 30_000);
    pair.server.reads = false;
    let stream = pair.client.send(Dir::Uni, data(100_000), true);
    pair.run_for(ms(2_000));
    pair.server.reads = true;
    assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
    assert!(pair.server.inbox[&stream] == data(100_000));
}

/// Section 13.3: each of them is sent again with the present value.
#[test]
fn lost_limits_are_sent_again() {
    let mut pair = limited(20_000, 30_000);
    let mut seen = 0;
    pair.rule(Server, move |_, packets| {
        let has_limit = packets
            .iter()
            .any(|packet| packet.has(kind::MAX_DATA) || packet.has(kind::MAX_STREAM_DATA));
        seen += usize::from(has_limit);
        if has_limit && seen % 2 == 1 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.transfer(Client, 200_000);
}

/// The code by which the server closes the connection after these frames.
fn code_after(pair: &mut Pair, frames: Vec<u8>) -> Option<u64> {
    pair.inject(Client, frames);
    pair.run_for(ms(50));
    pair.server.own_error()
}

#[test]
fn one_byte_beyond_the_limit_of_a_stream_is_an_error() {
    for (offset, code) in [(19_998, None), (19_999, None), (20_000, Some(0x3))] {
        let mut pair = limited(20_000, 1 << 20);
        assert_eq!(code_after(&mut pair, stream(2, offset, b"a", false)), code);
    }
}

#[test]
fn one_byte_beyond_the_limit_of_the_connection_is_an_error() {
    for (offset, code) in [(9_998, None), (9_999, None), (10_000, Some(0x3))] {
        let mut pair = limited(20_000, 30_000);
        pair.server.reads = false;
        let streams = [
            stream(2, 19_999, b"a", false),
            stream(6, offset, b"a", false),
        ];
        assert_eq!(code_after(&mut pair, streams.concat()), code);
    }
}

#[test]
fn the_final_size_of_a_reset_stream_counts_for_the_connection() {
    for (size, code) in [(10_000, None), (10_001, Some(0x3))] {
        let mut pair = limited(20_000, 30_000);
        pair.server.reads = false;
        let reset = integers(&[kind::RESET_STREAM, 6, 0, size]);
        let streams = [stream(2, 19_999, b"a", false), reset];
        assert_eq!(code_after(&mut pair, streams.concat()), code);
    }
}

#[test]
fn data_that_comes_again_is_counted_once() {
    let mut pair = limited(20_000, 30_000);
    pair.server.reads = false;
    let again = stream(2, 0, &data(1_000), false).repeat(1);
    for _ in 0..40 {
        assert_eq!(code_after(&mut pair, again.clone()), None);
    }
    assert_eq!(code_after(&mut pair, stream(2, 19_999, b"a", false)), None);
}

#[test]
fn a_lower_limit_than_before_is_ignored() {
    let mut pair = limited(20_000, 30_000);
    pair.inject(
        Server,
        [
            integers(&[kind::MAX_DATA, 10]),
            integers(&[kind::MAX_STREAMS + 1, 1]),
        ]
        .concat(),
    );
    pair.run_for(ms(50));
    pair.transfer(Client, 100_000);
    pair.transfer(Client, 100_000);
}

#[test]
fn resets_and_stops_give_their_data_back_to_the_connection() {
    let mut pair = limited(20_000, 30_000);
    for round in 0..10 {
        let stream = pair.client.send(Dir::Uni, data(15_000), false);
        pair.run_for(ms(100));
        if round % 2 == 0 {
            pair.connection(Client).reset(stream, 7).unwrap();
        } else {
            pair.connection(Server).stop_sending(stream, 7).unwrap();
        }
        pair.run_for(ms(300));
    }
    pair.transfer(Client, 30_000);
}

#[test]
fn no_more_streams_are_opened_than_the_peer_allows() {
    let mut pair = limited(20_000, 1 << 20);
    for direction in [Dir::Bi, Dir::Uni] {
        for _ in 0..10 {
            assert!(pair.connection(Client).open(direction).is_some());
        }
        assert_eq!(pair.connection(Client).open(direction), None);
    }
}

#[test]
fn a_stream_can_be_opened_when_another_one_is_over() {
    let mut pair = limited(20_000, 1 << 20);
    for _ in 0..10 {
        pair.client.send(Dir::Uni, data(10), true);
    }
    assert_eq!(pair.connection(Client).open(Dir::Uni), None);
    // The first MAX_STREAMS is lost.
    let mut is_lost = false;
    pair.rule(Server, move |_, packets| {
        let has_limit = packets
            .iter()
            .any(|packet| packet.has(kind::MAX_STREAMS + 1));
        if has_limit && !std::mem::replace(&mut is_lost, has_limit) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.run_for(ms(2_000));
    let available = ConnectionEvent::Stream(StreamEvent::Available(Dir::Uni));
    assert!(pair.client.events.contains(&available));
    assert!(pair.connection(Client).open(Dir::Uni).is_some());
}

#[test]
fn a_stream_beyond_the_limit_is_an_error() {
    for (id, code) in [
        (4 * 9, None),
        (4 * 10, Some(0x4)),
        (4 * 9 + 2, None),
        (4 * 10 + 2, Some(0x4)),
    ] {
        let mut pair = limited(20_000, 1 << 20);
        assert_eq!(code_after(&mut pair, stream(id, 0, b"a", false)), code);
    }
}

#[test]
fn a_limit_of_more_streams_than_there_are_is_an_error() {
    for (limit, code) in [(1 << 60, None), ((1 << 60) + 1, Some(0x7))] {
        let mut pair = Pair::connected();
        let frame = integers(&[kind::MAX_STREAMS, limit]);
        assert_eq!(code_after(&mut pair, frame), code);
    }
}

#[test]
fn a_writer_holds_no_more_than_its_send_window() {
    let mut pair = Pair::connected();
    pair.lose_all(Server);
    pair.connection(Client).set_send_window(10_000);
    pair.client.send(Dir::Uni, data(30_000), true);
    pair.run_for(ms(100));
    assert_eq!(pair.client.unwritten(), 20_000);
    pair.no_rule(Server);
    pair.run_for(ms(2_000));
    assert_eq!(pair.client.unwritten(), 0);
    let packets = pair.packets(Client);
    assert!(
        packets
            .iter()
            .any(|packet| packet.kind == PacketType::OneRtt)
    );
}

/// The fields of the frames of these types that an end has sent.
fn fields_of(pair: &Pair, side: Side, kinds: &[u64]) -> Vec<Vec<u64>> {
    let frames = pair
        .packets(side)
        .into_iter()
        .flat_map(|packet| packet.frames());
    frames
        .filter(|frame| kinds.contains(&frame.kind))
        .map(|frame| frame.fields)
        .collect()
}

const BLOCKED: [u64; 4] = [
    kind::DATA_BLOCKED,
    kind::STREAM_DATA_BLOCKED,
    kind::STREAMS_BLOCKED,
    kind::STREAMS_BLOCKED + 1,
];

/// Sections 4.1 and 4.6.
#[test]
fn an_end_that_is_held_up_by_a_limit_says_so_once() {
    let mut pair = limited(20_000, 1 << 20);
    pair.server.reads = false;
    let stream = pair.client.send(Dir::Uni, data(50_000), true);
    pair.run_for(ms(2_000));
    assert_eq!(fields_of(&pair, Client, &BLOCKED), [[2, 20_000]]);
    // Again for each further limit, until everything is written.
    pair.server.reads = true;
    assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
    let told = fields_of(&pair, Client, &[kind::STREAM_DATA_BLOCKED]);
    assert!(
        told.windows(2).all(|pair| pair[0][1] < pair[1][1]),
        "{told:?}"
    );
    assert!(told.iter().all(|fields| fields[1] < 50_000), "{told:?}");

    let mut pair = limited(20_000, 50_000);
    pair.server.reads = false;
    for _ in 0..4 {
        pair.client.send(Dir::Uni, data(20_000), true);
    }
    pair.run_for(ms(2_000));
    assert_eq!(fields_of(&pair, Client, &BLOCKED), [[50_000]]);

    for (direction, kind) in [
        (Dir::Bi, kind::STREAMS_BLOCKED),
        (Dir::Uni, kind::STREAMS_BLOCKED + 1),
    ] {
        let mut pair = limited(20_000, 1 << 20);
        while pair.connection(Client).open(direction).is_some() {}
        assert_eq!(pair.connection(Client).open(direction), None);
        pair.run_for(ms(2_000));
        assert_eq!(fields_of(&pair, Client, &[kind]), [[10]]);
        assert_eq!(fields_of(&pair, Client, &BLOCKED).len(), 1);
    }
}

#[test]
fn an_end_that_writes_to_a_limit_and_no_more_is_not_held_up() {
    let mut pair = limited(20_000, 40_000);
    pair.server.reads = false;
    pair.client.send(Dir::Uni, data(20_000), true);
    pair.client.send(Dir::Uni, data(20_000), true);
    // This one waits for acknowledgements.
    pair.connection(Server).set_send_window(10_000);
    pair.server.send(Dir::Uni, data(100_000), true);
    pair.run_for(ms(2_000));
    assert!(fields_of(&pair, Client, &BLOCKED).is_empty());
    assert!(fields_of(&pair, Server, &BLOCKED).is_empty());
}

/// Section 13.3: while the limit still holds the end up.
#[test]
fn a_lost_frame_that_tells_of_a_limit_is_sent_again() {
    let mut pair = limited(20_000, 30_000);
    pair.server.reads = false;
    let mut is_lost = false;
    pair.rule(Client, move |_, packets| {
        let has_frame = packets
            .iter()
            .any(|packet| BLOCKED.iter().any(|kind| packet.has(*kind)));
        if has_frame && !std::mem::replace(&mut is_lost, has_frame) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.client.send(Dir::Uni, data(50_000), true);
    pair.run_for(ms(2_000));
    assert_eq!(fields_of(&pair, Client, &BLOCKED), [[2, 20_000]; 2]);
    pair.client.send(Dir::Uni, data(20_000), true);
    pair.run_for(ms(2_000));
    assert_eq!(fields_of(&pair, Client, &[kind::DATA_BLOCKED]), [[30_000]]);
}
