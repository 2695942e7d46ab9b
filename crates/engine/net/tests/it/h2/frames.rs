//! Frames that break the protocol or only seem to (RFC 9113 sections 4 to 6): the error code for the client,
//! whether its connection or one stream ends, and that no other client is affected.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use apus_http::{ResponseFuture, ServiceFactory};
use apus_net::Limits;
use apus_testkit::h2::{
    FRAME, PREFACE, block, code, data, flag, frame, get, head, kind, literal, ping, priority,
    priority_update, request, reset, setting, settings, settings_ack, window_update,
};
use apus_testkit::{collect, eventually};

use super::client::{Peer, is_end};
use super::{open, open_tls, with_tls};
use crate::harness::{Server, connect, ok, service, text};
use crate::tls::client_of;

/// The scope of an error.
#[derive(Debug, PartialEq)]
enum ErrorScope {
    Stream(u32),
    Connection(u32),
}

use ErrorScope::{Connection, Stream};

impl ErrorScope {
    fn code(&self) -> u32 {
        match self {
            Stream(code) | Connection(code) => *code,
        }
    }
}

fn reported_error(peer: &mut Peer<TcpStream>, stream: u32, what: &str) -> ErrorScope {
    loop {
        if let Some(code) = peer.received(stream).reset {
            return Stream(code);
        }
        if let Some((_, code)) = peer.goaways.last() {
            let code = *code;
            // The connection ends.
            assert_eq!(peer.goaway(), code, "{what}");
            return Connection(code);
        }
        if let Err(error) = peer.read() {
            panic!("{error} and no error code: {what}");
        }
    }
}

/// `/wait` gets no response, `/read` one when the whole body has arrived, and other paths get one at once.
fn waiting() -> Arc<dyn ServiceFactory> {
    service(|mut request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        "/read" => ResponseFuture::later(async move {
            match collect(request.body_mut()).await {
                Ok(body) => ok(body),
                Err(_) => std::future::pending().await,
            }
        }),
        path => ok(path.to_owned()).into(),
    })
}

/// On each connection, stream 1 is open for a body (`/read`), 3 has its response, 5 waits with a complete
/// body; 7 and later were not used.
fn prepared(server: &Server) -> Peer<TcpStream> {
    let mut peer = open(server);
    peer.send(head(1, &block(&request("POST", "/read")), false));
    peer.send(get(3, "/answered"));
    peer.send(head(5, &block(&request("POST", "/wait")), true));
    assert_eq!(peer.response(3).text(), "/answered");
    peer
}

fn assert_connection_errors(cases: &[(&str, u32, Vec<u8>)]) {
    let server = Server::start(waiting());
    let mut bystander = open(&server);
    for (what, code, bytes) in cases {
        let mut peer = prepared(&server);
        peer.send(bytes);
        assert_eq!(
            reported_error(&mut peer, 7, what),
            Connection(*code),
            "{what}"
        );
        assert_eq!(bystander.fetch("/well").text(), "/well");
    }
    let count = cases.len() as u64;
    server.wait_for("the count", |totals| totals.bad_requests >= count);
    assert_eq!(server.totals().bad_requests, count);
}

