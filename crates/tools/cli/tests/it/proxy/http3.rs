//! Origins over HTTP/3: the server in front of a second one, to which it speaks HTTP/3. Bodies, trailers and interim
//! responses are in `families.rs`.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::origins::{Origin, SMALL, large};
use super::scripted_origin::ScriptedOrigin;
use super::websocket::assert_echoes;
use super::{Configuration, Front, curl};
use crate::clients::certificate;
use crate::harness::{Ends, Home, free_port, wait_until};
use crate::wire::Wire;

/// A server in front of one in front of Go.
fn behind_go(
    between: impl FnOnce(Configuration) -> Configuration,
    front: impl FnOnce(Configuration) -> Configuration,
) -> (Origin, Front) {
    let origin = Origin::go();
    let between = between(Configuration::of([origin.address()]).tls()).serve();
    (origin, between.behind_http3(front))
}

#[test]
fn requests_share_a_connection() {
    let (_origin, mut front) = behind_go(
        |between| between,
        |front| front.global("worker_threads = 1"),
    );
    thread::scope(|scope| {
        for _ in 0..100 {
            scope.spawn(|| {
                let reply = front.get("/small.txt");
                assert_eq!((reply.status, reply.text()), (200, SMALL.into()));
            });
        }
    });
    let totals = &front.between().status()["totals"];
    assert_eq!(totals["requests"], 100);
    let connections = totals["h3_connections"].as_u64().unwrap();
    // Requests that come at once share one that is being opened.
    assert!((1..=2).contains(&connections), "{connections}");
    assert_eq!(totals["handshakes"].as_u64(), Some(connections));
}

#[test]
fn an_origin_that_ends_its_connections_and_reloads_loses_no_request() {
    let port = free_port();
    let (_origin, mut front) = behind_go(
        |between| between.global("h2_max_requests_per_conn = 50").at(port),
        |front| front,
    );
    let stop = AtomicBool::new(false);
    let address = front.apus.address();
    let body = "x".repeat(100_000);
    let upload = format!(
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let keep_sending = |request: &str, expected: &str| {
        let mut wire = Wire::connect(address);
        let mut sent = 0;
        while !stop.load(Ordering::SeqCst) {
            assert!(wire.send(request));
            let received = wire.read();
            assert_eq!(received.status, 200, "{}", received.text());
            assert!(received.text() == expected);
            sent += 1;
        }
        sent
    };
    let download = "GET /small.txt HTTP/1.1\r\nHost: localhost\r\n\r\n";
    thread::scope(|scope| {
        let clients = [
            scope.spawn(|| keep_sending(download, SMALL)),
            scope.spawn(|| keep_sending(download, SMALL)),
            scope.spawn(|| keep_sending(&upload, &body)),
        ];
        let over = Ends(&stop);
        let between = front.between();
        let text = fs::read_to_string(between.home.path("apus.toml")).unwrap();
        for number in 0..8 {
            // A changed file, with all connections as they were.
            let text = format!("{text}# {number}\n");
            between.home.write("apus.toml", text);
            between.reload();
        }
        let url = format!("http://{address}/large.bin");
        assert!(curl("--http1.1").get(&url).body == large());
        drop(over);
        for client in clients {
            assert!(client.join().unwrap() > 0);
        }
    });
    let connections = front.between().status()["totals"]["h3_connections"].as_u64();
    assert!(connections > Some(1), "{connections:?}");
}

#[test]
fn an_origin_that_is_killed_within_a_body_never_causes_a_whole_response() {
    let response = |framing: &str| format!("HTTP/1.1 200 OK\r\n{framing}\r\n\r\n");
    for (framing, start) in [
        ("Content-Length: 1000000", "some of it"),
        ("Transfer-Encoding: chunked", "a\r\nsome of it\r\n"),
    ] {
        let head = response(framing);
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(&head);
            connection.send(start);
            connection.hold();
        });
        let between = Configuration::of([origin.address()]).tls().serve();
        let mut front = between.behind_http3(|front| front.group("read_timeout = 2"));
        let mut wire = front.connect();
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(wire.read_head().status, 200);
        front.between().apus.signal(Signal::KILL);
        let rest = String::from_utf8_lossy(&wire.rest()).into_owned();
        assert!(rest.contains("some of it"), "{framing}: {rest}");
        assert!(!rest.ends_with("0\r\n\r\n"), "{framing}: {rest}");
        assert!(rest.len() < 1_000, "{framing}: {rest}");
    }
}

