//! HTTP over TLS: what moves through the stream, how it starts, and how it ends.

use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_http::{Body, FileRange, HeaderValue, Response, StatusCode, header};
use apus_net::{Limits, ListenerPlan};
use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use super::{client_of, connect_tls, serve_one};
use crate::harness::{Client, Server, collector, connect, local, ok, paths, plan, service};

fn body_bytes(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 253) as u8).collect()
}

fn file(bytes: &[u8]) -> Arc<File> {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    Arc::new(file)
}

#[test]
fn keeps_connections_and_ends_them_with_close_notify() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    for path in ["/a", "/b"] {
        assert_eq!(client.get(path).text(), path);
    }
    client.send(
        "GET /c HTTP/1.1\r\nHost: a\r\n\r\nGET /d HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(client.read_response().text(), "/c");
    assert_eq!(client.read_response().text(), "/d");
    // Without a `close_notify` this is an error.
    client.assert_closed();
}

#[test]
fn sends_files_byte_by_byte() {
    let whole = body_bytes(5_000_000);
    let shared = file(&whole);
    let (authority, server) = serve_one(
        Limits::default(),
        service(move |request| {
            let (offset, len) = request.path()[1..].split_once('-').unwrap();
            let range = FileRange {
                file: Arc::clone(&shared),
                offset: offset.parse().unwrap(),
                len: len.parse().unwrap(),
            };
            Response::new(StatusCode::OK)
                .with_body(Body::File(range))
                .into()
        }),
    );
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    for (offset, len) in [
        (0, 0),
        (0, 1),
        (0, 64 * 1024 - 1),
        (0, 64 * 1024),
        (0, 64 * 1024 + 1),
        (12_345, 200_000),
        (0, 5_000_000),
    ] {
        let received = client.get(&format!("/{offset}-{len}"));
        assert!(
            received.body == whole[offset..offset + len],
            "{offset} {len}"
        );
    }
}

#[test]
fn a_file_that_became_shorter_ends_without_close_notify() {
    let shared = file(&body_bytes(100_000));
    let (authority, server) = serve_one(
        Limits::default(),
        service(move |_| {
            let range = FileRange {
                file: Arc::clone(&shared),
                offset: 0,
                len: 200_000,
            };
            Response::new(StatusCode::OK)
                .with_body(Body::File(range))
                .into()
        }),
    );
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    server.wait_for("the count", |totals| totals.broken_responses == 1);
}

#[test]
fn takes_large_bodies() {
    let (authority, server) = serve_one(Limits::default(), collector());
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    let sent = body_bytes(5_000_000);
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        sent.len()
    ));
    client.send(&sent);
    assert!(client.read_response().body == sent);
    assert_eq!(client.get("/").status, 200);
}

#[test]
fn echoes_a_body_while_it_still_arrives() {
    let (authority, server) = serve_one(
        Limits::default(),
        service(|mut request| ok(request.take_body()).into()),
    );
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    for _ in 0..50 {
        let chunk = format!("10000\r\n{}\r\n", "x".repeat(65536));
        client.send(&chunk);
    }
    client.send("0\r\n\r\n");
    assert_eq!(client.read_response().body.len(), 50 * 65536);
}

#[test]
fn plain_http_gets_a_readable_response() {
    let (_, server) = serve_one(Limits::default(), paths());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let received = client.read_response();
    assert_eq!(
        (received.status, received.field("connection")),
        (400, Some("close"))
    );
    assert!(received.text().contains("HTTPS"), "{}", received.text());
    client.assert_closed();
    drop(client);
    // It arrives whole also where much more was sent than is read of it.
    let mut client = server.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\n\r\n{}",
        "x".repeat(2_000_000)
    ));
    assert_eq!(client.read_response().status, 400);
    drop(client);
    server.wait_for("the count", |totals| {
        (totals.requests, totals.handshake_failures) == (0, 2)
    });
}

