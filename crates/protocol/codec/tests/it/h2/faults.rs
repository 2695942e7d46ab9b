//! Tests protocol violations, which are stream errors or connection errors.

use apus_codec::h2::{ConnectionError, Fault, Http2Event, OutgoingRequest};

use super::endpoint::*;

/// The fault that a server finds in these bytes after the prefaces.
fn fault_of(bytes: &[u8]) -> Fault {
    let mut server = Endpoint::connected(config());
    match server.receive(bytes) {
        Err(ConnectionError::Protocol(fault)) => {
            let sent = goaways(&server.out);
            assert_eq!(sent.len(), 1, "one GOAWAY");
            assert_eq!(sent[0].1, fault.code().0);
            // Further input returns the same error.
            let error = server.receive(b"").unwrap_err();
            assert_eq!(error, ConnectionError::Protocol(fault));
            assert_eq!(goaways(&server.out).len(), 1);
            fault
        }
        other => panic!("{other:?}"),
    }
}

fn joined(parts: &[Vec<u8>]) -> Vec<u8> {
    parts.concat()
}

#[test]
fn connection_errors_have_their_codes() {
    let get = |stream| headers_frame(stream, true, &GET);
    let post = |stream| headers_frame(stream, false, &POST);
    let part = |stream| one(0x1, 0x1, stream, &block(&GET));
    for (name, bytes, fault) in [
        ("DATA on 0", one(0, 0, 0, b"x"), Fault::StreamZero),
        (
            "HEADERS on 0",
            headers_frame(0, true, &GET),
            Fault::StreamZero,
        ),
        ("PRIORITY on 0", one(2, 0, 0, &[0; 5]), Fault::StreamZero),
        ("RST_STREAM on 0", one(3, 0, 0, &[0; 4]), Fault::StreamZero),
        ("SETTINGS on 1", one(4, 0, 1, &[]), Fault::StreamZero),
        ("PING on 1", one(6, 0, 1, &[0; 8]), Fault::StreamZero),
        ("GOAWAY on 1", one(7, 0, 1, &[0; 8]), Fault::StreamZero),
        (
            "PRIORITY_UPDATE on 1",
            one(16, 0, 1, &[0; 5]),
            Fault::StreamZero,
        ),
        ("PUSH_PROMISE", one(5, 4, 1, &[0; 4]), Fault::Push),
        ("CONTINUATION alone", one(9, 4, 1, b""), Fault::Continuation),
        (
            "even stream",
            headers_frame(2, true, &GET),
            Fault::StreamIdentifier,
        ),
        (
            "lower stream",
            joined(&[get(5), get(3)]),
            Fault::StreamIdentifier,
        ),
        ("DATA on idle", one(0, 0, 1, b"x"), Fault::IdleStream),
        (
            "RST_STREAM on idle",
            one(3, 0, 1, &[0; 4]),
            Fault::IdleStream,
        ),
        (
            "WINDOW_UPDATE on idle",
            one(8, 0, 1, &[0, 0, 0, 1]),
            Fault::IdleStream,
        ),
        (
            "RST_STREAM of 3",
            joined(&[get(1), one(3, 0, 1, &[0; 3])]),
            Fault::FrameSize,
        ),
        (
            "WINDOW_UPDATE of 5",
            one(8, 0, 0, &[0; 5]),
            Fault::FrameSize,
        ),
        ("PING of 7", one(6, 0, 0, &[0; 7]), Fault::FrameSize),
        ("SETTINGS of 5", one(4, 0, 0, &[0; 5]), Fault::FrameSize),
        ("SETTINGS ack of 6", one(4, 1, 0, &[0; 6]), Fault::FrameSize),
        ("GOAWAY of 7", one(7, 0, 0, &[0; 7]), Fault::FrameSize),
        ("too large", one(0xee, 0, 0, &[0; 16_385]), Fault::FrameSize),
        (
            "WINDOW_UPDATE of 0",
            one(8, 0, 0, &[0; 4]),
            Fault::WindowIncrement,
        ),
        (
            "window overflow",
            one(8, 0, 0, &[0x7f, 255, 255, 255]),
            Fault::WindowOverflow,
        ),
        (
            "window overflow by SETTINGS",
            joined(&[
                post(1),
                one(8, 0, 1, &[0x7f, 255, 0, 0]),
                one(4, 0, 0, &[0, 4, 0x7f, 255, 255, 255]),
            ]),
            Fault::WindowOverflow,
        ),
        (
            "padded DATA of nothing",
            joined(&[post(1), one(0, 8, 1, b""), get(3)]),
            Fault::FrameSize,
        ),
        (
            "DATA padding",
            joined(&[post(1), one(0, 8, 1, b"\x03ab")]),
            Fault::Padding,
        ),
        ("HEADERS padding", one(1, 0xc, 1, b"\xff"), Fault::Padding),
        (
            "dependency on itself",
            one(1, 0x24, 1, &[0, 0, 0, 1, 0]),
            Fault::SelfDependency,
        ),
        (
            "interrupted block",
            joined(&[part(1), one(6, 0, 0, &[0; 8])]),
            Fault::Interleaved,
        ),
        (
            "block of another",
            joined(&[part(1), one(9, 4, 3, b"")]),
            Fault::Interleaved,
        ),
        (
            "unknown frame in block",
            joined(&[part(1), one(0xee, 0, 1, b"")]),
            Fault::Interleaved,
        ),
        ("bad HPACK", one(1, 5, 1, &[0x80]), Fault::Compression),
        (
            "second ack",
            joined(&[one(4, 1, 0, b""), one(4, 1, 0, b"")]),
            Fault::SettingsAck,
        ),
        (
            "PRIORITY_UPDATE of 0",
            one(16, 0, 0, &[0; 5]),
            Fault::PriorityUpdate,
        ),
        (
            "PRIORITY_UPDATE of 2",
            one(16, 0, 0, &[0, 0, 0, 2]),
            Fault::PriorityUpdate,
        ),
    ] {
        assert_eq!(fault_of(&bytes), fault, "{name}");
    }
}

