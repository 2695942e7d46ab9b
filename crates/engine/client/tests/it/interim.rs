//! Interim responses, and bodies that are held back for one (RFC 9110 sections 10.1.1 and 15.2).

use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::{ClientRequest, ClientRequestHead, FailureCause};
use apus_codec::h1::Http1Error;
use apus_http::{Body, Frame, InterimQueue, Method, StatusCode};
use bytes::Bytes;

use crate::harness::{
    ChannelBody, IdleConnections, RawOrigin, collect, get, get_once, head, request, run,
};

fn expecting(body: Body) -> ClientRequest {
    let head = ClientRequestHead {
        expects_continue: true,
        ..head(Method::POST, "/")
    };
    request(head, body)
}

#[test]
fn interim_responses_are_passed_on_before_the_final_one() {
    let origin = RawOrigin::responding(&[
        b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nConnection: x\r\n\r\n\
        HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n",
    ]);
    run(async {
        let queue = InterimQueue::default();
        let mut request = get("/");
        request.template.interim = Some(queue.sender(7));
        let idle = Rc::new(IdleConnections::default());
        let response = idle.send(&origin.origin(), request).await.unwrap();
        assert_eq!(response.status, 204);
        let (number, status, headers) = queue.next().unwrap();
        assert_eq!((number, status), (7, StatusCode::EARLY_HINTS));
        assert_eq!(headers.wire(), b"link: </a>\r\n");
        assert_eq!(queue.next().unwrap().1, 102);
        assert!(queue.is_empty());
        assert_eq!(idle.len(), 1);
    });
}

#[test]
fn interim_responses_without_end_are_cut_off() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_request().unwrap();
        for _ in 0..10_000 {
            connection.send("HTTP/1.1 103 Early Hints\r\n\r\n");
        }
    });
    run(async {
        let failure = get_once(&origin.origin()).await.unwrap_err();
        let FailureCause::Protocol(error) = failure.cause else {
            panic!("{failure:?}");
        };
        assert_eq!(error.downcast_ref(), Some(&Http1Error::TooManyInterim));
    });
}

#[test]
fn a_body_is_held_back_until_the_origin_sends_100() {
    let origin = RawOrigin::start(|_, mut connection| {
        let head = connection.read_head().unwrap();
        assert!(head.contains("expect: 100-continue\r\n"), "{head}");
        connection.send("HTTP/1.1 100 Continue\r\n\r\n");
        assert_eq!(connection.read_exact(7), b"content");
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let request = expecting("content".into());
        idle.send(&origin.origin(), request).await.unwrap();
        assert_eq!(idle.len(), 1);
    });
    origin.check();
}

#[test]
fn a_body_is_sent_after_a_while_although_the_origin_sends_no_100() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_head().unwrap();
        let head_read_at = Instant::now();
        connection.read_exact(b"content".len());
        assert!(head_read_at.elapsed() > Duration::from_millis(500));
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let request = expecting("content".into());
        idle.send(&origin.origin(), request).await.unwrap();
        assert_eq!(idle.len(), 1);
    });
    origin.check();
}

#[test]
fn a_body_that_is_refused_unread_is_not_taken_from_its_source() {
    let origin = RawOrigin::start(|_, mut connection| {
        connection.read_head().unwrap();
        connection.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
        assert!(connection.is_closed());
    });
    run(async {
        let idle = Rc::new(IdleConnections::default());
        let (frames, body) = ChannelBody::pair();
        let frame = Frame::Data(Bytes::from_static(b"x"));
        frames.send(Ok(frame)).unwrap();
        let response = idle.send(&origin.origin(), expecting(body)).await.unwrap();
        assert_eq!(response.status, 401);
        assert!(frames.is_closed());
        assert_eq!(idle.len(), 0);
    });
    origin.check();
}

#[test]
fn a_body_that_was_held_back_is_sent_to_an_origin_that_sends_its_final_head_first() {
    for status in ["200 OK", "201 Created", "303 See Other", "399 Unknown"] {
        for connection_field in ["", "Connection: close\r\n"] {
            let start = format!("HTTP/1.1 {status}\r\n{connection_field}Content-Length: 7\r\n\r\n");
            let origin = RawOrigin::start(move |_, mut connection| {
                connection.read_head().unwrap();
                connection.send(&start);
                let body = connection.read_exact(7);
                connection.send(body);
            });
            run(async {
                let idle = Rc::new(IdleConnections::default());
                let request = expecting("content".into());
                let response = idle.send(&origin.origin(), request).await.unwrap();
                let (body, _) = collect(response.body).await.unwrap();
                assert_eq!(body, b"content", "{status} {connection_field}");
                assert_eq!(idle.len(), usize::from(connection_field.is_empty()));
            });
            origin.check();
        }
    }
}

#[test]
fn a_body_that_was_held_back_is_not_sent_after_a_status_that_refuses_it() {
    for status in ["400 Bad Request", "417 Expectation Failed", "500 Error"] {
        for connection_field in ["", "Connection: close\r\n"] {
            let start = format!("HTTP/1.1 {status}\r\n{connection_field}Content-Length: 2\r\n\r\n");
            let origin = RawOrigin::start(move |_, mut connection| {
                connection.read_head().unwrap();
                connection.send(&start);
                connection.send("no");
                assert!(connection.is_closed());
            });
            run(async {
                let idle = Rc::new(IdleConnections::default());
                let request = expecting("content".into());
                let response = idle.send(&origin.origin(), request).await.unwrap();
                let (body, _) = collect(response.body).await.unwrap();
                assert_eq!(body, b"no", "{status} {connection_field}");
                assert_eq!(idle.len(), 0);
            });
            origin.check();
        }
    }
}