#[test]
fn a_certificate_that_is_not_trusted_causes_a_502() {
    let origin = Origin::go();
    let home = Home::new();
    // Another key, of an authority that did not sign the one of the server between.
    certificate(&home, "other", "localhost");
    let between = Configuration::of([origin.address()]).tls().serve();
    let port = between
        .tls_authority()
        .rsplit_once(':')
        .unwrap()
        .1
        .to_owned();
    let right = between.authority_file();
    let right = right.display();
    for tls in [
        "ca = \"other.pem\", server_name = \"localhost\"".to_owned(),
        format!("ca = \"{right}\", server_name = \"other.example\""),
    ] {
        let home = Home::new();
        certificate(&home, "other", "localhost");
        let front = Configuration::of_names([format!("https://127.0.0.1:{port}")])
            .group("protocol = \"h3\"")
            .group(&format!("tls = {{ {tls} }}"))
            .serve_in(home);
        assert_eq!(front.get("/small.txt").status, 502);
        wait_until("the reason in the log", || {
            front.apus.log().contains("certificate")
        });
    }
    assert_eq!(between.status()["totals"]["requests"], 0);
}

#[test]
fn an_origin_without_http_3_causes_a_504_in_the_connect_timeout() {
    let home = Home::new();
    certificate(&home, "origin", "localhost");
    // It listens over TCP only.
    let origin = Origin::go_over_tls(&home.path("origin"));
    let node = format!("https://localhost:{}", origin.address().port());
    let front = Configuration::of_names([node])
        .group("protocol = \"h3\"")
        .group("tls = { ca = \"origin.pem\" }")
        .group("connect_timeout = \"500ms\"")
        .serve_in(home);
    let began = Instant::now();
    assert_eq!(front.get("/small.txt").status, 504);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_url_with_the_scheme_h3_needs_no_other_key() {
    let origin = Origin::go();
    let home = Home::new();
    certificate(&home, "origin", "localhost,IP:127.0.0.1");
    let port = free_port();
    let text = |listen: &str, site: &str| {
        format!("[[sites]]\nserver_name = [\"localhost\", \"_\"]\nlisten = [\"{listen}\"]\n{site}")
    };
    home.write(
        "apus.toml",
        text(
            "127.0.0.1:0",
            &format!(
                "listen_tls = [\"127.0.0.1:{port}\"]\n\
                 tls = {{ cert = \"origin.pem\", key = \"origin.key\" }}\n\
                 upstream = \"http://{}\"\n",
                origin.address()
            ),
        ),
    );
    let between = home.serve(&[]);
    let trusted = format!("SSL_CERT_FILE={}", home.path("origin.pem").display());
    let own = Home::new();
    let url = format!("upstream = \"h3://127.0.0.1:{port}\"\n");
    own.write("apus.toml", text("127.0.0.1:0", &url));
    let front = own.serve_through(&["env", &trusted], &[]);
    let reply = front.get("/small.txt");
    assert_eq!((reply.status, reply.body), (200, SMALL.into()));
    drop(between);
}

#[test]
fn a_health_check_uses_http_3() {
    let (_origin, mut front) = behind_go(
        |between| between,
        |front| {
            front.group(
                "check = { path = \"/small.txt\", host = \"localhost\", interval = \"200ms\" }",
            )
        },
    );
    wait_until("checks", || {
        let totals = &front.between().status()["totals"];
        totals["h3_connections"].as_u64() > Some(2) && totals["requests"].as_u64() > Some(2)
    });
    assert_eq!(front.get("/small.txt").status, 200);
}

#[test]
fn websocket_passes_over_extended_connect() {
    let origin = Origin::websocket();
    let between = Configuration::of([origin.address()]).tls().serve();
    let front = between.behind_http3(|front| front);
    assert_echoes(&format!("ws://{}/chat", front.apus.address()), None);
}
