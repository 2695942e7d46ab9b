//! Interim responses (RFC 9110 section 15.2) that services send before their responses, over both versions of
//! HTTP.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use apus_http::{
    Frame, Headers, Interim, Request, Response, ResponseFuture, ServiceFactory, StatusCode,
};
use apus_net::tls::UnknownName;
use apus_net::{Limits, ListenerPlan};
use apus_testkit::h2::{request, request_with};
use apus_testkit::{CertificateAuthority, collect, eventually, frames, wait_until};
use bytes::Bytes;
use tokio::sync::Notify;

use crate::h2::client::Peer;
use crate::harness::{Client, Server, connect, local, ok, plan, service};
use crate::tls::{client_of, connect_tls, site, tls_listener};

/// A handler waits here until the test lets it go on.
#[derive(Clone, Default)]
struct Gate(Arc<AtomicBool>);

impl Gate {
    fn open(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    async fn passed(&self) {
        eventually("the test goes on", || self.0.load(Ordering::Relaxed)).await;
    }
}

fn hint(interim: &Interim, link: &str) {
    let mut headers = Headers::new();
    headers.try_append("link", link).unwrap();
    interim.send(StatusCode::EARLY_HINTS, headers);
}

/// Sends a hint at once, and responds when the gate is open.
fn hinting(gate: &Gate) -> Arc<dyn ServiceFactory> {
    let gate = gate.clone();
    service(move |request| {
        let gate = gate.clone();
        ResponseFuture::later(async move {
            hint(request.interim(), "</a.css>; rel=preload");
            gate.passed().await;
            ok("done")
        })
    })
}

fn open(server: &Server) -> Peer<std::net::TcpStream> {
    Peer::open(connect(server.address()).unwrap())
}

#[test]
fn hints_arrive_while_the_handler_works() {
    let gate = Gate::default();
    let server = Server::start(hinting(&gate));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let hints = client.read_response();
    assert_eq!(
        hints.head,
        "HTTP/1.1 103 Early Hints\r\nlink: </a.css>; rel=preload\r\n\r\n"
    );
    gate.open();
    assert_eq!(client.read_response().text(), "done");
    assert_eq!(client.get("/").status, 103);
}

#[test]
fn hints_arrive_over_http2_while_the_handler_works() {
    let gate = Gate::default();
    let server = Server::start(hinting(&gate));
    let mut peer = open(&server);
    let stream = peer.get("/");
    peer.until("the hints", |peer| peer.received(stream).interim == [103]);
    assert_eq!(peer.received(stream).status, 0);
    gate.open();
    let response = peer.response(stream);
    assert_eq!((response.status, response.text().as_str()), (200, "done"));
}

/// Sends 500 hints in a row and then its response, `/now` without waiting for anything.
fn many() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let hints = |request: &Request| {
            for number in 0..500 {
                hint(request.interim(), &format!("</{number}>"));
            }
        };
        if request.path() == "/now" {
            hints(&request);
            return ok("done").into();
        }
        ResponseFuture::later(async move {
            hints(&request);
            ok("done")
        })
    })
}

#[test]
fn many_hints_arrive_in_order_before_the_response() {
    let server = Server::start(many());
    let mut client = server.connect();
    let mut peer = open(&server);
    for path in ["/now", "/later", "/now"] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        for number in 0..500 {
            let hints = client.read_response();
            assert_eq!(hints.status, 103);
            assert_eq!(hints.field("link"), Some(&*format!("</{number}>")));
        }
        assert_eq!(client.read_response().text(), "done");
        let response = peer.fetch(path);
        assert_eq!(response.interim, [103; 500]);
        assert_eq!(response.text(), "done");
    }
}

#[test]
fn http_1_0_clients_get_no_interim_responses() {
    let server = Server::start(many());
    for path in ["/now", "/later"] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.0\r\n\r\n"));
        let response = client.read_response();
        assert_eq!((response.status, response.text().as_str()), (200, "done"));
    }
}

/// Sends 100 twice, then reads the body.
fn continuing() -> Arc<dyn ServiceFactory> {
    service(|mut request| {
        ResponseFuture::later(async move {
            request.interim().send(StatusCode::CONTINUE, Headers::new());
            tokio::task::yield_now().await;
            request.interim().send(StatusCode::CONTINUE, Headers::new());
            ok(collect(&mut request.take_body()).await.unwrap())
        })
    })
}

#[test]
fn a_continue_is_sent_once_and_only_to_a_client_that_waits_for_it() {
    let server = Server::start(continuing());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.read_response().status, 100);
    client.send("hi");
    assert_eq!(client.read_response().text(), "hi");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nho");
    assert_eq!(client.read_response().text(), "ho");
}

#[test]
fn a_continue_is_sent_once_over_http2() {
    let server = Server::start(continuing());
    let mut peer = open(&server);
    let expecting = [("expect", "100-continue"), ("content-length", "2")];
    let stream = peer.request(&request_with("POST", "/", &expecting), false);
    peer.until("100", |peer| peer.received(stream).interim == [100]);
    peer.upload(stream, b"hi", true);
    let response = peer.response(stream);
    assert_eq!(
        (&*response.interim, &*response.body),
        (&[100][..], &b"hi"[..])
    );
    let stream = peer.request(&request("POST", "/"), false);
    peer.upload(stream, b"ho", true);
    let response = peer.response(stream);
    assert_eq!((&*response.interim, &*response.body), (&[][..], &b"ho"[..]));
}