#[test]
fn frames_of_a_wrong_size_end_the_connection_rfc_9113_section_4_2() {
    let request = block(&request("GET", "/"));
    assert_connection_errors(&[
        (
            "HEADERS past SETTINGS_MAX_FRAME_SIZE",
            code::FRAME_SIZE_ERROR,
            // A length alone is enough.
            frame(kind::HEADERS, flag::END_HEADERS, 7, vec![0; (1 << 20) + 1])[..9].to_vec(),
        ),
        (
            "SETTINGS past SETTINGS_MAX_FRAME_SIZE",
            code::FRAME_SIZE_ERROR,
            frame(kind::SETTINGS, 0, 0, vec![0; 6 << 20])[..9].to_vec(),
        ),
        (
            "an unknown type past SETTINGS_MAX_FRAME_SIZE",
            code::FRAME_SIZE_ERROR,
            frame(0xbe, 0, 0, vec![0; 6 << 20])[..9].to_vec(),
        ),
        (
            "HEADERS too short for its priority",
            code::FRAME_SIZE_ERROR,
            frame(kind::HEADERS, flag::END_HEADERS | flag::PRIORITY, 7, [0; 4]),
        ),
        (
            "RST_STREAM of 3",
            code::FRAME_SIZE_ERROR,
            frame(kind::RST_STREAM, 0, 1, [0; 3]),
        ),
        (
            "RST_STREAM of 5",
            code::FRAME_SIZE_ERROR,
            frame(kind::RST_STREAM, 0, 1, [0; 5]),
        ),
        (
            "SETTINGS of 5",
            code::FRAME_SIZE_ERROR,
            frame(kind::SETTINGS, 0, 0, [0; 5]),
        ),
        (
            "an acknowledgement with settings",
            code::FRAME_SIZE_ERROR,
            frame(kind::SETTINGS, flag::ACK, 0, [0; 6]),
        ),
        (
            "PING of 7",
            code::FRAME_SIZE_ERROR,
            frame(kind::PING, 0, 0, [0; 7]),
        ),
        (
            "PING of 9",
            code::FRAME_SIZE_ERROR,
            frame(kind::PING, 0, 0, [0; 9]),
        ),
        (
            "GOAWAY of 7",
            code::FRAME_SIZE_ERROR,
            frame(kind::GOAWAY, 0, 0, [0; 7]),
        ),
        (
            "WINDOW_UPDATE of 3",
            code::FRAME_SIZE_ERROR,
            frame(kind::WINDOW_UPDATE, 0, 0, [0; 3]),
        ),
        (
            "WINDOW_UPDATE of 5",
            code::FRAME_SIZE_ERROR,
            frame(kind::WINDOW_UPDATE, 0, 1, [0; 5]),
        ),
        (
            "PRIORITY_UPDATE of 3",
            code::FRAME_SIZE_ERROR,
            frame(kind::PRIORITY_UPDATE, 0, 0, [0; 3]),
        ),
        (
            "padding longer than DATA",
            code::PROTOCOL_ERROR,
            frame(kind::DATA, flag::PADDED, 1, [5, b'x', b'x', b'x', b'x']),
        ),
        (
            "padding longer than HEADERS",
            code::PROTOCOL_ERROR,
            frame(
                kind::HEADERS,
                flag::PADDED | flag::END_HEADERS,
                7,
                [&[200][..], &request[..10]].concat(),
            ),
        ),
    ]);
}

#[test]
fn frames_on_streams_that_do_not_allow_them_end_the_connection_rfc_9113_sections_5_1_and_6() {
    let request = block(&request("GET", "/"));
    assert_connection_errors(&[
        ("DATA on 0", code::PROTOCOL_ERROR, data(0, "x", true)),
        (
            "HEADERS on 0",
            code::PROTOCOL_ERROR,
            head(0, &request, true),
        ),
        ("PRIORITY on 0", code::PROTOCOL_ERROR, priority(0, 1, 5)),
        (
            "RST_STREAM on 0",
            code::PROTOCOL_ERROR,
            reset(0, code::CANCEL),
        ),
        (
            "SETTINGS on 1",
            code::PROTOCOL_ERROR,
            frame(kind::SETTINGS, 0, 1, []),
        ),
        (
            "PING on 1",
            code::PROTOCOL_ERROR,
            frame(kind::PING, 0, 1, [0; 8]),
        ),
        (
            "GOAWAY on 1",
            code::PROTOCOL_ERROR,
            frame(kind::GOAWAY, 0, 1, [0; 8]),
        ),
        (
            "PRIORITY_UPDATE on 1",
            code::PROTOCOL_ERROR,
            frame(kind::PRIORITY_UPDATE, 0, 1, [0, 0, 0, 1]),
        ),
        (
            "PRIORITY_UPDATE of 0",
            code::PROTOCOL_ERROR,
            priority_update(0, "u=1"),
        ),
        (
            "DATA on an idle stream",
            code::PROTOCOL_ERROR,
            data(7, "x", true),
        ),
        (
            "RST_STREAM on an idle stream",
            code::PROTOCOL_ERROR,
            reset(7, code::CANCEL),
        ),
        (
            "WINDOW_UPDATE on an idle stream",
            code::PROTOCOL_ERROR,
            window_update(7, 1),
        ),
        (
            "HEADERS with an even identifier",
            code::PROTOCOL_ERROR,
            head(8, &request, true),
        ),
        (
            "PUSH_PROMISE",
            code::PROTOCOL_ERROR,
            frame(
                kind::PUSH_PROMISE,
                flag::END_HEADERS,
                1,
                [&[0, 0, 0, 2], &request[..]].concat(),
            ),
        ),
        (
            "CONTINUATION without a field block",
            code::PROTOCOL_ERROR,
            frame(kind::CONTINUATION, flag::END_HEADERS, 1, &request),
        ),
        (
            "CONTINUATION on 0",
            code::PROTOCOL_ERROR,
            [
                frame(kind::HEADERS, 0, 7, &request),
                frame(kind::CONTINUATION, flag::END_HEADERS, 0, []),
            ]
            .concat(),
        ),
    ]);
}

