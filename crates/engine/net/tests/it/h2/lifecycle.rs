//! How connections and streams end (RFC 9113 sections 5.4 and 6.8): in order, by a fault of the
//! service, or by the client.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use apus_http::{
    Body, Frame, Response, ResponseFuture, ResponseOutcome, ServiceFactory, StatusCode,
};
use apus_net::{EnginePlan, Limits, ListenerPlan};
use apus_testkit::h2::{
    block, code, data, flag, frame, get, head, kind, request, request_with, reset, setting,
    window_update,
};
use apus_testkit::{body_bytes, collect, eventually, ready_frames, wait_until};
use bytes::Bytes;
use tokio::sync::Notify;

use super::client::{Peer, is_end};
use super::{open, open_tls, open_with, with_tls};
use crate::harness::{
    EndFlag, PATIENCE, Server, connect, local, ok, panicking, paths, plan, service, tcp,
};

/// No stream has a higher identifier.
const LAST: u32 = 0x7fff_ffff;

/// Responds to `/wait` once the flag is set, and to other paths at once.
fn waiting(go: &Arc<AtomicBool>) -> Arc<dyn ServiceFactory> {
    let go = Arc::clone(go);
    service(move |request| {
        let go = Arc::clone(&go);
        match request.path() {
            "/wait" => ResponseFuture::later(async move {
                eventually("the test goes on", || go.load(Ordering::Relaxed)).await;
                ok("finished")
            }),
            path => ok(path.to_owned()).into(),
        }
    })
}

/// Reads until the server has sent GOAWAY, and checks that it does so in two steps; requests that the client
/// sends between them are served.
fn assert_two_goaways(peer: &mut Peer<std::net::TcpStream>) {
    peer.acknowledges = false;
    peer.until("the first GOAWAY", |peer| !peer.goaways.is_empty());
    assert_eq!(peer.goaways, [(LAST, code::NO_ERROR)]);
    let ping = loop {
        let frame = peer.read().unwrap();
        if frame.kind == kind::PING && !frame.has(flag::ACK) {
            break frame;
        }
    };
    // It was in flight when the GOAWAY was sent.
    assert_eq!(peer.fetch("/late").text(), "/late");
    let last = peer.next_stream() - 2;
    assert_eq!(peer.goaways.len(), 1);
    peer.send(frame(kind::PING, flag::ACK, 0, ping.payload));
    peer.until("the second GOAWAY", |peer| peer.goaways.len() == 2);
    assert_eq!(peer.goaways[1], (last, code::NO_ERROR));
    peer.acknowledges = true;
}

#[test]
fn a_stop_sends_two_goaways_and_finishes_open_requests_rfc_9113_section_6_8() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(waiting(&go));
    let address = server.address();
    let mut peer = open(&server);
    let open_one = peer.get("/wait");
    server.wait_for("the request", |totals| totals.requests == 1);
    thread::scope(|scope| {
        let stopping = scope.spawn(|| server.stop(PATIENCE));
        wait_until("the port to be closed", || connect(address).is_err());
        assert_two_goaways(&mut peer);
        // A request after that may be retried on another connection.
        let after = peer.get("/after");
        assert_eq!(peer.reset_of(after), code::REFUSED_STREAM);
        assert!(!stopping.is_finished());
        go.store(true, Ordering::Relaxed);
        assert_eq!(peer.response(open_one).text(), "finished");
        peer.assert_ended();
        stopping.join().unwrap();
    });
    let totals = server.totals();
    assert_eq!((totals.connections, totals.requests), (0, 2));
}

#[test]
fn a_stop_ends_idle_connections_at_once() {
    let (authority, server) = with_tls(Limits::default(), paths());
    let mut peers: Vec<_> = (0..10).map(|_| open_tls(&authority, &server)).collect();
    for peer in &mut peers {
        assert_eq!(peer.fetch("/a").text(), "/a");
    }
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| server.stop(PATIENCE));
        // Each acknowledges the PING, as a live client does.
        for peer in &mut peers {
            peer.assert_ended();
        }
    });
    assert!(start.elapsed() < PATIENCE / 2);
}

