//! Origins of every family: files, uploads, ranges, trailers and interim responses pass in both directions,
//! over either version of HTTP on either side.

use apus_testkit::h2::{data, flag, frame, kind, literal, request_with};

use super::origins::{LARGE, Origin, SMALL, folder, large};
use super::{Configuration, Front, VERSIONS, curl};
use crate::clients::certificate;
use crate::harness::Home;

/// An origin, and the server in front of it.
struct ProxiedOrigin {
    origin: Origin,
    front: Front,
}

impl ProxiedOrigin {
    fn new(origin: Origin) -> Self {
        let front = Front::of([origin.address()]);
        Self { origin, front }
    }

    fn over_http2(origin: Origin) -> Self {
        let configuration = Configuration::of([origin.address()]);
        let front = configuration.group("protocol = \"h2\"").serve();
        Self { origin, front }
    }

    /// Through a second server, to which the first one speaks HTTP/3.
    fn over_http3(origin: Origin) -> Self {
        let between = Configuration::of([origin.address()]).tls().serve();
        let front = between.behind_http3(|configuration| configuration);
        Self { origin, front }
    }

    /// quic-go, which speaks HTTP/3.
    fn quic_go(retry: bool) -> Self {
        let home = Home::new();
        certificate(&home, "origin", "localhost");
        let origin = Origin::quic_go(&home.path("origin"), retry);
        let node = format!("https://localhost:{}", origin.address().port());
        let front = Configuration::of_names([node])
            .group("protocol = \"h3\"")
            .group("tls = { ca = \"origin.pem\" }")
            .serve_in(home);
        Self { origin, front }
    }

    /// Go over TLS, which chooses HTTP/2 if the client offers it.
    fn over_tls(protocol: &str) -> Self {
        let home = Home::new();
        certificate(&home, "origin", "localhost");
        let origin = Origin::go_over_tls(&home.path("origin"));
        let node = format!("https://localhost:{}", origin.address().port());
        let front = Configuration::of_names([node])
            .group(&format!("protocol = \"{protocol}\""))
            .group("tls = { ca = \"origin.pem\" }")
            .serve_in(home);
        Self { origin, front }
    }
}

/// The origins that generate responses, unlike nginx.
fn programs() -> Vec<ProxiedOrigin> {
    vec![
        ProxiedOrigin::new(Origin::python()),
        ProxiedOrigin::new(Origin::node()),
        ProxiedOrigin::new(Origin::go()),
        ProxiedOrigin::over_http2(Origin::go()),
        ProxiedOrigin::over_tls("http/1.1"),
        ProxiedOrigin::over_tls("h2"),
        ProxiedOrigin::over_tls("auto"),
        ProxiedOrigin::over_http3(Origin::go()),
        ProxiedOrigin::quic_go(false),
    ]
}

fn families() -> Vec<ProxiedOrigin> {
    let mut all = programs();
    all.push(ProxiedOrigin::new(Origin::nginx()));
    all
}

#[test]
fn files_reach_the_client_whole_from_every_family_of_origins() {
    for ProxiedOrigin { origin, front } in families() {
        for version in VERSIONS {
            let who = format!("{} {version}", origin.name());
            let small = curl(version).get(&front.url("/small.txt"));
            assert_eq!((small.status, small.text()), (200, SMALL.into()), "{who}");
            for path in ["/large.bin", "/stream"] {
                if path == "/stream" && origin.name() == "nginx" && version == VERSIONS[1] {
                    continue;
                }
                let reply = curl(version).get(&front.url(path));
                assert_eq!(reply.status, 200, "{who} {path}");
                assert!(reply.body == large(), "{who} {path}");
            }
            let head = curl(version)
                .args(&["--head"])
                .get(&front.url("/large.bin"));
            let length = head.field("content-length").to_owned();
            assert_eq!((head.status, length), (200, LARGE.to_string()), "{who}");
            let missing = curl(version).get(&front.url("/nowhere"));
            assert_eq!(missing.status, 404, "{who}");
        }
    }
}

