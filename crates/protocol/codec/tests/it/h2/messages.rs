//! Tests messages between two ends (RFC 9113 section 8).

use apus_codec::h2::{ExpectedBody, HeadRefusal, Http2Event, OutgoingRequest};
use apus_codec::messages::RequestKind;
use apus_http::{Headers, Method, StatusCode};

use super::endpoint::*;

#[test]
fn transfers_a_request_and_a_response_with_bodies_and_trailers() {
    let (mut client, mut server) = pair();
    let head = request(
        "POST",
        "/a?b",
        "host: example.com\ncontent-length: 5\nx-a: 1",
    );
    let stream = client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), false, &mut client.out)
        .unwrap();
    client.sends(stream, b"hello", false);
    let trailers = headers("x-sum: 7");
    client
        .connection
        .send_trailers(stream, &trailers, &mut client.out);
    let (_, seen) = exchange(&mut client, &mut server);
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    assert_eq!(request.head.method, Method::POST);
    assert_eq!(request.head.target.as_str(), "/a?b");
    assert_eq!(
        request.head.headers.wire(),
        b"host: example.com\r\nx-a: 1\r\ncontent-length: 5\r\n"
    );
    assert_eq!((request.end, request.content_length), (false, Some(5)));
    assert_eq!(seen[1].data, b"hello");
    let Http2Event::Trailers { trailers, .. } = &seen[2].event else {
        panic!("{seen:?}");
    };
    assert_eq!(trailers.get_str("x-sum"), Some("7"));

    let at_server = request.stream;
    let fields = headers("content-type: text/plain\nconnection: close\nkeep-alive: 1");
    let head = head_of(StatusCode::OK, &fields, None);
    let body = server
        .connection
        .send_head(at_server, head, &mut server.out);
    assert_eq!(body, ExpectedBody::Data(None));
    server.sends(at_server, b"world", false);
    server
        .connection
        .send_trailers(at_server, &headers("x-end: 1"), &mut server.out);
    assert!(!server.connection.is_open(at_server));
    let (seen, _) = exchange(&mut client, &mut server);
    let Http2Event::Response {
        status,
        headers,
        end,
        ..
    } = &seen[0].event
    else {
        panic!("{seen:?}");
    };
    assert_eq!((*status, *end), (StatusCode::OK, false));
    assert_eq!(
        headers.wire(),
        b"content-type: text/plain\r\ndate: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
    );
    assert_eq!(seen[1].data, b"world");
    assert!(matches!(&seen[2].event, Http2Event::Trailers { trailers, .. } if trailers.len() == 1));
    assert_eq!(client.connection.open_streams(), 0);
    assert_eq!(server.connection.open_streams(), 0);
}

/// RFC 9110 section 6.5.1.
#[test]
fn drops_trailer_fields_that_belong_into_a_head() {
    let unfit = "host: evil\ncontent-length: 0\ncontent-type: text/html\nset-cookie: a=b\n\
        authorization: Basic eDp5\nte: trailers\nx-sum: 7";
    // At the receiver, if the other end sends them nevertheless.
    let mut server = Endpoint::connected(config());
    let mut bytes = headers_frame(1, false, &POST);
    let fields: Vec<_> = unfit
        .lines()
        .map(|line| line.split_once(": ").unwrap())
        .collect();
    bytes.extend(headers_frame(1, true, &fields));
    let seen = server.receive(&bytes).unwrap();
    let Http2Event::Trailers { trailers, .. } = &seen[1].event else {
        panic!("{seen:?}");
    };
    assert_eq!(trailers.wire(), b"x-sum: 7\r\n");
    // At the sender, at either end; without remaining fields there is no trailer section.
    for (sent, blocks) in [(unfit, 1), ("host: evil\nconnection: close", 0)] {
        let (mut client, mut server) = pair();
        let head = request("POST", "/", "host: a");
        let stream = client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), false, &mut client.out)
            .unwrap();
        let (_, seen) = exchange(&mut client, &mut server);
        let at_server = stream_of(&seen);
        let trailers = headers(sent);
        client
            .connection
            .send_trailers(stream, &trailers, &mut client.out);
        let none = Headers::new();
        let head = head_of(StatusCode::OK, &none, None);
        server
            .connection
            .send_head(at_server, head, &mut server.out);
        server
            .connection
            .send_trailers(at_server, &trailers, &mut server.out);
        let (at_client, at_server) = exchange(&mut client, &mut server);
        for seen in [at_client, at_server] {
            let found: Vec<_> = seen
                .iter()
                .filter_map(|seen| match &seen.event {
                    Http2Event::Trailers { trailers, .. } => Some(trailers.wire()),
                    _ => None,
                })
                .collect();
            assert_eq!(found, vec![b"x-sum: 7\r\n"; blocks], "{seen:?}");
        }
        assert!(!client.connection.is_open(stream));
    }
}

