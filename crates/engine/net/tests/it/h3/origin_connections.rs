//! Connections to origins: the client of `apus-client`, against the server.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use apus_client::{
    Address, ClientRequest, ClientRequestHead, ClientTlsSettings, FailureCause, MultiplexedClient,
    Origin, OriginConnection, Protocol, ProxyHead, RequestFailure, RequestPhase, RequestTemplate,
    ResponseRules, Timeouts, Tls, connect,
};
use apus_http::{
    Body, BodyError, FileRange, Frame, Headers, InterimQueue, Method, Response, ResponseFuture,
    ServiceFactory, StatusCode, Version,
};
use apus_net::{EnginePlan, Limits};
use apus_testkit::quic::client_hello::{client_hello_extensions, extension};
use apus_testkit::{
    CertificateAuthority, UdpRelay, block_on, body_bytes, collect, eventually, frames, free_port,
    ready_frames,
};
use bytes::Bytes;

use super::h3_listener;
use crate::harness::{PATIENCE, Server, collector, ok, paths, plan, service, text, waiting_for};
use crate::tunnels::echo;

/// Around the limits of chunks that are copied, of chunks, of unread bodies, of the windows of streams, and beyond all.
const SIZES: [usize; 19] = [
    0, 1, 1_023, 1_024, 1_025, 16_383, 16_384, 16_385, 65_535, 65_536, 65_537, 131_071, 131_072,
    131_073, 262_143, 262_144, 262_145, 1_000_000, 10_000_000,
];

fn run(test: impl Future<Output = ()>) {
    block_on(async { tokio::time::timeout(PATIENCE * 2, test).await })
        .expect("the test to end in time");
}

/// A server, and TLS of its clients.
struct OriginServer {
    server: Server,
    tls: Tls,
}

impl OriginServer {
    fn start(service: Arc<dyn ServiceFactory>) -> Self {
        Self::with_limits(Limits::default(), service)
    }

    fn with_limits(limits: Limits, service: Arc<dyn ServiceFactory>) -> Self {
        let authority = CertificateAuthority::generate();
        let plan = EnginePlan {
            limits,
            ..plan(vec![h3_listener(&authority, service)])
        };
        Self {
            server: Server::run(plan),
            tls: trusting(&authority, "example.com"),
        }
    }

    async fn open(&self) -> MultiplexedClient {
        let opened = open(self.server.address(), &self.tls, &Timeouts::default()).await;
        opened.unwrap()
    }
}

fn trusting(authority: &CertificateAuthority, name: &str) -> Tls {
    let settings = ClientTlsSettings {
        authorities: Some(vec![authority.der.clone()]),
        ..ClientTlsSettings::new(name)
    };
    Tls::new(&settings).unwrap()
}

async fn open(
    address: SocketAddr,
    tls: &Tls,
    timeouts: &Timeouts,
) -> Result<MultiplexedClient, RequestFailure> {
    let origin = Origin {
        address: Address::Ip(address),
        tls: Some(tls.clone()),
        protocol: Protocol::Http3,
        proxy_head: ProxyHead::None,
        responses: ResponseRules::default(),
    };
    match connect(&origin, None, timeouts).await? {
        OriginConnection::Multiplexed(connection) => Ok(connection),
        other => panic!("chosen: {other:?}"),
    }
}

