//! Discovery of the largest packets of a path (RFC 9000 section 14, RFC 8899).

use std::time::Duration;

use crate::harness::*;

fn largest_sent(pair: &Pair) -> usize {
    let sent = pair.sent.iter().filter(|sent| sent.is_delivered);
    sent.map(|sent| sent.datagram.bytes.len()).max().unwrap()
}

/// A pair over a path that passes datagrams of at most so many bytes, after the search.
fn searched(mtu: usize) -> Pair {
    let mut pair = Pair::new();
    pair.links(|link| link.mtu = mtu);
    pair.handshake();
    pair.run_for(ms(10_000));
    pair
}

#[test]
fn the_largest_size_is_found_by_the_first_probe() {
    let mut pair = searched(1_500);
    for side in [Client, Server] {
        assert_eq!(pair.connection(side).current_mtu(), 1_452);
    }
    pair.transfer(Server, 100_000);
    assert_eq!(largest_sent(&pair), 1_452);
}

#[test]
fn a_smaller_size_is_found_by_halves() {
    for mtu in [1_220, 1_300, 1_400, 1_451] {
        let mut pair = searched(mtu);
        let found = usize::from(pair.connection(Server).current_mtu());
        assert!(found <= mtu && found + 20 > mtu, "{found} of {mtu}");
        pair.transfer(Server, 100_000);
    }
}

#[test]
fn a_path_with_the_least_size_is_used() {
    let mut pair = searched(1_200);
    assert_eq!(pair.connection(Server).current_mtu(), 1_200);
    pair.transfer(Server, 100_000);
}

/// RFC 9000 section 14.4: a lost probe is no sign of congestion.
#[test]
fn lost_probes_do_not_make_the_window_smaller() {
    let mut pair = searched(1_200);
    let stats = pair.connection(Server).stats().path;
    assert_eq!((stats.lost_packets, stats.congestion_events), (0, 0));
    assert!(stats.cwnd >= 12_000);
}

/// RFC 8899 section 4.3. Probes after a timeout had the size that does not pass, so that no acknowledgement told what was lost,
/// and the connection timed out.
#[test]
fn a_path_that_does_not_pass_large_packets_any_more_gets_small_ones() {
    let mut pair = searched(1_500);
    pair.links(|link| link.mtu = 1_280);
    pair.transfer(Server, 200_000);
    assert_eq!(pair.connection(Server).current_mtu(), 1_200);
    // After a minute, larger ones are tried again.
    pair.run_for(Duration::from_secs(15));
    pair.links(|link| link.mtu = 1_500);
    for _ in 0..10 {
        pair.run_for(Duration::from_secs(10));
        pair.transfer(Server, 2_000);
    }
    assert_eq!(pair.connection(Server).current_mtu(), 1_452);
}

#[test]
fn packets_are_not_larger_than_the_peer_accepts() {
    let mut pair = Pair::connected_with(Settings {
        edit_client_parameters: Some(parameters::number(0x3, 1_300)),
        ..Settings::default()
    });
    pair.transfer(Server, 100_000);
    assert_eq!(pair.connection(Server).current_mtu(), 1_300);
    let server = pair
        .sent
        .iter()
        .filter(|sent| sent.datagram.sender == Server);
    assert_eq!(
        server.map(|sent| sent.datagram.bytes.len()).max(),
        Some(1_300)
    );
}

#[test]
fn nothing_is_searched_where_packets_may_be_fragmented() {
    let mut pair = Pair::connected_with(Settings {
        can_discover_mtu: false,
        ..Settings::default()
    });
    pair.transfer(Server, 100_000);
    assert_eq!(largest_sent(&pair), 1_200);
}
