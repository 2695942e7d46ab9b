//! Ambiguous framing (RFC 9112 sections 2 to 7) is refused and ends the connection, so that a smuggled
//! request gets no response; against the default limits.

use apus_net::ListenerPlan;

use crate::harness::{Server, collector, local, paths, plan};

/// What an attacker wants to be taken for a separate request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

/// Sends a message with a request behind it and sees it refused.
fn assert_refused(server: &Server, status: u16, message: &str) {
    let before = server.totals();
    let mut client = server.connect();
    client.send(format!("{message}{SMUGGLED}"));
    let received = client.read_response();
    assert_eq!(received.status, status, "{message:?}");
    assert_eq!(received.field("connection"), Some("close"), "{message:?}");
    client.assert_closed();
    let after = server.totals();
    assert_eq!(after.bad_requests, before.bad_requests + 1, "{message:?}");
    assert!(after.requests <= before.requests + 1, "{message:?}");
}

fn refuses(status: u16, messages: &[&str]) {
    let server = Server::start(collector());
    for message in messages {
        assert_refused(&server, status, message);
    }
    server.assert_serves();
}

#[test]
fn rejects_content_length_with_transfer_encoding() {
    refuses(
        400,
        &[
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        ],
    );
}

#[test]
fn rejects_lengths_that_are_not_one_number() {
    let server = Server::start(collector());
    for length in [
        "+5",
        "-5",
        "0x5",
        "5 5",
        "5,5",
        "5, 5",
        "5;",
        "5.0",
        "1e3",
        "",
        "five",
        "\u{665}",
        "18446744073709551616",
        "99999999999999999999999999",
        "5\t5",
        "0b1",
        "\"5\"",
    ] {
        let message = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        assert_refused(&server, 400, &message);
    }
    for second in ["5", "6", "0"] {
        let message = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\ncontent-length: {second}\r\n\r\n12345"
        );
        assert_refused(&server, 400, &message);
    }
}

#[test]
fn rejects_transfer_encodings_that_are_not_exactly_chunked() {
    let server = Server::start(collector());
    for (status, encoding) in [
        (400, "Transfer-Encoding: chunked, chunked"),
        (400, "Transfer-Encoding: chunked, identity"),
        (400, "Transfer-Encoding: xchunked"),
        (400, "Transfer-Encoding: \"chunked\""),
        (400, "Transfer-Encoding: chunked;q=1"),
        (400, "Transfer-Encoding:\x0bchunked"),
        (
            400,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ),
        (
            400,
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        ),
        (400, "Transfer-Encoding: identity"),
        (400, "Transfer-Encoding: "),
        (400, "Transfer-Encoding : chunked"),
        (400, "Transfer-Encoding\t: chunked"),
        (400, " Transfer-Encoding: chunked"),
        (400, "X: y\r\n Transfer-Encoding: chunked"),
        (501, "Transfer-Encoding: gzip, chunked"),
    ] {
        let message = format!("POST / HTTP/1.1\r\nHost: a\r\n{encoding}\r\n\r\n0\r\n\r\n");
        assert_refused(&server, status, &message);
    }
    assert_refused(
        &server,
        400,
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n",
    );
}

#[test]
fn rejects_line_ends_and_control_bytes_that_others_may_read_otherwise() {
    refuses(
        400,
        &[
            "GET / HTTP/1.1\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n\n",
            "GET / HTTP/1.1\r\nHost: a\rX: y\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX\0: b\r\n\r\n",
            "GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n folded\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n\tfolded\r\n\r\n",
            "GET / HTTP/1.1\r\n Host: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost : a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nNoColon\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\n: nameless\r\n\r\n",
        ],
    );
}

#[test]
fn rejects_request_lines_and_hosts_that_are_not_exact() {
    refuses(
        400,
        &[
            "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1 \r\nHost: a\r\n\r\n",
            "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            "GET /\r\nHost: a\r\n\r\n",
            "GE(T / HTTP/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
            "GET / HTTP/1.1\r\nHost: user@a\r\n\r\n",
            "GET path HTTP/1.1\r\nHost: a\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
        ],
    );
}

#[test]
fn rejects_versions_it_does_not_speak() {
    refuses(
        505,
        &[
            "GET / HTTP/0.9\r\nHost: a\r\n\r\n",
            "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        ],
    );
}

#[test]
fn a_higher_minor_version_is_served_as_http_1_1_rfc_9110_section_2_5() {
    let server = Server::start(paths());
    for version in ["HTTP/1.1", "HTTP/1.2", "HTTP/1.9"] {
        let mut client = server.connect();
        // The connection persists, and chunks are understood, as in HTTP/1.1.
        for _ in 0..2 {
            client.send(format!(
                "POST /a {version}\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
            ));
            let response = client.read_response();
            assert_eq!(
                (response.status, response.text().as_str()),
                (200, "/a"),
                "{version}"
            );
        }
    }
}

#[test]
fn what_is_no_request_at_all_gets_no_response_rfc_9113_section_3_4() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send("INVALID CONNECTION PREFACE\r\n\r\n");
    client.assert_closed();
}

