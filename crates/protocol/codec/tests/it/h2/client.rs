//! Tests the client's end as a proxy uses it: never-indexed fields, unread responses, resets by the origin, tunnels.

use apus_codec::h2::hpack::HpackDecoder;
use apus_codec::h2::{Http2Event, OutgoingRequest};
use apus_codec::messages::RequestKind;
use apus_http::{Headers, Method, StatusCode};

use super::endpoint::*;

/// A literal that must never be indexed (RFC 7541 section 6.2.3).
fn never_indexed(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = block(&[(name, value)]);
    bytes[0] = 0x10;
    bytes
}

/// The fields of the HEADERS in `bytes`, and whether each must never be indexed.
fn fields_in(bytes: &[u8]) -> Vec<(String, bool)> {
    let mut fields = Vec::new();
    let mut decoder = HpackDecoder::new(4096);
    for (_, _, _, payload) in frames(bytes).iter().filter(|(kind, ..)| *kind == 1) {
        let note = |field: apus_codec::h2::hpack::Field<'_>| {
            let name = String::from_utf8_lossy(field.name).into_owned();
            fields.push((name, field.never_indexed));
        };
        decoder.decode(payload, note).unwrap();
    }
    fields
}

#[test]
fn never_indexed_fields_stay_never_indexed() {
    let mut server = Endpoint::connected(config());
    let bytes = [
        block(&GET),
        never_indexed("x-key", "a secret that is long enough to be worth an entry"),
        never_indexed("cookie", "a=long-enough-for-the-table-of-the-encoder"),
        block(&[("cookie", "b=1"), ("x-other", "1")]),
    ]
    .concat();
    let seen = server.receive(&one(1, 0x5, 1, &bytes)).unwrap();
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    let mut copied = Headers::new();
    copied.append_from(&request.head.headers, |_, _| true);
    let (mut client, _) = pair();
    // Repeated responses use the pre-encoded fields.
    for _ in 0..3 {
        let head = OutgoingRequest {
            headers: &copied,
            ..OutgoingRequest::of(&request.head, "https")
        };
        let sent = client.connection.send_request(head, true, &mut client.out);
        assert!(sent.is_some());
    }
    let fields = fields_in(&client.out);
    for (name, expected) in [("x-key", true), ("cookie", true), ("x-other", false)] {
        let lines = fields.iter().filter(|(field, _)| field == name);
        let never_indexed: Vec<bool> = lines.map(|(_, never)| *never).collect();
        assert_eq!(never_indexed, [expected; 3], "{name}");
    }
    let map = copied.to_header_map();
    assert!(map["x-key"].is_sensitive() && !map["x-other"].is_sensitive());
    let again = Headers::from(&map);
    let map = again.to_header_map();
    assert!(map["x-key"].is_sensitive() && !map["x-other"].is_sensitive());
}

#[test]
fn unread_responses_do_not_block_others() {
    let (mut client, mut server) = pair();
    let head = request("GET", "/", "host: a");
    let window = vec![0; 65_535];
    // The maximum number of streams.
    for _ in 0..config().max_concurrent_streams {
        let stream = client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
            .unwrap();
        let (_, seen) = exchange(&mut client, &mut server);
        let at_server = stream_of(&seen);
        let fields = Headers::new();
        let head = head_of(StatusCode::OK, &fields, None);
        server
            .connection
            .send_head(at_server, head, &mut server.out);
        server.sends(at_server, &window, false);
        let (seen, _) = exchange(&mut client, &mut server);
        let got: usize = seen.iter().map(|seen| seen.data.len()).sum();
        assert_eq!(got, window.len());
        assert!(client.connection.is_receiving(stream));
    }
    assert_eq!(client.connection.available_streams(), 0);
}

#[test]
fn an_origin_may_reset_every_stream() {
    let (mut client, _) = pair();
    let head = request("POST", "/", "host: a");
    for _ in 0..5000 {
        let stream = client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), false, &mut client.out)
            .unwrap();
        client.out.clear();
        let refused = one(3, 0, stream.id(), &7_u32.to_be_bytes());
        let seen = client.receive(&refused).unwrap();
        assert!(matches!(seen[0].event, Http2Event::Reset { .. }));
    }
}

#[test]
fn repeated_interim_responses_are_stopped() {
    let (mut client, _) = pair();
    let head = request("GET", "/", "host: a");
    let stream = client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
        .unwrap();
    let hints = headers_frame(stream.id(), false, &[(":status", "103")]);
    let stopped = (0..10_000).find_map(|_| client.receive(&hints).err());
    assert_eq!(
        stopped.map(|error| error.code()),
        Some(apus_codec::h2::ErrorCode::ENHANCE_YOUR_CALM)
    );
}

#[test]
fn opens_a_tunnel_if_the_server_allows_it() {
    let (mut client, mut server) = pair();
    assert!(client.connection.allows_extended_connect() && client.connection.has_peer_settings());
    let head = request("GET", "/chat", "host: a\nsec-websocket-version: 13");
    let connect = OutgoingRequest {
        protocol: Some("websocket"),
        ..OutgoingRequest::of(&head, "https")
    };
    let stream = client
        .connection
        .send_request(connect, false, &mut client.out)
        .unwrap();
    let (_, seen) = exchange(&mut client, &mut server);
    let Http2Event::Request(request) = &seen[0].event else {
        panic!("{seen:?}");
    };
    assert_eq!(request.kind, RequestKind::ExtendedConnect);
    assert_eq!(request.head.method, Method::GET);
    assert_eq!(
        request.head.hop_by_hop.upgrade.as_deref(),
        Some("websocket")
    );
    let at_server = request.stream;
    let fields = Headers::new();
    let head = head_of(StatusCode::SWITCHING_PROTOCOLS, &fields, None);
    server
        .connection
        .send_head(at_server, head, &mut server.out);
    server.sends(at_server, b"hello", false);
    client.sends(stream, b"hi", false);
    let (at_client, at_server) = exchange(&mut client, &mut server);
    assert!(matches!(
        at_client[0].event,
        Http2Event::Response {
            status: StatusCode::OK,
            end: false,
            ..
        }
    ));
    assert_eq!(
        (&*at_client[1].data, &*at_server[0].data),
        (&b"hello"[..], &b"hi"[..])
    );
}

#[test]
fn a_response_head_beyond_the_limit_resets_only_its_stream() {
    let (mut client, _) = pair();
    let head = request("GET", "/", "host: a");
    let stream = client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
        .unwrap();
    let large = "x".repeat(6000);
    let mut fields = vec![(":status", "200")];
    fields.resize(7, ("x-large", large.as_str()));
    let bytes = block(&fields);
    let (first, rest) = bytes.split_at(16_000);
    let mut input = one(1, 1, stream.id(), first);
    let (second, rest) = rest.split_at(16_000);
    input.extend(one(9, 0, stream.id(), second));
    input.extend(one(9, 4, stream.id(), rest));
    let seen = client.receive(&input).unwrap();
    assert!(matches!(
        seen[0].event,
        Http2Event::Malformed { stream: Some(known), fault: apus_codec::h2::Fault::HeadTooLarge } if known == stream
    ));
}
