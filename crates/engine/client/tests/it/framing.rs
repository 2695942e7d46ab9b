//! Malformed responses, and valid ones that arrive in small pieces (RFC 9112).

use std::rc::Rc;

use apus_client::{
    ClientResponse, FailureCause, Origin, RequestFailure, RequestPhase, ResponseRules,
};
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
        "2 2\r\nok\r\n0\r\n\r\n",
        " 2\r\nok\r\n0\r\n\r\n",
        "2\r\nok\r\n0\r\nno field\r\n\r\n",
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

/// The response of an origin that sends these bytes, read by these rules.
fn responding(
    raw_response: &[u8],
    responses: ResponseRules,
) -> Result<ClientResponse, RequestFailure> {
    let origin = RawOrigin::responding(&[raw_response]);
    let to = Origin {
        responses,
        ..origin.origin()
    };
    run(async { get_once(&to).await })
}

const LENIENT: ResponseRules = ResponseRules {
    head_bytes: 64 * 1024,
    fields: 256,
    is_lenient: true,
};

#[test]
fn trailers_that_are_not_allowed_and_whitespace_after_a_chunk_size_cut_no_response() {
    for chunks in [
        "2\r\nok\r\n0\r\nHost: a\r\nContent-Length: 9\r\nTransfer-Encoding: gzip\r\nSum: 1\r\n\r\n",
        "2\r\nok\r\n0\r\nSet-Cookie: a\r\nSum: 1\r\nConnection: close\r\n\r\n",
        "2 \r\nok\r\n0\t\r\nSum: 1\r\n\r\n",
        "2 ;a=b\r\nok\r\n000 \t ;c\r\nSum: 1\r\n\r\n",
    ] {
        let raw_response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let origin = RawOrigin::responding(&[raw_response.as_bytes()]);
        run(async {
            let idle = Rc::new(IdleConnections::default());
            let response = idle.send(&origin.origin(), get("/")).await.unwrap();
            let (body, trailers) = collect(response.body).await.unwrap();
            assert_eq!(body, b"ok", "{chunks:?}");
            assert_eq!(trailers.unwrap().wire(), b"sum: 1\r\n", "{chunks:?}");
            // The next response begins where this one ends.
            assert_eq!(idle.len(), 1, "{chunks:?}");
        });
    }
    // As much whitespace as an extension may have, and more.
    for (spaces, is_whole) in [(255, true), (256, true), (257, false)] {
        let chunks = format!("2{}\r\nok\r\n0\r\n\r\n", " ".repeat(spaces));
        let raw_response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}");
        let origin = RawOrigin::responding(&[raw_response.as_bytes()]);
        run(async {
            let response = get_once(&origin.origin()).await.unwrap();
            assert_eq!(collect(response.body).await.is_ok(), is_whole, "{spaces}");
        });
    }
}

#[test]
fn an_old_origin_is_read_leniently_where_no_recipient_reads_it_in_another_way() {
    for raw_response in [
        "HTTP/1.0 200 OK\nA: b\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nA: b\nContent-Length: 2\r\n\nok",
        "HTTP/1.1 200 OK\r\nno field\r\nA: b\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 2,2\r\n\r\nok",
    ] {
        let response = responding(raw_response.as_bytes(), LENIENT).unwrap();
        assert_eq!(
            crate::harness::text(response.headers.wire()),
            "a: b\r\ncontent-length: 2\r\n",
            "{raw_response:?}"
        );
        let (body, _) = run(collect(response.body)).unwrap();
        assert_eq!(body, b"ok", "{raw_response:?}");
        let strict = responding(raw_response.as_bytes(), ResponseRules::default());
        assert!(strict.is_err(), "{raw_response:?}");
    }
    let chunks = "2\nok\n3;x\r\nand\n0\nnothing\nSum: 1\n\n";
    for head in ["HTTP/1.1 200 OK\n", "HTTP/1.1 200 OK\r\n"] {
        let raw_response = format!("{head}Transfer-Encoding: chunked\n\n{chunks}");
        let origin = RawOrigin::responding(&[raw_response.as_bytes()]);
        let to = Origin {
            responses: LENIENT,
            ..origin.origin()
        };
        run(async {
            let response = get_once(&to).await.unwrap();
            let (body, trailers) = collect(response.body).await.unwrap();
            assert_eq!(body, b"okand");
            assert_eq!(trailers.unwrap().wire(), b"sum: 1\r\n");
        });
    }
}

#[test]
fn what_can_be_read_in_two_ways_is_refused_although_the_group_is_lenient() {
    for (head, error) in [
        (
            "Content-Length: 2\r\nContent-Length: 3\r\n",
            Http1Error::ContentLength,
        ),
        ("Content-Length: 2, 3\r\n", Http1Error::ContentLength),
        ("Content-Length: 2,\r\n", Http1Error::ContentLength),
        (
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            Http1Error::LengthWithTransferEncoding,
        ),
        (
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            Http1Error::TransferEncoding,
        ),
        ("A : b\r\n", Http1Error::SpaceBeforeColon),
        ("A: b\r\n folded\r\n", Http1Error::LineFolding),
        ("A: b\rContent-Length: 3\r\n", Http1Error::FieldValue),
        ("no\rfield\r\n", Http1Error::FieldName),
        ("no\0field\r\n", Http1Error::FieldName),
        (": b\r\n", Http1Error::FieldName),
        ("A B: c\r\n", Http1Error::SpaceBeforeColon),
    ] {
        let raw_response = format!("HTTP/1.1 200 OK\r\n{head}\r\nok");
        let failure = responding(raw_response.as_bytes(), LENIENT).unwrap_err();
        let FailureCause::Protocol(found) = &failure.cause else {
            panic!("{failure:?}");
        };
        assert_eq!(found.downcast_ref(), Some(&error), "{head:?}");
    }
}

#[test]
fn the_limits_of_a_head_are_those_of_the_group() {
    let limits = |head_bytes, fields| ResponseRules {
        head_bytes,
        fields,
        is_lenient: false,
    };
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nA: b\r\n\r\n";
    let bytes = u32::try_from(head.len()).unwrap();
    for (rules, is_accepted) in [
        (limits(bytes + 1, 256), true),
        (limits(bytes, 256), true),
        (limits(bytes - 1, 256), false),
        (limits(1024, 3), true),
        (limits(1024, 2), true),
        (limits(1024, 1), false),
    ] {
        let response = responding(head.as_bytes(), rules);
        assert_eq!(response.is_ok(), is_accepted, "{rules:?}");
    }
}
