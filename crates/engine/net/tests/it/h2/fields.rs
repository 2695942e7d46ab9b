//! Malformed requests (RFC 9113 sections 8.1 to 8.3): fields that would become other lines or other
//! messages in HTTP/1.1 never reach a service. Each costs its own stream alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::open;
use crate::harness::{Server, ok, service};
use apus_http::{Response, ResponseFuture, StatusCode};
use apus_testkit::collect;
use apus_testkit::h2::{block, code, data, head, request, request_with};

type Fields = Vec<(Vec<u8>, Vec<u8>)>;

fn fields(fields: &[(&str, &str)]) -> Fields {
    let owned = fields.iter();
    owned
        .map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec()))
        .collect()
}

/// A good request with one more field.
fn and(name: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Fields {
    let mut all = fields(&request("GET", "/"));
    all.push((name.as_ref().to_vec(), value.as_ref().to_vec()));
    all
}

/// Each of these is refused on its stream and reaches no service, and the next request on the same connection
/// gets a response.
fn assert_malformed(cases: Vec<Fields>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&seen);
    let server = Server::start(service(move |request| {
        if request.path() != "/well" {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        ok(request.path().to_owned()).into()
    }));
    let count = cases.len();
    for case in cases {
        let shown: Vec<_> = case
            .iter()
            .map(|(name, value)| format!("{}: {}", name.escape_ascii(), value.escape_ascii()))
            .collect();
        let mut peer = open(&server);
        for end in [true, false] {
            let stream = peer.next_stream();
            peer.send(head(stream, &block(&case), end));
            let code = peer.reset_of(stream);
            assert_eq!(code, code::PROTOCOL_ERROR, "{shown:?}");
            assert_eq!(peer.received(stream).status, 0, "{shown:?}");
        }
        assert_eq!(peer.fetch("/well").text(), "/well", "{shown:?}");
        assert!(peer.goaways.is_empty(), "{shown:?}");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 0);
    let totals = server.totals();
    assert_eq!(totals.bad_requests, 2 * count as u64);
    assert_eq!(totals.requests, count as u64);
}

#[test]
fn fields_that_would_be_other_lines_in_http_1_1_are_malformed_rfc_9113_section_8_2_1() {
    let mut cases = Vec::new();
    for name in [
        "",
        "X",
        "Content-Length",
        "x y",
        " x",
        "x ",
        "x:",
        "x:y",
        "x\r",
        "x\n",
        "x\r\ny",
        "x\0",
        "x\t",
        "x\u{7f}",
        "\u{e9}",
        "x/y",
        "x(y)",
        "x\"",
    ] {
        cases.push(and(name, "y"));
    }
    for value in [
        "y\rz",
        "y\nz",
        "y\r\nz: smuggled",
        "y\r\n\r\nGET /smuggled HTTP/1.1",
        "y\0z",
        " y",
        "y ",
        "\ty",
        "y\t",
        "\r",
        "\n",
        "\0",
    ] {
        cases.push(and("x", value));
        cases.push(and("cookie", value));
    }
    assert_malformed(cases);
}

#[test]
fn requests_whose_pseudo_fields_would_be_other_lines_are_malformed() {
    let mut cases = Vec::new();
    for path in [
        "",
        "a",
        "/ HTTP/1.1\r\nx: y",
        "/a b",
        "/\r\n",
        "/\0",
        "/\u{e9}",
        "/\t",
        "/#f",
        "*",
        "http://b/",
    ] {
        cases.push(fields(&request("GET", path)));
    }
    for method in [
        "",
        "GE T",
        "GET\r\n",
        "GET /smuggled HTTP/1.1\r\nx:",
        "G\0",
        "G(T)",
    ] {
        cases.push(fields(&request(method, "/")));
    }
    for authority in [
        "a b",
        "a\r\nx: y",
        "a/b",
        "user@a",
        "a\0",
        "a:b",
        "a:1:2",
        "[::1",
        "\u{e9}",
    ] {
        let mut case = fields(&request("GET", "/"));
        case[2].1 = authority.as_bytes().to_vec();
        cases.push(case);
    }
    for scheme in ["", "ht tp", "http\r\nx: y", "1http", "http:"] {
        let mut case = fields(&request("GET", "/"));
        case[1].1 = scheme.as_bytes().to_vec();
        cases.push(case);
    }
    assert_malformed(cases);
}

#[test]
fn connection_specific_fields_are_malformed_rfc_9113_section_8_2_2() {
    let cases = [
        ("connection", "close"),
        ("connection", "keep-alive"),
        ("connection", "x"),
        ("keep-alive", "timeout=5"),
        ("proxy-connection", "keep-alive"),
        ("transfer-encoding", "chunked"),
        ("transfer-encoding", "identity"),
        ("transfer-encoding", ""),
        ("upgrade", "h2c"),
        ("upgrade", "websocket"),
        ("te", "gzip"),
        ("te", "trailers, gzip"),
        ("te", "trailers;q=0.5"),
        ("te", ""),
    ];
    assert_malformed(cases.iter().map(|(name, value)| and(name, value)).collect());
}

#[test]
fn te_may_say_trailers_rfc_9113_section_8_2_2() {
    let server = Server::start(super::described());
    let mut peer = open(&server);
    let stream = peer.request(&request_with("GET", "/", &[("te", "trailers")]), true);
    let response = peer.response(stream);
    // It is about the connection, and not among the fields of the request.
    assert_eq!(response.text(), "GET a /\nhost: a\n");
}

#[test]
fn pseudo_header_fields_are_as_they_have_to_be_rfc_9113_section_8_3() {
    let good = request("GET", "/");
    let without = |name: &str| {
        let kept: Vec<_> = good
            .iter()
            .filter(|(field, _)| *field != name)
            .copied()
            .collect();
        fields(&kept)
    };
    let twice = |name: &str| {
        let again: Vec<_> = good
            .iter()
            .filter(|(field, _)| *field == name)
            .copied()
            .collect();
        fields(&[good.clone(), again].concat())
    };
    let mut late = fields(&good);
    late.insert(1, (b"x".to_vec(), b"y".to_vec()));
    assert_malformed(vec![
        without(":method"),
        without(":scheme"),
        without(":path"),
        twice(":method"),
        twice(":scheme"),
        twice(":path"),
        twice(":authority"),
        late,
        and(":status", "200"),
        and(":unknown", "x"),
        and(":", "x"),
        and(":Method", "GET"),
        and(":protocol ", "websocket"),
        // RFC 8441 section 4: only with CONNECT.
        {
            let mut case = fields(&good);
            case.insert(0, (b":protocol".to_vec(), b"websocket".to_vec()));
            case
        },
        Fields::new(),
        fields(&[("x", "y")]),
    ]);
}

#[test]
fn exactly_one_host_is_required_rfc_9113_section_8_3_1() {
    let mut two = and("host", "a");
    two.push((b"host".to_vec(), b"a".to_vec()));
    let no_authority: Vec<_> = request("GET", "/")
        .into_iter()
        .filter(|(name, _)| *name != ":authority")
        .collect();
    let hosts = |hosts: &[&'static str]| {
        let more: Vec<_> = hosts.iter().map(|host| ("host", *host)).collect();
        fields(&[no_authority.clone(), more].concat())
    };
    assert_malformed(vec![
        and("host", "b"),
        and("host", "a:80"),
        and("host", "a.b"),
        and("host", ""),
        two,
        hosts(&["a", "b"]),
        hosts(&["a", "a"]),
        hosts(&["a b"]),
        hosts(&["a/b"]),
    ]);
}

#[test]
fn a_length_that_is_none_is_malformed_rfc_9113_section_8_1_1() {
    let mut cases: Vec<Fields> = [
        "",
        "+1",
        "-1",
        "0x1",
        "1 ",
        "1,1",
        "1, 1",
        "one",
        "18446744073709551616",
        "99999999999999999999999999",
    ]
    .iter()
    .map(|length| and("content-length", length))
    .collect();
    let mut two = and("content-length", "1");
    two.push((b"content-length".to_vec(), b"2".to_vec()));
    cases.push(two);
    assert_malformed(cases);
}

#[test]
fn a_body_of_another_length_than_announced_is_malformed_rfc_9113_section_8_1_1() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            match collect(request.body_mut()).await {
                Ok(body) => ok(body),
                Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        })
    }));
    let mut peer = open(&server);
    for (length, parts) in [
        ("5", &["hell"][..]),
        ("5", &["hello "]),
        ("5", &["hello", " "]),
        ("5", &["he", "llo", "", "x"]),
        ("0", &["x"]),
        ("1", &[""]),
    ] {
        let fields = request_with("POST", "/", &[("content-length", length)]);
        let stream = peer.request(&fields, false);
        for (index, part) in parts.iter().enumerate() {
            peer.send(data(stream, part, index + 1 == parts.len()));
        }
        assert_eq!(
            peer.reset_of(stream),
            code::PROTOCOL_ERROR,
            "{length} {parts:?}"
        );
    }
    // Too little, and trailers behind it.
    let stream = peer.request(
        &request_with("POST", "/", &[("content-length", "5")]),
        false,
    );
    peer.send(data(stream, "hell", false));
    peer.send(head(stream, &block(&[("x", "y")]), true));
    assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    // A length, and an end with the head.
    let stream = peer.request(&request_with("POST", "/", &[("content-length", "5")]), true);
    assert_eq!(peer.reset_of(stream), code::PROTOCOL_ERROR);
    let stream = peer.request(
        &request_with("POST", "/", &[("content-length", "5")]),
        false,
    );
    peer.send(data(stream, "hello", true));
    assert_eq!(peer.response(stream).text(), "hello");
    assert_eq!(server.totals().bad_requests, 8);
}

#[test]
fn malformed_trailers_are_malformed_requests_rfc_9113_section_8_1() {
    let server = Server::start(service(|mut request| {
        ResponseFuture::later(async move {
            match collect(request.body_mut()).await {
                Ok(body) => ok(body),
                Err(error) => Response::text(StatusCode::BAD_REQUEST, error.to_string()),
            }
        })
    }));
    let mut peer = open(&server);
    for (name, value) in [
        (":path", "/"),
        (":status", "200"),
        ("X", "y"),
        ("x", "y\r\nz: 1"),
        ("x y", "z"),
        ("connection", "close"),
        ("transfer-encoding", "chunked"),
    ] {
        let stream = peer.request(&request("POST", "/"), false);
        peer.send(data(stream, "content", false));
        peer.send(head(stream, &block(&[(name, value)]), true));
        assert_eq!(
            peer.reset_of(stream),
            code::PROTOCOL_ERROR,
            "{name}: {value:?}"
        );
    }
    assert_eq!(server.totals().bad_requests, 7);
    assert_eq!(peer.fetch("/").status, 200);
}
