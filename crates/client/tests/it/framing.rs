//! Malformed responses, and valid ones that arrive in small pieces (RFC 9112).

use std::rc::Rc;

use apus_client::{FailureCause, RequestPhase};
use apus_codec::h1::Http1Error;
use apus_http::{Body, BodyError, Version};

use crate::harness::{IdleConnections, RawOrigin, collect, get, get_once, run};

#[test]
fn a_response_is_read_the_same_however_it_is_split() {
    let raw_response = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n\
        3;x=y\r\none\r\n5\r\nthree\r\n0\r\nSum: 1\r\n\r\n";
    let origin = RawOrigin::start(|number, mut connection| {
        connection.read_request().unwrap();
        if number == 0 {
            return connection.send_slowly(raw_response);
        }
        let (first, second) = raw_response.split_at(number);
        connection.send(first);
        std::thread::yield_now();
        connection.send(second);
        connection.is_closed();
    });
    run(async {
        for _ in 0..raw_response.len() {
            let response = get_once(&origin.origin()).await.unwrap();
            assert_eq!(response.headers.wire(), b"a: b\r\n");
            assert_eq!(response.version, Version::HTTP_11);
            let (body, trailers) = collect(response.body).await.unwrap();
            assert_eq!(body, b"onethree");
            assert_eq!(trailers.unwrap().get_str("sum"), Some("1"));
        }
    });
    origin.check();
}

#[test]
fn a_head_that_is_ambiguous_or_endless_is_refused() {
    let many = "A: b\r\n".repeat(300);
    let long = format!("A: {}\r\n", "b".repeat(70_000));
    for (head, error) in [
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            Http1Error::LengthWithTransferEncoding,
        ),
        (
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            Http1Error::ContentLength,
        ),
        ("Content-Length: +2\r\n", Http1Error::ContentLength),
        ("Content-Length: 2, 2\r\n", Http1Error::ContentLength),
        (
            "Transfer-Encoding: identity\r\n",
            Http1Error::TransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked, chunked\r\n",
            Http1Error::TransferEncoding,
        ),
        (
            "Transfer-Encoding: gzip, chunked\r\n",
            Http1Error::TransferCoding,
        ),
        ("A : b\r\n", Http1Error::SpaceBeforeColon),
        (" folded\r\n", Http1Error::LineFolding),
        ("A: b\n", Http1Error::BareLineFeed),
        ("A: b\0c\r\n", Http1Error::FieldValue),
        ("A: b\rC: d\r\n", Http1Error::FieldValue),
        (&many, Http1Error::TooManyFields),
        (&long, Http1Error::HeadTooLarge),
    ] {
        let raw_response = format!("HTTP/1.1 200 OK\r\n{head}\r\nokHTTP/1.1");
        let origin = RawOrigin::responding(&[raw_response.as_bytes()]);
        run(async {
            let failure = get_once(&origin.origin()).await.unwrap_err();
            let FailureCause::Protocol(found) = &failure.cause else {
                panic!("{failure:?}");
            };
            assert_eq!(found.downcast_ref(), Some(&error), "{head}");
            assert_eq!(failure.phase, RequestPhase::Head);
            assert!(failure.request_sent);
        });
    }
}

#[test]
fn a_malformed_response_is_refused_at_its_first_bytes() {
    for raw_response in [
        "SSH-2.0-x\r\n",
        "\r\n",
        "GET / HTTP/1.1\r\n",
        "HTTP/2.0 200\r\n\r\n",
        "\x15\x03",
    ] {
        let origin = RawOrigin::start(move |_, mut connection| {
            connection.read_request().unwrap();
            connection.send(raw_response);
            // The client does not wait for more.
            connection.is_closed();
        });
        run(async {
            let failure = get_once(&origin.origin()).await.unwrap_err();
            assert!(
                matches!(failure.cause, FailureCause::Protocol(_)),
                "{failure}"
            );
        });
    }
}

#[test]
fn malformed_chunks_break_the_body_off() {
    for chunks in [
        "2\r\nokX",
        "2\nok\r\n0\r\n\r\n",
        "-1\r\n",
        "fffffffffffffffff\r\n",
        "0\r\nHost: a\r\n\r\n",
    ] {
        let raw_response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let origin = RawOrigin::responding(&[raw_response.as_bytes()]);
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            let error = collect(response.body).await.unwrap_err();
            assert!(matches!(error, BodyError::Malformed), "{chunks:?}: {error}");
            assert_eq!(idle.len(), 0);
        });
    }
}

#[test]
fn fields_about_the_connection_are_not_passed_on() {
    let origin = RawOrigin::responding(&[b"HTTP/1.1 200 OK\r\n\
        Connection: keep-alive, X-Private, Cache-Control\r\nKeep-Alive: timeout=5\r\nX-Private: 1\r\n\
        Proxy-Connection: a\r\nTE: a\r\nUpgrade: h2c\r\nCache-Control: no-store\r\nB: 2\r\n\
        Content-Length: 0\r\n\r\n"]);
    run(async {
        let response = get_once(&origin.origin()).await.unwrap();
        assert_eq!(
            response.headers.wire(),
            b"cache-control: no-store\r\nb: 2\r\ncontent-length: 0\r\n"
        );
        assert!(matches!(response.body, Body::Empty));
    });
}
