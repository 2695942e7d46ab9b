//! Requests and their responses (RFC 9113 sections 3 and 8), which are the same as over HTTP/1.1.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_http::{Frame, Headers, Response, ResponseFuture, ServiceFactory, StatusCode};
use apus_net::Limits;
use apus_testkit::h2::{
    FRAME, PREFACE, block, data, flag, head, kind, request, request_with, setting, settings,
};
use apus_testkit::{body_bytes, collect, eventually, ready_frames};
use bytes::Bytes;

use super::client::Peer;
use super::{described, large, open, open_tls, open_with, with_tls};
use crate::harness::{Server, collector, connect, ok, paths, service};
use crate::tls::{client_of, connect_tls};

#[test]
fn speaks_http_2_to_clients_with_prior_knowledge_rfc_9113_section_3_3() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    let first = peer.read().unwrap();
    assert_eq!((first.kind, first.stream), (kind::SETTINGS, 0));
    assert!(!first.has(flag::ACK));
    let response = peer.fetch("/a");
    assert_eq!((response.status, response.text().as_str()), (200, "/a"));
    assert_eq!(response.field("content-length"), Some("2"));
    assert!(response.field("date").is_some());
    assert_eq!(peer.fetch("/b").text(), "/b");
    let totals = server.totals();
    assert_eq!((totals.requests, totals.bad_requests), (2, 0));
}

#[test]
fn http_1_1_and_http_2_share_a_port() {
    let server = Server::start(paths());
    let mut two = open(&server);
    let mut one = server.connect();
    assert_eq!(two.fetch("/a").text(), "/a");
    assert_eq!(one.get("/b").text(), "/b");
    // Bytes that begin as the preface does may be HTTP/1.1.
    for start in ["P", "PR", "PRI"] {
        let mut other = server.connect();
        other.send(start);
        server.wait_for("the bytes", |totals| totals.bytes_in > 0);
        other.send("X / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(other.read_response().text(), "/", "{start}");
    }
    assert_eq!(two.fetch("/c").text(), "/c");
}

#[test]
fn alpn_picks_the_version_rfc_9113_section_3_2() {
    let (authority, server) = with_tls(Limits::default(), paths());
    let mut peer = open_tls(&authority, &server);
    assert_eq!(peer.fetch("/two").text(), "/two");
    for (offered, chosen) in [
        (&[&b"http/1.1"[..]][..], Some(&b"http/1.1"[..])),
        (&[b"h3", b"http/1.1"], Some(b"http/1.1")),
        (&[], None),
    ] {
        let mut config = client_of(&authority);
        config.alpn_protocols = offered.iter().map(|name| name.to_vec()).collect();
        let mut client = connect_tls(server.address(), &config, "example.com").unwrap();
        assert_eq!(client.get("/one").text(), "/one");
        assert_eq!(client.stream.conn.alpn_protocol(), chosen);
    }
    let mut config = client_of(&authority);
    config.alpn_protocols = vec![b"http/1.1".to_vec(), b"h2".to_vec()];
    let client = connect_tls(server.address(), &config, "example.com").unwrap();
    // The server's preference counts (RFC 7301 section 3.2).
    assert_eq!(client.stream.conn.alpn_protocol(), Some(&b"h2"[..]));
}

#[test]
fn frames_may_come_byte_by_byte() {
    let server = Server::start(collector());
    let mut peer = Peer::new(connect(server.address()).unwrap());
    let post = head(1, &block(&request("POST", "/")), false);
    let all = [
        PREFACE,
        &settings(&[(3, 7)]),
        &post,
        &data(1, "hello", true),
    ]
    .concat();
    for byte in all {
        peer.send([byte]);
        std::thread::yield_now();
    }
    assert_eq!(peer.response(1).text(), "hello");
}

#[test]
fn everything_may_come_in_one_write() {
    let server = Server::start(paths());
    let mut peer = Peer::new(connect(server.address()).unwrap());
    let requests =
        (0..50).flat_map(|index| apus_testkit::h2::get(index * 2 + 1, &format!("/{index}")));
    peer.send([PREFACE, &settings(&[]), &requests.collect::<Vec<u8>>()].concat());
    for index in 0..50 {
        assert_eq!(peer.response(index * 2 + 1).text(), format!("/{index}"));
    }
}

/// Responds with the status in the path and a body.
fn statuses() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let status = StatusCode::from_bytes(&request.path().as_bytes()[1..]).unwrap();
        Response::text(status, "content").into()
    })
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let server = Server::start(statuses());
    let mut peer = open(&server);
    for (method, path, length) in [
        ("HEAD", "/200", Some("7")),
        ("GET", "/204", None),
        ("HEAD", "/404", Some("7")),
    ] {
        let stream = peer.request(&request(method, path), true);
        let frame = loop {
            let frame = peer.read().unwrap();
            if frame.stream == stream {
                break frame;
            }
        };
        assert_eq!(frame.kind, kind::HEADERS);
        assert!(frame.has(flag::END_STREAM), "{method} {path}");
        let response = peer.response(stream);
        assert_eq!(response.status, path[1..].parse::<u16>().unwrap());
        assert_eq!(response.field("content-length"), length, "{method} {path}");
    }
    let stream = peer.request(&request("GET", "/304"), true);
    assert!(peer.response(stream).body.is_empty());
    assert_eq!(peer.fetch("/500").text(), "content");
}

