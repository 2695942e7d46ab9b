//! The time limit of a response.

use std::time::Duration;

use apus::layers::{RequestIds, Timeout};
use apus::{App, StatusCode};

use crate::harness::{Client, PATIENCE, Server, get, head};

fn slow(timeout: Timeout) -> App {
    App::new()
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
        let server = Server::start(slow(timeout));
        let mut client = Client::connect(server.address());
        for _ in 0..2 {
            let reply = client.request(&head("GET", "/slow", &[]));
            assert_eq!(reply.status, expected.as_u16());
            assert_eq!(reply.field("retry-after"), retry_after);
            assert!(reply.field("x-request-id").is_some());
        }
        assert_eq!(client.request(&head("GET", "/fast", &[])).text(), "at once");
    }
}

#[test]
fn waiting_for_the_body_counts_too() {
    let server = Server::start(slow(Timeout::new(Duration::from_millis(20))));
    let mut client = Client::connect(server.address());
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab");
    assert_eq!(client.read(false).status, 503);
}

#[test]
fn the_handler_of_a_late_response_is_dropped() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let app = App::new()
        .layer(Timeout::new(Duration::from_millis(20)))
        .get("/", move || {
            let sender = DropSignal(sender.clone());
            async move {
                let _sender = sender;
                std::future::pending::<()>().await;
            }
        });
    assert_eq!(get(app, "/", &[]).status, 503);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(()));

    struct DropSignal(std::sync::mpsc::Sender<()>);
    impl Drop for DropSignal {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
}