#[test]
fn field_blocks_are_not_interrupted_rfc_9113_section_4_3() {
    let half = frame(
        kind::HEADERS,
        flag::END_STREAM,
        7,
        block(&request("GET", "/")),
    );
    let interruptions = [
        ("DATA", data(1, "x", false)),
        ("HEADERS", get(9, "/")),
        ("PRIORITY", priority(1, 0, 5)),
        ("RST_STREAM of the same stream", reset(7, code::CANCEL)),
        ("SETTINGS", settings(&[])),
        ("PING", ping(1)),
        ("GOAWAY", frame(kind::GOAWAY, 0, 0, [0; 8])),
        ("WINDOW_UPDATE", window_update(0, 1)),
        ("an unknown type", frame(0xbe, 0, 7, [])),
        (
            "CONTINUATION of another stream",
            frame(kind::CONTINUATION, flag::END_HEADERS, 9, []),
        ),
    ];
    let cases = interruptions
        .map(|(what, bytes)| (what, code::PROTOCOL_ERROR, [half.clone(), bytes].concat()));
    assert_connection_errors(&cases);
}

#[test]
fn field_blocks_that_cannot_be_read_end_the_connection_rfc_7541() {
    let good = block(&request("GET", "/"));
    let bad = |what: &'static str, bytes: &[u8]| {
        let block = [&good, bytes].concat();
        (what, code::COMPRESSION_ERROR, head(7, &block, true))
    };
    assert_connection_errors(&[
        bad("index 0", &[0x80]),
        bad("an index past the table", &[0xff, 0x00]),
        bad("a name from past the table", &[0x7f, 0x30, 0x01, b'x']),
        bad(
            "an integer without end",
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        ),
        bad("a name that ends too early", &[0x00, 0x05, b'x']),
        bad(
            "a value that ends too early",
            &[0x00, 0x01, b'x', 0x7f, 0x10],
        ),
        // RFC 7541 section 5.2: padding of more than seven bits, or of zeros, and EOS.
        bad(
            "padding of eight bits",
            &[0x00, 0x01, b'x', 0x82, 0xf8, 0xff],
        ),
        bad("padding of zeros", &[0x00, 0x01, b'x', 0x81, 0x00]),
        bad("EOS", &[0x00, 0x01, b'x', 0x84, 0xff, 0xff, 0xff, 0xff]),
        // RFC 7541 section 4.2.
        bad("a new table size behind a field", &[0x3f, 0x01]),
        (
            "a table size above the setting",
            code::COMPRESSION_ERROR,
            head(
                7,
                &[&[0x3f, 0xff, 0xff, 0xff, 0x01], &good[..]].concat(),
                true,
            ),
        ),
    ]);
}

#[test]
fn impossible_settings_end_the_connection_rfc_9113_section_6_5_2() {
    assert_connection_errors(&[
        (
            "SETTINGS_ENABLE_PUSH of 2",
            code::PROTOCOL_ERROR,
            settings(&[(setting::ENABLE_PUSH, 2)]),
        ),
        (
            "SETTINGS_INITIAL_WINDOW_SIZE of 2^31",
            code::FLOW_CONTROL_ERROR,
            settings(&[(setting::INITIAL_WINDOW_SIZE, 1 << 31)]),
        ),
        (
            "SETTINGS_MAX_FRAME_SIZE of 16,383",
            code::PROTOCOL_ERROR,
            settings(&[(setting::MAX_FRAME_SIZE, 16_383)]),
        ),
        (
            "SETTINGS_MAX_FRAME_SIZE of 2^24",
            code::PROTOCOL_ERROR,
            settings(&[(setting::MAX_FRAME_SIZE, 1 << 24)]),
        ),
        (
            "SETTINGS_NO_RFC7540_PRIORITIES of 2",
            code::PROTOCOL_ERROR,
            settings(&[(setting::NO_RFC7540_PRIORITIES, 2)]),
        ),
    ]);
}

