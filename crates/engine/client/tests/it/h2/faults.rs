//! Origins that break off, refuse, or break the protocol.

use std::time::Duration;

use apus_client::{ClientResponse, FailureCause, RequestPhase, Timeouts};
use apus_http::{Body, BodyError, Frame, Method};
use apus_testkit::h2::{
    block, code, data, flag, frame, head as head_frames, kind, ping, reset, setting, settings,
    window_update,
};
use apus_testkit::{collect, frames, ready_frames};
use bytes::Bytes;

use super::origin::{RawConnection, Scripted};
use super::{fetch, get, head, open, open_with, post, request, run};

fn ok_head(stream: u32, end: bool) -> Vec<u8> {
    head_frames(stream, &block(&[(":status", "200")]), end)
}

fn goaway(last: u32, code: u32) -> Vec<u8> {
    let payload = [last.to_be_bytes(), code.to_be_bytes()].concat();
    frame(kind::GOAWAY, flag::NONE, 0, payload)
}

async fn broken(response: &mut ClientResponse) -> BodyError {
    collect(&mut response.body)
        .await
        .expect_err("no complete body")
}

#[test]
fn a_refused_stream_was_not_processed_and_gives_its_body_back() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[(setting::INITIAL_WINDOW_SIZE, 0)]);
            for _ in 0..2 {
                let stream = raw.request();
                raw.send(reset(stream, code::REFUSED_STREAM));
            }
            let stream = raw.request();
            raw.send(ok_head(stream, true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let failure = super::failure(&connection, post("/", "bytes")).await;
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        assert!(!failure.request_sent);
        let mut body = failure.body.expect("the body");
        assert_eq!(collect(&mut body).await.unwrap(), b"bytes");
        // The window of data that was not requested is given back, too.
        let mut held = head(Method::POST, "/");
        held.expects_continue = true;
        let streamed = ready_frames(None, vec![Ok(Frame::Data(Bytes::from_static(b"streamed")))]);
        let failure = super::failure(&connection, request(held, streamed)).await;
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        let mut body = failure.body.expect("the body");
        assert_eq!(collect(&mut body).await.unwrap(), b"streamed");
        assert_eq!(fetch(&connection, get("/")).await.0, 200);
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn goaway_refuses_later_streams_and_lets_earlier_ones_end() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let (first, second) = (raw.request(), raw.request());
            raw.send(goaway(first, code::NO_ERROR));
            assert_eq!(raw.until(kind::RST_STREAM).stream, second);
            raw.send(ok_head(first, false));
            raw.send(data(first, "whole", true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let (first, second) = tokio::join!(
            fetch(&connection, get("/first")),
            super::failure(&connection, get("/second")),
        );
        assert_eq!(first, (200, "whole".into()));
        assert!(
            matches!(second.cause, FailureCause::Refused) && !second.request_sent,
            "{second}"
        );
        assert!(connection.is_closed() && !connection.has_room());
        origin.finish().await;
    });
}

#[test]
fn a_cut_connection_breaks_off_incomplete_responses() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let first = raw.request();
            raw.request();
            raw.send(ok_head(first, false));
            raw.send(data(first, "half", false));
            // This waits until the client has read the half.
            raw.until(kind::PING);
        });
        let timeouts = Timeouts {
            connect: Duration::from_millis(300),
            ..Timeouts::default()
        };
        let connection = open_with(origin.address, &timeouts).await;
        let (first, second) = tokio::join!(connection.send(get("/1")), async {
            super::failure(&connection, post("/2", "x")).await
        },);
        let mut first = first.unwrap();
        assert!(matches!(broken(&mut first).await, BodyError::Disconnected));
        assert!(
            matches!(second.cause, FailureCause::Closed | FailureCause::Io(_)),
            "{second}"
        );
        assert!(
            second.request_sent && second.phase == RequestPhase::Head,
            "{second}"
        );
        assert!(connection.is_closed());
        origin.finish().await;
    });
}

#[test]
fn a_reset_breaks_off_bodies_and_fails_requests_without_a_head() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            raw.send(ok_head(stream, false));
            raw.send(data(stream, "half", false));
            let stream = raw.request();
            raw.send(reset(stream, code::INTERNAL_ERROR));
            raw.send(reset(1, code::INTERNAL_ERROR));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let mut first = connection.send(get("/1")).await.unwrap();
        let second = super::failure(&connection, get("/2")).await;
        assert!(
            matches!(second.cause, FailureCause::Reset) && second.request_sent,
            "{second}"
        );
        assert!(matches!(broken(&mut first).await, BodyError::Disconnected));
        assert!(!connection.is_closed());
        drop(connection);
        origin.finish().await;
    });
}

