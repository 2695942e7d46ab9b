//! HTTP/1 framing (RFC 9112 sections 2 to 7): ambiguous messages are rejected, the connection is closed,
//! and a request that is smuggled after them gets no response.

use super::Victim;

/// The request that an attacker smuggles.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A message and the status that rejects it. The file handler responds with 405 before a malformed body is
/// read.
type Message = (u16, String);

fn assert_refused(messages: &[Message]) {
    for victim in [Victim::with_defaults(), Victim::configured("", "")] {
        let before = victim.total("bad_requests");
        for (status, message) in messages {
            let mut wire = victim.connect();
            wire.send(format!("{message}{SMUGGLED}"));
            let received = wire.read();
            assert_eq!(received.status, *status, "{message:?}");
            if *status != 405 {
                assert_eq!(received.field("connection"), Some("close"), "{message:?}");
            }
            let rest = String::from_utf8_lossy(&wire.rest()).into_owned();
            assert!(rest.is_empty(), "{message:?} is followed by {rest:?}");
        }
        let counted = victim.total("bad_requests") - before;
        assert_eq!(counted, messages.len() as u64);
        victim.assert_healthy();
    }
}

fn with_field(status: u16, field: &str) -> Message {
    let message = format!("POST / HTTP/1.1\r\nHost: localhost\r\n{field}\r\nX: y\r\n\r\n0\r\n\r\n");
    (status, message)
}

#[test]
fn rejects_content_length_with_transfer_encoding() {
    assert_refused(&[
        with_field(400, "Content-Length: 5\r\nTransfer-Encoding: chunked"),
        with_field(400, "Transfer-Encoding: chunked\r\nContent-Length: 5"),
        with_field(400, "Content-Length: 5\r\nA: b\r\ntransfer-encoding: x"),
    ]);
}

#[test]
fn rejects_content_lengths_that_are_not_one_number() {
    let lengths = [
        "+5",
        "-5",
        "0x5",
        "5 5",
        "5,5",
        "5, 5",
        "5.0",
        "1e3",
        "",
        "\u{665}",
        "\"5\"",
        "5;",
        "18446744073709551616",
    ];
    let mut messages: Vec<_> = lengths
        .iter()
        .map(|length| with_field(400, &format!("Content-Length: {length}")))
        .collect();
    messages.push(with_field(400, "Content-Length: 5\r\nContent-Length: 5"));
    messages.push(with_field(400, "Content-Length: 5\r\ncontent-length: 6"));
    assert_refused(&messages);
}

#[test]
fn rejects_transfer_encodings_other_than_exactly_chunked() {
    let mut messages: Vec<_> = [
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding:\x0bchunked",
        "Transfer-Encoding\t: chunked",
        "Transfer-Encoding : chunked",
        " Transfer-Encoding: chunked",
        "A: b\r\n Transfer-Encoding: chunked",
        "Transfer-Encoding:\r\n chunked",
    ]
    .iter()
    .map(|field| with_field(400, field))
    .collect();
    messages.push(with_field(501, "Transfer-Encoding: gzip, chunked"));
    messages.push((
        400,
        "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n"
            .to_owned(),
    ));
    assert_refused(&messages);
}

#[test]
fn rejects_bare_line_endings_line_folding_and_control_bytes() {
    let messages: Vec<_> = [
        "GET / HTTP/1.1\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n\n",
        "GET / HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX\0: b\r\n\r\n",
        "GET /\0 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n folded\r\n\r\n",
        "GET / HTTP/1.1\r\n Host: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nNo colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\n: nameless\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n",
    ]
    .iter()
    .map(|message| (400, (*message).to_owned()))
    .collect();
    assert_refused(&messages);
}

#[test]
fn rejects_malformed_request_lines_and_hosts() {
    let messages: Vec<_> = [
        (400, "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (400, "GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n"),
        (400, "GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (400, "GET / http/1.1\r\nHost: localhost\r\n\r\n"),
        (400, "GET /\r\nHost: localhost\r\n\r\n"),
        (400, "GET index.html HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        (400, "GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n"),
        (400, "GET / FOO/1.1\r\nHost: localhost\r\n\r\n"),
        (505, "GET / HTTP/0.9\r\nHost: localhost\r\n\r\n"),
        (505, "GET / HTTP/2.0\r\nHost: localhost\r\n\r\n"),
        (
            417,
            "GET / HTTP/1.1\r\nHost: localhost\r\nExpect: magic\r\n\r\n",
        ),
    ]
    .iter()
    .map(|(status, message)| (*status, (*message).to_owned()))
    .collect();
    assert_refused(&messages);
}

#[test]
fn rejects_malformed_chunked_bodies() {
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    let messages: Vec<_> = [
        "zz\r\n",
        "10000000000000000\r\n",
        "00000000000000000000000000000005\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5;ext\nhello\r\n0\r\n\r\n",
        &long,
        "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "0\r\nHost: b\r\n\r\n",
        "0\r\nX : y\r\n\r\n",
        "0\r\nX: y\r\n folded\r\n\r\n",
    ]
    .iter()
    .map(|body| {
        let head = "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        (405, format!("{head}{body}"))
    })
    .collect();
    assert_refused(&messages);
}

#[test]
fn a_refused_connect_closes_the_connection_and_a_refused_upgrade_keeps_it() {
    let victim = Victim::with_defaults();
    let mut wire = victim.connect();
    wire.send(format!(
        "CONNECT localhost:443 HTTP/1.1\r\nHost: localhost:443\r\n\r\n{SMUGGLED}"
    ));
    let received = wire.read();
    assert!(matches!(received.status, 405 | 501), "{}", received.status);
    assert_eq!(received.field("connection"), Some("close"));
    wire.assert_closed();

    // After an Upgrade that is refused, the connection stays HTTP/1.1 and the next request is served.
    let mut wire = victim.connect();
    wire.send(format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n{SMUGGLED}"
    ));
    assert_eq!(wire.read().text(), "<h1>hello</h1>");
    assert_eq!(wire.read().text(), "what was smuggled");
    victim.assert_healthy();
}

#[test]
fn an_expectation_gets_an_early_response_and_its_body_is_not_read_as_a_request() {
    let victim = Victim::with_defaults();
    let length = SMUGGLED.len();
    let mut wire = victim.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: {length}\r\n\r\n"
    ));
    let received = wire.read();
    assert_eq!(received.status, 405);
    assert_eq!(received.field("connection"), Some("close"));
    wire.send(SMUGGLED);
    wire.assert_closed();
    victim.assert_healthy();
}

#[test]
fn bytes_after_a_body_are_read_as_the_next_request() {
    let victim = Victim::with_defaults();
    let mut wire = victim.connect();
    wire.send(format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabcdef\r\n\r\n{SMUGGLED}"
    ));
    assert_eq!(wire.read().status, 405);
    assert_eq!(wire.read().status, 400);
    wire.assert_closed();
    victim.assert_healthy();
}
