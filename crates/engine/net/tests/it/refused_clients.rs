//! Clients that may not connect: they are closed, with all that they have open, and dropped by the kernel if they try again and
//! again.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use apus_http::{
    Body, BodyError, BodyStream, Duplex, Frame, Response, ResponseFuture, ServiceFactory,
    StatusCode,
};
use apus_net::{ClientFilter, ClientRefusal, EnginePlan, ListenerPlan};
use apus_testkit::h2::request_with;
use apus_testkit::wait_until;
use socket2::{Domain, Socket, Type};
use tokio::sync::watch;

use crate::h2::client::Peer;
use crate::harness::{Client, PATIENCE, Server, ok, paths, plan, service, tcp};
use crate::tunnels::echo;

/// Refuses one client, while this is set.
pub(crate) struct OneClient {
    address: IpAddr,
    is_refused: AtomicBool,
    changes: watch::Sender<()>,
}

impl OneClient {
    pub(crate) fn new(address: IpAddr) -> Arc<Self> {
        Arc::new(Self {
            address,
            is_refused: AtomicBool::new(false),
            changes: watch::Sender::new(()),
        })
    }

    pub(crate) fn refuse(&self) {
        self.is_refused.store(true, Ordering::Relaxed);
        self.changes.send_replace(());
    }
}

impl ClientFilter for OneClient {
    fn refuses(&self, client: IpAddr) -> Option<ClientRefusal> {
        let is_refused = self.is_refused.load(Ordering::Relaxed) && client == self.address;
        is_refused.then_some(ClientRefusal::Banned)
    }

    fn changes(&self) -> Option<watch::Receiver<()>> {
        Some(self.changes.subscribe())
    }
}

/// Tells a test when it is dropped.
struct DropFlag(Arc<AtomicBool>);

impl Drop for DropFlag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A body that begins, and never ends.
struct Events {
    has_begun: bool,
    _ended: DropFlag,
}

impl BodyStream for Events {
    fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Poll::Pending;
        }
        Poll::Ready(Some(Ok(Frame::Data("begun".into()))))
    }
}

/// How each of the requests of [`lasting`] ended at the server.
#[derive(Clone, Default)]
pub(crate) struct LastingRequests {
    pub(crate) events: Arc<AtomicBool>,
    pub(crate) waits: Arc<AtomicBool>,
    /// The tunnel has returned, and was not only dropped.
    pub(crate) tunnel: Arc<AtomicBool>,
}

impl LastingRequests {
    pub(crate) fn wait_for(&self, what: &str, flag: &AtomicBool) {
        wait_until(what, || flag.load(Ordering::Relaxed));
    }
}

/// Responses that last until their clients go: `/events`, `/waits` and tunnels.
pub(crate) fn lasting(requests: &LastingRequests) -> Arc<dyn ServiceFactory> {
    let requests = requests.clone();
    service(move |request| {
        if request.upgrade().is_some() {
            let ended = Arc::clone(&requests.tunnel);
            let mut response = Response::new(StatusCode::SWITCHING_PROTOCOLS);
            response.set_tunnel(Box::new(move |duplex: Box<dyn Duplex>| {
                Box::pin(async move {
                    echo(duplex).await;
                    ended.store(true, Ordering::Relaxed);
                })
            }));
            return response.into();
        }
        match request.path() {
            "/events" => ok(Body::stream(Events {
                has_begun: false,
                _ended: DropFlag(Arc::clone(&requests.events)),
            }))
            .into(),
            "/waits" => {
                let ended = DropFlag(Arc::clone(&requests.waits));
                ResponseFuture::later(async move {
                    let _ended = ended;
                    pending().await
                })
            }
            _ => ok("served").into(),
        }
    })
}

const UPGRADE: &str =
    "GET /tunnel HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n";

/// A connection that begins at an address, or why there is none within a third of a second. The first segment is sent again
/// after one.
fn connect_from(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_millis(300))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Begins many connections at once, and waits for none.
fn begin_many(from: IpAddr, to: SocketAddr) -> Vec<Socket> {
    let begin = |_| {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(from, 0).into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        let _ = socket.connect(&to.into());
        socket
    };
    (0..64).map(begin).collect()
}

