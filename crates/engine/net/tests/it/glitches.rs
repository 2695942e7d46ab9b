//! What clients do wrong is noted, over HTTP/1.1 and HTTP/2, and nothing that clients do who do nothing wrong.

use std::sync::Arc;

use apus_http::{Glitch, ResponseFuture, ServiceFactory};
use apus_net::{EnginePlan, ListenerPlan};
use apus_testkit::h2::{code, frame, kind, reset};

use crate::h2::client::Peer;
use crate::harness::{GlitchRecorder, Server, connect, local, ok, plan, service};

/// `/wait` gets no response, and other paths one at once.
fn waiting() -> Arc<dyn ServiceFactory> {
    service(|request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        path => ok(path.to_owned()).into(),
    })
}

#[test]
fn what_clients_do_wrong_is_noted_and_nothing_else() {
    let recorder = Arc::new(GlitchRecorder::default());
    let server = Server::run(EnginePlan {
        client_filter: Some(recorder.clone()),
        ..plan(vec![ListenerPlan::new(local(), waiting())])
    });
    let open = || Peer::open(connect(server.address()).unwrap());
    server.assert_serves();
    let mut honest = server.connect();
    assert_eq!(honest.get("/a").text(), "/a");
    drop(honest);
    drop(server.connect());
    let mut honest = open();
    assert_eq!(honest.fetch("/b").text(), "/b");
    honest.send(reset(1, code::CANCEL));
    assert_eq!(honest.fetch("/c").text(), "/c");
    drop(honest);

    let mut expected = Vec::new();
    let mut expect = |glitches: &[Glitch]| {
        expected.extend_from_slice(glitches);
        recorder.wait_for(&expected);
    };
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(client.read_response().status, 400);
    expect(&[Glitch::Protocol]);
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
    assert_eq!(client.read_response().status, 200);
    expect(&[Glitch::Protocol]);

    let requests = server.totals().requests;
    let mut client = server.connect();
    client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests > requests);
    drop(client);
    expect(&[Glitch::Abandoned]);

    let mut peer = open();
    let stream = peer.get("/wait");
    peer.send(reset(stream, code::CANCEL));
    assert_eq!(peer.fetch("/d").text(), "/d");
    expect(&[Glitch::Abandoned]);
    peer.get("/wait");
    peer.get("/wait");
    assert_eq!(peer.fetch("/e").text(), "/e");
    drop(peer);
    expect(&[Glitch::Abandoned; 2]);

    // DATA on the stream of the connection (RFC 9113 section 6.1).
    let mut peer = open();
    peer.send(frame(kind::DATA, 0, 0, b""));
    expect(&[Glitch::Protocol]);
    // A request without pseudo-header fields costs its stream only.
    let mut peer = open();
    peer.request(&[("a", "b")], true);
    assert_eq!(peer.fetch("/f").text(), "/f");
    expect(&[Glitch::Protocol]);
}
