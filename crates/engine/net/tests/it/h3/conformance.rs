//! Every error of RFC 9114, RFC 9204, RFC 9218 and RFC 9220 that a client can provoke, with its code.

use apus_h3::H3ErrorCode;
use apus_testkit::block_on;
use apus_testkit::quic::frame::{ServerFrame, integers, kind, stream};

use super::H3Server;
use super::raw::*;
use crate::harness::collector;

/// The control and QPACK streams of a server.
const SERVER_STREAMS: [u64; 3] = [3, 7, 11];

/// What a client sends, and how the server closes the connection.
struct Case {
    section: &'static str,
    /// Frames of QUIC.
    sent: Vec<u8>,
    code: H3ErrorCode,
}

fn case(section: &'static str, sent: Vec<u8>, code: H3ErrorCode) -> Case {
    Case {
        section,
        sent,
        code,
    }
}

/// The first request stream with these bytes.
fn request(bytes: &[u8]) -> Vec<u8> {
    stream(0, 0, bytes, false)
}

/// The first request stream with these bytes, and its end.
fn ended(bytes: &[u8]) -> Vec<u8> {
    stream(0, 0, bytes, true)
}

/// Bytes on the control stream, after SETTINGS.
fn control(bytes: &[u8]) -> Vec<u8> {
    on(CONTROL, bytes)
}

/// A request stream that has only a field section.
fn head(section: &[u8]) -> Vec<u8> {
    ended(&frame(HEADERS, section))
}

/// Checks that the server closes the connection after each case.
fn assert_closed_after(cases: Vec<Case>, opens_streams: bool) {
    let server = H3Server::start(collector());
    block_on(async {
        for Case {
            section,
            sent,
            code,
        } in cases
        {
            let mut client = if opens_streams {
                server.connect_raw_h3().await
            } else {
                server.connect_raw().await
            };
            client.send_frames(&sent).await;
            let (found, by_application) = client.closed().await;
            let found = H3ErrorCode(found);
            assert!(
                found == code && by_application,
                "{section}: {found:?} instead of {code:?} after {sent:x?}"
            );
        }
    });
}

