//! Invalid or hostile responses of an origin in HTTP/1.1 (RFC 9112): none reaches a client as if it were
//! valid, none costs memory without bound, and no client ever gets a byte of the response to another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use apus_testkit::h2::request_with;

use super::scripted_origin::{ScriptedConnection, ScriptedOrigin};
use super::{Configuration, Front, VERSIONS, curl};
use crate::harness::wait_until;
use crate::wire::Wire;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// Response heads that are malformed or leave the length of the response ambiguous.
const BAD_HEADS: [(&str, &str); 26] = [
    ("no HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"),
    ("HTTP/0.9", "<html>hello</html>\r\n\r\n"),
    ("HTTP/2 in text", "HTTP/2 200 OK\r\n\r\n"),
    ("no status", "HTTP/1.1 OK\r\n\r\n"),
    ("a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"),
    ("a status of four digits", "HTTP/1.1 2000 OK\r\n\r\n"),
    ("a status below 100", "HTTP/1.1 099 OK\r\n\r\n"),
    (
        "two lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\nsmugg",
    ),
    (
        "a list of lengths",
        "HTTP/1.1 200 OK\r\nContent-Length: 4, 5\r\n\r\nsmugg",
    ),
    (
        "a length with a sign",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nsmugg",
    ),
    (
        "a length below 0",
        "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nsmugg",
    ),
    (
        "a length in hexadecimal",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x5\r\n\r\nsmugg",
    ),
    (
        "an empty length",
        "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\nsmugg",
    ),
    (
        "a length beyond numbers",
        "HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551617\r\n\r\ns",
    ),
    (
        "a length with a coding",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsmugg\r\n0\r\n\r\n",
    ),
    (
        "a coding with a length",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n5\r\nsmugg\r\n0\r\n\r\n",
    ),
    (
        "a coding that is none",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\nsmugg",
    ),
    (
        "chunked twice",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\n5\r\nsmugg\r\n0\r\n\r\n",
    ),
    (
        "chunked not last",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n5\r\nsmugg\r\n0\r\n\r\n",
    ),
    (
        "chunked in HTTP/1.0",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nsmugg\r\n0\r\n\r\n",
    ),
    (
        "a space before the colon",
        "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n\r\nsmugg",
    ),
    (
        "a name with a space",
        "HTTP/1.1 200 OK\r\nX Y: 5\r\nContent-Length: 5\r\n\r\nsmugg",
    ),
    (
        "a line without a colon",
        "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 5\r\n\r\nsmugg",
    ),
    (
        "a NUL",
        "HTTP/1.1 200 OK\r\nX: a\0b\r\nContent-Length: 5\r\n\r\nsmugg",
    ),
    (
        "a bare CR",
        "HTTP/1.1 200 OK\r\nX: a\rContent-Length: 9\r\nContent-Length: 5\r\n\r\nsmugg",
    ),
    (
        "nothing but an interim response",
        "HTTP/1.1 100 Continue\r\n\r\n",
    ),
];

#[test]
fn an_invalid_response_head_causes_a_502() {
    for (rule, head) in BAD_HEADS {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(head);
        });
        let front = Front::of([origin.address()]);
        for version in VERSIONS {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(reply.status, 502, "{rule} {version}");
            assert!(!reply.text().contains("smugg"), "{rule} {version}");
        }
    }
}

#[test]
fn invalid_chunks_abort_the_response() {
    for chunks in [
        "z\r\nhello\r\n0\r\n\r\n",
        "-1\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\r\nhelloX\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nno field\r\n\r\n",
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            connection.send(chunks);
        });
        let front = Front::of([origin.address()]);
        for version in VERSIONS {
            match curl(version).run(&front.url("/")) {
                Ok(reply) => assert_eq!(reply.status, 502, "{chunks:?} {version}"),
                Err(error) => assert!(!error.contains("(28)"), "{chunks:?} {version}: {error}"),
            }
        }
    }
}

