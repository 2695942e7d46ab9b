//! Limits on the time, size and number that one client may use. Slow and greedy clients run beside honest
//! ones.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::time::{Duration, Instant};

use apus_http::{Frame, Response, ResponseFuture, StatusCode};
use apus_net::Limits;
use apus_testkit::frames;
use tokio::sync::Notify;

use crate::harness::{
    Client, PATIENCE, Server, collector, connect, in_own_process, ok, paths, service,
};

const SHORT: Duration = Duration::from_millis(500);

/// Sends a byte now and then until the server ends it, or longer than it should take.
fn drip(client: &mut Client<TcpStream>, byte: &[u8]) {
    let start = Instant::now();
    let mut probe = [0];
    client
        .stream
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    while start.elapsed() < PATIENCE {
        // The server may have closed already.
        let _ = client.stream.write_all(byte);
        if client.stream.peek(&mut probe).is_ok() {
            client.stream.set_read_timeout(Some(PATIENCE)).unwrap();
            return;
        }
    }
    panic!("a slow client was never refused");
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let seconds = Duration::from_secs;
    assert_eq!(
        Limits::default(),
        Limits {
            worker_connections: 51_200,
            max_connections: 0,
            connections_per_address: 16_384,
            target_bytes: 8 * 1024,
            head_bytes: 32 * 1024,
            head_fields: 100,
            head_timeout: seconds(15),
            handshake_timeout: seconds(10),
            idle_timeout: seconds(60),
            body_timeout: seconds(30),
            body_rate: 128,
            send_timeout: seconds(60),
            send_rate: 128,
            drain_bytes: 256 * 1024,
            requests_per_connection: 0,
            h2_max_concurrent_streams: 256,
            h2_max_tunnels: 64,
            h2_max_frame_size: 16 * 1024,
            h2_requests_per_connection: 0,
            h2_ping_interval: seconds(30),
            h2_receive_window: 16 * 1024 * 1024,
            websocket_memory: 64 << 20,
            h3_receive_memory: 64 * 1024 * 1024,
            stop_timeout: seconds(30),
        }
    );
}

#[test]
fn refuses_a_head_that_comes_byte_by_byte() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut honest = server.connect();
    assert_eq!(honest.get("/a").text(), "/a");
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
    drip(&mut client, b"x");
    assert_eq!(client.read_response().status, 408);
    client.assert_closed();
    assert_eq!(server.totals().timeouts, 1);
    assert_eq!(honest.get("/b").text(), "/b");
    // The same after a request with a response.
    honest.send("GET /c HTTP/1.1\r\n");
    drip(&mut honest, b"x");
    assert_eq!(honest.read_response().status, 408);
}

#[test]
fn closes_a_connection_that_is_silent_from_the_start() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    server.connect().assert_closed();
    assert_eq!(server.totals().bad_requests, 0);
}

#[test]
fn closes_idle_connections() {
    let limits = Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut client = server.connect();
    assert_eq!(client.get("/a").text(), "/a");
    client.assert_closed();
    assert_eq!(server.totals().timeouts, 0);
}

#[test]
fn a_handler_may_take_longer_than_any_client_timeout() {
    let limits = Limits {
        head_timeout: SHORT,
        idle_timeout: SHORT,
        body_timeout: SHORT,
        send_timeout: SHORT,
        ..Limits::default()
    };
    let (begun, begins) = mpsc::channel();
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    let server = Server::with_limits(
        limits,
        service(move |_| {
            begun.send(()).unwrap();
            let released = Arc::clone(&released);
            ResponseFuture::later(async move {
                released.notified().await;
                ok("thought")
            })
        }),
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    begins.recv_timeout(PATIENCE).unwrap();
    // Each limit ends an idle connection that came later, and not the first one.
    server.connect().assert_closed();
    release.notify_one();
    assert_eq!(client.read_response().text(), "thought");
}

#[test]
fn a_body_that_stops_coming_is_an_error_to_its_handler() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, collector());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhalf");
    let received = client.read_response();
    assert_eq!(received.text(), "the body came too slowly");
    assert_eq!(received.field("connection"), Some("close"));
    client.assert_closed();
    assert_eq!(server.totals().timeouts, 1);
}

#[test]
fn a_body_that_drips_is_an_error_to_its_handler() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, collector());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    drip(&mut client, b"x");
    assert_eq!(client.read_response().text(), "the body came too slowly");
}

#[test]
fn an_unread_body_that_drips_does_not_hold_its_connection() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut client = server.connect();
    client.send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
    assert_eq!(client.read_response().text(), "/a");
    drip(&mut client, b"x");
    client.assert_cut();
}

#[test]
fn cuts_a_client_that_does_not_read() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, service(|_| ok(vec![b'x'; 32 * 1024 * 1024]).into()));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.wait_for("the end of the connection", |totals| {
        totals.requests == 1 && totals.connections == 0
    });
    assert_eq!(server.totals().timeouts, 1);
    assert!(client.try_response(false).is_err());
}

