//! Connection IDs: issued, used, retired (RFC 9000 section 5.1).

use apus_quic_protocol::Side;

use crate::harness::wire::{PacketType, integers, kind, new_connection_id};
use crate::harness::*;

/// The code by which the client closes the connection after these frames of the server.
fn code_after(pair: &mut Pair, frames: Vec<u8>) -> Option<u64> {
    pair.inject(Server, frames);
    pair.run_for(ms(50));
    pair.client.own_error()
}

fn sequence_numbers(pair: &Pair, side: Side, kind: u64) -> Vec<u64> {
    let frames = pair
        .packets(side)
        .into_iter()
        .flat_map(|packet| packet.frames());
    let mut numbers: Vec<_> = frames
        .filter(|frame| frame.kind == kind)
        .map(|frame| frame.fields[0])
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

#[test]
fn each_end_offers_two_more_connection_ids() {
    let pair = Pair::connected();
    for side in [Client, Server] {
        assert_eq!(
            sequence_numbers(&pair, side, kind::NEW_CONNECTION_ID),
            [1, 2]
        );
    }
}

/// Section 5.1.1.
#[test]
fn no_more_connection_ids_are_offered_than_the_peer_keeps() {
    let pair = Pair::connected_with(Settings {
        edit_client_parameters: Some(parameters::number(0xe, 2)),
        ..Settings::default()
    });
    assert_eq!(
        sequence_numbers(&pair, Server, kind::NEW_CONNECTION_ID),
        [1]
    );
}

#[test]
fn a_retired_connection_id_is_replaced() {
    let mut pair = Pair::connected();
    pair.inject(Client, integers(&[kind::RETIRE_CONNECTION_ID, 1]));
    pair.run_for(ms(100));
    assert_eq!(
        sequence_numbers(&pair, Server, kind::NEW_CONNECTION_ID),
        [1, 2, 3]
    );
    pair.transfer(Client, 1_000);
}

#[test]
fn a_lost_offer_is_made_again() {
    let mut pair = Pair::new();
    let mut lost = 0;
    pair.rule(Client, move |_, packets| {
        let is_offer = packets
            .iter()
            .any(|packet| packet.has(kind::NEW_CONNECTION_ID));
        if is_offer && lost < 2 {
            lost += 1;
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.handshake();
    pair.run_for(ms(3_000));
    let offers: usize = pair
        .seen()
        .iter()
        .filter(|seen| seen.sender == Client && seen.sent.is_delivered)
        .map(|seen| {
            let frames = seen.packets.iter().flat_map(|packet| packet.frames());
            frames
                .filter(|frame| frame.kind == kind::NEW_CONNECTION_ID)
                .count()
        })
        .sum();
    assert!(offers >= 2, "{offers}");
}

/// Section 19.16.
#[test]
fn the_retirement_of_a_connection_id_that_was_not_issued_is_an_error() {
    for (sequence, code) in [(2, None), (3, Some(0xa))] {
        let mut pair = Pair::connected();
        let retire = integers(&[kind::RETIRE_CONNECTION_ID, sequence]);
        assert_eq!(code_after(&mut pair, retire), code, "{sequence}");
    }
}

#[test]
fn a_packet_that_retires_its_own_connection_id_is_an_error() {
    let mut pair = Pair::connected();
    let retire = integers(&[kind::RETIRE_CONNECTION_ID, 0]);
    assert_eq!(code_after(&mut pair, retire), Some(0xa));
}

/// The limit is five, and the server has offered three.
#[test]
fn more_connection_ids_than_the_limit_are_an_error() {
    let mut pair = Pair::connected();
    for (sequence, code) in [(3, None), (4, None), (5, Some(0x9))] {
        let id = [sequence as u8; 8];
        assert_eq!(
            code_after(&mut pair, new_connection_id(sequence, 0, &id)),
            code
        );
    }
}

#[test]
fn a_connection_id_with_two_meanings_is_an_error() {
    for frame in [
        new_connection_id(3, 0, &[3; 8]),
        new_connection_id(9, 0, &[9; 8]),
    ] {
        let mut pair = Pair::connected();
        assert_eq!(
            code_after(&mut pair, new_connection_id(3, 0, &[9; 8])),
            None
        );
        assert_eq!(code_after(&mut pair, frame), Some(0xa));
    }
}

#[test]
fn an_offer_that_comes_twice_is_no_error() {
    let mut pair = Pair::connected();
    for _ in 0..3 {
        assert_eq!(
            code_after(&mut pair, new_connection_id(3, 0, &[9; 8])),
            None
        );
    }
}

/// Section 19.15.
#[test]
fn a_connection_id_without_bytes_and_one_that_retires_itself_are_errors() {
    for frame in [
        new_connection_id(3, 0, &[]),
        new_connection_id(3, 0, &[9; 21]),
        new_connection_id(3, 4, &[9; 8]),
    ] {
        let mut pair = Pair::connected();
        assert_eq!(code_after(&mut pair, frame), Some(0x7));
    }
}

#[test]
fn a_server_that_retires_its_connection_ids_gets_packets_with_the_new_one() {
    let mut pair = Pair::connected();
    let before = pair.last_packet(Client, PacketType::OneRtt).destination;
    // The one with number 2 is known to the server.
    pair.edit(Server, PacketType::OneRtt, |packet| {
        packet.payload = new_connection_id(10, 2, &[0xa1, 1, 1, 1, 1, 1, 1, 1]);
    });
    pair.connection(Server).ping();
    pair.run_for(ms(100));
    let after = pair.last_packet(Client, PacketType::OneRtt).destination;
    assert_ne!(before, after);
    assert_eq!(
        sequence_numbers(&pair, Client, kind::RETIRE_CONNECTION_ID),
        [0, 1]
    );
    pair.transfer(Client, 1_000);
}

/// Section 5.1.2: a peer that makes this end retire connection IDs without acknowledging it.
#[test]
fn too_many_connection_ids_to_retire_are_an_error() {
    let mut pair = Pair::connected();
    pair.lose_all(Client);
    let last = pair.last_packet(Server, PacketType::OneRtt);
    for number in 1..80 {
        let sequence = 100 + number;
        let frame = new_connection_id(sequence, sequence, &[number as u8; 8]);
        pair.forge(Server, &last.following(number, &frame));
    }
    pair.step();
    assert_eq!(pair.client.own_error(), Some(0x9));
}
