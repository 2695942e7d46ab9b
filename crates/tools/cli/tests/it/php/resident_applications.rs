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
use crate::clients::program;
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
fn laravel_workers_log_users_in_and_a_queue_does_their_jobs() {
    let (stack, programs) = programs();
    let root = stack.path("frameworks/laravel/public");
    for (number, php) in programs.iter().enumerate() {
        let server = serve(
            &root,
            php,
            "/index.php",
            "mode = \"worker\", script = \"/worker.php\"",
        );
        for protocol in ClientProtocol::ALL {
            let who = format!("{number} {protocol:?}");
            assert_logs_users_in(&server, protocol, &who);
            assert_queues_jobs(&stack, &server, protocol, &who);
        }
    }
}

/// Logs a user in, and returns the token for further forms.
fn log_in(visitor: &Visitor, server: &Server, name: &str, who: &str) -> String {
    let page = visitor.get(server, "/").text();
    let token = between(&page, "_token\" value=\"", "\"");
    let email = format!("{name}@app.test").to_lowercase();
    let credentials = |password| {
        [
            ("email", email.as_str()),
            ("password", password),
            ("_token", token),
        ]
    };
    let wrong = visitor.post(server, "/login", &credentials("a guess"));
    assert_eq!(wrong.status, 403, "{who} {name}: {}", wrong.text());
    assert_eq!(visitor.get(server, "/account").status, 302, "{who} {name}");
    let password = format!("password of {name}");
    let reply = visitor.post(server, "/login", &credentials(&password));
    assert_eq!(reply.status, 302, "{who} {name}: {}", reply.text());
    assert!(reply.field("location").ends_with("/account"), "{who}");
    account(visitor, server, name, who)
}

/// Asserts that this user is logged in; returns the token of the session.
fn account(visitor: &Visitor, server: &Server, name: &str, who: &str) -> String {
    let page = visitor.get(server, "/account").text();
    let greeting = format!("Hello, {name}! ");
    let token = page.strip_prefix(&greeting);
    token
        .unwrap_or_else(|| panic!("{who} {name}: {page}"))
        .to_owned()
}

/// Two users at a time and a visitor without an account, all with the same workers.
fn assert_logs_users_in(server: &Server, protocol: ClientProtocol, who: &str) {
    let users = ["Ada", "Grace"].map(|name| (name, Visitor::new(protocol)));
    let tokens = users
        .each_ref()
        .map(|(name, visitor)| log_in(visitor, server, name, who));
    let anonymous = Visitor::new(protocol);
    for _ in 0..2 * WORKERS {
        for (name, visitor) in &users {
            account(visitor, server, name, who);
        }
        assert_eq!(anonymous.get(server, "/account").status, 302, "{who}");
    }
    let [(_, ada), (name, grace)] = &users;
    let reply = ada.post(server, "/logout", &[("_token", &tokens[0])]);
    assert_eq!(reply.status, 302, "{who}: {}", reply.text());
    for _ in 0..WORKERS {
        assert_eq!(ada.get(server, "/account").status, 302, "{who}");
        account(grace, server, name, who);
    }
}

/// A job in the queue, which is tried again if it fails, and one that the worker does after the response.
fn assert_queues_jobs(stack: &Stack, server: &Server, protocol: ClientProtocol, who: &str) {
    let visitor = Visitor::new(protocol);
    let token = log_in(&visitor, server, "Ada", who);
    let letters = || -> Vec<(String, u64)> {
        let page = visitor.get(server, "/letters");
        let seen: serde_json::Value = serde_json::from_slice(&page.body).unwrap();
        let letters = seen.as_array().unwrap().iter().map(|letter| {
            let text = letter["text"].as_str().unwrap().to_owned();
            (text, letter["attempt"].as_u64().unwrap())
        });
        letters.collect()
    };
    let before = letters().len();
    for text in [who, "fails once", "fails"] {
        let reply = visitor.post(server, "/letters", &[("text", text), ("_token", &token)]);
        assert_eq!(reply.status, 202, "{who}: {}", reply.text());
    }
    assert_eq!(letters().len(), before, "{who}: nothing works yet");

    // A transaction that a request leaves open would keep the database locked.
    let reply = visitor.post(server, "/abandoned", &[("_token", &token)]);
    assert_eq!(reply.status, 200, "{who}: {}", reply.text());
    let output = program("php")
        .arg(stack.path("frameworks/laravel/artisan"))
        .args(["queue:work", "--stop-when-empty", "--sleep=0"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{who}: {text}");
    assert_eq!(text.matches("Failed:").count(), 1, "{who}: {text}");
    let done = letters().split_off(before);
    assert_eq!(
        done,
        [(who.to_owned(), 1), ("fails once".to_owned(), 2)],
        "{who}"
    );

    let now = format!("now {who}");
    let form = [("text", now.as_str()), ("_token", &token)];
    let reply = visitor.post(server, "/letters/now", &form);
    assert_eq!(reply.status, 202, "{who}: {}", reply.text());
    wait_until("the worker has written the letter", || {
        letters().len() > before + 2
    });
    for _ in 0..WORKERS {
        visitor.get(server, "/greeting");
    }
    assert_eq!(letters().split_off(before + 2), [(now, 1)], "{who}: once");
}

/// `examples/rabbit`, with PHP-FPM behind nginx beside it.
#[test]
fn eloquent_and_blade_respond_alike_in_resident_workers_and_behind_nginx() {
    let stack = Stack::rabbit(2 * WORKERS);
    let root = stack.path("rabbit/public");
    let nginx = Server::nginx(&Site {
        host: "app.test",
        root: &root,
        socket: &stack.socket(),
        apus: "",
        nginx: "location / { try_files $uri /index.php?$query_string; }",
    });
    let environment = format!(
        "environment = {{ RABBIT_SOCKET = \"{}\", RABBIT_PASSWORD = \"of the rabbit\" }}",
        stack.path("db.sock").display()
    );
    for (php, workers) in [
        // The pool of PHP-FPM has an environment.
        (stack.socket(), "mode = \"native\"".to_owned()),
        (
            PathBuf::from("/usr/bin/php-cgi8.2"),
            format!("mode = \"native\", {environment}"),
        ),
    ] {
        let server = serve(&root, &php, "/index.php", &workers);
        for protocol in ClientProtocol::ALL {
            let visitor = Visitor::new(protocol);
            let json = |id, text| {
                let path = format!("/users/{id}/greetings");
                let body = format!("{{\"text\": \"{text}\"}}");
                visitor.request(&server, &path, &["--json", &body])
            };
            let text = format!("{protocol:?} of {}", php.display());
            let greeting = json(2, &text);
            assert_eq!(greeting.status, 202, "{}", greeting.text());
            wait_until("the task has written to the log", || {
                server.log().contains(&format!("for user 2: {text}"))
            });
            assert_eq!(json(5000, &text).status, 404, "{text}");
        }
        let visitor = Visitor::new(ClientProtocol::Http1);
        let id = ["--header", "X-Request-Id: same"];
        for _ in 0..2 * WORKERS {
            for (path, status) in [
                ("/", 200),
                ("/users/1000", 200),
                ("/users/1001", 404),
                ("/hello", 200),
                ("/users/x", 404),
            ] {
                let reply = assert_same_response(&visitor, &server, &nginx, path, &id);
                assert_eq!(reply.status, status, "{path}");
            }
        }
    }
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
