//! The PROXY protocol: required from trusted proxies, and accepted from no others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use apus_http::ServiceFactory;
use apus_net::{EnginePlan, Limits, ListenerPlan};

use crate::harness::{Server, local, ok, plan, service};

/// Responds with the addresses that handlers see.
fn ends() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let connection = request.connection();
        ok(format!("{} {}", connection.peer, connection.local)).into()
    })
}

fn trusting(networks: &[&str], limits: Limits) -> Server {
    let proxy_protocol_from = networks
        .iter()
        .map(|network| network.parse().unwrap())
        .collect();
    let listener = ListenerPlan {
        http2: true,
        proxy_protocol_from,
        ..ListenerPlan::new(local(), ends())
    };
    Server::run(EnginePlan {
        limits,
        ..plan(vec![listener])
    })
}

const V1: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n";
const V2: &[u8] =
    b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x01\xc6\x33\x64\x02\x1f\x90\x01\xbb";
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn takes_the_addresses_that_a_trusted_sender_names() {
    let server = trusting(&["10.0.0.0/8", "127.0.0.0/8"], Limits::default());
    for head in [V1.as_bytes(), V2] {
        let mut client = server.connect();
        client.send([head, GET.as_bytes()].concat());
        assert_eq!(
            client.read_response().text(),
            "192.0.2.1:8080 198.51.100.2:443"
        );
        assert_eq!(client.get("/").text(), "192.0.2.1:8080 198.51.100.2:443");
        // In pieces too.
        let mut client = server.connect();
        for byte in [head, GET.as_bytes()].concat().chunks(5) {
            client.send(byte);
        }
        assert_eq!(
            client.read_response().text(),
            "192.0.2.1:8080 198.51.100.2:443"
        );
    }
}

#[test]
fn a_trusted_sender_that_names_no_addresses_is_the_client_itself() {
    let server = trusting(&["127.0.0.1"], Limits::default());
    let mut client = server.connect();
    let own: SocketAddr = client.stream.local_addr().unwrap();
    client.send(format!("PROXY UNKNOWN\r\n{GET}"));
    assert_eq!(
        client.read_response().text(),
        format!("{own} {}", server.address())
    );
}

#[test]
fn a_trusted_sender_without_a_head_is_not_served() {
    let server = trusting(&["127.0.0.1"], Limits::default());
    for bytes in [
        GET.as_bytes(),
        b"PROXY TCP4 nonsense\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c",
    ] {
        let mut client = server.connect();
        client.send(bytes);
        client.assert_cut();
    }
    assert_eq!(server.totals().requests, 0);
}

#[test]
fn a_trusted_sender_that_stays_silent_is_closed() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let server = trusting(&["127.0.0.1"], limits);
    let mut client = server.connect();
    client.send("PROXY TCP4");
    client.assert_cut();
    assert_eq!(server.totals().timeouts, 1);
}

#[test]
fn a_head_from_an_untrusted_sender_is_not_interpreted() {
    let server = trusting(&["10.0.0.0/8", "::1", "unix:"], Limits::default());
    for head in [V1.as_bytes(), V2] {
        let mut client = server.connect();
        client.send([head, GET.as_bytes()].concat());
        assert_eq!(client.read_response().status, 400);
        client.assert_closed();
    }
    let mut client = server.connect();
    let own = client.stream.local_addr().unwrap();
    assert_eq!(
        client.get("/").text(),
        format!("{own} {}", server.address())
    );
}

#[test]
fn clients_behind_a_proxy_are_counted_by_their_own_address() {
    let limits = Limits {
        connections_per_address: 2,
        ..Limits::default()
    };
    let server = trusting(&["127.0.0.1"], limits);
    let from = |host: u8| {
        let mut client = server.connect();
        client.send(format!(
            "PROXY TCP4 192.0.2.{host} 198.51.100.2 8080 443\r\n{GET}"
        ));
        client
    };
    let mut clients: Vec<_> = [1, 1, 2, 2, 3].map(from).into();
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.read_response().status, 200));
    from(1).assert_cut();
    assert_eq!(server.totals().refused, 1);
    clients.remove(0);
    apus_testkit::wait_until("a free connection", || from(1).try_response(false).is_ok());
}
