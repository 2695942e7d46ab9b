//! Resident applications in PHP-FPM and in a php-cgi that the server starts: they respond as when they are
//! loaded for each request, and no state of one request reaches the next.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::compare::assert_same_response;
use super::concurrent_requests::assert_each_request_gets_its_own_response;
use super::faults::{under_load, wait_for_responses};
use super::server::{Server, Site};
use super::stack::Stack;
use super::visitor::{ClientProtocol, Visitor, between};
use crate::harness::wait_until;

const WORKERS: usize = 3;

/// A stack whose PHP-FPM has enough children for workers and other requests, and the programs that run workers.
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
fn each_of_ten_thousand_requests_to_resident_workers_gets_its_own_response() {
    let (stack, programs) = programs();
    for php in programs {
        let server = serve(
            &stack.path("scripts"),
            &php,
            "/mixed.php",
            "mode = \"classic\"",
        );
        assert_each_request_gets_its_own_response(&server);
    }
}

#[test]
fn frameworks_respond_alike_with_and_without_resident_workers() {
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
            for protocol in ClientProtocol::ALL {
                assert_keeps_sessions(&server, protocol, &who);
            }
            let visitor = Visitor::new(ClientProtocol::Http1);
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
                    assert_same_response(&visitor, &server, &plain, path, arguments);
                }
            }
        }
    }
}

/// Two concurrent sessions, which are not mixed up, and a visitor without one.
fn assert_keeps_sessions(server: &Server, protocol: ClientProtocol, who: &str) {
    let visitors = ["Ada", "Grace"].map(|name| (name, Visitor::new(protocol)));
    for (name, visitor) in &visitors {
        let page = visitor.get(server, "/").text();
        let token = between(&page, "_token\" value=\"", "\"");
        let reply = visitor.post(server, "/greet", &[("name", name), ("_token", token)]);
        assert_eq!(reply.status, 302, "{who} {protocol:?}: {}", reply.text());
    }
    for _ in 0..3 {
        for (name, visitor) in &visitors {
            let greeting = visitor.get(server, "/greeting").text();
            assert_eq!(
                greeting,
                format!("Hello, {name}! yes"),
                "{who} {protocol:?}"
            );
        }
    }
    let anonymous = Visitor::new(protocol).get(server, "/greeting").text();
    assert_eq!(
        anonymous, "Hello, stranger! first visit",
        "{who} {protocol:?}"
    );
}

#[test]
fn killed_workers_lose_no_response_to_a_request_that_may_be_retried() {
    let (stack, programs) = programs();
    for php in programs {
        let server = serve(
            &stack.path("scripts"),
            &php,
            "/work.php",
            "mode = \"classic\"",
        );
        let statuses = under_load(&server, 12, "GET", |responses| {
            for _ in 0..5 {
                wait_for_responses(responses, 50);
                kill_process(worker(&server), Signal::KILL).unwrap();
            }
            wait_for_responses(responses, 50);
        });
        assert_eq!(
            statuses.keys().collect::<Vec<_>>(),
            [&200],
            "{}: {statuses:?}",
            php.display()
        );
    }
}

/// The process of the latest response.
fn worker(server: &Server) -> Pid {
    let reply = Visitor::new(ClientProtocol::Http1).get(server, "/work.php");
    Pid::from_raw(reply.field("x-worker").parse().unwrap()).unwrap()
}

#[test]
fn reloads_lose_no_response_and_load_new_code() {
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
        let statuses = under_load(&server, 12, "GET", |responses| {
            for release in 1..=3 {
                wait_for_responses(responses, 50);
                let written = stack.write(&format!("{folder}/new"), script(release));
                fs::rename(written, stack.path(&format!("{folder}/work.php"))).unwrap();
                server.home.expect(&["reload"], 0);
                wait_until("the new release responds", || {
                    let reply = Visitor::new(ClientProtocol::Http1).get(&server, "/work.php");
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
