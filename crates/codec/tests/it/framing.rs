//! Ambiguous framing is refused: one test for each class of attack known in the field.

use apus_codec::h1::{ContentFraming, HeadLimits, ProtocolError};
use apus_http::StatusCode;

use crate::transcript::{LIMITS, Transcript};

/// Checks that a whole connection of these bytes ends with the error, however they arrive, and that
/// no request came of it but those before.
#[track_caller]
fn refuses(input: impl AsRef<[u8]>, error: ProtocolError) {
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
fn refuses_fields(fields: &str, error: ProtocolError) {
    refuses(
        format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n5\r\nhello\r\n0\r\n\r\n"),
        error,
    );
}

#[track_caller]
fn refuses_chunked(content: impl AsRef<[u8]>, error: ProtocolError) {
    let head = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    refuses([head, content.as_ref()].concat(), error);
}

#[test]
fn rejects_content_length_with_transfer_encoding() {
    let error = ProtocolError::LengthWithTransferEncoding;
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
        refuses_fields(fields, ProtocolError::ContentLength);
    }
}

#[test]
fn rejects_content_length_that_is_no_plain_number() {
    for value in [
        "", " ", "+5", "-5", "0x5", "5 5", "5\t", "\t5", "0b1", "5e0", "five", "5;q=1", "\"5\"",
        "5_0",
    ] {
        refuses_fields(
            &format!("Content-Length:{value}\r\n"),
            ProtocolError::ContentLength,
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
            ProtocolError::ContentLength,
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
            ProtocolError::TransferEncoding,
        );
    }
    refuses_fields(
        "Transfer-Encoding: \x0bchunked\r\n",
        ProtocolError::FieldValue,
    );
    refuses_fields(
        "Transfer-Encoding: chunked\0\r\n",
        ProtocolError::FieldValue,
    );
    refuses_fields(
        "Transfer-Encoding : chunked\r\n",
        ProtocolError::SpaceBeforeColon,
    );
    refuses_fields(
        "Transfer-Encoding\t: chunked\r\n",
        ProtocolError::SpaceBeforeColon,
    );
    refuses_fields("Transfer-Encoding\0: chunked\r\n", ProtocolError::FieldName);
}

#[test]
fn rejects_transfer_encoding_repeated() {
    let error = ProtocolError::TransferEncoding;
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
            ProtocolError::TransferEncoding,
        );
    }
    refuses_fields(
        "Transfer-Encoding: gzip, chunked\r\n",
        ProtocolError::TransferCoding,
    );
    assert_eq!(
        ProtocolError::TransferCoding.status(),
        StatusCode::NOT_IMPLEMENTED
    );
}

#[test]
fn rejects_transfer_encoding_tabbed() {
    for value in ["\tchunked", "chunked\t", " \t chunked", "\tchunked\t"] {
        refuses_fields(
            &format!("Transfer-Encoding:{value}\r\n"),
            ProtocolError::TransferEncoding,
        );
    }
}

#[test]
fn rejects_transfer_encoding_in_http_1_0() {
    refuses(
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ProtocolError::TransferEncoding,
    );
    refuses(
        "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n",
        ProtocolError::LengthWithTransferEncoding,
    );
}

#[test]
fn rejects_line_folding() {
    let error = ProtocolError::LineFolding;
    refuses_fields("X: a\r\n b\r\n", error);
    refuses_fields("X: a\r\n\tTransfer-Encoding: chunked\r\n", error);
    refuses_fields("Transfer-Encoding:\r\n", ProtocolError::TransferEncoding);
    refuses("GET / HTTP/1.1\r\n Host: a\r\n\r\n", error);
}

