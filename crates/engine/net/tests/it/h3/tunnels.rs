//! CONNECT (RFC 9114 section 4.4) and extended CONNECT (RFC 9220).

use std::sync::Arc;

use apus_http::{Method, Response, ServiceFactory, StatusCode};

use super::{H3Request, H3Server};
use crate::harness::{ok, service};
use crate::tunnels::echo;

/// Echoes what comes through tunnels.
fn echoing() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let status = match (request.method(), request.path()) {
            (&Method::CONNECT, _) => StatusCode::OK,
            (_, "/chat") => StatusCode::SWITCHING_PROTOCOLS,
            (_, path) => return ok(path.to_owned()).into(),
        };
        let mut response = Response::new(status);
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    })
}

#[test]
fn tunnels_carry_data_both_ways_until_the_client_ends() {
    let server = H3Server::start(echoing());
    let mut client = server.open();
    client.wait("SETTINGS", |connection| {
        connection.allows_extended_connect()
    });
    let plain = H3Request {
        method: Method::CONNECT,
        authority: "example.com:25",
        has_body: true,
        ..H3Request::get("")
    };
    let websocket = H3Request {
        protocol: Some("websocket"),
        fields: &[("sec-websocket-version", "13")],
        has_body: true,
        ..H3Request::get("/chat")
    };
    for request in [plain, websocket] {
        let id = client.request(&request);
        assert_eq!(client.head(id), 200);
        client.send_data(id, "hello", false);
        client.wait("the echo", |connection| connection.body_bytes(id) == 5);
        client.send_data(id, vec![b'x'; 200_000], false);
        client.wait("the echo", |connection| {
            connection.body_bytes(id) == 200_005
        });
        client.send_data(id, "", true);
        let response = client.response(id);
        assert!(
            response.is_complete && response.reset.is_none(),
            "{:?}",
            response.reset
        );
    }
    assert_eq!(client.get("/a").text(), "/a");
}

#[test]
fn a_tunnel_that_is_refused_is_an_ordinary_response() {
    let server = H3Server::start(service(|_| {
        Response::text(StatusCode::FORBIDDEN, "no").into()
    }));
    let mut client = server.open();
    client.wait("SETTINGS", |connection| {
        connection.allows_extended_connect()
    });
    let id = client.request(&H3Request {
        protocol: Some("websocket"),
        has_body: true,
        ..H3Request::get("/chat")
    });
    let response = client.response(id);
    assert_eq!((response.status, response.text().as_str()), (403, "no"));
}
