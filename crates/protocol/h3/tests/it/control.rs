//! The unidirectional streams of both ends (RFC 9114 sections 6.2 and 7.2.4).

use apus_h3::{H3Config, H3ErrorCode, H3Event, LocalStream, StreamAction};
use bytes::Bytes;

use super::endpoint::{Endpoint, config, frame, frames, get, integer, integers};

#[test]
fn the_local_streams_begin_with_their_type() {
    for mut end in [Endpoint::server(config()), Endpoint::client(config())] {
        let [control, encoder, decoder] = end.take_output();
        assert_eq!((&encoder[..], &decoder[..]), (&[2][..], &[3][..]));
        assert_eq!(control[..2], [0, 4]);
        assert_eq!(usize::from(control[2]), control.len() - 3);
        for setting in [
            &integers(&[1, 4096])[..],
            &integers(&[6, 32 * 1024]),
            &integers(&[7, 16]),
        ] {
            assert!(control.windows(setting.len()).any(|part| part == setting));
        }
    }
}

#[test]
fn only_a_server_that_wants_it_offers_extended_connect() {
    for (end, value) in [
        (Endpoint::server(config()), 1),
        (Endpoint::client(config()), 0),
        (
            Endpoint::server(H3Config {
                extended_connect: false,
                ..config()
            }),
            0,
        ),
    ] {
        let mut end = end;
        let [control, ..] = end.take_output();
        assert!(
            control.windows(2).any(|part| part == [8, value]),
            "{control:x?}"
        );
    }
}

#[test]
fn settings_may_come_byte_by_byte_and_with_a_long_stream_type() {
    let mut control = vec![0xc0, 0, 0, 0, 0, 0, 0, 0];
    frame(4, &integers(&[1, 100, 0x40, 9]), &mut control);
    let mut server = Endpoint::server(config());
    let events = server.receive_bytewise(2, &control, false).unwrap();
    assert!(matches!(events[..], [H3Event::Settings]));
    assert!(server.connection.has_peer_settings());
}

#[test]
fn streams_of_unknown_types_are_stopped_and_ignored() {
    let mut server = Endpoint::connected();
    let mut bytes = Vec::new();
    integer(0x1f * 7 + 0x21, &mut bytes);
    bytes.extend_from_slice(b"anything");
    for byte in &bytes {
        assert!(server.receive(14, &[*byte], false).unwrap().is_empty());
    }
    let code = H3ErrorCode::STREAM_CREATION_ERROR;
    assert_eq!(server.actions, [StreamAction::StopSending { id: 14, code }]);
    assert!(server.receive(14, b"more", true).unwrap().is_empty());
    // A stream that ends before its type is no error.
    assert!(server.receive(18, &[0x40], true).unwrap().is_empty());
    server.receives_request(0, &get(&[]), true);
}

#[test]
fn requests_may_come_before_the_settings() {
    let mut server = Endpoint::server(config());
    assert!(!server.connection.has_peer_settings());
    let stream = server.receives_request(0, &get(&[]), true);
    server.responds(stream, 200, "", b"x");
    let mut control = vec![0];
    frame(4, b"", &mut control);
    server.receive(2, &control, false).unwrap();
    assert!(server.connection.has_peer_settings());
}

#[test]
fn output_stays_until_it_is_removed() {
    let mut server = Endpoint::server(config());
    let len = server.connection.output(LocalStream::Control).len();
    server.connection.output(LocalStream::Control).drain(..1);
    assert_eq!(
        server.connection.output(LocalStream::Control).len(),
        len - 1
    );
}

#[test]
fn input_of_a_stream_of_this_end_is_dropped() {
    let mut server = Endpoint::connected();
    assert!(server.receive(3, b"anything", true).unwrap().is_empty());
    server.receives_request(0, &get(&[]), true);
}

#[test]
fn an_allowed_push_identifier_is_not_used() {
    let mut server = Endpoint::connected();
    let bytes = frames(&[(0xd, &[1]), (0xd, &[1]), (0xd, &[7])]);
    assert!(server.receive(2, &bytes, false).unwrap().is_empty());
    let mut input = Bytes::from(frames(&[(7, &[7]), (7, &[3])]));
    for id in [7, 3] {
        let event = server.connection.handle_stream(2, &mut input, false);
        assert!(matches!(event, Ok(H3Event::GoAway { id: found }) if found == id));
    }
}
