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

/// The request targets that an origin received.
fn targets(received: &str) -> Vec<String> {
    let lines = received.lines().filter(|line| line.ends_with(" HTTP/1.1"));
    lines
        .filter_map(|line| line.split(' ').nth(1).map(str::to_owned))
        .collect()
}

/// The request targets that an origin received after the targets in `before`, in any order: each connection is recorded
/// for itself.
fn targets_since(origin: &ScriptedOrigin, before: &[String]) -> Vec<String> {
    let mut all = targets(&origin.received());
    for target in before {
        let at = all.iter().position(|other| other == target).unwrap();
        all.remove(at);
    }
    all
}

/// The server itself, and it behind another one over HTTP/3, both with this form of paths.
fn doors(form: &str, configuration: impl Fn() -> Configuration) -> [Front; 2] {
    let line = format!("path = \"{form}\"");
    let own = || configuration().proxy(&line);
    let between = own().tls().serve();
    [
        own().serve(),
        between.behind_http3(|front| front.proxy(&line)),
    ]
}

/// The statuses of the responses to this target over HTTP/1.1 and HTTP/2.
fn statuses(front: &Front, target: &str) -> [u16; 2] {
    [front.get(target).status, front.open().fetch(target).status]
}

#[test]
fn paths_reach_the_origin_as_they_were_sent_unless_it_could_read_them_in_another_way() {
    // What was sent, and what origins get with `normalized` and with `raw`; `None`: 400.
    let same = |path: &'static str| (path, Some(path), Some(path));
    let paths = [
        same("/a%2F%2Fb"),
        same("/a%2f%2Fb%2F"),
        same("/%2Fa"),
        same("/a%2F"),
        same("/http:%2F%2Fa.example%2Fb"),
        same("/a;b=c/d"),
        same("/a+b%20c%2Bd"),
        same("/%7Eu/~u/%61%4a%4A"),
        same("/a%5Cb%5c"),
        same("/%ff%C3%28"),
        same("/a?"),
        same("/a?b=%2F&c=/../d"),
        same("/..a/.b/..."),
        ("/a//b", Some("/a/b"), Some("/a//b")),
        ("/a//", Some("/a/"), Some("/a//")),
        ("//a", Some("/a"), None),
        ("/a\\b", Some("/a%5Cb"), Some("/a%5Cb")),
        ("/a/./b", Some("/a/b"), None),
        ("/a/../b", Some("/b"), None),
        ("/a/%2e%2E/b", Some("/b"), None),
        ("/a%2F..%2Fb", Some("/b"), None),
        ("/a/..;/b", None, None),
        ("/a/..;x=y/b", None, None),
        ("/a%5C..%5Cb", None, None),
        ("/a\\..\\b", None, None),
        ("/../b", None, None),
        ("/a%00", None, None),
        ("/a%2", None, None),
    ];
    for (form, is_raw) in [("normalized", false), ("raw", true)] {
        let origin = ScriptedOrigin::responding(GOOD);
        for front in doors(form, || Configuration::of([origin.address()])) {
            for (sent, normalized, raw) in paths {
                let before = targets(&origin.received());
                let found = statuses(&front, sent);
                let received = targets_since(&origin, &before);
                let expected = match if is_raw { raw } else { normalized } {
                    Some(path) => ([200; 2], vec![path.to_owned(); 2]),
                    None => ([400; 2], vec![]),
                };
                assert_eq!((found, received), expected, "{form} {sent}");
            }
        }
    }
}