#[test]
fn the_body_and_trailers_reach_the_service() {
    let server = Server::start(collector());
    let mut peer = open(&server);
    let trailers = block(&[("x-sum", "7"), ("x-more", "8")]);
    for length in [None, Some("11")] {
        let length: Vec<_> = length
            .map(|length| ("content-length", length))
            .into_iter()
            .collect();
        let stream = peer.request(&request_with("POST", "/", &length), false);
        peer.send(data(stream, "hello", false));
        peer.send(data(stream, " world", false));
        peer.send(head(stream, &trailers, true));
        assert_eq!(
            peer.response(stream).text(),
            "hello world[x-sum=7][x-more=8]"
        );
    }
    // Without trailers, with a separate end, and without a body.
    let stream = peer.request(&request("POST", "/"), false);
    peer.send(data(stream, "x", false));
    peer.send(data(stream, "", true));
    assert_eq!(peer.response(stream).text(), "x");
    let stream = peer.request(&request("POST", "/"), true);
    assert_eq!(peer.response(stream).text(), "");
}

#[test]
fn padding_is_not_data_rfc_9113_section_6_1() {
    let server = Server::start(collector());
    let mut peer = open(&server);
    let stream = peer.next_stream();
    let mut payload = vec![20, 0, 0, 0, 0, 16];
    payload.extend(block(&request("POST", "/")));
    payload.extend([0; 20]);
    let flags = flag::END_HEADERS | flag::PADDED | flag::PRIORITY;
    peer.send(apus_testkit::h2::frame(
        kind::HEADERS,
        flags,
        stream,
        payload,
    ));
    for (part, padding) in [("hello", 255), (" ", 0), ("", 30), ("world", 1)] {
        let mut payload = vec![padding];
        payload.extend_from_slice(part.as_bytes());
        payload.extend(vec![0; usize::from(padding)]);
        peer.send(apus_testkit::h2::frame(
            kind::DATA,
            flag::PADDED,
            stream,
            payload,
        ));
    }
    peer.send(data(stream, "", true));
    assert_eq!(peer.response(stream).text(), "hello world");
}

#[test]
fn padding_counts_for_the_windows_and_is_given_back_rfc_9113_section_6_9_1() {
    let server = Server::start(collector());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/"), false);
    // Several times the windows at the beginning, most of it padding.
    let payload = [&[255][..], &[b'x'; 100], &[0; 255]].concat();
    let frame = apus_testkit::h2::frame(kind::DATA, flag::PADDED, stream, &payload);
    for _ in 0..1000 {
        peer.wait_for_window(stream, payload.len());
        peer.send(&frame);
        peer.spend(stream, payload.len());
    }
    peer.send(data(stream, "", true));
    let response = peer.response(stream);
    assert_eq!((response.status, response.body.len()), (200, 100_000));
}

#[test]
fn padding_alone_is_given_back_too_rfc_9113_section_6_9_1() {
    let server = Server::start(collector());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/"), false);
    let payload = [&[255][..], &[0; 255]].concat();
    let frame = apus_testkit::h2::frame(kind::DATA, flag::PADDED, stream, &payload);
    for _ in 0..600 {
        peer.wait_for_window(stream, payload.len());
        peer.send(&frame);
        peer.spend(stream, payload.len());
    }
    peer.upload(stream, b"content", true);
    assert_eq!(peer.response(stream).text(), "content");
}

