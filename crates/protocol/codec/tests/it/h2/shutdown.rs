//! Tests graceful shutdown (RFC 9113 section 6.8), and PING.

use apus_codec::h2::{ErrorCode, Http2Event, OutgoingRequest};

use super::endpoint::*;

#[test]
fn a_graceful_shutdown_accepts_streams_in_flight() {
    let (mut client, mut server) = pair();
    let head = request("GET", "/", "host: a");
    server.connection.shut_down(&mut server.out);
    assert_eq!(goaways(&server.out), [(0x7fff_ffff, 0)]);
    // Sent before the client knows of the shutdown.
    client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
        .unwrap();
    let bytes = client.take_output();
    let key = stream_of(&server.receive(&bytes).unwrap());
    let bytes = server.take_output();
    let seen = client.receive(&bytes).unwrap();
    assert!(matches!(
        seen[0].event,
        Http2Event::GoAway {
            code: ErrorCode::NO_ERROR,
            ..
        }
    ));
    assert!(
        client
            .connection
            .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
            .is_none()
    );
    let bytes = client.take_output();
    server.receive(&bytes).unwrap();
    assert_eq!(goaways(&server.out), [(1, 0)]);
    assert!(!server.connection.is_finished());
    server.responds(key, 200, "", b"last");
    assert!(server.connection.is_finished());
    let (seen, _) = exchange(&mut client, &mut server);
    assert!(seen.iter().any(|seen| seen.data == b"last"));
    assert!(client.connection.is_finished());
}

#[test]
fn streams_after_the_last_one_are_refused() {
    let mut server = Endpoint::connected(config());
    server.receive(&headers_frame(1, true, &GET)).unwrap();
    server
        .connection
        .go_away(ErrorCode::NO_ERROR, &mut server.out);
    assert_eq!(goaways(&server.out), [(1, 0)]);
    for id in [3, 5] {
        assert!(
            server
                .receive(&headers_frame(id, true, &GET))
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(resets(&server.out), [(3, 7), (5, 7)]);
    // GOAWAY is sent once.
    server.connection.shut_down(&mut server.out);
    server
        .connection
        .go_away(ErrorCode::NO_ERROR, &mut server.out);
    assert_eq!(goaways(&server.out).len(), 1);
}

#[test]
fn a_ping_detects_whether_the_peer_is_alive() {
    let (mut client, mut server) = pair();
    server.connection.ping(&mut server.out);
    server.connection.ping(&mut server.out);
    assert_eq!(frames(&server.out).len(), 1);
    assert!(server.connection.awaits_ping_ack());
    exchange(&mut client, &mut server);
    assert!(!server.connection.awaits_ping_ack());
}

#[test]
fn an_acknowledgement_of_another_ping_is_ignored() {
    let mut server = Endpoint::connected(config());
    server.connection.ping(&mut server.out);
    server.receive(&one(6, 1, 0, &[0; 8])).unwrap();
    assert!(server.connection.awaits_ping_ack());
}

#[test]
fn a_connection_finishes_after_the_responses_to_a_closing_client() {
    let mut server = Endpoint::connected(config());
    let key = stream_of(&server.receive(&headers_frame(1, true, &GET)).unwrap());
    server.receive(&one(7, 0, 0, &[0; 8])).unwrap();
    assert!(server.connection.is_shutting_down() && !server.connection.is_finished());
    server.responds(key, 200, "", b"x");
    assert!(server.connection.is_finished());
}
