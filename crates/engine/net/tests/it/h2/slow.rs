//! Slow clients over HTTP/2 (CVE-2007-6750 and similar attacks): each time limit that holds for HTTP/1.1
//! holds here too, for the connection or for one stream of it.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use apus_http::{Response, ResponseFuture, ServiceFactory, StatusCode};
use apus_net::Limits;
use apus_testkit::h2::{
    PREFACE, block, code, data, flag, frame, head, kind, request, request_with, setting, settings,
    window_update,
};
use apus_testkit::{body_bytes, collect};
use tokio::sync::Notify;

use super::client::Peer;
use super::{counted, open, open_with, wait_for_count, with_tls};
use crate::harness::{PATIENCE, Server, connect, ok, paths, service};
use crate::tls::client_of;

const SHORT: Duration = Duration::from_millis(500);

/// Reads until the server closes, sending a byte now and then if there are any.
fn assert_cut_off(peer: &mut Peer<TcpStream>, drip: &[u8]) {
    let start = Instant::now();
    let mut bytes = drip.iter();
    while peer.pump() {
        assert!(
            start.elapsed() < PATIENCE,
            "a slow client was never cut off"
        );
        if let Some(byte) = bytes.next() {
            // The server may have closed already.
            let _ = peer.stream.write_all(&[*byte]);
        }
        std::thread::park_timeout(Duration::from_millis(60));
    }
}

#[test]
fn a_preface_or_a_head_that_does_not_come_in_time_ends_the_connection() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut honest = open(&server);
    assert_eq!(honest.fetch("/a").text(), "/a");
    let get = block(&request("GET", "/"));
    let started = [PREFACE, &settings(&[])].concat();
    let whole = head(1, &get, true);
    let unended = frame(kind::HEADERS, flag::END_STREAM, 1, &get);
    let continuations = frame(kind::CONTINUATION, flag::NONE, 1, b"").repeat(20);
    for (count, (what, first, drip)) in [
        ("half a preface", PREFACE[..15].to_vec(), vec![]),
        (
            "a preface byte by byte",
            PREFACE[..1].to_vec(),
            [&PREFACE[1..], &[0; 500]].concat(),
        ),
        ("a preface without settings", PREFACE.to_vec(), vec![]),
        ("half a settings frame", started[..28].to_vec(), vec![]),
        ("half a head", [&started[..], &whole[..20]].concat(), vec![]),
        (
            "a head byte by byte",
            [&started[..], &whole[..9]].concat(),
            vec![0; 30],
        ),
        (
            "a field block without an end",
            [&started[..], &unended].concat(),
            vec![],
        ),
        (
            "CONTINUATION now and then",
            [&started[..], &unended].concat(),
            continuations,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut peer = Peer::new(connect(server.address()).unwrap());
        // That would complete the unfinished head.
        peer.acknowledges = false;
        peer.send(&first);
        assert_cut_off(&mut peer, &drip);
        assert!(peer.responses.is_empty(), "{what}");
        assert_eq!(server.totals().timeouts, count as u64 + 1, "{what}");
    }
    assert_eq!(honest.fetch("/b").text(), "/b");
}

#[test]
fn a_silent_client_over_tls_is_cut_off() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let (authority, server) = with_tls(limits, paths());
    let mut config = client_of(&authority);
    config.alpn_protocols = vec![b"h2".to_vec()];
    let client = crate::tls::connect_tls(server.address(), &config, "example.com").unwrap();
    let mut peer = Peer::new(client.stream);
    let end = loop {
        if let Err(error) = peer.read() {
            break error;
        }
    };
    assert!(super::client::is_end(&end), "{end}");
    server.wait_for("the end", |totals| totals.connections == 0);
}

/// Responds to `/read` with the body, or the error of reading it, and to other paths at once.
fn reading() -> Arc<dyn ServiceFactory> {
    service(|mut request| {
        if request.path() != "/read" {
            return ok(request.path().to_owned()).into();
        }
        ResponseFuture::later(async move {
            match collect(request.body_mut()).await {
                Ok(body) => ok(body),
                Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        })
    })
}

#[test]
fn a_body_that_stops_arriving_is_an_error_to_its_service_alone() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, reading());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/read"), false);
    peer.send(data(stream, "half", false));
    assert_eq!(peer.fetch("/beside").text(), "/beside");
    let response = peer.response(stream);
    assert_eq!(response.text(), "the body came too slowly");
    assert_eq!(server.totals().timeouts, 1);
    assert_eq!(peer.fetch("/after").text(), "/after");
    assert_eq!(peer.goaways, []);
}