#[test]
fn an_origin_over_http_3_has_the_address_proved_by_a_retry_packet() {
    let ProxiedOrigin {
        front,
        origin: _origin,
    } = ProxiedOrigin::quic_go(true);
    let small = front.get("/small.txt");
    assert_eq!((small.status, small.text()), (200, SMALL.into()));
}

#[test]
fn uploads_reach_every_family_of_origins_and_return_whole() {
    let upload = format!("@{}", folder().join("large.bin").display());
    let file = folder().join("large.bin");
    let file = file.to_str().unwrap();
    for ProxiedOrigin { origin, front } in programs() {
        for version in VERSIONS {
            let url = front.url("/echo");
            for arguments in [
                // With a length; with a length after a 100; in chunks; empty.
                vec!["--header", "Expect:", "--data-binary", &upload],
                vec!["--header", "Expect: 100-continue", "--data-binary", &upload],
                vec![
                    "--request",
                    "POST",
                    "--header",
                    "Transfer-Encoding: chunked",
                    "-T",
                    file,
                ],
                vec!["--data-binary", ""],
            ] {
                let who = format!("{} {version} {arguments:?}", origin.name());
                let expected = if arguments.len() == 2 { &[] } else { large() };
                // HTTP/2 has no chunks: there the request only has no length.
                let reply = curl(version).args(&arguments).run(&url).expect(&who);
                assert_eq!(reply.status, 200, "{who}");
                assert!(reply.body == expected, "{who}");
            }
        }
    }
}

#[test]
fn a_file_that_is_put_through_the_proxy_is_stored_by_nginx() {
    let ProxiedOrigin {
        front,
        origin: _origin,
    } = ProxiedOrigin::new(Origin::nginx());
    let file = folder().join("large.bin");
    for (number, version) in VERSIONS.into_iter().enumerate() {
        let url = front.url(&format!("/kept/{number}"));
        let put = curl(version)
            .args(&["-T", file.to_str().unwrap()])
            .get(&url);
        assert_eq!(put.status, 201);
        assert!(curl(version).get(&url).body == large());
        let delete = curl(version).args(&["--request", "DELETE"]).get(&url);
        assert_eq!((delete.status, delete.body.len()), (204, 0));
        assert_eq!(curl(version).get(&url).status, 404);
    }
}

#[test]
fn range_and_conditional_requests_pass() {
    for ProxiedOrigin { origin, front } in [
        ProxiedOrigin::new(Origin::nginx()),
        ProxiedOrigin::new(Origin::go()),
        ProxiedOrigin::over_http2(Origin::go()),
        ProxiedOrigin::over_http3(Origin::go()),
        ProxiedOrigin::quic_go(false),
    ] {
        let url = front.url("/large.bin");
        for version in VERSIONS {
            let who = format!("{} {version}", origin.name());
            for (range, part) in [
                ("0-0", &large()[..1]),
                ("1000-1999", &large()[1000..2000]),
                ("-100", &large()[LARGE - 100..]),
                ("10000000-", &large()[10_000_000..]),
            ] {
                let reply = curl(version).args(&["--range", range]).get(&url);
                assert_eq!(reply.status, 206, "{who}");
                assert!(reply.body == part, "{who} {range}");
            }
            let several = curl(version).args(&["--range", "0-9,20-29"]).get(&url);
            let parts = several.field("content-type").to_owned();
            assert!(parts.starts_with("multipart/byteranges"), "{who} {parts}");
            let past = curl(version).args(&["--range", &format!("{LARGE}-")]);
            assert_eq!(past.get(&url).status, 416, "{who}");
            let since = several.field("last-modified").to_owned();
            let unchanged = curl(version).args(&["--time-cond", &since]).get(&url);
            let unchanged = (unchanged.status, unchanged.body.len());
            assert_eq!(unchanged, (304, 0), "{who}");
        }
    }
}