#[test]
fn rejects_bare_line_feed() {
    let error = ProtocolError::BareLineFeed;
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

/// CVE-2025-55315: a line end within a chunk extension that only one side takes for one.
#[test]
fn rejects_line_ends_within_chunk_extensions() {
    refuses_chunked("2;\nxx\r\n4c\r\n0\r\n\r\n", ProtocolError::BareLineFeed);
    refuses_chunked("2;\rxx\r\n4c\r\n0\r\n\r\n", ProtocolError::ChunkSize);
    refuses_chunked(
        "2;a=\"\r\n\"\r\nxx\r\n0\r\n\r\n",
        ProtocolError::BareLineFeed,
    );
}

#[test]
fn rejects_bare_carriage_return() {
    refuses_fields("X: a\rb\r\n", ProtocolError::FieldValue);
    refuses_fields("X: a\r\r\n", ProtocolError::FieldValue);
    refuses_fields("X\r: a\r\n", ProtocolError::FieldName);
    refuses("GET /\r HTTP/1.1\r\nHost: a\r\n\r\n", ProtocolError::Target);
    refuses(
        "GET / HTTP/1.1\r\r\nHost: a\r\n\r\n",
        ProtocolError::RequestLine,
    );
    refuses(
        "\r\rGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ProtocolError::RequestLine,
    );
    refuses_chunked("5\rhello\r\n0\r\n\r\n", ProtocolError::ChunkSize);
    refuses_chunked("5\r\nhello\r0\r\n\r\n", ProtocolError::ChunkEnd);
}

#[test]
fn rejects_nul() {
    refuses_fields("X: a\0b\r\n", ProtocolError::FieldValue);
    refuses_fields("X\0: a\r\n", ProtocolError::FieldName);
    refuses("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", ProtocolError::Target);
    refuses(
        "\0GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        ProtocolError::RequestLine,
    );
}

#[test]
fn rejects_space_before_colon() {
    refuses_fields("Content-Length : 5\r\n", ProtocolError::SpaceBeforeColon);
    refuses_fields("X\t: 5\r\n", ProtocolError::SpaceBeforeColon);
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
            ProtocolError::SpaceBeforeColon
        } else {
            ProtocolError::FieldName
        };
        refuses_fields(&format!("{line}\r\n"), error);
    }
}

#[test]
fn rejects_missing_host_in_http_1_1() {
    refuses("GET / HTTP/1.1\r\n\r\n", ProtocolError::HostMissing);
    refuses("GET http://a/ HTTP/1.1\r\n\r\n", ProtocolError::HostMissing);
}

#[test]
fn rejects_several_hosts() {
    let error = ProtocolError::HostRepeated;
    refuses("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", error);
    refuses("GET / HTTP/1.1\r\nHost: a\r\nhost: a\r\n\r\n", error);
    refuses("GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n", error);
    refuses(
        "GET http://a/ HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        error,
    );
}

#[test]
fn rejects_invalid_hosts() {
    for host in [
        "a b", "a/b", "a@b", "a:b", "a:1:2", ":80", "[::1", "::1", "a:65536", "a#", "a?", "\u{fc}",
        "http://a", "a\\b", "<a>", "[::1]x",
    ] {
        refuses(
            format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"),
            ProtocolError::HostInvalid,
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
            ProtocolError::ChunkSize,
        );
    }
}

#[test]
fn rejects_chunk_size_overflow_and_leading_zeros_without_end() {
    for size in [
        "10000000000000005",
        "00000000000000005",
        "ffffffffffffffff5",
    ] {
        refuses_chunked(
            format!("{size}\r\nhello\r\n0\r\n\r\n"),
            ProtocolError::ChunkSize,
        );
    }
}

#[test]
fn rejects_chunk_extensions_without_end() {
    let error = ProtocolError::ChunkExtension;
    refuses_chunked(format!("5;{}", "a".repeat(1000)), error);
    refuses_chunked(format!("1;{}\r\na\r\n", "a".repeat(200)).repeat(100), error);
    refuses_chunked("5;a=\0\r\n", error);
}

#[test]
fn rejects_data_longer_than_its_chunk() {
    refuses_chunked("4\r\nhello\r\n0\r\n\r\n", ProtocolError::ChunkEnd);
    refuses_chunked("6\r\nhello\r\n0\r\n\r\n", ProtocolError::BareLineFeed);
}

#[test]
fn rejects_trailers_that_change_framing_or_routing() {
    for name in ["Content-Length: 5", "transfer-encoding: chunked", "HOST: b"] {
        refuses_chunked(format!("0\r\n{name}\r\n\r\n"), ProtocolError::TrailerField);
    }
    refuses_chunked("0\r\nX : y\r\n\r\n", ProtocolError::SpaceBeforeColon);
    refuses_chunked("0\r\n x: y\r\n\r\n", ProtocolError::LineFolding);
}