#[test]
fn sends_interim_responses_before_the_final_one() {
    let (mut client, mut server) = pair();
    let head = request(
        "POST",
        "/",
        "host: a\nexpect: 100-continue\ncontent-length: 1",
    );
    let stream = client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), false, &mut client.out)
        .unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    let key = stream_of(&seen);
    assert!(matches!(&seen[0].event, Http2Event::Request(request) if request.expects_continue));
    for (status, fields) in [(100, ""), (103, "link: </a>")] {
        let status = StatusCode::from_u16(status).unwrap();
        server
            .connection
            .send_informational(key, status, &headers(fields), &mut server.out);
    }
    let (seen, _) = exchange(&mut client, &mut server);
    assert!(matches!(
        &seen[0].event,
        Http2Event::Informational { status, .. } if *status == StatusCode::CONTINUE
    ));
    assert!(matches!(
        &seen[1].event,
        Http2Event::Informational { headers, .. } if headers.get_str("link") == Some("</a>")
    ));
    client.sends(stream, b"x", true);
    server.responds(key, 204, "", b"");
    let (seen, _) = exchange(&mut client, &mut server);
    assert!(matches!(
        &seen[0].event,
        Http2Event::Response { end: true, .. }
    ));
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    for (method, status, body, length) in [
        ("HEAD", 200, &b"hello"[..], Some("5")),
        ("GET", 204, b"", None),
        ("GET", 304, b"hello", None),
        ("GET", 205, b"", Some("0")),
        ("GET", 200, b"", Some("0")),
    ] {
        let (mut client, mut server) = pair();
        let head = request(method, "/", "host: a");
        client
            .connection
            .send_request(OutgoingRequest::of(&head, "http"), true, &mut client.out)
            .unwrap();
        let (_, seen) = exchange(&mut client, &mut server);
        server.responds(stream_of(&seen), status, "", body);
        let (seen, _) = exchange(&mut client, &mut server);
        assert_eq!(seen.len(), 1, "{method} {status}: {seen:?}");
        let Http2Event::Response { headers, end, .. } = &seen[0].event else {
            panic!("{seen:?}");
        };
        assert!(*end);
        assert_eq!(
            headers.get_str("content-length"),
            length,
            "{method} {status}"
        );
        assert_eq!(client.connection.open_streams(), 0);
    }
}

#[test]
fn joins_cookies_and_removes_te() {
    let mut server = Endpoint::connected(config());
    let mut fields = GET.to_vec();
    fields.extend([
        ("cookie", "a=1"),
        ("x", "y"),
        ("cookie", "b=2"),
        ("te", "trailers"),
    ]);
    let seen = server.receive(&headers_frame(1, true, &fields)).unwrap();
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    assert_eq!(
        request.head.headers.wire(),
        b"host: a\r\nx: y\r\ncookie: a=1; b=2\r\n"
    );
    assert!(request.head.hop_by_hop.accepts_trailers);
}