/// The frames of an origin after which a request gets no response.
fn fails(fault: impl Fn(u32) -> Vec<u8> + Send + 'static) {
    run(async {
        let origin = Scripted::start(move |raw: &mut RawConnection| {
            raw.handshake(&[]);
            let stream = raw.request();
            raw.send(fault(stream));
            let stream = raw.request();
            raw.send(ok_head(stream, true));
            raw.rest();
        });
        let connection = open(origin.address).await;
        let failure = super::failure(&connection, get("/")).await;
        assert!(
            matches!(failure.cause, FailureCause::Protocol(_)),
            "{failure}"
        );
        assert!(failure.request_sent, "{failure}");
        // It costs its stream only.
        assert_eq!(fetch(&connection, get("/")).await.0, 200);
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn connection_specific_fields_never_leak() {
    for field in [
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
        "proxy-connection",
    ] {
        fails(move |stream| {
            let fields = block(&[(":status", "200"), (field, "x")]);
            head_frames(stream, &fields, true)
        });
    }
}

#[test]
fn malformed_heads_are_no_responses() {
    for fields in [
        vec![("x", "no status")],
        vec![(":status", "200"), ("bad name", "x")],
        vec![(":status", "200"), ("x", "a\rb")],
        vec![(":status", "101")],
        vec![
            (":status", "200"),
            ("content-length", "5"),
            ("content-length", "6"),
        ],
        vec![(":status", "200"), ("content-length", "+5")],
        vec![(":status", "200"), ("content-length", "5")],
    ] {
        let fields = block(&fields);
        fails(move |stream| head_frames(stream, &fields, true));
    }
    let many: Vec<_> = std::iter::repeat_n(("x", "y"), 300).collect();
    let many = block(&[vec![(":status", "200")], many].concat());
    fails(move |stream| head_frames(stream, &many, true));
    fails(|stream| data(stream, "before the head", true));
}

#[test]
fn a_body_of_another_length_than_announced_is_not_complete() {
    for (first, second) in [("hello", " and more"), ("hell", "")] {
        run(async move {
            let origin = Scripted::start(move |raw| {
                raw.handshake(&[]);
                let stream = raw.request();
                let fields = block(&[(":status", "200"), ("content-length", "5")]);
                raw.send(head_frames(stream, &fields, false));
                // The head is read before what follows it.
                raw.send(ping(1));
                raw.until(kind::PING);
                raw.send(data(stream, first, false));
                raw.send(data(stream, second, true));
                raw.rest();
            });
            let connection = open(origin.address).await;
            let mut response = connection.send(get("/")).await.unwrap();
            assert_eq!(response.body.len(), Some(5));
            assert!(matches!(broken(&mut response).await, BodyError::Malformed));
            drop(connection);
            origin.finish().await;
        });
    }
}

/// The frames of an origin that end the connection.
fn ends_the_connection(fault: impl Fn(u32) -> Vec<u8> + Send + 'static, expected: u32) {
    run(async {
        let origin = Scripted::start(move |raw: &mut RawConnection| {
            raw.handshake(&[]);
            let stream = raw.request();
            use std::io::Write;
            // The connection may end before all was sent.
            let _ = raw.stream.write_all(&fault(stream));
            let goaway = raw
                .rest()
                .into_iter()
                .find(|frame| frame.kind == kind::GOAWAY);
            if let Some(goaway) = goaway {
                assert_eq!(goaway.number(4), expected);
            }
        });
        let connection = open(origin.address).await;
        match connection.send(get("/")).await {
            Ok(mut response) => {
                assert!(matches!(broken(&mut response).await, BodyError::Malformed));
            }
            Err(failure) => assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure}"
            ),
        }
        super::eventually("the end", || connection.is_closed()).await;
        origin.finish().await;
    });
}

#[test]
fn attacks_end_the_connection() {
    let hints = |stream| head_frames(stream, &block(&[(":status", "103")]), false);
    ends_the_connection(
        move |stream| hints(stream).repeat(5000),
        code::ENHANCE_YOUR_CALM,
    );
    ends_the_connection(|_| ping(1).repeat(5000), code::ENHANCE_YOUR_CALM);
    ends_the_connection(|_| settings(&[]).repeat(5000), code::ENHANCE_YOUR_CALM);
    ends_the_connection(
        |stream| window_update(stream, 1).repeat(9000),
        code::ENHANCE_YOUR_CALM,
    );
    let empty = |stream| frame(kind::DATA, flag::NONE, stream, []);
    ends_the_connection(
        move |stream| [ok_head(stream, false), empty(stream).repeat(9000)].concat(),
        code::ENHANCE_YOUR_CALM,
    );
    let endless = |stream| {
        let first = frame(kind::HEADERS, flag::NONE, stream, []);
        let more = frame(kind::CONTINUATION, flag::NONE, stream, [0; 100]);
        [first, more.repeat(100)].concat()
    };
    ends_the_connection(endless, code::ENHANCE_YOUR_CALM);
}

#[test]
fn broken_frames_end_the_connection() {
    ends_the_connection(|stream| ok_head(stream + 2, true), code::PROTOCOL_ERROR);
    ends_the_connection(|_| ok_head(2, true), code::PROTOCOL_ERROR);
    let push = |stream| frame(kind::PUSH_PROMISE, flag::END_HEADERS, stream, [0, 0, 0, 2]);
    ends_the_connection(push, code::PROTOCOL_ERROR);
    let large = |_| frame(kind::PING, flag::NONE, 0, [0; 20_000]);
    ends_the_connection(large, code::FRAME_SIZE_ERROR);
    ends_the_connection(|_| window_update(0, 0x7fff_ffff), code::FLOW_CONTROL_ERROR);
    let bomb = |stream| head_frames(stream, &[0x3f, 0xff, 0xff, 0xff, 0xff, 0x0f], true);
    ends_the_connection(bomb, code::COMPRESSION_ERROR);
}

#[test]
fn an_origin_cannot_send_more_than_was_allowed() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            use std::io::Write;
            let _ = raw.stream.write_all(&ok_head(stream, false));
            let _ = raw.stream.write_all(&data(stream, vec![0; 200_000], false));
            let goaway = raw
                .rest()
                .into_iter()
                .find(|frame| frame.kind == kind::GOAWAY);
            if let Some(goaway) = goaway {
                assert_eq!(goaway.number(4), code::FLOW_CONTROL_ERROR);
            }
        });
        let connection = open(origin.address).await;
        // The body is not read, so no window opens.
        let response = connection.send(get("/")).await;
        super::eventually("the end", || connection.is_closed()).await;
        if let Ok(mut response) = response {
            assert!(matches!(broken(&mut response).await, BodyError::Malformed));
        }
        origin.finish().await;
    });
}

