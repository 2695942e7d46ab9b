//! Tests flow control (RFC 9113 sections 5.2 and 6.9).

use apus_codec::h2::{ConnectionError, ErrorCode, Fault, Http2Event, OutgoingRequest};

use super::endpoint::*;

const WINDOW: usize = 65_535;

/// A server with an open response on stream 1, whose client sets this window for streams.
fn with_requests(window: u32) -> (Endpoint, apus_codec::h2::StreamKey) {
    let mut server = Endpoint::connected(config());
    let mut setting = vec![0, 4];
    setting.extend_from_slice(&window.to_be_bytes());
    let mut bytes = one(4, 0, 0, &setting);
    bytes.extend(headers_frame(1, true, &GET));
    let key = stream_of(&server.receive(&bytes).unwrap());
    let fields = headers("");
    let head = head_of(apus_http::StatusCode::OK, &fields, None);
    server.connection.send_head(key, head, &mut server.out);
    (server, key)
}

/// Sends as much as the windows allow. Returns how many bytes.
fn send_all(server: &mut Endpoint, key: apus_codec::h2::StreamKey) -> usize {
    let mut sent = 0;
    loop {
        server.connection.want_send(key);
        let Some((_, most)) = server.connection.next_send() else {
            return sent;
        };
        server
            .connection
            .send_data(key, most, false, &mut server.out)
            .unwrap();
        sent += most;
    }
}

#[test]
fn sends_exactly_what_the_windows_allow() {
    let (mut server, key) = with_requests(1000);
    assert_eq!(send_all(&mut server, key), 1000);
    assert!(server.connection.is_stalled(key));
    server.receive(&one(8, 0, 1, &[0, 0, 0, 10])).unwrap();
    assert_eq!(send_all(&mut server, key), 10);
    let (mut server, key) = with_requests(1 << 20);
    assert_eq!(send_all(&mut server, key), WINDOW);
    assert!(server.connection.is_stalled(key));
    server.receive(&one(8, 0, 0, &[0, 0, 0, 10])).unwrap();
    assert_eq!(send_all(&mut server, key), 10);
}

#[test]
fn settings_change_windows_even_below_zero() {
    let (mut server, key) = with_requests(1000);
    assert_eq!(send_all(&mut server, key), 1000);
    // 500 bytes less, so that the window becomes negative by 500.
    server
        .receive(&one(4, 0, 0, &[0, 4, 0, 0, 1, 244]))
        .unwrap();
    server.receive(&one(8, 0, 1, &[0, 0, 1, 244])).unwrap();
    assert_eq!(send_all(&mut server, key), 0);
    server.receive(&one(8, 0, 1, &[0, 0, 0, 1])).unwrap();
    assert_eq!(send_all(&mut server, key), 1);
    server
        .receive(&one(4, 0, 0, &[0, 4, 0, 0, 3, 232]))
        .unwrap();
    assert_eq!(send_all(&mut server, key), 500);
}

#[test]
fn respects_a_window_that_closes_while_its_stream_is_scheduled() {
    let (mut server, key) = with_requests(1000);
    server.connection.want_send(key);
    server.receive(&one(4, 0, 0, &[0, 4, 0, 0, 0, 0])).unwrap();
    assert!(server.connection.next_send().is_none());
    assert!(server.connection.is_stalled(key));
    server.receive(&one(8, 0, 1, &[0, 0, 0, 7])).unwrap();
    assert_eq!(server.connection.next_send(), Some((key, 7)));
}

#[test]
fn rejects_data_beyond_the_window() {
    let mut server = Endpoint::connected(config());
    server.receive(&headers_frame(1, false, &POST)).unwrap();
    for _ in 0..4 {
        server.receive(&one(0, 0, 1, &[0; 16_383])).unwrap();
    }
    server.receive(&one(0, 0, 1, &[0; 3])).unwrap();
    let error = server.receive(&one(0, 0, 1, &[0])).unwrap_err();
    assert_eq!(error, ConnectionError::Protocol(Fault::WindowExceeded));
    // The connection's, over many streams.
    let mut server = Endpoint::connected(config());
    for id in [1, 3, 5, 7, 9] {
        server.receive(&headers_frame(id, false, &POST)).unwrap();
    }
    for id in [1, 3, 5, 7] {
        for _ in 0..4 {
            server.receive(&one(0, 0, id, &[0; 16_383])).unwrap();
        }
        server.receive(&one(0, 0, id, &[0; 3])).unwrap();
    }
    let error = server.receive(&one(0, 0, 9, &[0])).unwrap_err();
    assert_eq!(error, ConnectionError::Protocol(Fault::WindowExceeded));
}