fn head(method: Method, target: &str) -> ClientRequestHead {
    ClientRequestHead {
        method,
        scheme: "https",
        authority: "example.com".into(),
        target: target.into(),
        headers: Headers::new(),
        upgrade: None,
        te_trailers: true,
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

async fn fetch(connection: &MultiplexedClient, request: ClientRequest) -> (u16, Vec<u8>) {
    let mut response = connection.send(request).await.unwrap();
    assert_eq!(response.version, Version::HTTP_3);
    let body = collect(&mut response.body).await.unwrap();
    (response.status.as_u16(), body)
}

/// A body of these bytes, in pieces, with a length or without.
fn streamed(bytes: &[u8], has_length: bool) -> Body {
    let pieces = bytes.chunks(50_000).map(Bytes::copy_from_slice);
    let frames = pieces.map(|piece| Ok(Frame::Data(piece))).collect();
    ready_frames(has_length.then_some(bytes.len() as u64), frames)
}

#[test]
fn bodies_of_all_sizes_come_back_whole() {
    let server = OriginServer::start(collector());
    run(async {
        let connection = server.open().await;
        for size in SIZES {
            let sent = body_bytes(size);
            for body in [
                Body::from(sent.clone()),
                streamed(&sent, true),
                streamed(&sent, false),
            ] {
                let (status, got) = fetch(&connection, post("/", body)).await;
                assert!(status == 200 && got == sent, "{status} {size}");
            }
        }
        assert_eq!(connection.requests(), 3 * SIZES.len() as u64);
    });
}

#[test]
fn a_file_is_sent_whole() {
    let server = OriginServer::start(collector());
    let mut file = tempfile::tempfile().unwrap();
    let bytes = body_bytes(3_000_000);
    std::io::Write::write_all(&mut file, &bytes).unwrap();
    let file = Arc::new(file);
    run(async {
        let connection = server.open().await;
        for (offset, len) in [(0, 3_000_000), (1_000, 65_536), (7, 65_537), (2_999_999, 1)] {
            let range = FileRange {
                file: Arc::clone(&file),
                offset,
                len,
            };
            let got = fetch(&connection, post("/", Body::File(range))).await;
            let expected = &bytes[offset as usize..][..len as usize];
            assert!(got == (200, expected.to_vec()), "{offset} {len}");
        }
    });
}

#[test]
fn many_requests_share_a_connection() {
    let server = OriginServer::start(collector());
    run(async {
        let connection = server.open().await;
        let waiting: Vec<_> = (0..100)
            .map(|number| {
                let body = body_bytes(20_000 + number);
                (connection.send(post("/", body.clone())), body)
            })
            .collect();
        for (response, body) in waiting {
            let mut response = response.await.unwrap();
            assert!(collect(&mut response.body).await.unwrap() == body);
        }
        assert_eq!(connection.requests(), 100);
        let totals = server.server.totals();
        assert_eq!((totals.h3_connections, totals.requests), (1, 100));
    });
}

#[test]
fn a_server_that_allows_fewer_streams_has_no_room_for_more() {
    let go = Arc::new(AtomicBool::new(false));
    let limits = Limits {
        h2_max_concurrent_streams: 2,
        ..Limits::default()
    };
    let server = OriginServer::with_limits(limits, waiting_for(&go));
    run(async {
        let connection = server.open().await;
        let first = connection.send(get("/"));
        assert!(connection.has_room());
        let second = connection.send(get("/"));
        assert!(!connection.has_room());
        let failure = connection.send(post("/", "x")).await.expect_err("no room");
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        assert!(!failure.request_sent && failure.body.is_some());
        go.store(true, Ordering::SeqCst);
        for response in [first, second] {
            assert_eq!(response.await.unwrap().status, 200);
        }
        // The server allows new streams when it has forgotten the old ones.
        eventually("room", || connection.has_room()).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 200);
    });
}

#[test]
fn a_slow_reader_limits_its_response_and_no_other() {
    let whole = Bytes::from(body_bytes(2_000_000));
    let large = whole.clone();
    let server = OriginServer::start(service(move |request| {
        match request.path() {
            "/large" => ok(large.clone()),
            _ => ok("small"),
        }
        .into()
    }));
    run(async {
        let connection = server.open().await;
        let mut slow = Vec::new();
        for _ in 0..20 {
            slow.push(connection.send(get("/large")).await.unwrap());
        }
        for _ in 0..10 {
            assert_eq!(
                fetch(&connection, get("/small")).await,
                (200, "small".into())
            );
        }
        for mut response in slow {
            let body = collect(&mut response.body).await.unwrap();
            assert!(body == whole);
        }
    });
}

#[test]
fn trailers_pass_in_both_directions() {
    let server = OriginServer::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut body = request.take_body();
            let mut frames = Vec::new();
            while let Some(frame) = body.frame().await {
                frames.push(frame);
            }
            ok(ready_frames(None, frames))
        })
    }));
    run(async {
        let connection = server.open().await;
        let mut trailers = Headers::new();
        trailers.try_append("x-sum", "7").unwrap();
        for data in [vec!["data"], vec![]] {
            let data = data
                .into_iter()
                .map(|data| Ok(Frame::Data(Bytes::from_static(data.as_bytes()))));
            let frames: Vec<Result<Frame, BodyError>> = data
                .chain([Ok(Frame::Trailers(trailers.clone()))])
                .collect();
            let expected = frames.len();
            let sent = connection.send(post("/", ready_frames(None, frames))).await;
            let mut response = sent.unwrap();
            let mut got = Vec::new();
            while let Some(frame) = response.body.frame().await {
                got.push(frame.unwrap());
            }
            assert_eq!(got.len(), expected);
            let Some(Frame::Trailers(found)) = got.last() else {
                panic!("no trailers");
            };
            assert_eq!(found.get_str("x-sum"), Some("7"));
        }
    });
}

