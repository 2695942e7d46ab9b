//! The bodies of requests: streamed to handlers with back-pressure, drained, or refused.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apus_http::{Response, ResponseFuture, StatusCode};
use apus_testkit::{collect, eventually, wait_until};
use bytes::Bytes;

use crate::harness::{Server, collector, ok, paths, service};

fn echo() -> Arc<dyn apus_http::ServiceFactory> {
    service(|mut request| ok(request.take_body()).into())
}

#[test]
fn reads_chunked_bodies_with_trailers() {
    let server = Server::start(collector());
    let mut client = server.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         5;ext=\"1\"\r\nhello\r\n6\r\n world\r\n0\r\nX-Sum: 7\r\nAuthorization: no\r\n\r\n",
    );
    assert_eq!(client.read_response().text(), "hello world[x-sum=7]");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(client.read_response().text(), "ok");
}

#[test]
fn reads_a_large_body_completely() {
    let server = Server::start(collector());
    let mut client = server.connect();
    let body: Vec<u8> = (0..5_000_000_u32)
        .map(|index| (index % 251) as u8)
        .collect();
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    assert!(client.read_response().body == body);
}

#[test]
fn a_handler_that_does_not_read_stalls_the_client_and_takes_no_memory() {
    let go = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&go);
    let server = Server::start(service(move |mut request| {
        let go = Arc::clone(&waits);
        ResponseFuture::later(async move {
            eventually("the test goes on", || go.load(Ordering::Relaxed)).await;
            let body = collect(&mut request.take_body()).await.unwrap();
            ok(body.len().to_string())
        })
    }));
    let mut client = server.connect();
    let len: usize = 64 * 1024 * 1024;
    client.send(format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n"
    ));
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let block = vec![b'x'; 64 * 1024];
    let mut sent = 0;
    let stalled = loop {
        match client.stream.write(&block[..block.len().min(len - sent)]) {
            Ok(written) => sent += written,
            Err(error) => break error,
        }
        assert!(sent < len, "all was taken though nobody read it");
    };
    assert!(matches!(
        stalled.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    ));
    assert!(
        server.totals().bytes_in < 1024 * 1024,
        "{:?}",
        server.totals()
    );
    go.store(true, Ordering::Relaxed);
    client
        .stream
        .set_write_timeout(Some(crate::harness::PATIENCE))
        .unwrap();
    while sent < len {
        sent += client
            .stream
            .write(&block[..block.len().min(len - sent)])
            .unwrap();
    }
    assert_eq!(client.read_response().text(), len.to_string());
}

#[test]
fn echoes_a_body_while_it_still_arrives() {
    let server = Server::start(echo());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    client.send("5\r\nfirst\r\n");
    let head = client.read_head_response();
    assert_eq!(head.field("transfer-encoding"), Some("chunked"));
    assert_eq!(client.exactly(10).unwrap(), b"5\r\nfirst\r\n");
    client.send("6\r\nsecond\r\n");
    assert_eq!(client.exactly(11).unwrap(), b"6\r\nsecond\r\n");
    client.send("0\r\nX-T: 1\r\n\r\n");
    assert_eq!(client.exactly(13).unwrap(), b"0\r\nx-t: 1\r\n\r\n");
}

#[test]
fn echoes_a_large_body_in_both_directions_at_once() {
    let server = Server::start(echo());
    let mut client = server.connect();
    let body: Arc<[u8]> = (0..8_000_000_u32)
        .map(|index| (index % 249) as u8)
        .collect();
    let mut writer = client.stream.try_clone().unwrap();
    let sent = Arc::clone(&body);
    let sender = std::thread::spawn(move || {
        let head = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
            sent.len()
        );
        writer.write_all(head.as_bytes()).unwrap();
        writer.write_all(&sent).unwrap();
    });
    let received = client.read_response();
    sender.join().unwrap();
    assert_eq!(received.field("content-length"), Some("8000000"));
    assert!(*received.body == *body);
    // The connection goes on.
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(client.read_response().text(), "ok");
}