#[test]
fn violations_of_rfc_9114_close_the_connection() {
    use H3ErrorCode as Code;
    let trailers = frame(HEADERS, &section(&[("a", "b")]));
    let connect = section(&[(":method", "CONNECT"), (":authority", "a.example:443")]);
    let data = frame(DATA, b"x");
    let unexpected = Code::FRAME_UNEXPECTED;
    let mut cases = vec![
        case("4.1 DATA first", request(&data), unexpected),
        case(
            "4.1 DATA behind trailers",
            request(&[get(), trailers.clone(), data.clone()].concat()),
            unexpected,
        ),
        case(
            "4.1 trailers twice",
            request(&[get(), trailers.clone(), trailers.clone()].concat()),
            unexpected,
        ),
        case(
            "4.4 HEADERS in a tunnel",
            request(&[frame(HEADERS, &connect), trailers].concat()),
            unexpected,
        ),
        case(
            "5.2 a GOAWAY that increases",
            control(&[frame_of(GOAWAY, &[1]), frame_of(GOAWAY, &[2])].concat()),
            Code::ID_ERROR,
        ),
        case(
            "6.2 a push stream",
            stream(OTHER, 0, &[0x1, 0x0], false),
            Code::STREAM_CREATION_ERROR,
        ),
        case(
            "7.1 a field of a frame is cut off",
            control(&frame(GOAWAY, &[0x40])),
            Code::FRAME_ERROR,
        ),
        case(
            "7.1 a frame has more than its fields",
            control(&frame(GOAWAY, &[0; 9])),
            Code::FRAME_ERROR,
        ),
        case(
            "7.2.3 CANCEL_PUSH without a push",
            control(&frame_of(CANCEL_PUSH, &[0])),
            Code::ID_ERROR,
        ),
        case(
            "7.2.3 CANCEL_PUSH with two identifiers",
            control(&frame_of(CANCEL_PUSH, &[0, 0])),
            Code::FRAME_ERROR,
        ),
        case(
            "7.2.7 MAX_PUSH_ID that decreases",
            control(&[frame_of(MAX_PUSH_ID, &[2]), frame_of(MAX_PUSH_ID, &[1])].concat()),
            Code::ID_ERROR,
        ),
        case(
            "7.2.7 MAX_PUSH_ID without a number",
            control(&frame(MAX_PUSH_ID, &[])),
            Code::FRAME_ERROR,
        ),
    ];
    // Section 7.1: a stream ends within a frame.
    for bytes in [
        vec![0x1],
        vec![0x1, 0x5, 0, 0],
        [get(), vec![0x0, 0x5, 1]].concat(),
        [get(), vec![0x0, 0x5]].concat(),
        vec![0x21, 0x5, 1],
    ] {
        cases.push(case("7.1", ended(&bytes), Code::FRAME_ERROR));
    }
    // Sections 6.2.1 of RFC 9114 and 4.2 of RFC 9204.
    for kind in [0x0, 0x2, 0x3] {
        let second = stream(OTHER, 0, &[kind], false);
        cases.push(case("6.2.1", second, Code::STREAM_CREATION_ERROR));
    }
    for (id, length) in [(CONTROL, 3), (ENCODER, 1), (DECODER, 1)] {
        let end = stream(id, length, &[], true);
        cases.push(case("6.2.1", end, Code::CLOSED_CRITICAL_STREAM));
        let reset = integers(&[kind::RESET_STREAM, id, 0, length]);
        cases.push(case("6.2.1", reset, Code::CLOSED_CRITICAL_STREAM));
    }
    // Sections 7.2.1 to 7.2.5.
    for kind in [DATA, HEADERS, SETTINGS, PUSH_PROMISE] {
        cases.push(case("7.2", control(&frame(kind, &[])), unexpected));
    }
    // Sections 7.2.3 to 7.2.7, and RFC 9218 section 7.2.
    for kind in [
        CANCEL_PUSH,
        SETTINGS,
        PUSH_PROMISE,
        GOAWAY,
        MAX_PUSH_ID,
        PRIORITY_UPDATE,
        PRIORITY_UPDATE_OF_PUSH,
    ] {
        cases.push(case("7.2", request(&frame_of(kind, &[0])), unexpected));
        let behind = [get(), frame_of(kind, &[0])].concat();
        cases.push(case("7.2", request(&behind), unexpected));
    }
    // Section 7.2.8: types of HTTP/2.
    for kind in [0x2, 0x6, 0x8, 0x9] {
        cases.push(case("7.2.8", control(&frame(kind, &[])), unexpected));
        cases.push(case("7.2.8", request(&frame(kind, &[])), unexpected));
    }
    assert_closed_after(cases, true);
}

#[test]
fn invalid_settings_close_the_connection() {
    let begin = |bytes: Vec<u8>| stream(CONTROL, 0, &[vec![0x0], bytes].concat(), false);
    let settings = |fields: &[u64]| begin(frame_of(SETTINGS, fields));
    let mut cases = vec![
        case(
            "7.2.4.1 cut off",
            begin(frame(SETTINGS, &[0x1])),
            H3ErrorCode::FRAME_ERROR,
        ),
        case(
            "7.2.4 a setting twice",
            settings(&[RESERVED, 0, RESERVED, 0]),
            H3ErrorCode::SETTINGS_ERROR,
        ),
        case(
            "RFC 9220 3",
            settings(&[0x8, 2]),
            H3ErrorCode::SETTINGS_ERROR,
        ),
    ];
    for id in [0x0, 0x2, 0x3, 0x4, 0x5] {
        let sent = settings(&[id, 0]);
        cases.push(case("7.2.4.1", sent, H3ErrorCode::SETTINGS_ERROR));
    }
    for kind in [DATA, HEADERS, CANCEL_PUSH, GOAWAY, MAX_PUSH_ID, RESERVED] {
        let sent = begin(frame_of(kind, &[0]));
        cases.push(case("6.2.1", sent, H3ErrorCode::MISSING_SETTINGS));
    }
    assert_closed_after(cases, false);
}

