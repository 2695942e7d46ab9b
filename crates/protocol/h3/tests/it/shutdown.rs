//! The graceful shutdown of both ends (RFC 9114 section 5.2).

use apus_h3::{H3ErrorCode, H3Event, OutgoingRequest, RequestError, StreamAction};
use apus_http::Method;

use super::endpoint::{Endpoint, frames, get, request_head};
use super::messages::pair;

#[test]
fn a_server_accepts_requests_in_flight_until_the_last_goaway() {
    let (mut client, mut server) = pair();
    let first = server.receives_request(0, &get(&[]), true);
    server.connection.shut_down();
    server.connection.shut_down();
    let events = server.deliver(&mut client, 3);
    assert!(matches!(events[..], [H3Event::GoAway { id }] if id == (1 << 62) - 4));
    assert!(client.connection.is_shutting_down());
    let head = request_head(&Method::GET, "/", "host: a");
    let head = OutgoingRequest::of(&head, "https");
    assert_eq!(
        client
            .connection
            .send_request(0, head, true, &mut Vec::new()),
        Err(RequestError::ShuttingDown)
    );
    // A request that was in flight, after one that is lost.
    let second = server.receives_request(8, &get(&[]), true);
    server.connection.go_away();
    server.connection.go_away();
    let events = server.deliver(&mut client, 3);
    assert!(matches!(events[..], [H3Event::GoAway { id: 12 }]));

    let late = frames(&[(1, &get(&[]))]);
    assert!(server.receive(12, &late, true).unwrap().is_empty());
    let code = H3ErrorCode::REQUEST_REJECTED;
    assert_eq!(
        server.actions,
        [
            StreamAction::StopSending { id: 12, code },
            StreamAction::Reset { id: 12, code }
        ]
    );
    for stream in [first, second] {
        assert!(!server.connection.is_finished());
        server.responds(stream, 200, "", b"x");
    }
    // The lost one was accepted, too: the connection waits for it.
    assert!(!server.connection.is_finished());
    let third = server.receives_request(4, &get(&[]), true);
    assert!(!server.connection.is_finished());
    server.responds(third, 200, "", b"x");
    assert!(server.connection.is_finished());
    assert!(client.connection.is_finished());
}

#[test]
fn a_server_without_requests_rejects_the_first_one() {
    let mut server = Endpoint::connected();
    server.connection.go_away();
    assert!(server.connection.is_finished());
    let late = frames(&[(1, &get(&[]))]);
    assert!(server.receive(0, &late, true).unwrap().is_empty());
    assert_eq!(server.actions.len(), 2);
}

#[test]
fn a_connection_finishes_after_the_responses_to_a_closing_client() {
    let (mut client, mut server) = pair();
    let stream = server.receives_request(0, &get(&[]), true);
    client.connection.shut_down();
    assert!(client.connection.is_finished());
    let events = client.deliver(&mut server, 2);
    assert!(matches!(events[..], [H3Event::GoAway { id: 0 }]));
    assert!(server.connection.is_shutting_down() && !server.connection.is_finished());
    server.responds(stream, 200, "", b"x");
    assert!(server.connection.is_finished());
    server.connection.release_memory();
}
