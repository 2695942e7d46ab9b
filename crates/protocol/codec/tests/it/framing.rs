//! Tests that ambiguous framing is rejected, with one test for each known class of attack.

use apus_codec::h1::{HeadLimits, Http1Error, RequestFraming};
use apus_http::StatusCode;

use crate::transcript::{LIMITS, Transcript};

/// Checks that a connection with these bytes ends with the error, whatever the split of the input, and that
/// only the requests before the error were parsed.
#[track_caller]
fn refuses(input: impl AsRef<[u8]>, error: Http1Error) {
    let input = input.as_ref();
    let at_once = Transcript::of([input]);
    assert_eq!(at_once.error, Some(error), "{}", input.escape_ascii());
    assert!(
        at_once.requests.iter().all(|request| !request.complete),
        "{}",
        input.escape_ascii()
    );
    assert_eq!(at_once, Transcript::of(input.chunks(1)));
}

#[track_caller]
fn refuses_fields(fields: &str, error: Http1Error) {
    refuses(
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n"),
        error,
    );
}

#[track_caller]
fn refuses_chunked(body: impl AsRef<[u8]>, error: Http1Error) {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    refuses([head, body.as_ref()].concat(), error);
}

#[test]
fn rejects_content_length_with_transfer_encoding() {
    let error = Http1Error::LengthWithTransferEncoding;
    refuses_fields("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", error);
    refuses_fields("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", error);
    refuses_fields("transfer-encoding: chunked\r\ncontent-length: 0\r\n", error);
}

#[test]
fn rejects_several_content_lengths() {
    for fields in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 0\r\nX: y\r\ncontent-length: 0\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 5,\r\n",
    ] {
        refuses_fields(fields, Http1Error::ContentLength);
    }
}

#[test]
fn rejects_content_length_that_is_not_a_plain_number() {
    for value in [
        "", " ", "+5", "-5", "0x5", "5 5", "5\t", "\t5", "0b1", "5e0", "five", "5;q=1", "\"5\"",
        "5_0",
    ] {
        refuses_fields(
            &format!("Content-Length:{value}\r\n"),
            Http1Error::ContentLength,
        );
    }
}

#[test]
fn rejects_content_length_overflow() {
    for value in [
        "18446744073709551616",
        "18446744073709551621",
        "99999999999999999999999999999999999999",
    ] {
        refuses_fields(
            &format!("Content-Length: {value}\r\n"),
            Http1Error::ContentLength,
        );
    }
}

#[test]
fn rejects_transfer_encoding_misspelt() {
    for value in [
        "xchunked",
        "chunkedx",
        "chunke",
        "chun ked",
        "identity",
        "gzip",
        "chunked;",
        "chunked;a=b",
        "'chunked'",
        "\"chunked\"",
        "",
        "x",
    ] {
        refuses_fields(
            &format!("Transfer-Encoding: {value}\r\n"),
            Http1Error::TransferEncoding,
        );
    }
    refuses_fields("Transfer-Encoding: \x0bchunked\r\n", Http1Error::FieldValue);
    refuses_fields("Transfer-Encoding: chunked\0\r\n", Http1Error::FieldValue);
    refuses_fields(
        "Transfer-Encoding : chunked\r\n",
        Http1Error::SpaceBeforeColon,
    );
    refuses_fields(
        "Transfer-Encoding\t: chunked\r\n",
        Http1Error::SpaceBeforeColon,
    );
    refuses_fields("Transfer-Encoding\0: chunked\r\n", Http1Error::FieldName);
}

#[test]
fn rejects_transfer_encoding_repeated() {
    let error = Http1Error::TransferEncoding;
    refuses_fields(
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        error,
    );
    refuses_fields(
        "Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n",
        error,
    );
    refuses_fields(
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n",
        error,
    );
    refuses_fields("Transfer-Encoding: chunked, chunked\r\n", error);
}

#[test]
fn rejects_transfer_encoding_listed() {
    for value in [
        "chunked, identity",
        "chunked, gzip",
        ", chunked",
        "chunked,",
    ] {
        refuses_fields(
            &format!("Transfer-Encoding: {value}\r\n"),
            Http1Error::TransferEncoding,
        );
    }
    refuses_fields(
        "Transfer-Encoding: gzip, chunked\r\n",
        Http1Error::TransferCoding,
    );
    assert_eq!(
        Http1Error::TransferCoding.status(),
        StatusCode::NOT_IMPLEMENTED
    );
}

#[test]
fn rejects_transfer_encoding_tabbed() {
    for value in ["\tchunked", "chunked\t", " \t chunked", "\tchunked\t"] {
        refuses_fields(
            &format!("Transfer-Encoding:{value}\r\n"),
            Http1Error::TransferEncoding,
        );
    }
}