/// RFC 9110 section 7.6.1: what `Connection` names is for the next recipient only.
#[test]
fn trailers_that_connection_names_are_left_out() {
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
fn rejects_trailers_without_end() {
    refuses_chunked(
        format!("0\r\n{}", "x: y\r\n".repeat(LIMITS.fields + 1)),
        ProtocolError::TooManyFields,
    );
    // Those that are left out count as well.
    refuses_chunked(
        format!("0\r\n{}", "cookie: y\r\n".repeat(LIMITS.fields + 1)),
        ProtocolError::TooManyFields,
    );
    refuses_chunked(
        format!("0\r\nx: {}", "y".repeat(LIMITS.head_bytes)),
        ProtocolError::HeadTooLarge,
    );
}

#[test]
fn rejects_other_versions() {
    for version in ["HTTP/2.0", "HTTP/1.2", "HTTP/0.9", "HTTP/3.0"] {
        refuses(format!("GET / {version}\r\n"), ProtocolError::Version);
    }
    assert_eq!(
        ProtocolError::Version.status(),
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
        refuses(format!("GET / {version}\r\n"), ProtocolError::RequestLine);
    }
    refuses("GET /\r\n", ProtocolError::RequestLine);
}

#[test]
fn tells_other_protocols_apart() {
    for line in [
        "DESCRIBE rtsp://a/b RTSP/1.0",
        "OPTIONS sip:a@b SIP/2.0",
        "GET / XTTP/1.1",
        "INVALID CONNECTION PREFACE",
    ] {
        refuses(format!("{line}\r\n"), ProtocolError::OtherProtocol);
    }
}

#[test]
fn tells_the_http_2_preface_apart() {
    let preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    refuses(preface, ProtocolError::Http2Preface);
    refuses(format!("\r\n{preface}"), ProtocolError::Version);
    let after = Transcript::of([format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{preface}").as_bytes()]);
    assert_eq!(after.error, Some(ProtocolError::Version));
}

#[test]
fn rejects_request_lines_that_are_not_exact() {
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
                Some(ProtocolError::RequestLine | ProtocolError::Target)
            ),
            "{line:?}: {transcript:?}"
        );
        assert!(transcript.requests.is_empty());
    }
}

#[test]
fn rejects_tls_on_a_clear_port_at_its_first_byte() {
    assert_eq!(
        Transcript::of([&b"\x16"[..]]).error,
        Some(ProtocolError::RequestLine)
    );
}

#[test]
fn rejects_content_of_connect() {
    for field in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        refuses(
            format!("CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n{field}\r\n\r\n"),
            ProtocolError::ConnectContent,
        );
    }
}

#[test]
fn rejects_unknown_expectations() {
    for value in ["200-ok", "100-continue, x", "", "100"] {
        refuses_fields(
            &format!("Content-Length: 5\r\nExpect: {value}\r\n"),
            ProtocolError::Expectation,
        );
    }
    assert_eq!(
        ProtocolError::Expectation.status(),
        StatusCode::EXPECTATION_FAILED
    );
}

#[test]
fn rejects_empty_lines_without_end() {
    refuses("\r\n\r\n\r\n", ProtocolError::RequestLine);
}

#[test]
fn rejects_heads_past_each_limit_and_takes_those_at_it() {
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
    assert_eq!(read(target(101)), Some(ProtocolError::TargetTooLong));
    assert_eq!(read(target(5000)), Some(ProtocolError::TargetTooLong));
    assert_eq!(
        ProtocolError::TargetTooLong.status(),
        StatusCode::URI_TOO_LONG
    );

    let head = |bytes: usize| {
        let around = "GET / HTTP/1.1\r\nHost: a\r\nx: \r\n\r\n".len();
        let value = "y".repeat(bytes - around);
        format!("GET / HTTP/1.1\r\nHost: a\r\nx: {value}\r\n\r\n")
    };
    assert_eq!(read(head(300)), None);
    assert_eq!(read(head(301)), Some(ProtocolError::HeadTooLarge));
    assert_eq!(read(head(5000)), Some(ProtocolError::HeadTooLarge));

    let fields = |count: usize| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\n{}\r\n",
            "x: y\r\n".repeat(count - 1)
        )
    };
    assert_eq!(read(fields(3)), None);
    assert_eq!(read(fields(4)), Some(ProtocolError::TooManyFields));
    assert_eq!(
        ProtocolError::TooManyFields.status(),
        StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
    );
}

#[test]
fn takes_what_is_behind_the_final_chunk_for_the_next_request() {
    let transcript = Transcript::of([&b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
        5;a=b\r\nhello\r\n0\r\nX-Sum: 1\r\nCookie: c\r\n\r\nGET /next HTTP/1.1\r\nHost: a\r\n\r\nrubbish here\r\n"[..]]);
    let [first, second] = &transcript.requests[..] else {
        panic!("{transcript:?}");
    };
    assert_eq!(first.head.content, ContentFraming::Chunked);
    assert_eq!(first.content, b"hello");
    let trailers = first.trailers.as_ref().unwrap();
    assert_eq!(trailers.wire(), b"x-sum: 1\r\n");
    assert_eq!(second.head.head.target.as_str(), "/next");
    assert_eq!(transcript.error, Some(ProtocolError::RequestLine));
}
