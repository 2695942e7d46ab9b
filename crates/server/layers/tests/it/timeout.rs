//! The time limit of a response.

use std::collections::HashMap;
use std::task::Poll;
use std::time::Duration;

use apus_handler::Form;
use apus_http::{Body, Request, StatusCode};
use apus_layers::{RequestIds, Timeout};
use apus_net::Limits;
use apus_testkit::{LocalClient, SocketClient, block_on};

use crate::harness::{Routes, Server, get, head};

fn slow(timeout: Timeout) -> Routes {
    Routes::new()
        .layer(RequestIds::new())
        .layer(timeout)
        .get("/slow", async || {
            std::future::pending::<()>().await;
            "never"
        })
        .get("/fast", async || "at once")
        .post("/", async |text: String| text)
}

#[test]
fn a_late_response_is_replaced_by_an_error() {
    let timeout = Timeout::new(Duration::from_millis(20));
    for (timeout, expected, retry_after) in [
        (timeout, StatusCode::SERVICE_UNAVAILABLE, None),
        (timeout.gateway_timeout(), StatusCode::GATEWAY_TIMEOUT, None),
        (
            timeout.retry_after(Duration::from_secs(7)),
            StatusCode::SERVICE_UNAVAILABLE,
            Some("7"),
        ),
    ] {
        let client = LocalClient::of(&slow(timeout));
        for _ in 0..2 {
            let reply = client.send(head("GET", "/slow", &[]));
            assert_eq!(reply.status, expected.as_u16());
            assert_eq!(reply.field("retry-after"), retry_after);
            assert!(reply.field("x-request-id").is_some());
        }
        assert_eq!(client.send(head("GET", "/fast", &[])).text(), "at once");
    }
}

const LIMIT: Duration = Duration::from_millis(40);

/// Handlers that read a body, and that take long in different places.
fn readers() -> Routes {
    async fn never(_: impl Sized) -> String {
        std::future::pending().await
    }
    Routes::new()
        .layer(Timeout::new(LIMIT))
        .post("/text", async |text: String| text.len().to_string())
        .post("/form", async |Form(_): Form<HashMap<String, String>>| "10")
        .post("/frames", async |mut body: Body| {
            let mut bytes = 0;
            while let Some(frame) = body.frame().await {
                bytes += frame?.len();
            }
            Ok::<_, apus_handler::Error>(bytes.to_string())
        })
        .post("/before", async |request: Request| never(request).await)
        .post("/behind", async |text: String| never(text).await)
        // The rest of the body is neither read nor dropped.
        .post("/beside", async |mut body: Body| {
            let _ = body.frame().await;
            let _ = std::future::poll_fn(|cx| Poll::Ready(body.poll_frame(cx))).await;
            never(body).await
        })
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a client that is slow")]
fn the_time_in_which_a_client_sends_its_body_is_not_that_of_the_handler() {
    let server = Server::start(readers());
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let cases = [
        ("/text", "", 200),
        ("/form", form, 200),
        ("/frames", "", 200),
        ("/before", "", 503),
        ("/behind", "", 503),
        ("/beside", "", 503),
    ];
    let mut clients = cases.map(|(path, fields, _)| {
        let mut client = SocketClient::connect(server.address());
        client.send(format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 10\r\n\r\n"
        ));
        client
    });
    for _ in 0..10 {
        std::thread::sleep(LIMIT);
        for client in &mut clients {
            // The response may be there before the body is whole.
            let _ = client.try_send("x");
        }
    }
    for (mut client, (path, _, status)) in clients.into_iter().zip(cases) {
        let reply = client.read(false);
        assert_eq!(reply.status, status, "{path}: {}", reply.text());
        if status == 200 {
            assert_eq!(reply.text(), "10", "{path}");
        }
    }
    let address = server.address();
    let (status, text) = block_on(async move {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let (mut client, connection) = h2::client::handshake(stream).await.unwrap();
        tokio::spawn(connection);
        let request = http::Request::post("http://a/text").body(()).unwrap();
        let (response, mut body) = client.send_request(request, false).unwrap();
        for _ in 0..10 {
            tokio::time::sleep(LIMIT).await;
            body.send_data("x".into(), false).unwrap();
        }
        body.send_data("".into(), true).unwrap();
        let response = response.await.unwrap();
        let status = response.status();
        (status, response.into_body().data().await.unwrap().unwrap())
    });
    assert_eq!((status.as_u16(), &*text), (200, &b"10"[..]));
}

#[test]
fn a_client_that_stops_sending_its_body_gets_408_and_not_the_503_of_a_slow_handler() {
    let limits = Limits {
        body_timeout: Duration::from_millis(250),
        ..Limits::default()
    };
    let server = Server::with_limits(readers(), limits);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (path, fields) in [("/text", ""), ("/form", form), ("/frames", "")] {
        let mut client = SocketClient::connect(server.address());
        let head =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}Content-Length: 10\r\n\r\nx");
        client.send(head);
        assert_eq!(client.read(false).status, 408, "{path}");
    }
}

#[test]
fn the_handler_of_a_late_response_is_dropped() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let app = Routes::new()
        .layer(Timeout::new(Duration::from_millis(20)))
        .get("/", move || {
            let sender = DropSignal(sender.clone());
            async move {
                let _sender = sender;
                std::future::pending::<()>().await;
            }
        });
    assert_eq!(get(app, "/", &[]).status, 503);
    assert_eq!(receiver.recv_timeout(Duration::from_secs(20)), Ok(()));

    struct DropSignal(std::sync::mpsc::Sender<()>);
    impl Drop for DropSignal {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
}