/// Responds in two pieces and sends a hint with each; every later request sends a hint for the first one.
fn too_late() -> Arc<dyn ServiceFactory> {
    Arc::new(|| {
        let kept = std::cell::RefCell::new(None::<Interim>);
        apus_http::service_fn(move |request| {
            if let Some(earlier) = &*kept.borrow() {
                hint(earlier, "</late>");
                return ok("clean").into();
            }
            let interim = request.interim().clone();
            *kept.borrow_mut() = Some(interim.clone());
            let mut pieces = [&b"one"[..], b"two"].into_iter();
            let body = frames(Some(6), move |_| {
                hint(&interim, "</late>");
                Poll::Ready(
                    pieces
                        .next()
                        .map(|piece| Ok(Frame::Data(Bytes::from_static(piece)))),
                )
            });
            Response::new(StatusCode::OK).with_body(body).into()
        })
    })
}

#[test]
fn nothing_follows_the_head_of_the_response() {
    let server = Server::start(too_late());
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "onetwo");
    for _ in 0..2 {
        let response = client.get("/late");
        assert_eq!((response.status, response.text().as_str()), (200, "clean"));
    }
}

#[test]
fn nothing_follows_the_head_of_the_response_over_http2() {
    let server = Server::start(too_late());
    let mut peer = open(&server);
    let response = peer.fetch("/");
    assert_eq!(
        (&*response.interim, &*response.body),
        (&[][..], &b"onetwo"[..])
    );
    for _ in 0..2 {
        let response = peer.fetch("/late");
        assert_eq!(
            (&*response.interim, &*response.body),
            (&[][..], &b"clean"[..])
        );
    }
}

/// Sends a hint from a separate task, as a connection to an origin does.
fn hinting_from_another_task(gate: &Gate) -> Arc<dyn ServiceFactory> {
    let gate = gate.clone();
    service(move |request| {
        let gate = gate.clone();
        ResponseFuture::later(async move {
            let interim = request.interim().clone();
            let go = gate.clone();
            let task = tokio::task::spawn_local(async move {
                go.passed().await;
                hint(&interim, "</a>");
                std::future::pending::<()>().await;
            });
            let _ = task.await;
            ok("never")
        })
    })
}

#[test]
fn hints_from_another_task_arrive() {
    let gate = Gate::default();
    let server = Server::start(hinting_from_another_task(&gate));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let mut peer = open(&server);
    let stream = peer.get("/");
    peer.fence();
    gate.open();
    assert_eq!(client.read_response().status, 103);
    peer.until("the hints", |peer| peer.received(stream).interim == [103]);
}

/// Sends hints without end.
fn endless() -> Arc<dyn ServiceFactory> {
    service(|request| match request.path() {
        "/well" => ok("well").into(),
        _ => ResponseFuture::later(async move {
            loop {
                hint(request.interim(), &"x".repeat(4000));
                tokio::task::yield_now().await;
            }
        }),
    })
}

#[test]
fn a_client_that_takes_no_interim_responses_is_cut_off_in_time() {
    let limits = Limits {
        send_timeout: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Server::with_limits(limits, endless());
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the end of it", |totals| totals.timeouts == 1);
    let mut peer = open(&server);
    peer.get("/");
    server.wait_for("the end of it", |totals| totals.timeouts == 2);
    server.assert_serves();
}

/// Sends more hints than all buffers up to the client hold, then a last one, and then waits.
fn flooding(flooded: &Arc<AtomicBool>, go_on: &Arc<Notify>) -> Arc<dyn ServiceFactory> {
    let (flooded, go_on) = (Arc::clone(flooded), Arc::clone(go_on));
    service(move |request| {
        let (flooded, go_on) = (Arc::clone(&flooded), Arc::clone(&go_on));
        ResponseFuture::later(async move {
            let many = "x".repeat(50_000);
            for _ in 0..400 {
                hint(request.interim(), &many);
                tokio::task::yield_now().await;
            }
            hint(request.interim(), "</last>");
            flooded.store(true, Ordering::Relaxed);
            go_on.notified().await;
            ok("done")
        })
    })
}

#[test]
fn a_client_that_reads_hints_late_gets_all_of_them_before_the_response() {
    let (flooded, go_on) = (Arc::default(), Arc::default());
    let authority = CertificateAuthority::generate();
    let sites = [site(&["a.test"], &[&authority.ecdsa(&["a.test"])])];
    let service = flooding(&flooded, &go_on);
    let server = Server::run(plan(vec![
        ListenerPlan::new(local(), Arc::clone(&service)),
        tls_listener(&sites, UnknownName::FirstSite, service),
    ]));
    let addresses = server.addresses();
    let mut clear = Client::new(connect(addresses[0]).unwrap());
    let mut tls = connect_tls(addresses[1], &client_of(&authority), "a.test").unwrap();
    assert_reads_late(&mut clear, &flooded, &go_on);
    assert_reads_late(&mut tls, &flooded, &go_on);
}

fn assert_reads_late(client: &mut Client<impl Read + Write>, flooded: &AtomicBool, go_on: &Notify) {
    flooded.store(false, Ordering::Relaxed);
    client.send("GET / HTTP/1.1\r\nHost: a.test\r\n\r\n");
    wait_until("the flood", || flooded.load(Ordering::Relaxed));
    while client.read_response().field("link") != Some("</last>") {}
    go_on.notify_one();
    assert_eq!(client.read_response().text(), "done");
}

#[test]
fn a_client_that_disconnects_ends_the_handler_that_hints() {
    let gone = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&gone);
    struct DropFlag(Arc<AtomicBool>);
    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let server = Server::start(service(move |request| {
        let flag = DropFlag(Arc::clone(&seen));
        ResponseFuture::later(async move {
            let _flag = flag;
            hint(request.interim(), "</a>");
            std::future::pending().await
        })
    }));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().status, 103);
    drop(client);
    wait_until("the end of the handler", || gone.load(Ordering::Relaxed));
}
