//! Applications that stay in memory, in PHP-FPM and in a php-cgi that the server starts: they answer as
//! when they are loaded anew for each request, and nothing of one request is left for the next.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::compare::same;
use super::concurrent_requests::answers_are_those_of_their_requests;
use super::faults::{under_load, wait_for_answers};
use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{Visitor, Way, between};
use crate::harness::wait_until;

const WORKERS: usize = 3;

/// A stack whose PHP-FPM has children enough for workers and others, and what runs workers.
fn programs() -> (Stack, [PathBuf; 2]) {
    let stack = Stack::resident(2 * WORKERS);
    let socket = stack.socket();
    (stack, [socket, PathBuf::from("/usr/bin/php-cgi8.2")])
}

fn serve(root: &Path, php: &Path, script: &str, workers: &str) -> Server {
    Server::apus(&Site {
        host: "app.test",
        root,
        socket: php,
        apus: &format!(
            "fastcgi = {{ front_controller = \"{script}\", \
             workers = {{ max = {WORKERS}, {workers} }} }}"
        ),
        nginx: "",
    })
}

/// The server in front of the same application without workers.
fn plain(stack: &Stack, root: &Path) -> Server {
    Server::apus(&Site {
        host: "app.test",
        root,
        socket: &stack.socket(),
        apus: "preset = \"laravel\"",
        nginx: "",
    })
}

#[test]
fn ten_thousand_answers_of_resident_workers_are_those_of_their_requests() {
    let (stack, programs) = programs();
    for php in programs {
        let server = serve(
            &stack.path("scripts"),
            &php,
            "/mixed.php",
            "mode = \"classic\"",
        );
        answers_are_those_of_their_requests(&server);
    }
}

#[test]
fn frameworks_answer_alike_whether_they_stay_in_memory_or_not() {
    let (stack, programs) = programs();
    for (name, script, mode) in [
        ("laravel", "/index.php", "classic"),
        ("symfony", "/index.php", "classic"),
        ("slim", "/index.php", "classic"),
        ("laravel", "/worker.php", "worker"),
        ("symfony", "/worker.php", "worker"),
    ] {
        let root = stack.path(&format!("frameworks/{name}/public"));
        let plain = plain(&stack, &root);
        for php in &programs {
            let server = serve(
                &root,
                php,
                "/index.php",
                &format!("mode = \"{mode}\", script = \"{script}\""),
            );
            let who = format!("{name} {mode} {}", php.display());
            for way in Way::ALL {
                keeps_sessions(&server, way, &who);
            }
            let visitor = Visitor::new(Way::Http1);
            visitor.get(&plain, "/greeting");
            for _ in 0..3 {
                for (path, arguments) in [
                    ("/users/7?a=b%20c&d[]=1&d[]=%3F&e", &[][..]),
                    ("/nothing/here", &[]),
                    ("/users/7", &["--request", "DELETE"]),
                    (
                        "/users/7",
                        &["--request", "PUT", "--json", "{\"of\": [1, \"ü\"]}"],
                    ),
                    ("/stream", &[]),
                    ("/users/7", &["--head"]),
                    ("/greeting", &[]),
                ] {
                    same(&visitor, &server, &plain, path, arguments);
                }
            }
        }
    }
}

/// Two visitors at once, neither of whom is taken for the other, and an upload.
fn keeps_sessions(server: &Server, way: Way, who: &str) {
    let visitors = ["Ada", "Grace"].map(|name| (name, Visitor::new(way)));
    for (name, visitor) in &visitors {
        let page = visitor.get(server, "/").text();
        let token = between(&page, "_token\" value=\"", "\"");
        let reply = visitor.post(server, "/greet", &[("name", name), ("_token", token)]);
        assert_eq!(reply.status, 302, "{who} {way:?}: {}", reply.text());
    }
    for _ in 0..3 {
        for (name, visitor) in &visitors {
            let greeting = visitor.get(server, "/greeting").text();
            assert_eq!(greeting, format!("Hello, {name}! yes"), "{who} {way:?}");
        }
    }
    let stranger = Visitor::new(way).get(server, "/greeting").text();
    assert_eq!(stranger, "Hello, stranger! first visit", "{who} {way:?}");
}

#[test]
fn workers_that_are_killed_cost_no_answer_that_may_be_asked_for_again() {
    let (stack, programs) = programs();
    for php in programs {
        let server = serve(
            &stack.path("scripts"),
            &php,
            "/work.php",
            "mode = \"classic\"",
        );
        let statuses = under_load(&server, 12, "GET", |answered| {
            for _ in 0..5 {
                wait_for_answers(answered, 50);
                kill_process(worker(&server), Signal::KILL).unwrap();
            }
            wait_for_answers(answered, 50);
        });
        assert_eq!(
            statuses.keys().collect::<Vec<_>>(),
            [&200],
            "{}: {statuses:?}",
            php.display()
        );
    }
}

/// A process that has just answered.
fn worker(server: &Server) -> Pid {
    let reply = Visitor::new(Way::Http1).get(server, "/work.php");
    Pid::from_raw(reply.field("x-worker").parse().unwrap()).unwrap()
}

#[test]
fn reloads_lose_no_answer_and_bring_new_code() {
    let (stack, programs) = programs();
    for (number, php) in programs.iter().enumerate() {
        let folder = format!("release-{number}");
        let script = |release: usize| {
            format!(
                "<?php usleep(3000); header('X-Release: {release}'); echo 'worked for ', $_GET['who'] ?? '';"
            )
        };
        stack.write(&format!("{folder}/work.php"), script(0));
        let server = serve(&stack.path(&folder), php, "/work.php", "mode = \"classic\"");
        let statuses = under_load(&server, 12, "GET", |answered| {
            for release in 1..=3 {
                wait_for_answers(answered, 50);
                let written = stack.write(&format!("{folder}/new"), script(release));
                fs::rename(written, stack.path(&format!("{folder}/work.php"))).unwrap();
                server.home.expect(&["reload"], 0);
                wait_until("the new release answers", || {
                    let reply = Visitor::new(Way::Http1).get(&server, "/work.php");
                    reply.field("x-release") == release.to_string()
                });
            }
        });
        assert_eq!(
            statuses.keys().collect::<Vec<_>>(),
            [&200],
            "{}: {statuses:?}",
            php.display()
        );
    }
}
