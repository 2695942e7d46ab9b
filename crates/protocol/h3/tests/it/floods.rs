//! Floods of what costs this end more than the peer (RFC 9114 section 10.5, RFC 9204 section 7.3).

use std::time::Duration;

use apus_h3::{Flood, H3Config, H3Error, H3ErrorCode, H3Event, LocalStream, OutgoingRequest};
use apus_http::Method;

use super::endpoint::{Endpoint, config, frames, get, integer, request_head, section};

/// How often `act` is possible before it is a flood.
fn count(mut act: impl FnMut(u64) -> Result<(), H3Error>) -> (u64, H3Error) {
    for round in 0..1_000_000 {
        if let Err(error) = act(round) {
            assert_eq!(error.code(), H3ErrorCode::EXCESSIVE_LOAD);
            return (round, error);
        }
    }
    panic!("there is no limit");
}

fn ignore<T>(result: Result<T, H3Error>) -> Result<(), H3Error> {
    result.map(|_| ())
}

#[test]
fn rapid_resets_are_stopped() {
    let code = H3ErrorCode::REQUEST_CANCELLED;
    let bytes = frames(&[(1, &get(&[]))]);
    // With and without a request before the reset.
    for has_head in [true, false] {
        let mut server = Endpoint::connected();
        let found = count(|round| {
            if has_head {
                server.receive(4 * round, &bytes, false)?;
            }
            ignore(server.connection.handle_reset(4 * round, code))
        });
        assert_eq!(found, (600, H3Error::Flood(Flood::Resets)));
    }
    let mut server = Endpoint::connected();
    let found = count(|round| {
        server.receive(4 * round, &bytes, true)?;
        ignore(server.connection.handle_stop_sending(4 * round, code))
    });
    assert_eq!(found, (600, H3Error::Flood(Flood::Resets)));
}

#[test]
fn completed_requests_and_time_offset_resets() {
    let mut server = Endpoint::connected();
    for round in 0..2000 {
        let stream = server.receives_request(8 * round, &get(&[]), true);
        server.responds(stream, 200, "", b"x");
        server.receives_request(8 * round + 4, &get(&[]), false);
        let reset = server
            .connection
            .handle_reset(8 * round + 4, H3ErrorCode(0));
        assert!(matches!(reset, Ok(Some(H3Event::Reset { .. }))));
    }
    let mut server = Endpoint::connected();
    for round in 0..2000_u64 {
        server
            .connection
            .advance(Duration::from_millis(100 * round));
        server.receives_request(4 * round, &get(&[]), false);
        let reset = server.connection.handle_reset(4 * round, H3ErrorCode(0));
        assert!(matches!(reset, Ok(Some(H3Event::Reset { .. }))));
    }
}

#[test]
fn repeated_malformed_and_rejected_requests_are_stopped() {
    let bytes = frames(&[(1, &get(&[("Upper", "1")]))]);
    let mut server = Endpoint::connected();
    let found = count(|round| ignore(server.receive(4 * round, &bytes, false)));
    assert_eq!(found, (600, H3Error::Flood(Flood::Resets)));
    let config = H3Config {
        max_concurrent_streams: 1,
        ..config()
    };
    let mut server = Endpoint::connected_with(config, &[]);
    server.receives_request(0, &get(&[]), true);
    let bytes = frames(&[(1, &get(&[]))]);
    let found = count(|round| ignore(server.receive(4 * round + 4, &bytes, true)));
    assert_eq!(found, (600, H3Error::Flood(Flood::Resets)));
}

#[test]
fn frames_without_data_are_stopped() {
    let overhead = H3Error::Flood(Flood::Overhead);
    let is_near = |(rounds, error): (u64, H3Error)| {
        assert_eq!(error, overhead);
        assert!((1_990..=2_010).contains(&rounds), "{rounds}");
    };
    for bytes in [frames(&[(0, b"")]), frames(&[(0x21, b"x")])] {
        let mut server = Endpoint::connected();
        server.receives_request(0, &get(&[]), false);
        is_near(count(|_| ignore(server.receive(0, &bytes, false))));
    }
    for bytes in [
        frames(&[(0x21, b"")]),
        frames(&[(0xd, &[1])]),
        frames(&[(7, &[0])]),
    ] {
        let mut server = Endpoint::connected();
        is_near(count(|_| ignore(server.receive(2, &bytes, false))));
    }
    // PRIORITY_UPDATE for streams that are not open.
    let mut server = Endpoint::connected();
    is_near(count(|round| {
        let mut payload = Vec::new();
        integer(4 * round, &mut payload);
        let bytes = frames(&[(0xf0700, &payload)]);
        ignore(server.receive(2, &bytes, false))
    }));
    // Streams of unknown types.
    let mut server = Endpoint::connected();
    is_near(count(|round| {
        ignore(server.receive(4 * round + 14, &[0x21], true))
    }));
    // Interim responses.
    let mut client = Endpoint::connected_client();
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    client
        .connection
        .send_request(0, head, true, &mut Vec::new())
        .unwrap();
    let bytes = frames(&[(1, &section(&[(":status", "103")]))]);
    is_near(count(|_| ignore(client.receive(0, &bytes, false))));
}