#[test]
fn a_dripping_body_is_an_error_to_its_service_alone() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, reading());
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/read"), false);
    let start = Instant::now();
    while !peer.received(stream).ended {
        assert!(
            start.elapsed() < PATIENCE,
            "a client that drips was never refused"
        );
        if peer.received(stream).status == 0 {
            peer.send(data(stream, "x", false));
        }
        // The connection is not idle meanwhile.
        assert_eq!(peer.fetch("/beside").text(), "/beside");
        std::thread::park_timeout(Duration::from_millis(50));
    }
    assert_eq!(peer.received(stream).text(), "the body came too slowly");
}

#[test]
fn a_slow_stream_is_not_excused_by_a_fast_one() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, reading());
    let mut peer = open(&server);
    let slow = peer.request(&request("POST", "/read"), false);
    peer.send(data(slow, "half", false));
    let fast = peer.request(&request("POST", "/read"), false);
    let start = Instant::now();
    while peer.received(slow).status == 0 {
        assert!(
            start.elapsed() < PATIENCE,
            "the slow stream was never refused"
        );
        peer.upload(fast, &[b'x'; 1000], false);
        assert!(peer.pump());
        std::thread::park_timeout(Duration::from_millis(10));
    }
    assert_eq!(peer.response(slow).text(), "the body came too slowly");
    peer.upload(fast, b"end", true);
    assert!(peer.response(fast).text().ends_with("end"));
}

#[test]
fn a_service_may_take_its_time_to_read() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let release = Arc::new(Notify::new());
    let released = Arc::clone(&release);
    let server = Server::with_limits(
        limits,
        service(move |mut request| {
            let released = Arc::clone(&released);
            ResponseFuture::later(async move {
                if request.path() == "/late" {
                    released.notified().await;
                }
                match collect(request.body_mut()).await {
                    Ok(body) => ok(body.len().to_string()),
                    Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
                }
            })
        }),
    );
    let mut peer = open(&server);
    peer.fence();
    let stream = peer.request(&request("POST", "/late"), false);
    // The window is full: the client cannot send more.
    let window = usize::try_from(peer.window_of(stream)).unwrap();
    peer.upload(stream, &vec![b'x'; window], false);
    peer.fence();
    // The limit ends a body that is read at once, does not come, and began later.
    let stalled = peer.request(&request("POST", "/"), false);
    assert_eq!(peer.response(stalled).status, 400);
    release.notify_one();
    peer.upload(stream, b"more", true);
    assert_eq!(peer.response(stream).text(), (window + 4).to_string());
}

#[test]
fn a_stream_whose_window_stays_shut_is_given_up_alone() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(
        limits,
        service(|request| match request.path() {
            "/large" => ok(body_bytes(100_000)).into(),
            path => ok(path.to_owned()).into(),
        }),
    );
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 10)]);
    peer.opens_windows = false;
    let stream = peer.get("/large");
    let start = Instant::now();
    while peer.received(stream).reset.is_none() {
        assert!(
            start.elapsed() < PATIENCE,
            "a stream that is shut was never given up"
        );
        // Other streams go on, and do not excuse it.
        assert_eq!(peer.fetch("/beside").text(), "/beside");
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(peer.received(stream).body.len(), 10);
    assert_eq!(counted(&server, "stalled_streams"), 1);
    assert_eq!(peer.goaways, []);
}

#[test]
fn streams_that_wait_for_the_window_of_the_connection_are_given_up_too() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, service(|_| ok(body_bytes(100_000)).into()));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 24)]);
    peer.opens_windows = false;
    for _ in 0..10 {
        peer.get("/");
    }
    wait_for_count(&server, "stalled_streams", 10);
}

#[test]
fn a_window_that_opens_now_and_then_keeps_its_stream() {
    let limits = Limits {
        send_timeout: 2 * SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, service(|_| ok(body_bytes(20_000)).into()));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1000)]);
    peer.opens_windows = false;
    let stream = peer.get("/");
    let start = Instant::now();
    let mut so_far = 1000;
    while start.elapsed() < 5 * SHORT {
        peer.fence();
        assert_eq!(peer.received(stream).body.len(), so_far);
        std::thread::park_timeout(SHORT / 2);
        peer.send(window_update(stream, 1000));
        so_far += 1000;
    }
    peer.send(window_update(stream, 20_000));
    assert!(peer.response(stream).body == body_bytes(20_000));
    assert_eq!(counted(&server, "stalled_streams"), 0);
}