#[test]
fn trailers_pass_to_the_client() {
    for ProxiedOrigin { origin, front } in [
        ProxiedOrigin::new(Origin::node()),
        ProxiedOrigin::new(Origin::go()),
        ProxiedOrigin::over_http2(Origin::go()),
        ProxiedOrigin::over_http3(Origin::go()),
        ProxiedOrigin::quic_go(false),
    ] {
        let received = front.request(
            "GET /trailers HTTP/1.1\r\nHost: localhost\r\nConnection: TE\r\nTE: trailers\r\n\r\n",
        );
        let got = (received.text(), received.trailers);
        assert_eq!(
            got,
            ("content".into(), vec!["x-sum: 7".into()]),
            "{}",
            origin.name()
        );
        let mut peer = front.open();
        let stream = peer.request(
            &request_with("GET", "/trailers", &[("te", "trailers")]),
            true,
        );
        let response = peer.response(stream);
        let trailers = vec![("x-sum".to_owned(), "7".to_owned())];
        assert_eq!(
            (response.text(), &response.trailers),
            ("content".into(), &trailers)
        );
    }
}

#[test]
fn trailers_pass_to_the_origin() {
    for ProxiedOrigin { origin, front } in [
        ProxiedOrigin::new(Origin::go()),
        ProxiedOrigin::over_http2(Origin::go()),
        ProxiedOrigin::over_tls("h2"),
        ProxiedOrigin::over_http3(Origin::go()),
        ProxiedOrigin::quic_go(false),
    ] {
        let expected = (200, "5\nX-Note: seven\n".to_owned());
        let received = front.request(
            "POST /sum HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\
             Trailer: x-note, x-real-ip\r\n\r\n5\r\nhello\r\n0\r\nX-Real-IP: 192.0.2.1\r\n\
             X-Note: seven\r\nCookie: a=b\r\n\r\n",
        );
        let text = received.text();
        assert_eq!((received.status, text), expected, "{}", origin.name());
        let mut peer = front.open();
        let stream = peer.request(
            &request_with("POST", "/sum", &[("trailer", "x-note, x-real-ip")]),
            false,
        );
        peer.send(data(stream, "hello", false));
        let flags = flag::END_HEADERS | flag::END_STREAM;
        // The trailers of a client cannot set its address at the origin either.
        let lines = [
            ("x-real-ip", "192.0.2.1"),
            ("x-note", "seven"),
            ("cookie", "a=b"),
        ];
        let block = lines.map(|(name, value)| literal(name, value)).concat();
        peer.send(frame(kind::HEADERS, flags, stream, block));
        let response = peer.response(stream);
        assert_eq!(
            (response.status, response.text()),
            expected,
            "{}",
            origin.name()
        );
    }
}

#[test]
fn early_hints_reach_the_client_before_the_final_response() {
    for ProxiedOrigin { origin, front } in [
        ProxiedOrigin::new(Origin::node()),
        ProxiedOrigin::new(Origin::go()),
        ProxiedOrigin::over_http2(Origin::go()),
        ProxiedOrigin::over_http3(Origin::go()),
        ProxiedOrigin::quic_go(false),
    ] {
        let mut wire = front.connect();
        wire.send("GET /early HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let hints = wire.read();
        let link = hints.field("link").map(str::to_owned);
        let expected = Some("</style.css>; rel=preload".to_owned());
        assert_eq!((hints.status, link), (103, expected), "{}", origin.name());
        let response = wire.read();
        assert_eq!((response.status, response.text()), (200, "late\n".into()));
        let response = front.open().fetch("/early");
        assert_eq!(
            (&response.interim, response.text()),
            (&vec![103], "late\n".into())
        );
        // HTTP/1.0 has no interim responses (RFC 9110 section 15.2).
        let mut wire = front.connect();
        wire.send("GET /early HTTP/1.0\r\nHost: localhost\r\n\r\n");
        assert_eq!(wire.read_head().status, 200);
    }
}

#[test]
fn a_client_that_expects_100_continue_gets_it_from_the_origin() {
    for ProxiedOrigin { origin, front } in programs() {
        let mut wire = front.connect();
        wire.send(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n\
             Content-Length: 5\r\n\r\n",
        );
        assert_eq!(wire.read().status, 100, "{}", origin.name());
        wire.send("hello");
        let response = wire.read();
        let got = (response.status, response.text());
        assert_eq!(got, (200, "hello".into()), "{}", origin.name());
    }
}
