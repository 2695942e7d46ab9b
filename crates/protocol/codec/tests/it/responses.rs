//! Tests encoded responses, and their effect on the connection.

use apus_codec::h1::{BodyFraming, Http1Error, Http1ServerEvent, ServerConnection};
use apus_http::{Headers, ResponseHead, StatusCode};

use crate::transcript::{DATE, LIMITS};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const HEAD: &str = "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n";
const GET_1_0: &str = "GET / HTTP/1.0\r\n\r\n";
const UPGRADE: &str =
    "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

fn after(request: &str) -> ServerConnection {
    let mut connection = ServerConnection::new(LIMITS);
    let event = connection.handle_input(request.as_bytes());
    assert!(
        matches!(event, Ok((_, Http1ServerEvent::Request(_)))),
        "{event:?}"
    );
    connection
}

fn headers(lines: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in lines {
        headers.try_append(name, value).unwrap();
    }
    headers
}

fn respond(
    connection: &mut ServerConnection,
    status: u16,
    lines: &[(&str, &str)],
    content_length: Option<u64>,
) -> (String, BodyFraming) {
    let mut out = Vec::new();
    let head = ResponseHead {
        status: StatusCode::from_u16(status).unwrap(),
        headers: &headers(lines),
        content_length,
        date: DATE,
        server: None,
        alt_svc: None,
    };
    let framing = connection.send_head(head, &mut out);
    let date = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
    let text = String::from_utf8(out).unwrap();
    (
        text.strip_suffix(date).unwrap().replace("\r\n", "|"),
        framing,
    )
}

#[test]
fn frames_bodies_by_status_method_and_version() {
    use BodyFraming::{Chunked, Length, None as Nothing, UntilClose};
    let ok = "HTTP/1.1 200 OK|";
    for (request, status, lines, content_length, expected, framing) in [
        (
            GET,
            200,
            &[][..],
            Some(3),
            format!("{ok}content-length: 3|"),
            Length(3),
        ),
        (
            GET,
            200,
            &[],
            Some(0),
            format!("{ok}content-length: 0|"),
            Length(0),
        ),
        (
            GET,
            200,
            &[("content-length", "3")],
            Some(3),
            format!("{ok}content-length: 3|"),
            Length(3),
        ),
        (
            GET,
            200,
            &[("a", "b")],
            None,
            format!("{ok}a: b|transfer-encoding: chunked|"),
            Chunked,
        ),
        (
            GET_1_0,
            200,
            &[],
            None,
            format!("{ok}connection: close|"),
            UntilClose,
        ),
        (
            GET_1_0,
            200,
            &[],
            Some(3),
            format!("{ok}content-length: 3|connection: close|"),
            Length(3),
        ),
        (
            HEAD,
            200,
            &[("content-length", "7")],
            Some(0),
            format!("{ok}content-length: 7|"),
            Nothing,
        ),
        (
            HEAD,
            200,
            &[],
            Some(7),
            format!("{ok}content-length: 7|"),
            Nothing,
        ),
        (HEAD, 200, &[], Some(0), ok.into(), Nothing),
        (HEAD, 200, &[], None, ok.into(), Nothing),
        (
            GET,
            204,
            &[("content-length", "0")],
            Some(0),
            "HTTP/1.1 204 No Content|".into(),
            Nothing,
        ),
        (
            GET,
            205,
            &[],
            Some(9),
            "HTTP/1.1 205 Reset Content|content-length: 0|".into(),
            Nothing,
        ),
        (
            GET,
            304,
            &[],
            Some(9),
            "HTTP/1.1 304 Not Modified|".into(),
            Nothing,
        ),
        (
            GET,
            304,
            &[("content-length", "9")],
            Some(0),
            "HTTP/1.1 304 Not Modified|content-length: 9|".into(),
            Nothing,
        ),
        (
            GET,
            599,
            &[],
            Some(0),
            "HTTP/1.1 599 |content-length: 0|".into(),
            Length(0),
        ),
    ] {
        let found = respond(&mut after(request), status, lines, content_length);
        assert_eq!(found, (expected, framing), "{request:?} {status}");
    }
}

#[test]
fn never_writes_a_wrong_content_length() {
    for value in ["4", "x", "", "+3", "03"] {
        let lines = [("a", "b"), ("content-length", value)];
        assert_eq!(
            respond(&mut after(GET), 200, &lines, Some(3)).0,
            "HTTP/1.1 200 OK|a: b|content-length: 3|"
        );
        assert_eq!(
            respond(&mut after(GET), 200, &lines, None).0,
            "HTTP/1.1 200 OK|a: b|transfer-encoding: chunked|"
        );
    }
    assert_eq!(
        respond(&mut after(HEAD), 200, &[("content-length", "x")], None).0,
        "HTTP/1.1 200 OK|"
    );
    let twice = [("content-length", "3"), ("content-length", "3")];
    assert_eq!(
        respond(&mut after(GET), 200, &twice, Some(3)).0,
        "HTTP/1.1 200 OK|content-length: 3|"
    );
    assert_eq!(
        respond(&mut after(HEAD), 200, &twice, None).0,
        "HTTP/1.1 200 OK|"
    );
}

