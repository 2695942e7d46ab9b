//! Origins that are too slow, in each phase.

use std::net::TcpListener;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::{
    Address, ClientRequest, ClientTlsSettings, FailureCause, RequestFailure, RequestPhase,
    Timeouts, Tls, connect,
};
use apus_http::{Body, BodyError, Frame};
use bytes::Bytes;

use crate::harness::{ChannelBody, IdleConnections, RawOrigin, collect, get, origin, post, run};

const SHORT: Duration = Duration::from_millis(50);

fn within(timeouts: Timeouts, mut request: ClientRequest) -> ClientRequest {
    request.template.timeouts = Rc::new(timeouts);
    request
}

fn assert_timed_out(failure: &RequestFailure, phase: RequestPhase) {
    assert!(
        matches!(failure.cause, FailureCause::TimedOut),
        "{failure:?}"
    );
    assert_eq!(failure.phase, phase);
}

#[test]
fn a_response_that_does_not_come_is_given_up() {
    for sent in [
        "",
        "HTTP/1.1 200 OK\r\nContent-",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ] {
        let (sender, closed) = std::sync::mpsc::channel();
        let origin = RawOrigin::start(move |_, mut connection| {
            connection.read_request().unwrap();
            connection.send(sent);
            sender.send(connection.is_closed()).unwrap();
        });
        run(async {
            let timeouts = Timeouts {
                first_byte: SHORT,
                ..Timeouts::default()
            };
            let idle = Rc::new(IdleConnections::default());
            let start = Instant::now();
            let request = within(timeouts, get("/"));
            let failure = idle.send(&origin.origin(), request).await.unwrap_err();
            assert_timed_out(&failure, RequestPhase::Head);
            assert!(start.elapsed() >= SHORT);
            assert!(failure.request_sent);
        });
        assert!(closed.recv().unwrap());
    }
}

#[test]
fn the_time_for_a_response_begins_when_the_request_was_sent() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_until(b"0\r\n\r\n").unwrap();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    let silent = RawOrigin::start(|_, mut connection| {
        connection.read_request().unwrap();
        connection.is_closed();
    });
    run(async {
        let timeouts = Timeouts {
            first_byte: Duration::from_secs(1),
            ..Timeouts::default()
        };
        let (frames, body) = ChannelBody::pair();
        let idle = Rc::new(IdleConnections::default());
        let silent = silent.origin();
        let later = idle.send(&silent, within(timeouts.clone(), get("/")));
        let sends = async {
            // The body arrives after a request that began later has timed out.
            assert_timed_out(&later.await.unwrap_err(), RequestPhase::Head);
            frames
                .send(Ok(Frame::Data(Bytes::from_static(b"x"))))
                .unwrap();
            drop(frames);
        };
        let origin = origin.origin();
        let request = within(timeouts, post(body));
        let (response, ()) = tokio::join!(idle.send(&origin, request), sends);
        assert_eq!(response.unwrap().status, 200);
    });
}

#[test]
fn a_body_that_stops_arriving_breaks_off() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_request().unwrap();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        connection.is_closed();
    });
    run(async {
        let timeouts = Timeouts {
            read: SHORT,
            ..Timeouts::default()
        };
        let idle = Rc::new(IdleConnections::default());
        let request = within(timeouts, get("/"));
        let response = idle.send(&origin.origin(), request).await.unwrap();
        let error = collect(response.body).await.unwrap_err();
        assert!(matches!(error, BodyError::TimedOut), "{error}");
    });
}

#[test]
fn an_origin_that_does_not_read_is_given_up() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Arc::new(std::sync::Mutex::new(wait));
    let origin = RawOrigin::start(move |_, connection| {
        let _ = wait.lock().unwrap().recv();
        drop(connection);
    });
    run(async {
        let timeouts = Timeouts {
            write: SHORT,
            ..Timeouts::default()
        };
        let idle = Rc::new(IdleConnections::default());
        let body = Body::from(vec![0; 64 * 1024 * 1024]);
        let request = within(timeouts, post(body));
        let failure = idle.send(&origin.origin(), request).await.unwrap_err();
        assert_timed_out(&failure, RequestPhase::Send);
        assert!(matches!(failure.body, Some(Body::Bytes(_))));
    });
    drop(end);
}

#[test]
fn a_handshake_that_does_not_end_is_given_up() {
    let frozen = TcpListener::bind("127.0.0.1:0").unwrap();
    run(async {
        let settings = ClientTlsSettings {
            verify: false,
            ..ClientTlsSettings::new("origin.test")
        };
        let mut origin = origin(Address::Ip(frozen.local_addr().unwrap()));
        origin.tls = Some(Tls::new(&settings).unwrap());
        let timeouts = Timeouts {
            tls: SHORT,
            ..Timeouts::default()
        };
        let failure = connect(&origin, None, &timeouts).await.unwrap_err();
        assert_timed_out(&failure, RequestPhase::Tls);
        assert!(!failure.request_sent);
    });
}