/// An origin that floods its first two connections and responds correctly on all others.
fn flooding(beginning: &'static str, again: Vec<u8>) -> ScriptedOrigin {
    ScriptedOrigin::start(move |connection| {
        let floods = connection.number() < VERSIONS.len();
        while connection.read_head().is_some() {
            if floods {
                connection.send(beginning);
                connection.flood(&again);
                return;
            }
            connection.send(GOOD);
        }
    })
}

#[test]
fn endless_response_heads_cause_a_502_and_cost_no_memory() {
    let line = format!("X-Filler: {}\r\n", "x".repeat(1000));
    for (flood, beginning, again) in [
        ("a status line", "HTTP/1.1 200 ", vec![b'x'; 1000]),
        ("field lines", "HTTP/1.1 200 OK\r\n", line.into_bytes()),
        (
            "tiny field lines",
            "HTTP/1.1 200 OK\r\n",
            b"a:\r\n".repeat(1000),
        ),
        ("a field line", "HTTP/1.1 200 OK\r\nX: ", vec![b'x'; 1000]),
        (
            "interim responses",
            "",
            b"HTTP/1.1 102 Processing\r\n\r\n".repeat(100),
        ),
        (
            "early hints",
            "",
            b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n".repeat(100),
        ),
        ("empty lines", "", b"\r\n".repeat(1000)),
    ] {
        let origin = flooding(beginning, again);
        let configuration = Configuration::of([origin.address()]);
        let front = configuration
            .group("retry = { tries = 1 }")
            .group("passive = false")
            .serve();
        for version in VERSIONS {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(reply.status, 502, "{flood} {version}");
        }
        front.assert_memory_is_bounded();
        assert_eq!(front.get("/").text(), "good", "{flood}");
    }
}

#[test]
fn endless_chunk_lines_and_trailers_abort_the_response_and_cost_no_memory() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n";
    for (flood, rest, again) in [
        ("an extension", "5;", &b"x"[..]),
        ("zeros", "", b"0"),
        ("trailers", "0\r\n", b"X-Trailer: value\r\n"),
    ] {
        let beginning: &'static str = format!("{head}{rest}").leak();
        let origin = flooding(beginning, again.repeat(1000));
        let front = Front::of([origin.address()]);
        for version in VERSIONS {
            let reply = curl(version).run(&front.url("/"));
            assert!(reply.is_err(), "{flood} {version}: {reply:?}");
        }
        front.assert_memory_is_bounded();
        assert_eq!(front.get("/").text(), "good", "{flood}");
    }
}

#[test]
fn a_content_length_whose_body_never_comes_reserves_no_memory() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\nsome");
        connection.freeze();
    });
    let front = Front::of([origin.address()]);
    let mut clients: Vec<Wire> = (0..50).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read_head().status, 200);
    }
    front.assert_memory_is_bounded();
}

#[test]
fn an_unread_response_costs_no_memory() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection.send("HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\n");
        connection.flood([b'x'; 65_536]);
    });
    let front = Front::of([origin.address()]);
    let mut clients: Vec<Wire> = (0..20).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.wait();
    }
    let mut peer = front.open();
    let streams: Vec<u32> = (0..20)
        .map(|_| peer.request(&request_with("GET", "/", &[]), true))
        .collect();
    for stream in streams {
        assert_eq!(peer.head(stream).status, 200);
    }
    front.assert_memory_is_bounded();
}