#[test]
fn a_request_of_another_protocol_is_a_400() {
    refuses(
        400,
        &[
            "GET / FOO/1.1\r\nHost: a\r\n\r\n",
            "GET / http/1.1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.10\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.a\r\nHost: a\r\n\r\n",
            "GET / HTTP/1\r\nHost: a\r\n\r\n",
            "GET / HTTP/1.1x\r\nHost: a\r\n\r\n",
            "DESCRIBE rtsp://a/b RTSP/1.0\r\n\r\n",
            "OPTIONS sip:a@b SIP/2.0\r\n\r\n",
        ],
    );
}

#[test]
fn rejects_expectations_it_cannot_meet() {
    refuses(
        417,
        &["POST / HTTP/1.1\r\nHost: a\r\nExpect: magic\r\nContent-Length: 1\r\n\r\na"],
    );
}

#[test]
fn rejects_chunked_bodies_with_other_framing() {
    let server = Server::start(collector());
    for body in [
        "10000000000000000\r\n",
        "FFFFFFFFFFFFFFFFF\r\n",
        "00000000000000000000000000000005\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rXhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5;ext\nhello\r\n0\r\n\r\n",
        "5;e\0\r\nhello\r\n0\r\n\r\n",
        "\r\n",
        ";\r\n",
        "g\r\n",
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: b\r\n\r\n",
        "0\r\nno colon\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\n\r\n",
        "0\r\nX: y\r\n folded\r\n\r\n",
    ] {
        let message =
            format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
        assert_refused(&server, 400, &message);
    }
    let message = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;{}\r\nhello\r\n0\r\n\r\n",
        "x".repeat(300)
    );
    assert_refused(&server, 400, &message);
    server.assert_serves();
}

#[test]
fn bounds_chunk_extensions_without_end() {
    let server = Server::start(collector());
    let mut body = String::new();
    for _ in 0..200 {
        body.push_str(&format!("1;{}\r\nx\r\n", "e".repeat(200)));
    }
    let message =
        format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}0\r\n\r\n");
    assert_refused(&server, 400, &message);
}

#[test]
fn rejects_heads_past_the_limits() {
    let server = Server::start(collector());
    let field = "x".repeat(1000);
    let many: String = (0..101)
        .map(|number| format!("X-{number}: y\r\n"))
        .collect();
    let large: String = (0..40)
        .map(|number| format!("X-{number}: {field}\r\n"))
        .collect();
    let cookie = format!("Cookie: {}\r\n", "c".repeat(40_000));
    for (status, message) in [
        (
            414,
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "t".repeat(8 * 1024)),
        ),
        (
            414,
            format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "t".repeat(200_000)),
        ),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{many}\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{large}\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: a\r\n{cookie}\r\n")),
        (
            431,
            format!(
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n{cookie}\r\n"
            ),
        ),
    ] {
        let before = server.totals().bad_requests;
        let mut client = server.connect();
        client.send(&message);
        client.send(SMUGGLED);
        let received = client.read_response();
        // The body is refused to the handler, which chose its own status.
        assert!(
            received.status == status || received.status == 400,
            "{}",
            received.head
        );
        assert!(
            received.status == status || message.starts_with("POST"),
            "{}",
            received.head
        );
        client.assert_closed();
        assert_eq!(server.totals().bad_requests, before + 1);
    }
    let longest = format!("/{}", "t".repeat(8 * 1024 - 1));
    let mut client = server.connect();
    assert_eq!(client.get(&longest).status, 200);
}

#[test]
fn bytes_behind_content_length_are_the_next_request() {
    let server = Server::start(collector());
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcdef\r\n\r\n");
    assert_eq!(client.read_response().text(), "abc");
    assert_eq!(client.read_response().status, 400);
    client.assert_closed();
}

#[test]
fn bytes_behind_the_last_chunk_are_the_next_request() {
    let server = Server::start(collector());
    let mut client = server.connect();
    client.send(
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n3\r\ndef\r\n0\r\n\r\n",
    );
    assert_eq!(client.read_response().text(), "abc");
    assert_eq!(client.read_response().status, 400);
    client.assert_closed();
}

#[test]
fn a_malformed_body_that_is_not_read_is_not_taken_for_a_request() {
    let server = Server::start(paths());
    let mut client = server.connect();
    client.send(format!(
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{SMUGGLED}"
    ));
    assert_eq!(client.read_response().text(), "/a");
    client.assert_closed();
    assert_eq!(
        (server.totals().requests, server.totals().bad_requests),
        (1, 1)
    );
}

#[test]
fn a_request_behind_a_refused_connect_gets_no_response() {
    let server = Server::start(crate::harness::service(|_| {
        apus_http::Response::new(apus_http::StatusCode::METHOD_NOT_ALLOWED).into()
    }));
    let mut client = server.connect();
    client.send(format!(
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n{SMUGGLED}"
    ));
    let received = client.read_response();
    assert_eq!(
        (received.status, received.field("connection")),
        (405, Some("close"))
    );
    client.assert_closed();
    assert_eq!(server.totals().requests, 1);
}

#[test]
fn refuses_another_protocol_at_its_first_byte() {
    let server = Server::run(plan(vec![ListenerPlan {
        http2: false,
        ..ListenerPlan::new(local(), paths())
    }]));
    // A TLS ClientHello to a port in clear text.
    let mut client = server.connect();
    client.send([22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3]);
    assert_eq!(client.read_response().status, 400);
    client.assert_closed();
    let mut client = server.connect();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_eq!(client.read_response().status, 505);
    client.assert_closed();
}