#[test]
fn responses_carry_trailers() {
    let server = Server::start(service(|request| {
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "7").unwrap();
        let mut frames = vec![Ok(Frame::Trailers(trailers))];
        if request.path() != "/empty" {
            frames.insert(0, Ok(Frame::Data(Bytes::from_static(b"content"))));
        }
        ok(ready_frames(None, frames)).into()
    }));
    let mut peer = open(&server);
    for (path, expected) in [("/", "content"), ("/empty", "")] {
        let response = peer.fetch(path);
        assert_eq!(response.text(), expected);
        assert_eq!(response.trailers, [("x-sum".to_owned(), "7".to_owned())]);
        assert_eq!(response.field("transfer-encoding"), None);
    }
    let stream = peer.request(&request("HEAD", "/"), true);
    let response = peer.response(stream);
    assert!(response.body.is_empty() && response.trailers.is_empty());
}

#[test]
fn echoes_a_body_while_it_still_arrives() {
    let server = Server::start(service(|mut request| ok(request.take_body()).into()));
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/"), false);
    for (part, so_far) in [("first", "first"), (" second", "first second")] {
        peer.send(data(stream, part, false));
        peer.until("the part", |peer| peer.received(stream).text() == so_far);
    }
    peer.send(head(stream, &block(&[("x-t", "1")]), true));
    let response = peer.response(stream);
    assert_eq!(response.text(), "first second");
    assert_eq!(response.trailers, [("x-t".to_owned(), "1".to_owned())]);
}

#[test]
fn sends_100_continue_when_the_body_is_read() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            match request.path() {
                "/read" => match collect(request.body_mut()).await {
                    Ok(body) => ok(body),
                    Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
                },
                _ => ok("unread"),
            }
        })
    }));
    let mut peer = open(&server);
    let expecting = [("expect", "100-continue"), ("content-length", "5")];
    let stream = peer.request(&request_with("POST", "/read", &expecting), false);
    peer.until("the interim response", |peer| {
        peer.received(stream).interim == [100]
    });
    assert_eq!(peer.received(stream).status, 0);
    peer.send(data(stream, "hello", true));
    assert_eq!(peer.response(stream).text(), "hello");
    // A service that does not read the body sends no 100.
    let stream = peer.request(&request_with("POST", "/", &expecting), false);
    let response = peer.response(stream);
    assert_eq!(
        (response.text().as_str(), response.interim.len()),
        ("unread", 0)
    );
    // An expectation that cannot be met (RFC 9110 section 10.1.1).
    let stream = peer.request(&request_with("GET", "/", &[("expect", "wonders")]), true);
    assert_eq!(peer.response(stream).status, 417);
    assert_eq!(peer.fetch("/").text(), "unread");
}

#[test]
fn responses_are_sent_in_the_order_in_which_they_get_ready() {
    let go = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&go);
    let server = Server::start(service(move |request| {
        let go = Arc::clone(&waits);
        match request.path() {
            "/wait" => ResponseFuture::later(async move {
                eventually("the test goes on", || go.load(Ordering::Relaxed)).await;
                ok("waited")
            }),
            path => ok(path.to_owned()).into(),
        }
    }));
    let mut peer = open(&server);
    let waiting: Vec<u32> = (0..40).map(|_| peer.get("/wait")).collect();
    let ready: Vec<u32> = (0..40)
        .map(|index| peer.get(&format!("/{index}")))
        .collect();
    for (index, stream) in ready.into_iter().enumerate() {
        assert_eq!(peer.response(stream).text(), format!("/{index}"));
    }
    assert!(
        waiting
            .iter()
            .all(|stream| peer.received(*stream).status == 0)
    );
    go.store(true, Ordering::Relaxed);
    for stream in waiting {
        assert_eq!(peer.response(stream).text(), "waited");
    }
}

