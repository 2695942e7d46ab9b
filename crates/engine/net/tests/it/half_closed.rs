//! Clients that end their side of the connection after their requests (RFC 9112 section 9.6), and those that are gone.

use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use apus_http::{Frame, Request, Response, ResponseFuture, ServiceFactory};
use apus_net::Limits;
use apus_testkit::h2::{request, window_update};
use apus_testkit::{collect, frames, wait_until};

use crate::h2::client::Peer;
use crate::harness::{Server, connect, ok, service};
use crate::tls::{client_of, connect_tls, serve_one};

/// Responses that come at once, later, after the server has probed for the client, in pieces, or after the body.
fn responses() -> Arc<dyn ServiceFactory> {
    service(|request| match request.path() {
        "/now" => ok("/now").into(),
        "/file" => ok(vec![b'x'; 3_000_000]).into(),
        "/late" => after(300, request),
        "/later" => after(1700, request),
        "/pieces" => {
            let mut left = 3;
            let mut pause = Box::pin(tokio::time::sleep(Duration::from_millis(100)));
            ok(frames(None, move |cx| {
                if pause.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                if left == 0 {
                    return Poll::Ready(None);
                }
                left -= 1;
                pause = Box::pin(tokio::time::sleep(Duration::from_millis(100)));
                Poll::Ready(Some(Ok(Frame::Data("piece".into()))))
            }))
            .into()
        }
        _ => {
            let mut request = request;
            ResponseFuture::later(async move {
                match collect(&mut request.take_body()).await {
                    Ok(body) => ok(body),
                    Err(error) => ok(error.to_string()),
                }
            })
        }
    })
}

fn after(milliseconds: u64, request: Request) -> ResponseFuture {
    ResponseFuture::later(async move {
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        ok(request.path().to_owned())
    })
}

const PATHS: [&str; 5] = ["/now", "/file", "/late", "/later", "/pieces"];

fn expected(path: &str) -> String {
    match path {
        "/file" => "x".repeat(3_000_000),
        "/pieces" => "piece".repeat(3),
        path => path.to_owned(),
    }
}

/// The final response after interim ones, which have no body.
macro_rules! final_response {
    ($client:expr) => {
        loop {
            let response = $client.read_response();
            if response.status != 100 {
                break response;
            }
        }
    };
}

#[test]
fn a_client_that_ended_its_side_gets_its_response() {
    let server = Server::start(responses());
    for path in PATHS {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.stream.shutdown(Shutdown::Write).unwrap();
        let response = final_response!(client);
        assert!(response.text() == expected(path), "{path}");
        client.assert_closed();
    }
    // A client of HTTP/1.0 gets no interim response.
    let mut client = server.connect();
    client.send("GET /later HTTP/1.0\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_response().text(), "/later");
    client.assert_closed();
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody");
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.read_response().text(), "body");
}

#[test]
fn pipelined_requests_before_the_end_are_all_served() {
    let server = Server::start(responses());
    let mut client = server.connect();
    let requests = PATHS.map(|path| format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
    client.send(requests.concat());
    client.stream.shutdown(Shutdown::Write).unwrap();
    for path in PATHS {
        let response = final_response!(client);
        assert!(response.text() == expected(path), "{path}");
    }
    client.assert_closed();
}

#[test]
fn a_client_of_tls_that_ended_its_side_gets_its_response() {
    let (authority, server) = serve_one(Limits::default(), responses());
    for path in PATHS {
        let mut client =
            connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.stream.conn.send_close_notify();
        client
            .stream
            .conn
            .write_tls(&mut client.stream.sock)
            .unwrap();
        client.stream.sock.shutdown(Shutdown::Write).unwrap();
        let response = final_response!(client);
        assert!(response.text() == expected(path), "{path}");
        client.assert_closed();
    }
}

#[test]
fn a_client_of_http2_that_ended_its_side_gets_its_responses() {
    let server = Server::start(responses());
    let mut peer = Peer::open_with(connect(server.address()).unwrap(), &[]);
    // The windows are opened at once, as nothing can be sent later.
    peer.opens_windows = false;
    peer.acknowledges = false;
    peer.send(window_update(0, 1 << 24));
    let streams = PATHS.map(|path| {
        let stream = peer.get(path);
        peer.send(window_update(stream, 1 << 24));
        stream
    });
    let incomplete = peer.request(&request("POST", "/body"), false);
    peer.stream.shutdown(Shutdown::Write).unwrap();
    for (path, stream) in PATHS.into_iter().zip(streams) {
        assert!(peer.response(stream).text() == expected(path), "{path}");
    }
    // Its response came long before; what is missing of the request is not waited for.
    let incomplete = peer.received(incomplete);
    assert_eq!(
        String::from_utf8_lossy(&incomplete.body),
        "the peer disconnected before the body ended"
    );
    server.wait_for("its end", |totals| totals.connections == 0);
}

#[test]
fn a_request_that_is_not_complete_at_the_end_is_not_waited_for() {
    let server = Server::start(responses());
    for sent in [
        "",
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nbody",
    ] {
        let mut client = server.connect();
        client.send(sent);
        client.stream.shutdown(Shutdown::Write).unwrap();
        // A handler may still respond to an incomplete body.
        let _ = client.rest();
    }
    server.wait_for("their end", |totals| totals.connections == 0);
}

/// A service whose responses never come, and the number of handlers that wait.
fn endless() -> (Arc<AtomicUsize>, Arc<dyn ServiceFactory>) {
    struct Waiting(Arc<AtomicUsize>);
    impl Drop for Waiting {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
    let waiting = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&waiting);
    let service = service(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        let guard = Waiting(Arc::clone(&counted));
        ResponseFuture::later(async move {
            let _guard = guard;
            std::future::pending::<Response>().await
        })
    });
    (waiting, service)
}

#[test]
fn a_handler_does_not_work_for_a_client_that_is_gone() {
    let (waiting, service) = endless();
    let (authority, server) = serve_one(Limits::default(), Arc::clone(&service));
    let clear = Server::start(service);
    let count = |number| {
        wait_until("the handlers", || waiting.load(Ordering::Relaxed) == number);
    };
    // Over HTTP/1.1.
    let mut client = clear.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    count(1);
    drop(client);
    count(0);
    // It ended its side first, and is gone later.
    let mut client = clear.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    client.stream.shutdown(Shutdown::Write).unwrap();
    count(1);
    drop(client);
    count(0);
    // Over TLS, with `close_notify` and without it.
    for ends in [true, false] {
        let mut client =
            connect_tls(server.address(), &client_of(&authority), "example.com").unwrap();
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        count(1);
        if ends {
            client.stream.conn.send_close_notify();
            client
                .stream
                .conn
                .write_tls(&mut client.stream.sock)
                .unwrap();
        }
        drop(client);
        count(0);
    }
    // Over HTTP/2.
    let mut peer = Peer::open_with(connect(clear.address()).unwrap(), &[]);
    peer.get("/");
    peer.get("/");
    count(2);
    drop(peer);
    count(0);
}