#[test]
fn a_connection_starts_with_the_preface_and_settings() {
    let mut hello = apus_codec::h2::PREFACE.to_vec();
    for at in 0..hello.len() {
        let mut wrong = hello.clone();
        wrong[at] ^= 1;
        let error = Endpoint::server(config()).receive(&wrong).unwrap_err();
        assert_eq!(error, ConnectionError::Protocol(Fault::Preface));
    }
    hello.extend(one(6, 0, 0, &[0; 8]));
    let error = Endpoint::server(config())
        .receive_bytewise(&hello)
        .unwrap_err();
    assert_eq!(error, ConnectionError::Protocol(Fault::FirstFrame));
    let error = Endpoint::client(config())
        .receive(&one(6, 0, 0, &[0; 8]))
        .unwrap_err();
    assert_eq!(error, ConnectionError::Protocol(Fault::FirstFrame));
}

#[test]
fn malformed_requests_reset_only_their_stream() {
    for (fields, fault) in [
        (vec![("x", "y")], Fault::PseudoField),
        (vec![(":status", "200")], Fault::PseudoField),
        (vec![(":path", "/")], Fault::PseudoField),
        (vec![(":method", "GET")], Fault::PseudoField),
        (vec![("connection", "close")], Fault::ConnectionField),
        (
            vec![("transfer-encoding", "chunked")],
            Fault::ConnectionField,
        ),
        (vec![("upgrade", "h2c")], Fault::ConnectionField),
        (vec![("keep-alive", "1")], Fault::ConnectionField),
        (vec![("proxy-connection", "close")], Fault::ConnectionField),
        (vec![("te", "gzip")], Fault::ConnectionField),
        (vec![("X", "y")], Fault::FieldSyntax),
        (vec![("x y", "z")], Fault::FieldSyntax),
        (vec![("x:", "z")], Fault::FieldSyntax),
        (vec![("", "z")], Fault::FieldSyntax),
        (vec![("x", "a\rb")], Fault::FieldSyntax),
        (vec![("x", "a\nb")], Fault::FieldSyntax),
        (vec![("x", "a\0b")], Fault::FieldSyntax),
        (vec![("x", " a")], Fault::FieldSyntax),
        (vec![("host", "b")], Fault::Host),
        (vec![("host", "a"), ("host", "a")], Fault::Host),
        (vec![("content-length", "x")], Fault::ContentLength),
        (
            vec![("content-length", "0"), ("content-length", "0")],
            Fault::ContentLength,
        ),
        (vec![("content-length", "+1")], Fault::ContentLength),
        (vec![("content-length", "5")], Fault::ContentLength),
    ] {
        let mut server = Endpoint::connected(config());
        let mut all = GET.to_vec();
        let is_missing = fields == [("x", "y")];
        if is_missing {
            all.remove(3);
        }
        all.extend(fields.iter().copied());
        let seen = server.receive(&headers_frame(1, true, &all)).unwrap();
        assert!(
            matches!(seen[0].event, Http2Event::Malformed { stream: None, fault: seen } if seen == fault),
            "{fields:?}: {seen:?}"
        );
        assert_eq!(resets(&server.out), [(1, fault.code().0)], "{fields:?}");
        assert_eq!(
            server.receive(&headers_frame(3, true, &GET)).unwrap().len(),
            1
        );
    }
}

