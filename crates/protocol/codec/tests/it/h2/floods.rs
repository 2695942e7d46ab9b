//! Tests that the flood budgets stop attacks and not legitimate peers.

use std::time::Duration;

use apus_codec::h2::{ConnectionError, Flood, Http2Codec, Http2Event, OutgoingRequest};

use super::endpoint::*;

/// Passes the input of `attack` until the server closes the connection. Returns the reason, and the number of
/// rounds.
fn stopped(
    server: &mut Endpoint,
    mut attack: impl FnMut(&mut Endpoint, u32) -> Vec<u8>,
) -> (Flood, u32) {
    for round in 0..100_000 {
        let bytes = attack(server, round);
        server.out.clear();
        match server.receive(&bytes) {
            Ok(_) => {}
            Err(ConnectionError::Flood(flood)) => {
                assert_eq!(goaways(&server.out).last().unwrap().1, 11);
                return (flood, round);
            }
            Err(error) => panic!("{error}"),
        }
    }
    panic!("never stopped");
}

fn stream(round: u32) -> u32 {
    round * 2 + 1
}

#[test]
fn cve_2023_44487_rapid_reset_is_stopped() {
    let mut server = Endpoint::connected(config());
    let (flood, rounds) = stopped(&mut server, |_, round| {
        let mut bytes = headers_frame(stream(round), true, &GET);
        frame(0x3, 0, stream(round), &[0, 0, 0, 8], &mut bytes);
        bytes
    });
    assert_eq!(flood, Flood::Resets);
    assert!(rounds < 1000, "{rounds}");
}

#[test]
fn cve_2025_8671_provoked_resets_are_stopped() {
    type Fault = fn(u32, &mut Vec<u8>);
    let faults: [(&str, Fault); 6] = [
        ("window update of 0", |id, out| {
            frame(8, 0, id, &[0; 4], out)
        }),
        ("window overflow", |id, out| {
            frame(8, 0, id, &[0x7f, 255, 255, 255], out);
        }),
        ("DATA after the end", |id, out| frame(0, 0, id, b"x", out)),
        ("HEADERS after the end", |id, out| {
            out.extend(headers_frame(id, true, &GET));
        }),
        ("PRIORITY of 4", |id, out| frame(2, 0, id, &[0; 4], out)),
        ("PRIORITY on itself", |id, out| {
            let [a, b, c, d] = id.to_be_bytes();
            frame(2, 0, id, &[a, b, c, d, 0], out);
        }),
    ];
    for (name, fault) in faults {
        let mut server = Endpoint::connected(config());
        let (flood, rounds) = stopped(&mut server, |_, round| {
            let mut bytes = headers_frame(stream(round), true, &GET);
            fault(stream(round), &mut bytes);
            bytes
        });
        assert_eq!(flood, Flood::Resets, "{name}");
        assert!(rounds < 1000, "{name}: {rounds}");
    }
}

#[test]
fn repeated_malformed_requests_are_stopped() {
    let mut server = Endpoint::connected(config());
    let (flood, _) = stopped(&mut server, |_, round| {
        headers_frame(stream(round), true, &[("X", "y")])
    });
    assert_eq!(flood, Flood::Resets);
}

#[test]
fn streams_beyond_the_limit_are_refused_and_then_stopped() {
    let mut server = Endpoint::connected(config());
    let mut refused = 0;
    let (flood, rounds) = stopped(&mut server, |server, round| {
        refused += resets(&server.out).len();
        assert!(server.connection.open_streams() <= 256);
        headers_frame(stream(round), true, &GET)
    });
    assert_eq!(
        (flood, server.connection.open_streams()),
        (Flood::Resets, 256)
    );
    assert!(refused > 100 && rounds < 1500, "{refused} of {rounds}");
}

#[test]
fn cve_2024_27316_continuation_flood_is_stopped() {
    let mut server = Endpoint::connected(config());
    server.receive(&one(0x1, 0x1, 1, &block(&GET))).unwrap();
    let (flood, rounds) = stopped(&mut server, |_, _| one(0x9, 0, 1, b""));
    assert_eq!(flood, Flood::FieldBlock);
    assert!(rounds < 100);
    let mut server = Endpoint::connected(config());
    server.receive(&one(0x1, 0x1, 1, &block(&GET))).unwrap();
    let large = block(&[("x", &"y".repeat(16_000))]);
    let (flood, rounds) = stopped(&mut server, |_, _| one(0x9, 0, 1, &large));
    assert_eq!(flood, Flood::FieldBlock);
    assert!(rounds < 10);
}