#[test]
fn a_large_control_frame_is_stopped() {
    for (len, is_flood) in [(4096, false), (4097, true)] {
        let mut server = Endpoint::connected();
        let mut payload = vec![0];
        payload.resize(len, b'a');
        let result = server.receive(2, &frames(&[(0xf0700, &payload)]), false);
        assert_eq!(result.is_err(), is_flood);
    }
}

#[test]
fn inserts_that_are_never_used_are_stopped() {
    let mut server = Endpoint::connected();
    server.receive(6, &[0x3f, 0xe1, 0x1f], false).unwrap();
    let found = count(|_| ignore(server.receive(6, b"\x41a\x011", false)));
    assert_eq!(found, (200, H3Error::Flood(Flood::Acks)));
    // With a request for each 16 of them, they are not.
    let mut server = Endpoint::connected();
    server.receive(6, &[0x3f, 0xe1, 0x1f], false).unwrap();
    for round in 0..100 {
        server.receives_request(4 * round, &get(&[]), true);
        for _ in 0..16 {
            server.receive(6, b"\x41a\x011", false).unwrap();
        }
    }
    // With a response for each 16 of them, they are not either.
    let mut client = Endpoint::connected_client();
    client.receive(7, &[0x3f, 0xe1, 0x1f], false).unwrap();
    let head = request_head(&Method::GET, "/", "host: a");
    let response = frames(&[(1, &section(&[(":status", "200")]))]);
    for round in 0..100 {
        let head = OutgoingRequest::of(&head, "https");
        client
            .connection
            .send_request(4 * round, head, true, &mut Vec::new())
            .unwrap();
        client.receive(4 * round, &response, true).unwrap();
        for _ in 0..16 {
            client.receive(7, b"\x41a\x011", false).unwrap();
        }
    }
}

/// The limits count decoded bytes: a reference of one byte to an entry of 4 KB.
#[test]
fn a_section_that_decompresses_to_megabytes_is_stopped() {
    let value = [b'x'; 4000];
    let mut insert = vec![0x3f, 0xe1, 0x1f, 0x41, b'a', 0x7f];
    insert.extend_from_slice(&[0xa1, 0x1e]);
    insert.extend_from_slice(&value);
    let head = [2, 0, 0xc0 | 17, 0xc0 | 23, 0xc0 | 1, 0x50, 1, b'a'];
    for (references, is_flood) in [(8, None), (9, Some(false)), (1000, Some(true))] {
        let mut server = Endpoint::connected();
        server.receive(6, &insert, false).unwrap();
        let section = [&head[..], &vec![0x80; references]].concat();
        let result = server.receive(0, &frames(&[(1, &section)]), true);
        match is_flood {
            None => assert!(matches!(result.unwrap()[..], [H3Event::Request(_)])),
            Some(false) => assert!(matches!(result.unwrap()[..], [H3Event::Refused { .. }])),
            Some(true) => assert_eq!(result.unwrap_err(), H3Error::Flood(Flood::FieldBlock)),
        }
    }
}

#[test]
fn a_field_section_has_at_most_twice_the_allowed_bytes() {
    for (len, is_flood) in [(65_536, false), (65_537, true)] {
        let mut server = Endpoint::connected();
        let mut start = vec![1];
        integer(len, &mut start);
        let result = server.receive(0, &start, false);
        assert_eq!(
            result.err(),
            is_flood.then_some(H3Error::Flood(Flood::FieldBlock))
        );
    }
}

/// 16 sections of the maximum size, of which each stream sends all but the last byte.
#[test]
fn sections_that_are_never_complete_are_stopped() {
    let mut server = Endpoint::connected();
    let mut part = vec![1];
    integer(65_536, &mut part);
    part.resize(part.len() + 65_535, 0);
    let found = count(|round| ignore(server.receive(4 * round, &part, false)));
    assert_eq!(found, (16, H3Error::Flood(Flood::FieldBlock)));
    // What a reset stream had sent does not count.
    let mut server = Endpoint::connected();
    for round in 0..100 {
        server.receive(4 * round, &part, false).unwrap();
        server
            .connection
            .handle_reset(4 * round, H3ErrorCode(0))
            .unwrap();
    }
}

#[test]
fn a_peer_that_reads_no_acknowledgements_is_stopped() {
    let mut server = Endpoint::connected();
    let (rounds, error) = count(|round| {
        let stream = server.receives_request(4 * round, &get(&[]), false);
        server.connection.abandon(stream);
        server.responds(stream, 200, "", b"x");
        ignore(server.receive(2, b"", false))
    });
    assert_eq!(error, H3Error::Flood(Flood::Acks));
    assert!(rounds > 10_000, "{rounds}");
    assert!(server.connection.output(LocalStream::QpackDecoder).len() < 65_600);
}