#[test]
fn rejects_transfer_encoding_in_http_1_0() {
    refuses(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        Http1Error::TransferEncoding,
    );
    refuses(
        "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        Http1Error::LengthWithTransferEncoding,
    );
}

#[test]
fn rejects_line_folding() {
    let error = Http1Error::LineFolding;
    refuses_fields("X: a\r\n b\r\n", error);
    refuses_fields("X: a\r\n\tTransfer-Encoding: chunked\r\n", error);
    refuses_fields("Transfer-Encoding:\r\n", Http1Error::TransferEncoding);
    refuses("GET / HTTP/1.1\r\n Host: a\r\n\r\n", error);
}

#[test]
fn rejects_bare_line_feed() {
    let error = Http1Error::BareLineFeed;
    refuses("\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", error);
    refuses("GET / HTTP/1.1\nHost: a\r\n\r\n", error);
    refuses_fields("X: y\nContent-Length: 5\r\n", error);
    refuses("GET / HTTP/1.1\r\nHost: a\r\n\n", error);
    refuses("GET / HTTP/1.1\r\nHost: a\n\n", error);
    refuses_chunked("5\nhello\r\n0\r\n\r\n", error);
    refuses_chunked("5\r\nhello\n0\r\n\r\n", error);
    refuses_chunked("5\r\nhello\r\n0\n\r\n", error);
    refuses_chunked("0\r\n\n", error);
    refuses_chunked("0\r\nX: y\n\r\n", error);
}

/// CVE-2025-55315: a line end in a chunk extension, which only one of two parsers accepts.
#[test]
fn rejects_line_ends_within_chunk_extensions() {
    refuses_chunked("2;\nxx\r\n4c\r\n0\r\n\r\n", Http1Error::BareLineFeed);
    refuses_chunked("2;\rxx\r\n4c\r\n0\r\n\r\n", Http1Error::ChunkSize);
    refuses_chunked("2;a=\"\r\n\"\r\nxx\r\n0\r\n\r\n", Http1Error::BareLineFeed);
}

#[test]
fn rejects_bare_carriage_return() {
    refuses_fields("X: a\rb\r\n", Http1Error::FieldValue);
    refuses_fields("X: a\r\r\n", Http1Error::FieldValue);
    refuses_fields("X\r: a\r\n", Http1Error::FieldName);
    refuses("GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", Http1Error::Target);
    refuses(
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        Http1Error::RequestLine,
    );
    refuses(
        "\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        Http1Error::RequestLine,
    );
    refuses_chunked("5\rhello\r\n0\r\n\r\n", Http1Error::ChunkSize);
    refuses_chunked("5\r\nhello\r0\r\n\r\n", Http1Error::ChunkEnd);
}

#[test]
fn rejects_nul() {
    refuses_fields("X: a\0b\r\n", Http1Error::FieldValue);
    refuses_fields("X\0: a\r\n", Http1Error::FieldName);
    refuses("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", Http1Error::Target);
    refuses(
        "\0GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        Http1Error::RequestLine,
    );
}

#[test]
fn rejects_space_before_colon() {
    refuses_fields("Content-Length : 5\r\n", Http1Error::SpaceBeforeColon);
    refuses_fields("X\t: 5\r\n", Http1Error::SpaceBeforeColon);
}

#[test]
fn rejects_field_names_that_are_no_tokens() {
    for line in [
        ": a",
        "X Y: a",
        "X",
        "X;: a",
        "X(: a",
        "\u{fc}: a",
        "X\u{a0}: a",
        "{}: a",
    ] {
        let error = if line.starts_with("X Y") {
            Http1Error::SpaceBeforeColon
        } else {
            Http1Error::FieldName
        };
        refuses_fields(&format!("{line}\r\n"), error);
    }
}

#[test]
fn rejects_missing_host_in_http_1_1() {
    refuses("GET / HTTP/1.1\r\n\r\n", Http1Error::HostMissing);
    refuses("GET http://a/ HTTP/1.1\r\n\r\n", Http1Error::HostMissing);
}

#[test]
fn rejects_several_hosts() {
    let error = Http1Error::HostRepeated;
    refuses("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", error);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", error);
    refuses("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", error);
    refuses(
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        error,
    );
}

#[test]
fn rejects_several_authorization_fields() {
    let error = Http1Error::AuthorizationRepeated;
    for (one, other) in [("Basic a", "Basic a"), ("Basic a", "Bearer b"), ("", "")] {
        refuses_fields(
            &format!("Authorization: {one}\r\nX: y\r\nauthorization: {other}\r\n"),
            error,
        );
    }
    assert_eq!(error.status(), 400);
}

