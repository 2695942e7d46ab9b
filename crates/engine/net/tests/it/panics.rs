//! Handlers that panic: each costs one response, and the connection, the worker and other clients are not
//! affected.

use apus_http::ResponseFuture;

use crate::harness::{Server, ok, panicking, service};

#[test]
fn a_panic_costs_one_500_and_the_connection_goes_on() {
    let server = Server::start(panicking());
    let mut client = server.connect();
    for path in ["/call", "/future", "/late"] {
        assert_eq!(client.get(path).status, 500, "{path}");
        assert_eq!(client.get("/well").text(), "/well", "{path}");
    }
    client.send(
        "GET /1 HTTP/1.1\r\nHost: a\r\n\r\nGET /call HTTP/1.1\r\nHost: a\r\n\r\n\
         GET /2 HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(client.read_response().text(), "/1");
    assert_eq!(client.read_response().status, 500);
    assert_eq!(client.read_response().text(), "/2");
    assert_eq!(server.totals().panics, 4);
}

#[test]
fn a_panic_in_a_stream_cuts_its_response() {
    let server = Server::start(panicking());
    let mut bystander = server.connect();
    assert_eq!(bystander.get("/a").text(), "/a");
    let mut client = server.connect();
    client.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.try_response(false).is_err());
    server.wait_for("the counts", |totals| {
        (totals.panics, totals.broken_responses) == (1, 1)
    });
    assert_eq!(bystander.get("/b").text(), "/b");
}

#[test]
fn a_panic_while_a_body_arrives_ends_only_the_request() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            let _ = request.body_mut().frame().await;
            if request.path() == "/panic" {
                panic!("on purpose, while the body arrives")
            }
            ok("well")
        })
    }));
    let mut client = server.connect();
    client.send("POST /panic HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf ");
    assert_eq!(client.read_response().status, 500);
    client.send("other");
    assert_eq!(client.get("/").text(), "well");
}
