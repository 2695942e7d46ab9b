//! What is on disk: found again after a restart and after sudden death, never torn, never used beyond
//! its freshness.

use rustix::process::Signal;

use super::{asked, cached_on_disk, large, large_origin, numbered};
use crate::harness::{Home, free_port, wait_until};

#[test]
fn what_is_on_disk_is_found_again_after_a_restart() {
    let content = large();
    let origin = large_origin(&content);
    let port = free_port();
    let mut front = cached_on_disk(&origin, Home::new(), port);
    assert!(front.get("/").body == content);
    front.home.expect(&["stop"], 0);
    assert!(front.apus.wait().success());
    front.apus = front.home.serve(&[]);
    wait_until("it is found", || {
        let reply = front.get("/");
        assert!(reply.body == content);
        reply.field("cache-status").unwrap().contains("; hit")
    });
    assert_eq!(asked(&origin), 1);
}

#[test]
fn sudden_death_while_filling_leaves_no_torn_answer() {
    let content = large();
    for number in 0..5 {
        let origin = large_origin(&content);
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
            assert!(reply.body == content, "/{index} is torn");
        }
    }
}

#[test]
fn a_restart_makes_nothing_fresh_again() {
    let origin = numbered(|_| "Cache-Control: max-age=1\r\nAge: 0\r\n".to_owned());
    let mut front = cached_on_disk(&origin, Home::new(), free_port());
    assert_eq!(front.get("/").text(), "answer 1");
    front.home.expect(&["stop"], 0);
    front.apus.wait();
    front.apus = front.home.serve(&[]);
    wait_until("it is asked for again", || {
        front.get("/").text() != "answer 1"
    });
}
