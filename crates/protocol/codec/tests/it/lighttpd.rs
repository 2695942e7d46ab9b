//! The request heads of lighttpd's tests (`src/t/test_request.c`), with what both servers make of them. Where they differ, the reason
//! is in docs/security.md.

use crate::transcript::Transcript;

/// A head that is served.
const SERVED: u16 = 0;

/// What a head is about, the head without its last line, and what lighttpd and this codec make of it. A status of a method, as 405,
/// 411 or 501, is not one of the codec: it accepts the head.
const HEADS: &[(&str, &str, u16, u16)] = &[
    ("a space", " \r\nHost: a\r\n", 400, 400),
    ("a space and a letter", " a\r\nHost: a\r\n", 400, 400),
    ("a dot", ".\r\nHost: a\r\n", 400, 400),
    ("a letter", "a\r\nHost: a\r\n", 400, 400),
    ("a letter and a space", "a \r\nHost: a\r\n", 400, 400),
    ("a method", "GET\r\nHost: a\r\n", 400, 400),
    ("a method and a space", "GET \r\nHost: a\r\n", 400, 400),
    ("a method and two spaces", "GET  \r\nHost: a\r\n", 400, 400),
    ("no target", "GET HTTP/1.0\r\nHost: a\r\n", 400, 400),
    ("an empty target", "GET  HTTP/1.0\r\nHost: a\r\n", 400, 400),
    ("three spaces", "GET   HTTP/1.0\r\nHost: a\r\n", 400, 400),
    ("no spaces", "GET/HTTP/1.0\r\nHost: a\r\n", 400, 400),
    (
        "no space before the version",
        "GET /HTTP/1.0\r\nHost: a\r\n",
        400,
        400,
    ),
    (
        "two spaces before a target",
        "GET  /HTTP/1.0\r\nHost: a\r\n",
        400,
        400,
    ),
    (
        "a slash in a method",
        "GET/ HTTP/1.0\r\nHost: a\r\n",
        501,
        400,
    ),
    (
        "a slash and two spaces",
        "GET/  HTTP/1.0\r\nHost: a\r\n",
        501,
        400,
    ),
    ("no version", "GET /\r\n", 400, 400),
    ("an unknown method without version", "BC /\r\n", 400, 400),
    ("an unknown method alone", "ABC\r\n", 400, 400),
    ("an unknown method", "ABC / HTTP/1.0\r\n", 501, SERVED),
    (
        "zeros in the version",
        "GET / HTTP/01.01\r\nHost: a\r\n",
        505,
        400,
    ),
    ("no major version", "GET / HTTP/.01\r\n", 505, 400),
    ("no minor version", "GET / HTTP/01.\r\n", 505, 400),
    ("letters as version", "GET / HTTP/a.b\r\n", 505, 400),
    (
        "a later minor version",
        "GET / HTTP/1.3\r\nHost: a\r\n",
        505,
        SERVED,
    ),
    (
        "a host",
        "GET / HTTP/1.0\r\nHost: www.example.org\r\n",
        SERVED,
        SERVED,
    ),
    (
        "an IPv4 address",
        "GET / HTTP/1.0\r\nHost: 127.0.0.1\r\n",
        SERVED,
        SERVED,
    ),
    (
        "an IPv6 address",
        "GET / HTTP/1.0\r\nHost: [::1]\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a port",
        "GET / HTTP/1.0\r\nHost: www.example.org:80\r\n",
        SERVED,
        SERVED,
    ),
    (
        "IPv4 and port",
        "GET / HTTP/1.0\r\nHost: 127.0.0.1:80\r\n",
        SERVED,
        SERVED,
    ),
    (
        "IPv6 and port",
        "GET / HTTP/1.0\r\nHost: [::1]:80\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a path as host",
        "GET / HTTP/1.0\r\nHost: ../123.org\r\n",
        400,
        400,
    ),
    (
        "dots around a host",
        "GET / HTTP/1.0\r\nHost: .a.b.\r\n",
        400,
        SERVED,
    ),
    (
        "a dot behind a host",
        "GET / HTTP/1.0\r\nHost: a.b.\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a dot before a host",
        "GET / HTTP/1.0\r\nHost: .a.b\r\n",
        400,
        SERVED,
    ),
    (
        "two dots in a host",
        "GET / HTTP/1.0\r\nHost: a..b\r\n",
        400,
        SERVED,
    ),
    (
        "letters as port",
        "GET / HTTP/1.0\r\nHost: a.b:asd\r\n",
        400,
        400,
    ),
    (
        "a negative port",
        "GET / HTTP/1.0\r\nHost: a.b:-1\r\n",
        400,
        400,
    ),
    (
        "a port without host",
        "GET / HTTP/1.0\r\nHost: :80\r\n",
        400,
        400,
    ),
    (
        "a broken port and host",
        "GET / HTTP/1.0\r\nHost: .a.:b.\r\n",
        400,
        400,
    ),
    (
        "all characters of a host",
        "GET / HTTP/1.0\r\nHost: a.b-c.d123\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a hyphen before a host",
        "GET / HTTP/1.0\r\nHost: -a.c\r\n",
        400,
        SERVED,
    ),
    (
        "a dot as host",
        "GET / HTTP/1.0\r\nHost: .\r\n",
        400,
        SERVED,
    ),
    (
        "a letter in an address",
        "GET / HTTP/1.0\r\nHost: a192.168.2.10:1\r\n",
        400,
        SERVED,
    ),
    (
        "three numbers as address",
        "GET / HTTP/1.0\r\nHost: 192.168.2:1234\r\n",
        400,
        SERVED,
    ),
    (
        "SQL behind an address",
        "GET / HTTP/1.0\r\nHost: [::1]' UNION SELECT '/\r\n",
        400,
        400,
    ),
    (
        "a path behind an address",
        "GET / HTTP/1.0\r\nHost: [::1]/../../../\r\n",
        400,
        400,
    ),
    (
        "two hosts",
        "GET / HTTP/1.0\r\nHost: a.b\r\nHost: c.d\r\n",
        400,
        400,
    ),
    ("no host", "GET / HTTP/1.1\r\n", 400, 400),
    (
        "a URI",
        "GET http://www.example.org/ HTTP/1.0\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a URI without host",
        "GET http://a.b/ HTTP/1.1\r\n",
        SERVED,
        400,
    ),
    (
        "a URI with its host",
        "GET http://a.b/ HTTP/1.1\r\nHost: a.b\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a URI with another host",
        "GET http://a.b/ HTTP/1.1\r\nHost: c.d\r\n",
        400,
        SERVED,
    ),
    (
        "a negative length",
        "POST / HTTP/1.0\r\nContent-Length: -2\r\n",
        400,
        400,
    ),
    (
        "an empty length",
        "POST / HTTP/1.0\r\nContent-Length:\r\n",
        411,
        400,
    ),
    (
        "two lengths",
        "GET / HTTP/1.0\r\nContent-Length: 5\r\nContent-Length: 4\r\n",
        400,
        400,
    ),
    ("no length", "POST / HTTP/1.0\r\n", 411, SERVED),
    (
        "a GET with a body",
        "GET / HTTP/1.0\r\nContent-Length: 4\r\n",
        400,
        SERVED,
    ),
    (
        "a HEAD with a body",
        "HEAD / HTTP/1.0\r\nContent-Length: 4\r\n",
        400,
        SERVED,
    ),
    (
        "a folded line",
        "GET / HTTP/1.0\r\nABC:foo\r\n  bc\r\n",
        SERVED,
        400,
    ),
    (
        "a folded line of two",
        "GET / HTTP/1.0\r\nA: \r\nA: foobar\r\n  baz\r\n",
        SERVED,
        400,
    ),
    (
        "a space behind a name",
        "GET / HTTP/1.0\r\nABC : foo\r\n",
        400,
        400,
    ),
    (
        "a space in a name",
        "GET / HTTP/1.0\r\nABC a: foo\r\n",
        400,
        400,
    ),
    (
        "no space behind a colon",
        "GET / HTTP/1.0\r\nABC:foo\r\n",
        SERVED,
        SERVED,
    ),
    (
        "two types",
        "GET / HTTP/1.0\r\nContent-Type: 5\r\nContent-Type: 4\r\n",
        400,
        SERVED,
    ),
    (
        "two ranges",
        "GET / HTTP/1.0\r\nRange: bytes=5-6\r\nRange: bytes=5-9\r\n",
        SERVED,
        SERVED,
    ),
    (
        "a broken range",
        "GET / HTTP/1.0\r\nRange: 0\r\nRange: bytes=5-9\r\n",
        SERVED,
        SERVED,
    ),
    (
        "two tags",
        "GET / HTTP/1.0\r\nIf-None-Match: 5\r\nIf-None-Match: 4\r\n",
        SERVED,
        SERVED,
    ),
    (
        "two dates",
        "GET / HTTP/1.0\r\nIf-Modified-Since: 5\r\nIf-Modified-Since: 4\r\n",
        400,
        SERVED,
    ),
    (
        "NUL",
        "GET / HTTP/1.0\r\nIf-Modified-Since: \0\r\n",
        400,
        400,
    ),
];

#[test]
fn the_request_heads_of_lighttpd_are_decided_as_documented() {
    for (what, head, _, expected) in HEADS {
        let input = format!("{head}\r\n1234");
        let transcript = Transcript::of([input.as_bytes()]);
        let first = transcript.requests.first();
        let found = match (first, transcript.error) {
            // What is behind a request is another one, which is cut off.
            (Some(_), _) | (None, None) => SERVED,
            (None, Some(error)) => error.status().as_u16(),
        };
        assert_eq!(found, *expected, "{what}: {transcript:?}");
    }
    // The table says what the codec alone can: 405, 411 and 501 are of handlers.
    let same = HEADS.iter().filter(|(_, _, theirs, ours)| theirs == ours);
    assert_eq!((HEADS.len(), same.count()), (70, 45));
}