#[test]
fn removes_connection_fields_of_a_response() {
    let lines = [
        ("connection", "keep-alive, x"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("te", "gzip"),
        ("x", "y"),
    ];
    assert_eq!(
        respond(&mut after(GET), 200, &lines, Some(0)).0,
        "HTTP/1.1 200 OK|x: y|content-length: 0|"
    );
}

#[test]
fn writes_date_server_and_alt_svc_once() {
    let mut out = Vec::new();
    let head = ResponseHead {
        status: StatusCode::OK,
        headers: &headers(&[("server", "other"), ("date", "today"), ("alt-svc", "clear")]),
        content_length: Some(0),
        date: DATE,
        server: Some("apus"),
        alt_svc: Some("h3=\":443\""),
    };
    after(GET).send_head(head, &mut out);
    assert_eq!(
        out,
        b"HTTP/1.1 200 OK\r\nserver: other\r\ndate: today\r\nalt-svc: clear\r\ncontent-length: 0\r\n\r\n"
    );
    out.clear();
    let head = ResponseHead {
        headers: &Headers::new(),
        ..head
    };
    after(GET).send_head(head, &mut out);
    assert_eq!(
        out,
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nserver: apus\r\nalt-svc: h3=\":443\"\r\n\
        date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n"
    );
}

#[test]
fn writes_connection_by_persistence() {
    let keep_alive = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
    let mut connection = after(keep_alive);
    let head = respond(&mut connection, 200, &[], Some(0)).0;
    assert_eq!(
        head,
        "HTTP/1.1 200 OK|content-length: 0|connection: keep-alive|"
    );
    assert!(connection.keeps_alive());

    let mut connection = after(keep_alive);
    let head = respond(&mut connection, 200, &[], None).0;
    assert_eq!(head, "HTTP/1.1 200 OK|connection: close|");
    assert!(!connection.keeps_alive());

    let mut connection = after(GET);
    connection.close();
    let head = respond(&mut connection, 200, &[], Some(0)).0;
    assert_eq!(head, "HTTP/1.1 200 OK|content-length: 0|connection: close|");
    connection.send_end(None, &mut Vec::new());
    assert_eq!(
        connection.handle_input(GET.as_bytes()),
        Ok((0, Http1ServerEvent::Incomplete))
    );
}

#[test]
fn sends_chunks_and_trailers() {
    let mut connection = after(GET);
    assert_eq!(
        respond(&mut connection, 200, &[], None).1,
        BodyFraming::Chunked
    );
    let mut out = Vec::new();
    for data in [&b"hello"[..], b"", &[b'x'; 0x1a]] {
        connection.send_chunk_start(data.len(), &mut out);
        out.extend_from_slice(data);
        connection.send_chunk_end(&mut out);
    }
    let trailers = headers(&[("x-sum", "1"), ("content-length", "5"), ("host", "b")]);
    connection.send_end(Some(&trailers), &mut out);
    let expected = format!(
        "5\r\nhello\r\n1a\r\n{}\r\n0\r\nx-sum: 1\r\n\r\n",
        "x".repeat(26)
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    assert!(connection.is_idle());
}

#[test]
fn sends_no_chunk_lines_in_other_framings() {
    let mut connection = after(GET);
    respond(&mut connection, 200, &[], Some(5));
    let mut out = Vec::new();
    connection.send_chunk_start(5, &mut out);
    connection.send_chunk_end(&mut out);
    connection.send_end(Some(&headers(&[("x", "y")])), &mut out);
    assert!(out.is_empty());
}

#[test]
fn sends_100_continue_once_and_only_if_expected() {
    let mut out = Vec::new();
    after(GET).send_continue(&mut out);
    assert!(out.is_empty());
    let expects = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
    let mut connection = after(expects);
    connection.send_continue(&mut out);
    connection.send_continue(&mut out);
    assert_eq!(out, b"HTTP/1.1 100 Continue\r\n\r\n");
    respond(&mut connection, 200, &[], Some(0));
    assert!(connection.keeps_alive());

    let mut connection = after(expects);
    respond(&mut connection, 200, &[], Some(0));
    out.clear();
    connection.send_continue(&mut out);
    assert!(out.is_empty());
}

/// The client may send the announced body, or its next request.
#[test]
fn closes_if_the_response_precedes_the_expected_body() {
    let mut connection =
        after("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    let head = respond(&mut connection, 413, &[], Some(0)).0;
    assert!(head.contains("|connection: close|"), "{head}");
    assert!(!connection.keeps_alive());
}

#[test]
fn sends_interim_responses_to_http_1_1_only() {
    let links = headers(&[
        ("link", "</a>; rel=preload"),
        ("content-length", "4"),
        ("connection", "x"),
    ]);
    let send = |connection: &mut ServerConnection, status| {
        let mut out = Vec::new();
        let status = StatusCode::from_u16(status).unwrap();
        connection.send_informational(status, &links, &mut out);
        String::from_utf8(out).unwrap()
    };
    let early = "HTTP/1.1 103 Early Hints\r\nlink: </a>; rel=preload\r\n\r\n";
    let mut connection = after(GET);
    assert_eq!(send(&mut connection, 103), early);
    assert_eq!(send(&mut connection, 101), "");
    assert_eq!(send(&mut connection, 200), "");
    respond(&mut connection, 200, &[], Some(0));
    assert_eq!(send(&mut connection, 103), "");
    assert_eq!(send(&mut after(GET_1_0), 103), "");
}

#[test]
fn becomes_a_tunnel_with_101() {
    let mut connection = after(UPGRADE);
    let (head, framing) = respond(&mut connection, 101, &[("upgrade", "websocket")], None);
    assert_eq!(
        head,
        "HTTP/1.1 101 Switching Protocols|upgrade: websocket|connection: upgrade|"
    );
    assert_eq!(framing, BodyFraming::None);
    connection.send_end(None, &mut Vec::new());
    assert!(connection.is_tunnel() && !connection.keeps_alive());
    assert_eq!(
        connection.handle_input(b"\x81\x00"),
        Ok((0, Http1ServerEvent::Incomplete))
    );
}

#[test]
fn reads_the_body_before_the_tunnel() {
    let mut connection = after(
        "POST / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: x\r\nContent-Length: 2\r\n\r\n",
    );
    respond(&mut connection, 101, &[("upgrade", "x")], None);
    connection.send_end(None, &mut Vec::new());
    assert!(!connection.request_body_done());
    assert_eq!(
        connection.handle_input(b"hitunnel"),
        Ok((2, Http1ServerEvent::Data(0..2)))
    );
    assert_eq!(
        connection.handle_input(b"tunnel"),
        Ok((0, Http1ServerEvent::End(None)))
    );
    assert!(connection.request_body_done());
    assert_eq!(
        connection.handle_input(b"tunnel"),
        Ok((0, Http1ServerEvent::Incomplete))
    );
}

#[test]
fn switches_protocols_only_when_the_client_offered() {
    for status in [101, 100, 103] {
        let mut connection = after(GET);
        let head = respond(&mut connection, status, &[("upgrade", "x")], Some(0)).0;
        assert_eq!(
            head,
            "HTTP/1.1 500 Internal Server Error|content-length: 0|"
        );
        assert!(!connection.is_tunnel());
    }
}

#[test]
fn becomes_a_tunnel_with_2xx_to_connect_and_closes_otherwise() {
    let request = "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
    let mut connection = after(request);
    let found = respond(&mut connection, 200, &[("content-length", "5")], Some(5));
    assert_eq!(found, ("HTTP/1.1 200 OK|".into(), BodyFraming::None));
    assert!(connection.is_tunnel());

    let mut connection = after(request);
    let head = respond(&mut connection, 405, &[], Some(0)).0;
    assert!(
        head.ends_with("|content-length: 0|connection: close|"),
        "{head}"
    );
    assert!(!connection.is_tunnel() && !connection.keeps_alive());
}

#[test]
fn sends_upgrade_with_426() {
    let head = respond(&mut after(GET), 426, &[("upgrade", "websocket")], Some(0)).0;
    assert_eq!(
        head,
        "HTTP/1.1 426 Upgrade Required|upgrade: websocket|content-length: 0|connection: upgrade|"
    );
}

#[test]
fn sends_an_error_response_and_closes() {
    let mut connection = ServerConnection::new(LIMITS);
    let error = connection.handle_input(b"nonsense\r\n").unwrap_err();
    assert_eq!(error, Http1Error::RequestLine);
    let (head, framing) = respond(&mut connection, error.status().as_u16(), &[], Some(3));
    assert_eq!(
        head,
        "HTTP/1.1 400 Bad Request|content-length: 3|connection: close|"
    );
    assert_eq!(framing, BodyFraming::Length(3));
    assert!(!connection.keeps_alive());
}

#[test]
fn reads_pipelined_requests_after_the_response_ended() {
    let mut connection = after(GET);
    let next = "GET /2 HTTP/1.1\r\nHost: a\r\n\r\n".as_bytes();
    assert_eq!(
        connection.handle_input(next),
        Ok((0, Http1ServerEvent::Incomplete))
    );
    respond(&mut connection, 200, &[], Some(2));
    assert_eq!(
        connection.handle_input(next),
        Ok((0, Http1ServerEvent::Incomplete))
    );
    connection.send_end(None, &mut Vec::new());
    assert!(matches!(
        connection.handle_input(next),
        Ok((28, Http1ServerEvent::Request(_)))
    ));
}

#[test]
fn continues_only_after_an_unwanted_body_was_read() {
    let mut connection = after("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    respond(&mut connection, 200, &[], Some(0));
    connection.send_end(None, &mut Vec::new());
    assert!(connection.keeps_alive() && !connection.request_body_done());
    assert_eq!(
        connection.handle_input(b"helloGET"),
        Ok((5, Http1ServerEvent::Data(0..5)))
    );
    assert_eq!(
        connection.handle_input(b"GET"),
        Ok((0, Http1ServerEvent::End(None)))
    );
    assert!(connection.is_idle());
}
