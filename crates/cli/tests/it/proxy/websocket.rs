//! WebSocket through the server: over the Upgrade of HTTP/1.1 (RFC 6455) and the extended CONNECT of
//! HTTP/2 (RFC 8441).

use std::net::SocketAddr;

use super::origins::{Holder, Origin, python};
use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front};
use crate::clients::certificate;
use crate::h2_client::{data, setting};
use crate::harness::Home;
use crate::wire::Wire;

/// A client that ends well if messages of all sizes come back.
fn ask(url: &str, authority: Option<&str>) {
    let mut command = python("websocket.py");
    let output = command.args(["ask", url]).args(authority).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{url}: {errors}");
}

/// A client that keeps its connection.
pub(super) fn hold(address: SocketAddr) -> Holder {
    let mut command = python("websocket.py");
    command.args(["hold", &format!("ws://{address}/")]);
    let mut holder = Holder::start(command);
    assert_eq!(holder.read(), "open");
    holder
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A text message of a client, masked with nothing (RFC 6455 section 5.2).
fn message(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// The same from a server.
fn reply(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, text.len() as u8];
    frame.extend_from_slice(text.as_bytes());
    frame
}

#[test]
fn messages_of_all_sizes_come_back() {
    let origin = Origin::websocket();
    let front = Configuration::of([origin.address()]).tls().serve();
    ask(&format!("ws://{}/chat", front.apus.address()), None);
    let authority = front.authority_file();
    let url = format!("wss://{}/chat", front.tls_authority());
    ask(&url, Some(authority.to_str().unwrap()));
}

#[test]
fn a_tunnel_that_carries_nothing_is_closed() {
    let origin = Origin::websocket();
    let configuration = Configuration::of([origin.address()]);
    let front = configuration.proxy("tunnel_timeout = \"500ms\"").serve();
    let mut wire = front.connect();
    wire.send(UPGRADE);
    assert_eq!(wire.read().status, 101);
    wire.send(message("hello"));
    assert!(wire.rest().starts_with(&reply("hello")));
}

#[test]
fn a_tunnel_survives_a_reload() {
    let origin = Origin::websocket();
    let front = Front::of([origin.address()]);
    let mut holder = hold(front.apus.address());
    for text in ["before", "after one", "after two"] {
        holder.say(text);
        front.reload();
    }
    holder.say("still here");
    holder.end();
}

#[test]
fn an_origin_that_dies_ends_the_tunnel() {
    let mut origin = Origin::websocket();
    let front = Front::of([origin.address()]);
    let mut wire = front.connect();
    wire.send(UPGRADE);
    assert_eq!(wire.read().status, 101);
    wire.send(message("hello"));
    wire.wait();
    origin.kill();
    assert_eq!(wire.rest(), reply("hello"));
}

#[test]
fn an_upgrade_that_the_origin_refuses_opens_no_tunnel() {
    let origin = ScriptedOrigin::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let front = Front::of([origin.address()]);
    let mut wire = front.connect();
    let smuggled = "DELETE /smuggled HTTP/1.1\r\nHost: localhost\r\nX-Real-IP: 1.1.1.1\r\n\r\n";
    wire.send(format!("{UPGRADE}{smuggled}"));
    let refused = wire.read();
    assert_eq!((refused.status, refused.text()), (403, "no".into()));
    // What follows is a request like any other: it is answered as one, or not at all.
    let second = next(&mut wire);
    assert!([None, Some(403)].contains(&second), "{second:?}");
    assert!(
        !origin.received().contains("1.1.1.1"),
        "{}",
        origin.received()
    );
}

/// The status of the next answer, if there is one.
fn next(wire: &mut Wire) -> Option<u16> {
    wire.wait();
    (!wire.is_closed()).then(|| wire.read().status)
}

#[test]
fn an_answer_101_that_nobody_asked_for_opens_no_tunnel() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\n\r\n";
    let origin = ScriptedOrigin::answering(switching);
    let front = Front::of([origin.address()]);
    assert_eq!(front.get("/").status, 502);
    // Asked for one protocol, it switches to another.
    let origin = ScriptedOrigin::answering(switching.replace("websocket", "something"));
    let front = Front::of([origin.address()]);
    assert_eq!(front.ask(UPGRADE).status, 502);
}

#[test]
fn extended_connect_of_http_2_becomes_an_upgrade() {
    let origin = Origin::websocket();
    let front = Front::of([origin.address()]);
    let mut peer = front.open();
    peer.until("the settings", |peer| !peer.settings.is_empty());
    assert_eq!(peer.settings[&setting::ENABLE_CONNECT_PROTOCOL], 1);
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/chat"),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-protocol", "echo"),
    ];
    let stream = peer.request(&fields, false);
    let head = peer.head(stream);
    assert_eq!(head.status, 200);
    assert_eq!(head.field("sec-websocket-protocol"), Some("echo"));
    for name in ["connection", "upgrade", "sec-websocket-accept"] {
        assert_eq!(head.field(name), None, "{name}");
    }
    for text in ["hello", "over HTTP/2"] {
        peer.received(stream).body.clear();
        peer.send(data(stream, message(text), false));
        let expected = reply(text);
        peer.until("the echo", |peer| peer.received(stream).body == expected);
    }
    // A request beside it is not held up.
    assert_eq!(peer.fetch("/").status, 426);
    peer.send(data(stream, "", true));
    assert!(peer.response(stream).ended);
}

/// A group of Go's server over TLS, which speaks both versions and takes tunnels over HTTP/1.1 only.
fn behind_go(protocol: &str) -> (Origin, Front) {
    let home = Home::new();
    certificate(&home, "origin", "localhost");
    let origin = Origin::go_over_tls(&home.path("origin"));
    let node = format!("https://localhost:{}", origin.address().port());
    let front = Configuration::of_names([node])
        .group(&format!("protocol = \"{protocol}\""))
        .group("tls = { ca = \"origin.pem\" }")
        .serve_in(home);
    (origin, front)
}

#[test]
fn an_origin_that_takes_no_tunnels_over_http_2_is_asked_over_http_1_1_if_it_may_choose() {
    let (_origin, front) = behind_go("auto");
    // What else is asked goes over HTTP/2.
    assert!(front.get("/request").text().contains("HTTP/2.0"));
    for _ in 0..2 {
        let mut wire = front.connect();
        wire.send(UPGRADE.replace("/chat", "/websocket"));
        let answer = wire.read();
        assert_eq!(answer.status, 101, "{}", front.apus.log());
        wire.send("as it is");
        assert_eq!(wire.read_bytes(8), b"as it is");
    }
    assert!(front.get("/request").text().contains("HTTP/2.0"));
}

#[test]
fn an_origin_that_takes_no_tunnels_over_http_2_is_told_by_502_and_why() {
    let (_origin, front) = behind_go("h2");
    let mut wire = front.connect();
    wire.send(UPGRADE.replace("/chat", "/websocket"));
    assert_eq!(wire.read().status, 502);
    let mut peer = front.open();
    peer.until("the settings", |peer| !peer.settings.is_empty());
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/websocket"),
        (":authority", "localhost"),
        ("sec-websocket-version", "13"),
    ];
    let stream = peer.request(&fields, false);
    assert_eq!(peer.head(stream).status, 502);
    assert!(front.get("/request").text().contains("HTTP/2.0"));
    let log = front.apus.log();
    assert!(log.contains("takes no tunnels over HTTP/2"), "{log}");
}
