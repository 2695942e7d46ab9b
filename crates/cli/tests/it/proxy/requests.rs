//! What origins are sent: one request for each that was asked, as it was understood, whatever the
//! client tried to put between the lines; who the client is, and not who it says it is.

use std::net::TcpStream;

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, VERSIONS, curl};
use crate::h2_client::{Peer, StreamResponse, code, data, request_with, reset};
use crate::harness::wait_until;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// The field lines of this name in what an origin received.
fn fields(received: &str, name: &str) -> Vec<String> {
    let lines = received.lines().filter_map(|line| line.split_once(": "));
    let found = lines.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned()).collect()
}

/// How many requests an origin that reads this sees begin.
fn requests(received: &str) -> usize {
    received.matches(" HTTP/1.1\r\n").count()
}

/// How a stream ended, well or not.
fn end_of(peer: &mut Peer<TcpStream>, stream: u32) -> StreamResponse {
    peer.until("the stream ends", |peer| {
        let answer = peer.received(stream);
        answer.ended || answer.reset.is_some()
    });
    peer.received(stream).clone()
}

#[test]
fn requests_of_two_meanings_never_reach_the_origin() {
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for framing in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        "Content-Length: 4\r\nContent-Length: 60\r\n",
        "Content-Length: 4, 60\r\n",
        "Content-Length: +4\r\n",
        "Content-Length: 0x4\r\n",
        "Content-Length: 4 4\r\n",
        "Content-Length : 4\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding:\x0bchunked\r\n",
        "X: y\r\n Transfer-Encoding: chunked\r\n",
        "X: y\nTransfer-Encoding: chunked\r\n",
        "X: y\rTransfer-Encoding: chunked\r\n",
    ] {
        let origin = ScriptedOrigin::answering(GOOD);
        let front = Front::of([origin.address()]);
        let mut wire = front.connect();
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n0\r\n\r\n{smuggled}"
        ));
        assert_eq!(wire.read().status / 100, 4, "{framing:?}");
        wire.rest();
        assert_eq!(origin.received(), "", "{framing:?}");
    }
}

#[test]
fn content_reaches_the_origin_framed_anew() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let size = smuggled.len();
    let reply = front.ask(format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n\
         {size:x};x=\"\\\"y\"\r\n{smuggled}\r\n000\r\nX-Trailer: 1\r\n\r\n"
    ));
    assert_eq!(reply.status, 200);
    let received = origin.received();
    assert_eq!(
        fields(&received, "transfer-encoding"),
        ["chunked"],
        "{received}"
    );
    assert!(fields(&received, "content-length").is_empty(), "{received}");
    let (head, content) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST / HTTP/1.1\r\n"), "{received}");
    assert!(
        content.starts_with(&format!("{size:x}\r\n{smuggled}\r\n")),
        "{received}"
    );
    assert!(!received.contains("x=\""), "{received}");
}

#[test]
fn what_http_2_carries_becomes_no_lines_of_http_1() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let injected = "x\r\nInjected: yes";
    let long = "GET / HTTP/1.1\r\nInjected: yes\r\n\r\nGET";
    let bad: [Vec<(&str, &str)>; 18] = [
        request_with("GET", "/", &[("x", injected)]),
        request_with("GET", "/", &[("x\r\ninjected", "yes")]),
        request_with("GET", "/", &[("x: y\r\ninjected", "yes")]),
        request_with("GET", "/", &[("x y", "injected")]),
        request_with("GET", "/", &[("x:", "injected")]),
        request_with("GET", "/", &[("X-Upper", "injected")]),
        request_with("GET", "/", &[("x", "a\ninjected: yes")]),
        request_with("GET", "/", &[("x", "injected\0")]),
        request_with("GET", "/", &[("transfer-encoding", "chunked")]),
        request_with("GET", "/", &[("connection", "injected")]),
        request_with("GET", "/", &[("te", "injected")]),
        request_with("GET", "/", &[("host", "injected")]),
        request_with("GET", "/ HTTP/1.1\r\nInjected: yes", &[]),
        request_with("GET", "/a injected", &[]),
        request_with(long, "/", &[]),
        request_with("GET /", "/injected", &[]),
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a\r\nInjected: yes"),
        ],
        vec![
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "a b/injected"),
        ],
    ];
    for fields in bad {
        let mut peer = front.open();
        let stream = peer.request(&fields, true);
        let answer = end_of(&mut peer, stream);
        assert!(
            answer.reset.is_some() || answer.status / 100 == 4,
            "{fields:?} {answer:?}"
        );
    }
    let received = origin.received();
    assert!(
        !received.to_ascii_lowercase().contains("injected"),
        "{received}"
    );
}

