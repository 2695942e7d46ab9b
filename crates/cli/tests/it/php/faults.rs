//! PHP that is restarted, killed, stuck or busy, and content of 50 MB: no answer is lost that can be
//! had, and nobody waits longer than is said.

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
use super::visitor::{Visitor, Way};
use crate::harness::{Ends, wait_until};
use crate::wire::Wire;

/// Bytes of what is sent either way.
const LARGE: usize = 50 << 20;

/// PHP with so many children, and a server in front of it.
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

/// Asks over one connection after another, each for a while; the status and worker of each answer.
fn ask(wire: &mut Wire, method: &str, who: usize, milliseconds: u32) -> (u16, String) {
    let content = if method == "POST" {
        "Content-Length: 0\r\n"
    } else {
        ""
    };
    wire.send(format!(
        "{method} /work.php?who={who}&ms={milliseconds} HTTP/1.1\r\nHost: app.test\r\n{content}\r\n"
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

/// Has clients ask without end while something is done; how often each status came.
pub(super) fn under_load(
    server: &Server,
    clients: usize,
    method: &str,
    disturb: impl FnOnce(&AtomicUsize),
) -> BTreeMap<u16, usize> {
    let (over, answered) = (AtomicBool::new(false), AtomicUsize::new(0));
    let statuses = Mutex::new(BTreeMap::new());
    thread::scope(|scope| {
        for who in 0..clients {
            let (over, answered, statuses) = (&over, &answered, &statuses);
            scope.spawn(move || {
                let mut wire = Wire::connect(server.clear());
                while !over.load(Ordering::Relaxed) {
                    let (status, _) = ask(&mut wire, method, who, 5);
                    *statuses.lock().unwrap().entry(status).or_default() += 1;
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _over = Ends(&over);
        disturb(&answered);
    });
    statuses.into_inner().unwrap()
}

/// Waits until so many more are answered.
pub(super) fn wait_for_answers(answered: &AtomicUsize, more: usize) {
    let enough = answered.load(Ordering::Relaxed) + more;
    wait_until("requests are answered", || {
        answered.load(Ordering::Relaxed) >= enough
    });
}

#[test]
fn no_answer_is_lost_when_php_fpm_begins_anew() {
    let (stack, server) = serve(4, "");
    let statuses = under_load(&server, 12, "GET", |answered| {
        for _ in 0..3 {
            wait_for_answers(answered, 50);
            stack.restart_php();
        }
        wait_for_answers(answered, 50);
    });
    assert_eq!(statuses.keys().collect::<Vec<_>>(), [&200], "{statuses:?}");
}

#[test]
fn a_killed_worker_costs_no_more_than_the_request_that_it_worked_on() {
    const KILLED: usize = 5;
    let (stack, server) = serve(4, "");
    for method in ["GET", "POST"] {
        let statuses = under_load(&server, 12, method, |answered| {
            for _ in 0..KILLED {
                wait_for_answers(answered, 50);
                kill_process(stack.workers()[0], Signal::KILL).unwrap();
            }
            wait_for_answers(answered, 50);
        });
        let failed = statuses.get(&502).copied().unwrap_or_default();
        assert!(failed <= KILLED, "{method}: {statuses:?}");
        let is_expected = |status: &u16| matches!(status, 200 | 502);
        assert!(statuses.keys().all(is_expected), "{method}: {statuses:?}");
    }
}

/// Ends its process the first `n` times that it runs, before it says anything.
const DYING: &str =
    "<?php file_put_contents(__DIR__ . '/runs', $_SERVER['REQUEST_METHOD'] . \"\\n\",
        FILE_APPEND | LOCK_EX);
    if (count(file(__DIR__ . '/runs')) <= $_GET['n']) { exec('kill -9 ' . getmypid()); }
    echo 'answered';";

#[test]
fn what_a_killed_process_did_not_answer_is_asked_once_more_of_another() {
    let (stack, server) = serve(2, "");
    stack.write("scripts/dying.php", DYING);
    // Over a new connection, then over one that is kept; and a program that ends every process.
    for (kept, method, dying, status, expected_runs) in [
        (false, "GET", 1, 200, 2),
        (true, "GET", 1, 200, 2),
        (true, "HEAD", 1, 200, 2),
        (true, "POST", 1, 502, 1),
        (true, "GET", 9, 502, 2),
        (false, "GET", 9, 502, 2),
        (false, "POST", 9, 502, 1),
    ] {
        let what = format!("{method} {dying} {kept}");
        if kept {
            wait_until("a connection is kept", || {
                Visitor::new(Way::Http1).get(&server, "/work.php").status == 200
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
    // The log says what was done.
    wait_until("the log tells of it", || {
        server
            .log()
            .contains("tried an origin once more after it failed")
    });
    assert!(!server.log().contains("asked another origin"));
}

#[test]
fn php_that_is_away_is_told_at_once_and_found_when_it_is_back() {
    let (stack, server) = serve(1, "");
    let visitor = Visitor::new(Way::Http1);
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
fn a_stuck_worker_costs_its_request_504_and_nobody_else_anything() {
    let (_stack, server) = serve(2, "fastcgi = { first_byte_timeout = 1 }");
    thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let start = Instant::now();
            let mut wire = Wire::connect(server.clear());
            (ask(&mut wire, "GET", 0, 15_000).0, start.elapsed())
        });
        let mut wire = Wire::connect(server.clear());
        for who in 0..20 {
            assert_eq!(ask(&mut wire, "GET", who, 1).0, 200);
        }
        let (status, took) = stuck.join().unwrap();
        assert_eq!(status, 504);
        assert!(took < Duration::from_secs(8), "{took:?}");
    });
}

#[test]
fn a_hundred_clients_of_two_workers_all_get_their_turn() {
    const CLIENTS: usize = 100;
    const TURNS: usize = 5;
    let (stack, server) = serve(2, "");
    let (answered, longest) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let all_there = Barrier::new(CLIENTS);
    let wires: Vec<_> = (0..CLIENTS)
        .map(|_| Wire::connect(server.clear()))
        .collect();
    thread::scope(|scope| {
        for (who, mut wire) in wires.into_iter().enumerate() {
            let (answered, longest, all_there) = (&answered, &longest, &all_there);
            scope.spawn(move || {
                all_there.wait();
                for turn in 1..=TURNS {
                    let before = answered.load(Ordering::SeqCst);
                    assert_eq!(ask(&mut wire, "GET", who, 10).0, 200, "{who} {turn}");
                    let after = answered.fetch_add(1, Ordering::SeqCst);
                    longest.fetch_max(after - before, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(stack.answered().lines().count(), CLIENTS * TURNS);
    // Who asks again stands behind all who wait: nobody sees each of the others answered twice.
    let longest = longest.into_inner();
    assert!(
        longest < 2 * CLIENTS,
        "somebody waited for {longest} answers"
    );
}

#[test]
fn fifty_megabytes_go_both_ways() {
    let (stack, server) = serve(2, "client_max_body_size = 64");
    let content: Vec<u8> = (0..LARGE / 8)
        .flat_map(|line| format!("{line:07}\n").into_bytes())
        .collect();
    let file = stack.write("tmp/large.bin", &content);
    let hash = super::sha256(&file);
    let before = server.resident();
    for way in Way::ALL {
        let visitor = Visitor::new(way);
        let reply = visitor.get(&server, "/download.php");
        assert!(
            reply.status == 200 && reply.body == content,
            "{way:?} {}",
            reply.body.len()
        );
        let data = format!("@{}", file.display());
        for chunked in [&[][..], &["--header", "Transfer-Encoding: chunked"]] {
            if way != Way::Http1 && !chunked.is_empty() {
                continue;
            }
            let arguments = [&["--data-binary", &data][..], chunked].concat();
            let reply = visitor.ask(&server, "/upload.php", &arguments);
            assert_eq!(
                reply.text(),
                format!("POST {LARGE} {hash}"),
                "{way:?} {chunked:?}"
            );
        }
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{} MB more than before", grown >> 20);
}

#[test]
fn a_client_that_leaves_ends_what_is_done_for_it() {
    let (stack, server) = serve(1, "");
    let ended = stack.path("scripts/ended");
    for leaving in 1..=3 {
        let mut wire = Wire::connect(server.clear());
        wire.send("GET /endless.php HTTP/1.1\r\nHost: app.test\r\n\r\n");
        assert_eq!(wire.read_head().status, 200);
        drop(wire);
        wait_until("the script has ended", || {
            fs::read_to_string(&ended).is_ok_and(|text| text == "aborted\n".repeat(leaving))
        });
    }
    assert_eq!(
        Visitor::new(Way::Http1).get(&server, "/work.php").status,
        200
    );
}

#[test]
fn what_clients_send_slowly_occupies_no_worker() {
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
    assert_eq!(ask(&mut wire, "GET", 1, 1).0, 200);
    for mut wire in slow {
        wire.send("sent.");
        let reply = wire.read();
        assert_eq!(reply.status, 200);
        assert!(reply.text().starts_with("POST 10 "), "{}", reply.text());
    }
}
