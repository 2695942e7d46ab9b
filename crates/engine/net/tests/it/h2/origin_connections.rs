//! Connections to origins: the client of `apus-client`, in clear text and over TLS, against the server.

use std::future::Future;
use std::rc::Rc;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientTlsSettings, MultiplexedClient, Origin,
    OriginConnection, Protocol, ProxyHead, RequestTemplate, ResponseRules, Timeouts, Tls, connect,
};
use apus_http::{Body, Headers, InterimQueue, Method, Response, ResponseFuture, StatusCode};
use apus_net::Limits;
use apus_testkit::{block_on, body_bytes, collect, eventually, frames};

use super::{described, with_tls};
use crate::harness::{PATIENCE, Server, collector, ok, service, text};
use crate::tunnels::echo;

fn run(test: impl Future<Output = ()>) {
    block_on(async { tokio::time::timeout(PATIENCE, test).await })
        .expect("the test to end in time");
}

async fn open(server: &Server, tls: Option<Tls>, protocol: Protocol) -> MultiplexedClient {
    let origin = Origin {
        address: Address::Ip(server.address()),
        tls,
        protocol,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    };
    let opened = connect(&origin, None, &Timeouts::default()).await;
    match opened.unwrap() {
        OriginConnection::Multiplexed(connection) => connection,
        other => panic!("chosen: {other:?}"),
    }
}

fn head(method: Method, target: &str) -> ClientRequestHead {
    ClientRequestHead {
        method,
        scheme: "http",
        authority: "example.com".into(),
        target: target.into(),
        headers: Headers::new(),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
        params: None,
    }
}

fn request(head: ClientRequestHead, body: impl Into<Body>) -> ClientRequest {
    ClientRequest {
        template: RequestTemplate {
            head: Rc::new(head),
            interim: None,
            timeouts: Rc::default(),
            stderr: None,
        },
        body: body.into(),
    }
}

fn get(target: &str) -> ClientRequest {
    request(head(Method::GET, target), Body::Empty)
}

fn post(target: &str, body: impl Into<Body>) -> ClientRequest {
    request(head(Method::POST, target), body)
}

async fn fetch(connection: &MultiplexedClient, request: ClientRequest) -> (u16, String) {
    let mut response = connection.send(request).await.unwrap();
    let body = collect(&mut response.body).await.unwrap();
    (response.status.as_u16(), text(&body))
}

#[test]
fn requests_go_over_tls_by_alpn() {
    let (authority, server) = with_tls(Limits::default(), collector());
    let settings = ClientTlsSettings {
        authorities: Some(vec![authority.der]),
        ..ClientTlsSettings::new("example.com")
    };
    let tls = Tls::new(&settings).unwrap();
    run(async {
        for protocol in [Protocol::Http2, Protocol::Auto] {
            let connection = open(&server, Some(tls.clone()), protocol).await;
            let sent = String::from_utf8_lossy(&body_bytes(2_000_000)).into_owned();
            let got = fetch(&connection, post("/", sent.clone())).await;
            assert!(got == (200, sent));
        }
    });
}

#[test]
fn fields_arrive_as_they_were_sent() {
    let server = Server::start(described());
    run(async {
        let connection = open(&server, None, Protocol::Http2).await;
        let mut fields = head(Method::GET, "/a?b=c");
        for (name, value) in [
            ("cookie", "a=1; b=2"),
            ("authorization", "Basic x"),
            ("x", ""),
        ] {
            fields.headers.try_append(name, value).unwrap();
        }
        for _ in 0..3 {
            let client_request = request(fields.clone(), Body::Empty);
            assert_eq!(
                fetch(&connection, client_request).await.1,
                "GET example.com /a?b=c\nauthorization: Basic x\ncookie: a=1; b=2\n\
                 host: example.com\nx: \n"
            );
        }
    });
}

#[test]
fn interim_responses_are_forwarded_and_100_releases_the_body() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut hints = Headers::new();
            hints.try_append("link", "</a>").unwrap();
            request.interim().send(StatusCode::EARLY_HINTS, hints);
            let body = collect(&mut request.take_body()).await;
            ok(body.unwrap())
        })
    }));
    run(async {
        let connection = open(&server, None, Protocol::Http2).await;
        let queue = Rc::new(InterimQueue::default());
        // The body arrives only after the client got a 100.
        let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
        let (interim_responses, recorded) = (Rc::clone(&queue), Rc::clone(&seen));
        let mut data = Some("hello");
        let body = frames(Some(5), move |_| {
            while let Some((request, status, headers)) = interim_responses.next() {
                let link = headers.get_str("link").unwrap_or("").to_owned();
                recorded.borrow_mut().push((request, status.as_u16(), link));
            }
            std::task::Poll::Ready(data.take().map(|data| {
                Ok(apus_http::Frame::Data(bytes::Bytes::from_static(
                    data.as_bytes(),
                )))
            }))
        });
        let mut expecting = head(Method::POST, "/");
        expecting.expects_continue = true;
        let mut request = request(expecting, body);
        request.template.interim = Some(queue.sender(7));
        assert_eq!(fetch(&connection, request).await, (200, "hello".into()));
        let expected = [(7, 103, "</a>".to_owned()), (7, 100, String::new())];
        assert_eq!(*seen.borrow(), expected);
    });
}

#[test]
fn tunnels_pass_bytes_in_both_directions() {
    let server = Server::start(service(|request| {
        if request.upgrade() != Some("echo") {
            return Response::new(StatusCode::FORBIDDEN).with_body("no").into();
        }
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    }));
    run(async {
        let connection = open(&server, None, Protocol::Http2).await;
        let mut upgrade = head(Method::GET, "/");
        upgrade.upgrade = Some("echo".into());
        let client_request = request(upgrade.clone(), Body::Empty);
        let response = connection.send(client_request).await.unwrap();
        assert_eq!(response.status, StatusCode::SWITCHING_PROTOCOLS);
        assert_eq!(response.headers.get_str("upgrade"), Some("echo"));
        let mut tunnel = response.tunnel.expect("a tunnel");
        for text in [&b"hello"[..], b"again"] {
            let mut back = [0; 5];
            let written = std::future::poll_fn(|cx| tunnel.poll_write(cx, text)).await;
            assert_eq!(written.unwrap(), 5);
            let read = std::future::poll_fn(|cx| tunnel.poll_read(cx, &mut back)).await;
            assert_eq!((read.unwrap(), &back[..]), (5, text));
        }
        drop(tunnel);
        eventually("the end of the tunnel", || connection.open_streams() == 0).await;
        upgrade.upgrade = Some("other".into());
        let client_request = request(upgrade, Body::Empty);
        assert_eq!(fetch(&connection, client_request).await, (403, "no".into()));
        assert_eq!(fetch(&connection, get("/")).await.0, 403);
    });
}

#[test]
fn a_server_that_stops_is_left_in_order() {
    let server = Server::start(collector());
    run(async {
        let connection = open(&server, None, Protocol::Http2).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 200);
        server.engine.stop(PATIENCE).await;
        eventually("the end", || connection.is_closed()).await;
        let failure = connection
            .send(post("/", "x"))
            .await
            .expect_err("no response");
        assert!(!failure.request_sent && failure.body.is_some(), "{failure}");
    });
}