#[test]
fn http_2_content_that_contradicts_its_length_is_no_whole_request() {
    for (length, content) in [("3", "smuggled"), ("30", "smuggled"), ("0", "smuggled")] {
        let origin = ScriptedOrigin::answering(GOOD);
        let front = Front::of([origin.address()]);
        let mut peer = front.open();
        let head = request_with("POST", "/", &[("content-length", length)]);
        let stream = peer.request(&head, false);
        peer.send(data(stream, content, true));
        let answer = end_of(&mut peer, stream);
        assert!(
            answer.reset.is_some() || answer.status / 100 == 4,
            "{length} {answer:?}"
        );
        assert_eq!(front.get("/next").text(), "good");
        // A next request over the same connection would be taken for content, or content for one.
        let together = |received: &String| received.contains("POST") && received.contains("GET");
        let connections = origin.received_over_each();
        assert!(
            !connections.iter().any(together),
            "{length} {connections:?}"
        );
        let content = connections.iter().find(|one| one.contains("POST"));
        let content = content.and_then(|one| one.split_once("\r\n\r\n"));
        let sent = content.map_or(0, |(_, content)| content.len());
        let length: usize = length.parse().unwrap();
        assert!(sent < length.max(1), "{length} {connections:?}");
    }
}

#[test]
fn a_client_is_who_it_is_and_not_who_it_says() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let said = [
        "X-Forwarded-For: 10.9.9.9",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.test",
        "X-Forwarded-Port: 9",
        "X-Real-IP: 10.9.9.9",
        "Forwarded: for=10.9.9.9;host=evil.test",
        "Proxy: http://evil.test/",
        "X_Forwarded_For: 10.9.9.9",
        "X_Real_IP: 10.9.9.9",
    ];
    for version in VERSIONS {
        let mut client = curl(version);
        for field in said {
            client = client.args(&["--header", field]);
        }
        assert_eq!(client.get(&front.url("/")).status, 200);
    }
    let received = origin.received();
    for evil in ["10.9.9.9", "evil.test", "https"] {
        assert!(!received.contains(evil), "{evil}: {received}");
    }
    for (name, value) in [
        ("x-forwarded-for", "127.0.0.1"),
        ("x-real-ip", "127.0.0.1"),
        ("x-forwarded-proto", "http"),
    ] {
        assert_eq!(fields(&received, name), [value, value], "{received}");
    }
}

#[test]
fn what_a_trusted_proxy_says_of_the_client_is_passed_on() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Configuration::of([origin.address()])
        .global("trusted_proxies = [\"127.0.0.1\"]")
        .serve();
    let reply = front.ask(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.7\r\n\
         X-Real-IP: 192.0.2.7\r\nX-Forwarded-Proto: https\r\n\r\n",
    );
    assert_eq!(reply.status, 200);
    let received = origin.received();
    let addresses = fields(&received, "x-forwarded-for").join(", ");
    assert_eq!(addresses, "192.0.2.7, 127.0.0.1", "{received}");
    assert_eq!(fields(&received, "x-real-ip"), ["192.0.2.7"], "{received}");
    assert_eq!(
        fields(&received, "x-forwarded-proto"),
        ["https"],
        "{received}"
    );
}

