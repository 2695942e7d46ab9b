//! Examples with threads of the program: an event loop of libuv, and workers that respond later.

use std::io::Write;

use apus_testkit::wait_until;

use crate::harness::{Build, C, Server};

const LIBUV: Build = Build {
    libraries: &["-luv"],
    ..C
};

#[test]
fn server_runs_inside_a_loop_of_libuv() {
    let server = Server::start("libuv.c", LIBUV, &[]);
    let ticks = || server.get("/").text().trim().parse::<u64>().unwrap();
    let first = ticks();
    wait_until("timers of the loop", || ticks() > first + 1);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10).for_each(|_| assert_eq!(server.get("/").status, 200)));
        }
    });
    server.stop();
}

#[test]
fn workers_respond_when_they_are_done() {
    let server = Server::start("workers.c", C, &[]);
    std::thread::scope(|scope| {
        for (n, expected) in [
            (10, "55\n"),
            (25, "75025\n"),
            (30, "832040\n"),
            (20, "6765\n"),
        ] {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..5 {
                    let reply = server.get(&format!("/fibonacci/{n}"));
                    assert_eq!((reply.status, reply.text()), (200, expected));
                }
            });
        }
    });
    assert_eq!(server.get("/fibonacci/91").status, 400);
    server.stop();
}

#[test]
fn workers_survive_clients_that_leave() {
    let server = Server::start("workers.c", C, &[]);
    for _ in 0..20 {
        let mut client = server.connect();
        client
            .write_all(b"GET /fibonacci/27 HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
    }
    assert_eq!(server.get("/fibonacci/12").text(), "144\n");
    server.stop();
}