#[test]
fn violations_of_rfc_9204_close_the_connection() {
    /// The capacity of 4096 bytes.
    const CAPACITY: [u8; 3] = [0x3f, 0xe1, 0x1f];
    let mut cases = Vec::new();
    // Sections 2.2 and 4.5: field sections.
    for (section, bytes) in [
        ("4.5.1 nothing", vec![]),
        ("4.5.1 no base", vec![0]),
        ("4.5.1.1 beyond twice the entries", vec![0xff, 2, 0, 0x80]),
        ("4.5.1.2 a negative base", vec![0, 0x80]),
        ("3.1 beyond the static table", vec![0, 0, 0xff, 36]),
        ("3.1 a name beyond it", vec![0, 0, 0x5f, 84, 0]),
        ("2.2.3 an entry that is not counted", vec![0, 0, 0x80]),
        ("2.2.3 behind the base", vec![0, 0, 0x10]),
        ("2.2.3 a name", vec![0, 0, 0x40, 0]),
        ("2.2.3 a name behind the base", vec![0, 0, 0, 0]),
        ("4.1.2 beyond the section", vec![0, 0, 0x51, 5, b'/']),
        ("4.1.2 Huffman", vec![0, 0, 0x51, 0x84, 255, 255, 255, 255]),
    ] {
        let code = H3ErrorCode::QPACK_DECOMPRESSION_FAILED;
        cases.push(case(section, head(&bytes), code));
    }
    // One stream more than SETTINGS allow waits for the first insert.
    let blocked = |count: u64| -> Vec<u8> {
        (0..count)
            .flat_map(|index| stream(4 * index, 0, &frame(HEADERS, &[2, 0, 0x80]), true))
            .collect()
    };
    let code = H3ErrorCode::QPACK_DECOMPRESSION_FAILED;
    cases.push(case("2.1.2", blocked(17), code));
    for (section, bytes) in [
        ("4.3.1 beyond the capacity", &[0x3f, 0xe2, 0x1f][..]),
        ("4.3.2 before the capacity", &[0xc0, 1, b'a']),
        ("4.3.2 an unknown name", &[0xff, 36, 0]),
        ("4.3.2 a name of no entry", &[0x80, 0]),
        ("4.3.4 a duplicate of no entry", &[0x00]),
        ("4.1.1 too large", &[0x3f, 255, 255, 255, 255, 255, 0x7f]),
    ] {
        let bytes = match section {
            "4.3.1 beyond the capacity" | "4.3.2 before the capacity" => bytes.to_vec(),
            _ => [&CAPACITY, bytes].concat(),
        };
        let code = H3ErrorCode::QPACK_ENCODER_STREAM_ERROR;
        cases.push(case(section, on(ENCODER, &bytes), code));
    }
    // The server inserts nothing, so that there is nothing to acknowledge.
    for (section, byte) in [
        ("4.4.1", 0x80),
        ("4.4.3 an increment of zero", 0x00),
        ("4.4.3", 0x01),
    ] {
        let code = H3ErrorCode::QPACK_DECODER_STREAM_ERROR;
        cases.push(case(section, on(DECODER, &[byte]), code));
    }
    assert_closed_after(cases, true);
    let server = H3Server::start(collector());
    block_on(async {
        let mut client = server.connect_raw_h3().await;
        // As many as allowed may wait. The insert of `:path: /` as the first entry makes them malformed requests.
        client.send_frames(&blocked(16)).await;
        let insert = [&CAPACITY[..], &[0xc1, 1, b'/']].concat();
        client.send_frames(&on(ENCODER, &insert)).await;
        let malformed = ServerFrame::Reset {
            stream: 4 * 15,
            code: H3ErrorCode::MESSAGE_ERROR.0,
        };
        client
            .wait_for("a reset", |frame| *frame == malformed)
            .await;
    });
}