#[test]
fn requests_and_responses_are_the_same_over_both_versions() {
    let server = Server::start(described());
    let fields = [
        ("accept", "text/html, */*;q=0.1"),
        ("cookie", "a=1"),
        ("user-agent", "test"),
        ("x-empty", ""),
        ("x-many", "1"),
        ("x-many", "2"),
        ("x-obs", "\u{e9}"),
    ];
    for (method, path) in [
        ("GET", "/a/b?c=d&e"),
        ("OPTIONS", "*"),
        ("DELETE", "/%20%2f"),
    ] {
        let mut one = server.connect();
        let lines: String = fields
            .iter()
            .map(|(name, value)| format!("{name}: {value}\r\n"))
            .collect();
        one.send(format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\n{lines}\r\n"
        ));
        let expected = one.read_response();
        assert_eq!(expected.status, 200);
        assert!(expected.text().contains("host: a\n"), "{}", expected.text());

        let mut two = open(&server);
        let stream = two.request(&request_with(method, path, &fields), true);
        let response = two.response(stream);
        assert_eq!(response.text(), expected.text());
        for name in ["content-type", "content-length"] {
            assert_eq!(response.field(name), expected.field(name), "{name}");
        }
    }
}

#[test]
fn cookies_that_came_apart_are_joined_rfc_9113_section_8_2_3() {
    let server = Server::start(described());
    let mut peer = open(&server);
    let cookies = [
        ("cookie", "a=1"),
        ("x", "y"),
        ("cookie", "b=2; c=3"),
        ("cookie", "d=4"),
    ];
    let stream = peer.request(&request_with("GET", "/", &cookies), true);
    assert_eq!(
        peer.response(stream).text(),
        "GET a /\ncookie: a=1; b=2; c=3; d=4\nhost: a\nx: y\n"
    );
}

#[test]
fn the_authority_becomes_the_host_rfc_9113_section_8_3_1() {
    let server = Server::start(described());
    let mut peer = open(&server);
    let with = |fields: &[(&'static str, &'static str)]| {
        let mut all = vec![(":method", "GET"), (":scheme", "http"), (":path", "/")];
        all.extend_from_slice(fields);
        all
    };
    for fields in [
        &[(":authority", "b.example:8080")][..],
        &[("host", "b.example:8080")],
        &[(":authority", "b.example:8080"), ("host", "b.example:8080")],
    ] {
        let stream = peer.request(&with(fields), true);
        assert_eq!(
            peer.response(stream).text(),
            "GET b.example:8080 /\nhost: b.example:8080\n"
        );
    }
}