#[test]
fn interim_responses_are_forwarded_and_100_releases_the_body() {
    let server = OriginServer::start(service(|mut request| {
        ResponseFuture::later(async move {
            let mut hints = Headers::new();
            hints.try_append("link", "</a>").unwrap();
            request.interim().send(StatusCode::EARLY_HINTS, hints);
            let body = collect(&mut request.take_body()).await;
            ok(body.unwrap())
        })
    }));
    run(async {
        let connection = server.open().await;
        let queue = Rc::new(InterimQueue::default());
        // The body arrives only after the client got a 100.
        let seen = Rc::new(std::cell::RefCell::new(Vec::new()));
        let (interim_responses, recorded) = (Rc::clone(&queue), Rc::clone(&seen));
        let mut data = Some("hello");
        let body = frames(Some(5), move |_| {
            while let Some((_, status, headers)) = interim_responses.next() {
                let link = headers.get_str("link").unwrap_or("").to_owned();
                recorded.borrow_mut().push((status.as_u16(), link));
            }
            let data = data.take().map(|data| Bytes::from_static(data.as_bytes()));
            Poll::Ready(data.map(|data| Ok(Frame::Data(data))))
        });
        let mut expecting = head(Method::POST, "/");
        expecting.expects_continue = true;
        let mut request = request(expecting, body);
        request.template.interim = Some(queue.sender(7));
        assert_eq!(fetch(&connection, request).await, (200, b"hello".into()));
        let expected = [(103, "</a>".to_owned()), (100, String::new())];
        assert_eq!(*seen.borrow(), expected);
    });
}

#[test]
fn tunnels_pass_bytes_in_both_directions() {
    let server = OriginServer::start(service(|request| {
        if request.upgrade() != Some("echo") {
            return Response::new(StatusCode::FORBIDDEN).with_body("no").into();
        }
        let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
        response.set_tunnel(Box::new(|duplex| Box::pin(echo(duplex))));
        response.into()
    }));
    run(async {
        let connection = server.open().await;
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
        assert_eq!(
            fetch(&connection, client_request).await,
            (403, b"no".into())
        );
    });
}

#[test]
fn a_request_that_nobody_waits_for_is_cancelled() {
    let never = Arc::new(AtomicBool::new(false));
    let server = OriginServer::start(waiting_for(&never));
    run(async {
        let connection = server.open().await;
        let sent = connection.send(get("/"));
        let mut sent = Box::pin(sent);
        tokio::select! {
            _ = &mut sent => panic!("no response was sent"),
            () = eventually("the request", || server.server.totals().requests == 1) => {}
        }
        drop(sent);
        eventually("the end of it", || connection.open_streams() == 0).await;
        assert!(!connection.is_closed());
    });
}

#[test]
fn the_rest_of_a_response_that_nobody_reads_is_not_sent() {
    let whole = Bytes::from(body_bytes(20_000_000));
    let served = whole.clone();
    let server = OriginServer::start(service(move |_| ok(served.clone()).into()));
    run(async {
        let connection = server.open().await;
        let mut response = connection.send(get("/")).await.unwrap();
        assert!(matches!(
            response.body.frame().await,
            Some(Ok(Frame::Data(_)))
        ));
        drop(response);
        eventually("the end of it", || connection.open_streams() == 0).await;
        let mut again = connection.send(get("/")).await.unwrap();
        assert!(collect(&mut again.body).await.unwrap() == whole);
        assert!(server.server.totals().bytes_out < 25_000_000);
    });
}

#[test]
fn a_response_before_the_end_of_the_request_is_whole() {
    let server = OriginServer::start(service(|_| {
        Response::text(StatusCode::PAYLOAD_TOO_LARGE, "no").into()
    }));
    run(async {
        let connection = server.open().await;
        for _ in 0..3 {
            let body = streamed(&body_bytes(5_000_000), true);
            let got = fetch(&connection, post("/", body)).await;
            assert_eq!(got, (413, b"no".into()));
        }
        eventually("the end of it", || connection.open_streams() == 0).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 413);
    });
}