#[test]
fn no_form_of_a_path_opens_a_location_that_a_rule_closes() {
    let closed = "[[sites.locations]]\npath = \"/private/\"\nreturn = { status = 403 }";
    for form in ["normalized", "raw"] {
        let origin = ScriptedOrigin::responding(GOOD);
        for front in doors(form, || Configuration::of([origin.address()]).site(closed)) {
            for path in [
                "/private/x",
                "/%70rivate/x",
                "/private%2Fx",
                "//private/x",
                "//host/private/x",
                "/%2Fprivate/x",
                "/open/../private/x",
                "/open//../private/x",
                "/open%2F%2F..%2F..%2Fprivate/x",
                "/open/%2e%2e/private/x",
                "/open/..%2fprivate/x",
                "/open/..;/private/x",
                "/open/..;a=b/private/x",
                "/private;a=b/x",
                "/;a/private/x",
                "/open\\..\\private\\x",
                "/open%5C..%5Cprivate%5Cx",
                "/private\\x",
                "/private%5Cx",
                "/\\host/private/x",
                "/./private/x",
                "/private/./x",
                "/private/../private/x",
            ] {
                for status in statuses(&front, path) {
                    // The path `/host/private/x` is another one for all servers.
                    let is_safe = (400..500).contains(&status) || path == "//host/private/x";
                    assert!(is_safe, "{form} {path}: {status}");
                }
            }
            // The origin does not take a path that leads out of the closed location for one within it.
            statuses(&front, "/private/../open");
        }
        for target in targets(&origin.received()) {
            let is_open = ["/open", "/host/private/x"].contains(&&*target);
            assert!(is_open, "{form}: {target}");
        }
    }
}

#[test]
fn a_prefix_that_ends_inside_a_segment_never_reaches_the_path_of_another_request() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Configuration::of([origin.address()])
        .site(
            "[[sites.locations]]\npath = \"/w\"\nupstream = \"app/w1\"\n\
             [[sites.locations]]\npath = \"/r\"\nupstream = \"app/\"\n\
             [[sites.locations]]\npath = \"/s\"\nupstream = \"app/s1/\"",
        )
        .serve();
    for (path, target) in [
        ("/w/x", Some("/w1/x")),
        ("/w", Some("/w1")),
        ("/wx", Some("/w1x")),
        ("/w../x", Some("/w1../x")),
        ("/r/x", Some("/x")),
        ("/rx", None),
        ("/r../x", None),
        ("/s/x", Some("/s1/x")),
        ("/sx", None),
        ("/s../x", None),
        ("/s%2E%2E/x", None),
    ] {
        let before = targets(&origin.received());
        let status = front.get(path).status;
        let received = targets_since(&origin, &before);
        match target {
            Some(target) => {
                assert_eq!((status, received), (200, vec![target.to_owned()]), "{path}")
            }
            None => assert_eq!((status, received), (404, vec![]), "{path}"),
        }
    }
}

#[test]
fn the_host_reaches_the_origin_as_it_was_sent_by_choice() {
    for (host, expected) in [("$http_host", "a.example"), ("raw", "A.Example:80")] {
        let origin = ScriptedOrigin::responding(GOOD);
        let front = Configuration::of([origin.address()])
            .proxy(&format!("host = \"{host}\""))
            .serve();
        for version in VERSIONS {
            let client = curl(version).args(&["--header", "Host: A.Example:80"]);
            assert_eq!(client.get(&front.url("/")).status, 200, "{version}");
        }
        // The authority of an absolute form replaces `Host` (RFC 9112 section 3.2.2).
        let absolute = "GET http://A.Example:80/ HTTP/1.1\r\nHost: A.Example:80\r\n\r\n";
        assert_eq!(front.request(absolute).status, 200);
        assert_eq!(fields(&origin.received(), "host"), [expected; 3], "{host}");
    }
}

#[test]
fn a_path_without_the_slash_of_its_location_is_redirected_to_the_one_with_it() {
    let origin = ScriptedOrigin::responding(GOOD);
    let front = Configuration::of([origin.address()])
        .site(
            "[[sites.locations]]\npath = \"/api/\"\nupstream = \"app/v1/\"\n\
             [[sites.locations]]\npath = \"/own/\"\nupstream = \"app/v1/\"\n\
             [[sites.locations]]\npath = \"= /own\"\nreturn = { status = 204 }",
        )
        .serve();
    for version in VERSIONS {
        for (method, status) in [("GET", 301), ("HEAD", 301), ("POST", 308), ("DELETE", 308)] {
            let arguments = match method {
                "HEAD" => vec!["--head"],
                method => vec!["--request", method],
            };
            let reply = curl(version).args(&arguments).get(&front.url("/api?a=b"));
            let found = (reply.status, reply.field("location"));
            assert_eq!(found, (status, "/api/?a=b"), "{version} {method}");
        }
        assert_eq!(curl(version).get(&front.url("/own")).status, 204);
        assert_eq!(curl(version).get(&front.url("/apis")).status, 200);
    }
}
