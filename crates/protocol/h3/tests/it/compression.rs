//! Field compression with the dynamic table over a connection (RFC 9204 section 2).

use apus_h3::{H3Error, H3ErrorCode, H3Event, H3Fault, OutgoingRequest, StreamAction};
use apus_http::{Method, StatusCode};

use super::endpoint::{Endpoint, frames, get, head_of, headers, request_head};
use super::messages::pair_with;

/// Instructions that set the capacity to 4096 bytes and insert `x-a: 1`.
const INSERT: &[u8] = b"\x3f\xe1\x1f\x43x-a\x011";

/// A GET request whose last line is the first entry of the dynamic table.
fn section_with_reference() -> Vec<u8> {
    // :method GET, :scheme https, :path /, and `:authority` as a literal.
    [
        &[2, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0x50, 1, b'a'][..],
        &[0x80],
    ]
    .concat()
}

#[test]
fn a_section_waits_for_its_inserts() {
    let mut server = Endpoint::connected();
    let bytes = frames(&[(1, &section_with_reference()), (0, b"body")]);
    assert!(server.receive(0, &bytes, true).unwrap().is_empty());
    assert!(server.connection.is_inside_head(0));
    assert_eq!(server.take_output()[2], [3]);
    let events = server.receive(6, INSERT, false).unwrap();
    let [
        H3Event::Request(request),
        H3Event::Data {
            data, end: true, ..
        },
    ] = &events[..]
    else {
        panic!("{events:?}");
    };
    assert_eq!(request.head.headers.get_str("x-a"), Some("1"));
    assert_eq!(&data[..], b"body");
    // An insert count increment of 1, then the acknowledgement of stream 0.
    assert_eq!(server.take_output()[2], [1, 0x80]);
    assert!(!server.connection.is_inside_head(0));
}

#[test]
fn a_section_that_waits_may_be_split_anywhere() {
    let mut server = Endpoint::connected();
    let bytes = frames(&[(1, &section_with_reference())]);
    for byte in &bytes {
        assert!(server.receive(0, &[*byte], false).unwrap().is_empty());
    }
    assert!(server.receive(0, b"", true).unwrap().is_empty());
    let mut events = Vec::new();
    for byte in INSERT {
        events.extend(server.receive(6, &[*byte], false).unwrap());
    }
    assert!(matches!(&events[..], [H3Event::Request(request)] if request.end));
}

#[test]
fn as_many_streams_wait_as_allowed() {
    let mut server = Endpoint::connected();
    let bytes = frames(&[(1, &section_with_reference())]);
    for stream in 0..16 {
        assert!(server.receive(4 * stream, &bytes, true).unwrap().is_empty());
    }
    let error = server.fails(4 * 16, &bytes, true);
    assert_eq!(error, H3Error::Protocol(H3Fault::BlockedStreams));
    assert_eq!(error.code(), H3ErrorCode::QPACK_DECOMPRESSION_FAILED);
}

#[test]
fn a_stream_that_waits_may_be_reset() {
    let mut server = Endpoint::connected();
    server.take_output();
    let bytes = frames(&[(1, &section_with_reference())]);
    for stream in 0..100 {
        assert!(
            server
                .receive(4 * stream, &bytes, false)
                .unwrap()
                .is_empty()
        );
        let code = H3ErrorCode::REQUEST_CANCELLED;
        let event = server.connection.handle_reset(4 * stream, code).unwrap();
        assert!(matches!(event, Some(H3Event::Reset { .. })));
    }
    // A stream cancellation of each.
    assert_eq!(server.take_output()[2][..3], [0x40, 0x44, 0x48]);
    assert!(server.receive(6, INSERT, false).unwrap().is_empty());
    while let Some(action) = server.connection.next_action() {
        assert!(matches!(action, StreamAction::Reset { .. }));
    }
}

