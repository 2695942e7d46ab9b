//! The chat over real sockets.

use apus::testing::{TestServer, TestSocket};
use serde_json::{Value, json};

fn enter(server: &TestServer, room: &str, name: &str) -> TestSocket {
    let target = format!("/rooms/{room}");
    server
        .client()
        .get(&target)
        .query([("name", name)])
        .websocket()
}

/// The next line without its number.
fn line(socket: &mut TestSocket) -> Value {
    let mut line: Value = serde_json::from_str(&socket.text()).unwrap();
    assert!(
        line.as_object_mut()
            .unwrap()
            .remove("number")
            .unwrap()
            .is_u64()
    );
    line
}

fn joined(name: &str) -> Value {
    json!({ "name": name, "what": "joined" })
}

fn said(name: &str, text: &str) -> Value {
    json!({ "name": name, "what": "said", "text": text })
}

#[test]
fn everybody_in_a_room_hears_what_is_said_there_and_before() {
    let server = TestServer::with_workers(apus_example_chat::app(), 2);
    let mut ada = enter(&server, "lobby", "Ada");
    assert_eq!(line(&mut ada), joined("Ada"));
    ada.send("Is <b>anybody</b> here?");
    assert_eq!(line(&mut ada), said("Ada", "Is <b>anybody</b> here?"));
    let mut bob = enter(&server, "lobby", "Bob");
    assert_eq!(line(&mut bob), joined("Ada"));
    assert_eq!(line(&mut bob), said("Ada", "Is <b>anybody</b> here?"));
    assert_eq!(line(&mut bob), joined("Bob"));
    assert_eq!(line(&mut ada), joined("Bob"));
    let mut eve = enter(&server, "elsewhere", "Eve");
    assert_eq!(line(&mut eve), joined("Eve"));
    bob.send("Hello, Ada!");
    for socket in [&mut ada, &mut bob] {
        assert_eq!(line(socket), said("Bob", "Hello, Ada!"));
    }
    bob.close();
    assert_eq!(line(&mut ada), json!({ "name": "Bob", "what": "left" }));
    // Other rooms did not get the lines of the lobby.
    eve.send("And here?");
    assert_eq!(line(&mut eve), said("Eve", "And here?"));
}

#[test]
fn the_page_is_there_and_names_are_looked_at() {
    let server = TestServer::start(apus_example_chat::app());
    let client = server.client();
    client
        .get("/")
        .send()
        .assert_ok()
        .assert_contains("<title>Chat</title>");
    let long = "x".repeat(33);
    for name in ["", "  ", &long] {
        let request = client.get("/rooms/lobby").query([("name", name)]);
        let request = request
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
        request.send().assert_status(400);
    }
    client.get("/rooms/lobby").send().assert_status(400);
    client
        .get("/rooms/lobby?name=Ada")
        .send()
        .assert_status(426);
}
