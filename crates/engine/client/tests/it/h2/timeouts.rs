//! Origins that are too slow, or no longer reachable.

use std::time::{Duration, Instant};

use apus_client::{FailureCause, RequestPhase, Timeouts};
use apus_http::{BodyError, Method};
use apus_testkit::collect;
use apus_testkit::h2::{block, code, data, flag, frame, head as head_frames, kind, setting};

use super::origin::Scripted;
use super::{fetch, get, head, open, open_with, post, request, run, with_timeouts};

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_head_has_to_come_in_time() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            let reset = raw.until(kind::RST_STREAM);
            assert_eq!((reset.stream, reset.number(0)), (stream, code::CANCEL));
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let timeouts = Timeouts {
            first_byte: SHORT,
            ..Timeouts::default()
        };
        let start = Instant::now();
        let failure = super::failure(&connection, with_timeouts(get("/"), &timeouts)).await;
        assert!(start.elapsed() >= SHORT);
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert_eq!(
            (failure.phase, failure.request_sent),
            (RequestPhase::Head, true)
        );
        assert_eq!(fetch(&connection, get("/")).await.0, 204);
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_body_has_to_arrive_in_time_while_it_is_read() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "200")]), false));
            raw.send(data(stream, "some", false));
            let without_response = raw.request();
            for late in [without_response, stream] {
                let reset = raw.until(kind::RST_STREAM);
                assert_eq!((reset.stream, reset.number(0)), (late, code::CANCEL));
            }
            raw.rest();
        });
        let connection = open(origin.address).await;
        let timeouts = Timeouts {
            read: SHORT,
            first_byte: SHORT,
            ..Timeouts::default()
        };
        let request = with_timeouts(get("/"), &timeouts);
        let mut response = connection.send(request).await.unwrap();
        // A request that began later is past its deadline, and the body that is not read yet is not.
        let failure = super::failure(&connection, with_timeouts(get("/"), &timeouts)).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        let start = Instant::now();
        let error = collect(&mut response.body).await.unwrap_err();
        assert!(matches!(error, BodyError::TimedOut), "{error}");
        assert!(start.elapsed() >= SHORT);
        assert!(!connection.is_closed());
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn windows_have_to_open_in_time() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
            let stream = raw.request();
            let reset = raw.until(kind::RST_STREAM);
            assert_eq!((reset.stream, reset.number(0)), (stream, code::CANCEL));
            raw.rest();
        });
        let connection = open(origin.address).await;
        super::eventually("the settings", || connection.has_room()).await;
        let timeouts = Timeouts {
            write: SHORT,
            ..Timeouts::default()
        };
        let large = vec![0; 200_000];
        let failure = super::failure(&connection, with_timeouts(post("/", large), &timeouts)).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert_eq!(
            (failure.phase, failure.request_sent),
            (RequestPhase::Send, true)
        );
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_is_no_longer_reachable_is_detected() {
    run(async {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let origin = Scripted::start(move |raw| {
            raw.handshake(&[]);
            raw.request();
            raw.until(kind::PING);
            // Its machine is down: it sends nothing more.
            let _ = wait.recv();
        });
        let timeouts = Timeouts {
            connect: SHORT,
            ..Timeouts::default()
        };
        let connection = open_with(origin.address, &timeouts).await;
        let failure = super::failure(&connection, get("/")).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert!(connection.is_closed());
        drop(done);
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_takes_nothing_is_given_up() {
    run(async {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let origin = Scripted::start(move |raw| {
            raw.handshake(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
            raw.send(apus_testkit::h2::window_update(0, 0x7000_0000));
            let _ = wait.recv();
        });
        let timeouts = Timeouts {
            write: SHORT,
            ..Timeouts::default()
        };
        let connection = open_with(origin.address, &timeouts).await;
        let large = vec![0; 64_000_000];
        let failure = super::failure(&connection, post("/", large)).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert!(connection.is_closed());
        drop(done);
        origin.finish().await;
    });
}

#[test]
fn a_body_is_sent_to_origins_that_never_send_100() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            assert_eq!(raw.until(kind::DATA).payload, b"hello");
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let mut expecting = head(Method::POST, "/");
        expecting.expects_continue = true;
        let start = Instant::now();
        assert_eq!(fetch(&connection, request(expecting, "hello")).await.0, 204);
        assert!(start.elapsed() >= Duration::from_millis(900));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_acknowledges_pings_and_is_silent_gets_no_further_ping_soon() {
    run(async {
        let (acknowledged, is_acknowledged) = tokio::sync::oneshot::channel();
        let (other_pinged, wait_for_other) = std::sync::mpsc::channel();
        let origin = Scripted::start(move |raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            let ping = raw.until(kind::PING);
            raw.send(frame(kind::PING, flag::ACK, 0, ping.payload));
            // When the client has acknowledged this one, it has read the acknowledgement before it.
            raw.send(frame(kind::PING, 0, 0, [7; 8]));
            assert_eq!(raw.until(kind::PING).payload, [7; 8]);
            acknowledged.send(()).unwrap();
            wait_for_other.recv().unwrap();
            raw.stream.set_nonblocking(true).unwrap();
            assert!(raw.is_silent());
            raw.stream.set_nonblocking(false).unwrap();
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
        });
        // This origin becomes silent later, and gets its PING first.
        let other = Scripted::start(move |raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            raw.until(kind::PING);
            other_pinged.send(()).unwrap();
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
        });
        let timeouts = Timeouts {
            connect: SHORT,
            ..Timeouts::default()
        };
        let connection = open_with(origin.address, &timeouts).await;
        let later = async {
            is_acknowledged.await.unwrap();
            let connection = open_with(other.address, &timeouts).await;
            assert_eq!(fetch(&connection, get("/")).await.0, 204);
        };
        let (fetched, ()) = tokio::join!(fetch(&connection, get("/")), later);
        assert_eq!(fetched.0, 204);
        origin.finish().await;
        other.finish().await;
    });
}

#[test]
fn a_body_that_was_held_back_does_not_follow_a_refusal() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            let fields = block(&[(":status", "417")]);
            raw.send(head_frames(stream, &fields, false));
            raw.send(data(stream, "no", true));
            let frames = raw.rest();
            assert!(frames.iter().all(|frame| frame.kind != kind::DATA));
            assert!(frames.iter().any(|frame| frame.kind == kind::RST_STREAM));
        });
        let connection = open(origin.address).await;
        let mut expecting = head(Method::POST, "/");
        expecting.expects_continue = true;
        let refused = fetch(&connection, request(expecting, "hello")).await;
        assert_eq!(refused, (417, "no".into()));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_body_that_was_held_back_is_sent_to_an_origin_that_sends_its_final_head_first() {
    run(async {
        for status in ["200", "303", "399"] {
            let origin = Scripted::start(move |raw| {
                raw.handshake(&[]);
                let stream = raw.request();
                let fields = block(&[(":status", status)]);
                raw.send(head_frames(stream, &fields, false));
                assert_eq!(raw.until(kind::DATA).payload, b"hello");
                raw.send(data(stream, "hello", true));
                raw.rest();
            });
            let connection = open(origin.address).await;
            let mut expecting = head(Method::POST, "/");
            expecting.expects_continue = true;
            let (_, body) = fetch(&connection, request(expecting, "hello")).await;
            assert_eq!(body, "hello", "{status}");
            drop(connection);
            origin.finish().await;
        }
    });
}