/// The encoder of the peer keeps the entries of a section until it is acknowledged or cancelled (RFC 9204 section
/// 2.2.2.2), and the section has no deadline any more.
#[test]
fn a_section_that_waits_on_an_abandoned_stream_is_cancelled() {
    let mut server = Endpoint::connected();
    let stream = server.receives_request(0, &get(&[]), false);
    let trailers = frames(&[(1, &[2, 0, 0x80])]);
    assert!(server.receive(0, &trailers, true).unwrap().is_empty());
    assert!(server.connection.is_inside_head(0));
    server.take_output();
    server.connection.abandon(stream);
    server.connection.abandon(stream);
    assert!(!server.connection.is_inside_head(0));
    assert_eq!(server.take_output()[2], [0x40]);
    assert!(server.receive(0, b"", true).unwrap().is_empty());
    server.responds(stream, 200, "", b"x");
    assert!(!server.connection.is_open(stream));
    assert!(server.take_output()[2].is_empty());
}

/// Both ends use a table; the second request and response refer to what the first ones inserted.
#[test]
fn repeated_messages_become_references_that_are_acknowledged() {
    let (mut client, mut server) = pair_with(4096);
    let head = request_head(
        &Method::GET,
        "/",
        "host: a.example\nx-request: a value that repeats\nauthorization: secret",
    );
    let fields = || headers("x-response: another value that repeats\nset-cookie: a=b");
    let mut lengths = Vec::new();
    for id in [0, 4, 8] {
        let mut out = Vec::new();
        client
            .connection
            .send_request(id, OutgoingRequest::of(&head, "https"), true, &mut out)
            .unwrap();
        client.deliver(&mut server, 2);
        let events = server.receive(id, &out, true).unwrap();
        let [H3Event::Request(request)] = &events[..] else {
            panic!("{events:?}");
        };
        let found = &request.head.headers;
        assert_eq!(found.get_str("x-request"), Some("a value that repeats"));
        assert_eq!(found.get_str("authorization"), Some("secret"));
        let mut answer = Vec::new();
        let fields = fields();
        let response = head_of(StatusCode::OK, &fields, Some(0));
        server
            .connection
            .send_head(request.stream, response, &mut answer);
        server.deliver(&mut client, 3);
        let events = client.receive(id, &answer, true).unwrap();
        assert!(matches!(&events[..], [H3Event::Response { headers, .. }]
                if headers.get_str("x-response") == Some("another value that repeats")
                    && headers.get_str("set-cookie") == Some("a=b")));
        client.deliver(&mut server, 2);
        server.deliver(&mut client, 3);
        lengths.push((out.len(), answer.len()));
    }
    assert!(lengths[1].0 < lengths[0].0 - 15, "{lengths:?}");
    assert!(lengths[1].1 < lengths[0].1 - 15, "{lengths:?}");
    assert_eq!(lengths[1], lengths[2]);
}

/// Lines that are sent again, such as the fields of a file, are not looked up in the table of each connection.
#[test]
fn lines_that_are_encoded_once_have_no_references() {
    let (mut client, mut server) = pair_with(4096);
    let fields = headers("x-response: a value that repeats");
    let mut responses = Vec::new();
    for id in [0, 4, 8, 12] {
        let mut out = Vec::new();
        let head = request_head(&Method::GET, "/", "host: a.example");
        client
            .connection
            .send_request(id, OutgoingRequest::of(&head, "https"), true, &mut out)
            .unwrap();
        client.deliver(&mut server, 2);
        let events = server.receive(id, &out, true).unwrap();
        let [H3Event::Request(request)] = &events[..] else {
            panic!("{events:?}");
        };
        let mut response = Vec::new();
        let head = head_of(StatusCode::OK, &fields, Some(0));
        server
            .connection
            .send_head(request.stream, head, &mut response);
        server.deliver(&mut client, 3);
        let events = client.receive(id, &response, true).unwrap();
        assert!(matches!(&events[..], [H3Event::Response { headers, .. }]
                if headers.get_str("x-response") == Some("a value that repeats")));
        client.deliver(&mut server, 2);
        server.deliver(&mut client, 3);
        responses.push(response);
    }
    // The prefix of a section without references, behind the type and the length of the frame.
    assert_eq!(responses[2][3..5], [0, 0]);
    assert_eq!(responses[2], responses[3]);
}
