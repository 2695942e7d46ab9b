//! Stored responses are reused: while fresh, after validation, for ranges, and stale where that is allowed.
//! Concurrent requests for one response become one request to the origin.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::{MINUTE, cached, configured_with, get, numbered, requests_to};
use crate::harness::wait_until;
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::proxy::{VERSIONS, curl};

#[test]
fn a_fresh_response_is_fetched_once() {
    let origin = numbered(|_| MINUTE.to_owned());
    let front = cached(&origin);
    let first = front.get("/");
    assert_eq!((first.status, first.text()), (200, "answer 1".into()));
    let status = first
        .field("cache-status")
        .expect("Cache-Status")
        .to_owned();
    assert!(
        status.contains("fwd=") && !status.contains("; hit"),
        "{status}"
    );
    for version in VERSIONS {
        let reply = curl(version)
            .args(&["--header", "Host: localhost"])
            .get(&front.url("/"));
        assert_eq!(reply.text(), "answer 1", "{version}");
        assert!(reply.field("cache-status").contains("; hit"), "{version}");
        assert!(reply.field("age").parse::<u32>().is_ok(), "{version}");
    }
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn a_rule_sends_requests_past_the_cache_and_stores_nothing_of_their_responses() {
    let origin = numbered(|_| MINUTE.to_owned());
    let keys = "cache = true\nrules = [{ when = 'header.x-fresh == \"1\"', cache = false }]";
    let front = configured_with(&origin, keys).serve();
    let fresh = "X-Fresh: 1\r\n";
    for (target, fields, expected) in [
        ("/", "", "answer 1"),
        ("/", fresh, "answer 2"),
        ("/", "", "answer 1"),
        ("/other", fresh, "answer 1"),
        ("/other", "", "answer 2"),
        ("/other", "", "answer 2"),
    ] {
        let reply = get(&front, target, fields);
        assert_eq!(reply.text(), expected, "{target} {fields}");
    }
    assert_eq!(requests_to(&origin), 4);
}

#[test]
fn a_response_without_freshness_information_is_fetched_each_time() {
    let origin = numbered(|_| String::new());
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "answer 1");
    assert_eq!(front.get("/").text(), "answer 2");
}

#[test]
fn responses_with_private_or_no_store_are_never_stored() {
    for directive in [
        "private",
        "no-store",
        "private, max-age=60",
        "no-store, max-age=60",
    ] {
        let origin = numbered(move |_| format!("Cache-Control: {directive}\r\n"));
        let front = cached(&origin);
        assert_eq!(front.get("/").text(), "answer 1");
        assert_eq!(front.get("/").text(), "answer 2", "{directive}");
    }
}

#[test]
fn a_response_with_no_cache_is_validated_each_time() {
    let origin = ScriptedOrigin::start(|connection| {
        while let Some(head) = connection.read_request() {
            let lines = "Cache-Control: no-cache\r\nETag: \"one\"\r\n";
            if head.to_ascii_lowercase().contains("if-none-match: \"one\"") {
                connection.send(format!("HTTP/1.1 304 Not Modified\r\n{lines}\r\n"));
            } else {
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{lines}Content-Length: 4\r\n\r\nbody"
                ));
            }
        }
    });
    let front = cached(&origin);
    for _ in 0..3 {
        let reply = front.get("/");
        assert_eq!((reply.status, reply.text()), (200, "body".into()));
    }
    let received = origin.received().to_ascii_lowercase();
    assert_eq!(received.matches("if-none-match: \"one\"").count(), 2);
}

#[test]
fn a_matching_if_none_match_gets_304_without_a_request_to_the_origin() {
    let origin = numbered(|_| format!("{MINUTE}ETag: \"one\"\r\n"));
    let front = cached(&origin);
    assert_eq!(front.get("/").status, 200);
    let reply = get(&front, "/", "If-None-Match: \"one\"\r\n");
    assert_eq!((reply.status, reply.body.len()), (304, 0));
    let reply = get(&front, "/", "If-None-Match: \"two\"\r\n");
    assert_eq!((reply.status, reply.text()), (200, "answer 1".into()));
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn ranges_of_a_stored_response_are_served_without_the_origin() {
    let origin = numbered(|_| format!("{MINUTE}ETag: \"one\"\r\n"));
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "answer 1");
    for (range, part) in [("0-5", "answer"), ("-1", "1"), ("7-", "1")] {
        let reply = get(&front, "/", &format!("Range: bytes={range}\r\n"));
        assert_eq!((reply.status, reply.text()), (206, part.into()), "{range}");
    }
    let reply = get(&front, "/", "Range: bytes=0-5\r\nIf-Range: \"two\"\r\n");
    assert_eq!((reply.status, reply.text()), (200, "answer 1".into()));
    assert_eq!(get(&front, "/", "Range: bytes=8-\r\n").status, 416);
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn concurrent_requests_for_one_response_become_one_request_to_the_origin() {
    let may_continue = Arc::new(AtomicBool::new(false));
    let gate = may_continue.clone();
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            while !gate.load(Ordering::SeqCst) {
                thread::park_timeout(Duration::from_millis(5));
            }
            connection.send(format!(
                "HTTP/1.1 200 OK\r\n{MINUTE}Content-Length: 4\r\n\r\ngood"
            ));
        }
    });
    let front = cached(&origin);
    let mut clients: Vec<_> = (0..100).map(|_| front.connect()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    wait_until("the origin has a request", || requests_to(&origin) > 0);
    may_continue.store(true, Ordering::SeqCst);
    for client in &mut clients {
        assert_eq!(client.read().text(), "good");
    }
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn unsafe_methods_invalidate_the_stored_response() {
    let origin = numbered(|_| MINUTE.to_owned());
    let front = cached(&origin);
    assert_eq!(front.get("/a").text(), "answer 1");
    for (number, method) in ["POST", "PUT", "DELETE", "PATCH"].into_iter().enumerate() {
        let reply = front.request(format!(
            "{method} /a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx"
        ));
        assert_eq!(reply.status, 200);
        let expected = format!("answer {}", 2 * number + 3);
        assert_eq!(front.get("/a").text(), expected, "{method}");
        assert_eq!(front.get("/a").text(), expected, "{method}");
    }
}

#[test]
fn a_stale_response_is_served_when_the_origin_fails() {
    let lines = "Cache-Control: max-age=0, stale-if-error=600\r\n";
    let fails = Arc::new(AtomicBool::new(false));
    let fails_now = fails.clone();
    let origin = ScriptedOrigin::start(move |connection| {
        while connection.read_request().is_some() {
            if fails_now.load(Ordering::SeqCst) {
                connection.send("HTTP/1.1 500 Broken\r\nContent-Length: 6\r\n\r\nbroken");
            } else {
                connection.send(format!(
                    "HTTP/1.1 200 OK\r\n{lines}Content-Length: 4\r\n\r\ngood"
                ));
            }
        }
    });
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "good");
    fails.store(true, Ordering::SeqCst);
    assert_eq!(front.get("/").text(), "good");
    assert_eq!(front.get("/other").status, 500);
    drop(origin);
    assert_eq!(front.get("/").text(), "good");
}

#[test]
fn a_stale_response_is_served_at_once_while_it_is_revalidated() {
    let origin =
        numbered(|_| "Cache-Control: max-age=0, stale-while-revalidate=600\r\n".to_owned());
    let front = cached(&origin);
    assert_eq!(front.get("/").text(), "answer 1");
    let mut last = front.get("/").text();
    assert_eq!(last, "answer 1");
    wait_until("a newer response is stored", || {
        last = front.get("/").text();
        last != "answer 1"
    });
}
