//! Tests the client's end of HTTP/1.1: encoded requests and parsed responses.

use apus_codec::h1::{
    BodyFraming, ClientConnection, Http1ClientEvent, Http1Error, Http1ResponseHead, InvalidRequest,
    OutgoingRequest,
};
use apus_http::{Headers, Method, StatusCode, Version};
use proptest::prelude::*;

use crate::transcript::{LIMITS, Transcript, cut};
use apus_testkit::cases;

thread_local! {
    static NO_FIELDS: &'static Headers = Box::leak(Box::default());
}

/// A request without fields or body.
pub(crate) fn get() -> OutgoingRequest<'static> {
    OutgoingRequest {
        method: &Method::GET,
        target: "/",
        host: "a",
        headers: NO_FIELDS.with(|headers| *headers),
        content_length: Some(0),
        upgrade: None,
        te_trailers: false,
        expects_continue: false,
    }
}

/// A parsed response, and the interim responses before it.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Exchange {
    pub(crate) interim: Vec<(StatusCode, Headers)>,
    pub(crate) head: Option<Http1ResponseHead>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Option<Headers>,
    pub(crate) complete: bool,
    pub(crate) error: Option<Http1Error>,
    pub(crate) keeps_alive: bool,
    pub(crate) is_tunnel: bool,
    /// Unconsumed bytes after a complete response.
    pub(crate) unread: usize,
}

impl Exchange {
    /// Parses the response to `request` from input in pieces. If `ends`, the input ends after them.
    pub(crate) fn of<'a>(
        request: OutgoingRequest<'_>,
        pieces: impl IntoIterator<Item = &'a [u8]>,
        ends: bool,
    ) -> Self {
        let mut connection = ClientConnection::new(LIMITS);
        connection.send_request(request, &mut Vec::new()).unwrap();
        connection.send_end(None, &mut Vec::new());
        let mut exchange = Self::default();
        let mut unread = Vec::new();
        for piece in pieces {
            unread.extend_from_slice(piece);
            if !exchange.complete && exchange.error.is_none() {
                exchange.read(&mut connection, &mut unread);
            }
        }
        if ends && !exchange.complete && exchange.error.is_none() {
            match connection.handle_eof() {
                Ok(Http1ClientEvent::End(None)) => exchange.complete = true,
                Err(error) => exchange.error = Some(error),
                other => panic!("{other:?}"),
            }
        }
        if exchange.complete {
            exchange.unread = unread.len();
        }
        exchange.keeps_alive = connection.keeps_alive();
        exchange.is_tunnel = connection.is_tunnel();
        exchange
    }

    fn read(&mut self, connection: &mut ClientConnection, unread: &mut Vec<u8>) {
        loop {
            let (consumed, event) = match connection.handle_input(unread) {
                Ok(found) => found,
                Err(error) => {
                    assert_eq!(connection.handle_input(b"HTTP/1.1 200\r\n"), Err(error));
                    assert!(!connection.keeps_alive());
                    self.error = Some(error);
                    return;
                }
            };
            match event {
                Http1ClientEvent::Incomplete => {
                    unread.drain(..consumed);
                    return;
                }
                Http1ClientEvent::Informational(status, headers) => {
                    self.interim.push((status, headers));
                }
                Http1ClientEvent::Response(head) => {
                    assert!(self.head.is_none());
                    self.head = Some(head);
                }
                Http1ClientEvent::Data(range) => {
                    assert!(!range.is_empty() && range.end <= consumed);
                    self.body.extend_from_slice(&unread[range]);
                }
                Http1ClientEvent::End(trailers) => self.trailers = trailers,
            }
            unread.drain(..consumed);
            if self.head.is_some() && connection.response_body_done() {
                self.complete = true;
                return;
            }
        }
    }

    fn status(&self) -> u16 {
        self.head.as_ref().map_or(0, |head| head.status.as_u16())
    }
}

fn response_to_get(response: &str) -> Exchange {
    Exchange::of(get(), [response.as_bytes()], false)
}