#[test]
fn a_client_that_takes_less_than_the_rate_is_cut() {
    let limits = Limits {
        send_timeout: SHORT,
        send_rate: 1 << 30,
        ..Limits::default()
    };
    let server = Server::with_limits(
        limits,
        service(|request| match request.path() {
            "/whole" => ok(vec![b'x'; 64 << 20]).into(),
            // Each of its frames is a separate write.
            _ => ok(frames(None, |_| {
                Poll::Ready(Some(Ok(Frame::Data(vec![b'x'; 10_000].into()))))
            }))
            .into(),
        }),
    );
    for (path, cut) in [("/whole", 1), ("/pieces", 2)] {
        let mut client = server.connect();
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let start = Instant::now();
        while server.totals().timeouts < cut {
            // It takes something all the time.
            let mut some = [0; 4096];
            let _ = client.stream.read(&mut some);
            std::thread::park_timeout(Duration::from_millis(1));
            assert!(start.elapsed() < PATIENCE, "{path}: it was never cut");
        }
    }
}

#[test]
fn a_client_that_takes_the_rate_is_served() {
    // Long enough that a busy machine does not keep the client from reading for that time.
    const PERIOD: Duration = Duration::from_secs(2);
    let limits = Limits {
        send_timeout: PERIOD,
        ..Limits::default()
    };
    let size = 16 << 20;
    let server = Server::with_limits(limits, service(move |_| ok(vec![b'x'; size]).into()));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let start = Instant::now();
    let mut read = 0;
    while read < size {
        let mut some = vec![0; 64 * 1024];
        let got = client.stream.read(&mut some).unwrap();
        assert!(got > 0, "cut after {read} bytes");
        read += got;
        // For several periods it takes little at a time.
        if start.elapsed() < 3 * PERIOD {
            std::thread::park_timeout(SHORT / 8);
        }
    }
    assert_eq!(server.totals().timeouts, 0);
}

#[test]
fn pipelined_requests_of_a_client_that_does_not_read_gather_no_responses() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, service(|_| ok(vec![b'x'; 4000]).into()));
    let mut client = server.connect();
    client
        .stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    let requests = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(1000);
    let mut sent = 0;
    while let Ok(written) = client.stream.write(requests.as_bytes()) {
        sent += written;
        assert!(
            sent < 64 * 1024 * 1024,
            "the server takes requests without end"
        );
    }
    server.wait_for("the end of the connection", |totals| totals.timeouts == 1);
}

#[test]
fn a_blocked_write_leaves_no_deadline_to_a_slow_source() {
    let limits = Limits {
        send_timeout: Duration::from_secs(1),
        ..Limits::default()
    };
    let large = 8 * 1024 * 1024;
    let server = Server::with_limits(
        limits,
        service(move |_| {
            let mut step = 0;
            let mut pause = Box::pin(tokio::time::sleep(Duration::from_secs(2)));
            ok(frames(None, move |cx| {
                step += 1;
                match step {
                    // Larger than the socket's buffers, twice, and a pause in between.
                    1 => Poll::Ready(Some(Ok(Frame::Data(vec![b'x'; large].into())))),
                    _ if pause.as_mut().poll(cx).is_pending() => Poll::Pending,
                    _ if step < 1000 => {
                        step = 1000;
                        Poll::Ready(Some(Ok(Frame::Data(vec![b'y'; large].into()))))
                    }
                    _ => Poll::Ready(None),
                }
            }))
            .into()
        }),
    );
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.read_response().body.len(), 2 * large);
    assert_eq!(server.totals().timeouts, 0);
}

#[test]
fn new_connections_take_the_place_of_those_idle_longest() {
    let limits = Limits {
        worker_connections: 3,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut clients: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.connect();
            assert_eq!(client.get("/a").text(), "/a");
            client
        })
        .collect();
    // Ticks of the clock distinguish them; the first is used again last.
    let start = Instant::now();
    apus_testkit::wait_until("time", || start.elapsed() > Duration::from_millis(600));
    for client in [2, 0] {
        assert_eq!(clients[client].get("/b").text(), "/b");
    }
    let mut another = server.connect();
    assert_eq!(another.get("/c").text(), "/c");
    clients[1].assert_closed();
    assert_eq!(clients[0].get("/d").text(), "/d");
    assert_eq!(clients[2].get("/d").text(), "/d");
    assert_eq!((server.totals().evicted, server.totals().refused), (1, 0));
}