#[test]
fn windows_have_a_maximum_rfc_9113_section_6_9_1() {
    assert_connection_errors(&[
        (
            "an increment of 0",
            code::PROTOCOL_ERROR,
            window_update(0, 0),
        ),
        (
            "the connection's window past 2^31-1",
            code::FLOW_CONTROL_ERROR,
            window_update(0, 0x7fff_ffff),
        ),
        (
            "a stream's window past 2^31-1 by a setting",
            code::FLOW_CONTROL_ERROR,
            [
                window_update(1, 0x7fff_0000),
                settings(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]),
            ]
            .concat(),
        ),
    ]);
}

#[test]
fn a_stream_closes_alone_where_the_fault_is_its_own_rfc_9113_section_5_4_2() {
    let server = Server::start(waiting());
    for (what, stream, code, bytes) in [
        (
            "a window past 2^31-1",
            1,
            code::FLOW_CONTROL_ERROR,
            window_update(1, 0x7fff_ffff),
        ),
        (
            "an increment of 0",
            1,
            code::PROTOCOL_ERROR,
            window_update(1, 0),
        ),
        (
            "DATA behind the end",
            5,
            code::STREAM_CLOSED,
            data(5, "x", true),
        ),
        (
            "HEADERS behind the end",
            5,
            code::STREAM_CLOSED,
            head(5, &block(&[("x", "y")]), true),
        ),
        (
            "a second head that does not end the stream",
            1,
            code::PROTOCOL_ERROR,
            head(1, &block(&[("x", "y")]), false),
        ),
        (
            "pseudo-header fields in a trailer section",
            1,
            code::PROTOCOL_ERROR,
            head(1, &block(&request("GET", "/")), true),
        ),
    ] {
        let mut peer = prepared(&server);
        peer.send(&bytes);
        assert_eq!(
            reported_error(&mut peer, stream, what),
            Stream(code),
            "{what}"
        );
        peer.send(get(7, "/next"));
        assert_eq!(peer.response(7).text(), "/next", "{what}");
    }
}

#[test]
fn a_closed_stream_accepts_nothing_rfc_9113_section_5_1() {
    let server = Server::start(waiting());
    for (what, stream, bytes) in [
        ("DATA on a stream with a response", 3, data(3, "x", true)),
        ("HEADERS on a stream with a response", 3, get(3, "/again")),
        (
            "HEADERS on a stream that was passed over",
            3,
            [get(9, "/"), get(7, "/")].concat(),
        ),
        (
            "DATA on a reset stream",
            1,
            [reset(1, code::CANCEL), data(1, "x", false)].concat(),
        ),
    ] {
        let mut peer = prepared(&server);
        peer.send(&bytes);
        let reported_error = reported_error(&mut peer, stream, what);
        let code = reported_error.code();
        assert!(
            code == code::STREAM_CLOSED || code == code::PROTOCOL_ERROR,
            "{what}: {reported_error:?}"
        );
        assert_eq!(peer.received(3).status, 0, "{what} got a response");
    }
    server.assert_serves();
}

#[test]
fn frames_in_flight_to_a_closed_stream_are_ignored_rfc_9113_section_5_1() {
    let server = Server::start(waiting());
    let mut peer = prepared(&server);
    for bytes in [
        window_update(3, 100),
        reset(3, code::CANCEL),
        priority(3, 0, 1),
    ] {
        peer.send(bytes);
    }
    peer.send(reset(1, code::CANCEL));
    for bytes in [
        window_update(1, 100),
        reset(1, code::CANCEL),
        priority(1, 3, 1),
    ] {
        peer.send(bytes);
    }
    peer.send(get(7, "/next"));
    assert_eq!(peer.response(7).text(), "/next");
    assert_eq!(peer.goaways, []);
    assert_eq!(server.totals().bad_requests, 0);
}