/// RFC 9218 section 7.2.
#[test]
fn invalid_priority_updates_close_the_connection() {
    let cases = vec![
        case(
            "without a stream",
            control(&frame(PRIORITY_UPDATE, &[])),
            H3ErrorCode::FRAME_ERROR,
        ),
        case(
            "of a stream of the server",
            control(&frame_of(PRIORITY_UPDATE, &[1])),
            H3ErrorCode::ID_ERROR,
        ),
        case(
            "of a unidirectional stream",
            control(&frame_of(PRIORITY_UPDATE, &[2])),
            H3ErrorCode::ID_ERROR,
        ),
        case(
            "of a push that was not promised",
            control(&frame_of(PRIORITY_UPDATE_OF_PUSH, &[0])),
            H3ErrorCode::ID_ERROR,
        ),
    ];
    assert_closed_after(cases, true);
}

/// RFC 9114 section 6.2.1: a client must not ask the server to stop its control stream or its QPACK streams.
#[test]
fn stopping_a_critical_stream_closes_the_connection() {
    let server = H3Server::start(collector());
    block_on(async {
        for (id, _) in SERVER_STREAMS.iter().zip(0..) {
            let mut client = server.connect_raw_h3().await;
            // SETTINGS; the other streams are open as soon as that one.
            client
                .wait_for("SETTINGS", |frame| {
                    matches!(frame, ServerFrame::Stream { stream: 3, .. })
                })
                .await;
            client
                .send_frames(&integers(&[kind::STOP_SENDING, *id, 0]))
                .await;
            let code = H3ErrorCode::CLOSED_CRITICAL_STREAM.0;
            assert_eq!(client.closed().await, (code, true), "stream {id}");
        }
    });
}

/// RFC 9114 sections 4.1.2 and 4.1: errors of a stream. Another request of the connection is served.
#[test]
fn malformed_requests_reset_their_stream() {
    let connect = |lines: &[(&str, &str)]| section(&[&[(":method", "CONNECT")], lines].concat());
    let message = H3ErrorCode::MESSAGE_ERROR;
    let mut cases = vec![
        case(
            "4.1 no request",
            ended(&[]),
            H3ErrorCode::REQUEST_INCOMPLETE,
        ),
        case(
            "4.1 a reserved frame alone",
            ended(&frame(RESERVED, b"x")),
            H3ErrorCode::REQUEST_INCOMPLETE,
        ),
        case("4.3.1 no method", head(&get_without(":method")), message),
        case("4.3.1 no scheme", head(&get_without(":scheme")), message),
        case("4.3.1 no path", head(&get_without(":path")), message),
        case("4.3.1 no host", head(&get_without(":authority")), message),
        case("4.4 no authority", head(&connect(&[])), message),
        case(
            "4.4 a path",
            head(&connect(&[(":authority", "a.example:443"), (":path", "/")])),
            message,
        ),
        case(
            "4.4 a scheme",
            head(&connect(&[
                (":authority", "a.example:443"),
                (":scheme", "https"),
            ])),
            message,
        ),
        case(
            "RFC 9220 3 without a path",
            head(&connect(&[
                (":protocol", "websocket"),
                (":authority", "example.com"),
                (":scheme", "https"),
            ])),
            message,
        ),
    ];
    for (section, line) in [
        ("4.2", ("Upper", "1")),
        ("4.2", ("a b", "1")),
        ("4.2", ("", "1")),
        ("4.2", ("a", "1\r\n2")),
        ("4.2", ("a", "1\0")),
        ("4.2", ("a", " 1")),
        ("4.2", ("connection", "close")),
        ("4.2", ("keep-alive", "1")),
        ("4.2", ("proxy-connection", "close")),
        ("4.2", ("transfer-encoding", "chunked")),
        ("4.2", ("upgrade", "h2c")),
        ("4.2", ("te", "gzip")),
        ("4.3", (":unknown", "1")),
        ("4.3", (":status", "200")),
        ("4.3 twice", (":path", "/")),
        ("4.3.1 another host", ("host", "other.example")),
        ("4.1.2 a length without a body", ("content-length", "1")),
        ("4.1.2 no number", ("content-length", "x")),
        ("RFC 9220 3 with GET", (":protocol", "websocket")),
    ] {
        cases.push(case(section, head(&get_section(&[line])), message));
    }
    let late = get_section(&[("a", "1"), (":method", "GET")]);
    cases.push(case("4.3 behind a field", head(&late), message));
    for (length, body) in [("2", &b"abc"[..]), ("4", b"abc"), ("0", b"a")] {
        let post = section(&[
            (":method", "POST"),
            (":scheme", "https"),
            (":authority", "example.com"),
            (":path", "/"),
            ("content-length", length),
        ]);
        let bytes = [frame(HEADERS, &post), frame(DATA, body)].concat();
        cases.push(case("4.1.2 another length", ended(&bytes), message));
    }
    let trailers = section(&[(":path", "/")]);
    let bytes = [get(), frame(HEADERS, &trailers)].concat();
    cases.push(case("4.3 in trailers", ended(&bytes), message));
    let server = H3Server::start(collector());
    block_on(async {
        for Case {
            section,
            sent,
            code,
        } in cases
        {
            let mut client = server.connect_raw_h3().await;
            client.send_frames(&sent).await;
            let reset = client
                .wait_for("a reset", |frame| {
                    matches!(frame, ServerFrame::Reset { .. })
                })
                .await;
            let expected = ServerFrame::Reset {
                stream: 0,
                code: code.0,
            };
            assert_eq!(reset, expected, "{section}: {sent:x?}");
            client.send_frames(&stream(4, 0, &get(), true)).await;
            client
                .wait_for("a response", |frame| {
                    matches!(frame, ServerFrame::Stream { stream: 4, .. })
                })
                .await;
        }
    });
}

