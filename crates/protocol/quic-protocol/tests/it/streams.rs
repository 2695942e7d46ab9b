//! The states of streams (RFC 9000 sections 2 and 3) over a network that loses and mixes up packets.

use apus_quic_protocol::{ConnectionEvent, Dir, StreamEvent, StreamId, StreamWriteError};

use crate::harness::wire::{integers, kind, stream};
use crate::harness::*;

/// The first stream that the client opens.
fn first(direction: Dir) -> StreamId {
    StreamId::new(Client, direction, 0)
}

/// The code by which the server closes the connection after these frames.
fn code_after(pair: &mut Pair, frames: Vec<u8>) -> Option<u64> {
    pair.inject(Client, frames);
    pair.run_for(ms(50));
    pair.server.own_error()
}

#[test]
fn data_arrives_in_order_over_a_network_that_mixes_it_up() {
    for seed in 0..3 {
        let mut pair = Pair::connected_with(Settings {
            seed,
            ..Settings::default()
        });
        pair.links(|link| {
            (link.loss, link.reordering, link.duplication) = (0.05, 0.3, 0.1);
        });
        pair.transfer(Client, 200_000);
        pair.transfer(Server, 200_000);
    }
}

#[test]
fn a_reset_reaches_the_reader_in_place_of_data() {
    let mut pair = Pair::connected();
    pair.server.reads = false;
    let stream = pair.client.send(Dir::Uni, data(10_000), false);
    pair.run_for(ms(100));
    assert!(pair.connection(Server).received_memory() > 0);
    pair.connection(Client).reset(stream, 77).unwrap();
    pair.run_for(ms(100));
    assert_eq!(pair.connection(Server).received_memory(), 0);
    pair.server.reads = true;
    pair.step();
    assert_eq!(pair.server.resets[&stream], 77);
}

#[test]
fn a_lost_reset_is_sent_again() {
    let mut pair = Pair::connected();
    let stream = pair.client.send(Dir::Uni, data(100), false);
    pair.run_for(ms(100));
    pair.lose(Client, &[0]);
    pair.connection(Client).reset(stream, 77).unwrap();
    pair.run_for(ms(1_000));
    assert_eq!(pair.server.resets[&stream], 77);
}

#[test]
fn a_peer_that_is_asked_to_stop_resets_its_stream() {
    let mut pair = Pair::connected();
    let stream = pair.client.send(Dir::Uni, data(100), false);
    pair.run_for(ms(100));
    // The first STOP_SENDING is lost.
    pair.lose(Server, &[0]);
    pair.connection(Server).stop_sending(stream, 77).unwrap();
    pair.run_for(ms(1_000));
    let stopped = ConnectionEvent::Stream(StreamEvent::Stopped { stream, code: 77 });
    assert!(pair.client.events.contains(&stopped));
    let frames = pair
        .packets(Client)
        .into_iter()
        .flat_map(|packet| packet.frames());
    let resets: Vec<_> = frames
        .filter(|frame| frame.kind == kind::RESET_STREAM)
        .collect();
    assert_eq!(resets[0].fields, [2, 77, 100]);
    let written = pair.connection(Client).write(stream, &mut [data(1)]);
    assert!(written.is_err());
}

#[test]
fn a_stop_after_everything_was_received_changes_nothing() {
    let mut pair = Pair::connected();
    pair.server.reads = false;
    let stream = pair.client.send(Dir::Uni, data(100), true);
    pair.run_for(ms(200));
    pair.connection(Server).stop_sending(stream, 77).unwrap();
    pair.run_for(ms(200));
    let finished = ConnectionEvent::Stream(StreamEvent::Finished(stream));
    assert!(pair.client.events.contains(&finished));
    let packets = pair.packets(Server);
    assert!(!packets.iter().any(|packet| packet.has(kind::STOP_SENDING)));
}

#[test]
fn the_end_of_a_stream_is_sent_until_it_arrives() {
    let mut pair = Pair::connected();
    let stream = pair.client.send(Dir::Uni, data(100), false);
    pair.run_for(ms(100));
    pair.lose(Client, &[0, 1]);
    pair.client.send_on(stream, data(0), true);
    assert!(pair.run_until(|pair| pair.server.finished.contains(&stream)));
    let finished = ConnectionEvent::Stream(StreamEvent::Finished(stream));
    assert!(pair.run_until(|pair| pair.client.events.contains(&finished)));
}

#[test]
fn a_stream_without_data_can_end() {
    let mut pair = Pair::connected();
    for side in [Client, Server] {
        pair.transfer(side, 0);
    }
}