#[test]
fn unknown_frames_settings_and_flags_are_ignored() {
    let server = Server::start(waiting());
    for (what, bytes) in [
        ("an unknown frame", frame(0xbe, 0xff, 0, "what is this")),
        ("an unknown frame on an idle stream", frame(0xbe, 0, 99, [])),
        ("an empty unknown frame on a stream", frame(0xbe, 0, 1, [])),
        (
            "an unknown setting",
            settings(&[(0xbeef, 7), (0, 0), (0xffff, u32::MAX)]),
        ),
        ("unknown flags of PING", frame(kind::PING, 0xfe, 0, [0; 8])),
        ("unknown flags of DATA", frame(kind::DATA, 0xf6, 1, "x")),
        (
            "the reserved bit of a stream",
            frame(kind::WINDOW_UPDATE, 0, 0x8000_0001, [0, 0, 0, 9]),
        ),
        (
            "the reserved bit of an increment",
            frame(kind::WINDOW_UPDATE, 0, 1, [0x80, 0, 0, 9]),
        ),
        ("PRIORITY of an idle stream", priority(99, 1, 255)),
        (
            "PRIORITY with an exclusive dependency",
            priority(1, 0x8000_0003, 0),
        ),
        (
            "PRIORITY_UPDATE of an idle stream",
            priority_update(99, "u=0, i"),
        ),
        (
            "PRIORITY_UPDATE of a stream that is gone",
            priority_update(3, "u=0"),
        ),
        (
            "PRIORITY_UPDATE that is not one",
            priority_update(1, "u=\"high\", (("),
        ),
        ("an unknown code of RST_STREAM", reset(5, 0xdead_beef)),
        ("settings once more", settings(&[(setting::ENABLE_PUSH, 0)])),
        (
            "a push that is allowed",
            settings(&[(setting::ENABLE_PUSH, 1)]),
        ),
    ] {
        let mut peer = prepared(&server);
        peer.send(bytes);
        peer.send(get(7, "/next"));
        assert_eq!(peer.response(7).text(), "/next", "{what}");
        peer.send(data(1, "", true));
        assert_eq!(peer.response(1).status, 200, "{what}");
        assert_eq!(peer.goaways, [], "{what}");
    }
    assert_eq!(server.totals().bad_requests, 0);
}

#[test]
fn settings_and_pings_are_acknowledged_in_order_rfc_9113_sections_6_5_3_and_6_7() {
    let server = Server::start(waiting());
    let mut peer = open(&server);
    for round in 1..=5 {
        peer.send([settings(&[(setting::MAX_FRAME_SIZE, 20_000)]), ping(round)].concat());
    }
    let mut seen = Vec::new();
    while seen.len() < 11 {
        let frame = peer.read().unwrap();
        match frame.kind {
            kind::SETTINGS if frame.has(flag::ACK) => seen.push(0),
            kind::PING if frame.has(flag::ACK) => {
                seen.push(u64::from_be_bytes(frame.payload.try_into().unwrap()));
            }
            _ => {}
        }
    }
    assert_eq!(seen, [0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5]);
}

#[test]
fn a_client_that_sends_goaway_still_gets_its_responses_rfc_9113_section_6_8() {
    let go = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&go);
    let server = Server::start(service(move |_| {
        let go = Arc::clone(&waits);
        ResponseFuture::later(async move {
            eventually("the test goes on", || go.load(Ordering::Relaxed)).await;
            ok("answered")
        })
    }));
    let mut peer = open(&server);
    let stream = peer.get("/");
    peer.send(frame(kind::GOAWAY, 0, 0, [0; 8]));
    peer.fence();
    go.store(true, Ordering::Relaxed);
    assert_eq!(peer.response(stream).text(), "answered");
    // Then there is nothing more to do.
    let end = loop {
        if let Err(error) = peer.read() {
            break error;
        }
    };
    assert!(is_end(&end), "{end}");
}