#[test]
fn a_server_that_stops_is_left_in_order() {
    let server = OriginServer::start(paths());
    run(async {
        let connection = server.open().await;
        assert_eq!(fetch(&connection, get("/a")).await, (200, b"/a".into()));
        server.server.engine.stop(PATIENCE).await;
        eventually("the end", || connection.is_closed()).await;
        let failure = connection
            .send(post("/", "x"))
            .await
            .expect_err("no response");
        assert!(!failure.request_sent && failure.body.is_some(), "{failure}");
    });
}

/// The server has sent all of it, so it may end the connection before a slow reader has read it.
#[test]
fn a_response_that_has_come_is_whole_although_its_connection_ends() {
    // Around the unread bytes of a body and the window of a stream, which the server can fill at most.
    for size in [65_535, 65_536, 65_537, 131_073, 250_000] {
        let server = OriginServer::start(service(move |_| ok(body_bytes(size)).into()));
        run(async {
            let connection = server.open().await;
            let mut response = connection.send(get("/")).await.unwrap();
            server.server.engine.stop(PATIENCE).await;
            eventually("the end", || connection.is_closed()).await;
            let got = collect(&mut response.body).await;
            assert!(got.unwrap() == body_bytes(size), "{size}");
        });
    }
}

#[test]
fn a_request_that_is_open_when_the_server_stops_gets_its_response() {
    let go = Arc::new(AtomicBool::new(false));
    let server = OriginServer::start(waiting_for(&go));
    run(async {
        let connection = server.open().await;
        let sent = connection.send(get("/"));
        let mut sent = Box::pin(sent);
        tokio::select! {
            _ = &mut sent => panic!("no response was sent"),
            () = eventually("the request", || server.server.totals().requests == 1) => {}
        }
        let stopping = server.server.engine.stop(PATIENCE);
        let ending = async {
            eventually("GOAWAY", || connection.is_closed()).await;
            go.store(true, Ordering::SeqCst);
            let mut response = sent.await.unwrap();
            let body = collect(&mut response.body).await.unwrap();
            assert_eq!(text(&body), "finished");
        };
        tokio::join!(stopping, ending);
    });
}

/// RFC 8446 section 4.2.10: without the extension, no early data can follow.
#[test]
fn nothing_is_sent_as_early_data_although_the_server_accepts_it() {
    let server = OriginServer::start(paths());
    run(async {
        for is_known in [false, true, true] {
            let relay = UdpRelay::to(server.server.address()).await;
            let opened = open(relay.address, &server.tls, &Timeouts::default()).await;
            let connection = opened.unwrap();
            assert_eq!(fetch(&connection, get("/a")).await, (200, b"/a".into()));
            let extensions = client_hello_extensions(&relay.recorded());
            assert_eq!(extensions.contains(&extension::PRE_SHARED_KEY), is_known);
            assert!(!extensions.contains(&extension::EARLY_DATA));
        }
    });
}

#[test]
fn only_the_right_name_signed_by_a_trusted_authority_is_accepted() {
    let authority = CertificateAuthority::generate();
    let server = Server::run(plan(vec![h3_listener(&authority, paths())]));
    let stranger = CertificateAuthority::generate();
    run(async {
        for tls in [
            trusting(&authority, "other.example"),
            trusting(&stranger, "example.com"),
        ] {
            let failure = open(server.address(), &tls, &Timeouts::default())
                .await
                .expect_err("not trusted");
            assert_eq!(failure.phase, RequestPhase::Tls, "{failure}");
            assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure}"
            );
            assert!(!failure.request_sent);
        }
        let unverified = ClientTlsSettings {
            verify: false,
            ..ClientTlsSettings::new("other.example")
        };
        let tls = Tls::new(&unverified).unwrap();
        let connection = open(server.address(), &tls, &Timeouts::default()).await;
        // The server has no such site, and uses its first one.
        assert_eq!(fetch(&connection.unwrap(), get("/a")).await.0, 200);
    });
}

#[test]
fn an_address_at_which_nothing_listens_fails_in_the_connect_timeout() {
    let authority = CertificateAuthority::generate();
    let tls = trusting(&authority, "example.com");
    let address = (Ipv4Addr::LOCALHOST, free_port()).into();
    let timeouts = Timeouts {
        connect: Duration::from_millis(300),
        ..Timeouts::default()
    };
    run(async {
        let failure = open(address, &tls, &timeouts).await.expect_err("nobody");
        assert_eq!(failure.phase, RequestPhase::Connect, "{failure}");
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
    });
}