fn sent(request: OutgoingRequest<'_>) -> String {
    let mut out = Vec::new();
    let mut connection = ClientConnection::new(LIMITS);
    connection.send_request(request, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn responses_to_requests_that_the_caller_sent_itself_are_expected_one_after_another() {
    let mut connection = ClientConnection::new(LIMITS);
    let responses: &[u8] =
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n";
    connection.expect_response(&Method::HEAD).unwrap();
    assert_eq!(
        connection.expect_response(&Method::GET),
        Err(InvalidRequest::NotNow)
    );
    let (consumed, event) = connection.handle_input(responses).unwrap();
    // The response to HEAD has no body.
    assert!(matches!(event, Http1ClientEvent::Response(_)) && connection.response_body_done());
    connection.expect_response(&Method::GET).unwrap();
    let (rest, event) = connection.handle_input(&responses[consumed..]).unwrap();
    assert!(
        matches!(event, Http1ClientEvent::Response(head) if head.status == StatusCode::NO_CONTENT)
    );
    assert_eq!(consumed + rest, responses.len());
    connection.close();
    assert!(!connection.keeps_alive());
    assert_eq!(
        connection.handle_input(b"HTTP/1.1 200 OK\r\n"),
        Err(Http1Error::UnexpectedResponse)
    );
}

#[test]
fn writes_requests_with_framing_and_connection_fields() {
    let mut headers = Headers::new();
    for (name, value) in [
        ("accept", "*/*"),
        ("host", "evil"),
        ("connection", "evil"),
        ("content-length", "7"),
        ("transfer-encoding", "chunked"),
        ("keep-alive", "1"),
        ("expect", "100-continue"),
        ("te", "gzip"),
        ("upgrade", "evil"),
        ("x", "y"),
    ] {
        headers.try_append(name, value).unwrap();
    }
    let headers = &headers;
    let post = OutgoingRequest {
        method: &Method::POST,
        ..get()
    };
    for (request, expected) in [
        (get(), "GET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (
            OutgoingRequest { headers, ..get() },
            "GET / HTTP/1.1\r\nhost: a\r\naccept: */*\r\nx: y\r\n\r\n",
        ),
        (
            post,
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n",
        ),
        (
            OutgoingRequest {
                content_length: Some(12),
                expects_continue: true,
                ..post
            },
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\nexpect: 100-continue\r\n\r\n",
        ),
        (
            OutgoingRequest {
                content_length: None,
                te_trailers: true,
                ..get()
            },
            "GET / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\nte: trailers\r\n\
            connection: te\r\n\r\n",
        ),
        (
            OutgoingRequest {
                upgrade: Some("websocket"),
                expects_continue: true,
                ..get()
            },
            "GET / HTTP/1.1\r\nhost: a\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        ),
        (
            OutgoingRequest {
                method: &Method::OPTIONS,
                target: "*",
                host: "",
                ..get()
            },
            "OPTIONS * HTTP/1.1\r\nhost: \r\n\r\n",
        ),
        (
            OutgoingRequest {
                method: &Method::CONNECT,
                target: "b:1",
                ..get()
            },
            "CONNECT b:1 HTTP/1.1\r\nhost: a\r\n\r\n",
        ),
    ] {
        assert_eq!(sent(request), expected);
    }
    let mut out = Vec::new();
    let mut last = ClientConnection::new(LIMITS);
    last.close();
    last.send_request(get(), &mut out).unwrap();
    assert_eq!(
        out,
        b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    );
}

/// Request splitting, such as CVE-2023-25690.
#[test]
fn rejects_request_parts_that_would_split_the_request() {
    for target in [
        "",
        "a",
        "*",
        "http://a/",
        "/a b",
        "/a\r\nX: y",
        "/\n",
        "/\t",
        "/\0",
        "/\x7f",
        "/\u{e9}",
        "/#x",
    ] {
        let request = OutgoingRequest { target, ..get() };
        assert_refused(request, InvalidRequest::Target);
    }
    for host in ["a b", "a\r\nX: y", "a/b", "a@b", "a:x", "\u{e9}"] {
        assert_refused(OutgoingRequest { host, ..get() }, InvalidRequest::Host);
    }
    for offer in ["", " ", "a\r\nb: c", "a\0"] {
        let upgrade = Some(offer);
        assert_refused(
            OutgoingRequest { upgrade, ..get() },
            InvalidRequest::Upgrade,
        );
    }
    let connect = OutgoingRequest {
        method: &Method::CONNECT,
        target: "b:1",
        content_length: None,
        ..get()
    };
    assert_refused(connect, InvalidRequest::Body);
}

fn assert_refused(request: OutgoingRequest<'_>, error: InvalidRequest) {
    let mut out = Vec::new();
    let mut connection = ClientConnection::new(LIMITS);
    let refused = connection.send_request(request, &mut out);
    assert_eq!(refused, Err(error), "{request:?}");
    assert!(out.is_empty());
    // The connection does not change.
    assert_eq!(
        connection.send_request(get(), &mut out),
        Ok(BodyFraming::None)
    );
}

#[test]
fn sends_one_request_at_a_time() {
    let mut out = Vec::new();
    let mut connection = ClientConnection::new(LIMITS);
    for _ in 0..3 {
        connection.send_request(get(), &mut out).unwrap();
        assert_eq!(
            connection.send_request(get(), &mut out),
            Err(InvalidRequest::NotNow)
        );
        connection.send_end(None, &mut out);
        assert_eq!(
            connection.send_request(get(), &mut out),
            Err(InvalidRequest::NotNow)
        );
        let (consumed, _) = connection.handle_input(b"HTTP/1.1 204 x\r\n\r\n").unwrap();
        assert_eq!(consumed, 18);
        assert!(connection.keeps_alive());
    }
    connection.send_request(get(), &mut out).unwrap();
    connection.send_end(None, &mut out);
    let last = b"HTTP/1.1 204 x\r\nConnection: close\r\n\r\n";
    connection.handle_input(last).unwrap();
    assert_eq!(
        connection.send_request(get(), &mut out),
        Err(InvalidRequest::NotNow)
    );
}

#[test]
fn does_not_persist_if_the_response_ends_before_the_request() {
    let mut out = Vec::new();
    let mut connection = ClientConnection::new(LIMITS);
    let request = OutgoingRequest {
        content_length: Some(10),
        ..get()
    };
    connection.send_request(request, &mut out).unwrap();
    connection
        .handle_input(b"HTTP/1.1 413 x\r\nContent-Length: 0\r\n\r\n")
        .unwrap();
    assert!(connection.response_body_done());
    assert!(!connection.keeps_alive());
}

/// RFC 9112 section 6.3, for every kind of request.
#[test]
fn frames_responses_by_request_status_and_fields() {
    let head = OutgoingRequest {
        method: &Method::HEAD,
        ..get()
    };
    let connect = OutgoingRequest {
        method: &Method::CONNECT,
        target: "b:1",
        ..get()
    };
    let length = "Content-Length: 2\r\n\r\nok";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n";
    // Request, status, rest, body, complete without end of input, kept alive, unread.
    for (request, status, rest, body, complete, keeps_alive, unread) in [
        (get(), "200", length, "ok", true, true, 0),
        (get(), "200", chunked, "ok", true, true, 0),
        (get(), "200", "\r\nok", "ok", false, true, 0),
        (
            get(),
            "200",
            "Content-Length: 0\r\n\r\nok",
            "",
            true,
            true,
            2,
        ),
        (get(), "204", length, "", true, true, 2),
        (get(), "204", "\r\n", "", true, true, 0),
        (get(), "304", length, "", true, true, 2),
        (get(), "304", chunked, "", true, true, 12),
        (get(), "304", "\r\n", "", true, true, 0),
        (get(), "205", length, "ok", true, true, 0),
        (get(), "404", length, "ok", true, true, 0),
        (head, "200", length, "", true, true, 2),
        (head, "200", chunked, "", true, true, 12),
        (head, "200", "\r\n", "", true, true, 0),
        (head, "404", "\r\n", "", true, true, 0),
        (connect, "200", length, "", true, false, 2),
        (connect, "403", length, "ok", true, false, 0),
    ] {
        let response = format!("HTTP/1.1 {status} x\r\n{rest}");
        let exchange = Exchange::of(request, [response.as_bytes()], false);
        let context = format!("{} {response:?} {exchange:?}", request.method);
        assert_eq!(exchange.error, None, "{context}");
        assert_eq!(exchange.body, body.as_bytes(), "{context}");
        assert_eq!(exchange.complete, complete, "{context}");
        assert_eq!(exchange.unread, unread, "{context}");
        if complete {
            assert_eq!(exchange.keeps_alive, keeps_alive, "{context}");
        }
        let tunnel = *request.method == Method::CONNECT && status == "200";
        assert_eq!(exchange.is_tunnel, tunnel, "{context}");
        // The end of the connection does not change the result, and neither does a wrong length.
        let ended = Exchange::of(request, [response.as_bytes()], true);
        assert!(ended.complete && ended.body == body.as_bytes(), "{context}");
    }
}

#[test]
fn keeps_content_length_where_the_status_allows_it() {
    for (status, kept) in [("200", true), ("304", true), ("204", false), ("404", true)] {
        let exchange = response_to_get(&format!(
            "HTTP/1.1 {status} x\r\nContent-Length: 5\r\n\r\n12345"
        ));
        let head = exchange.head.unwrap();
        assert_eq!(head.headers.contains("content-length"), kept, "{status}");
    }
}

/// RFC 9112 section 9.3.
#[test]
fn persists_by_version_and_connection_options() {
    for (version, connection, keeps_alive) in [
        ("1.1", "x", true),
        ("1.1", "keep-alive", true),
        ("1.1", "Close", false),
        ("1.1", "keep-alive, close", false),
        ("1.0", "x", false),
        ("1.0", "Keep-Alive", true),
        ("1.0", "close, keep-alive", false),
    ] {
        let exchange = response_to_get(&format!(
            "HTTP/{version} 200 x\r\nConnection: {connection}\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(exchange.keeps_alive, keeps_alive, "{version} {connection}");
    }
}

#[test]
fn only_end_of_input_completes_a_body_until_close() {
    let until_close = "HTTP/1.1 200 x\r\n\r\nsome";
    let open = response_to_get(until_close);
    assert!(!open.complete && open.error.is_none());
    let ended = Exchange::of(get(), [until_close.as_bytes()], true);
    assert!(ended.complete && !ended.keeps_alive);
    for response in [
        "",
        "HTTP/1.1",
        "HTTP/1.1 200 x\r\n",
        "HTTP/1.1 103 x\r\n\r\n",
        "HTTP/1.1 200 x\r\nContent-Length: 5\r\n\r\n1234",
        "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na",
        "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n",
        "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nA: b\r\n",
    ] {
        let exchange = Exchange::of(get(), [response.as_bytes()], true);
        assert_eq!(exchange.error, Some(Http1Error::Truncated), "{response:?}");
    }
}

#[test]
fn rejects_ambiguous_responses() {
    for (response, error) in [
        (
            "HTTP/1.1 200 x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
            Http1Error::LengthWithTransferEncoding,
        ),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n",
            Http1Error::LengthWithTransferEncoding,
        ),
        (
            "HTTP/1.1 200 x\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            Http1Error::ContentLength,
        ),
        (
            "HTTP/1.1 304 x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            Http1Error::ContentLength,
        ),
        (
            "HTTP/1.1 200 x\r\nContent-Length: 0x1\r\n\r\n",
            Http1Error::ContentLength,
        ),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: xchunked\r\n\r\n",
            Http1Error::TransferEncoding,
        ),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            Http1Error::TransferCoding,
        ),
        (
            "HTTP/1.0 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
            Http1Error::TransferEncoding,
        ),
        ("HTTP/1.1 200 x\nA: b\r\n\r\n", Http1Error::BareLineFeed),
        (
            "HTTP/1.1 200 x\r\nA : b\r\n\r\n",
            Http1Error::SpaceBeforeColon,
        ),
        ("HTTP/1.1 200 x\r\n A: b\r\n\r\n", Http1Error::LineFolding),
        ("HTTP/1.1 200 x\r\nA: \rb\r\n\r\n", Http1Error::FieldValue),
        (
            "HTTP/1.1 101 x\r\nUpgrade: x\r\n\r\n",
            Http1Error::UnexpectedUpgrade,
        ),
        ("\r\nHTTP/1.1 200 x\r\n\r\n", Http1Error::StatusLine),
        ("HTTP/2", Http1Error::StatusLine),
        (
            "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab",
            Http1Error::ChunkEnd,
        ),
    ] {
        assert_eq!(response_to_get(response).error, Some(error), "{response:?}");
    }
}

#[test]
fn limits_heads_and_interim_responses() {
    let interim = "HTTP/1.1 103 x\r\n\r\n".repeat(33);
    assert_eq!(
        response_to_get(&interim).error,
        Some(Http1Error::TooManyInterim)
    );
    let long = format!("HTTP/1.1 200 x\r\nA: {}", "b".repeat(LIMITS.head_bytes));
    assert_eq!(response_to_get(&long).error, Some(Http1Error::HeadTooLarge));
    // Dropped fields count as well.
    let many = format!(
        "HTTP/1.1 200 x\r\n{}",
        "TE: x\r\n".repeat(LIMITS.fields + 1)
    );
    assert_eq!(
        response_to_get(&many).error,
        Some(Http1Error::TooManyFields)
    );
    let status = format!("HTTP/1.1 200 {}", "x".repeat(5000));
    assert_eq!(response_to_get(&status).error, Some(Http1Error::StatusLine));
}

#[test]
fn rejects_input_without_a_request() {
    let mut connection = ClientConnection::new(LIMITS);
    assert_eq!(connection.handle_eof(), Ok(Http1ClientEvent::Incomplete));
    let mut connection = ClientConnection::new(LIMITS);
    let response = b"HTTP/1.1 200 x\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(
        connection.handle_input(response),
        Err(Http1Error::UnexpectedResponse)
    );
    assert_eq!(
        connection.send_request(get(), &mut Vec::new()),
        Err(InvalidRequest::NotNow)
    );
}

#[test]
fn an_offered_upgrade_makes_a_tunnel() {
    let request = OutgoingRequest {
        upgrade: Some("x"),
        ..get()
    };
    let response = b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nearly";
    let exchange = Exchange::of(request, [&response[..]], false);
    assert!(exchange.complete && exchange.is_tunnel && !exchange.keeps_alive);
    assert_eq!((exchange.status(), exchange.unread), (101, 5));
    assert_eq!(exchange.head.unwrap().headers.wire(), b"upgrade: x\r\n");
}

/// A generated response.
#[derive(Clone, Debug)]
pub(crate) struct GeneratedResponse {
    status: u16,
    http10: bool,
    interim: usize,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
    /// The sizes of the chunks; empty for `Content-Length`.
    chunks: Vec<usize>,
    trailer: Option<String>,
}

impl GeneratedResponse {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(self.interim);
        let is_chunked = !self.chunks.is_empty() && !self.http10;
        let minor = u8::from(!self.http10);
        bytes.extend(format!("HTTP/1.{minor} {} Some Reason\r\n", self.status).as_bytes());
        for (name, value) in &self.fields {
            bytes.extend(format!("{name}: {value}\r\n").as_bytes());
        }
        if !is_chunked {
            bytes.extend(format!("Content-Length: {}\r\n\r\n", self.body.len()).as_bytes());
            bytes.extend(&self.body);
            return bytes;
        }
        bytes.extend(b"Transfer-Encoding: chunked\r\n\r\n");
        for piece in cut(&self.body, &self.chunks) {
            if !piece.is_empty() {
                bytes.extend(format!("{:x};a=b\r\n", piece.len()).as_bytes());
                bytes.extend(piece);
                bytes.extend(b"\r\n");
            }
        }
        bytes.extend(b"0\r\n");
        if let Some(trailer) = &self.trailer {
            bytes.extend(format!("X-Sum: {trailer}\r\n").as_bytes());
        }
        bytes.extend(b"\r\n");
        bytes
    }
}

