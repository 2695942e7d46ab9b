//! Slow and silent clients, with short timeouts. The tests of the engine check the defaults.

use super::Victim;
use crate::harness::wait_until;
use crate::wire::Wire;

const CLIENTS: u64 = 100;

fn clients(victim: &Victim) -> Vec<Wire> {
    (0..CLIENTS).map(|_| victim.connect()).collect()
}

/// Sends `bytes` again and again on each connection until the server has closed all of them.
fn send_until_closed(victim: &Victim, clients: &mut [Wire], bytes: &[u8]) {
    wait_until("all slow clients are closed", || {
        victim.assert_serves();
        for client in clients.iter_mut() {
            let _ = client.try_send(bytes);
        }
        clients.iter().all(Wire::is_closed)
    });
}

#[test]
fn a_head_that_never_ends_gets_408() {
    let victim = Victim::configured("client_header_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX: ");
    }
    let mut timed_out = 0;
    for client in &mut clients {
        client.send("x");
        victim.assert_serves();
        let rest = client.rest();
        let rest = String::from_utf8_lossy(&rest);
        assert!(rest.starts_with("HTTP/1.1 408 "), "{rest}");
        timed_out += 1;
    }
    assert_eq!(timed_out, CLIENTS);
    assert_eq!(victim.total("timeouts"), CLIENTS);
    victim.assert_healthy();
}

#[test]
fn a_slow_request_body_times_out() {
    let victim = Victim::configured("client_body_timeout = 1\nclient_body_rate = 1000", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send(
            "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n",
        );
        assert_eq!(client.read().status, 405);
    }
    send_until_closed(&victim, &mut clients, b"1\r\nx\r\n");
    assert_eq!(victim.total("timeouts"), CLIENTS);
    victim.assert_healthy();
}

#[test]
fn a_response_that_is_not_read_times_out() {
    let victim = Victim::configured("send_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        // The responses are far larger than the buffers of both sockets.
        client.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(8));
    }
    wait_until("all have timed out", || {
        victim.assert_serves();
        victim.total("timeouts") == CLIENTS
    });
    victim.assert_healthy();
}

#[test]
fn idle_connections_time_out() {
    let victim = Victim::configured("keepalive_timeout = 1", "");
    let mut clients = clients(&victim);
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read().status, 200);
    }
    wait_until("all are closed", || clients.iter().all(Wire::is_closed));
    victim.assert_healthy();
}

#[test]
fn idle_connections_are_evicted_for_new_ones() {
    let victim = Victim::configured("worker_threads = 1\nworker_connections = 20", "");
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read().status, 200);
        clients.push(client);
    }
    assert!(victim.total("evicted") >= CLIENTS - 20);
    wait_until("evicted connections are closed", || {
        victim.total("connections") <= 20
    });
    victim.assert_healthy();
}

#[test]
fn unfinished_heads_keep_no_client_out() {
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
    // The last connections may still wait to be accepted.
    wait_until("evictions", || victim.total("evicted") >= CLIENTS - 20);
    assert_eq!(victim.total("refused"), 0);
    victim.assert_healthy();
}

#[test]
fn clients_that_disconnect_leave_no_connection_and_no_descriptor_open() {
    let victim = Victim::with_defaults();
    let descriptors = || {
        let folder = format!("/proc/{}/fd", victim.apus.pid());
        std::fs::read_dir(folder).unwrap().count()
    };
    let download = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let upload = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nabc";
    wait_until("the first connection is closed", || {
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
        // A close with unread bytes sends a reset.
        drop(client);
    }
    wait_until("all connections are closed", || {
        victim.total("connections") == 0
    });
    // Each worker opens the root for its first file and keeps it open.
    let roots = victim.status()["workers"].as_array().unwrap().len();
    wait_until("their descriptors are closed", || {
        descriptors() <= before + roots
    });
    victim.assert_healthy();
}
