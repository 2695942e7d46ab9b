//! The requests that origins get: one for each request of a client, as the server parsed it, whatever the
//! client tries to smuggle in; with the address of the client, not the one that it claims.

use std::net::TcpStream;

use apus_testkit::h2::{code, data, request_with, reset};

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, VERSIONS, curl};
use crate::h2_client::{Peer, StreamResponse};
use crate::harness::wait_until;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// The values of the field lines with this name that an origin received.
fn fields(received: &str, name: &str) -> Vec<String> {
    let lines = received.lines().filter_map(|line| line.split_once(": "));
    let found = lines.filter(|(field, _)| field.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.to_owned()).collect()
}

/// The number of requests in the bytes that an origin received.
fn requests(received: &str) -> usize {
    received.matches(" HTTP/1.1\r\n").count()
}

/// The response at the end of a stream, complete or reset.
fn end_of(peer: &mut Peer<TcpStream>, stream: u32) -> StreamResponse {
    peer.until("the stream ends", |peer| {
        let response = peer.received(stream);
        response.ended || response.reset.is_some()
    });
    peer.received(stream).clone()
}

#[test]
fn ambiguous_requests_never_reach_the_origin() {
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
        let origin = ScriptedOrigin::responding(GOOD);
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
fn a_request_body_reaches_the_origin_with_new_framing() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Front::of([origin.address()]);
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    let size = smuggled.len();
    let reply = front.request(format!(
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
    let (head, body) = received.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("POST / HTTP/1.1\r\n"), "{received}");
    assert!(
        body.starts_with(&format!("{size:x}\r\n{smuggled}\r\n")),
        "{received}"
    );
    assert!(!received.contains("x=\""), "{received}");
}

#[test]
fn http_2_fields_cannot_inject_lines_into_http_1_requests() {
    let origin = ScriptedOrigin::responding(GOOD);
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
        let response = end_of(&mut peer, stream);
        assert!(
            response.reset.is_some() || response.status / 100 == 4,
            "{fields:?} {response:?}"
        );
    }
    let received = origin.received();
    assert!(
        !received.to_ascii_lowercase().contains("injected"),
        "{received}"
    );
}

#[test]
fn an_http_2_body_that_contradicts_its_content_length_is_no_complete_request() {
    for (length, body) in [("3", "smuggled"), ("30", "smuggled"), ("0", "smuggled")] {
        let origin = ScriptedOrigin::responding(GOOD);
        let front = Front::of([origin.address()]);
        let mut peer = front.open();
        let head = request_with("POST", "/", &[("content-length", length)]);
        let stream = peer.request(&head, false);
        peer.send(data(stream, body, true));
        let response = end_of(&mut peer, stream);
        assert!(
            response.reset.is_some() || response.status / 100 == 4,
            "{length} {response:?}"
        );
        assert_eq!(front.get("/next").text(), "good");
        // The origin would take a next request on this connection for the body, or the body for a request.
        let together = |received: &String| received.contains("POST") && received.contains("GET");
        let connections = origin.received_over_each();
        assert!(
            !connections.iter().any(together),
            "{length} {connections:?}"
        );
        let post = connections.iter().find(|one| one.contains("POST"));
        let post = post.and_then(|one| one.split_once("\r\n\r\n"));
        let sent = post.map_or(0, |(_, body)| body.len());
        let length: usize = length.parse().unwrap();
        assert!(sent < length.max(1), "{length} {connections:?}");
    }
}

#[test]
fn forwarding_fields_of_an_untrusted_client_are_replaced() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Front::of([origin.address()]);
    let forged = [
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
        for field in forged {
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
fn forwarding_fields_of_a_trusted_proxy_are_passed_on() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Configuration::of([origin.address()])
        .global("trusted_proxies = [\"127.0.0.1\"]")
        .serve();
    let reply = front.request(
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
fn the_connection_field_cannot_remove_fields_that_the_origin_needs() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Front::of([origin.address()]);
    for named in [
        "X-Forwarded-For",
        "X-Real-IP",
        "Host",
        "Content-Length",
        "close, X-Forwarded-Proto, Via",
    ] {
        let reply = front.request(format!(
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
fn connection_specific_fields_of_a_request_do_not_reach_the_origin() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Front::of([origin.address()]);
    let reply = front.request(
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
fn pipelined_requests_reach_the_origin_one_by_one() {
    let origin = ScriptedOrigin::responding(GOOD);
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
    let origin = ScriptedOrigin::responding(GOOD);
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
fn percent_encoded_targets_reach_the_origin_unchanged() {
    let origin = ScriptedOrigin::responding(GOOD);
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
fn requests_that_a_client_resets_at_once_do_not_accumulate_at_the_origin() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.freeze();
    });
    let front = Front::of([origin.address()]);
    let mut peer = front.open();
    for _ in 0..50 {
        let stream = peer.get("/");
        peer.send(reset(stream, code::CANCEL));
    }
    peer.fence();
    // The connections of reset requests are closed.
    wait_until("the connections are closed", || origin.open() == 0);
    front.assert_memory_is_bounded();
}
