//! Mirrored requests: another group gets copies of the requests of clients, and its responses and faults
//! do not affect clients.

use super::scripted_origin::ScriptedOrigin;
use super::{Configuration, VERSIONS, curl};
use crate::harness::wait_until;

const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood";
const BROKEN: &str = "HTTP/1.1 500 Broken\r\nContent-Length: 3\r\n\r\nbad";

fn mirrored(origin: &ScriptedOrigin, shadow: &ScriptedOrigin, keys: &str) -> Configuration {
    let shadow = shadow.address();
    Configuration::of([origin.address()]).proxy(&format!(
        "mirror = {{ upstream = \"http://{shadow}\"{keys} }}"
    ))
}

#[test]
fn a_mirror_origin_gets_copies_of_requests_over_all_versions_of_http() {
    for version in VERSIONS {
        let origin = ScriptedOrigin::responding(GOOD);
        let shadow = ScriptedOrigin::responding(BROKEN);
        let front = mirrored(&origin, &shadow, ", unsafe_methods = true").serve();
        let get = curl(version).get(&front.url("/a?b=c"));
        assert_eq!((get.status, get.text()), (200, "good".into()));
        let body = "x".repeat(100_000);
        let post = curl(version).args(&["--data", &body]);
        assert_eq!(post.get(&front.url("/post")).status, 200);
        wait_until("both copies are there", || {
            let got = shadow.received();
            got.contains("GET /a?b=c HTTP/1.1\r\n") && got.matches('x').count() >= body.len()
        });
    }
}

#[test]
fn a_frozen_mirror_origin_delays_no_client() {
    let origin = ScriptedOrigin::responding(GOOD);
    let shadow = ScriptedOrigin::start(|connection| while connection.read_request().is_some() {});
    let front = mirrored(&origin, &shadow, ", max_requests = 3").serve();
    let mut wire = front.connect();
    for _ in 0..50 {
        wire.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(wire.read().status, 200);
    }
    let (status, _) = front.home.expect(&["status", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let groups = status["upstreams"].as_array().unwrap();
    let dropped = groups.iter().map(|group| &group["copies_dropped"]);
    assert_eq!(dropped.filter_map(|count| count.as_u64()).sum::<u64>(), 47);
    front
        .apus
        .wait_for_log("too many copies of requests are under way");
    front.assert_memory_is_bounded();
}