#[test]
fn rejects_invalid_hosts() {
    for host in [
        "a b", "a/b", "a@b", "a:b", "a:1:2", ":80", "[::1", "::1", "a:65536", "a#", "a?", "\u{fc}",
        "http://a", "a\\b", "<a>", "[::1]x",
    ] {
        refuses(
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            Http1Error::HostInvalid,
        );
    }
}

#[test]
fn rejects_chunk_sizes_that_are_not_hexadecimal() {
    for size in [
        "", " 5", "5 ", "+5", "-5", "0x5", "5h", "g", "\t5", "5 ;a", "5,", ";a=b", "\"5\"",
    ] {
        refuses_chunked(
            format!("{size}\r\nhello\r\n0\r\n\r\n"),
            Http1Error::ChunkSize,
        );
    }
}

#[test]
fn rejects_chunk_size_overflow_and_many_leading_zeros() {
    for size in [
        "10000000000000005",
        "00000000000000005",
        "ffffffffffffffff5",
    ] {
        refuses_chunked(
            format!("{size}\r\nhello\r\n0\r\n\r\n"),
            Http1Error::ChunkSize,
        );
    }
}

#[test]
fn limits_chunk_extensions() {
    let error = Http1Error::ChunkExtension;
    refuses_chunked(format!("5;{}", "a".repeat(1000)), error);
    refuses_chunked(format!("1;{}\r\na\r\n", "a".repeat(200)).repeat(100), error);
    refuses_chunked("5;a=\0\r\n", error);
}

#[test]
fn rejects_data_longer_than_its_chunk() {
    refuses_chunked("4\r\nhello\r\n0\r\n\r\n", Http1Error::ChunkEnd);
    refuses_chunked("6\r\nhello\r\n0\r\n\r\n", Http1Error::BareLineFeed);
}

#[test]
fn rejects_trailers_that_change_framing_or_routing() {
    for name in ["Content-Length: 5", "transfer-encoding: chunked", "HOST: b"] {
        refuses_chunked(format!("0\r\n{name}\r\n\r\n"), Http1Error::TrailerField);
    }
    refuses_chunked("0\r\nX : y\r\n\r\n", Http1Error::SpaceBeforeColon);
    refuses_chunked("0\r\n x: y\r\n\r\n", Http1Error::LineFolding);
}

/// RFC 9110 section 7.6.1: the fields that `Connection` names are for the next recipient only.
#[test]
fn drops_trailers_that_connection_names() {
    let transcript = Transcript::of([
        &b"POST / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Hop\r\n\
        Connection: x-other\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\
        x-hop: 1\r\nX-Other: 2\r\nX-Sum: 3\r\n\r\n"[..],
    ]);
    let [request] = &transcript.requests[..] else {
        panic!("{transcript:?}");
    };
    let trailers = request.trailers.as_ref().unwrap();
    assert_eq!(trailers.wire(), b"x-sum: 3\r\n");
}

#[test]
fn limits_trailers() {
    refuses_chunked(
        format!("0\r\n{}", "x: y\r\n".repeat(LIMITS.fields + 1)),
        Http1Error::TooManyFields,
    );
    // Dropped fields count as well.
    refuses_chunked(
        format!("0\r\n{}", "cookie: y\r\n".repeat(LIMITS.fields + 1)),
        Http1Error::TooManyFields,
    );
    refuses_chunked(
        format!("0\r\nx: {}", "y".repeat(LIMITS.head_bytes)),
        Http1Error::HeadTooLarge,
    );
}

#[test]
fn rejects_other_versions() {
    for version in ["HTTP/2.0", "HTTP/0.9", "HTTP/0.1", "HTTP/3.0", "HTTP/9.1"] {
        refuses(format!("GET / {version}\r\n"), Http1Error::Version);
    }
    assert_eq!(
        Http1Error::Version.status(),
        StatusCode::HTTP_VERSION_NOT_SUPPORTED
    );
    for version in [
        "HTTP/1",
        "HTTP/1.10",
        "http/1.1",
        "HTTP/01.1",
        "HTTP/1.1 ",
        "",
    ] {
        refuses(format!("GET / {version}\r\n"), Http1Error::RequestLine);
    }
    refuses("GET /\r\n", Http1Error::RequestLine);
}

#[test]
fn detects_other_protocols() {
    for line in ["INVALID CONNECTION PREFACE", "EHLO mail example"] {
        refuses(format!("{line}\r\n"), Http1Error::OtherProtocol);
    }
    for line in [
        "DESCRIBE rtsp://a/b RTSP/1.0",
        "OPTIONS sip:a@b SIP/2.0",
        "GET / XTTP/1.1",
    ] {
        refuses(format!("{line}\r\n"), Http1Error::RequestLine);
    }
}