/// RFC 9114 section 9, RFC 9218 section 7: extensions that a server does not know, and what only looks wrong.
#[test]
fn what_must_be_ignored_is_ignored() {
    let server = H3Server::start(collector());
    block_on(async {
        let mut client = server.connect_raw().await;
        let settings = [&[0x0][..], &frame_of(SETTINGS, &[RESERVED, 7, 0x1234, 1])].concat();
        client
            .send_frames(&stream(CONTROL, 0, &settings, false))
            .await;
        let offset = settings.len() as u64;
        let control = [
            frame(RESERVED, b"payload"),
            frame(0x1f * 5 + 0x21, &[]),
            frame_of(MAX_PUSH_ID, &[1]),
            frame_of(MAX_PUSH_ID, &[1]),
            frame_of(GOAWAY, &[7]),
            frame_of(GOAWAY, &[7]),
            // Of a stream that is not open yet, and one with a value that is no dictionary.
            [
                frame(PRIORITY_UPDATE, b"\x04u=1"),
                frame(PRIORITY_UPDATE, b"\x08)"),
            ]
            .concat(),
        ]
        .concat();
        let frames = [
            stream(CONTROL, offset, &control, false),
            stream(ENCODER, 0, &[0x21, 1, 2, 3], true),
            stream(DECODER, 0, &[0x40, 0x54, 1], false),
            // A stream that ends within its type.
            stream(OTHER, 0, &[0x40], true),
        ]
        .concat();
        client.send_frames(&frames).await;
        let bytes = [
            frame(RESERVED, b"x"),
            get(),
            frame(RESERVED, b"y"),
            frame(DATA, &[]),
            frame(RESERVED, &[]),
        ]
        .concat();
        client.send_frames(&ended(&bytes)).await;
        client
            .wait_for("a response", |frame| {
                matches!(frame, ServerFrame::Stream { stream: 0, .. })
            })
            .await;
        client.acknowledged().await.unwrap();
    });
}
