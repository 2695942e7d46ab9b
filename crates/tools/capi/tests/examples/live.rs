//! Examples of live connections: Server-Sent Events and a chat over WebSocket.

use std::io::{BufReader, Write};

use apus_testkit::wait_until;

use crate::harness::{C, Server, WebSocket, curl, line_with};

#[test]
fn events_reach_every_client_until_it_leaves() {
    let server = Server::start("sse.c", C, &[]);
    let open = || {
        let mut client = server.connect();
        client
            .write_all(b"GET /events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n")
            .unwrap();
        let mut reader = BufReader::new(client);
        line_with(&mut reader, "200 OK");
        line_with(&mut reader, "text/event-stream");
        reader
    };
    let (mut one, mut other) = (open(), open());
    for reader in [&mut one, &mut other] {
        line_with(reader, "event: tick");
        let first = line_with(reader, "data: ");
        line_with(reader, "event: tick");
        let second = line_with(reader, "data: ");
        assert!(number(&second) > number(&first), "{first} {second}");
    }
    drop(one);
    wait_until("the server to notice", || {
        server.log().contains("a client left")
    });
    line_with(&mut other, "event: tick");
    server.stop();
}

fn number(line: &str) -> u64 {
    line.trim().strip_prefix("data: ").unwrap().parse().unwrap()
}

#[test]
fn chat_sends_messages_to_all_in_the_room() {
    let server = Server::start("chat.c", C, &[]);
    assert!(server.get("/").text().contains("new WebSocket"));
    let mut ada = WebSocket::open(&server, "/rooms/swifts?name=Ada");
    assert_eq!(ada.receive(), "Ada is here");
    let mut alan = WebSocket::open(&server, "/rooms/swifts?name=Alan");
    assert_eq!(ada.receive(), "Alan is here");
    assert_eq!(alan.receive(), "Alan is here");
    let mut other = WebSocket::open(&server, "/rooms/martins?name=Barbara");
    assert_eq!(other.receive(), "Barbara is here");
    alan.send("Grüße");
    assert_eq!(ada.receive(), "Alan: Grüße");
    assert_eq!(alan.receive(), "Alan: Grüße");
    alan.close();
    assert_eq!(ada.receive(), "Alan is gone");
    other.send("alone");
    assert_eq!(other.receive(), "Barbara: alone");
    assert_eq!(curl(&[&server.url("/rooms/swifts")]).status, 426);
    server.stop();
}

#[test]
fn chat_notices_clients_that_vanish() {
    let server = Server::start("chat.c", C, &[]);
    let mut ada = WebSocket::open(&server, "/rooms/swifts?name=Ada");
    assert_eq!(ada.receive(), "Ada is here");
    drop(WebSocket::open(&server, "/rooms/swifts?name=Alan"));
    assert_eq!(ada.receive(), "Alan is here");
    assert_eq!(ada.receive(), "Alan is gone");
    server.stop();
}
