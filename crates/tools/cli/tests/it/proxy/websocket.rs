//! WebSocket through the server: over the Upgrade of HTTP/1.1 (RFC 6455) and the extended CONNECT of
//! HTTP/2 (RFC 8441).

use std::net::SocketAddr;

use apus_testkit::h2::{data, setting};

use super::origins::{HoldingClient, Origin, python};
use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front};
use crate::clients::certificate;
use crate::harness::Home;
use crate::wire::Wire;

/// Runs a client that succeeds if messages of all sizes are echoed.
pub(super) fn assert_echoes(url: &str, authority: Option<&str>) {
    let mut command = python("websocket.py");
    let output = command.args(["ask", url]).args(authority).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{url}: {errors}");
}

/// A client that keeps its connection open.
pub(super) fn hold(address: SocketAddr) -> HoldingClient {
    let mut command = python("websocket.py");
    command.args(["hold", &format!("ws://{address}/")]);
    let mut client = HoldingClient::start(command);
    assert_eq!(client.read(), "open");
    client
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\n\
                       Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// A text message of a client, masked with zeros (RFC 6455 section 5.2).
fn message(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    frame
}

/// A text message of a server.
fn reply(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, text.len() as u8];
    frame.extend_from_slice(text.as_bytes());
    frame
}

#[test]
fn messages_of_all_sizes_are_echoed() {
    let origin = Origin::websocket();
    let front = Configuration::of([origin.address()]).tls().serve();
    assert_echoes(&format!("ws://{}/chat", front.apus.address()), None);
    let authority = front.authority_file();
    let url = format!("wss://{}/chat", front.tls_authority());
    assert_echoes(&url, Some(authority.to_str().unwrap()));
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
    let mut client = hold(front.apus.address());
    for text in ["before", "after one", "after two"] {
        client.echo(text);
        front.reload();
    }
    client.echo("still here");
    client.end();
}

#[test]
fn a_killed_origin_ends_the_tunnel() {
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
    let origin =
        ScriptedOrigin::responding("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let front = Front::of([origin.address()]);
    let mut wire = front.connect();
    let smuggled = "DELETE /smuggled HTTP/1.1\r\nHost: localhost\r\nX-Real-IP: 1.1.1.1\r\n\r\n";
    wire.send(format!("{UPGRADE}{smuggled}"));
    let refused = wire.read();
    assert_eq!((refused.status, refused.text()), (403, "no".into()));
    // The bytes that follow are a request like any other: it gets a response, or the connection is closed.
    let second = next_status(&mut wire);
    assert!([None, Some(403)].contains(&second), "{second:?}");
    assert!(
        !origin.received().contains("1.1.1.1"),
        "{}",
        origin.received()
    );
}

/// The status of the next response, if there is one.
fn next_status(wire: &mut Wire) -> Option<u16> {
    wire.wait();
    (!wire.is_closed()).then(|| wire.read().status)
}

#[test]
fn a_101_response_that_was_not_requested_opens_no_tunnel() {
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\n\r\n";
    let origin = ScriptedOrigin::responding(switching);
    let front = Front::of([origin.address()]);
    assert_eq!(front.get("/").status, 502);
    // The origin switches to another protocol than the requested one.
    let origin = ScriptedOrigin::responding(switching.replace("websocket", "something"));
    let front = Front::of([origin.address()]);
    assert_eq!(front.request(UPGRADE).status, 502);
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
    // The tunnel does not delay another request.
    assert_eq!(peer.fetch("/").status, 426);
    peer.send(data(stream, "", true));
    assert!(peer.response(stream).ended);
}

/// A group with Go's server over TLS, which has both versions of HTTP and tunnels over HTTP/1.1 only.
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
fn an_origin_without_tunnels_over_http_2_gets_them_over_http_1_1_with_protocol_auto() {
    let (_origin, front) = behind_go("auto");
    // Other requests use HTTP/2.
    assert!(front.get("/request").text().contains("HTTP/2.0"));
    for _ in 0..2 {
        let mut wire = front.connect();
        wire.send(UPGRADE.replace("/chat", "/websocket"));
        let response = wire.read();
        assert_eq!(response.status, 101, "{}", front.apus.log());
        wire.send("as it is");
        assert_eq!(wire.read_bytes(8), b"as it is");
    }
    assert!(front.get("/request").text().contains("HTTP/2.0"));
}

#[test]
fn an_origin_without_tunnels_over_http_2_causes_a_502_and_the_reason_is_logged() {
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
    front.apus.wait_for_log("supports no extended CONNECT");
}