#[test]
fn cve_2016_6581_hpack_bomb_is_stopped() {
    let mut server = Endpoint::connected(config());
    // One entry fills the table, and each further byte refers to it.
    let mut bomb = vec![0x40, 1, b'x', 0x7f, 0xc1, 0x1e];
    bomb.extend(std::iter::repeat_n(b'y', 127 + 0x41 + (0x1e << 7)));
    bomb.extend(std::iter::repeat_n(0xbe, 12_000));
    assert!(bomb.len() < 16_384);
    let error = server.receive(&one(0x1, 0x5, 1, &bomb)).unwrap_err();
    assert_eq!(error, ConnectionError::Flood(Flood::FieldBlock));
}

#[test]
fn floods_of_frames_are_stopped() {
    for (name, open, bytes, flood) in [
        (
            "CVE-2019-9512, PING",
            true,
            one(6, 0, 0, &[0; 8]),
            Flood::Acks,
        ),
        (
            "CVE-2019-9515, SETTINGS",
            true,
            one(4, 0, 0, b""),
            Flood::Acks,
        ),
        (
            "CVE-2019-9518, empty DATA",
            false,
            one(0, 0, 1, b""),
            Flood::Overhead,
        ),
        (
            "padding only",
            false,
            one(0, 8, 1, &[1, 0]),
            Flood::Overhead,
        ),
        (
            "CVE-2019-9513, PRIORITY",
            true,
            one(2, 0, 1, &[0; 5]),
            Flood::Overhead,
        ),
        (
            "PRIORITY_UPDATE",
            true,
            one(16, 0, 0, b"\0\0\0\x01u=1"),
            Flood::Overhead,
        ),
        (
            "WINDOW_UPDATE",
            true,
            one(8, 0, 1, &[0, 0, 0, 1]),
            Flood::Overhead,
        ),
        ("unknown", true, one(0xee, 0, 1, b"x"), Flood::Overhead),
        (
            "unsolicited PING acknowledgements",
            true,
            one(6, 1, 0, &[1; 8]),
            Flood::Overhead,
        ),
        ("GOAWAY", true, one(7, 0, 0, &[0; 8]), Flood::Overhead),
    ] {
        let mut server = Endpoint::connected(config());
        server.receive(&headers_frame(1, open, &POST)).unwrap();
        let (seen, rounds) = stopped(&mut server, |_, _| bytes.clone());
        assert_eq!(seen, flood, "{name}");
        assert!(rounds < 3000, "{name}: {rounds}");
    }
}

#[test]
fn empty_frames_on_a_stream_that_the_server_reset_are_stopped() {
    for (name, bytes) in [
        ("empty DATA", one(0, 0, 1, b"")),
        ("empty DATA with END_STREAM", one(0, 1, 1, b"")),
        ("padding with END_STREAM", one(0, 9, 1, &[1, 0])),
        ("HEADERS", headers_frame(1, false, &[("x", "y")])),
        ("trailers", headers_frame(1, true, &[("x", "y")])),
    ] {
        let mut server = Endpoint::connected(config());
        let key = stream_of(&server.receive(&headers_frame(1, false, &POST)).unwrap());
        let code = apus_codec::h2::ErrorCode::CANCEL;
        server.connection.reset(key, code, &mut server.out);
        let (flood, rounds) = stopped(&mut server, |_, _| bytes.clone());
        assert_eq!(flood, Flood::Overhead, "{name}");
        assert!(rounds < 3000, "{name}: {rounds}");
    }
}

#[test]
fn a_client_may_end_each_stream_that_the_server_reset() {
    let mut server = Endpoint::connected(config());
    for round in 0..10_000 {
        let bytes = headers_frame(stream(round), false, &POST);
        let key = stream_of(&server.receive(&bytes).unwrap());
        let code = apus_codec::h2::ErrorCode::NO_ERROR;
        server.connection.reset(key, code, &mut server.out);
        server.out.clear();
        // An empty frame before the trailers, as some clients send them.
        server.receive(&one(0, 0, stream(round), b"")).unwrap();
        let trailers = headers_frame(stream(round), true, &[("x", "y")]);
        server.receive(&trailers).unwrap();
    }
}

