//! Tests valid requests, and their effect on the connection.

use apus_codec::h1::{Http1RequestHead, Http1ServerEvent, RequestFraming, ServerConnection};
use apus_http::{Method, Version};

use crate::transcript::{LIMITS, Transcript};

fn head(request: &str) -> Http1RequestHead {
    let mut connection = ServerConnection::new(LIMITS);
    match connection.handle_input(request.as_bytes()) {
        Ok((consumed, Http1ServerEvent::Request(head))) if consumed == request.len() => head,
        other => panic!("{request:?}: {other:?}"),
    }
}

#[test]
fn reads_a_head() {
    let head =
        head("GET /a?b HTTP/1.1\r\nHost: example.com\r\nAccept:  */* \t\r\nX-Empty:\r\n\r\n");
    assert_eq!(head.head.method, Method::GET);
    assert_eq!(
        (head.head.target.path(), head.head.target.query()),
        ("/a", Some("b"))
    );
    assert_eq!(head.head.version, Version::HTTP_11);
    assert_eq!(
        head.head.headers.wire(),
        b"host: example.com\r\naccept: */*\r\nx-empty: \r\n"
    );
    assert_eq!(head.body, RequestFraming::None);
    assert!(!head.expects_continue && !head.upgrade);
}

#[test]
fn accepts_any_token_as_a_method() {
    let method = head("M-SEARCH!#$%&'*+.^_`|~ / HTTP/1.1\r\nHost: a\r\n\r\n")
        .head
        .method;
    assert_eq!(method.as_str(), "M-SEARCH!#$%&'*+.^_`|~");
}

#[test]
fn returns_the_framing_of_the_body() {
    for (fields, framing) in [
        ("", RequestFraming::None),
        ("Content-Length: 0\r\n", RequestFraming::None),
        ("Content-Length: 7\r\n", RequestFraming::Length(7)),
        ("Transfer-Encoding: Chunked\r\n", RequestFraming::Chunked),
    ] {
        let head = head(&format!("POST / HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
        assert_eq!(head.body, framing, "{fields:?}");
    }
}

#[test]
fn replaces_host_by_the_authority_of_the_target() {
    for (request, host) in [
        ("GET http://b:8/x HTTP/1.1\r\nHost: a\r\n\r\n", "b:8"),
        ("GET http://b/x HTTP/1.0\r\n\r\n", "b"),
        ("CONNECT b:1 HTTP/1.1\r\nHost: a\r\n\r\n", "b:1"),
        ("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", "a"),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", ""),
    ] {
        let head = head(request);
        let hosts: Vec<_> = head.head.headers.get_all("host").collect();
        assert_eq!(hosts, [host.as_bytes()], "{request:?}");
    }
}

#[test]
fn expects_100_continue_only_with_a_body_in_http_1_1() {
    let request = |version: &str, length: u8| {
        head(&format!(
            "PUT / HTTP/{version}\r\nHost: a\r\nContent-Length: {length}\r\nExpect: 100-Continue\r\n\r\n"
        ))
        .expects_continue
    };
    assert!(request("1.1", 1));
    assert!(!request("1.1", 0));
    assert!(!request("1.0", 1));
}

#[test]
fn detects_an_offer_to_upgrade() {
    let offers = |version: &str, connection: &str| {
        head(&format!(
            "GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\nUpgrade: websocket\r\n\r\n"
        ))
        .upgrade
    };
    assert!(offers("1.1", "keep-alive, Upgrade"));
    assert!(!offers("1.1", "keep-alive"));
    assert!(!offers("1.0", "Upgrade"));
    assert!(!head("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\n\r\n").upgrade);
}

#[test]
fn persists_by_version_and_connection_options() {
    let requests = |version: &str, connection: &str| {
        let one = format!("GET / HTTP/{version}\r\nHost: a\r\n{connection}\r\n");
        Transcript::of([one.repeat(2).as_bytes()]).requests.len()
    };
    for (version, connection, expected) in [
        ("1.1", "", 2),
        ("1.1", "Connection: keep-alive\r\n", 2),
        ("1.1", "Connection: close\r\n", 1),
        ("1.1", "Connection: x, CLOSE\r\n", 1),
        ("1.1", "Connection: x\r\nConnection: close\r\n", 1),
        ("1.0", "", 1),
        ("1.0", "Connection: Keep-Alive\r\n", 2),
        ("1.0", "Connection: keep-alive, close\r\n", 1),
    ] {
        assert_eq!(
            requests(version, connection),
            expected,
            "{version} {connection:?}"
        );
    }
}

#[test]
fn accepts_empty_lines_before_a_request() {
    let one = "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let transcript = Transcript::of([one.repeat(3).as_bytes()]);
    assert_eq!((transcript.requests.len(), transcript.error), (3, None));
}

#[test]
fn is_idle_only_between_requests() {
    let mut connection = ServerConnection::new(LIMITS);
    assert!(connection.is_idle());
    assert_eq!(
        connection.handle_input(b""),
        Ok((0, Http1ServerEvent::Incomplete))
    );
    assert!(connection.is_idle());
    assert_eq!(
        connection.handle_input(b"G"),
        Ok((0, Http1ServerEvent::Incomplete))
    );
    assert!(!connection.is_idle());
    let mut connection = ServerConnection::new(LIMITS);
    assert_eq!(
        connection.handle_input(b"\r\n"),
        Ok((2, Http1ServerEvent::Incomplete))
    );
    assert!(!connection.is_idle());
}

#[test]
fn scans_each_byte_of_a_head_once() {
    // A quadratic scan would take minutes.
    let value = "y".repeat(4 * 1024 * 1024);
    let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {value}\r\n\r\n");
    let limits = apus_codec::h1::HeadLimits {
        head_bytes: usize::MAX,
        ..LIMITS
    };
    let mut connection = ServerConnection::new(limits);
    let mut start = 0;
    for end in 1..=request.len() {
        let (consumed, event) = connection
            .handle_input(&request.as_bytes()[start..end])
            .unwrap();
        start += consumed;
        assert_eq!(
            matches!(event, Http1ServerEvent::Request(_)),
            end == request.len()
        );
    }
}