#[test]
fn an_origin_with_another_protocol_is_recognised() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.send("HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
            raw.rest();
        });
        let connection = open(origin.address).await;
        let failure = super::failure(&connection, get("/")).await;
        assert!(
            matches!(
                failure.cause,
                FailureCause::Protocol(_) | FailureCause::Closed
            ),
            "{failure}"
        );
        origin.finish().await;
    });
}

#[test]
fn a_connection_that_the_origin_closes_while_idle_is_closed() {
    run(async {
        let origin = Scripted::start(|raw| raw.handshake(&[]));
        let connection = open(origin.address).await;
        super::eventually("the end", || connection.is_closed()).await;
        assert!(!connection.has_room());
        let failure = super::failure(&connection, post("/", "kept")).await;
        assert!(
            matches!(failure.cause, FailureCause::Closed) && !failure.request_sent,
            "{failure}"
        );
        assert!(matches!(failure.body, Some(Body::Bytes(_))));
        origin.finish().await;
    });
}

#[test]
fn a_whole_response_that_is_followed_by_a_reset_is_whole() {
    run(async {
        let origin = Scripted::start(|raw| {
            raw.handshake(&[]);
            let stream = raw.request();
            let fields = block(&[(":status", "413")]);
            let whole = [
                head_frames(stream, &fields, false),
                data(stream, "too large", true),
                reset(stream, code::NO_ERROR),
            ];
            raw.send(whole.concat());
            raw.rest();
        });
        let connection = open(origin.address).await;
        let body = frames(None, |_| std::task::Poll::Pending);
        assert_eq!(
            fetch(&connection, post("/", body)).await,
            (413, "too large".into())
        );
        assert!(!connection.is_closed());
        drop(connection);
        origin.finish().await;
    });
}
