//! Origins that fail: killed, frozen, slow, cutting, resetting. Clients get a clear answer within the
//! configured time, or that of another node; what has begun and cannot be ended is cut, and never
//! looks whole.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::origins::{Origin, SMALL};
use super::scripted_origin::{ScriptedOrigin, Stage};
use super::{Configuration, Front, VERSIONS, curl};
use crate::harness::wait_until;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";

/// What fails before an answer has begun: how, and the status that tells of it.
type Fault = (&'static str, fn(&mut Stage), u16);

const FAULTS: [Fault; 6] = [
    ("closes at once", |_| {}, 502),
    (
        "closes after the request",
        |stage| drop(stage.read_head()),
        502,
    ),
    (
        "resets after the request",
        |stage| {
            stage.read_head();
            stage.reset();
        },
        502,
    ),
    (
        "closes within the head",
        |stage| {
            stage.read_head();
            stage.send("HTTP/1.1 200 OK\r\nContent-Le");
        },
        502,
    ),
    ("freezes before the head", Stage::freeze, 504),
    (
        "freezes within the head",
        |stage| {
            stage.read_head();
            stage.send("HTTP/1.1 200 OK\r\nContent-Le");
            stage.freeze();
        },
        504,
    ),
];

fn patient_for_half_a_second(origin: &ScriptedOrigin) -> Configuration {
    Configuration::of([origin.address()])
        .group("first_byte_timeout = \"500ms\"")
        .group("read_timeout = \"500ms\"")
}

#[test]
fn a_fault_before_the_answer_is_a_clear_answer_of_our_own() {
    for (fault, play, status) in FAULTS {
        let origin = ScriptedOrigin::start(play);
        let front = patient_for_half_a_second(&origin).serve();
        for version in VERSIONS {
            let reply = curl(version).get(&front.url("/"));
            assert_eq!(reply.status, status, "{fault} {version}");
            let post = curl(version).args(&["--data", "x"]).get(&front.url("/"));
            assert_eq!(post.status, status, "{fault} {version}");
        }
    }
}

#[test]
fn a_safe_request_that_a_node_fails_is_answered_by_another() {
    for (fault, play, _) in FAULTS {
        let bad = ScriptedOrigin::start(play);
        let good = ScriptedOrigin::answering(GOOD);
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
        wait_until("the log tells of it", || {
            let log = front.apus.log();
            log.contains("tried another origin after one failed")
        });
        assert!(!front.apus.log().contains("once more"), "{fault}");
    }
}

#[test]
fn a_request_that_is_not_idempotent_is_not_repeated_once_a_node_may_have_seen_it() {
    for (fault, play, status) in FAULTS {
        if fault == "closes at once" {
            continue;
        }
        let bad = ScriptedOrigin::start(play);
        let good = ScriptedOrigin::answering(GOOD);
        let front = Configuration::of([bad.address(), good.address()])
            .global("worker_threads = 1")
            .group("first_byte_timeout = \"500ms\"")
            .group("passive = false")
            .serve();
        let mut statuses = Vec::new();
        for _ in 0..4 {
            let reply = front.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\npay");
            statuses.push(reply.status);
        }
        let failed = statuses.iter().filter(|found| **found == status).count();
        let answered = statuses.iter().filter(|found| **found == 200).count();
        assert_eq!((failed, answered), (2, 2), "{fault} {statuses:?}");
        let seen =
            good.received().matches("POST / ").count() + bad.received().matches("POST / ").count();
        assert_eq!(seen, 4, "{fault}");
    }
}

#[test]
fn a_killed_origin_is_a_502_and_another_node_answers_for_it() {
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
    let log = front.apus.log();
    let node = origin.address().to_string();
    assert!(log.contains(&node), "the log names no node: {log}");
}

#[test]
fn a_dead_origin_does_not_flood_the_log() {
    let origin = ScriptedOrigin::answering(GOOD);
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
    // Ten in a second, and that the node is out.
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
    // How many there would have been is told with the next.
    wait_until("all are accounted for", || {
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
fn a_frozen_origin_is_a_504_and_is_asked_again_once_it_thaws() {
    let origin = Origin::go();
    let front = Configuration::of([origin.address()])
        .group("first_byte_timeout = \"500ms\"")
        .group("passive = false")
        .serve();
    assert_eq!(front.get("/small.txt").status, 200);
    origin.freeze();
    assert_eq!(front.get("/small.txt").status, 504);
    origin.thaw();
    wait_until("it answers again", || front.get("/small.txt").status == 200);
}

#[test]
fn a_frozen_origin_holds_no_request_to_another() {
    let frozen = ScriptedOrigin::start(Stage::freeze);
    let good = ScriptedOrigin::answering(GOOD);
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
    wait_until("all wait for it", || frozen.connections() == 100);
    for _ in 0..20 {
        assert_eq!(front.get("/good").text(), "good");
    }
    assert!(waiting.iter().all(|wire| !wire.is_readable()));
}

#[test]
fn a_slow_answer_comes_whole() {
    let origin = ScriptedOrigin::start(|stage| {
        while stage.read_head().is_some() {
            let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
                          5;slow=yes\r\nhello\r\n3\r\n, y\r\n2\r\nou\r\n0\r\nX-Sum: 1\r\n\r\n";
            stage.dribble(answer, Duration::from_millis(2));
        }
    });
    let front = patient_for_half_a_second(&origin).serve();
    for version in VERSIONS {
        let reply = curl(version).get(&front.url("/"));
        assert_eq!((reply.status, reply.text()), (200, "hello, you".into()));
    }
}

/// How an answer is cut, after the head of its request was read.
type Cut = (&'static str, fn(&mut Stage));

#[test]
fn content_that_is_cut_never_looks_whole() {
    let cuts: [Cut; 7] = [
        ("closed before its length", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
        }),
        ("reset before its length", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
            stage.reset();
        }),
        ("frozen before its length", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nsome of it");
            stage.freeze();
        }),
        ("closed within a chunk", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nsome of it");
        }),
        ("closed after a chunk", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n");
        }),
        ("closed within the last chunk", |stage| {
            stage.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\n");
        }),
        ("frozen within the trailers", |stage| {
            stage
                .send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nsome\r\n0\r\nX: ");
            stage.freeze();
        }),
    ];
    for (cut, play) in cuts {
        let origin = ScriptedOrigin::start(move |stage| {
            stage.read_head();
            play(stage);
        });
        let front = patient_for_half_a_second(&origin).serve();
        for version in VERSIONS {
            let reply = curl(version).run(&front.url("/"));
            assert!(reply.is_err(), "{cut} {version}: {reply:?}");
        }
        // HTTP/1.0 can only tell by a length, or by a reset.
        let reply = curl("--http1.0").run(&front.url("/"));
        assert!(reply.is_err(), "{cut} HTTP/1.0: {reply:?}");
    }
}

