//! Clients that are slow or silent, each by one of its ways, with time-outs cut short; the defaults
//! are tested in the engine.

use super::Victim;
use crate::harness::wait_until;
use crate::wire::Wire;

const CLIENTS: u64 = 100;

fn clients(victim: &Victim) -> Vec<Wire> {
    (0..CLIENTS).map(|_| victim.connect()).collect()
}

/// Keeps on with `drip` on each connection until the server has closed all of them.
fn drip_until_closed(victim: &Victim, clients: &mut [Wire], drip: &[u8]) {
    wait_until("all slow clients are closed", || {
        victim.assert_serves();
        for client in clients.iter_mut() {
            let _ = client.try_send(drip);
        }
        clients.iter().all(Wire::is_closed)
    });
}

#[test]
fn a_head_that_never_ends_is_given_up() {
    let victim = Victim::configured("client_header_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    }
    let mut answered = 0;
    for client in &mut clients {
        client.send("x");
        victim.assert_serves();
        let rest = client.rest();
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
        answered += 1;
    }
    assert_eq!(answered, CLIENTS);
    assert_eq!(victim.total("timeouts"), CLIENTS);
    victim.assert_stands();
}

#[test]
fn content_that_drips_does_not_hold_a_connection() {
    let victim = Victim::configured("client_body_timeout = 1\nclient_body_rate = 1000", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send(
            "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
        );
        assert_eq!(client.read().status, 405);
    }
    drip_until_closed(&victim, &mut clients, b"1\r\nx\r\n");
    assert_eq!(victim.total("timeouts"), CLIENTS);
    victim.assert_stands();
}

#[test]
fn an_answer_that_is_not_read_is_cut() {
    let victim = Victim::configured("send_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        // Far more than the buffers of both sockets take.
        client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(8));
    }
    wait_until("all are cut", || {
        victim.assert_serves();
        victim.total("timeouts") == CLIENTS
    });
    victim.assert_stands();
}

#[test]
fn idle_connections_are_not_hoarded() {
    let victim = Victim::configured("keepalive_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read().status, 200);
    }
    wait_until("all are closed", || clients.iter().all(Wire::is_closed));
    victim.assert_stands();
}

#[test]
fn idle_connections_make_room_for_honest_ones() {
    let victim = Victim::configured("worker_threads = 1\nworker_connections = 20", "");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read().status, 200);
        clients.push(client);
    }
    assert!(victim.total("evicted") >= CLIENTS - 20);
    wait_until("they are gone", || victim.total("connections") <= 20);
    victim.assert_stands();
}

#[test]
fn heads_that_never_end_keep_no_client_out() {
    let victim = Victim::configured("worker_threads = 1\nworker_connections = 20", "");
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
        clients.push(client);
        if number % 10 == 0 {
            victim.assert_serves();
        }
    }
    assert!(victim.total("evicted") >= CLIENTS - 20);
    assert_eq!(victim.total("refused"), 0);
    victim.assert_stands();
}

#[test]
fn clients_that_vanish_leave_nothing_behind() {
    let victim = Victim::with_defaults();
    let descriptors = || {
        let folder = format!("/proc/{}/fd", victim.apus.pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    let download = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let upload = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc";
    wait_until("the first connection is gone", || {
        victim.total("connections") == 0
    });
    let before = descriptors();
    let many = download.repeat(5);
    for number in 0..500 {
        let mut client = victim.connect();
        let message = ["", "GET / HT", download, upload, &many][number % 5];
        client.send(message);
        if message.starts_with(download) {
            client.wait();
        }
        // What was not read makes a reset of it.
        drop(client);
    }
    wait_until("all connections are gone", || {
        victim.total("connections") == 0
    });
    // Each worker keeps the root open from its first file on.
    let roots = victim.status()["workers"].as_array().unwrap().len();
    wait_until("their descriptors are back", || {
        descriptors() <= before + roots
    });
    victim.assert_stands();
}
