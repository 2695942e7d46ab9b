//! Each part serves its own paths only.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;

use apus::testing::TestServer;
use apus::{App, Redirect, Target};
use apus_example_one_app::{Parts, app};
use serde_json::json;

use crate::php::PhpCgi;

fn site() -> PathBuf {
    concat!(env!("CARGO_MANIFEST_DIR"), "/site").into()
}

/// The application behind the proxy, which responds with the request.
fn origin() -> TestServer {
    TestServer::start(
        App::new()
            .get("/log-in", async || Redirect::to("/welcome"))
            .post("/echo", async |content: String| content)
            .fallback(async |target: Target| format!("old: {target}")),
    )
}

/// An address without a listener.
fn nobody() -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    listener.local_addr().unwrap()
}

fn served(origin: SocketAddr, php: Option<&PhpCgi>) -> TestServer {
    TestServer::with_workers(
        app(&Parts {
            site: site(),
            origin: format!("http://{origin}"),
            php: php.map(PhpCgi::socket),
        })
        .unwrap(),
        2,
    )
}

#[test]
fn files_programs_an_origin_and_handlers_answer_on_one_port() {
    let (origin, php) = (origin(), PhpCgi::start());
    let server = served(origin.address(), Some(&php));
    let client = server.client();
    let mut file = client.get("/").send();
    file.assert_ok().assert_contains("<h1>All in one</h1>");
    let tag = file.header("etag").unwrap().to_owned();
    client
        .get("/index.html")
        .header("if-none-match", &tag)
        .send()
        .assert_status(304);
    client
        .get("/blog/?page=2")
        .send()
        .assert_ok()
        .assert_contains(": GET /blog/?page=2");
    client
        .get("/hello/you")
        .send()
        .assert_ok()
        .assert_json(json!({ "hello": "you" }));
    client
        .get("/old/a/b?c=d")
        .send()
        .assert_ok()
        .assert_text("old: /a/b?c=d");
    client.get("/none").send().assert_status(404);
}

#[test]
fn php_gets_forms_and_what_stands_behind_its_path() {
    let (origin, php) = (origin(), PhpCgi::start());
    let server = served(origin.address(), Some(&php));
    server
        .client()
        .post("/blog/index.php/new")
        .form([("title", "Swifts & martins")])
        .send()
        .assert_ok()
        .assert_contains(": POST /blog/index.php/new /new\nSwifts & martins");
}

#[test]
fn what_is_mounted_is_below_its_path_also_where_it_sends_clients() {
    let origin = origin();
    let server = served(origin.address(), None);
    let client = server.client();
    client
        .get("/old/log-in")
        .send()
        .assert_redirect("/old/welcome");
    client
        .post("/old/echo")
        .body("content")
        .send()
        .assert_ok()
        .assert_text("content");
    client.get("/old").send().assert_redirect("/old/");
    // A route has priority over a mount.
    client
        .get("/old/status")
        .send()
        .assert_json(json!({ "moved": true }));
}

#[test]
fn without_php_no_program_is_run_and_none_is_sent() {
    let origin = origin();
    let server = served(origin.address(), None);
    let client = server.client();
    for path in ["/blog/", "/blog/index.php", "/blog/index.php/x"] {
        let mut reply = client.get(path).send();
        assert!(reply.status().is_client_error(), "{path}");
        assert!(!reply.text().contains("<?php"), "{path}");
    }
}

#[test]
fn an_origin_that_is_away_takes_nothing_else_with_it() {
    let server = served(nobody(), None);
    let client = server.client();
    client.get("/old/").send().assert_status(502);
    client.get("/").send().assert_ok();
    client.get("/hello/you").send().assert_ok();
}