#[test]
fn a_refused_client_that_comes_again_and_again_is_dropped_until_it_may_connect() {
    for (refused, other, listen) in [
        ("127.0.0.2", "127.0.0.3", "127.0.0.1:0"),
        ("127.0.0.2", "127.0.0.3", "0.0.0.0:0"),
        ("::1", "127.0.0.3", "[::]:0"),
    ] {
        let (refused, other): (IpAddr, IpAddr) = (refused.parse().unwrap(), other.parse().unwrap());
        let filter = OneClient::new(refused);
        let server = Server::run(EnginePlan {
            client_filter: Some(filter.clone()),
            ..plan(vec![ListenerPlan::new(tcp(listen), paths())])
        });
        let port = server.address().port();
        let [to, to_other] = [refused, other].map(|from| match from {
            IpAddr::V4(_) => SocketAddr::from(([127, 0, 0, 1], port)),
            IpAddr::V6(_) => SocketAddr::new(from, port),
        });
        let serve = |client: &mut Client<TcpStream>| {
            client.send("GET /well HTTP/1.1\r\nHost: a\r\n\r\n");
            assert_eq!(client.read_response().status, 200);
        };
        let mut open = Client::new(connect_from(refused, to).unwrap());
        serve(&mut open);
        filter.refuse();

        let is_dropped = || {
            let _many = begin_many(refused, to);
            let attempt = connect_from(refused, to);
            attempt.is_err_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        wait_until("the kernel drops the client", is_dropped);
        assert!(server.totals().banned >= 16, "closed before");

        // Nobody else.
        let mut served = Client::new(connect_from(other, to_other).unwrap());
        serve(&mut served);
        open.assert_cut();

        filter.is_refused.store(false, Ordering::Relaxed);
        wait_until("the client can connect again", || {
            connect_from(refused, to).is_ok()
        });
    }
}

#[test]
fn all_that_a_refused_client_has_open_over_tcp_is_closed_and_nothing_of_another_client() {
    let requests = LastingRequests::default();
    let filter = OneClient::new("127.0.0.2".parse().unwrap());
    let server = Server::run(EnginePlan {
        client_filter: Some(filter.clone()),
        ..plan(vec![ListenerPlan::new(
            tcp("127.0.0.1:0"),
            lasting(&requests),
        )])
    });
    let connect = |from: &str| connect_from(from.parse().unwrap(), server.address()).unwrap();
    let open = |from: &str| Client::new(connect(from));
    let tunnel = |from: &str| {
        let mut client = open(from);
        client.send(UPGRADE);
        assert_eq!(client.read_response().status, 101);
        client.send("hello");
        assert_eq!(client.exactly(5).unwrap(), b"hello");
        client
    };
    let mut kept = open("127.0.0.2");
    assert_eq!(kept.get("/").status, 200);
    let mut unused = open("127.0.0.2");
    let mut events = open("127.0.0.2");
    events.send("GET /events HTTP/1.1\r\nHost: a\r\n\r\n");
    let begun = "HTTP/1.1 200 OK\r\n";
    assert_eq!(events.exactly(begun.len()).unwrap(), begun.as_bytes());
    let mut waits = open("127.0.0.2");
    waits.send("GET /waits HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the request", |totals| totals.requests == 3);
    let (mut refused, mut other) = (tunnel("127.0.0.2"), tunnel("127.0.0.3"));
    let mut other_kept = open("127.0.0.3");
    assert_eq!(other_kept.get("/").status, 200);

    filter.refuse();
    kept.assert_cut();
    unused.assert_cut();
    waits.assert_cut();
    refused.assert_cut();
    // What has begun has no end, so that it cannot be taken for the whole.
    let rest = events.rest().map(|bytes| String::from_utf8(bytes).unwrap());
    assert!(rest.is_err() || rest.is_ok_and(|rest| rest.ends_with("begun\r\n")));
    requests.wait_for("the end of the events", &requests.events);
    requests.wait_for("the end of the waiting request", &requests.waits);
    requests.wait_for("the end of the tunnel", &requests.tunnel);
    server.wait_for("the count", |totals| totals.banned == 5);

    other.send("there");
    assert_eq!(other.exactly(5).unwrap(), b"there");
    assert_eq!(other_kept.get("/").status, 200);
    assert_eq!(server.totals().banned, 5);
}

#[test]
fn all_streams_of_a_refused_client_over_http2_are_closed() {
    let requests = LastingRequests::default();
    let filter = OneClient::new("127.0.0.1".parse().unwrap());
    let server = Server::run(EnginePlan {
        client_filter: Some(filter.clone()),
        ..plan(vec![ListenerPlan::new(
            tcp("127.0.0.1:0"),
            lasting(&requests),
        )])
    });
    let mut peer = Peer::open(crate::harness::connect(server.address()).unwrap());
    let events = peer.get("/events");
    peer.until("the beginning", |peer| {
        peer.received(events).body == b"begun"
    });
    peer.get("/waits");
    let mut extended = vec![(":protocol", "echo")];
    extended.extend(request_with("CONNECT", "/tunnel", &[]));
    let tunnel = peer.request(&extended, false);
    peer.upload(tunnel, b"hello", false);
    peer.until("the echo", |peer| peer.received(tunnel).body == b"hello");

    filter.refuse();
    requests.wait_for("the end of the events", &requests.events);
    requests.wait_for("the end of the waiting request", &requests.waits);
    requests.wait_for("the end of the tunnel", &requests.tunnel);
    peer.goaway();
    peer.assert_ended();
    assert_eq!(server.totals().banned, 1);
}
