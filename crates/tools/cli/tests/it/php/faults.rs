//! PHP that is restarted, killed, stuck or busy, and bodies of 50 MB: no response is lost that PHP can still
//! send, and no client waits longer than configured.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor};
use crate::harness::{Ends, wait_until};
use crate::wire::Wire;

/// Bytes of a body in either direction.
const LARGE: usize = 50 << 20;

/// PHP-FPM with this number of children, and a server in front of it.
fn serve(children: usize, apus: &str) -> (Stack, Server) {
    let stack = Stack::php(children);
    let server = Server::apus(&Site {
        host: "app.test",
        root: &stack.path("scripts"),
        socket: &stack.socket(),
        apus,
        nginx: "",
    });
    (stack, server)
}

/// Sends a request that occupies a worker for this time; the status and the worker of the response.
fn send_request(wire: &mut Wire, method: &str, who: usize, milliseconds: u32) -> (u16, String) {
    let length = if method == "POST" {
        "Content-Length: 0\r\n"
    } else {
        ""
    };
    wire.send(format!(
        "{method} /work.php?who={who}&ms={milliseconds} HTTP/1.1\r\nHost: app.test\r\n{length}\r\n"
    ));
    let reply = wire.read();
    if reply.status == 200 {
        assert_eq!(reply.text(), format!("worked for {who}"));
    }
    (
        reply.status,
        reply.field("x-worker").unwrap_or_default().to_owned(),
    )
}

/// Lets clients send requests in a loop while `disturb` runs; how often each status came.
pub(super) fn under_load(
    server: &Server,
    clients: usize,
    method: &str,
    disturb: impl FnOnce(&AtomicUsize),
) -> BTreeMap<u16, usize> {
    let (stop, responses) = (AtomicBool::new(false), AtomicUsize::new(0));
    let statuses = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for who in 0..clients {
            let (stop, responses, statuses) = (&stop, &responses, &statuses);
            scope.spawn(move || {
                let mut wire = Wire::connect(server.clear());
                while !stop.load(Ordering::Relaxed) {
                    let (status, _) = send_request(&mut wire, method, who, 5);
                    *statuses.lock().unwrap().entry(status).or_default() += 1;
                    responses.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Ends(&stop);
        disturb(&responses);
    });
    statuses.into_inner().unwrap()
}

/// Waits for this number of further responses.
pub(super) fn wait_for_responses(responses: &AtomicUsize, more: usize) {
    let enough = responses.load(Ordering::Relaxed) + more;
    wait_until("the responses have come", || {
        responses.load(Ordering::Relaxed) >= enough
    });
}

#[test]
fn no_response_is_lost_when_php_fpm_restarts() {
    let (stack, server) = serve(4, "");
    let statuses = under_load(&server, 12, "GET", |responses| {
        for _ in 0..3 {
            wait_for_responses(responses, 50);
            stack.restart_php();
        }
        wait_for_responses(responses, 50);
    });
    assert_eq!(statuses.keys().collect::<Vec<_>>(), [&200], "{statuses:?}");
}

#[test]
fn a_killed_worker_fails_no_request_but_the_one_that_it_handled() {
    const KILLED: usize = 5;
    let (stack, server) = serve(4, "");
    for method in ["GET", "POST"] {
        let statuses = under_load(&server, 12, method, |responses| {
            for _ in 0..KILLED {
                wait_for_responses(responses, 50);
                kill_process(stack.workers()[0], Signal::KILL).unwrap();
            }
            wait_for_responses(responses, 50);
        });
        let failed = statuses.get(&502).copied().unwrap_or_default();
        assert!(failed <= KILLED, "{method}: {statuses:?}");
        let is_expected = |status: &u16| matches!(status, 200 | 502);
        assert!(statuses.keys().all(is_expected), "{method}: {statuses:?}");
    }
}

/// Kills its process the first `n` times that it runs, before it sends anything.
const DYING: &str =
    "<?php file_put_contents(__DIR__ . '/runs', $_SERVER['REQUEST_METHOD'] . \"\\n\",
        FILE_APPEND | LOCK_EX);
    if (count(file(__DIR__ . '/runs')) <= $_GET['n']) { exec('kill -9 ' . getmypid()); }
    echo 'answered';";

#[test]
fn a_request_without_a_response_from_a_killed_process_is_retried_once() {
    let (stack, server) = serve(2, "");
    stack.write("scripts/dying.php", DYING);
    // Over a new connection, then over an idle one; and a program that kills every process.
    for (idle, method, dying, status, expected_runs) in [
        (false, "GET", 1, 200, 2),
        (true, "GET", 1, 200, 2),
        (true, "HEAD", 1, 200, 2),
        (true, "POST", 1, 502, 1),
        (true, "GET", 9, 502, 2),
        (false, "GET", 9, 502, 2),
        (false, "POST", 9, 502, 1),
    ] {
        let what = format!("{method} {dying} {idle}");
        if idle {
            wait_until("a connection is idle", || {
                Visitor::new(ClientProtocol::Http1)
                    .get(&server, "/work.php")
                    .status
                    == 200
            });
        }
        let runs = stack.write("scripts/runs", "");
        fs::set_permissions(&runs, Permissions::from_mode(0o666)).unwrap();
        let mut wire = Wire::connect(server.clear());
        wire.send(format!(
            "{method} /dying.php?n={dying} HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\n"
        ));
        let reply = match method {
            "HEAD" => wire.read_head(),
            _ => wire.read(),
        };
        assert_eq!(reply.status, status, "{what}");
        let text = fs::read_to_string(runs).unwrap();
        assert_eq!(text, format!("{method}\n").repeat(expected_runs), "{what}");
    }
    wait_until("the retry is logged", || {
        server
            .log()
            .contains("tried an origin once more after it failed")
    });
    assert!(!server.log().contains("tried another origin"));
}

#[test]
fn unreachable_php_causes_a_502_or_503_at_once_and_is_used_when_it_is_back() {
    let (stack, server) = serve(1, "");
    let visitor = Visitor::new(ClientProtocol::Http1);
    let path = "/work.php";
    assert_eq!(visitor.get(&server, path).status, 200);
    kill_process(stack.master(), Signal::STOP).unwrap();
    let socket = stack.socket();
    let hidden = stack.path("hidden.sock");
    fs::rename(&socket, &hidden).unwrap();
    for pid in stack.workers() {
        kill_process(pid, Signal::KILL).unwrap();
    }
    let start = Instant::now();
    let status = visitor.get(&server, path).status;
    assert!(matches!(status, 502 | 503), "{status}");
    assert!(start.elapsed() < Duration::from_secs(10));
    fs::rename(&hidden, &socket).unwrap();
    kill_process(stack.master(), Signal::CONT).unwrap();
    wait_until("PHP is back", || visitor.get(&server, path).status == 200);
}

#[test]
fn a_stuck_worker_causes_a_504_and_delays_no_other_request() {
    let (_stack, server) = serve(2, "fastcgi = { first_byte_timeout = 1 }");
    thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let start = Instant::now();
            let mut wire = Wire::connect(server.clear());
            (send_request(&mut wire, "GET", 0, 15_000).0, start.elapsed())
        });
        let mut wire = Wire::connect(server.clear());
        for who in 0..20 {
            assert_eq!(send_request(&mut wire, "GET", who, 1).0, 200);
        }
        let (status, took) = stuck.join().unwrap();
        assert_eq!(status, 504);
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
}