/// Asserts that a client of an origin that sends these bytes gets no more than the expected status and body, and that
/// the next client gets nothing of them.
fn assert_no_client_sees_poison(sent: &str, method: &str, expected: (u16, &str)) {
    let response = sent.to_owned();
    let origin = ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_head() {
            if head.starts_with("GET /good") {
                connection.send(GOOD);
            } else {
                connection.send(&response);
            }
        }
    });
    let front = Configuration::of([origin.address()])
        .global("worker_threads = 1")
        .serve();
    for _ in 0..3 {
        let mut wire = front.connect();
        wire.send(format!(
            "{method} /bad HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        ));
        let rest = String::from_utf8_lossy(&wire.rest()).into_owned();
        assert!(
            rest.starts_with(&format!("HTTP/1.1 {} ", expected.0)),
            "{sent:?}: {rest}"
        );
        assert!(
            rest.ends_with(&format!("\r\n\r\n{}", expected.1)),
            "{sent:?}: {rest}"
        );
        assert!(!rest.contains("poison"), "{sent:?}: {rest}");
        let other = front.get("/good");
        assert_eq!(
            (other.status, other.text()),
            (200, "good".into()),
            "{sent:?}"
        );
    }
}

#[test]
fn bytes_beyond_the_content_length_reach_no_other_client() {
    let poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    for first in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nfirst",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nfirst",
    ] {
        let status = first[9..12].parse().unwrap();
        for more in ["poison", poison, "\r\npoison"] {
            assert_no_client_sees_poison(&format!("{first}{more}"), "GET", (status, "first"));
        }
    }
    let sent = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n{poison}");
    assert_no_client_sees_poison(&sent, "GET", (200, ""));
}

#[test]
fn a_body_where_no_body_is_allowed_reaches_no_client() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 6",
        "HTTP/1.1 200 OK\r\nContent-Length: 600",
        "HTTP/1.1 404 Not Found\r\nContent-Length: 6",
    ] {
        let status = head[9..12].parse().unwrap();
        let sent = format!("{head}\r\n\r\npoison");
        assert_no_client_sees_poison(&sent, "HEAD", (status, ""));
    }
    for method in ["GET", "HEAD"] {
        for head in [
            "HTTP/1.1 204 No Content",
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"",
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 6",
        ] {
            let status = head[9..12].parse().unwrap();
            let sent = format!("{head}\r\n\r\npoison");
            assert_no_client_sees_poison(&sent, method, (status, ""));
        }
    }
}

#[test]
fn a_response_without_a_request_reaches_no_client() {
    let (allowed, sent) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (may_send, has_sent) = (allowed.clone(), sent.clone());
    let origin = ScriptedOrigin::start(move |connection| {
        let first = connection.number() == 0;
        while connection.read_head().is_some() {
            connection.send(GOOD);
            if first {
                while !may_send.load(Ordering::SeqCst) {
                    thread::yield_now();
                }
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison");
                has_sent.store(true, Ordering::SeqCst);
            }
        }
    });
    let front = Configuration::of([origin.address()])
        .global("worker_threads = 1")
        .serve();
    assert_eq!(front.get("/").text(), "good");
    allowed.store(true, Ordering::SeqCst);
    wait_until("the response was sent", || sent.load(Ordering::SeqCst));
    for _ in 0..3 {
        assert_eq!(front.get("/").text(), "good");
    }
    assert_eq!(
        origin.connections(),
        2,
        "the first connection was used again"
    );
}

#[test]
fn interim_responses_are_not_taken_for_the_final_one() {
    let origin = ScriptedOrigin::start(|connection| {
        while connection.read_head().is_some() {
            connection.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n");
            connection.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 6\r\n\r\n");
            connection.send(GOOD);
        }
    });
    let front = Front::of([origin.address()]);
    for version in VERSIONS {
        for _ in 0..3 {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(
                (reply.status, reply.text()),
                (200, "good".into()),
                "{version}"
            );
        }
    }
}

#[test]
fn a_response_delimited_by_the_end_of_the_connection_is_complete() {
    for version in ["HTTP/1.1", "HTTP/1.0"] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(format!("{version} 200 OK\r\n\r\nall that there is"));
        });
        let front = Front::of([origin.address()]);
        for client in [VERSIONS[0], VERSIONS[1], "--http1.0"] {
            let reply = curl(client).get(&front.url("/"));
            let got = (reply.status, reply.text());
            assert_eq!(got, (200, "all that there is".into()), "{version} {client}");
        }
    }
}