prop_compose! {
    pub(crate) fn response()(
        status in prop::sample::select(vec![200_u16, 201, 206, 301, 404, 500, 599]),
        http10 in any::<bool>(),
        interim in 0..3_usize,
        fields in prop::collection::vec(
            ("X-[A-Za-z0-9-]{1,12}", "([!-~]([ -~\t]{0,20}[!-~])?)?"), 0..8),
        body in prop::collection::vec(any::<u8>(), 0..300),
        chunks in prop::collection::vec(any::<usize>(), 0..4),
        trailer in prop::option::of("[a-z]{0,5}"),
    ) -> GeneratedResponse {
        let interim = if http10 { 0 } else { interim };
        GeneratedResponse { status, http10, interim, fields, body, chunks, trailer }
    }
}

prop_compose! {
    /// Valid responses with some changed bytes, and combinations of parts.
    pub(crate) fn damaged()(
        response in response(),
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..4),
        parts in prop::collection::vec(prop::sample::select(vec![
            "HTTP/1.1 200 OK", "HTTP/1.0 200", "HTTP/1.1 204 x", "HTTP/1.1 100 x", "HTTP/1.1 101 x",
            "\r\n", "\r\n\r\n", "\n", "\r", " ", ":", "A: b", "Content-Length: 2", "Content-Length: 0",
            "Transfer-Encoding: chunked", "Connection: close", "Connection: x, y", "ok", "2", "0", ";",
        ]), 0..12),
        is_of_parts in any::<bool>(),
    ) -> Vec<u8> {
        if is_of_parts {
            return parts.concat().into_bytes();
        }
        let mut bytes = response.bytes();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        bytes
    }
}