#[test]
fn a_connection_without_the_preface_is_refused_rfc_9113_section_3_4() {
    let (authority, server) = with_tls(Limits::default(), waiting());
    for (what, bytes) in [
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_vec()),
        (
            "a preface with a fault",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r".to_vec(),
        ),
        ("nonsense", vec![0; 100]),
        ("PING first", [PREFACE, &ping(1)].concat()),
        ("HEADERS first", [PREFACE, &get(1, "/")].concat()),
        (
            "an acknowledgement first",
            [PREFACE, &settings_ack()].concat(),
        ),
        (
            "an unknown frame first",
            [PREFACE, &frame(0xbe, 0, 0, [])].concat(),
        ),
    ] {
        let mut config = client_of(&authority);
        config.alpn_protocols = vec![b"h2".to_vec()];
        let client = crate::tls::connect_tls(server.address(), &config, "example.com").unwrap();
        let mut peer = Peer::new(client.stream);
        peer.send(bytes);
        assert_eq!(peer.goaway(), code::PROTOCOL_ERROR, "{what}");
        assert!(peer.responses.is_empty(), "{what}");
    }
    assert_eq!(open_tls(&authority, &server).fetch("/well").text(), "/well");
    let totals = server.totals();
    assert_eq!((totals.bad_requests, totals.requests), (7, 1));
}

#[test]
fn in_clear_a_broken_preface_is_no_request_rfc_9113_section_3_4() {
    let server = Server::start(waiting());
    for bytes in [
        &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\r"[..],
        b"PRI * HTTP/2.0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\nHost: a\r\n\r\nSM\r\n\r\n",
    ] {
        use std::io::{Read, Write};
        let mut stream = connect(server.address()).unwrap();
        stream.write_all(bytes).unwrap();
        let mut received = Vec::new();
        if let Err(error) = stream.read_to_end(&mut received) {
            assert!(is_end(&error), "{}: {error}", text(bytes));
        }
        assert!(!text(&received).contains("200"), "{}", text(&received));
    }
    assert_eq!(server.totals().requests, 0);
    server.assert_serves();
}

#[test]
fn data_beyond_the_windows_is_an_error_rfc_9113_section_6_9_1() {
    // Unread data stays within the initial windows.
    let server = Server::start(service(|request| {
        ResponseFuture::later(async move {
            let _unread = request;
            std::future::pending().await
        })
    }));
    let mut peer = open(&server);
    peer.fence();
    let stream = peer.request(&request("POST", "/"), false);
    let window = usize::try_from(peer.window_of(stream)).unwrap();
    assert!(window >= FRAME, "{window}");
    peer.upload(stream, &vec![b'x'; window], false);
    peer.fence();
    assert_eq!((peer.window_of(stream), &peer.goaways[..]), (0, &[][..]));
    peer.send(data(stream, "x", false));
    let reported_error = reported_error(&mut peer, stream, "one byte past the window");
    assert_eq!(reported_error.code(), code::FLOW_CONTROL_ERROR);
    assert_eq!(server.totals().bad_requests, 1);
}

#[test]
fn streams_past_the_limit_are_refused_and_may_be_tried_again_rfc_9113_section_5_1_2() {
    let server = Server::start(waiting());
    let mut peer = open(&server);
    peer.fence();
    let most = peer.settings[&setting::MAX_CONCURRENT_STREAMS];
    assert!((100..=1000).contains(&most), "{most}");
    let waiting: Vec<u32> = (0..most).map(|_| peer.get("/wait")).collect();
    let refused = peer.get("/more");
    assert_eq!(peer.reset_of(refused), code::REFUSED_STREAM);
    peer.send(reset(waiting[0], code::CANCEL));
    assert_eq!(peer.fetch("/again").text(), "/again");
    assert_eq!(server.totals().requests, u64::from(most) + 1);
    assert!(peer.goaways.is_empty());
}

#[test]
fn a_refused_head_still_counts_for_the_compression_rfc_9113_section_4_3() {
    use apus_testkit::h2::indexed_literal;
    let server = Server::start(super::described());
    let mut peer = open(&server);
    // A head that breaks the rules but can be read enters its fields in the table.
    let bad = [
        block(&request("GET", "/")),
        indexed_literal("x-table", "kept"),
        literal("X", "y"),
    ];
    let stream = peer.next_stream();
    peer.send(head(stream, &bad.concat(), true));
    assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    let good = [block(&request("GET", "/")), vec![0x80 | 62]].concat();
    let stream = peer.next_stream();
    peer.send(head(stream, &good, true));
    assert!(peer.response(stream).text().contains("x-table: kept\n"));
}