#[test]
fn after_an_answer_was_cut_the_next_client_gets_its_own() {
    let origin = ScriptedOrigin::start(|stage| {
        let first = stage.number() == 0;
        while stage.read_head().is_some() {
            if first {
                stage.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nof the first");
                return;
            }
            stage.send(GOOD);
        }
    });
    let front = Front::of([origin.address()]);
    assert!(curl(VERSIONS[0]).run(&front.url("/")).is_err());
    for _ in 0..5 {
        assert_eq!(front.get("/").text(), "good");
    }
}

#[test]
fn a_client_that_leaves_within_an_answer_harms_no_other() {
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
fn a_client_that_leaves_within_an_upload_is_no_whole_request_to_the_origin() {
    for (framing, part) in [
        ("Content-Length: 100", "some of it"),
        ("Transfer-Encoding: chunked", "4\r\nsome\r\n"),
    ] {
        let whole = Arc::new(AtomicUsize::new(0));
        let seen = whole.clone();
        let origin = ScriptedOrigin::start(move |stage| {
            if stage.read_request().is_some() {
                seen.fetch_add(1, Ordering::SeqCst);
                stage.send(GOOD);
            }
        });
        let front = Front::of([origin.address()]);
        let mut wire = front.connect();
        wire.send(format!(
            "POST / HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{part}"
        ));
        wait_until("the origin has some of it", || {
            origin.received().contains("some")
        });
        drop(wire);
        assert_eq!(front.get("/").text(), "good");
        assert_eq!(
            whole.load(Ordering::SeqCst),
            1,
            "only the second request is whole"
        );
    }
}

#[test]
fn a_kept_connection_that_the_origin_closed_costs_no_request() {
    let origin = ScriptedOrigin::start(|stage| {
        if stage.read_request().is_some() {
            stage.send(GOOD);
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
fn an_origin_that_answers_early_ends_the_upload() {
    let origin = ScriptedOrigin::start(|stage| {
        stage.read_head();
        stage.send("HTTP/1.1 413 Too Large\r\nConnection: close\r\nContent-Length: 4\r\n\r\nmuch");
    });
    let front = Front::of([origin.address()]);
    let upload = format!("@{}", super::origins::folder().join("large.bin").display());
    let arguments = ["--header", "Expect:", "--data-binary", &upload];
    let reply = curl("--http1.1").args(&arguments).get(&front.url("/"));
    assert_eq!((reply.status, reply.text()), (413, "much".into()));
}