#[test]
fn sends_100_continue_when_the_body_is_read() {
    let server = Server::start(collector());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.read_response().head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    let received = client.read_response();
    assert_eq!((received.status, received.text().as_str()), (200, "hello"));
    assert_eq!(received.field("connection"), None);
}

#[test]
fn refuses_an_expected_body_early_and_closes() {
    let server = Server::start(service(|_| {
        Response::new(StatusCode::PAYLOAD_TOO_LARGE).into()
    }));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    let received = client.read_response();
    assert_eq!(
        (received.status, received.field("connection")),
        (413, Some("close"))
    );
    client.assert_closed();
}

#[test]
fn sends_100_continue_for_a_body_that_a_response_streams_back() {
    let server = Server::start(echo());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(client.read_response().head, "HTTP/1.1 100 Continue\r\n\r\n");
    client.send("hello");
    assert_eq!(client.read_response().text(), "hello");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok");
    assert_eq!(client.read_response().text(), "ok");
}

#[test]
fn drains_a_small_unread_body_and_keeps_the_connection() {
    let server = Server::start(paths());
    let mut client = server.connect();
    let body = "x".repeat(200 * 1024);
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    let received = client.read_response();
    assert_eq!(
        (received.text().as_str(), received.field("connection")),
        ("/a", None)
    );
    client.send(format!(
        "POST /b HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    ));
    assert_eq!(client.read_response().text(), "/b");
    assert_eq!(client.get("/c").text(), "/c");
}

#[test]
fn a_large_unread_body_ends_the_connection_and_not_the_response() {
    let server = Server::start(paths());
    let body = "x".repeat(10 * 1024 * 1024);
    for framing in [
        format!("Content-Length: {}\r\n\r\n{body}", body.len()),
        format!(
            "Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            body.len()
        ),
    ] {
        let mut client = server.connect();
        // A client that reads nothing before it has sent everything.
        client.send(format!("POST /refused HTTP/1.1\r\nHost: a\r\n{framing}"));
        client.send("GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.read_response().text(), "/refused");
        client.assert_closed();
    }
    assert_eq!(server.totals().requests, 2);
}

#[test]
fn drops_a_handler_whose_client_disconnected() {
    struct DropFlag(Arc<AtomicBool>);
    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let gone = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&gone);
    let server = Server::start(service(move |_| {
        let guard = DropFlag(Arc::clone(&seen));
        ResponseFuture::later(async move {
            let _guard = guard;
            std::future::pending().await
        })
    }));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests == 1);
    drop(client);
    wait_until("the end of the handler", || gone.load(Ordering::Relaxed));
}

#[test]
fn a_body_breaks_off_for_a_reader_that_outlives_the_response() {
    let (sender, results) = std::sync::mpsc::channel();
    let server = Server::start(service(move |mut request| {
        let sender = sender.clone();
        tokio::task::spawn_local(async move {
            let result = collect(&mut request.take_body()).await;
            sender
                .send(result.map_err(|error| error.to_string()))
                .unwrap();
        });
        ok("answered").into()
    }));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 7\r\n\r\nunread!");
    assert_eq!(client.read_response().text(), "answered");
    let result = results.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(
        result.unwrap_err(),
        "the peer disconnected before the body ended"
    );
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().text(), "answered");
    assert_eq!(
        results
            .recv_timeout(crate::harness::PATIENCE)
            .unwrap()
            .unwrap(),
        b""
    );
}

#[test]
fn a_client_that_disconnects_midway_is_an_error_to_the_handler() {
    let (sender, results) = std::sync::mpsc::channel();
    let server = Server::start(service(move |mut request| {
        let sender = sender.clone();
        ResponseFuture::later(async move {
            let result = collect(&mut request.take_body()).await;
            sender
                .send(result.map_err(|error| error.to_string()))
                .unwrap();
            ok(Bytes::new())
        })
    }));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    drop(client);
    let result = results.recv_timeout(crate::harness::PATIENCE).unwrap();
    assert_eq!(
        result.unwrap_err(),
        "the peer disconnected before the body ended"
    );
}
