//! Limits and guarantees of groups of origins: connection limits with a queue, a budget for retries,
//! verified certificates, sticky clients and the PROXY protocol.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::origins::{Origin, SMALL};
use super::scripted_origin::{ScriptedConnection, ScriptedOrigin};
use super::{Configuration, Front};
use crate::clients::certificate;
use crate::harness::{Home, wait_until};

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// One node with this limit of concurrent requests.
fn limited(origin: &ScriptedOrigin, max_conns: usize, group: &str) -> Front {
    let node = origin.address();
    let text = format!(
        "[[sites]]\nlisten = [\"127.0.0.1:0\"]\nupstream = \"app\"\n\
         [[sites.upstreams]]\nname = \"app\"\n\
         nodes = [{{ addr = \"{node}\", max_conns = {max_conns} }}]\n{group}\n"
    );
    Front::serve(Home::new(), &text)
}

#[test]
fn clients_of_a_slow_origin_wait_in_the_queue_and_all_are_served() {
    let concurrent = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (concurrent.clone(), most.clone());
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::park_timeout(Duration::from_millis(10));
            now.fetch_sub(1, Ordering::SeqCst);
            connection.send(GOOD);
        }
    });
    let front = limited(&origin, 5, "");
    let mut clients: Vec<_> = (0..100).map(|_| front.connect()).collect();
    for _ in 0..3 {
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        for client in &mut clients {
            assert_eq!(client.read().text(), "good");
        }
    }
    let most = most.load(Ordering::SeqCst);
    assert!((2..=5).contains(&most), "{most} at once");
}

#[test]
fn a_full_queue_causes_a_503_with_retry_after() {
    let goes_on = Arc::new(AtomicBool::new(false));
    let may_go_on = goes_on.clone();
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            while !may_go_on.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(5));
            }
            connection.send(GOOD);
        }
    });
    let front = limited(&origin, 1, "queue = { max = 2 }");
    let request = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut clients: Vec<_> = (0..10).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send(request);
    }
    wait_until("seven are refused", || {
        clients.iter().filter(|client| client.is_readable()).count() == 7
    });
    goes_on.store(true, Ordering::SeqCst);
    let mut statuses = Vec::new();
    for client in &mut clients {
        let received = client.read();
        if received.status == 503 {
            assert!(received.field("retry-after").is_some(), "{received:?}");
        }
        statuses.push(received.status);
    }
    let served = statuses.iter().filter(|status| **status == 200).count();
    assert_eq!(served, 3, "{statuses:?}");
}

#[test]
fn waiting_too_long_in_the_queue_causes_a_503() {
    let origin = ScriptedOrigin::start(ScriptedConnection::freeze);
    let front = limited(&origin, 1, "queue = { timeout = \"300ms\" }");
    let mut first = front.connect();
    first.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_until("the origin has the request", || origin.connections() == 1);
    assert_eq!(front.get("/").status, 503);
}

#[test]
fn retries_stay_within_their_budget() {
    let bad = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nfull";
    let origins = [
        ScriptedOrigin::responding(bad),
        ScriptedOrigin::responding(bad),
        ScriptedOrigin::responding(bad),
    ];
    let front = Configuration::of(origins.iter().map(ScriptedOrigin::address))
        .group("passive = false")
        .group("retry = { tries = 3, on = [\"error\", 503] }")
        .serve();
    let start = Instant::now();
    for _ in 0..1000 {
        let reply = front.get("/");
        assert_eq!((reply.status, reply.text()), (503, "full".into()));
    }
    // The budget is a fifth of the requests, ten per second, and at first the amount of ten seconds at once.
    let seconds = start.elapsed().as_secs() as usize + 1;
    let requests: usize = origins
        .iter()
        .map(|origin| origin.received().matches("GET / ").count())
        .sum();
    let most = 1000 + 1000 / 5 + 10 * (10 + seconds);
    assert!(
        (1001..=most).contains(&requests),
        "{requests} requests to origins"
    );
}