#[test]
fn a_hundred_clients_of_two_workers_are_served_in_fair_order() {
    const CLIENTS: usize = 100;
    const ROUNDS: usize = 5;
    let (stack, server) = serve(2, "");
    let (responses, longest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all_connected = Barrier::new(CLIENTS);
    let wires: Vec<_> = (0..CLIENTS)
        .map(|_| Wire::connect(server.clear()))
        .collect();
    thread::scope(|scope| {
        for (who, mut wire) in wires.into_iter().enumerate() {
            let (responses, longest, all_connected) = (&responses, &longest, &all_connected);
            scope.spawn(move || {
                all_connected.wait();
                for round in 1..=ROUNDS {
                    let before = responses.load(Ordering::SeqCst);
                    assert_eq!(
                        send_request(&mut wire, "GET", who, 10).0,
                        200,
                        "{who} {round}"
                    );
                    let after = responses.fetch_add(1, Ordering::SeqCst);
                    longest.fetch_max(after - before, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(stack.access_log().lines().count(), CLIENTS * ROUNDS);
    // The next request of a client queues behind all that wait: no client waits while each other gets two responses.
    let longest = longest.into_inner();
    assert!(
        longest < 2 * CLIENTS,
        "a client waited for {longest} responses to others"
    );
}

#[test]
fn bodies_of_50_mb_pass_whole_in_both_directions() {
    let (stack, server) = serve(2, "client_max_body_size = 64");
    let body: Vec<u8> = (0..LARGE / 8)
        .flat_map(|line| format!("{line:07}\n").into_bytes())
        .collect();
    let file = stack.write("tmp/large.bin", &body);
    let hash = super::sha256(&file);
    let before = server.resident();
    for protocol in ClientProtocol::ALL {
        let visitor = Visitor::new(protocol);
        let reply = visitor.get(&server, "/download.php");
        assert!(
            reply.status == 200 && reply.body == body,
            "{protocol:?} {}",
            reply.body.len()
        );
        let data = format!("@{}", file.display());
        for chunked in [&[][..], &["--header", "Transfer-Encoding: chunked"]] {
            if protocol != ClientProtocol::Http1 && !chunked.is_empty() {
                continue;
            }
            let arguments = [&["--data-binary", &data][..], chunked].concat();
            let reply = visitor.request(&server, "/upload.php", &arguments);
            assert_eq!(
                reply.text(),
                format!("POST {LARGE} {hash}"),
                "{protocol:?} {chunked:?}"
            );
        }
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MB more than before", grown >> 20);
}

#[test]
fn a_client_that_disconnects_ends_the_script_of_its_request() {
    let (stack, server) = serve(1, "");
    let ended = stack.path("scripts/ended");
    for disconnects in 1..=3 {
        let mut wire = Wire::connect(server.clear());
        wire.send("GET /endless.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
        assert_eq!(wire.read_head().status, 200);
        drop(wire);
        wait_until("the script has ended", || {
            fs::read_to_string(&ended).is_ok_and(|text| text == "aborted\n".repeat(disconnects))
        });
    }
    assert_eq!(
        Visitor::new(ClientProtocol::Http1)
            .get(&server, "/work.php")
            .status,
        200
    );
}

#[test]
fn slow_request_bodies_occupy_no_worker() {
    let (_stack, server) = serve(1, "");
    let slow: Vec<_> = (0..10)
        .map(|_| {
            let mut wire = Wire::connect(server.clear());
            wire.send(
                "POST /upload.php HTTP/1.1\r\nHost: app.test\r\nContent-Length: 10\r\n\r\nhalf ",
            );
            wire
        })
        .collect();
    let mut wire = Wire::connect(server.clear());
    assert_eq!(send_request(&mut wire, "GET", 1, 1).0, 200);
    for mut wire in slow {
        wire.send("sent.");
        let reply = wire.read();
        assert_eq!(reply.status, 200);
        assert!(reply.text().starts_with("POST 10 "), "{}", reply.text());
    }
}
