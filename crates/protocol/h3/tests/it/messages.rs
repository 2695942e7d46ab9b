//! Requests and responses between both roles (RFC 9114 sections 4.1 to 4.4, RFC 9220).

use apus_codec::messages::RequestKind;
use apus_h3::{
    ExpectedBody, H3ErrorCode, H3Event, H3Fault, HeadRefusal, LocalStream, OutgoingRequest,
    RequestError, StreamAction,
};
use apus_http::{Headers, Method, StatusCode, Version};

use super::endpoint::{
    Endpoint, config, frame, frames, get, head_of, headers, integers, request_head, section,
};

/// A client and a server that have exchanged their SETTINGS.
pub(super) fn pair() -> (Endpoint, Endpoint) {
    pair_with(0)
}

pub(super) fn pair_with(encoder_table_bytes: usize) -> (Endpoint, Endpoint) {
    let config = apus_h3::H3Config {
        encoder_table_bytes,
        ..config()
    };
    let (mut client, mut server) = (Endpoint::client(config), Endpoint::server(config));
    assert!(matches!(
        client.deliver(&mut server, 2)[..],
        [H3Event::Settings]
    ));
    assert!(matches!(
        server.deliver(&mut client, 3)[..],
        [H3Event::Settings]
    ));
    assert!(client.connection.has_peer_settings());
    assert!(client.connection.allows_extended_connect());
    assert!(!server.connection.allows_extended_connect());
    (client, server)
}