#[test]
fn detects_the_http_2_preface() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    refuses(preface, Http1Error::Http2Preface);
    refuses(format!("\r\n{preface}"), Http1Error::Version);
    let after = Transcript::of([format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{preface}").as_bytes()]);
    assert_eq!(after.error, Some(Http1Error::Version));
}

#[test]
fn rejects_inexact_request_lines() {
    for line in [
        "GET  / HTTP/1.1",
        "GET /  HTTP/1.1",
        "GET / x HTTP/1.1",
        "GET\t/ HTTP/1.1",
        "GET /\tHTTP/1.1",
        " GET / HTTP/1.1",
        "G(T / HTTP/1.1",
        "GET HTTP/1.1",
        "GET http://a@b/ HTTP/1.1",
        "GET * HTTP/1.1",
        "GET a HTTP/1.1",
        "GET /\u{fc} HTTP/1.1",
        "CONNECT / HTTP/1.1",
        "CONNECT a HTTP/1.1",
    ] {
        let transcript = Transcript::of([format!("{line}\r\nHost: a\r\n\r\n").as_bytes()]);
        assert!(
            matches!(
                transcript.error,
                Some(Http1Error::RequestLine | Http1Error::Target)
            ),
            "{line:?}: {transcript:?}"
        );
        assert!(transcript.requests.is_empty());
    }
}

#[test]
fn rejects_tls_on_a_cleartext_port_at_its_first_byte() {
    assert_eq!(
        Transcript::of([&b"\x16"[..]]).error,
        Some(Http1Error::RequestLine)
    );
}

#[test]
fn rejects_a_body_of_connect() {
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        refuses(
            format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{field}\r\n\r\n"),
            Http1Error::ConnectBody,
        );
    }
}

#[test]
fn rejects_unknown_expectations() {
    for value in ["200-ok", "100-continue, x", "", "100"] {
        refuses_fields(
            &format!("Content-Length: 5\r\nExpect: {value}\r\n"),
            Http1Error::Expectation,
        );
    }
    assert_eq!(
        Http1Error::Expectation.status(),
        StatusCode::EXPECTATION_FAILED
    );
}

#[test]
fn limits_empty_lines_before_a_request() {
    refuses("\r\n\r\n\r\n", Http1Error::RequestLine);
}

#[test]
fn rejects_heads_above_each_limit_and_accepts_those_at_it() {
    let limits = HeadLimits {
        target_bytes: 100,
        head_bytes: 300,
        fields: 3,
    };
    let read = |request: String| {
        let at_once = Transcript::within(limits, [request.as_bytes()]);
        assert_eq!(
            at_once,
            Transcript::within(limits, request.as_bytes().chunks(1))
        );
        at_once.error
    };
    let target =
        |bytes: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "x".repeat(bytes - 1));
    assert_eq!(read(target(100)), None);
    assert_eq!(read(target(101)), Some(Http1Error::TargetTooLong));
    assert_eq!(read(target(5000)), Some(Http1Error::TargetTooLong));
    assert_eq!(Http1Error::TargetTooLong.status(), StatusCode::URI_TOO_LONG);

    let head = |bytes: usize| {
        let around = "GET / HTTP/1.1\r\nHost: a\r\nx: \r\n\r\n".len();
        let value = "y".repeat(bytes - around);
        format!("GET / HTTP/1.1\r\nHost: a\r\nx: {value}\r\n\r\n")
    };
    assert_eq!(read(head(300)), None);
    assert_eq!(read(head(301)), Some(Http1Error::HeadTooLarge));
    assert_eq!(read(head(5000)), Some(Http1Error::HeadTooLarge));

    let fields = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "x: y\r\n".repeat(count - 1)
        )
    };
    assert_eq!(read(fields(3)), None);
    assert_eq!(read(fields(4)), Some(Http1Error::TooManyFields));
    assert_eq!(
        Http1Error::TooManyFields.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
}

#[test]
fn parses_input_after_the_last_chunk_as_the_next_request() {
    let transcript = Transcript::of([&b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\nCookie: c\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\nrubbish here\r\n"[..]]);
    let [first, second] = &transcript.requests[..] else {
        panic!("{transcript:?}");
    };
    assert_eq!(first.head.body, RequestFraming::Chunked);
    assert_eq!(first.body, b"hello");
    let trailers = first.trailers.as_ref().unwrap();
    assert_eq!(trailers.wire(), b"x-sum: 1\r\n");
    assert_eq!(second.head.head.target.as_str(), "/next");
    assert_eq!(transcript.error, Some(Http1Error::RequestLine));
}