#[test]
fn a_window_that_opens_by_a_few_bytes_does_not_hold_its_stream() {
    let limits = Limits {
        send_timeout: 2 * SHORT,
        send_rate: 1000,
        ..Limits::default()
    };
    // A body in memory, and one that is produced while it is sent; limited by the window of the stream, and by the
    // window of the connection.
    for window in [10, 1 << 20] {
        let server =
            Server::with_limits(limits.clone(), service(|_| ok(body_bytes(100_000)).into()));
        let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, window)]);
        peer.opens_windows = false;
        let stream = peer.get("/");
        let start = Instant::now();
        while peer.received(stream).reset.is_none() {
            assert!(start.elapsed() < PATIENCE, "the stream was never given up");
            let opened = if window == 10 { stream } else { 0 };
            peer.send(window_update(opened, 10));
            peer.fence();
            std::thread::park_timeout(SHORT / 4);
        }
        assert_eq!(counted(&server, "stalled_streams"), 1);
        assert_eq!(peer.goaways, []);
    }
}

#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, service(|_| ok(vec![b'x'; 32 << 20]).into()));
    let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.send(window_update(0, 1 << 30));
    peer.get("/");
    server.wait_for("its end", |totals| {
        (totals.timeouts, totals.connections) == (1, 0)
    });
}

#[test]
fn a_client_that_reads_slowly_but_does_is_served() {
    let limits = Limits {
        send_timeout: SHORT,
        ..Limits::default()
    };
    let whole = body_bytes(3_000_000);
    let server = Server::with_limits(limits, super::large(3_000_000));
    let mut peer = super::open_narrow(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 30)]);
    peer.send(window_update(0, 1 << 30));
    let stream = peer.get("/");
    let start = Instant::now();
    while !peer.received(stream).ended {
        peer.read().unwrap();
        if start.elapsed() < 4 * SHORT {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    assert!(peer.response(stream).body == whole);
}

#[test]
fn an_unwanted_body_that_drips_holds_no_stream() {
    let limits = Limits {
        body_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut peer = open(&server);
    let streams: Vec<u32> = (0..100)
        .map(|_| {
            let fields = request_with("POST", "/", &[("content-length", "100")]);
            let stream = peer.request(&fields, false);
            peer.send(data(stream, "x", false));
            stream
        })
        .collect();
    for stream in streams {
        peer.until("the response", |peer| peer.received(stream).ended);
        assert_eq!(peer.received(stream).text(), "/");
        assert_eq!(peer.reset_of(stream), code::NO_ERROR);
    }
    assert_eq!(peer.fetch("/after").text(), "/after");
    assert_eq!(peer.goaways, []);
}

/// A worker that had no time to read for longer than a head may take found the rest of it in the socket, and still closed the
/// connection as too slow.
#[test]
fn a_head_that_waited_for_a_busy_worker_is_not_late() {
    let limits = Limits {
        head_timeout: SHORT,
        ..Limits::default()
    };
    let (entered, is_entered) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let channels = Arc::new((Mutex::new(entered), Mutex::new(released)));
    let server = Server::with_limits(
        limits,
        service(move |request| {
            if request.path() == "/block" {
                channels.0.lock().unwrap().send(()).unwrap();
                channels.1.lock().unwrap().recv().unwrap();
            }
            ok(request.path().to_owned()).into()
        }),
    );
    let mut late = open(&server);
    let whole = head(1, &block(&request("GET", "/late")), true);
    let before = server.totals().bytes_in;
    late.send(&whole[..20]);
    server.wait_for("half of the head", |totals| totals.bytes_in > before);
    let mut blocking = open(&server);
    blocking.send(head(1, &block(&request("GET", "/block")), true));
    is_entered.recv().unwrap();
    late.send(&whole[20..]);
    // The worker has to be busy for longer than a head may take.
    std::thread::park_timeout(4 * SHORT);
    release.send(()).unwrap();
    assert_eq!(late.response(1).text(), "/late");
    assert_eq!(blocking.response(1).text(), "/block");
    assert_eq!(server.totals().timeouts, 0);
}
