//! The idle timeout and what keeps a connection alive (RFC 9000 section 10.1).

use std::time::Duration;

use apus_quic_protocol::{ConnectionEnd, Dir, TransportConfig};

use crate::harness::*;

fn config(idle: Option<u64>, keep_alive: Option<u64>) -> TransportConfig {
    TransportConfig {
        max_idle_timeout: idle.map(ms),
        keep_alive: keep_alive.map(ms),
        ..TransportConfig::default()
    }
}

fn pair(client: TransportConfig, server: TransportConfig) -> Pair {
    Pair::connected_with(Settings {
        client,
        server,
        ..Settings::default()
    })
}

/// When each end has ended by its timeout, since now.
fn end_times(pair: &mut Pair) -> [Duration; 2] {
    let begin = pair.time();
    let mut times = [None; 2];
    pair.run_until(|pair| {
        let time = pair.time() - begin;
        for (side, slot) in [Client, Server].into_iter().zip(&mut times) {
            if pair.end(side).end() == Some(ConnectionEnd::TimedOut) {
                slot.get_or_insert(time);
            }
        }
        times.iter().all(Option::is_some)
    });
    times.map(|time| time.expect("it has timed out"))
}

#[test]
fn the_smaller_timeout_of_both_ends_counts() {
    for (client, server) in [(5_000, 60_000), (60_000, 5_000)] {
        let mut pair = pair(config(Some(client), None), config(Some(server), None));
        pair.transfer(Client, 10);
        for time in end_times(&mut pair) {
            assert!(time > ms(4_900) && time < ms(5_100), "{time:?}");
        }
    }
}

#[test]
fn a_timeout_of_one_end_alone_counts_for_both() {
    for (client, server) in [(Some(5_000), None), (None, Some(5_000))] {
        let mut pair = pair(config(client, None), config(server, None));
        for time in end_times(&mut pair) {
            assert!(time < ms(5_100), "{time:?}");
        }
    }
}

#[test]
fn a_connection_without_timeouts_stays() {
    let mut pair = pair(config(None, None), config(None, None));
    pair.run_for(Duration::from_secs(3_600));
    pair.transfer(Server, 100);
}

#[test]
fn an_end_that_times_out_sends_nothing() {
    let mut pair = pair(config(Some(5_000), None), config(None, None));
    pair.run_for(ms(1_000));
    let sent = pair.sent.len();
    pair.run_for(ms(10_000));
    assert_eq!(pair.sent.len(), sent);
    assert_eq!((pair.client.drained, pair.server.drained), (1, 1));
}

#[test]
fn packets_of_the_peer_restart_the_timeout() {
    let mut pair = pair(config(Some(5_000), None), config(None, None));
    for _ in 0..10 {
        pair.run_for(ms(4_000));
        pair.transfer(Server, 10);
    }
    assert_eq!(pair.client.end(), None);
}

/// Only the first packet after one was received restarts it: else a peer that is gone would keep the connection alive.
#[test]
fn packets_that_are_sent_to_a_silent_peer_do_not_restart_the_timeout() {
    let mut pair = pair(config(Some(5_000), None), config(None, None));
    pair.lose_all(Server);
    pair.run_for(ms(3_000));
    pair.client.send(Dir::Uni, data(10), true);
    let begin = pair.time();
    for _ in 0..6 {
        pair.run_for(ms(1_000));
        if pair.client.end().is_none() {
            pair.connection(Client).ping();
        }
    }
    pair.run_until(|pair| pair.client.end().is_some());
    let time = pair.time() - begin;
    assert!(time >= ms(5_000) && time <= ms(6_000), "{time:?}");
}

#[test]
fn keep_alive_packets_keep_an_idle_connection() {
    for side in [Client, Server] {
        let (mut client, mut server) = (config(Some(5_000), None), config(Some(5_000), None));
        let own = if side == Client {
            &mut client
        } else {
            &mut server
        };
        own.keep_alive = Some(ms(3_000));
        let mut pair = pair(client, server);
        pair.run_for(ms(100_000));
        assert_eq!((pair.client.end(), pair.server.end()), (None, None));
        pair.transfer(Client, 10);
    }
}

#[test]
fn keep_alive_packets_do_not_keep_a_connection_to_a_silent_peer() {
    let mut pair = pair(config(Some(5_000), Some(1_000)), config(None, None));
    pair.run_for(ms(10_000));
    pair.lose_all(Server);
    pair.run_for(ms(7_100));
    assert_eq!(pair.client.end(), Some(ConnectionEnd::TimedOut));
}

/// Section 10.1: a timeout below three probe timeouts would end a connection by one lost packet.
#[test]
fn the_timeout_is_at_least_three_probe_timeouts() {
    let mut pair = Pair::with(Settings {
        client: config(Some(100), None),
        server: config(Some(100), None),
        ..Settings::default()
    });
    pair.links(|link| link.delay = ms(500));
    pair.handshake();
    assert_eq!((pair.client.end(), pair.server.end()), (None, None));
    pair.lose(Client, &[0]);
    pair.transfer(Client, 10);
}