#[test]
fn connection_specific_fields_of_a_response_do_not_reach_the_client() {
    let origin = ScriptedOrigin::responding(
        "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\n\
         X-Hop: here\r\nProxy-Authenticate: Basic\r\nTE: trailers\r\nUpgrade: h2c\r\n\
         X-End: there\r\nContent-Length: 4\r\n\r\ngood",
    );
    let front = Front::of([origin.address()]);
    for version in VERSIONS {
        let reply = curl(version).get(&front.url("/"));
        assert_eq!((reply.status, reply.field("x-end")), (200, "there"));
        for name in ["keep-alive", "x-hop", "te", "upgrade"] {
            assert_eq!(reply.field(name), "", "{name} {version}");
        }
    }
}

#[test]
fn a_request_to_an_origin_that_stops_reading_times_out() {
    let origin = ScriptedOrigin::start(|connection: &mut ScriptedConnection| {
        connection.read_head();
        connection.hold();
    });
    let front = Configuration::of([origin.address()])
        .group("write_timeout = \"500ms\"")
        .serve();
    let upload = format!("@{}", super::origins::folder().join("large.bin").display());
    let arguments = ["--header", "Expect:", "--data-binary", &upload];
    for version in VERSIONS {
        let reply = curl(version).args(&arguments).run(&front.url("/"));
        // A client that is still sending may lose the response with its connection.
        assert!(
            reply.as_ref().map_or(true, |reply| reply.status == 504),
            "{version} {reply:?}"
        );
        if let Err(error) = reply {
            assert!(!error.contains("(28)"), "{version}: {error}");
        }
    }
    front.assert_memory_is_bounded();
}

#[test]
fn a_redirect_of_an_origin_leads_below_the_location() {
    for (location_path, upstream, sent, expected) in [
        (
            "/app/",
            "app/v1/",
            "Location: /v1/login?a#b",
            "/app/login?a#b",
        ),
        ("/app/", "app/v1/", "Location: /v1", "/app/"),
        ("/app/", "app/v1", "Location: /v1/login", "/app/login"),
        ("/app/", "app/", "Location: /login", "/app/login"),
        ("/app/", "app/", "Location: /app/login", "/app/login"),
        ("/app/", "app/v1/", "Location: /other", "/other"),
        (
            "/app/",
            "app/v1/",
            "Location: http://NODE/v1/login",
            "/app/login",
        ),
        ("/app/", "app/v1/", "Location: http://NODE/other", "/other"),
        (
            "/app/",
            "app/v1/",
            "Location: http://localhost/v1/login",
            "http://localhost/app/login",
        ),
        (
            "/app/",
            "app/v1/",
            "Location: https://a.example/v1/login",
            "https://a.example/v1/login",
        ),
        ("/app/", "app/v1/", "Content-Location: /v1/a", "/app/a"),
        ("/app/", "app/v1/", "Refresh: 5; url=/v1/a", "5; url=/app/a"),
        (
            "/app/",
            "app/v1/",
            "Set-Cookie: a=1; Path=/v1/",
            "a=1; Path=/app/",
        ),
        (
            "/app/",
            "app/v1/",
            "Link: </v1/a>; rel=next",
            "</v1/a>; rel=next",
        ),
        ("/app/", "app", "Location: /v1/login", "/v1/login"),
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            while let Some(head) = connection.read_request() {
                let node = head.lines().find_map(|line| line.strip_prefix("x-node: "));
                let line = sent.replace("NODE", node.unwrap_or_default());
                connection.send(format!(
                    "HTTP/1.1 302 Found\r\n{line}\r\nContent-Length: 0\r\n\r\n"
                ));
            }
        });
        let front = Configuration::of([origin.address()])
            .site(&format!(
                "[[sites.locations]]\npath = \"{location_path}\"\nupstream = \"{upstream}\"\n\
                 request_headers.set = {{ x-node = \"{}\" }}",
                origin.address()
            ))
            .serve();
        let field = sent.split_once(':').unwrap().0.to_ascii_lowercase();
        for version in VERSIONS {
            let client = curl(version).args(&["--header", "Host: localhost"]);
            let reply = client.get(&front.url("/app/x"));
            assert_eq!(
                reply.field(&field),
                expected,
                "{version} {location_path} {upstream} {sent}"
            );
        }
    }
}

