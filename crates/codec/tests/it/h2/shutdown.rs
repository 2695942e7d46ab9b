//! The end of a connection (RFC 9113 section 6.8), and PING.

use apus_codec::h2::{ErrorCode, Event, OutgoingRequest};

use super::ends::*;

#[test]
fn a_graceful_end_takes_what_was_on_its_way() {
    let (mut client, mut server) = pair();
    let head = request("GET", "/", "host: a");
    server.connection.shut_down(&mut server.out);
    assert_eq!(goaways(&server.out), [(0x7fff_ffff, 0)]);
    // Sent before the client knows.
    client
        .connection
        .send_request(OutgoingRequest::of(&head, "https"), true, &mut client.out)
        .unwrap();
    let bytes = client.said();
    let key = stream_of(&server.takes(&bytes).unwrap());
    let bytes = server.said();
    let seen = client.takes(&bytes).unwrap();
    assert!(matches!(
        seen[0].event,
        Event::GoAway {
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
    let bytes = client.said();
    server.takes(&bytes).unwrap();
    assert_eq!(goaways(&server.out), [(1, 0)]);
    assert!(!server.connection.is_finished());
    server.answers(key, 200, "", b"last");
    assert!(server.connection.is_finished());
    let (seen, _) = exchange(&mut client, &mut server);
    assert!(seen.iter().any(|seen| seen.data == b"last"));
    assert!(client.connection.is_finished());
}

#[test]
fn streams_past_the_last_are_refused() {
    let mut server = End::greeted(config());
    server.takes(&headers_frame(1, true, &GET)).unwrap();
    server
        .connection
        .go_away(ErrorCode::NO_ERROR, &mut server.out);
    assert_eq!(goaways(&server.out), [(1, 0)]);
    for id in [3, 5] {
        assert!(
            server
                .takes(&headers_frame(id, true, &GET))
                .unwrap()
                .is_empty()
        );
    }
    assert_eq!(resets(&server.out), [(3, 7), (5, 7)]);
    // It is said once.
    server.connection.shut_down(&mut server.out);
    server
        .connection
        .go_away(ErrorCode::NO_ERROR, &mut server.out);
    assert_eq!(goaways(&server.out).len(), 1);
}

#[test]
fn a_ping_shows_whether_the_peer_is_there() {
    let (mut client, mut server) = pair();
    server.connection.ping(&mut server.out);
    server.connection.ping(&mut server.out);
    assert_eq!(frames(&server.out).len(), 1);
    assert!(server.connection.awaits_pong());
    exchange(&mut client, &mut server);
    assert!(!server.connection.awaits_pong());
}

#[test]
fn an_answer_to_another_ping_is_none() {
    let mut server = End::greeted(config());
    server.connection.ping(&mut server.out);
    server.takes(&one(6, 1, 0, &[0; 8])).unwrap();
    assert!(server.connection.awaits_pong());
}

#[test]
fn a_client_that_says_goodbye_is_let_go_after_its_answers() {
    let mut server = End::greeted(config());
    let key = stream_of(&server.takes(&headers_frame(1, true, &GET)).unwrap());
    server.takes(&one(7, 0, 0, &[0; 8])).unwrap();
    assert!(server.connection.is_ending() && !server.connection.is_finished());
    server.answers(key, 200, "", b"x");
    assert!(server.connection.is_finished());
}
