//! `CatchPanic`: panics of handlers become responses.

use apus_http::{Response, StatusCode};
use apus_layers::{CatchPanic, Cors, RequestIds};
use apus_testkit::{SocketClient, request_text};

use crate::harness::{Routes, Server};

fn app(catch: CatchPanic) -> Routes {
    Routes::new()
        .layer(RequestIds::new())
        .layer(Cors::any_origin())
        .layer(catch)
        .get("/call", || -> &'static str { panic!("in the call") })
        .get("/future", async || -> &'static str {
            tokio::task::yield_now().await;
            panic!("in the future, {}", 1)
        })
        .get("/well", async || "well")
}

#[test]
fn outer_layers_get_a_response_and_the_connection_continues() {
    let server = Server::start(app(CatchPanic::new()));
    let mut client = SocketClient::connect(server.address());
    for path in ["/call", "/future"] {
        let reply = client.request(&request_text("GET", path, &[]));
        assert_eq!(reply.status, 500);
        assert_eq!(reply.field("access-control-allow-origin"), Some("*"));
        assert!(reply.field("x-request-id").is_some());
        assert!(!reply.text().contains("in the"));
        assert_eq!(
            client.request(&request_text("GET", "/well", &[])).text(),
            "well"
        );
    }
}

#[test]
fn a_function_can_make_the_response() {
    let catch = CatchPanic::new().respond_with(|message| {
        Response::text(StatusCode::NOT_IMPLEMENTED, format!("panicked {message}"))
    });
    let server = Server::start(app(catch));
    let mut client = SocketClient::connect(server.address());
    for (path, text) in [
        ("/call", "panicked in the call"),
        ("/future", "panicked in the future, 1"),
    ] {
        let reply = client.request(&request_text("GET", path, &[]));
        assert_eq!((reply.status, reply.text()), (501, text));
    }
}
