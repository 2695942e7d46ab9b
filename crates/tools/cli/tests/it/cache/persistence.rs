//! Responses on disk are found after a restart and after SIGKILL, are never truncated, and are not reused
//! beyond their freshness lifetime.

use rustix::process::Signal;

use super::{cached_on_disk, large, large_origin, numbered, requests_to};
use crate::harness::{Home, free_port, wait_until};

#[test]
fn responses_on_disk_are_found_after_a_restart() {
    let body = large();
    let origin = large_origin(&body);
    let port = free_port();
    let mut front = cached_on_disk(&origin, Home::new(), port);
    assert!(front.get("/").body == body);
    front.home.expect(&["stop"], 0);
    assert!(front.apus.wait().success());
    front.apus = front.home.serve(&[]);
    wait_until("it is found", || {
        let reply = front.get("/");
        assert!(reply.body == body);
        reply.field("cache-status").unwrap().contains("; hit")
    });
    assert_eq!(requests_to(&origin), 1);
}

#[test]
fn sigkill_during_a_fetch_leaves_no_truncated_response() {
    let body = large();
    for number in 0..5 {
        let origin = large_origin(&body);
        let port = free_port();
        let mut front = cached_on_disk(&origin, Home::new(), port);
        let mut wires: Vec<_> = (0..8).map(|_| front.connect()).collect();
        for (index, wire) in wires.iter_mut().enumerate() {
            wire.send(format!("GET /{index} HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        }
        for wire in &mut wires[..number] {
            wire.read();
        }
        front.apus.signal(Signal::KILL);
        front.apus.wait();
        front.apus = front.home.serve(&[]);
        for index in 0..8 {
            let reply = front.get(&format!("/{index}"));
            assert_eq!(reply.status, 200);
            assert!(reply.body == body, "/{index} is truncated");
        }
    }
}

#[test]
fn a_restart_makes_no_stale_response_fresh() {
    let origin = numbered(|_| "Cache-Control: max-age=1\r\nAge: 0\r\n".to_owned());
    let mut front = cached_on_disk(&origin, Home::new(), free_port());
    assert_eq!(front.get("/").text(), "answer 1");
    front.home.expect(&["stop"], 0);
    front.apus.wait();
    front.apus = front.home.serve(&[]);
    wait_until("it is fetched again", || {
        front.get("/").text() != "answer 1"
    });
}
