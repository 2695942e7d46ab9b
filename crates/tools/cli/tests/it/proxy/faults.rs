//! Origins that fail: killed, frozen, slow, closing, resetting. Clients get an error response within the
//! configured time, or the response of another node; a response that cannot be completed is aborted and never
//! looks complete.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::origins::{Origin, SMALL};
use super::scripted_origin::{ScriptedConnection, ScriptedOrigin};
use super::{Configuration, Front, VERSIONS, curl};
use crate::harness::wait_until;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// A fault before the response begins: its name, its script, and the status that clients get.
type Fault = (&'static str, fn(&mut ScriptedConnection), u16);

const FAULTS: [Fault; 6] = [
    ("closes at once", |_| {}, 502),
    (
        "closes after the request",
        |connection| drop(connection.read_head()),
        502,
    ),
    (
        "resets after the request",
        |connection| {
            connection.read_head();
            connection.reset();
        },
        502,
    ),
    (
        "closes within the head",
        |connection| {
            connection.read_head();
            connection.send("HTTP/1.1 200 OK\r\nContent-Le");
        },
        502,
    ),
    ("freezes before the head", ScriptedConnection::freeze, 504),
    (
        "freezes within the head",
        |connection| {
            connection.read_head();
            connection.send("HTTP/1.1 200 OK\r\nContent-Le");
            connection.freeze();
        },
        504,
    ),
];

fn with_timeouts_of_half_a_second(origin: &ScriptedOrigin) -> Configuration {
    Configuration::of([origin.address()])
        .group("first_byte_timeout = \"500ms\"")
        .group("read_timeout = \"500ms\"")
}

#[test]
fn a_fault_before_the_response_begins_causes_a_502_or_504() {
    for (fault, script, status) in FAULTS {
        let origin = ScriptedOrigin::start(script);
        let front = with_timeouts_of_half_a_second(&origin).serve();
        for version in VERSIONS {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(reply.status, status, "{fault} {version}");
            let post = curl(version).args(&["--data", "x"]).get(&front.url("/"));
            assert_eq!(post.status, status, "{fault} {version}");
        }
    }
}

#[test]
fn a_safe_request_that_fails_at_a_node_gets_the_response_of_another() {
    for (fault, script, _) in FAULTS {
        let bad = ScriptedOrigin::start(script);
        let good = ScriptedOrigin::responding(GOOD);
        let front = Configuration::of([bad.address(), good.address()])
            .group("first_byte_timeout = \"500ms\"")
            .group("passive = false")
            .serve();
        for _ in 0..4 {
            let reply = front.get("/");
            assert_eq!(
                (reply.status, reply.text()),
                (200, "good".into()),
                "{fault}"
            );
        }
        assert!(bad.connections() > 0, "{fault}");
        wait_until("the retry is logged", || {
            let log = front.apus.log();
            log.contains("tried another origin after one failed")
        });
        assert!(!front.apus.log().contains("once more"), "{fault}");
    }
}

#[test]
fn a_request_that_is_not_idempotent_is_not_repeated_once_a_node_may_have_seen_it() {
    for (fault, script, status) in FAULTS {
        if fault == "closes at once" {
            continue;
        }
        let bad = ScriptedOrigin::start(script);
        let good = ScriptedOrigin::responding(GOOD);
        let front = Configuration::of([bad.address(), good.address()])
            .global("worker_threads = 1")
            .group("first_byte_timeout = \"500ms\"")
            .group("passive = false")
            .serve();
        let mut statuses = Vec::new();
        for _ in 0..4 {
            let reply = front.request("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\npay");
            statuses.push(reply.status);
        }
        let failed = statuses.iter().filter(|found| **found == status).count();
        let succeeded = statuses.iter().filter(|found| **found == 200).count();
        assert_eq!((failed, succeeded), (2, 2), "{fault} {statuses:?}");
        let seen =
            good.received().matches("POST / ").count() + bad.received().matches("POST / ").count();
        assert_eq!(seen, 4, "{fault}");
    }
}

#[test]
fn a_killed_origin_causes_a_502_or_the_response_of_another_node() {
    let mut origin = Origin::node();
    let other = Origin::go();
    let front = Front::of([origin.address()]);
    let pair = Front::of([origin.address(), other.address()]);
    assert_eq!(front.get("/small.txt").status, 200);
    for _ in 0..4 {
        assert_eq!(pair.get("/small.txt").status, 200);
    }
    origin.kill();
    assert_eq!(front.get("/small.txt").status, 502);
    for _ in 0..20 {
        let reply = pair.get("/small.txt");
        assert_eq!((reply.status, reply.text()), (200, SMALL.into()));
    }
    front.apus.wait_for_log(&origin.address().to_string());
}

#[test]
fn a_dead_origin_does_not_flood_the_log() {
    let origin = ScriptedOrigin::responding(GOOD);
    let node = origin.address().to_string();
    let front = Configuration::of([origin.address()])
        .global("worker_threads = 1")
        .serve();
    drop(origin);
    let start = Instant::now();
    let mut wire = front.connect();
    for _ in 0..500 {
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(wire.read().status, 502);
    }
    // Ten lines per second, and those about the state of the node.
    let seconds = 1 + usize::try_from(start.elapsed().as_secs()).unwrap();
    let lines_of = || {
        let log = front.apus.log();
        log.lines().filter(|line| line.contains(&node)).count()
    };
    assert!(
        (1..=10 * seconds + 2).contains(&lines_of()),
        "{}",
        lines_of()
    );
    // The next line contains the number of lines that were withheld.
    wait_until("all faults are logged or counted", || {
        assert_eq!(front.get("/").status, 502);
        let withheld = |line: &str| {
            let count = line.split("\"withheld\":").nth(1)?;
            count.split([',', '}']).next()?.parse::<usize>().ok()
        };
        let log = front.apus.log();
        lines_of() + log.lines().filter_map(withheld).sum::<usize>() >= 500
    });
}

#[test]
fn a_frozen_origin_causes_a_504_and_gets_requests_again_once_it_resumes() {
    let origin = Origin::go();
    let front = Configuration::of([origin.address()])
        .group("first_byte_timeout = \"500ms\"")
        .group("passive = false")
        .serve();
    assert_eq!(front.get("/small.txt").status, 200);
    origin.freeze();
    assert_eq!(front.get("/small.txt").status, 504);
    origin.resume();
    wait_until("the origin responds again", || {
        front.get("/small.txt").status == 200
    });
}

#[test]
fn a_frozen_origin_does_not_delay_requests_to_another() {
    let frozen = ScriptedOrigin::start(ScriptedConnection::freeze);
    let good = ScriptedOrigin::responding(GOOD);
    let front = Configuration::of([frozen.address()])
        .global("worker_threads = 1")
        .site(&format!(
            "[[sites.upstreams]]\nname = \"good\"\nnodes = [\"{}\"]\n\
             [[sites.locations]]\npath = \"/good\"\nhandler = \"reverse_proxy\"\n\
             upstream = \"good\"",
            good.address()
        ))
        .serve();
    let mut waiting: Vec<_> = (0..100).map(|_| front.connect()).collect();
    for wire in &mut waiting {
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    wait_until("all requests wait for the origin", || {
        frozen.connections() == 100
    });
    for _ in 0..20 {
        assert_eq!(front.get("/good").text(), "good");
    }
    assert!(waiting.iter().all(|wire| !wire.is_readable()));
}

#[test]
fn a_slow_response_reaches_the_client_whole() {
    let origin = ScriptedOrigin::start(|connection| {
        while connection.read_head().is_some() {
            let response = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                          5;slow=yes\r\nhello\r\n3\r\n, y\r\n2\r\nou\r\n0\r\nX-Sum: 1\r\n\r\n";
            connection.send_slowly(response, Duration::from_millis(2));
        }
    });
    let front = with_timeouts_of_half_a_second(&origin).serve();
    for version in VERSIONS {
        let reply = curl(version).get(&front.url("/"));
        assert_eq!((reply.status, reply.text()), (200, "hello, you".into()));
    }
}

/// A way to truncate a response after the head of the request was read.
type Truncation = (&'static str, fn(&mut ScriptedConnection));

#[test]
fn a_truncated_response_never_looks_complete() {
    let truncations: [Truncation; 7] = [
        ("closed before its length", |connection| {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
        }),
        ("reset before its length", |connection| {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
            connection.reset();
        }),
        ("frozen before its length", |connection| {
            connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
            connection.freeze();
        }),
        ("closed within a chunk", |connection| {
            connection
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nsome of it");
        }),
        ("closed after a chunk", |connection| {
            connection.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
        }),
        ("closed within the last chunk", |connection| {
            connection
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\n");
        }),
        ("frozen within the trailers", |connection| {
            connection
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\nX: ");
            connection.freeze();
        }),
    ];
    for (truncation, script) in truncations {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            script(connection);
        });
        let front = with_timeouts_of_half_a_second(&origin).serve();
        for version in VERSIONS {
            let reply = curl(version).run(&front.url("/"));
            assert!(reply.is_err(), "{truncation} {version}: {reply:?}");
        }
        // HTTP/1.0 can only show it by the length or by a reset.
        let reply = curl("--http1.0").run(&front.url("/"));
        assert!(reply.is_err(), "{truncation} HTTP/1.0: {reply:?}");
    }
}

#[test]
fn after_a_truncated_response_the_next_client_gets_its_own() {
    let origin = ScriptedOrigin::start(|connection| {
        let first = connection.number() == 0;
        while connection.read_head().is_some() {
            if first {
                connection.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nof the first");
                return;
            }
            connection.send(GOOD);
        }
    });
    let front = Front::of([origin.address()]);
    assert!(curl(VERSIONS[0]).run(&front.url("/")).is_err());
    for _ in 0..5 {
        assert_eq!(front.get("/").text(), "good");
    }
}

#[test]
fn a_client_that_disconnects_during_a_response_affects_no_other() {
    let origin = Origin::node();
    let front = Configuration::of([origin.address()])
        .global("worker_threads = 1")
        .serve();
    for _ in 0..20 {
        let mut wire = front.connect();
        wire.send("GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wire.wait();
        drop(wire);
        assert_eq!(front.get("/small.txt").text(), SMALL);
    }
}

#[test]
fn an_upload_that_the_client_aborts_is_no_complete_request_for_the_origin() {
    for (framing, part) in [
        ("Content-Length: 100", "some of it"),
        ("Transfer-Encoding: chunked", "4\r\nsome\r\n"),
    ] {
        let complete = Arc::new(AtomicUsize::new(0));
        let seen = complete.clone();
        let origin = ScriptedOrigin::start(move |connection| {
            if connection.read_request().is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
                connection.send(GOOD);
            }
        });
        let front = Front::of([origin.address()]);
        let mut wire = front.connect();
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{part}"
        ));
        wait_until("the origin has a part of the body", || {
            origin.received().contains("some")
        });
        drop(wire);
        assert_eq!(front.get("/").text(), "good");
        assert_eq!(
            complete.load(Ordering::SeqCst),
            1,
            "only the second request is complete"
        );
    }
}

