//! Upgrade and CONNECT (RFC 9110 sections 7.8 and 9.3.6): the connection is handed over, with what
//! the client sent early.

use std::future::poll_fn;
use std::sync::Arc;

use apus_http::{Duplex, HeaderValue, Method, Response, ServiceFactory, StatusCode, header};
use apus_net::ListenerPlan;

use crate::harness::{Server, local, ok, paths, plan, service, tcp};

/// Sends back whatever comes.
pub(crate) async fn echo(mut duplex: Box<dyn Duplex>) {
    let mut buffer = [0; 100];
    loop {
        let Ok(read) = poll_fn(|cx| duplex.poll_read(cx, &mut buffer)).await else {
            return;
        };
        if read == 0 {
            let _ = poll_fn(|cx| duplex.poll_shutdown(cx)).await;
            return;
        }
        let mut written = 0;
        while written < read {
            match poll_fn(|cx| duplex.poll_write(cx, &buffer[written..read])).await {
                Ok(more) => written += more,
                Err(_) => return,
            }
        }
        if poll_fn(|cx| duplex.poll_flush(cx)).await.is_err() {
            return;
        }
    }
}

fn accepting() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let mut response = match (request.method(), request.path()) {
            (&Method::CONNECT, _) => Response::new(StatusCode::OK),
            (_, "/upgrade") => Response::new(StatusCode::SWITCHING_PROTOCOLS)
                .with_header(&header::UPGRADE, &HeaderValue::from_static("echo")),
            (_, path) => return ok(path.to_owned()).into(),
        };
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    })
}

const UPGRADE: &str =
    "GET /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

#[test]
fn hands_an_upgraded_connection_over_with_early_bytes() {
    let server = Server::start(accepting());
    let mut client = server.connect();
    client.send(format!(
        "GET /first HTTP/1.1\r\nHost: a\r\n\r\n{UPGRADE}early"
    ));
    assert_eq!(client.read_response().text(), "/first");
    let received = client.read_response();
    assert_eq!(received.status, 101);
    assert_eq!(received.field("connection"), Some("upgrade"));
    assert_eq!(received.field("upgrade"), Some("echo"));
    assert_eq!(client.exactly(5).unwrap(), b"early");
    let long = "later ".repeat(10_000);
    client.send(&long);
    assert_eq!(client.exactly(long.len()).unwrap(), long.as_bytes());
    client.stream.shutdown(std::net::Shutdown::Write).unwrap();
    client.assert_closed();
    assert_eq!(server.totals().requests, 2);
}

#[test]
fn hands_a_connect_over_with_early_bytes() {
    let server = Server::start(accepting());
    let mut client = server.connect();
    client.send("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\nGET / HTTP/1.1\r\n\r\n");
    let head = client.read_head_response();
    assert_eq!((head.status, head.field("content-length")), (200, None));
    assert_eq!(head.field("transfer-encoding"), None);
    assert_eq!(client.exactly(18).unwrap(), b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!(server.totals().requests, 1);
}

#[test]
fn a_tunnel_lives_through_a_reload_and_the_removal_of_its_listener() {
    let server = Server::start(accepting());
    let mut client = server.connect();
    client.send(UPGRADE);
    assert_eq!(client.read_response().status, 101);
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(local(), paths())]))
        .unwrap();
    client.send("after the reload");
    assert_eq!(client.exactly(16).unwrap(), b"after the reload");
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(tcp("127.0.0.2:0"), paths())]))
        .unwrap();
    client.send("after the removal");
    assert_eq!(client.exactly(17).unwrap(), b"after the removal");
}

#[test]
fn a_refused_upgrade_leaves_an_http_connection() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send(UPGRADE);
    assert_eq!(client.read_response().text(), "/upgrade");
    assert_eq!(client.get("/next").text(), "/next");
}

#[test]
fn no_client_is_switched_that_did_not_request_it() {
    let server = Server::start(accepting());
    for request in [
        "GET /upgrade HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET /upgrade HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\n\r\n",
        "GET /upgrade HTTP/1.0\r\nConnection: upgrade, keep-alive\r\nUpgrade: echo\r\n\r\n",
    ] {
        let mut client = server.connect();
        client.send(request);
        assert_eq!(client.read_response().status, 500, "{request}");
        assert_eq!(client.get("/next").text(), "/next");
    }
}

#[test]
fn a_tunnel_does_not_read_the_body_of_its_request() {
    let server = Server::start(accepting());
    let mut client = server.connect();
    client.send(
        "POST /upgrade HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\
         Content-Length: 7\r\n\r\ncontentearly",
    );
    assert_eq!(client.read_response().status, 101);
    assert_eq!(client.exactly(5).unwrap(), b"early");
}

#[test]
fn an_accepted_connect_without_a_tunnel_is_a_500() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n");
    assert_eq!(client.read_response().status, 500);
    client.assert_closed();
}
