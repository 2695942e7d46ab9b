//! What a server sends to an address that is not validated (RFC 9000 section 8.1).

use crate::harness::wire::PacketType;
use crate::harness::*;

/// A client that sends its first datagram only, to a server whose certificate is larger than the response may be.
fn silent_client() -> Pair {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    pair.rule(Client, |number, _| match number {
        0 => Fate::Deliver,
        _ => Fate::Drop,
    });
    pair
}

#[test]
fn a_silent_client_gets_three_times_what_it_has_sent() {
    let mut pair = silent_client();
    pair.run_for(ms(20_000));
    let sent = pair.bytes_sent(Server);
    // Not one byte more, and no full datagram less.
    assert!(sent <= 3 * 1_200 && sent > 2 * 1_200, "{sent}");
}

#[test]
fn each_further_datagram_of_the_client_allows_three_more() {
    let mut pair = silent_client();
    pair.run_for(ms(15));
    let first = pair.sent[0].datagram.clone();
    for datagrams in 2..5 {
        let now = pair.now;
        pair.network.deliver_at(now, first.clone());
        pair.run_for(ms(3_000));
        let sent = pair.bytes_sent(Server);
        assert!(sent <= datagrams * 3 * 1_200, "{sent}");
        assert!(sent > (datagrams - 1) * 3 * 1_200, "{sent}");
    }
}

/// Timers would wake the server for nothing.
#[test]
fn a_server_that_may_not_send_has_no_probe_timeout() {
    let mut pair = silent_client();
    let mut timers = Vec::new();
    pair.run_until(|pair| {
        let begin = pair.begin;
        timers.extend(pair.server.next_timer().map(|timer| timer - begin));
        pair.server.end().is_some()
    });
    assert_eq!(pair.bytes_sent(Server), 3 * 1_200);
    timers.dedup();
    // When it returns memory, and the idle timeout, after the datagram that came at 10 ms.
    assert_eq!(timers[..2], [ms(10 + 5_000), ms(10 + 30_000)]);
}

#[test]
fn a_server_that_may_send_more_has_a_probe_timeout() {
    let mut pair = Pair::new();
    pair.run_for(ms(10));
    assert!(pair.bytes_sent(Server) < 3 * 1_200);
    let timer = pair.server.next_timer().unwrap();
    // Three initial round trips of 333 ms (RFC 9002 section 6.2.2).
    assert_eq!(timer - pair.begin, ms(10 + 999));
}

/// RFC 9002 section 6.2.2.1: all that the client has sent is acknowledged, and it has nothing to send.
#[test]
fn a_client_probes_a_server_that_may_not_send() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    // The rest of the first flight, and what the client responds at first.
    pair.rule(Server, |number, _| match number {
        1 | 2 => Fate::Drop,
        _ => Fate::Deliver,
    });
    let mut dropped = false;
    pair.rule(Client, move |number, _| {
        if number == 1 && !dropped {
            dropped = true;
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    pair.handshake();
    assert!(pair.time() < ms(3_000), "{:?}", pair.time());
}

#[test]
fn a_handshake_packet_of_the_client_lifts_the_limit() {
    let mut pair = Pair::with(Settings {
        has_large_certificate: true,
        ..Settings::default()
    });
    pair.handshake();
    let before = pair.bytes_sent(Client);
    pair.transfer(Server, 300_000);
    assert!(
        pair.bytes_sent(Server) > 3 * pair.bytes_sent(Client),
        "{before}"
    );
}

/// A datagram below 1,200 bytes opens no connection (section 14.1): the response would be larger.
#[test]
fn a_small_first_datagram_gets_no_response() {
    let mut pair = Pair::new();
    pair.lose_all(Client);
    pair.run_for(ms(1));
    let mut initial = pair.last_packet(Client, PacketType::Initial);
    let around = initial.size - initial.payload.len();
    for (size, is_accepted) in [(1_199, false), (1_200, true)] {
        initial.payload.resize(size - around, 0);
        pair.forge(Client, &initial);
        pair.step();
        assert_eq!(pair.server.has_connection(), is_accepted, "{size}");
    }
}
