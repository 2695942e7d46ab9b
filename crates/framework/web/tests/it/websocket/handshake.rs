//! WebSocket handshakes (RFC 6455 section 4).

use apus::App;
use apus::websocket::{WebSocketOrigins, WebSocketSettings, WebSocketUpgrade};

use super::client::{connect, handshake, request};
use super::{echo, echoing};
use crate::harness::Server;

#[test]
fn a_handshake_selects_a_subprotocol() {
    let server = Server::start(App::new().get("/", async |upgrade: WebSocketUpgrade| {
        upgrade.protocols(["b", "a"]).run(echo)
    }));
    let mut stream = connect(server.address());
    let head = request(
        &mut stream,
        &handshake(&[
            "Sec-WebSocket-Protocol: x, a, b",
            "Sec-WebSocket-Extensions: foo",
        ]),
    );
    assert!(head.starts_with("http/1.1 101 "), "{head}");
    for line in [
        "upgrade: websocket",
        "connection: upgrade",
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "sec-websocket-protocol: a",
    ] {
        assert!(head.lines().any(|known| known == line), "{head}");
    }
    assert!(!head.contains("extensions"), "{head}");
}

#[test]
fn invalid_handshakes_are_rejected_and_the_connection_stays_open() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let mut stream = connect(server.address());
    let head = request(&mut stream, &["Host: example.com"]);
    assert!(head.starts_with("http/1.1 426 "), "{head}");
    assert!(head.contains("upgrade: websocket\r\n"), "{head}");
    let mut stream = connect(server.address());
    let mut lines = handshake(&[]);
    lines[4] = "Sec-WebSocket-Key: short";
    let head = request(&mut stream, &lines);
    assert!(head.starts_with("http/1.1 400 "), "{head}");
}

#[test]
fn handshakes_of_other_origins_are_rejected() {
    let own = Server::start(echoing(WebSocketSettings::default()));
    let public = Server::start(App::new().get("/", async |upgrade: WebSocketUpgrade| {
        upgrade.origins(WebSocketOrigins::Any).run(echo)
    }));
    for (server, origin, status) in [
        (&own, "http://example.com", 101),
        (&own, "http://EXAMPLE.com:80", 101),
        // The origin has the same host, but this server does not use TLS.
        (&own, "https://example.com", 403),
        (&own, "https://evil.test", 403),
        (&own, "https://example.com:8443", 403),
        (&own, "null", 403),
        (&public, "https://evil.test", 101),
    ] {
        let mut stream = connect(server.address());
        let origin = format!("Origin: {origin}");
        let head = request(&mut stream, &handshake(&[&origin]));
        assert!(
            head.starts_with(&format!("http/1.1 {status} ")),
            "{origin}: {head}"
        );
    }
}