#[test]
fn exceeded_limits_get_a_status() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    let long = format!("/{}", "a".repeat(8 * 1024));
    let stream = peer.request(&request("GET", &long), true);
    assert_eq!(peer.response(stream).status, 414);

    let names: Vec<String> = (0..101).map(|index| format!("x-{index}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "y")).collect();
    let stream = peer.request(&request_with("GET", "/", &many), true);
    assert_eq!(peer.response(stream).status, 431);

    let value = "x".repeat(33 * 1024);
    let stream = peer.request(&request_with("GET", "/", &[("x", &value)]), true);
    assert_eq!(peer.response(stream).status, 431);

    // The body that arrives with it is discarded, and the connection stays open.
    let stream = peer.request(&request_with("POST", "/", &[("x", &value)]), false);
    peer.send(data(stream, body_bytes(30_000), true));
    assert_eq!(peer.response(stream).status, 431);
    assert_eq!(peer.fetch("/well").text(), "/well");
    let totals = server.totals();
    assert_eq!((totals.requests, totals.bad_requests), (1, 4));

    // Requests just below the limits are served.
    let longest = format!("/{}", "a".repeat(8 * 1024 - 1));
    assert_eq!(peer.fetch(&longest).status, 200);
    let value = "x".repeat(30 * 1024);
    let stream = peer.request(&request_with("GET", "/", &[("x", &value)]), true);
    assert_eq!(peer.response(stream).status, 200);
}

#[test]
fn fields_of_http_1_connections_are_left_out_of_responses_rfc_9113_section_8_2_2() {
    let server = Server::start(service(|_| {
        let mut response = ok("content");
        for (name, value) in [
            ("connection", "close, x-hop"),
            ("keep-alive", "timeout=5"),
            ("proxy-connection", "close"),
            ("upgrade", "h2c"),
            ("x-kept", "yes"),
        ] {
            response.headers_mut().try_append(name, value).unwrap();
        }
        response.into()
    }));
    let mut peer = open(&server);
    for _ in 0..2 {
        let response = peer.fetch("/");
        assert_eq!(
            (response.status, response.field("x-kept")),
            (200, Some("yes"))
        );
        for name in ["connection", "keep-alive", "proxy-connection", "upgrade"] {
            assert_eq!(response.field(name), None, "{name}");
        }
    }
}

#[test]
fn long_heads_of_responses_are_continued_rfc_9113_section_6_10() {
    let value = "v".repeat(4000);
    let expected = value.clone();
    let server = Server::start(service(move |_| {
        let mut response = ok("content");
        for index in 0..20 {
            let name = format!("x-{index}");
            response.headers_mut().try_append(&name, &value).unwrap();
        }
        response.into()
    }));
    let mut peer = open(&server);
    let first = peer.get("/");
    let second = peer.get("/");
    for stream in [first, second] {
        let response = peer.response(stream);
        assert_eq!(response.text(), "content");
        for index in 0..20 {
            let value = response.field(&format!("x-{index}"));
            assert!(value == Some(expected.as_str()), "{index}");
        }
    }
}

#[test]
fn a_client_sets_the_size_of_the_table_rfc_7541_section_4_2() {
    let server = Server::start(described());
    for size in [0, 100, 4096, 1 << 20] {
        let mut peer = open_with(&server, &[(setting::HEADER_TABLE_SIZE, size)]);
        peer.limit_table(size as usize);
        for _ in 0..3 {
            let response = peer.fetch("/");
            assert_eq!((response.status, response.body.len()), (200, 16));
        }
    }
}

#[test]
fn a_table_that_was_smaller_for_a_moment_is_announced_rfc_7541_section_4_2() {
    let server = Server::start(paths());
    let size = setting::HEADER_TABLE_SIZE;
    for (values, size_updates) in [
        (
            &[(size, 100), (size, 4096)][..],
            &[0x3f, 69, 0x3f, 0xe1, 0x1f][..],
        ),
        (&[(size, 0), (size, 8192)], &[0x20, 0x3f, 0xe1, 0x1f]),
        (&[(size, 100)], &[0x3f, 69]),
    ] {
        let mut peer = open_with(&server, values);
        let stream = peer.get("/");
        let head = loop {
            let frame = peer.read().unwrap();
            if frame.kind == kind::HEADERS && frame.stream == stream {
                break frame;
            }
        };
        assert!(
            head.payload.starts_with(size_updates),
            "{:x?}",
            &head.payload[..8]
        );
    }
}

#[test]
fn frames_are_no_larger_than_the_client_allows_rfc_9113_section_4_2() {
    let server = Server::start(large(1 << 20));
    for size in [None, Some(FRAME as u32), Some(20_000), Some(16_777_215)] {
        let size: Vec<_> = size
            .map(|size| (setting::MAX_FRAME_SIZE, size))
            .into_iter()
            .collect();
        let most = size.first().map_or(FRAME, |(_, size)| *size as usize);
        let mut peer = open_with(&server, &size);
        let stream = peer.get("/");
        while !peer.received(stream).ended {
            let frame = peer.read().unwrap();
            assert!(frame.payload.len() <= most, "{}", frame.payload.len());
        }
        assert!(peer.response(stream).body == body_bytes(1 << 20));
    }
}

#[test]
fn a_trailer_section_has_the_limits_of_a_head() {
    let server = Server::start(collector());
    let mut peer = open(&server);
    let names: Vec<String> = (0..101).map(|index| format!("x-{index}")).collect();
    let many: Vec<_> = names.iter().map(|name| (name.as_str(), "y")).collect();
    let stream = peer.request(&request("POST", "/"), false);
    peer.send(data(stream, "content", false));
    peer.send(head(stream, &block(&many), true));
    peer.until("a response or a reset", |peer| {
        let response = peer.received(stream);
        response.ended || response.reset.is_some()
    });
    let response = peer.received(stream);
    assert!(
        response.reset.is_some() || response.status >= 400,
        "{response:?}"
    );
    let stream = peer.request(&request("POST", "/"), false);
    peer.send(data(stream, "well", true));
    assert_eq!(peer.response(stream).text(), "well");
}