#[test]
fn an_origin_may_finish_streams_that_the_client_reset() {
    let (mut client, _) = pair();
    let head = request("GET", "/", "host: a");
    for _ in 0..10_000 {
        let key = client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
            .unwrap();
        let code = apus_codec::h2::ErrorCode::CANCEL;
        client.connection.reset(key, code, &mut client.out);
        client.out.clear();
        let status = [(":status", "200")];
        client
            .receive(&headers_frame(key.id(), false, &status))
            .unwrap();
        client.receive(&one(0, 0, key.id(), b"x")).unwrap();
        client
            .receive(&headers_frame(key.id(), true, &[("x", "y")]))
            .unwrap();
    }
}

#[test]
fn cve_2019_9516_fields_without_a_name_are_stopped() {
    let mut server = Endpoint::connected(config());
    let (flood, _) = stopped(&mut server, |_, round| {
        headers_frame(stream(round), false, &[("", ""), ("", "")])
    });
    assert_eq!(flood, Flood::Resets);
}

#[test]
fn cve_2019_9511_windows_of_one_byte_are_stopped() {
    let mut server = Endpoint::connected(config());
    let mut bytes = one(4, 0, 0, &[0, 4, 0, 0, 0, 0]);
    bytes.extend(headers_frame(1, true, &GET));
    let seen = server.receive(&bytes).unwrap();
    let key = stream_of(&seen);
    let fields = headers("");
    let head = head_of(apus_http::StatusCode::OK, &fields, Some(1 << 20));
    server.connection.send_head(key, head, &mut server.out);
    for round in 0.. {
        assert!(round < 1000, "never stopped");
        server.connection.want_send(key);
        assert!(server.connection.next_send().is_none());
        assert!(server.connection.is_stalled(key));
        server.receive(&one(8, 0, 1, &[0, 0, 0, 1])).unwrap();
        assert_eq!(server.connection.next_send(), Some((key, 1)));
        let sent = server.connection.send_data(key, 1, false, &mut server.out);
        server.out.push(b'x');
        match sent {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error, ConnectionError::Flood(Flood::TinyWindows));
                break;
            }
        }
    }
}

#[test]
fn a_browser_that_leaves_a_page_is_not_stopped() {
    let mut server = Endpoint::connected(config());
    for page in 0..20_u32 {
        server
            .connection
            .advance(Duration::from_secs(u64::from(page) * 10));
        let ids = (0..200).map(|request| stream(page * 200 + request));
        for id in ids.clone() {
            server.receive(&headers_frame(id, true, &GET)).unwrap();
        }
        for id in ids {
            server.receive(&one(3, 0, id, &[0, 0, 0, 8])).unwrap();
        }
    }
}

#[test]
fn frames_that_accompany_data_are_not_stopped() {
    let mut server = Endpoint::connected(config());
    let key = stream_of(&server.receive(&headers_frame(1, true, &GET)).unwrap());
    let fields = headers("");
    let head = head_of(apus_http::StatusCode::OK, &fields, None);
    server.connection.send_head(key, head, &mut server.out);
    for _ in 0..20_000 {
        server.sends(key, &[0; 8192], false);
        server.out.clear();
        // A client that sends a WINDOW_UPDATE and a PING for each kilobyte.
        for _ in 0..8 {
            server.receive(&one(8, 0, 0, &[0, 0, 4, 0])).unwrap();
            server.receive(&one(8, 0, 1, &[0, 0, 4, 0])).unwrap();
        }
        server.receive(&one(6, 0, 0, &[0; 8])).unwrap();
    }
}

#[test]
fn completed_requests_offset_resets() {
    let mut server = Endpoint::connected(config());
    for round in 0..10_000 {
        let (completed, reset) = (stream(round * 2), stream(round * 2 + 1));
        let key = stream_of(
            &server
                .receive(&headers_frame(completed, true, &GET))
                .unwrap(),
        );
        server.responds(key, 200, "", b"x");
        server.receive(&one(8, 0, 0, &[0, 0, 0, 1])).unwrap();
        server.receive(&headers_frame(reset, true, &GET)).unwrap();
        let seen = server.receive(&one(3, 0, reset, &[0, 0, 0, 8])).unwrap();
        assert!(matches!(seen[0].event, Http2Event::Reset { .. }));
        server.out.clear();
    }
}

#[test]
fn an_idle_connection_is_small() {
    assert!(
        size_of::<Http2Codec>() <= 1536,
        "{}",
        size_of::<Http2Codec>()
    );
}
