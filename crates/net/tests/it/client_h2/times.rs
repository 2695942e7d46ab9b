//! Origins that are too slow, or not there any more.

use std::time::{Duration, Instant};

use apus_http::{BodyError, Method};
use apus_net::client::{FailureCause, RequestPhase, Timeouts};

use super::origin::Scripted;
use super::{fetch, get, head, open, open_with, post, request, run, with_timeouts};
use crate::h2::client::{block, code, data, flag, frame, head as head_frames, kind, setting};
use crate::harness::collect;

const SHORT: Duration = Duration::from_millis(300);

#[test]
fn a_head_has_to_come_in_time() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.greet(&[]);
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
fn content_has_to_come_in_time_where_it_is_waited_for() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.greet(&[]);
            let stream = raw.request();
            raw.send(head_frames(stream, &block(&[(":status", "200")]), false));
            raw.send(data(stream, "some", false));
            let reset = raw.until(kind::RST_STREAM);
            assert_eq!((reset.stream, reset.number(0)), (stream, code::CANCEL));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let timeouts = Timeouts {
            read: SHORT,
            ..Timeouts::default()
        };
        let asked = with_timeouts(get("/"), &timeouts);
        let mut response = connection.send(asked).await.unwrap();
        // Who does not read yet is not waited for by the origin.
        tokio::time::sleep(2 * SHORT).await;
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
            raw.greet(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
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
fn an_origin_that_is_not_there_any_more_is_noticed() {
    run(async {
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let origin = Scripted::start(move |raw| {
            raw.greet(&[]);
            raw.request();
            raw.until(kind::PING);
            // Its machine is gone: nothing more is said.
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
            raw.greet(&[(setting::INITIAL_WINDOW_SIZE, 0x7fff_ffff)]);
            raw.send(crate::h2::client::window_update(0, 0x7000_0000));
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
fn content_goes_without_100_from_origins_that_never_send_it() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.greet(&[]);
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
fn an_origin_that_answers_and_has_nothing_to_say_is_not_asked_again_soon() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.greet(&[]);
            let stream = raw.request();
            let asked = raw.until(kind::PING);
            raw.send(frame(kind::PING, flag::ACK, 0, &asked.payload));
            // Much longer than it took to be asked first.
            raw.stream.set_read_timeout(Some(6 * SHORT)).unwrap();
            assert!(raw.is_silent());
            raw.send(head_frames(stream, &block(&[(":status", "204")]), true));
        });
        let timeouts = Timeouts {
            connect: SHORT,
            ..Timeouts::default()
        };
        let connection = open_with(origin.address, &timeouts).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 204);
        origin.finish().await;
    });
}

#[test]
fn content_that_was_not_asked_for_does_not_follow_a_refusal() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.greet(&[]);
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