#[test]
fn an_extended_connect_becomes_an_upgrade() {
    let mut server = Endpoint::connected(config());
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/chat"),
        ("sec-websocket-version", "13"),
    ];
    let seen = server.receive(&headers_frame(1, false, &fields)).unwrap();
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    assert_eq!(request.kind, RequestKind::ExtendedConnect);
    assert_eq!(request.head.method, Method::GET);
    let upgrade = request.head.hop_by_hop.upgrade.as_deref();
    assert_eq!(upgrade, Some("websocket"));
    let key = request.stream;
    let fields = headers("upgrade: websocket\nconnection: upgrade");
    let head = head_of(StatusCode::SWITCHING_PROTOCOLS, &fields, Some(0));
    let body = server.connection.send_head(key, head, &mut server.out);
    assert_eq!(body, ExpectedBody::Data(None));
    let seen = server.receive(&one(0x0, 0, 1, b"ping")).unwrap();
    assert_eq!(seen[0].data, b"ping");
    server.sends(key, b"pong", false);
    // The status is 200, which is one byte, and the date is the only field.
    let sent = frames(&server.out);
    assert_eq!((sent[0].0, sent[0].3[0]), (0x1, 0x88));
    assert_eq!(sent[1], (0x0, 0, 1, b"pong".to_vec()));
}

#[test]
fn a_plain_connect_has_only_an_authority() {
    let mut server = Endpoint::connected(config());
    let fields = [(":method", "CONNECT"), (":authority", "a:443")];
    let seen = server.receive(&headers_frame(1, false, &fields)).unwrap();
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    assert_eq!(request.head.target.authority(), Some("a:443"));
    for extra in [
        (":scheme", "https"),
        (":path", "/"),
        ("content-length", "0"),
    ] {
        let mut server = Endpoint::connected(config());
        let mut fields = fields.to_vec();
        let at = if extra.0.starts_with(':') { 1 } else { 2 };
        fields.insert(at, extra);
        let seen = server.receive(&headers_frame(1, false, &fields)).unwrap();
        assert!(
            matches!(seen[0].event, Http2Event::Malformed { .. }),
            "{extra:?}"
        );
    }
}

#[test]
fn responds_to_requests_that_exceed_a_limit() {
    let long = "x".repeat(40_000);
    let path = format!("/{}", "x".repeat(8192));
    let mut too_many = GET.to_vec();
    too_many.extend(std::iter::repeat_n(("x", "y"), 100));
    let mut too_large = GET.to_vec();
    too_large.push(("x", &long[..20_000]));
    too_large.push(("y", &long[..20_000]));
    let mut long_target = GET.to_vec();
    long_target[3].1 = &path;
    let mut expects = GET.to_vec();
    expects.push(("expect", "coffee"));
    let mut authorized = GET.to_vec();
    authorized.extend([("authorization", "Basic a"), ("authorization", "Bearer b")]);
    for (fields, why) in [
        (too_many, HeadRefusal::TooManyFields),
        (too_large, HeadRefusal::HeadTooLarge),
        (long_target, HeadRefusal::TargetTooLong),
        (expects, HeadRefusal::Expectation),
        (authorized, HeadRefusal::AuthorizationRepeated),
    ] {
        let mut server = Endpoint::connected(config());
        let block = block(&fields);
        let mut bytes = Vec::new();
        let parts: Vec<_> = block.chunks(16_384).collect();
        for (at, part) in parts.iter().enumerate() {
            let last = if at + 1 == parts.len() { 0x4 } else { 0 };
            let kind = if at == 0 { 0x1 } else { 0x9 };
            frame(kind, last | u8::from(at == 0), 1, part, &mut bytes);
        }
        let seen = server.receive(&bytes).unwrap();
        let Http2Event::Refused { stream, why: seen } = seen[0].event else {
            panic!("{seen:?}");
        };
        assert_eq!(seen, why);
        server.responds(stream, why.status().as_u16(), "", b"no");
        assert_eq!(server.connection.open_streams(), 0);
        // The connection continues, and the tables of both ends are the same.
        assert_eq!(
            server.receive(&headers_frame(3, true, &GET)).unwrap().len(),
            1
        );
    }
}

