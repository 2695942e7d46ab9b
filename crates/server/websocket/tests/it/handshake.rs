//! The opening handshake of a server (RFC 6455 section 4.2).

use std::rc::Rc;

use apus_http::{
    Body, ConnectionInfo, Headers, Method, Peer, Request, RequestParts, Target, Version,
};
use apus_websocket::codec::{InvalidHandshake, ServerHandshake};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";

const VALID: &[(&str, &str)] = &[
    ("host", "a"),
    ("upgrade", "WebSocket"),
    ("connection", "keep-alive, Upgrade"),
    ("sec-websocket-key", KEY),
    ("sec-websocket-version", "13"),
];

fn request(method: Method, version: Version, fields: &[(&str, &str)]) -> Request {
    let mut headers = Headers::new();
    for (name, value) in fields {
        headers.try_append(name, value).unwrap();
    }
    Request::new(RequestParts {
        target: Target::parse(&method, "/chat").unwrap(),
        method,
        version,
        headers,
        body: Body::Empty,
        connection: Rc::new(ConnectionInfo {
            kept: apus_http::KeptValue::default(),
            id: 1,
            peer: Peer::Ip("192.0.2.7:50000".parse().unwrap()),
            local: Peer::Ip("192.0.2.1:8080".parse().unwrap()),
            tls: None,
        }),
        extensions: Default::default(),
    })
}

fn read(fields: &[(&str, &str)]) -> Result<ServerHandshake, InvalidHandshake> {
    ServerHandshake::of(&request(Method::GET, Version::HTTP_11, fields))
}

/// The valid fields with one of them replaced, or removed if the value is empty.
fn with<'a>(name: &'a str, value: &'a str) -> Vec<(&'a str, &'a str)> {
    let others = VALID.iter().copied().filter(|(other, _)| *other != name);
    others
        .chain((!value.is_empty()).then_some((name, value)))
        .collect()
}

#[test]
fn the_response_has_the_accept_key_the_protocol_and_the_extensions() {
    let mut fields = VALID.to_vec();
    fields.push(("sec-websocket-protocol", "chat, superchat"));
    fields.push(("sec-websocket-protocol", "other"));
    let handshake = read(&fields).unwrap();
    assert!(handshake.protocols().eq(["chat", "superchat", "other"]));
    let response = handshake.response(Some("superchat"), Some("permessage-deflate"));
    assert_eq!(response.status(), 101);
    for (name, value) in [
        ("upgrade", "websocket"),
        ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
        ("sec-websocket-protocol", "superchat"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ] {
        assert_eq!(response.headers().get_str(name), Some(value), "{name}");
    }
}

#[test]
fn an_extended_connect_needs_no_key_rfc_8441_section_5() {
    let fields = with("sec-websocket-key", "");
    let handshake = ServerHandshake::of(&request(Method::GET, Version::HTTP_2, &fields)).unwrap();
    let response = handshake.response(None, None);
    assert!(!response.headers().contains("sec-websocket-accept"));
}

#[test]
fn invalid_handshakes_get_a_status_for_their_error() {
    for (fields, error, status) in [
        (with("upgrade", ""), InvalidHandshake::NotWebSocket, 426),
        (with("upgrade", "h2c"), InvalidHandshake::NotWebSocket, 426),
        (
            with("connection", "keep-alive"),
            InvalidHandshake::NotWebSocket,
            426,
        ),
        (
            with("sec-websocket-version", ""),
            InvalidHandshake::Version,
            426,
        ),
        (
            with("sec-websocket-version", "8"),
            InvalidHandshake::Version,
            426,
        ),
        (with("sec-websocket-key", ""), InvalidHandshake::Key, 400),
        (
            with("sec-websocket-key", "short"),
            InvalidHandshake::Key,
            400,
        ),
        (
            with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            InvalidHandshake::Key,
            400,
        ),
        (
            with("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZSEh"),
            InvalidHandshake::Key,
            400,
        ),
    ] {
        let mut fields = fields;
        if fields.contains(&("sec-websocket-key", KEY)) && status == 400 {
            fields.push(("sec-websocket-key", KEY));
        }
        let invalid = read(&fields).unwrap_err();
        assert_eq!(invalid, error, "{fields:?}");
        let response = invalid.response();
        assert_eq!(response.status(), status);
        let version = response.headers().get_str("sec-websocket-version");
        assert_eq!(version, (status == 426).then_some("13"));
    }
    let post = request(Method::POST, Version::HTTP_11, VALID);
    assert_eq!(
        ServerHandshake::of(&post).unwrap_err(),
        InvalidHandshake::Method
    );
    let old = request(Method::GET, Version::HTTP_10, VALID);
    assert_eq!(
        ServerHandshake::of(&old).unwrap_err(),
        InvalidHandshake::NotWebSocket
    );
}
