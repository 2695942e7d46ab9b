//! Every violation of RFC 9114, RFC 9204 and RFC 9218 that a peer can commit, with its code.

use apus_codec::messages::MessageFault;
use apus_h3::{H3Error, H3ErrorCode, H3Event, H3Fault, StreamAction};
use bytes::Bytes;

use super::endpoint::{Endpoint, config, frames, get, integers, request_head, section};
use apus_h3::OutgoingRequest;
use apus_http::Method;

/// Errors of a connection, by what the client sends on a stream after its SETTINGS.
#[test]
fn a_server_closes_the_connection() {
    let get = get(&[]);
    let trailers = section(&[("a", "b")]);
    let connect = section(&[(":method", "CONNECT"), (":authority", "a.example:443")]);
    let cases: Vec<(u64, Vec<u8>, bool, H3Fault, u64)> = vec![
        // RFC 9114 section 4.1: frames out of sequence.
        (
            0,
            frames(&[(0, b"x")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(1, &get), (1, &trailers), (0, b"x")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(1, &get), (1, &trailers), (1, &trailers)]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        // Section 4.4: other frames than DATA in a tunnel.
        (
            0,
            frames(&[(1, &connect), (1, &trailers)]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        // Section 6.1 and 6.2.
        (1, vec![], false, H3Fault::ServerStream, 0x103),
        (14, vec![1, 0], false, H3Fault::ClientPush, 0x103),
        (14, vec![0], false, H3Fault::SecondCriticalStream, 0x103),
        (14, vec![2], false, H3Fault::SecondCriticalStream, 0x103),
        (14, vec![3], false, H3Fault::SecondCriticalStream, 0x103),
        (2, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        (6, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        (10, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        // Section 7.1: the stream ends in a frame.
        (0, vec![1], true, H3Fault::FrameSize, 0x106),
        (0, vec![1, 5, 0, 0], true, H3Fault::FrameSize, 0x106),
        (
            0,
            [frames(&[(1, &get)]), vec![0, 5, 1]].concat(),
            true,
            H3Fault::FrameSize,
            0x106,
        ),
        (
            0,
            [frames(&[(1, &get)]), vec![0, 5]].concat(),
            true,
            H3Fault::FrameSize,
            0x106,
        ),
        (0, vec![0x21, 5, 1], true, H3Fault::FrameSize, 0x106),
        // Section 7.2: frames on the control stream.
        (
            2,
            frames(&[(0, b"")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            2,
            frames(&[(1, b"")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            2,
            frames(&[(4, b"")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            2,
            frames(&[(5, b"")]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (2, frames(&[(3, &[0])]), false, H3Fault::PushId, 0x108),
        (2, frames(&[(3, &[])]), false, H3Fault::FrameSize, 0x106),
        (2, frames(&[(3, &[0, 0])]), false, H3Fault::FrameSize, 0x106),
        (2, frames(&[(7, &[0; 9])]), false, H3Fault::FrameSize, 0x106),
        (2, frames(&[(7, &[0x40])]), false, H3Fault::FrameSize, 0x106),
        (
            2,
            frames(&[(7, &[1]), (7, &[2])]),
            false,
            H3Fault::GoAwayId,
            0x108,
        ),
        (2, frames(&[(0xd, &[])]), false, H3Fault::FrameSize, 0x106),
        (
            2,
            frames(&[(0xd, &[2]), (0xd, &[2]), (0xd, &[1])]),
            false,
            H3Fault::MaxPushId,
            0x108,
        ),
        // Section 7.2.8.
        (2, frames(&[(2, b"")]), false, H3Fault::Http2Frame, 0x105),
        (2, frames(&[(6, b"")]), false, H3Fault::Http2Frame, 0x105),
        (0, frames(&[(8, b"")]), false, H3Fault::Http2Frame, 0x105),
        (0, frames(&[(9, b"")]), false, H3Fault::Http2Frame, 0x105),
        // Frames of the control stream on a request stream.
        (
            0,
            frames(&[(3, &[0])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(4, &[])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(5, &[0])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(7, &[0])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(0xd, &[0])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(0xf0700, &[0])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        // RFC 9218 section 7.2.
        (
            2,
            frames(&[(0xf0700, &[])]),
            false,
            H3Fault::FrameSize,
            0x106,
        ),
        (
            2,
            frames(&[(0xf0700, &[1])]),
            false,
            H3Fault::PriorityUpdate,
            0x108,
        ),
        (
            2,
            frames(&[(0xf0700, &[2])]),
            false,
            H3Fault::PriorityUpdate,
            0x108,
        ),
        (
            2,
            frames(&[(0xf0701, &[0])]),
            false,
            H3Fault::PriorityUpdate,
            0x108,
        ),
        // RFC 9204 section 2.2.3 and 4.5: field sections.
        (0, frames(&[(1, &[])]), false, H3Fault::Decompression, 0x200),
        (
            0,
            frames(&[(1, &[0])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // An insert count beyond twice the entries that fit, 128.
        (
            0,
            frames(&[(1, &[0xff, 2, 0, 0x80])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // A negative base.
        (
            0,
            frames(&[(1, &[0, 0x80])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // An index beyond the static table, 99.
        (
            0,
            frames(&[(1, &[0, 0, 0xff, 36])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            frames(&[(1, &[0, 0, 0x5f, 84, 0])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // References that the insert count does not cover.
        (
            0,
            frames(&[(1, &[0, 0, 0x80])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            frames(&[(1, &[0, 0, 0x10])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            frames(&[(1, &[0, 0, 0x40, 0])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            frames(&[(1, &[0, 0, 0, 0])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // A string beyond the section, and one with an invalid code.
        (
            0,
            frames(&[(1, &[0, 0, 0x51, 5, b'/'])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            frames(&[(1, &[0, 0, 0x51, 0x84, 0xff, 0xff, 0xff, 0xff])]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // RFC 9204 section 4.3: the encoder stream. A capacity beyond 4096.
        (
            6,
            vec![0x3f, 0xe2, 0x1f],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        // An insert before a capacity was set.
        (6, vec![0xc0, 1, b'a'], false, H3Fault::EncoderStream, 0x201),
        // A name that is in no table.
        (
            6,
            vec![0x3f, 0xe1, 0x1f, 0xff, 36, 0],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        (
            6,
            vec![0x3f, 0xe1, 0x1f, 0x80, 0],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        (
            6,
            vec![0x3f, 0xe1, 0x1f, 0x00],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        // An integer that is too large.
        (
            6,
            vec![0x3f, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        // RFC 9204 section 4.4: the decoder stream.
        (10, vec![0x80], false, H3Fault::DecoderStream, 0x202),
        (10, vec![0x00], false, H3Fault::DecoderStream, 0x202),
        (10, vec![0x01], false, H3Fault::DecoderStream, 0x202),
    ];
    for (id, bytes, fin, fault, code) in cases {
        let mut server = Endpoint::connected();
        let error = server.fails(id, &bytes, fin);
        assert_eq!(error, H3Error::Protocol(fault), "{id} {bytes:x?}");
        assert_eq!(error.code(), H3ErrorCode(code), "{id} {bytes:x?}");
        let mut server = Endpoint::connected();
        if !bytes.is_empty() {
            let bytewise = server.receive_bytewise(id, &bytes, fin).unwrap_err();
            assert_eq!(bytewise, error, "{id} {bytes:x?} bytewise");
        }
    }
}

#[test]
fn the_control_stream_begins_with_valid_settings() {
    for (payload, fault) in [
        (frames(&[(7, &[0])]), H3Fault::MissingSettings),
        (frames(&[(0x21, b"")]), H3Fault::MissingSettings),
        (frames(&[(0, b"")]), H3Fault::MissingSettings),
        (frames(&[(2, b"")]), H3Fault::Http2Frame),
        (frames(&[(4, &integers(&[2, 0]))]), H3Fault::Http2Setting),
        (
            frames(&[(4, &integers(&[0x21, 0, 0x21, 0]))]),
            H3Fault::RepeatedSetting,
        ),
        (frames(&[(4, &integers(&[8, 2]))]), H3Fault::SettingValue),
        (frames(&[(4, &[1])]), H3Fault::FrameSize),
    ] {
        let bytes = [&[0][..], &payload].concat();
        let mut server = Endpoint::server(config());
        assert_eq!(server.fails(2, &bytes, false), fault.into(), "{bytes:x?}");
        let mut client = Endpoint::client(config());
        assert_eq!(client.fails(3, &bytes, false), fault.into(), "{bytes:x?}");
    }
    assert_eq!(
        H3Fault::MissingSettings.code(),
        H3ErrorCode::MISSING_SETTINGS
    );
    for fault in [
        H3Fault::Http2Setting,
        H3Fault::RepeatedSetting,
        H3Fault::SettingValue,
    ] {
        assert_eq!(fault.code(), H3ErrorCode::SETTINGS_ERROR);
    }
}

#[test]
fn a_client_closes_the_connection() {
    let response = section(&[(":status", "200")]);
    let interim = section(&[(":status", "103")]);
    for (id, bytes, fault, code) in [
        (0, frames(&[(0, b"x")]), H3Fault::UnexpectedFrame, 0x105),
        (
            0,
            frames(&[(1, &interim), (0, b"x")]),
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            0,
            frames(&[(1, &response), (5, &[0, 0, 0])]),
            H3Fault::PushId,
            0x108,
        ),
        (1, vec![], H3Fault::ServerStream, 0x103),
        (15, vec![1, 0], H3Fault::PushId, 0x108),
        (3, frames(&[(3, &[0])]), H3Fault::PushId, 0x108),
        (3, frames(&[(7, &[1])]), H3Fault::GoAwayId, 0x108),
        (3, frames(&[(7, &[4]), (7, &[8])]), H3Fault::GoAwayId, 0x108),
        (3, frames(&[(0xd, &[0])]), H3Fault::UnexpectedFrame, 0x105),
        (
            3,
            frames(&[(0xf0700, &[0])]),
            H3Fault::UnexpectedFrame,
            0x105,
        ),
        (
            3,
            frames(&[(0xf0701, &[0])]),
            H3Fault::UnexpectedFrame,
            0x105,
        ),
    ] {
        let mut client = client_with_request();
        let error = client.fails(id, &bytes, false);
        assert_eq!(error, fault.into(), "{id} {bytes:x?}");
        assert_eq!(error.code(), H3ErrorCode(code), "{id} {bytes:x?}");
    }
}

/// What a server must not send either, by the stream: 0 carries the request, and 3, 7, 11 and 15 are streams of the server.
#[test]
fn a_client_closes_the_connection_as_a_server_does() {
    let ok = section(&[(":status", "200")]);
    let trailers = section(&[("a", "b")]);
    let headers = frames(&[(1, &ok)]);
    let after_trailers = |kind| frames(&[(1, &ok), (1, &trailers), (kind, &trailers)]);
    let field_section = |section: &[u8]| frames(&[(1, section)]);
    let mut cases: Vec<(u64, Vec<u8>, bool, H3Fault, u64)> = vec![
        // RFC 9114 section 4.1: frames out of sequence.
        (0, after_trailers(0), false, H3Fault::UnexpectedFrame, 0x105),
        (0, after_trailers(1), false, H3Fault::UnexpectedFrame, 0x105),
        // Section 6.2.
        (15, vec![0], false, H3Fault::SecondCriticalStream, 0x103),
        (15, vec![2], false, H3Fault::SecondCriticalStream, 0x103),
        (15, vec![3], false, H3Fault::SecondCriticalStream, 0x103),
        (3, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        (7, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        (11, vec![], true, H3Fault::ClosedCriticalStream, 0x104),
        // Section 7.1: the stream ends in a frame, and frames of a fixed size.
        (0, vec![1], true, H3Fault::FrameSize, 0x106),
        (0, vec![1, 5, 0, 0], true, H3Fault::FrameSize, 0x106),
        (
            0,
            [&headers[..], &[0, 5, 1]].concat(),
            true,
            H3Fault::FrameSize,
            0x106,
        ),
        (3, frames(&[(3, &[])]), false, H3Fault::FrameSize, 0x106),
        (3, frames(&[(3, &[0, 0])]), false, H3Fault::FrameSize, 0x106),
        (3, frames(&[(7, &[0; 9])]), false, H3Fault::FrameSize, 0x106),
        (3, frames(&[(7, &[0x40])]), false, H3Fault::FrameSize, 0x106),
        // RFC 9204 section 4.5: a section without its prefix, a table that has nothing, and an index beyond the static one.
        (0, field_section(&[]), false, H3Fault::Decompression, 0x200),
        (
            0,
            field_section(&[0xff, 2, 0, 0x80]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            field_section(&[0, 0x80]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            field_section(&[0, 0, 0xff, 36]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        (
            0,
            field_section(&[0, 0, 0x80]),
            false,
            H3Fault::Decompression,
            0x200,
        ),
        // RFC 9204 section 4.3: a capacity beyond 4096, an insert before it is set, names of no table.
        (
            7,
            vec![0x3f, 0xe2, 0x1f],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        (7, vec![0xc0, 1, b'a'], false, H3Fault::EncoderStream, 0x201),
        (
            7,
            vec![0x3f, 0xe1, 0x1f, 0xff, 36, 0],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        (
            7,
            vec![0x3f, 0xe1, 0x1f, 0x80, 0],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        (
            7,
            vec![0x3f, 0xe1, 0x1f, 0x00],
            false,
            H3Fault::EncoderStream,
            0x201,
        ),
        // RFC 9204 section 4.4: acknowledgements of what was not sent.
        (11, vec![0x80], false, H3Fault::DecoderStream, 0x202),
        (11, vec![0x00], false, H3Fault::DecoderStream, 0x202),
        (11, vec![0x01], false, H3Fault::DecoderStream, 0x202),
    ];
    // Section 7.2: frames of another stream, before and after the head.
    for kind in [3, 4, 7, 0xd, 0xf0700, 0xf0701] {
        let frame = frames(&[(kind, &[0])]);
        let behind = [&headers[..], &frame].concat();
        cases.push((0, frame, false, H3Fault::UnexpectedFrame, 0x105));
        cases.push((0, behind, false, H3Fault::UnexpectedFrame, 0x105));
    }
    for kind in [0, 1, 4, 5] {
        cases.push((
            3,
            frames(&[(kind, &[])]),
            false,
            H3Fault::UnexpectedFrame,
            0x105,
        ));
    }
    for (id, bytes, fin, fault, code) in cases {
        let mut client = client_with_request();
        let error = client.fails(id, &bytes, fin);
        assert_eq!(error, fault.into(), "{id} {bytes:x?}");
        assert_eq!(error.code(), H3ErrorCode(code), "{id} {bytes:x?}");
    }
}

/// RFC 9114 section 7.2.8: each type of HTTP/2 that HTTP/3 has not, on each stream of either role, first and later.
#[test]
fn frames_of_http2_close_the_connection() {
    let fault = H3Error::Protocol(H3Fault::Http2Frame);
    let messages = [get(&[]), section(&[(":status", "200")])];
    for kind in [0x2, 0x6, 0x8, 0x9] {
        let frame = frames(&[(kind, &[])]);
        for (message, is_client) in messages.iter().zip([false, true]) {
            let end = || {
                if is_client {
                    client_with_request()
                } else {
                    Endpoint::connected()
                }
            };
            assert_eq!(end().fails(0, &frame, false), fault);
            let behind = [frames(&[(1, message)]), frame.clone()].concat();
            assert_eq!(end().fails(0, &behind, false), fault);
            let control = if is_client { 3 } else { 2 };
            assert_eq!(end().fails(control, &frame, false), fault);
        }
    }
    assert_eq!(fault.code(), H3ErrorCode(0x105));
}

/// A client whose request on stream 0 is sent.
fn client_with_request() -> Endpoint {
    let mut client = Endpoint::connected_client();
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    client
        .connection
        .send_request(0, head, true, &mut Vec::new())
        .unwrap();
    client
}

#[test]
fn critical_streams_must_not_be_reset_or_stopped() {
    for id in [2, 6, 10] {
        let mut server = Endpoint::connected();
        let error = server.connection.handle_reset(id, H3ErrorCode(0));
        assert_eq!(error.unwrap_err(), H3Fault::ClosedCriticalStream.into());
    }
    for id in [3, 7, 11] {
        let mut server = Endpoint::connected();
        let error = server.connection.handle_stop_sending(id, H3ErrorCode(0));
        assert_eq!(error.unwrap_err(), H3Fault::ClosedCriticalStream.into());
        let mut client = Endpoint::connected_client();
        let error = client.connection.handle_reset(id, H3ErrorCode(0));
        assert_eq!(error.unwrap_err(), H3Fault::ClosedCriticalStream.into());
    }
    for id in [2, 6, 10] {
        let mut client = Endpoint::connected_client();
        let error = client.connection.handle_stop_sending(id, H3ErrorCode(0));
        assert_eq!(error.unwrap_err(), H3Fault::ClosedCriticalStream.into());
    }
    let mut server = Endpoint::connected();
    server.receive(14, &[0x21, 1, 2], false).unwrap();
    let reset = server.connection.handle_reset(14, H3ErrorCode(0));
    assert!(reset.unwrap().is_none());
}

/// Section 4.1.2: a malformed request closes its stream, and not the connection.
#[test]
fn a_malformed_request_closes_its_stream() {
    let message = H3Fault::Message;
    let valid = [
        (":method", "GET"),
        (":scheme", "https"),
        (":authority", "a"),
        (":path", "/"),
    ];
    let without = |name: &str| {
        let kept: Vec<_> = valid.into_iter().filter(|line| line.0 != name).collect();
        section(&kept)
    };
    for (section, fault) in [
        (get(&[("Upper", "1")]), MessageFault::FieldSyntax),
        (get(&[("a b", "1")]), MessageFault::FieldSyntax),
        (get(&[("", "1")]), MessageFault::FieldSyntax),
        (get(&[("a", "1\r\n2")]), MessageFault::FieldSyntax),
        (get(&[("a", " 1")]), MessageFault::FieldSyntax),
        (
            get(&[("connection", "close")]),
            MessageFault::ConnectionField,
        ),
        (
            get(&[("transfer-encoding", "chunked")]),
            MessageFault::ConnectionField,
        ),
        (get(&[("te", "gzip")]), MessageFault::ConnectionField),
        (get(&[("upgrade", "h2c")]), MessageFault::ConnectionField),
        (get(&[(":path", "/")]), MessageFault::PseudoField),
        (get(&[(":method", "GET")]), MessageFault::PseudoField),
        (get(&[(":scheme", "https")]), MessageFault::PseudoField),
        (
            get(&[(":authority", "a.example")]),
            MessageFault::PseudoField,
        ),
        (
            section(&[valid[0], valid[1], valid[2], ("a", "1"), valid[3]]),
            MessageFault::PseudoField,
        ),
        (
            get(&[("a", "1"), (":unknown", "1")]),
            MessageFault::PseudoField,
        ),
        (get(&[(":status", "200")]), MessageFault::PseudoField),
        (
            get(&[(":protocol", "websocket")]),
            MessageFault::PseudoField,
        ),
        (without(":method"), MessageFault::PseudoField),
        (without(":scheme"), MessageFault::PseudoField),
        (without(":path"), MessageFault::PseudoField),
        (without(":authority"), MessageFault::Host),
        (get(&[("host", "b")]), MessageFault::Host),
        (get(&[("content-length", "x")]), MessageFault::ContentLength),
        (
            get(&[("content-length", "1"), ("content-length", "1")]),
            MessageFault::ContentLength,
        ),
        (get(&[("content-length", "1")]), MessageFault::ContentLength),
        (
            section(&[(":method", "CONNECT")]),
            MessageFault::PseudoField,
        ),
    ] {
        let mut server = Endpoint::connected();
        let events = server.receive(0, &frames(&[(1, &section)]), true).unwrap();
        assert!(
            matches!(events[..], [H3Event::Malformed { fault: found, .. }] if found == message(fault)),
            "{fault:?} {events:?}"
        );
        assert_eq!(message(fault).code(), H3ErrorCode::MESSAGE_ERROR);
        let code = H3ErrorCode::MESSAGE_ERROR;
        assert!(
            server
                .actions
                .contains(&StreamAction::Reset { id: 0, code })
        );
        assert_eq!(server.connection.open_streams(), 0);
        server.receives_request(4, &get(&[]), true);
    }
}

/// RFC 9114 section 4.3: pseudo-header fields belong to the head.
#[test]
fn trailers_of_a_request_have_no_pseudo_fields() {
    for (line, fault) in [
        ((":path", "/"), MessageFault::PseudoField),
        ((":status", "200"), MessageFault::PseudoField),
        (("Upper", "1"), MessageFault::FieldSyntax),
    ] {
        let mut server = Endpoint::connected();
        let bytes = frames(&[(1, &get(&[])), (1, &section(&[line]))]);
        let events = server.receive(0, &bytes, true).unwrap();
        assert!(
            matches!(events.last(), Some(H3Event::Malformed { fault: found, .. }) if *found == H3Fault::Message(fault)),
            "{line:?} {events:?}"
        );
    }
}

#[test]
fn the_body_has_the_announced_length() {
    for (length, frames_after, is_valid) in [
        ("3", frames(&[(0, b"abc")]), true),
        ("3", frames(&[(0, b"a"), (0, b"bc")]), true),
        ("3", frames(&[(0, b"abcd")]), false),
        ("3", frames(&[(0, b"ab")]), false),
        ("3", frames(&[]), false),
        ("0", frames(&[]), true),
        ("0", frames(&[(0, b"a")]), false),
        (
            "3",
            frames(&[(0, b"ab"), (1, &section(&[("a", "b")]))]),
            false,
        ),
        (
            "3",
            frames(&[(0, b"abc"), (1, &section(&[("a", "b")]))]),
            true,
        ),
    ] {
        let mut server = Endpoint::connected();
        let head = frames(&[(1, &get(&[("content-length", length)]))]);
        let bytes = [head, frames_after].concat();
        let events = server.receive(0, &bytes, true).unwrap();
        let is_malformed = events.iter().any(|event| {
            matches!(event, H3Event::Malformed { fault, .. }
                if *fault == H3Fault::Message(MessageFault::ContentLength))
        });
        assert_eq!(!is_malformed, is_valid, "{bytes:x?} {events:?}");
    }
}

#[test]
fn a_request_that_is_cut_off_closes_its_stream() {
    for bytes in [vec![], frames(&[(0x21, b"x")])] {
        let mut server = Endpoint::connected();
        let events = server.receive(0, &bytes, true).unwrap();
        assert!(matches!(
            events[..],
            [H3Event::Malformed {
                fault: H3Fault::RequestIncomplete,
                ..
            }]
        ));
        let code = H3ErrorCode::REQUEST_INCOMPLETE;
        assert_eq!(
            server.actions,
            [
                StreamAction::Reset { id: 0, code },
                StreamAction::StopSending { id: 0, code }
            ]
        );
    }
}

#[test]
fn a_malformed_response_closes_its_stream() {
    let ok = section(&[(":status", "200")]);
    let message = |fault| H3Fault::Message(fault);
    for (bytes, fault) in [
        (vec![], H3Fault::ResponseIncomplete),
        (
            frames(&[(1, &section(&[(":status", "103")]))]),
            H3Fault::ResponseIncomplete,
        ),
        (
            frames(&[(1, &section(&[("a", "b")]))]),
            message(MessageFault::PseudoField),
        ),
        (
            frames(&[(1, &section(&[(":status", "101")]))]),
            message(MessageFault::PseudoField),
        ),
        (
            frames(&[(1, &section(&[(":status", "200"), (":path", "/")]))]),
            message(MessageFault::PseudoField),
        ),
        (
            frames(&[(1, &ok), (1, &section(&[(":status", "200")]))]),
            message(MessageFault::PseudoField),
        ),
        (
            frames(&[(1, &section(&[(":status", "200"), ("content-length", "1")]))]),
            message(MessageFault::ContentLength),
        ),
        (
            frames(&[(1, &section(&[(":status", "204")])), (0, b"x")]),
            message(MessageFault::ContentLength),
        ),
    ] {
        let mut client = client_with_request();
        let events = client.receive(0, &bytes, true).unwrap();
        assert!(
            matches!(events.last(), Some(H3Event::Malformed { fault: found, .. }) if *found == fault),
            "{fault:?} {events:?}"
        );
        assert_eq!(client.connection.open_streams(), 0);
    }
}

#[test]
fn input_of_a_closed_stream_is_dropped() {
    let mut server = Endpoint::connected();
    let mut rejected = Bytes::from(frames(&[(1, &get(&[("Upper", "1")])), (0, b"abc")]));
    assert!(matches!(
        server.connection.handle_stream(0, &mut rejected, true),
        Ok(H3Event::Malformed { .. })
    ));
    assert!(!rejected.is_empty());
    assert!(matches!(
        server.connection.handle_stream(0, &mut rejected, true),
        Ok(H3Event::Incomplete)
    ));
    assert!(rejected.is_empty());
    assert!(
        server
            .connection
            .handle_reset(0, H3ErrorCode(0))
            .unwrap()
            .is_none()
    );
}