#[test]
fn transfers_a_request_and_a_response_with_bodies_and_trailers() {
    let (mut client, mut server) = pair();
    let head = request_head(
        &Method::POST,
        "/path?query",
        "host: a.example\ncontent-type: text/plain\ncookie: a=1\ncookie: b=2\nte: trailers",
    );
    let head = OutgoingRequest {
        content_length: Some(5),
        ..OutgoingRequest::of(&head, "https")
    };
    let mut out = Vec::new();
    let sent = client
        .connection
        .send_request(0, head, false, &mut out)
        .unwrap();
    assert!(client.connection.send_data(sent, 5, false, &mut out));
    out.extend_from_slice(b"hello");
    client
        .connection
        .send_trailers(sent, &headers("x-sum: 1\ncontent-length: 5"), &mut out);
    let events = server.receive(0, &out, true).unwrap();
    let [
        H3Event::Request(request),
        H3Event::Data {
            data, end: false, ..
        },
        H3Event::Trailers { trailers, .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(request.head.method, Method::POST);
    assert_eq!(request.head.version, Version::HTTP_3);
    assert_eq!(request.head.target.path_and_query(), "/path?query");
    assert_eq!(request.content_length, Some(5));
    assert!(!request.end && request.head.hop_by_hop.accepts_trailers);
    assert_eq!(
        request.head.headers.wire(),
        b"host: a.example\r\ncontent-type: text/plain\r\ncontent-length: 5\r\ncookie: a=1; b=2\r\n"
    );
    assert_eq!(&data[..], b"hello");
    assert_eq!(trailers.wire(), b"x-sum: 1\r\n");

    let mut out = Vec::new();
    let stream = request.stream;
    server.connection.send_informational(
        stream,
        StatusCode::EARLY_HINTS,
        &headers("link: </a>"),
        &mut out,
    );
    let fields = headers("content-type: text/html\nconnection: close");
    let head = head_of(StatusCode::OK, &fields, None);
    assert_eq!(
        server.connection.send_head(stream, head, &mut out),
        ExpectedBody::Data(None)
    );
    assert!(server.connection.send_data(stream, 3, false, &mut out));
    out.extend_from_slice(b"abc");
    assert!(server.connection.is_open(stream));
    server
        .connection
        .send_trailers(stream, &headers("x-end: 1"), &mut out);
    assert!(!server.connection.is_open(stream));
    let events = client.receive(0, &out, true).unwrap();
    let [
        H3Event::Informational {
            status: StatusCode::EARLY_HINTS,
            ..
        },
        H3Event::Response {
            status: StatusCode::OK,
            headers: fields,
            end: false,
            ..
        },
        H3Event::Data { .. },
        H3Event::Trailers { .. },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(
        fields.wire(),
        b"content-type: text/html\r\nserver: apus\r\ndate: Sat, 21 Nov 2026 10:00:00 GMT\r\n"
    );
    assert!(!client.connection.is_open(sent));
    assert!(server.actions.is_empty() && client.actions.is_empty());
}

#[test]
fn the_end_of_a_body_may_come_after_its_data() {
    let mut server = Endpoint::connected();
    let stream = server.receives_request(0, &get(&[]), false);
    let events = server.receive(0, &frames(&[(0, b"ab"), (0, b"")]), false);
    assert!(
        matches!(&events.unwrap()[..], [H3Event::Data { data, end: false, .. }] if &data[..] == b"ab")
    );
    assert!(server.connection.is_receiving(stream));
    let events = server.receive(0, b"", true).unwrap();
    assert!(matches!(&events[..], [H3Event::Data { data, end: true, .. }] if data.is_empty()));
    assert!(!server.connection.is_receiving(stream));
    assert!(server.receive(0, b"", true).unwrap().is_empty());
}

/// The data of a body that is too short is not lost, however it arrives.
#[test]
fn a_body_that_is_too_short_ends_with_a_fault() {
    let head = frames(&[(1, &get(&[("content-length", "5")]))]);
    let whole = [head.clone(), frames(&[(0, b"ab")])].concat();
    let mut cut_off = head;
    cut_off.extend_from_slice(b"\x00\x05ab");
    let mut server = Endpoint::connected();
    let events = server.receive(0, &whole, true).unwrap();
    assert!(
        matches!(
            &events[..],
            [H3Event::Request(_), H3Event::Data { data, end: false, .. }, H3Event::Malformed { .. }]
                if &data[..] == b"ab"
        ),
        "{events:?}"
    );
    let mut input = bytes::Bytes::from(cut_off);
    for is_data in [false, true] {
        let event = server.connection.handle_stream(4, &mut input, true);
        assert_eq!(matches!(event, Ok(H3Event::Data { .. })), is_data);
    }
    let error = server.connection.handle_stream(4, &mut input, true);
    assert_eq!(error.unwrap_err(), H3Fault::FrameSize.into());
}

#[test]
fn frames_of_unknown_types_are_ignored_everywhere() {
    let mut server = Endpoint::connected();
    let unknown = frames(&[(0x21, b"abc"), (0x4040, b"")]);
    let bytes = [
        &unknown[..],
        &frames(&[(1, &get(&[]))]),
        &unknown,
        &frames(&[(0, b"x")]),
        &unknown,
        &frames(&[(1, &section(&[("a", "b")]))]),
        &unknown,
    ]
    .concat();
    let events = server.receive(0, &bytes, true).unwrap();
    assert!(
        matches!(
            events[..],
            [
                H3Event::Request(_),
                H3Event::Data { .. },
                H3Event::Trailers { .. }
            ]
        ),
        "{events:?}"
    );
    assert!(server.receive(2, &unknown, false).unwrap().is_empty());
    server.receives_request(4, &get(&[]), true);
}

#[test]
fn a_stream_of_which_nothing_came_is_rejected_on_demand() {
    let mut server = Endpoint::connected();
    server.receive(0, &[1], false).unwrap();
    // One that has begun, one of which nothing came, and one without a type.
    for (id, is_silent) in [(0, false), (4, true), (4, false), (18, true), (18, false)] {
        assert_eq!(
            server.connection.reject_silent(id).unwrap(),
            is_silent,
            "{id}"
        );
    }
    for id in [4, 18] {
        assert!(!server.connection.is_inside_head(id));
    }
    // What comes later is of nobody.
    let request = frames(&[(1, &get(&[]))]);
    server.receive(4, &request, true).unwrap();
    server.receives_request(8, &get(&[]), true);
}

#[test]
fn a_head_and_trailers_that_are_incomplete_are_noticed() {
    let mut server = Endpoint::connected();
    // The transport reports a stream before any of it can be read: from then on its head is awaited.
    assert!(server.connection.is_inside_head(0));
    let request = frames(&[(1, &get(&[]))]);
    for byte in &request[..request.len() - 1] {
        server.receive(0, &[*byte], false).unwrap();
        assert!(server.connection.is_inside_head(0));
    }
    server
        .receive(0, &request[request.len() - 1..], false)
        .unwrap();
    assert!(!server.connection.is_inside_head(0));
    server.receive(0, &[1, 9, 0], false).unwrap();
    assert!(server.connection.is_inside_head(0));

    let mut client = Endpoint::connected_client();
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    client
        .connection
        .send_request(0, head, true, &mut Vec::new())
        .unwrap();
    assert!(!client.connection.is_inside_head(0));
    client.receive(0, &[1, 9], false).unwrap();
    assert!(client.connection.is_inside_head(0));
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    for (method, status, length, expected) in [
        ("GET", 204, None, ExpectedBody::None),
        ("GET", 304, Some(5), ExpectedBody::None),
        ("HEAD", 200, Some(5), ExpectedBody::None),
        ("GET", 200, Some(0), ExpectedBody::None),
        ("GET", 200, Some(5), ExpectedBody::Data(Some(5))),
    ] {
        let mut server = Endpoint::connected();
        let lines = [
            (":method", method),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", "/"),
        ];
        let stream = server.receives_request(0, &section(&lines), true);
        let fields = Headers::new();
        let status = StatusCode::from_u16(status).unwrap();
        let mut out = Vec::new();
        let body = server
            .connection
            .send_head(stream, head_of(status, &fields, length), &mut out);
        assert_eq!(body, expected, "{method} {status}");
        assert_eq!(
            server.connection.is_open(stream),
            expected != ExpectedBody::None
        );
        assert!(server.actions.is_empty());
    }
}

#[test]
fn a_head_that_exceeds_a_limit_gets_a_response() {
    let long = "x".repeat(8193);
    let large = "x".repeat(33_000);
    let many: Vec<_> = (0..101).map(|_| ("a", "b")).collect();
    let target = |path: &str| {
        section(&[
            (":method", "GET"),
            (":scheme", "https"),
            (":authority", "a"),
            (":path", path),
        ])
    };
    for (section, refusal) in [
        (target(&format!("/{long}")), HeadRefusal::TargetTooLong),
        (get(&[("a", &large)]), HeadRefusal::HeadTooLarge),
        (get(&many), HeadRefusal::TooManyFields),
        (get(&[("expect", "202-other")]), HeadRefusal::Expectation),
        (
            get(&[("authorization", "Basic a"), ("authorization", "Bearer b")]),
            HeadRefusal::AuthorizationRepeated,
        ),
    ] {
        let mut server = Endpoint::connected();
        let bytes = frames(&[(1, &section), (0, b"body")]);
        let events = server.receive(0, &bytes, false).unwrap();
        let [H3Event::Refused { stream, why }] = events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(why, refusal);
        assert!(server.actions.is_empty(), "the response comes first");
        server.responds(stream, why.status().as_u16(), "", b"no");
        let code = H3ErrorCode::NO_ERROR;
        assert_eq!(
            server.connection.next_action(),
            Some(StreamAction::StopSending { id: 0, code })
        );
        assert!(!server.connection.is_open(stream));
        assert!(
            server
                .receive(0, &frames(&[(0, b"more")]), false)
                .unwrap()
                .is_empty()
        );
    }
}

#[test]
fn a_body_that_nobody_reads_is_stopped_after_the_response() {
    let mut server = Endpoint::connected();
    let first = server.receives_request(0, &get(&[]), false);
    server.connection.abandon(first);
    assert_eq!(server.connection.next_action(), None);
    server.responds(first, 200, "", b"body");
    let stop = |id| StreamAction::StopSending {
        id,
        code: H3ErrorCode::NO_ERROR,
    };
    assert_eq!(server.connection.next_action(), Some(stop(0)));
    let second = server.receives_request(4, &get(&[]), false);
    server.responds(second, 200, "", b"body");
    assert!(server.connection.is_open(second));
    server.connection.abandon(second);
    assert_eq!(server.connection.next_action(), Some(stop(4)));
    assert_eq!(server.connection.open_streams(), 0);
}

#[test]
fn an_extended_connect_becomes_an_upgrade() {
    let (mut client, mut server) = pair();
    let head = request_head(&Method::GET, "/chat", "host: a");
    let head = OutgoingRequest {
        protocol: Some("websocket"),
        ..OutgoingRequest::of(&head, "https")
    };
    let mut out = Vec::new();
    let sent = client
        .connection
        .send_request(0, head, false, &mut out)
        .unwrap();
    let events = server.receive(0, &out, false).unwrap();
    let [H3Event::Request(request)] = &events[..] else {
        panic!("{events:?}");
    };
    assert!(request.kind == RequestKind::ExtendedConnect && request.head.method == Method::GET);
    assert_eq!(
        request.head.hop_by_hop.upgrade.as_deref(),
        Some("websocket")
    );
    let mut out = Vec::new();
    let fields = Headers::new();
    let head = head_of(StatusCode::SWITCHING_PROTOCOLS, &fields, Some(0));
    assert_eq!(
        server.connection.send_head(request.stream, head, &mut out),
        ExpectedBody::Data(None)
    );
    server
        .connection
        .send_data(request.stream, 2, false, &mut out);
    out.extend_from_slice(b"hi");
    let events = client.receive(0, &out, false).unwrap();
    assert!(
        matches!(
            &events[..],
            [H3Event::Response { status: StatusCode::OK, end: false, .. }, H3Event::Data { data, .. }]
                if &data[..] == b"hi"
        ),
        "{events:?}"
    );
    let mut out = Vec::new();
    client
        .connection
        .send_trailers(sent, &headers("a: b"), &mut out);
    assert!(out.is_empty(), "a tunnel has no trailers");
    let events = server.receive(0, b"", true).unwrap();
    assert!(matches!(events[..], [H3Event::Data { end: true, .. }]));
}

#[test]
fn a_plain_connect_has_only_an_authority() {
    let mut server = Endpoint::connected();
    let connect = section(&[(":method", "CONNECT"), (":authority", "a.example:443")]);
    let stream = server.receives_request(0, &connect, false);
    let fields = Headers::new();
    let head = head_of(StatusCode::OK, &fields, None);
    let mut out = Vec::new();
    assert_eq!(
        server.connection.send_head(stream, head, &mut out),
        ExpectedBody::Data(None)
    );
    let events = server.receive(0, &frames(&[(0, b"x"), (0x21, b"")]), false);
    assert!(matches!(events.unwrap()[..], [H3Event::Data { .. }]));
}

#[test]
fn a_reset_closes_the_stream_in_both_directions() {
    let mut server = Endpoint::connected();
    let stream = server.receives_request(0, &get(&[]), false);
    let code = H3ErrorCode::REQUEST_CANCELLED;
    let event = server.connection.handle_reset(0, code).unwrap();
    assert!(
        matches!(event, Some(H3Event::Reset { stream: key, code: found }) if key == stream && found == code)
    );
    assert_eq!(
        server.connection.next_action(),
        Some(StreamAction::Reset { id: 0, code })
    );
    assert_eq!(server.connection.next_action(), None);
    assert!(
        !server
            .connection
            .send_data(stream, 1, true, &mut Vec::new())
    );

    // A stream that was reset before any of its bytes were received.
    assert!(server.connection.handle_reset(4, code).unwrap().is_none());
    assert!(
        server
            .receive(4, &frames(&[(1, &get(&[]))]), true)
            .unwrap()
            .is_empty()
    );

    // A reset after the whole request means nothing.
    let stream = server.receives_request(8, &get(&[]), true);
    assert!(server.connection.handle_reset(8, code).unwrap().is_none());
    assert!(server.connection.is_open(stream));
    let event = server.connection.handle_stop_sending(8, code).unwrap();
    assert!(matches!(event, Some(H3Event::Reset { .. })));
    assert_eq!(server.connection.open_streams(), 0);
}

#[test]
fn a_response_may_end_before_its_request() {
    let (mut client, mut server) = pair();
    let head = request_head(&Method::POST, "/", "host: a");
    let mut out = Vec::new();
    let sent = client
        .connection
        .send_request(0, OutgoingRequest::of(&head, "https"), false, &mut out)
        .unwrap();
    let events = server.receive(0, &out, false).unwrap();
    let [H3Event::Request(request)] = &events[..] else {
        panic!("{events:?}");
    };
    let out = server.responds(request.stream, 200, "", b"early");
    server.connection.abandon(request.stream);
    let event = client
        .connection
        .handle_stop_sending(0, H3ErrorCode::NO_ERROR)
        .unwrap();
    assert!(
        matches!(event, Some(H3Event::BodyRefused { stream, code: H3ErrorCode::NO_ERROR }) if stream == sent)
    );
    assert_eq!(
        client.connection.next_action(),
        Some(StreamAction::Reset {
            id: 0,
            code: H3ErrorCode::NO_ERROR
        })
    );
    assert!(!client.connection.send_data(sent, 1, false, &mut Vec::new()));
    let events = client.receive(0, &out, true).unwrap();
    assert!(matches!(
        events[..],
        [H3Event::Response { .. }, H3Event::Data { end: true, .. }]
    ));
    assert_eq!(client.connection.open_streams(), 0);
}

/// Section 4.2.2: one byte more than the peer allows, and as many.
#[test]
fn field_sections_have_at_most_the_size_that_the_peer_allows() {
    let head = request_head(&Method::GET, "/", "host: a");
    // `:method`, `:scheme`, `:path`, `:authority`.
    let size = (7 + 3 + 32) + (7 + 5 + 32) + (5 + 1 + 32) + (10 + 1 + 32);
    for (limit, is_sent) in [(size - 1, false), (size, true)] {
        let mut client = Endpoint::client(config());
        let mut control = vec![0];
        frame(0x4, &integers(&[6, limit]), &mut control);
        client.receive(3, &control, false).unwrap();
        let head = OutgoingRequest::of(&head, "https");
        let mut out = Vec::new();
        let sent = client.connection.send_request(0, head, true, &mut out);
        assert_eq!(sent.is_ok(), is_sent);
        assert_eq!(out.is_empty(), !is_sent);
        if !is_sent {
            assert_eq!(sent, Err(RequestError::HeadTooLarge));
        }
    }
    // A response to which the client gave too little room loses its fields.
    let mut server = Endpoint::connected_with(config(), &[6, 500]);
    let stream = server.receives_request(0, &get(&[]), true);
    let fields = headers(&format!("x-large: {}", "x".repeat(400)));
    let head = head_of(StatusCode::OK, &fields, Some(5));
    let mut out = Vec::new();
    assert_eq!(
        server.connection.send_head(stream, head, &mut out),
        ExpectedBody::None
    );
    assert!(out.len() < 100 && !server.connection.is_open(stream));
}

#[test]
fn a_response_that_is_too_large_cancels_its_request() {
    let mut client = Endpoint::connected_client();
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    client
        .connection
        .send_request(0, head, true, &mut Vec::new())
        .unwrap();
    let large = "x".repeat(33_000);
    let bytes = frames(&[(1, &section(&[(":status", "200"), ("a", &large)]))]);
    let events = client.receive(0, &bytes, false).unwrap();
    assert!(matches!(
        events[..],
        [H3Event::Malformed {
            fault: H3Fault::HeadTooLarge,
            ..
        }]
    ));
    let code = H3ErrorCode::REQUEST_CANCELLED;
    assert_eq!(client.actions, [StreamAction::StopSending { id: 0, code }]);
}

#[test]
fn streams_beyond_the_limit_are_rejected() {
    let mut server = Endpoint::connected_with(
        apus_h3::H3Config {
            max_concurrent_streams: 2,
            ..config()
        },
        &[],
    );
    let first = server.receives_request(0, &get(&[]), true);
    server.receives_request(4, &get(&[]), true);
    let bytes = frames(&[(1, &get(&[]))]);
    assert!(server.receive(8, &bytes, true).unwrap().is_empty());
    let code = H3ErrorCode::REQUEST_REJECTED;
    assert_eq!(
        server.actions,
        [
            StreamAction::StopSending { id: 8, code },
            StreamAction::Reset { id: 8, code }
        ]
    );
    server.responds(first, 200, "", b"x");
    server.receives_request(12, &get(&[]), true);
}

#[test]
fn a_client_sends_no_more_requests_than_it_may() {
    let mut client = Endpoint::client(apus_h3::H3Config {
        max_concurrent_streams: 1,
        ..config()
    });
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    let mut out = Vec::new();
    assert_eq!(client.connection.available_streams(), 1);
    assert!(
        client
            .connection
            .send_request(0, head, true, &mut out)
            .is_ok()
    );
    assert_eq!(
        client.connection.send_request(4, head, true, &mut out),
        Err(RequestError::TooManyStreams)
    );
    let mut server = Endpoint::connected();
    assert_eq!(
        server.connection.send_request(0, head, true, &mut out),
        Err(RequestError::ShuttingDown)
    );
}

/// Repeated heads are encoded once; the result is the same.
#[test]
fn a_head_that_is_sent_again_is_the_same() {
    let mut server = Endpoint::connected();
    let fields = headers(
        "content-type: text/html; charset=utf-8\ncontent-length: 3\nkeep-alive: 5\netag: \"x\"\nset-cookie: a=b",
    );
    let mut sent = Vec::new();
    for (id, length) in [(0, 3), (4, 3), (8, 3), (12, 4)] {
        let stream = server.receives_request(id, &get(&[]), true);
        let mut out = Vec::new();
        let head = head_of(StatusCode::OK, &fields, Some(length));
        server.connection.send_head(stream, head, &mut out);
        sent.push(out);
    }
    assert_eq!(sent[0], sent[1]);
    assert_eq!(sent[1], sent[2]);
    let mut client = Endpoint::connected_client();
    for (id, length, bytes) in [(0, "3", &sent[2]), (4, "4", &sent[3])] {
        let head = request_head(&Method::GET, "/", "host: a");
        let head = OutgoingRequest::of(&head, "https");
        client
            .connection
            .send_request(id, head, true, &mut Vec::new())
            .unwrap();
        let events = client.receive(id, bytes, false).unwrap();
        let [H3Event::Response { headers, .. }] = &events[..] else {
            panic!("{events:?}");
        };
        assert_eq!(headers.get_all("content-length").count(), 1);
        assert_eq!(headers.get_str("content-length"), Some(length));
        assert_eq!(headers.get_str("etag"), Some("\"x\""));
        assert!(!headers.contains("keep-alive"));
    }
    assert_eq!(server.connection.output(LocalStream::QpackEncoder)[..], [2]);
}