#[test]
fn a_proxy_protocol_header_names_the_client_and_clients_share_no_connection() {
    for (version, beginning) in [
        ("v1", &b"PROXY TCP4 127.0.0.1 127.0.0.1 "[..]),
        (
            "v2",
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\x7f\0\0\x01\x7f\0\0\x01",
        ),
    ] {
        let beginning = String::from_utf8_lossy(beginning).into_owned();
        let skip = beginning.clone();
        let origin = ScriptedOrigin::start(move |connection| {
            // The header of version 2 begins with an empty line.
            if skip.starts_with('\r') {
                connection.read_bytes(28);
            } else {
                connection.read_line();
            }
            while connection.read_request().is_some() {
                connection.send(GOOD);
            }
        });
        let front = Configuration::of([origin.address()])
            .global("worker_threads = 1")
            .group(&format!("send_proxy = \"{version}\""))
            .serve();
        let mut clients = [front.connect(), front.connect()];
        for _ in 0..3 {
            for client in &mut clients {
                client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
                assert_eq!(client.read().text(), "good", "{version}");
            }
        }
        let connections = origin.received_over_each();
        assert_eq!(connections.len(), 2, "{version}");
        for received in connections {
            assert!(received.starts_with(&beginning), "{received:?}");
            assert_eq!(
                received.matches("GET / HTTP/1.1\r\n").count(),
                3,
                "{received:?}"
            );
        }
    }
}

#[test]
fn a_client_with_its_cookie_stays_with_its_node() {
    let origins = ["one", "two", "three"].map(|name| {
        let length = name.len();
        ScriptedOrigin::responding(format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{name}"
        ))
    });
    let front = Configuration::of(origins.iter().map(ScriptedOrigin::address))
        .group("sticky = true")
        .serve();
    for _ in 0..5 {
        let first = front.get("/");
        let cookie = first.field("set-cookie").expect("a cookie").to_owned();
        let cookie = cookie.split(';').next().unwrap();
        for origin in &origins {
            let address = origin.address().to_string();
            assert!(
                !cookie.contains(&address),
                "the cookie contains an address: {cookie}"
            );
        }
        for _ in 0..6 {
            let next = front.request(format!(
                "GET / HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n"
            ));
            assert_eq!(next.text(), first.text());
            assert_eq!(next.field("set-cookie"), None);
        }
    }
    // A forged cookie is ignored.
    let forged =
        front.request("GET / HTTP/1.1\r\nHost: a\r\nCookie: apus_node=127.0.0.1:1\r\n\r\n");
    assert_eq!(forged.status, 200);
}

#[test]
fn an_origin_with_the_wrong_certificate_gets_no_request() {
    for (host, tls, status) in [
        ("localhost", "{ ca = \"origin.pem\" }", 200),
        ("localhost", "{ verify = false }", 200),
        (
            "127.0.0.1",
            "{ ca = \"origin.pem\", server_name = \"localhost\" }",
            200,
        ),
        // No trusted authority; the wrong authority; another name.
        ("localhost", "{}", 502),
        ("localhost", "{ ca = \"other.pem\" }", 502),
        ("127.0.0.1", "{ ca = \"origin.pem\" }", 502),
        (
            "localhost",
            "{ ca = \"origin.pem\", server_name = \"other.test\" }",
            502,
        ),
    ] {
        let home = Home::new();
        certificate(&home, "origin", "localhost");
        certificate(&home, "other", "localhost");
        let origin = Origin::go_over_tls(&home.path("origin"));
        let node = format!("https://{host}:{}", origin.address().port());
        let front = Configuration::of_names([node])
            .group(&format!("tls = {tls}"))
            .serve_in(home);
        let reply = front.get("/small.txt");
        assert_eq!(reply.status, status, "{host} {tls}");
        assert_eq!(reply.text() == SMALL, status == 200, "{host} {tls}");
    }
}