#[test]
fn an_idle_connection_that_the_origin_closed_fails_no_request() {
    let origin = ScriptedOrigin::start(|connection| {
        if connection.read_request().is_some() {
            connection.send(GOOD);
        }
    });
    let front = Configuration::of([origin.address()])
        .global("worker_threads = 1")
        .serve();
    for _ in 0..50 {
        assert_eq!(front.get("/").status, 200);
    }
    assert_eq!(origin.connections(), 50);
}

#[test]
fn an_early_response_of_the_origin_ends_the_upload() {
    let origin = ScriptedOrigin::start(|connection| {
        connection.read_head();
        connection
            .send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch");
    });
    let front = Front::of([origin.address()]);
    let upload = format!("@{}", super::origins::folder().join("large.bin").display());
    let arguments = ["--header", "Expect:", "--data-binary", &upload];
    let reply = curl("--http1.1").args(&arguments).get(&front.url("/"));
    assert_eq!((reply.status, reply.text()), (413, "much".into()));
}

#[test]
fn log_lines_about_origins_say_which_request_of_which_client_they_are_about() {
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort";
    for (response, message) in [
        ("", "no response from an origin"),
        (cut, "the response of an origin broke off"),
    ] {
        let origin = ScriptedOrigin::start(move |connection| {
            connection.read_head();
            connection.send(response);
        });
        let front = Configuration::of([origin.address()])
            .site("name = \"shop\"")
            .serve();
        // What could end a line, or a text within it, and begin another.
        let path = "/a%0A\"},{\"b\\";
        let mut wire = front.connect();
        let path = path.replace("%0A", "%20");
        wire.send(format!(
            "GET {path}?secret HTTP/1.1\r\nHost: A.Example\r\nConnection: close\r\n\r\n"
        ));
        wire.rest();
        let find = || {
            let log = front.apus.log();
            let lines = log.lines().filter(|line| line.contains(message));
            let mut lines =
                lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
            lines.next_back()
        };
        wait_until("the line is in the log", || find().is_some());
        let line = find().unwrap();
        let value = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(value("site"), "shop", "{line}");
        assert_eq!(value("group"), "shop/app", "{line}");
        assert_eq!(value("node"), origin.address().to_string(), "{line}");
        assert_eq!(value("host"), "a.example", "{line}");
        assert_eq!(value("path"), path, "{line}");
        assert_eq!(value("client"), "127.0.0.1", "{line}");
        assert!(value("request_id").len() >= 16, "{line}");
        assert!(!value("cause").is_empty(), "{line}");
    }
}