#[test]
fn a_client_hello_may_come_byte_by_byte() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let mut config = client_of(&authority);
    // A part that starts with a capital letter is not the start of HTTP.
    config.alpn_protocols = vec![
        b"GET GET GET GET GET GET GET".repeat(4),
        b"http/1.1".to_vec(),
    ];
    let name = ServerName::try_from("example.com").unwrap();
    let mut session = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    let mut socket = connect(server.address()).unwrap();
    for byte in hello {
        socket.write_all(&[byte]).unwrap();
        std::thread::yield_now();
    }
    let mut client = Client::new(rustls::StreamOwned::new(session, socket));
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn half_open_handshakes_end_in_time() {
    let limits = Limits {
        handshake_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let (authority, server) = serve_one(limits, paths());
    let mut honest = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    assert_eq!(honest.get("/a").text(), "/a");
    let start = Instant::now();
    let silent: Vec<_> = (0..20)
        .map(|number| {
            let mut client = server.connect();
            // Nothing at all, or the start of a record.
            client.send(&[22, 3, 1, 2, 0, 1][..number % 7]);
            client
        })
        .collect();
    for mut client in silent {
        client.assert_cut();
    }
    assert!(start.elapsed() < Duration::from_secs(10));
    server.wait_for("the counts", |totals| {
        (totals.timeouts, totals.handshake_failures) == (20, 20)
    });
    assert_eq!(honest.get("/b").text(), "/b");
}

#[test]
fn garbage_ends_its_connection_only() {
    let (authority, server) = serve_one(Limits::default(), paths());
    let mut client = server.connect();
    client.send([22, 3, 1, 0, 4, 9, 9, 9, 9]);
    let _ = client.rest();
    drop(client);
    server.wait_for("the end", |totals| totals.handshake_failures == 1);
    let mut honest = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    assert_eq!(honest.get("/a").text(), "/a");
}

#[test]
fn cuts_a_client_that_does_not_read() {
    let limits = Limits {
        send_timeout: Duration::from_millis(500),
        ..Limits::default()
    };
    let (authority, server) =
        serve_one(limits, service(|_| ok(vec![b'x'; 32 * 1024 * 1024]).into()));
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the end of the connection", |totals| totals.timeouts == 1);
    assert!(client.try_response(false).is_err());
}

#[test]
fn a_tunnel_runs_through_tls() {
    let (authority, server) = serve_one(
        Limits::default(),
        service(|_| {
            let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS)
                .with_header(&header::UPGRADE, &HeaderValue::from_static("echo"));
            response.set_tunnel(Box::new(|duplex| Box::pin(crate::tunnels::echo(duplex))));
            response.into()
        }),
    );
    let mut client = connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nearly");
    assert_eq!(client.read_response().status, 101);
    assert_eq!(client.exactly(5).unwrap(), b"early");
    let large = body_bytes(300_000);
    client.send(&large);
    assert!(client.exactly(large.len()).unwrap() == large);
    client.stream.conn.send_close_notify();
    client.send("");
    client.assert_closed();
}

#[test]
fn tls_and_plain_http_behind_a_proxy_protocol_head() {
    let (authority, server) = serve_one(Limits::default(), paths());
    drop(server);
    let issued = authority.ecdsa(&["example.com"]);
    let sites = [super::site(&["example.com"], &[&issued])];
    let settings = apus_net::tls::TlsSettings::new(&sites, Default::default()).unwrap();
    let peers = service(|request| ok(request.connection().peer.to_string()).into());
    let server = Server::run(plan(vec![ListenerPlan {
        tls: Some(Arc::new(settings)),
        proxy_protocol_from: vec!["127.0.0.1".parse().unwrap()],
        ..ListenerPlan::new(local(), peers)
    }]));
    const HEAD: &str = "PROXY TCP4 192.0.2.1 198.51.100.2 8080 443\r\n";
    let name = ServerName::try_from("example.com").unwrap();
    let mut session = ClientConnection::new(Arc::new(client_of(&authority)), name).unwrap();
    let mut hello = HEAD.as_bytes().to_vec();
    session.write_tls(&mut hello).unwrap();
    let mut socket = connect(server.address()).unwrap();
    socket.write_all(&hello).unwrap();
    let mut client = Client::new(rustls::StreamOwned::new(session, socket));
    assert_eq!(client.get("/").text(), "192.0.2.1:8080");
    let mut client = server.connect();
    client.send(format!("{HEAD}GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(client.read_response().status, 400);
}