#[test]
fn connections_that_work_are_not_closed_for_new_ones() {
    let limits = Limits {
        worker_connections: 2,
        ..Limits::default()
    };
    let server = Server::with_limits(
        limits,
        service(|request| match request.path() {
            "/wait" => ResponseFuture::later(std::future::pending()),
            path => ok(path.to_owned()).into(),
        }),
    );
    let mut clients = [server.connect(), server.connect()];
    clients
        .iter_mut()
        .for_each(|client| client.send("GET /wait HTTP/1.1\r\nHost: a\r\n\r\n"));
    server.wait_for("the requests", |totals| totals.requests == 2);
    server.connect().assert_cut();
    assert_eq!((server.totals().evicted, server.totals().refused), (0, 1));
    drop(clients);
    server.wait_for("their end", |totals| totals.connections == 0);
    server.assert_serves();
}

#[test]
fn bounds_the_connections_of_all_workers() {
    let plan = apus_net::EnginePlan {
        workers: std::num::NonZeroUsize::new(2).unwrap(),
        limits: Limits {
            max_connections: 4,
            ..Limits::default()
        },
        ..crate::harness::plan(vec![apus_net::ListenerPlan::new(
            crate::harness::local(),
            paths(),
        )])
    };
    let server = Server::run(plan);
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/a").text(), "/a");
    }
    server.connect().assert_cut();
    assert_eq!(server.totals().refused, 1);
    clients.pop();
    apus_testkit::wait_until("a free place", || {
        let mut client = server.connect();
        let _ = client
            .stream
            .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.try_response(false).is_ok()
    });
}

/// A client whose address is another than the usual one.
fn from_another_address(server: &Server) -> Client<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let from: std::net::SocketAddr = "127.0.0.9:0".parse().unwrap();
    socket.bind(&from.into()).unwrap();
    socket.connect(&server.address().into()).unwrap();
    Client::new(TcpStream::from(socket))
}

#[test]
fn a_client_past_its_own_limit_closes_no_idle_connections_of_others() {
    let limits = Limits {
        connections_per_address: 2,
        worker_connections: 3,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut other = from_another_address(&server);
    assert_eq!(other.get("/a").status, 200);
    let mut clients = [server.connect(), server.connect()];
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.get("/a").status, 200));
    for _ in 0..5 {
        server.connect().assert_cut();
    }
    assert_eq!(other.get("/b").text(), "/b");
    let totals = server.totals();
    assert_eq!((totals.refused, totals.evicted), (5, 0));
}

#[test]
fn bounds_the_connections_of_one_address() {
    let limits = Limits {
        connections_per_address: 2,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut clients = [server.connect(), server.connect()];
    clients
        .iter_mut()
        .for_each(|client| assert_eq!(client.get("/a").status, 200));
    server.connect().assert_cut();
    // Another address is another client.
    let mut other = from_another_address(&server);
    assert_eq!(other.get("/b").text(), "/b");
    drop(clients);
    server.wait_for("their end", |totals| totals.connections == 1);
    server.assert_serves();
    assert_eq!(server.totals().refused, 1);
}

#[test]
fn slow_heads_of_many_connections_hold_little_memory() {
    // Other tests in this process take memory too.
    if !in_own_process("limits::slow_heads_of_many_connections_hold_little_memory") {
        return;
    }
    let server = Server::start(paths());
    server.assert_serves();
    let at_first = server.totals().bytes_in;
    let before = resident();
    const UNFINISHED: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\nX: unfinished";
    let clients: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = connect(server.address()).unwrap();
            stream.write_all(UNFINISHED).unwrap();
            stream
        })
        .collect();
    let sent = at_first + UNFINISHED.len() as u64 * 400;
    server.wait_for("the bytes", |totals| totals.bytes_in >= sent);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes");
    server.assert_serves();
    drop(clients);
}

#[test]
fn pipelined_bytes_behind_a_slow_handler_hold_little_memory() {
    if !in_own_process("limits::pipelined_bytes_behind_a_slow_handler_hold_little_memory") {
        return;
    }
    let server = Server::start(service(|request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        _ => Response::new(StatusCode::NO_CONTENT).into(),
    }));
    let before = resident();
    let clients: Vec<_> = (0..400)
        .map(|_| {
            let mut stream = connect(server.address()).unwrap();
            stream
                .write_all(b"GET /wait HTTP/1.1\r\nHost: a\r\n\r\n")
                .unwrap();
            stream
        })
        .collect();
    server.wait_for("the requests", |totals| totals.requests == 400);
    let bytes = server.totals().bytes_in;
    for mut client in &clients {
        client.write_all(b"G").unwrap();
    }
    server.wait_for("the bytes", |totals| totals.bytes_in == bytes + 400);
    let grown = resident().saturating_sub(before);
    assert!(grown < 8 * 1024 * 1024, "{grown} bytes");
    drop(clients);
}

/// Memory that this process has in use, in bytes.
fn resident() -> u64 {
    let mut status = String::new();
    std::fs::File::open("/proc/self/status")
        .unwrap()
        .read_to_string(&mut status)
        .unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}
