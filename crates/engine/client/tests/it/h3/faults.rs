//! Origins that break the protocol, are slow, or speak another protocol.

use std::time::Duration;

use apus_client::{FailureCause, RequestPhase, Timeouts};
use apus_h3::H3ErrorCode;
use apus_http::{Body, BodyError, Method};
use apus_quic::{QuicCloseReason, QuicSettings};
use apus_testkit::eventually;

use super::origin::{OriginEnd, ScriptedOrigin};
use super::{failure, fetch, open, open_with, with_timeouts};
use crate::harness::{collect, get, head, post, request};

async fn closed_with(origin: &mut OriginEnd, expected: H3ErrorCode) {
    match origin.closed().await {
        QuicCloseReason::Application { code, .. } => assert_eq!(H3ErrorCode(code), expected),
        other => panic!("{other}"),
    }
}

#[test]
fn an_origin_that_breaks_the_protocol_loses_the_connection() {
    let cases: [(&[u8], H3ErrorCode); 3] = [
        // DATA before HEADERS.
        (&[0x0, 0x1, b'x'], H3ErrorCode::FRAME_UNEXPECTED),
        // PUSH_PROMISE, although no push was allowed.
        (&[0x5, 0x1, 0x0], H3ErrorCode::ID_ERROR),
        // A reference to the dynamic table, which is empty.
        (
            &[0x1, 0x3, 0x0, 0x0, 0x80],
            H3ErrorCode::QPACK_DECOMPRESSION_FAILED,
        ),
    ];
    for (bytes, code) in cases {
        super::run(async {
            let origin = ScriptedOrigin::start(move |origin| {
                Box::pin(async move {
                    let stream = origin.request().await.stream;
                    origin.raw(stream, bytes, false);
                    closed_with(origin, code).await;
                })
            });
            let connection = open(&origin).await;
            let failure = failure(&connection, get("/")).await;
            assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure}"
            );
            eventually("the end", || connection.is_closed()).await;
            origin.finish().await;
        });
    }
}

#[test]
fn a_malformed_response_fails_only_its_own_request() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let stream = origin.request().await.stream;
                // An empty field section.
                origin.raw(stream, &[0x1, 0x2, 0x0, 0x0], true);
                // A stream that ends before its response.
                let stream = origin.request().await.stream;
                origin.raw(stream, &[], true);
                let stream = origin.request().await.stream;
                origin.respond(stream, 200, "ok");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        for _ in 0..2 {
            let failure = failure(&connection, get("/")).await;
            assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure}"
            );
        }
        assert_eq!(fetch(&connection, get("/")).await, (200, "ok".into()));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_is_slow_costs_only_its_own_request() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let stream = origin.request().await.stream;
                let code = origin.reset_of(stream).await;
                assert_eq!(code, H3ErrorCode::REQUEST_CANCELLED);
                let stream = origin.request().await.stream;
                origin.head(stream, 200, None);
                origin.data(stream, "some", false);
                origin.reset_of(stream).await;
                let stream = origin.request().await.stream;
                origin.respond(stream, 200, "ok");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let short = Timeouts {
            first_byte: Duration::from_millis(200),
            read: Duration::from_millis(200),
            ..Timeouts::default()
        };
        // Without an end of the request, its stream is reset in both directions.
        let (_sender, body) = crate::harness::ChannelBody::pair();
        let mut endless = with_timeouts(post(body), &short);
        endless.template.timeouts = std::rc::Rc::new(Timeouts {
            write: Duration::from_secs(60),
            ..short.clone()
        });
        let waiting = connection.send(endless);
        let waiting = tokio::time::timeout(Duration::from_millis(50), waiting).await;
        assert!(waiting.is_err(), "no response was sent");
        let (_sender, body) = crate::harness::ChannelBody::pair();
        let response = connection.send(with_timeouts(post(body), &short)).await;
        let error = collect(response.unwrap().body).await.expect_err("slow");
        assert!(matches!(error, BodyError::TimedOut), "{error}");
        assert_eq!(fetch(&connection, get("/")).await, (200, "ok".into()));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_response_whose_head_does_not_come_fails_in_time() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                origin.request().await;
                let stream = origin.request().await.stream;
                origin.respond(stream, 200, "ok");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let short = Timeouts {
            first_byte: Duration::from_millis(200),
            ..Timeouts::default()
        };
        let failure = failure(&connection, with_timeouts(get("/"), &short)).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert_eq!(
            (failure.phase, failure.request_sent),
            (RequestPhase::Head, true)
        );
        assert_eq!(fetch(&connection, get("/")).await, (200, "ok".into()));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_body_of_which_the_origin_takes_nothing_fails_in_time() {
    super::run(async {
        let settings = QuicSettings {
            stream_receive_window: 10_000,
            ..QuicSettings::default()
        };
        let (failed, waiting) = tokio::sync::oneshot::channel::<()>();
        let origin = ScriptedOrigin::with(b"h3", settings, |origin| {
            Box::pin(async {
                let stream = origin.request().await.stream;
                // It reads nothing, so that the window of the stream stays closed.
                waiting.await.unwrap();
                origin.reset_of(stream).await;
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let short = Timeouts {
            write: Duration::from_millis(200),
            ..Timeouts::default()
        };
        let body = apus_testkit::body_bytes(1_000_000);
        let failure = failure(&connection, with_timeouts(post(body), &short)).await;
        assert!(matches!(failure.cause, FailureCause::TimedOut), "{failure}");
        assert_eq!(failure.phase, RequestPhase::Send, "{failure}");
        failed.send(()).unwrap();
        assert!(!connection.is_closed());
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn an_origin_without_extended_connect_takes_no_tunnels() {
    // The settings of a silent one never come.
    for is_silent in [false, true] {
        super::run(async {
            let origin = ScriptedOrigin::start(move |origin| {
                Box::pin(async move {
                    origin.is_silent = is_silent;
                    origin.ended().await;
                })
            });
            let short = Timeouts {
                connect: Duration::from_secs(1),
                ..Timeouts::default()
            };
            let connection = open_with(&origin, &short).await.unwrap();
            let mut upgrade = head(Method::GET, "/");
            upgrade.upgrade = Some("websocket".into());
            let failure = failure(&connection, request(upgrade, Body::Empty)).await;
            assert!(matches!(failure.cause, FailureCause::NoTunnel), "{failure}");
            assert!(!failure.request_sent);
            drop(connection);
            origin.finish().await;
        });
    }
}

#[test]
fn an_origin_that_speaks_another_protocol_is_refused() {
    super::run(async {
        let origin = ScriptedOrigin::with(b"hq", QuicSettings::default(), |_| {
            Box::pin(async { panic!("a connection") })
        });
        let failure = open_with(&origin, &Timeouts::default())
            .await
            .expect_err("another protocol");
        assert_eq!(failure.phase, RequestPhase::Tls, "{failure}");
        assert!(
            matches!(failure.cause, FailureCause::Protocol(_)),
            "{failure}"
        );
    });
}