#[test]
fn a_stop_does_not_wait_for_ever_for_a_silent_client() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    peer.acknowledges = false;
    assert_eq!(peer.fetch("/a").text(), "/a");
    let start = std::time::Instant::now();
    server.stop(Duration::from_secs(1));
    assert!(start.elapsed() < PATIENCE / 2);
    peer.assert_ended();
}

#[test]
fn a_removed_listener_lets_its_connections_end_in_order() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(waiting(&go));
    let mut peer = open(&server);
    let open_one = peer.get("/wait");
    server.wait_for("the request", |totals| totals.requests == 1);
    let new = plan(vec![ListenerPlan::new(tcp("127.0.0.2:0"), paths())]);
    server.engine.reload(new).unwrap();
    assert_two_goaways(&mut peer);
    go.store(true, Ordering::Relaxed);
    assert_eq!(peer.response(open_one).text(), "finished");
    peer.assert_ended();
}

#[test]
fn a_reload_leaves_connections_and_open_requests_alone() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(waiting(&go));
    let mut peer = open(&server);
    let open_one = peer.get("/wait");
    server.wait_for("the request", |totals| totals.requests == 1);
    let new = service(|_| ok("the new plan").into());
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(local(), new)]))
        .unwrap();
    assert_eq!(peer.fetch("/a").text(), "the new plan");
    go.store(true, Ordering::Relaxed);
    assert_eq!(peer.response(open_one).text(), "finished");
    assert_eq!(peer.goaways, []);
    assert_eq!(server.totals().accepted, 1);
}

#[test]
fn a_connection_gets_the_limits_of_the_new_plan() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    assert_eq!(peer.fetch("/a").text(), "/a");
    let limits = Limits {
        h2_requests_per_connection: 3,
        ..Limits::default()
    };
    let new = EnginePlan {
        limits,
        ..plan(vec![ListenerPlan::new(local(), paths())])
    };
    server.engine.reload(new).unwrap();
    for _ in 0..2 {
        assert_eq!(peer.fetch("/b").text(), "/b");
    }
    peer.assert_ended();
}