#[test]
fn a_finished_stream_is_not_written_and_not_reset_after_its_acknowledgement() {
    let mut pair = Pair::connected();
    let stream = pair.transfer(Client, 100);
    pair.run_for(ms(100));
    let closed = Err(StreamWriteError::Closed);
    assert_eq!(
        pair.connection(Client).write(stream, &mut [data(1)]),
        closed
    );
    assert_eq!(
        pair.connection(Client).finish(stream),
        Err(StreamWriteError::Closed)
    );
    assert_eq!(
        pair.connection(Client).reset(stream, 1),
        Err(StreamWriteError::Closed)
    );
    assert_eq!(pair.connection(Client).sending_streams(), 0);
}

/// Section 4.5.
#[test]
fn data_beyond_the_end_of_a_stream_is_an_error() {
    let mut pair = Pair::connected();
    pair.server.reads = false;
    let frames = [stream(2, 0, b"abc", true), stream(2, 3, b"d", false)];
    assert_eq!(code_after(&mut pair, frames.concat()), Some(0x6));
}

/// Section 4.5: also after the application has read everything.
#[test]
fn an_end_that_moves_is_an_error() {
    for moved in [
        stream(2, 0, b"ab", true),
        stream(2, 0, b"abcd", true),
        integers(&[kind::RESET_STREAM, 2, 0, 2]),
        integers(&[kind::RESET_STREAM, 2, 0, 4]),
    ] {
        let mut pair = Pair::connected();
        pair.server.reads = false;
        assert_eq!(code_after(&mut pair, stream(2, 0, b"abc", true)), None);
        assert_eq!(code_after(&mut pair, moved), Some(0x6));
    }
}

/// Sections 19.4, 19.5, 19.8 and 19.10.
#[test]
fn a_frame_for_the_wrong_direction_of_a_stream_is_an_error() {
    for frame in [
        stream(3, 0, b"a", false),
        integers(&[kind::RESET_STREAM, 3, 0, 0]),
        integers(&[kind::STOP_SENDING, 2, 0]),
        integers(&[kind::MAX_STREAM_DATA, 2, 9]),
        integers(&[0x15, 3, 9]),
    ] {
        let mut pair = Pair::connected();
        assert_eq!(
            code_after(&mut pair, frame.clone()),
            Some(0x5),
            "{frame:x?}"
        );
    }
}

/// Section 19.8: the server has not opened it.
#[test]
fn a_frame_for_a_stream_that_the_receiver_has_not_opened_is_an_error() {
    for frame in [
        stream(1, 0, b"a", false),
        integers(&[kind::STOP_SENDING, 3, 0]),
        integers(&[kind::MAX_STREAM_DATA, 1, 9]),
    ] {
        let mut pair = Pair::connected();
        assert_eq!(
            code_after(&mut pair, frame.clone()),
            Some(0x5),
            "{frame:x?}"
        );
    }
}

/// Section 2.1.
#[test]
fn a_stream_opens_all_streams_of_its_kind_before_it() {
    let mut pair = Pair::connected();
    pair.lose(Client, &[0]);
    pair.client.send(Dir::Bi, data(10), true);
    pair.run_for(ms(1));
    pair.client.send(Dir::Bi, data(10), true);
    pair.client.send(Dir::Bi, data(10), true);
    pair.run_for(ms(12));
    let opened: Vec<_> = pair
        .server
        .events
        .iter()
        .filter_map(|event| match event {
            ConnectionEvent::Stream(StreamEvent::Opened(stream)) => Some(*stream),
            _ => None,
        })
        .collect();
    let expected = [0, 1, 2].map(|index| StreamId::new(Client, Dir::Bi, index));
    assert_eq!(opened, expected);
    assert_eq!(pair.server.inbox[&first(Dir::Bi)].len(), 0);
}

#[test]
fn the_stream_with_the_higher_priority_is_sent_first() {
    let mut pair = Pair::connected();
    let low = pair.client.send(Dir::Uni, data(100_000), true);
    let high = pair.client.send(Dir::Uni, data(100_000), true);
    pair.connection(Client).set_priority(high, 1).unwrap();
    assert!(pair.run_until(|pair| pair.server.finished.contains(&high)));
    assert!(
        pair.server
            .inbox
            .get(&low)
            .is_none_or(|data| data.len() < 50_000)
    );
    assert!(pair.run_until(|pair| pair.server.finished.contains(&low)));
}

#[test]
fn a_hundred_streams_survive_losses() {
    let mut pair = Pair::connected_with(Settings {
        seed: 9,
        ..Settings::default()
    });
    pair.links(|link| (link.loss, link.burst) = (0.05, 3));
    let streams: Vec<_> = (0..100)
        .map(|index| pair.client.send(Dir::Bi, data(100 * index), true))
        .collect();
    assert!(pair.run_until(|pair| pair.server.finished.len() == 100));
    for (index, stream) in streams.iter().enumerate() {
        assert!(pair.server.inbox[stream] == data(100 * index));
    }
}