#[test]
fn connection_cannot_take_away_what_the_origin_is_told() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    for named in [
        "X-Forwarded-For",
        "X-Real-IP",
        "Host",
        "Content-Length",
        "close, X-Forwarded-Proto, Via",
    ] {
        let reply = front.ask(format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\nConnection: {named}\r\nX-Forwarded-For: 1.1.1.1\r\n\
             Content-Length: 3\r\n\r\nabc"
        ));
        assert_eq!(reply.status, 200, "{named}");
    }
    let received = origin.received();
    for (name, count) in [
        ("host", 5),
        ("x-forwarded-for", 5),
        ("x-real-ip", 5),
        ("x-forwarded-proto", 5),
        ("via", 5),
        ("content-length", 5),
    ] {
        assert_eq!(fields(&received, name).len(), count, "{name}: {received}");
    }
    assert!(!received.contains("1.1.1.1"), "{received}");
}

#[test]
fn fields_of_the_connection_to_the_client_stay_there() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let reply = front.ask(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\n\
         X-Hop: here\r\nProxy-Connection: keep-alive\r\nTE: gzip\r\nUpgrade: h2c\r\n\
         HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\nX-End: there\r\n\r\n",
    );
    assert_eq!(reply.status, 200);
    let received = origin.received();
    assert_eq!(fields(&received, "x-end"), ["there"]);
    for name in ["keep-alive", "x-hop", "proxy-connection", "te", "upgrade"] {
        assert!(fields(&received, name).is_empty(), "{name}: {received}");
    }
}

#[test]
fn requests_that_come_at_once_are_asked_one_by_one() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let mut wire = front.connect();
    let post = "POST /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    let get = "GET /b HTTP/1.1\r\nHost: localhost\r\n\r\n";
    wire.send(format!("{post}{get}").repeat(50));
    for _ in 0..100 {
        assert_eq!(wire.read().text(), "good");
    }
    let received = origin.received();
    assert_eq!(requests(&received), 100, "{received}");
    assert_eq!(received.matches("\r\n\r\nabc").count(), 50, "{received}");
}

#[test]
fn paths_reach_the_origin_as_they_were_matched() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Configuration::of([origin.address()])
        .site("[[sites.locations]]\npath = \"/private/\"\nreturn = { status = 403 }")
        .serve();
    for path in [
        "/private/x",
        "/open/../private/x",
        "/%70rivate/x",
        "/open/..%2fprivate/x",
        "/open/%2e%2e/private/x",
        "//private/x",
        "/./private/x",
    ] {
        let reply = front.get(path);
        assert!(
            (400..500).contains(&reply.status),
            "{path}: {}",
            reply.status
        );
    }
    assert_eq!(origin.received(), "");
    assert_eq!(front.get("/a%20b?q=%20+%2F&r=/../").status, 200);
    let received = origin.received();
    assert!(
        received.starts_with("GET /a%20b?q=%20+%2F&r=/../ HTTP/1.1\r\n"),
        "{received}"
    );
}

#[test]
fn what_is_encoded_reaches_the_origin_as_it_came() {
    let origin = ScriptedOrigin::answering(GOOD);
    let front = Front::of([origin.address()]);
    let paths = [
        "/packages/@scope%2fname",
        "/a%2Fb%2F",
        "/%61%7e%C3%A4%25",
        "/a;b=c,d@e:f!$&'()*+",
        "/x?u=https%3A%2F%2Fa%2f..%2fb&%",
    ];
    for version in VERSIONS {
        for path in paths {
            let reply = curl(version).args(&["--path-as-is"]).get(&front.url(path));
            assert_eq!(reply.status, 200, "{version} {path}");
        }
    }
    let received = origin.received();
    for path in paths {
        let line = format!("GET {path} HTTP/1.1\r\n");
        assert_eq!(received.matches(&line).count(), 2, "{path}: {received}");
    }
}

#[test]
fn requests_that_a_client_resets_at_once_do_not_pile_up_at_the_origin() {
    let origin = ScriptedOrigin::start(|stage| {
        stage.read_head();
        stage.freeze();
    });
    let front = Front::of([origin.address()]);
    let mut peer = front.open();
    for _ in 0..50 {
        let stream = peer.get("/");
        peer.send(reset(stream, code::CANCEL));
    }
    peer.fence();
    // The connections whose requests nobody waits for are closed.
    wait_until("they are closed", || origin.open() == 0);
    front.assert_memory_is_bounded();
}