#[test]
fn invalid_pseudo_fields_are_malformed() {
    let all = |changes: &[(&str, &'static str)]| {
        let mut fields = GET.to_vec();
        for (name, value) in changes {
            fields.iter_mut().find(|field| field.0 == *name).unwrap().1 = value;
        }
        fields
    };
    let extended = |protocols: &[&'static str]| {
        let mut fields = all(&[(":method", "CONNECT")]);
        fields.extend(protocols.iter().map(|value| (":protocol", *value)));
        fields
    };
    for (fields, is_fine) in [
        (all(&[]), true),
        (all(&[(":scheme", "http")]), true),
        (all(&[(":method", "OPTIONS"), (":path", "*")]), true),
        (all(&[(":path", "*")]), false),
        (all(&[(":path", "")]), false),
        (all(&[(":path", "a")]), false),
        (all(&[(":path", "http://a/")]), false),
        (all(&[(":path", "/#x")]), false),
        (all(&[(":path", "/ x")]), false),
        (all(&[(":scheme", "ftp")]), false),
        (all(&[(":scheme", "")]), false),
        (all(&[(":method", "")]), false),
        (all(&[(":method", "G T")]), false),
        (all(&[(":authority", "")]), false),
        (all(&[(":authority", "u@a")]), false),
        (all(&[(":authority", "a/b")]), false),
        (GET[..2].iter().chain(&GET[3..]).copied().collect(), false),
        (extended(&["websocket"]), true),
        (extended(&[""]), false),
        (extended(&["websocket", "websocket"]), false),
        (extended(&["", "websocket"]), false),
        (extended(&["web socket"]), false),
        ([&[(":path", "")], &GET[..]].concat(), false),
        ([&GET[..], &[(":unknown", "x")]].concat(), false),
        ([&GET[..], &[(":", "x")]].concat(), false),
    ] {
        let mut server = Endpoint::connected(config());
        let seen = server.receive(&headers_frame(1, true, &fields)).unwrap();
        assert_eq!(
            matches!(seen[0].event, Http2Event::Request(_)),
            is_fine,
            "{fields:?}"
        );
    }
}

/// RFC 9113 section 8.3.
#[test]
fn a_pseudo_field_after_one_regular_field_is_malformed() {
    let fields = [
        (":method", "CONNECT"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
        (":protocol", "websocket"),
    ];
    // Includes fields that are collected until the head is complete, and fields that are dropped.
    let regular = [
        ("x", "y"),
        ("cookie", ""),
        ("cookie", "a=b"),
        ("host", "a"),
        ("te", "trailers"),
        ("priority", "u=1"),
    ];
    for late in fields {
        for between in regular {
            let mut all: Vec<_> = fields.into_iter().filter(|field| *field != late).collect();
            all.extend([between, late]);
            let mut server = Endpoint::connected(config());
            let seen = server.receive(&headers_frame(1, true, &all)).unwrap();
            assert!(
                matches!(
                    seen[0].event,
                    Http2Event::Malformed {
                        stream: None,
                        fault: Fault::PseudoField
                    }
                ),
                "{all:?}: {seen:?}"
            );
            assert_eq!(resets(&server.out), [(1, 1)], "{all:?}");
        }
    }
}

#[test]
fn a_repeated_pseudo_field_is_malformed() {
    for twice in GET {
        for value in [twice.1, "", "b"] {
            let mut fields = GET.to_vec();
            fields.push((twice.0, value));
            let mut server = Endpoint::connected(config());
            let seen = server.receive(&headers_frame(1, true, &fields)).unwrap();
            assert!(
                matches!(seen[0].event, Http2Event::Malformed { .. }),
                "{fields:?}"
            );
            assert_eq!(resets(&server.out), [(1, 1)]);
        }
    }
}

#[test]
fn a_body_must_have_its_announced_length() {
    for (length, parts, is_fine) in [
        ("3", vec!["abc"], true),
        ("3", vec!["a", "bc"], true),
        ("3", vec!["ab"], false),
        ("3", vec!["abcd"], false),
        ("3", vec!["abc", "d"], false),
        ("0", vec![""], true),
    ] {
        let mut server = Endpoint::connected(config());
        let mut fields = POST.to_vec();
        fields.push(("content-length", length));
        let mut bytes = headers_frame(1, false, &fields);
        for (at, part) in parts.iter().enumerate() {
            let end = u8::from(at + 1 == parts.len());
            frame(0, end, 1, part.as_bytes(), &mut bytes);
        }
        let seen = server.receive(&bytes).unwrap();
        let is_malformed = seen.iter().any(|seen| {
            matches!(
                seen.event,
                Http2Event::Malformed {
                    stream: Some(_),
                    ..
                }
            )
        });
        assert_eq!(is_malformed, !is_fine, "{length} {parts:?}");
        assert_eq!(resets(&server.out).is_empty(), is_fine);
    }
}

#[test]
fn frames_on_closed_streams_are_errors() {
    let get = headers_frame(1, true, &GET);
    let closed = 5;
    for (name, frame) in [
        ("DATA", one(0, 0, 1, b"x")),
        ("HEADERS", headers_frame(1, true, &GET)),
    ] {
        // Half-closed.
        let mut server = Endpoint::connected(config());
        server.receive(&get).unwrap();
        server.receive(&frame).unwrap();
        assert_eq!(resets(&server.out), [(1, closed)], "{name}, half-closed");
        // Closed by both ends, and reset by the client.
        for is_reset in [false, true] {
            let mut server = Endpoint::connected(config());
            let key = stream_of(&server.receive(&get).unwrap());
            if is_reset {
                server.receive(&one(3, 0, 1, &[0; 4])).unwrap();
            } else {
                server.responds(key, 204, "", b"");
            }
            server.out.clear();
            match server.receive(&frame) {
                Ok(_) => assert_eq!((name, resets(&server.out)), ("DATA", vec![(1, closed)])),
                Err(error) => {
                    assert_eq!(name, "HEADERS");
                    assert_eq!(error, ConnectionError::Protocol(Fault::StreamClosed));
                }
            }
        }
        // Reset by the server: the client may not know it yet.
        let mut server = Endpoint::connected(config());
        let key = stream_of(&server.receive(&headers_frame(1, false, &POST)).unwrap());
        server
            .connection
            .reset(key, apus_codec::h2::ErrorCode::CANCEL, &mut server.out);
        server.out.clear();
        server.receive(&frame).unwrap();
        assert_eq!(resets(&server.out), [], "{name}, reset by us");
    }
}

#[test]
fn trailers_end_their_stream_and_have_no_pseudo_fields() {
    for (end, fields, is_fine) in [
        (true, [("x", "y")], true),
        (false, [("x", "y")], false),
        (true, [(":path", "/")], false),
        (true, [(":status", "200")], false),
        (true, [(":authority", "a")], false),
        (true, [(":unknown", "x")], false),
        (true, [("connection", "x")], false),
    ] {
        let mut server = Endpoint::connected(config());
        let mut bytes = headers_frame(1, false, &POST);
        bytes.extend(headers_frame(1, end, &fields));
        let seen = server.receive(&bytes).unwrap();
        assert_eq!(
            matches!(seen[1].event, Http2Event::Trailers { .. }),
            is_fine,
            "{fields:?}"
        );
        assert_eq!(resets(&server.out).is_empty(), is_fine);
    }
}

#[test]
fn a_client_rejects_malformed_responses() {
    for (fields, end, is_fine) in [
        (vec![(":status", "200")], true, true),
        (vec![(":status", "101")], false, false),
        (vec![(":status", "20")], true, false),
        (vec![(":status", "200"), (":status", "200")], true, false),
        (vec![("x", "y")], true, false),
        (vec![("x", "y"), (":status", "200")], true, false),
        (vec![("host", "a"), (":status", "200")], true, false),
        (vec![(":status", "200"), (":path", "/")], true, false),
        (vec![(":status", "200"), (":unknown", "x")], true, false),
        (
            vec![(":status", "200"), ("connection", "close")],
            true,
            false,
        ),
        (
            vec![(":status", "200"), ("content-length", "1")],
            true,
            false,
        ),
        (vec![(":status", "100")], true, false),
        (vec![(":method", "GET")], true, false),
    ] {
        let mut client = Endpoint::client(config());
        client.receive(&one(4, 0, 0, b"")).unwrap();
        let head = request("GET", "/", "host: a");
        let stream = client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
            .unwrap();
        client.out.clear();
        let seen = client
            .receive(&headers_frame(stream.id(), end, &fields))
            .unwrap();
        assert_eq!(
            matches!(seen[0].event, Http2Event::Response { .. }),
            is_fine,
            "{fields:?}"
        );
        assert!(!client.connection.is_open(stream));
        assert_eq!(resets(&client.out).is_empty(), is_fine);
    }
}

#[test]
fn a_client_rejects_frames_on_streams_it_did_not_open() {
    for (bytes, fault) in [
        (
            headers_frame(1, true, &[(":status", "200")]),
            Fault::IdleStream,
        ),
        (
            headers_frame(2, true, &[(":status", "200")]),
            Fault::StreamIdentifier,
        ),
        (one(0, 0, 1, b"x"), Fault::IdleStream),
        (one(5, 4, 1, &[0, 0, 0, 2]), Fault::Push),
    ] {
        let mut client = Endpoint::client(config());
        client.receive(&one(4, 0, 0, b"")).unwrap();
        let error = client.receive(&bytes).unwrap_err();
        assert_eq!(error, ConnectionError::Protocol(fault));
    }
}

#[test]
fn discards_unwanted_data_up_to_the_window() {
    let mut server = Endpoint::connected(config());
    let key = stream_of(&server.receive(&headers_frame(1, false, &POST)).unwrap());
    server.responds(key, 405, "", b"no");
    server.connection.abandon(key, &mut server.out);
    server.out.clear();
    for _ in 0..4 {
        assert!(
            server
                .receive(&one(0, 0, 1, &[0; 16_383]))
                .unwrap()
                .is_empty()
        );
    }
    // Discarded data opens the connection's window, but not the stream's.
    assert!(updates(&server.out).iter().all(|(stream, _)| *stream == 0));
    assert!(server.connection.is_open(key) && resets(&server.out).is_empty());
    server.receive(&one(0, 1, 1, b"end")).unwrap();
    assert!(!server.connection.is_open(key));
}

#[test]
fn checks_unwanted_data() {
    let mut server = Endpoint::connected(config());
    let key = stream_of(&server.receive(&headers_frame(1, false, &POST)).unwrap());
    server.responds(key, 405, "", b"no");
    server.connection.abandon(key, &mut server.out);
    server.out.clear();
    let seen = server
        .receive(&headers_frame(1, true, &[(":path", "/")]))
        .unwrap();
    assert!(matches!(seen[0].event, Http2Event::Malformed { .. }));
    assert_eq!(resets(&server.out), [(1, 1)]);
}
