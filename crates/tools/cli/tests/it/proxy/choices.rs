//! Rules that choose the origins of a request: other groups, and locations with other origins, with caches in front of them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, Front, VERSIONS, curl};
use crate::harness::wait_until;
use crate::wire::Received;

/// An origin whose responses have its name and a number, and these fields.
fn named(name: &'static str, fields: &'static str) -> ScriptedOrigin {
    let count = AtomicUsize::new(0);
    ScriptedOrigin::start(move |connection| {
        while let Some(head) = connection.read_request() {
            let body = format!("{name} {}", count.fetch_add(1, Ordering::SeqCst) + 1);
            let length = body.len();
            connection.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n{fields}Content-Length: {length}\r\n\r\n"
            ));
            if !head.starts_with("HEAD ") {
                connection.send(body);
            }
        }
    })
}

const MINUTE: &str = "Cache-Control: max-age=60\r\n";
const CHOSEN: &str = "Cookie: group=b\r\n";
/// A rule for those with the cookie.
const RULE: &str = "rules = [{ when = 'cookie.group == \"b\"', upstream = \"other\" }]";

/// The number of requests that the origin received.
fn requests_to(origin: &ScriptedOrigin) -> usize {
    origin.received().matches(" HTTP/1.1\r\n").count()
}

fn get(front: &Front, target: &str, fields: &str) -> Received {
    front.request(format!(
        "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
    ))
}

/// A second group of the site, with further lines.
fn other(origin: &ScriptedOrigin, lines: &str) -> String {
    format!(
        "[[sites.upstreams]]\nname = \"other\"\nnodes = [\"{}\"]\n{lines}",
        origin.address()
    )
}

#[test]
fn a_rule_sends_requests_to_another_group_and_the_cache_keeps_their_responses_apart() {
    let (one, two) = (named("one", MINUTE), named("two", MINUTE));
    let front = Configuration::of([one.address()])
        .site(RULE)
        .location("cache = { cookies = \"always\" }")
        .after(&other(&two, ""))
        .serve();
    // Whoever comes first: neither gets what is stored for the other.
    for (target, first, second) in [("/a", "", CHOSEN), ("/b", CHOSEN, "")] {
        for fields in [first, second, first, second] {
            let reply = get(&front, target, fields);
            let name = if fields.is_empty() { "one " } else { "two " };
            assert!(reply.text().starts_with(name), "{target}: {reply:?}");
        }
    }
    assert_eq!((requests_to(&one), requests_to(&two)), (2, 2));
    for version in VERSIONS {
        for (cookie, name) in [("group=a", "one "), ("group=b", "two ")] {
            for target in ["/a", "/b"] {
                let cookie = format!("Cookie: {cookie}");
                let reply = curl(version)
                    .args(&["--header", "Host: localhost", "--header", &cookie])
                    .get(&front.url(target));
                assert!(reply.text().starts_with(name), "{version} {target}");
                assert!(reply.field("cache-status").contains("; hit"), "{version}");
            }
        }
    }
    assert_eq!((requests_to(&one), requests_to(&two)), (2, 2));
    // A purge of the target removes what is stored for each.
    let purge = ["cache", "purge", "--url", "http://localhost/a"];
    let (said, _) = front.home.expect(&purge, 0);
    assert_eq!(said, "purged 2 responses\n");
    for fields in ["", CHOSEN] {
        let reply = get(&front, "/a", fields);
        assert!(!reply.field("cache-status").unwrap().contains("; hit"));
    }
    assert_eq!((requests_to(&one), requests_to(&two)), (3, 3));
    let explain = [
        "explain",
        "GET",
        "http://localhost/a",
        "--header",
        "Cookie: group=b",
    ];
    let (explained, _) = front.home.expect(&explain, 0);
    assert!(explained.contains("choose the upstream"), "{explained}");
    assert!(explained.contains("localhost/other"), "{explained}");
    let status = front.status();
    let status = status.to_string();
    assert!(status.contains("localhost/other"), "{status}");
}

#[test]
fn a_stale_response_is_refreshed_by_the_group_that_was_chosen() {
    let fields = "Cache-Control: max-age=1, stale-while-revalidate=600\r\n";
    let (one, two) = (named("one", fields), named("two", fields));
    let front = Configuration::of([one.address()])
        .site(RULE)
        .location("cache = { cookies = \"always\" }")
        .after(&other(&two, ""))
        .serve();
    wait_until("the stale response was refreshed", || {
        let text = get(&front, "/", CHOSEN).text();
        assert!(text.starts_with("two "), "{text}");
        text != "two 1"
    });
    assert_eq!(requests_to(&one), 0);
}

#[test]
fn retries_and_sticky_clients_are_those_of_the_chosen_group() {
    let (one, two) = (named("one", ""), named("two", ""));
    let dead = crate::harness::free_port();
    let front = Configuration::of([one.address()])
        .site(RULE)
        .site("access_log = { path = \"log\", format = \"<$upstream_addr>\" }")
        .after(&format!(
            "[[sites.upstreams]]\nname = \"other\"\nnodes = [\"127.0.0.1:{dead}\", \"{}\"]\nsticky = {{ name = \"node\" }}\n",
            two.address()
        ))
        .serve();
    for _ in 0..4 {
        let reply = get(&front, "/", CHOSEN);
        assert!(reply.text().starts_with("two "), "{reply:?}");
        let cookie = reply.field("set-cookie").unwrap_or_default();
        assert!(cookie.starts_with("node="), "{reply:?}");
        assert_eq!(get(&front, "/", "").field("set-cookie"), None);
    }
    assert_eq!((requests_to(&one), requests_to(&two)), (4, 4));
    wait_until("the requests are logged", || {
        front.home.read("log").lines().count() == 8
    });
    let log = front.home.read("log");
    for origin in [&one, &two] {
        let address = format!("<{}>", origin.address());
        assert_eq!(log.matches(&address).count(), 4, "{log}");
    }
    // Without a node of the chosen group, nobody else responds.
    drop(two);
    wait_until("the group is gone", || {
        get(&front, "/", CHOSEN).status >= 500
    });
    assert!(get(&front, "/", "").text().starts_with("one "));
}

#[test]
fn a_location_that_a_rule_chooses_has_its_own_stored_responses() {
    let (one, two) = (named("one", MINUTE), named("two", MINUTE));
    let front = Configuration::of([one.address()])
        .site("rules = [{ when = 'cookie.group == \"b\"', location = \"/b/\" }]")
        .location("cache = { cookies = \"always\" }")
        .after(&format!(
            "[[sites.locations]]\npath = \"/b/\"\ninternal = true\nupstream = \"other\"\ncache = {{ cookies = \"always\" }}\n{}",
            other(&two, "")
        ))
        .serve();
    for (target, first, second) in [("/a", "", CHOSEN), ("/b", CHOSEN, "")] {
        for fields in [first, second, first, second] {
            let reply = get(&front, target, fields);
            let name = if fields.is_empty() { "one " } else { "two " };
            assert!(reply.text().starts_with(name), "{target}: {reply:?}");
        }
    }
    assert_eq!((requests_to(&one), requests_to(&two)), (2, 2));
}