#[test]
fn a_connection_ends_in_order_after_its_last_request() {
    let limits = Limits {
        h2_requests_per_connection: 10,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut peer = open(&server);
    for number in 1..10 {
        assert_eq!(
            peer.fetch(&format!("/{number}")).text(),
            format!("/{number}")
        );
        assert_eq!(peer.goaways, []);
    }
    let last = peer.get("/last");
    assert_two_goaways(&mut peer);
    assert_eq!(peer.response(last).text(), "/last");
    peer.assert_ended();
    // No request is lost where all come at once.
    let mut peer = open(&server);
    let streams: Vec<u32> = (0..30).map(|_| peer.get("/many")).collect();
    let mut completed = 0;
    for stream in streams {
        peer.until("a response or a refusal", |peer| {
            let response = peer.received(stream);
            response.ended || response.reset.is_some()
        });
        match peer.received(stream).reset {
            None => completed += 1,
            Some(code) => assert_eq!(code, code::REFUSED_STREAM),
        }
    }
    assert!(completed >= 10, "{completed}");
    peer.assert_ended();
}

const SHORT: Duration = Duration::from_millis(500);

#[test]
fn idle_connections_end_in_order() {
    let limits = Limits {
        head_timeout: SHORT,
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    let mut peer = open(&server);
    assert_eq!(peer.fetch("/a").text(), "/a");
    peer.assert_ended();
    assert_eq!(peer.goaways, [(LAST, code::NO_ERROR), (1, code::NO_ERROR)]);
    // A connection without any request ends, too.
    open(&server).assert_ended();
    assert_eq!(server.totals().timeouts, 0);
}

#[test]
fn a_request_on_its_way_when_an_idle_connection_ends_is_served_rfc_9113_section_6_8() {
    let limits = Limits {
        idle_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    // The server waits a second for the client, which may not have the processor for that long.
    let is_served = (0..20).any(|_| {
        let mut peer = open(&server);
        peer.acknowledges = false;
        assert_eq!(peer.fetch("/a").text(), "/a");
        peer.until("the first GOAWAY", |peer| !peer.goaways.is_empty());
        assert_eq!(peer.goaways, [(LAST, code::NO_ERROR)]);
        let late = peer.get("/late");
        // Without an acknowledgement of its PING, the server ends the connection nevertheless.
        peer.assert_ended();
        let is_served = peer.received(late).text() == "/late";
        let last = if is_served { late } else { 1 };
        assert_eq!(peer.goaways[1..], [(last, code::NO_ERROR)]);
        is_served
    });
    assert!(is_served);
    assert_eq!(server.totals().timeouts, 0);
}

#[test]
fn a_silent_idle_connection_ends_too() {
    let limits = Limits {
        idle_timeout: SHORT,
        head_timeout: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(limits, paths());
    for requests in [0, 1] {
        let mut peer = open(&server);
        peer.acknowledges = false;
        for _ in 0..requests {
            assert_eq!(peer.fetch("/a").text(), "/a");
        }
        peer.assert_ended();
        assert_eq!(
            peer.goaways,
            [(LAST, code::NO_ERROR), (requests, code::NO_ERROR)]
        );
    }
}

#[test]
fn a_connection_with_an_open_request_is_not_idle() {
    let limits = Limits {
        idle_timeout: SHORT,
        head_timeout: SHORT,
        body_timeout: SHORT,
        send_timeout: SHORT,
        h2_ping_interval: SHORT,
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
    let mut peer = open(&server);
    let idle = thread::spawn(move || {
        begins.recv_timeout(PATIENCE).unwrap();
        // Idle connections that came later are past the limits, one after the other.
        for _ in 0..2 {
            server.connect().assert_closed();
        }
        release.notify_one();
        server
    });
    assert_eq!(peer.fetch("/").text(), "thought");
    idle.join().unwrap();
}

#[test]
fn a_client_that_vanished_is_detected_by_a_ping() {
    let limits = Limits {
        h2_ping_interval: SHORT,
        ..Limits::default()
    };
    let server = Server::with_limits(
        limits,
        service(|_| ResponseFuture::later(std::future::pending())),
    );
    let (mut here, mut gone) = (open(&server), open(&server));
    gone.acknowledges = false;
    for peer in [&mut here, &mut gone] {
        peer.get("/");
    }
    // A client that acknowledges PINGs stays.
    let mut pings = 0;
    while pings < 4 {
        let frame = here.read().unwrap();
        pings += usize::from(frame.kind == kind::PING);
    }
    let end = loop {
        match gone.read() {
            Ok(frame) => assert!(frame.kind != kind::HEADERS),
            Err(error) => break error,
        }
    };
    assert!(is_end(&end), "{end}");
    server.wait_for("the end", |totals| totals.connections == 1);
    assert_eq!(server.totals().timeouts, 1);
    here.fence();
}

/// Sends a message when it is dropped.
struct DropSignal(mpsc::Sender<()>);

impl Drop for DropSignal {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_response_that_no_client_waits_for_is_dropped() {
    let (sender, dropped) = mpsc::channel();
    let server = Server::start(service(move |request| {
        if request.path() != "/wait" {
            return ok(request.path().to_owned()).into();
        }
        let guard = DropSignal(sender.clone());
        ResponseFuture::later(async move {
            let _guard = guard;
            std::future::pending().await
        })
    }));
    let mut peer = open(&server);
    let streams = [peer.get("/wait"), peer.get("/wait"), peer.get("/wait")];
    peer.fence();
    assert!(dropped.try_recv().is_err());
    peer.send(reset(streams[1], code::CANCEL));
    dropped.recv_timeout(PATIENCE).unwrap();
    assert_eq!(peer.fetch("/a").text(), "/a");
    assert!(dropped.try_recv().is_err());
    drop(peer);
    for _ in 0..2 {
        dropped.recv_timeout(PATIENCE).unwrap();
    }
}

#[test]
fn a_response_whose_stream_is_reset_is_not_complete() {
    let (sender, outcomes) = mpsc::channel();
    let server = Server::start(service(move |request| {
        let len = request.path()[1..].parse().unwrap();
        let mut response = ok(body_bytes(len));
        let sender = sender.clone();
        response.on_complete(move |completion| {
            sender
                .send((completion.outcome, completion.body_bytes))
                .unwrap();
        });
        response.into()
    }));
    let mut peer = open(&server);
    assert_eq!(peer.fetch("/12").body.len(), 12);
    assert_eq!(
        outcomes.recv_timeout(PATIENCE).unwrap(),
        (ResponseOutcome::Complete, 12)
    );
    peer.opens_windows = false;
    let stream = peer.get("/1000000");
    peer.fence();
    peer.send(reset(stream, code::CANCEL));
    let (outcome, bytes) = outcomes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(outcome, ResponseOutcome::ClientGone);
    assert!((1..1_000_000).contains(&bytes), "{bytes}");
    let stream = peer.get("/1000001");
    peer.head(stream);
    drop(peer);
    let (outcome, _) = outcomes.recv_timeout(PATIENCE).unwrap();
    assert_eq!(outcome, ResponseOutcome::ClientGone);
}

#[test]
fn a_panic_costs_one_500_and_the_connection_goes_on() {
    let server = Server::start(panicking());
    let mut peer = open(&server);
    let before = peer.get("/before");
    for path in ["/call", "/future", "/late"] {
        assert_eq!(peer.fetch(path).status, 500, "{path}");
        assert_eq!(peer.fetch("/well").text(), "/well", "{path}");
    }
    assert_eq!(peer.response(before).text(), "/before");
    assert_eq!(server.totals().panics, 3);
}

#[test]
fn a_panic_in_a_stream_resets_it_alone() {
    let server = Server::start(panicking());
    let mut peer = open(&server);
    let stream = peer.get("/stream");
    assert_eq!(peer.reset_of(stream), code::INTERNAL_ERROR);
    assert!(!peer.received(stream).ended);
    assert_eq!(peer.fetch("/well").text(), "/well");
    let totals = server.totals();
    assert_eq!((totals.panics, totals.broken_responses), (1, 1));
}

#[test]
fn a_source_that_fails_midway_resets_its_stream_so_that_nothing_looks_complete() {
    let half = || Ok(Frame::Data(Bytes::from_static(b"half")));
    let server = Server::start(service(move |request| {
        let failure = || Err(std::io::Error::other("on purpose").into());
        let body: Body = match request.path() {
            "/fails" => ready_frames(None, vec![half(), failure()]),
            "/fails-at-once" => ready_frames(None, vec![failure()]),
            "/fails-with-length" => ready_frames(Some(8), vec![half(), failure()]),
            "/short" => ready_frames(Some(8), vec![half()]),
            path => path.to_owned().into(),
        };
        ok(body).into()
    }));
    let mut peer = open(&server);
    for (count, path) in ["/fails", "/fails-at-once", "/fails-with-length", "/short"]
        .into_iter()
        .enumerate()
    {
        let stream = peer.get(path);
        assert_eq!(peer.reset_of(stream), code::INTERNAL_ERROR, "{path}");
        assert!(!peer.received(stream).ended, "{path}");
        assert_eq!(peer.fetch("/well").text(), "/well");
        assert_eq!(server.totals().broken_responses, count as u64 + 1, "{path}");
    }
}

#[test]
fn a_source_that_gives_more_than_announced_sends_no_more_than_announced() {
    let server = Server::start(service(|_| {
        let data = |text: &'static [u8]| Ok(Frame::Data(Bytes::from_static(text)));
        ok(ready_frames(Some(6), vec![data(b"four"), data(b"more")])).into()
    }));
    let mut peer = open(&server);
    let stream = peer.get("/");
    peer.until("an end", |peer| {
        let response = peer.received(stream);
        response.ended || response.reset.is_some()
    });
    let response = peer.received(stream);
    assert_eq!(response.field("content-length"), Some("6"));
    assert!(
        response.reset.is_some() || response.text() == "fourmo",
        "{response:?}"
    );
}

#[test]
fn an_unsent_response_resets_its_stream_and_ends_the_connection_only_if_it_says_so() {
    let server = Server::start(service(|request| {
        let mut response = Response::unsent();
        match request.path() {
            "/none" => {}
            "/end" => response.set_ends_connection(),
            path => return ok(path.to_owned()).into(),
        }
        response.into()
    }));
    let mut peer = open(&server);
    let stream = peer.get("/none");
    assert_eq!(peer.reset_of(stream), code::CANCEL);
    assert_eq!(peer.fetch("/a").text(), "/a");
    let stream = peer.get("/end");
    assert_eq!(peer.reset_of(stream), code::CANCEL);
    server.wait_for("the end of the connection", |totals| {
        totals.connections == 0
    });
}

#[test]
fn a_file_that_became_shorter_resets_its_stream() {
    use std::io::Write;
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&body_bytes(100_000)).unwrap();
    let file = Arc::new(file);
    let server = Server::start(service(move |request| {
        let len = request.path()[1..].parse().unwrap();
        let range = apus_http::FileRange {
            file: Arc::clone(&file),
            offset: 0,
            len,
        };
        ok(Body::File(range)).into()
    }));
    let mut peer = open(&server);
    for len in [100_001, 1_000_000] {
        let stream = peer.get(&format!("/{len}"));
        assert_eq!(peer.reset_of(stream), code::INTERNAL_ERROR);
        assert!(peer.received(stream).body.len() <= 100_000);
    }
    assert!(peer.fetch("/100000").body == body_bytes(100_000));
    assert_eq!(server.totals().broken_responses, 2);
}

#[test]
fn a_large_unread_body_is_stopped_after_the_response_rfc_9113_section_8_1() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    for (length, sent) in [(Some("1000000"), 10), (None, 60_000)] {
        let length = length.map(|length| ("content-length", length));
        let length: Vec<_> = length.into_iter().collect();
        let stream = peer.request(&request_with("POST", "/early", &length), false);
        peer.upload(stream, &vec![b'x'; sent], false);
        assert_eq!(peer.reset_of(stream), code::NO_ERROR);
        let response = peer.received(stream);
        assert_eq!((response.ended, response.text().as_str()), (true, "/early"));
        // Frames in flight are no error.
        peer.send(data(stream, "more", true));
        assert_eq!(peer.fetch("/next").text(), "/next");
        assert_eq!(peer.goaways, []);
    }
}

#[test]
fn a_small_unread_body_is_discarded_after_the_response() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    for _ in 0..300 {
        let stream = peer.request(&request("POST", "/early"), false);
        peer.upload(stream, b"some", false);
        assert_eq!(peer.response(stream).text(), "/early");
        peer.upload(stream, b"more", true);
    }
    peer.fence();
    assert!(peer.responses.is_empty());
    assert_eq!(peer.goaways, []);
}

#[test]
fn a_body_past_a_limit_is_an_error_to_its_service() {
    let server = Server::start(service(|mut request| {
        request.limit_body(10);
        ResponseFuture::later(async move {
            match collect(&mut request.take_body()).await {
                Ok(body) => ok(body),
                Err(error) => Response::text(StatusCode::PAYLOAD_TOO_LARGE, error.to_string()),
            }
        })
    }));
    let mut peer = open(&server);
    let stream = peer.request(&request("POST", "/"), false);
    peer.send(data(stream, "0123456789", true));
    assert_eq!(peer.response(stream).text(), "0123456789");
    for fields in [&[][..], &[("content-length", "11")]] {
        let stream = peer.request(&request_with("POST", "/", fields), false);
        peer.send(data(stream, "0123456789x", true));
        let response = peer.response(stream);
        assert_eq!(response.status, 413);
        assert_eq!(response.text(), "the body is larger than allowed");
    }
}

#[test]
fn a_client_that_vanishes_leaves_nothing() {
    let server = Server::start(service(|request| match request.path() {
        "/wait" => ResponseFuture::later(std::future::pending()),
        _ => ok(body_bytes(4 << 20)).into(),
    }));
    for round in 1..=5 {
        let mut peer = open_with(&server, &[(setting::INITIAL_WINDOW_SIZE, 1 << 24)]);
        peer.send(window_update(0, 1 << 24));
        for path in ["/wait", "/large", "/wait", "/large"] {
            peer.get(path);
        }
        let upload = peer.request(&request("POST", "/wait"), false);
        peer.send(data(upload, "some", false));
        peer.head(3);
        server.wait_for("the requests", |totals| totals.requests == 5 * round);
    }
    server.wait_for("their end", |totals| totals.connections == 0);
}

#[test]
fn a_client_may_end_its_side_after_its_requests() {
    let go = Arc::new(AtomicBool::new(false));
    let server = Server::start(waiting(&go));
    let mut peer = open(&server);
    peer.acknowledges = false;
    peer.opens_windows = false;
    let streams = [peer.get("/a"), peer.get("/b")];
    assert_eq!(peer.response(streams[0]).text(), "/a");
    assert_eq!(peer.response(streams[1]).text(), "/b");
    peer.stream.shutdown(std::net::Shutdown::Write).unwrap();
    let end = loop {
        if let Err(error) = peer.read() {
            break error;
        }
    };
    assert!(is_end(&end), "{end}");
    server.wait_for("its end", |totals| totals.connections == 0);
}

#[test]
fn no_request_fails_while_plans_change() {
    let versioned = |version: usize| service(move |_| ok(version.to_string()).into());
    let server = Server::start(versioned(0));
    let (ended, responses) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            let (server, ended, responses) = (&server, &ended, &responses);
            scope.spawn(move || {
                let mut peer = open(server);
                let mut newest = 0;
                while !ended.load(Ordering::Relaxed) {
                    let streams: Vec<u32> = (0..10).map(|_| peer.get("/")).collect();
                    for stream in streams {
                        let version = peer.response(stream).text().parse::<usize>().unwrap();
                        assert!(version >= newest, "an old plan responds after a new one");
                        newest = version;
                        responses.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let _over = EndFlag(&ended);
        for version in 1..=20 {
            let before = responses.load(Ordering::Relaxed);
            wait_until("responses", || {
                responses.load(Ordering::Relaxed) >= before + 50
            });
            let new = plan(vec![ListenerPlan::new(local(), versioned(version))]);
            server.engine.reload(new).unwrap();
        }
    });
    let totals = server.totals();
    assert_eq!((totals.accepted, totals.bad_requests), (8, 0));
}

#[test]
fn no_stream_follows_the_highest_identifier_rfc_9113_section_5_1_1() {
    let server = Server::start(paths());
    let mut peer = open(&server);
    // The highest identifier there is: nothing can follow it.
    peer.send(get(LAST, "/last"));
    assert_eq!(peer.response(LAST).text(), "/last");
    peer.send(head(1, &block(&request("GET", "/first")), true));
    assert_eq!(peer.goaway(), code::PROTOCOL_ERROR);
}