#[test]
fn opens_windows_only_for_consumed_data() {
    let mut server = Endpoint::connected(config());
    let key = stream_of(&server.receive(&headers_frame(1, false, &POST)).unwrap());
    for _ in 0..3 {
        server.receive(&one(0, 0, 1, &[0; 16_384])).unwrap();
    }
    assert_eq!(updates(&server.out), []);
    server.connection.consumed(key, 30_000, &mut server.out);
    assert_eq!(updates(&server.out), []);
    server.connection.consumed(key, 10_000, &mut server.out);
    assert_eq!(updates(&server.out), [(1, 40_000)]);
    // Only received bytes count as consumed.
    server.connection.consumed(key, 1 << 20, &mut server.out);
    assert_eq!(updates(&server.out), [(1, 40_000)]);
}

#[test]
fn unread_data_of_closed_streams_opens_the_connection_window() {
    let mut server = Endpoint::connected(config());
    for id in [1, 3, 5] {
        let key = stream_of(&server.receive(&headers_frame(id, false, &POST)).unwrap());
        for _ in 0..4 {
            server.receive(&one(0, 0, id, &[0; 16_383])).unwrap();
        }
        match id {
            1 => server
                .connection
                .reset(key, ErrorCode::CANCEL, &mut server.out),
            3 => drop(server.receive(&one(3, 0, 3, &[0; 4])).unwrap()),
            _ => {}
        }
        server.connection.consumed(key, 16_383, &mut server.out);
    }
    let given: u32 = updates(&server.out)
        .into_iter()
        .filter(|(stream, _)| *stream == 0)
        .map(|(_, increment)| increment)
        .sum();
    // The first two are released completely, and the third up to less than half a window.
    assert!(given >= 8 * 16_383, "{given}");
    assert!(given <= 9 * 16_383, "{given}");
}

#[test]
fn releases_padding_without_the_caller() {
    let mut server = Endpoint::connected(config());
    let mut padded = vec![255];
    padded.resize(257, 0);
    // A stream window of frames with one byte of data and padding.
    for id in [1, 3, 5] {
        let key = server.receive(&headers_frame(id, false, &POST)).unwrap();
        let key = stream_of(&key);
        for _ in 0..255 {
            let seen = server.receive(&one(0, 8, id, &padded)).unwrap();
            assert_eq!(seen[0].data.len(), 1);
            server.connection.consumed(key, 1, &mut server.out);
        }
        assert!(updates(&server.out).iter().any(|(stream, _)| *stream == id));
    }
    assert!(updates(&server.out).iter().any(|(stream, _)| *stream == 0));
}

#[test]
fn releases_padding_without_data() {
    let mut server = Endpoint::connected(config());
    server.receive(&headers_frame(1, false, &POST)).unwrap();
    let mut padding = vec![255];
    padding.resize(256, 0);
    for _ in 0..1000 {
        server.receive(&one(0, 8, 1, &padding)).unwrap();
    }
    let given: u32 = updates(&server.out)
        .into_iter()
        .filter(|(stream, _)| *stream == 1)
        .map(|(_, increment)| increment)
        .sum();
    assert!(given >= 1000 * 256 - 65_535, "{given}");
}

#[test]
fn windows_grow_for_a_fast_reader() {
    let (mut client, mut server) = pair();
    let head = request("POST", "/", "host: a");
    let stream = client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), false, &mut client.out)
        .unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    let key = stream_of(&seen);
    let mut largest = 0;
    for _ in 0..50 {
        let mut sent = 0;
        loop {
            client.connection.want_send(stream);
            let Some((_, most)) = client.connection.next_send() else {
                break;
            };
            client
                .connection
                .send_data(stream, most, false, &mut client.out)
                .unwrap();
            // Half a gigabyte in all: byte by byte, it takes ten seconds without optimisation.
            client.out.resize(client.out.len() + most, 0);
            sent += most;
        }
        largest = largest.max(sent);
        let bytes = client.take_output();
        for seen in server.receive(&bytes).unwrap() {
            if let Http2Event::Data { stream, .. } = seen.event {
                assert_eq!(stream, key);
                server
                    .connection
                    .consumed(key, seen.data.len(), &mut server.out);
            }
        }
        exchange(&mut client, &mut server);
    }
    assert!(largest > 4 << 20, "{largest}");
    assert!(largest <= 16 << 20, "{largest}");
}