#[test]
fn a_field_block_may_be_split_anywhere() {
    let whole = block(&GET);
    for cut in 0..=whole.len() {
        let mut server = Endpoint::connected(config());
        let mut bytes = one(0x1, 0x1, 1, &whole[..cut]);
        frame(0x9, 0x4, 1, &whole[cut..], &mut bytes);
        let seen = server.receive_bytewise(&bytes).unwrap();
        assert!(
            matches!(&seen[0].event, Http2Event::Request(request) if request.end),
            "{cut}"
        );
    }
}

#[test]
fn a_large_response_head_continues_in_continuation() {
    let (mut client, mut server) = pair();
    let head = request("GET", "/", "host: a");
    client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
        .unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    let mut fields = Headers::new();
    for at in 0..30 {
        fields
            .try_append(format!("x-{at}"), "\u{7e}".repeat(1000))
            .unwrap();
    }
    let head = head_of(StatusCode::OK, &fields, Some(0));
    server
        .connection
        .send_head(stream_of(&seen), head, &mut server.out);
    let kinds: Vec<_> = frames(&server.out).iter().map(|frame| frame.0).collect();
    assert_eq!(kinds, [0x1, 0x9]);
    let (seen, _) = exchange(&mut client, &mut server);
    assert!(matches!(
        &seen[0].event,
        // The date, and the length 0.
        Http2Event::Response { headers, .. } if headers.len() == 32
    ));
}

#[test]
fn data_may_be_split_and_padded() {
    let mut bytes = headers_frame(1, false, &POST);
    frame(0x0, 0x8, 1, b"\x03abc\0\0\0", &mut bytes);
    frame(0x0, 0, 1, b"def", &mut bytes);
    frame(0x0, 0x8 | 0x1, 1, b"\x01g\0", &mut bytes);
    for slowly in [false, true] {
        let mut server = Endpoint::connected(config());
        let seen = if slowly {
            server.receive_bytewise(&bytes).unwrap()
        } else {
            server.receive(&bytes).unwrap()
        };
        let body: Vec<u8> = seen.iter().flat_map(|seen| seen.data.clone()).collect();
        assert_eq!(body, b"abcdefg");
        let ends = seen
            .iter()
            .filter(|seen| matches!(seen.event, Http2Event::Data { end: true, .. }))
            .count();
        assert_eq!(ends, 1);
        assert!(!server.connection.is_receiving(stream_of(&seen)));
    }
}

#[test]
fn a_response_has_the_alt_svc_of_its_service_or_of_the_connection() {
    for (fields, expected) in [("", "h3=\":443\""), ("alt-svc: clear", "clear")] {
        let (mut client, mut server) = pair();
        let head = request("GET", "/", "host: a");
        let (connection, out) = (&mut client.connection, &mut client.out);
        connection
            .send_request(OutgoingRequest::of(&head, "https"), true, out)
            .unwrap();
        let (_, seen) = exchange(&mut client, &mut server);
        let fields = headers(fields);
        let head = apus_http::ResponseHead {
            alt_svc: Some("h3=\":443\""),
            ..head_of(StatusCode::OK, &fields, None)
        };
        let (connection, out) = (&mut server.connection, &mut server.out);
        connection.send_head(stream_of(&seen), head, out);
        let (seen, _) = exchange(&mut client, &mut server);
        let Http2Event::Response { headers, .. } = &seen[0].event else {
            panic!("{seen:?}");
        };
        let values: Vec<_> = headers.get_all("alt-svc").collect();
        assert_eq!(values, [expected.as_bytes()]);
    }
}
