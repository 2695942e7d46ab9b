//! WebSocket over HTTP/2 (RFC 8441).

use apus::Limits;
use apus::websocket::{CloseCode, Message, WebSocketSettings};
use apus_websocket::codec::{CodecSettings, WebSocketConnection, WebSocketEvent};
use bytes::BytesMut;
use h2::ext::Protocol;
use http::{Method, Request, StatusCode};

use super::echoing;
use crate::harness::Server;
use apus_testkit::block_on;

fn request(origin: &str) -> Request<()> {
    let mut request = Request::builder()
        .method(Method::CONNECT)
        .uri("http://example.com/")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-protocol", "echo")
        .header("origin", origin)
        .body(())
        .unwrap();
    let protocol = Protocol::from_static("websocket");
    request.extensions_mut().insert(protocol);
    request
}

#[test]
fn messages_are_echoed_over_http2_streams() {
    let server = Server::start(echoing(WebSocketSettings::default()));
    let address = server.address();
    block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let (response, _) = client
            .send_request(request("https://evil.test"), false)
            .unwrap();
        assert_eq!(response.await.unwrap().status(), StatusCode::FORBIDDEN);
        for _ in 0..3 {
            client = client.ready().await.unwrap();
            let origin = "http://example.com";
            let (response, mut sending) = client.send_request(request(origin), false).unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert_eq!(response.headers()["sec-websocket-protocol"], "echo");
            assert!(!response.headers().contains_key("sec-websocket-accept"));
            let mut receiving = response.into_body();
            let mut ours = WebSocketConnection::client(&CodecSettings::default(), || [4, 3, 2, 1]);
            let message = Message::from("over HTTP/2 ".repeat(20));
            ours.send(message.clone()).unwrap();
            ours.close_with(CloseCode::NORMAL).unwrap();
            sending
                .send_data(ours.output().to_vec().into(), false)
                .unwrap();
            let mut input = BytesMut::new();
            let mut events = Vec::new();
            while let Some(data) = receiving.data().await {
                let data = data.unwrap();
                receiving
                    .flow_control()
                    .release_capacity(data.len())
                    .unwrap();
                input.extend_from_slice(&data);
                while let Some(event) = ours.handle_input(&mut input) {
                    events.push(event);
                }
            }
            assert_eq!(events.remove(0), WebSocketEvent::Message(message));
            assert!(matches!(events[..], [WebSocketEvent::Close(Some(_))]));
        }
    });
}

#[test]
fn a_connection_has_a_limit_of_tunnels() {
    let limits = Limits {
        h2_max_tunnels: 2,
        ..Limits::default()
    };
    let server = Server::with_limits(echoing(WebSocketSettings::default()), limits);
    let address = server.address();
    block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let mut client = client.ready().await.unwrap();
        while !client.is_extended_connect_protocol_enabled() {
            tokio::task::yield_now().await;
        }
        let mut open = Vec::new();
        for expected in [200, 200, 503, 503] {
            client = client.ready().await.unwrap();
            let (response, sending) = client
                .send_request(request("http://example.com"), false)
                .unwrap();
            let response = response.await.unwrap();
            assert_eq!(response.status().as_u16(), expected);
            open.push((response, sending));
        }
        // Requests that are no tunnels are not affected.
        client = client.ready().await.unwrap();
        let plain = Request::get("http://example.com/").body(()).unwrap();
        let (response, _) = client.send_request(plain, true).unwrap();
        assert_eq!(
            response.await.unwrap().status(),
            StatusCode::UPGRADE_REQUIRED
        );
        // The end of one makes room for another.
        drop(open.remove(0));
        loop {
            client = client.ready().await.unwrap();
            let (response, sending) = client
                .send_request(request("http://example.com"), false)
                .unwrap();
            let response = response.await.unwrap();
            if response.status() == StatusCode::OK {
                open.push((response, sending));
                break;
            }
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    });
}
