//! The ends of streams and connections: refused requests, resets, GOAWAY, and responses that are incomplete.

use apus_client::{FailureCause, RequestPhase};
use apus_h3::H3ErrorCode;
use apus_http::BodyError;
use apus_quic::QuicSettings;
use apus_testkit::{body_bytes, eventually};

use super::origin::ScriptedOrigin;
use super::{failure, fetch, open};
use crate::harness::{collect, get, post};

#[test]
fn a_request_that_is_rejected_can_be_sent_again() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let request = origin.request().await;
                origin.reset(request.stream, H3ErrorCode::REQUEST_REJECTED);
                let request = origin.request().await;
                origin.respond(request.stream, 200, "ok");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let failure = failure(&connection, post("again")).await;
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        assert!(!failure.request_sent);
        let (body, _) = collect(failure.body.expect("the body")).await.unwrap();
        assert_eq!(body, b"again");
        assert_eq!(fetch(&connection, get("/")).await, (200, "ok".into()));
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_stream_that_is_reset_fails_only_its_own_request() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let first = origin.request().await.stream;
                let second = origin.request().await.stream;
                origin.reset(first, H3ErrorCode::INTERNAL_ERROR);
                origin.respond(second, 200, "ok");
                let third = origin.request().await.stream;
                origin.head(third, 200, None);
                origin.data(third, "some", false);
                origin.event().await;
                origin.reset(third, H3ErrorCode::INTERNAL_ERROR);
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let (first, second) = (connection.send(get("/")), connection.send(get("/")));
        let failure = first.await.expect_err("a reset");
        assert!(matches!(failure.cause, FailureCause::Reset), "{failure}");
        assert_eq!(
            (failure.phase, failure.request_sent),
            (RequestPhase::Head, true)
        );
        assert_eq!(second.await.unwrap().status, 200);
        let third = connection.send(get("/")).await.unwrap();
        let _fourth = connection.send(get("/"));
        let error = collect(third.body).await.expect_err("incomplete");
        assert!(matches!(error, BodyError::Disconnected), "{error}");
        drop(_fourth);
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn requests_from_the_one_in_goaway_on_can_be_sent_again() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let first = origin.request().await.stream;
                // The next request is not processed: it has this identifier.
                origin.transport.codec.go_away();
                origin.send_all();
                origin.respond(first, 200, "ok");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        // Both are sent at once, so that the second is on its way when GOAWAY comes.
        let (first, second) = (connection.send(get("/")), connection.send(post("x")));
        let response = first.await.unwrap();
        assert_eq!(collect(response.body).await.unwrap().0, b"ok");
        let failure = second.await.expect_err("not processed");
        assert!(matches!(failure.cause, FailureCause::Refused), "{failure}");
        assert!(!failure.request_sent && failure.body.is_some());
        assert!(connection.is_closed() && !connection.has_room());
        origin.finish().await;
    });
}

#[test]
fn a_response_that_is_cut_off_never_ends_in_order() {
    let cases: [(Option<u64>, Option<H3ErrorCode>); 4] = [
        (Some(10), None),
        (Some(10), Some(H3ErrorCode::NO_ERROR)),
        (None, Some(H3ErrorCode::NO_ERROR)),
        (None, Some(H3ErrorCode::INTERNAL_ERROR)),
    ];
    for (length, close) in cases {
        super::run(async {
            let origin = ScriptedOrigin::start(move |origin| {
                Box::pin(async move {
                    let stream = origin.request().await.stream;
                    origin.head(stream, 200, length);
                    origin.data(stream, "123456789", close.is_none());
                    let next = origin.request().await.stream;
                    match close {
                        Some(code) => origin.close(code),
                        None => {
                            origin.respond(next, 200, "ok");
                            origin.ended().await;
                        }
                    }
                })
            });
            let connection = open(&origin).await;
            let response = connection.send(get("/")).await;
            let next = connection.send(get("/"));
            // If the head came together with the end, there is no response at all.
            if let Ok(response) = response {
                let body = collect(response.body).await;
                assert!(body.is_err(), "{length:?} {close:?}");
            }
            match close {
                Some(_) => {
                    let failure = next.await.expect_err("the end of the connection");
                    assert!(failure.request_sent, "{failure}");
                    eventually("the end", || connection.is_closed()).await;
                }
                None => assert_eq!(next.await.unwrap().status, 200),
            }
            drop(connection);
            origin.finish().await;
        });
    }
}

#[test]
fn an_end_of_the_connection_in_order_is_that_of_an_idle_connection() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let stream = origin.request().await.stream;
                origin.respond(stream, 200, "ok");
                origin.request().await;
                origin.close(H3ErrorCode::NO_ERROR);
            })
        });
        let connection = open(&origin).await;
        assert_eq!(fetch(&connection, get("/")).await.0, 200);
        let failure = failure(&connection, get("/")).await;
        assert!(matches!(failure.cause, FailureCause::Closed), "{failure}");
        origin.finish().await;
    });
}

#[test]
fn an_origin_that_wants_no_more_of_a_body_can_still_respond() {
    super::run(async {
        let origin = ScriptedOrigin::start(|origin| {
            Box::pin(async {
                let request = origin.request().await;
                // It asks to stop the body, and then responds.
                let id = apus_h3_quic::stream_id(request.stream.id());
                let quic = &origin.transport.quic;
                quic.stop_sending(id, H3ErrorCode::NO_ERROR.0).unwrap();
                origin.respond(request.stream, 403, "no");
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        let body = body_bytes(20_000_000);
        assert_eq!(fetch(&connection, post(body)).await, (403, "no".into()));
        eventually("the end of it", || connection.open_streams() == 0).await;
        drop(connection);
        origin.finish().await;
    });
}

#[test]
fn a_body_waits_for_the_windows_of_the_origin() {
    super::run(async {
        let settings = QuicSettings {
            stream_receive_window: 1_000,
            receive_window: 1_500,
            ..QuicSettings::default()
        };
        let origin = ScriptedOrigin::with(b"h3", settings, |origin| {
            Box::pin(async {
                for _ in 0..3 {
                    let stream = origin.request().await.stream;
                    let body = origin.body().await;
                    origin.head(stream, 200, Some(body.len() as u64));
                    origin.data(stream, body, true);
                }
                origin.ended().await;
            })
        });
        let connection = open(&origin).await;
        for size in [999, 1_001, 70_000] {
            let body = body_bytes(size);
            let response = connection.send(post(body.clone())).await.unwrap();
            assert!(collect(response.body).await.unwrap().0 == body, "{size}");
        }
        drop(connection);
        origin.finish().await;
    });
}