#[test]
fn trailers_that_are_not_allowed_do_not_cut_the_response() {
    let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
        4 \r\ngood\r\n0 ;x\r\nHost: a\r\nContent-Length: 9\r\nSet-Cookie: a\r\nX-Sum: 1\r\n\r\n";
    let origin = ScriptedOrigin::responding(response);
    let direct = Front::of([origin.address()]);
    let between = Configuration::of([origin.address()]).tls().serve();
    for front in [direct, between.behind_http3(|front| front)] {
        for version in VERSIONS {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(
                (reply.status, reply.text()),
                (200, "good".into()),
                "{version}"
            );
        }
        let mut wire = front.connect();
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\nTE: trailers\r\nConnection: TE\r\n\r\n");
        let received = wire.read();
        assert!(
            received.trailers.iter().all(|line| line == "x-sum: 1"),
            "{:?}",
            received.trailers
        );
    }
}

#[test]
fn an_old_origin_is_read_leniently_if_its_group_says_so() {
    for old in [
        "HTTP/1.1 200 OK\nContent-Length: 4\n\ngood",
        "HTTP/1.1 200 OK\r\nno field\r\nContent-Length: 4\r\n\r\ngood",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nContent-Length: 4\r\n\r\ngood",
        "HTTP/1.1 200 OK\r\nContent-Length: 4, 4\r\n\r\ngood",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\ngood\n0\n\n",
    ] {
        let origin = ScriptedOrigin::responding(old);
        let strict = Front::of([origin.address()]);
        let lenient = Configuration::of([origin.address()])
            .group("lenient = true")
            .serve();
        for version in VERSIONS {
            let reply = curl(version).run(&strict.url("/"));
            assert!(reply.map_or(true, |reply| reply.status == 502), "{old:?}");
            let reply = curl(version).get(&lenient.url("/"));
            assert_eq!(
                (reply.status, reply.text()),
                (200, "good".into()),
                "{old:?}"
            );
        }
    }
    for (rule, head) in BAD_HEADS {
        if ["a line without a colon"].contains(&rule) || rule.contains("twice") {
            continue;
        }
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(head);
        });
        let front = Configuration::of([origin.address()])
            .group("lenient = true")
            .serve();
        let reply = front.get("/");
        assert!(
            reply.status == 502 || head.contains('\n') && !head.contains("\r\n"),
            "{rule}: {}",
            reply.status
        );
    }
}

#[test]
fn the_limits_of_a_head_of_an_origin_are_keys() {
    let lines = |count: usize| {
        (0..count)
            .map(|at| format!("X-{at}: 1\r\n"))
            .collect::<String>()
    };
    for (count, status) in [(8, 200), (9, 200), (10, 502)] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n",
            lines(count)
        );
        let origin = ScriptedOrigin::responding(head);
        let direct = Configuration::of([origin.address()]).group("response_header_fields = 10");
        assert_eq!(direct.serve().get("/").status, status, "{count}");
    }
    // The fields of the server between are `content-length`, `date` and `server`, beside the fields of the origin.
    for (count, status) in [(7, 200), (8, 502)] {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n",
            lines(count)
        );
        let origin = ScriptedOrigin::responding(head);
        let between = || Configuration::of([origin.address()]).tls().serve();
        let http3 = between().behind_http3(|front| front.group("response_header_fields = 10"));
        assert_eq!(http3.get("/").status, status, "HTTP/3 {count}");
    }
    for (bytes, status) in [(900, 200), (1100, 502)] {
        let filling = "x".repeat(bytes);
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nX: {filling}\r\n\r\n");
        let origin = ScriptedOrigin::responding(head);
        let front = Configuration::of([origin.address()]).group("response_header_size = 1");
        assert_eq!(front.serve().get("/").status, status, "{bytes}");
    }
}
