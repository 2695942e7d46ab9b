//! `BodyLimit`: the limit of request bodies.

use apus_handler::{BodyLimit, HandlerExt};
use apus_http::{Body, BodyError, Frame, Request, Response, StatusCode};
use apus_testkit::{SocketClient, SocketReply};

use crate::harness::{Routes, Server};

/// Reads the whole body frame by frame, and responds with its length or an error.
async fn count(mut body: Body) -> Result<String, StatusCode> {
    let mut bytes = 0;
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(Frame::Data(data)) => bytes += data.len(),
            Ok(_) => {}
            Err(BodyError::TooLarge) => return Err(StatusCode::INTERNAL_SERVER_ERROR),
            Err(_) => return Err(StatusCode::BAD_REQUEST),
        }
    }
    Ok(bytes.to_string())
}

fn app(limit: u64) -> Routes {
    Routes::new()
        .layer(BodyLimit::new(limit))
        .post("/count", count)
        .post("/text", async |text: String| text.len().to_string())
        .post("/unread", async |_: Request| "not read")
        .nest(
            "/uploads",
            Routes::new()
                .layer(BodyLimit::new(100))
                .post("/count", count)
                .post("/text", async |text: String| text.len().to_string()),
        )
}

fn post(client: &mut SocketClient, path: &str, length: usize) -> SocketReply {
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{}",
        "x".repeat(length)
    ));
    client.read(false)
}

fn post_chunked(client: &mut SocketClient, path: &str, chunks: usize) -> SocketReply {
    client.send(format!(
        "POST {path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{}0\r\n\r\n",
        "1\r\nx\r\n".repeat(chunks)
    ));
    client.read(false)
}

#[test]
fn a_body_above_the_limit_is_413() {
    let server = Server::start(app(10));
    for path in ["/count", "/text"] {
        for (length, status) in [(0, 200), (10, 200), (11, 413)] {
            for send in [post, post_chunked] {
                let mut client = SocketClient::connect(server.address());
                let reply = send(&mut client, path, length);
                assert_eq!(reply.status, status, "{path} {length}");
                if status == 200 {
                    assert_eq!(reply.text(), length.to_string());
                }
            }
        }
    }
}

#[test]
fn an_unread_body_is_not_checked() {
    let server = Server::start(app(10));
    let mut client = SocketClient::connect(server.address());
    assert_eq!(post(&mut client, "/unread", 11).text(), "not read");
}

#[test]
fn a_client_that_expects_100_continue_is_rejected_early() {
    let server = Server::start(app(10));
    let mut client = SocketClient::connect(server.address());
    client.send(
        "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\nExpect: 100-continue\r\n\r\n",
    );
    assert_eq!(client.read(false).status, 413);
}

#[test]
fn the_innermost_limit_applies() {
    // The inner limit is larger than the outer one.
    let server = Server::start(app(10));
    for path in ["/uploads/count", "/uploads/text"] {
        for (length, status) in [(11, 200), (100, 200), (101, 413)] {
            let mut client = SocketClient::connect(server.address());
            let reply = post(&mut client, path, length);
            assert_eq!(reply.status, status, "{path} {length}");
        }
    }
    // The inner limit is smaller than the outer one.
    let server = Server::start(app(1000));
    let mut client = SocketClient::connect(server.address());
    assert_eq!(post(&mut client, "/count", 101).status, 200);
    assert_eq!(post(&mut client, "/uploads/count", 101).status, 413);
}

#[test]
fn a_layer_can_raise_the_limit_of_extractors() {
    let inner = || {
        Routes::new()
            .body_limit(5)
            .post("/", async |text: String| text)
    };
    let server = Server::start(inner().layer(BodyLimit::new(10)));
    let mut client = SocketClient::connect(server.address());
    assert_eq!(post(&mut client, "/", 10).status, 200);
    let server = Server::start(inner());
    let mut client = SocketClient::connect(server.address());
    assert_eq!(post(&mut client, "/", 10).status, 413);
}

#[test]
fn other_responses_of_the_handler_are_kept() {
    async fn own(mut body: Body) -> Response {
        while let Some(Ok(_)) = body.frame().await {}
        Response::text(StatusCode::OK, "as far as it came")
    }
    let app = Routes::new().layer(BodyLimit::new(3)).post("/", own);
    let server = Server::start(app);
    let mut client = SocketClient::connect(server.address());
    assert_eq!(post(&mut client, "/", 4).text(), "as far as it came");
}

#[test]
fn a_group_or_a_route_can_have_its_own_limit() {
    let app = Routes::new()
        .layer(BodyLimit::new(10))
        .nest(
            "/group",
            Routes::new()
                .layer(BodyLimit::new(20))
                .post("/count", count),
        )
        .post("/route", count.with(BodyLimit::new(5)))
        .post("/count", count);
    let server = Server::start(app);
    for (path, limit) in [("/group/count", 20), ("/route", 5), ("/count", 10)] {
        for (length, status) in [(limit, 200), (limit + 1, 413)] {
            let mut client = SocketClient::connect(server.address());
            let reply = post(&mut client, path, length);
            assert_eq!(reply.status, status, "{path} {length}");
        }
    }
}