proptest! {
    #![proptest_config(cases(1500))]

    #[test]
    fn parses_generated_responses(
        response in response(),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
    ) {
        let bytes = response.bytes();
        let exchange = Exchange::of(get(), cut(&bytes, &cuts), false);
        prop_assert!(exchange.complete, "{exchange:?}");
        prop_assert_eq!(exchange.unread, 0);
        prop_assert_eq!(exchange.interim.len(), response.interim);
        prop_assert_eq!(exchange.keeps_alive, !response.http10);
        prop_assert_eq!(exchange.body, response.body);
        let head = exchange.head.unwrap();
        prop_assert_eq!(head.status.as_u16(), response.status);
        let version = if response.http10 { Version::HTTP_10 } else { Version::HTTP_11 };
        prop_assert_eq!(head.version, version);
        let fields: Vec<_> = head
            .headers
            .iter()
            .filter(|(name, _)| *name != "content-length")
            .map(|(name, value)| (name.to_owned(), String::from_utf8(value.to_vec()).unwrap()))
            .collect();
        let expected: Vec<_> = response
            .fields
            .iter()
            .map(|(name, value)| (name.to_ascii_lowercase(), value.clone()))
            .collect();
        prop_assert_eq!(fields, expected);
        if !response.http10 && !response.chunks.is_empty() {
            let sum = exchange.trailers.as_ref().and_then(|trailers| trailers.get_str("x-sum"));
            prop_assert_eq!(sum, response.trailer.as_deref());
        }
    }

    #[test]
    fn parses_input_independently_of_its_split(
        input in damaged(),
        cuts in prop::collection::vec(any::<usize>(), 0..8),
        is_head in any::<bool>(),
        ends in any::<bool>(),
    ) {
        let method = if is_head { &Method::HEAD } else { &Method::GET };
        let request = OutgoingRequest { method, ..get() };
        let at_once = Exchange::of(request, [&input[..]], ends);
        prop_assert_eq!(&at_once, &Exchange::of(request, cut(&input, &cuts), ends));
        prop_assert_eq!(&at_once, &Exchange::of(request, input.chunks(1), ends));
    }

    /// The server of this codec parses the requests of its client.
    #[test]
    fn own_server_parses_generated_requests(
        method in "GET|POST|PUT|DELETE|PATCH|OPTIONS|PURGE",
        target in "/[a-zA-Z0-9/._~%?=&-]{0,30}",
        pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5),
        is_length_known in any::<bool>(),
        trailer in prop::option::of("[a-z]{1,5}"),
    ) {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let body = pieces.concat();
        let request = OutgoingRequest {
            method: &method,
            target: &target,
            content_length: is_length_known.then_some(body.len() as u64),
            ..get()
        };
        let mut trailers = Headers::new();
        if let Some(trailer) = &trailer {
            trailers.try_append("x-sum", trailer).unwrap();
        }
        let mut out = Vec::new();
        let mut connection = ClientConnection::new(LIMITS);
        let framing = connection.send_request(request, &mut out).unwrap();
        for piece in &pieces {
            connection.send_chunk_start(piece.len(), &mut out);
            out.extend(piece);
            connection.send_chunk_end(&mut out);
        }
        connection.send_end(Some(&trailers), &mut out);
        let read = Transcript::of([&out[..]]);
        prop_assert_eq!((read.error, read.unread, read.requests.len()), (None, 0, 1));
        let request = &read.requests[0];
        prop_assert_eq!(&request.head.head.method, &method);
        prop_assert_eq!(request.head.head.target.as_str(), &target);
        prop_assert_eq!(&request.body, &body);
        if framing == BodyFraming::Chunked {
            prop_assert_eq!(request.trailers.as_ref(), trailer.as_ref().map(|_| &trailers));
        }
    }
}
