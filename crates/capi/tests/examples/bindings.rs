//! Examples in other languages: C++ with `apus.hpp`, and Python by cffi.

use std::process::Command;

use crate::harness::{Build, Server, WebSocket, curl, programs_folder, repository};

const CPP: Build = Build {
    compiler: &["g++", "-std=c++17"],
    libraries: &[],
};

#[test]
fn cpp_handlers_are_lambdas() {
    let server = Server::start("hello.cpp", CPP, &[]);
    assert_eq!(server.get("/").text(), "Hello, visitor 1!\n");
    assert_eq!(server.get("/").text(), "Hello, visitor 2!\n");
    assert_eq!(server.get("/squares/12").text(), r#"{"square":144}"#);
    assert_eq!(server.get("/squares/twelve").status, 404);
    let shout = server.url("/shout");
    assert_eq!(curl(&["--data", "swift", &shout]).text(), "swift!\n");
    assert_eq!(curl(&["--data", &"x".repeat(2000), &shout]).status, 413);
    assert_eq!(server.get("/later").text(), "later\n");
    server.stop();
}

#[test]
fn cpp_exceptions_are_errors_without_their_text() {
    let server = Server::start("hello.cpp", CPP, &[]);
    let reply = server.get("/mistake");
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("secret"), "{}", reply.text());
    assert_eq!(server.get("/admin/name").status, 401);
    let reply = curl(&[
        "-H",
        "Authorization: Bearer swift",
        &server.url("/admin/name?name=Ada"),
    ]);
    assert_eq!(
        (reply.text(), reply.field("x-client")),
        ("Ada\n", "127.0.0.1")
    );
    let mut socket = WebSocket::open(&server, "/echo");
    socket.send("again");
    assert_eq!(socket.receive(), "again");
    socket.close();
    server.stop();
}

#[test]
fn python_serves_a_wsgi_application_by_cffi() {
    let mut python = Command::new("/usr/bin/python3");
    python
        .arg(repository().join("examples/c/hello.py"))
        .env("LD_LIBRARY_PATH", programs_folder());
    let server = Server::run(python, "hello.py", |_, _| {}, &[]);
    let reply = server.get("/");
    assert_eq!((reply.status, reply.text()), (200, "Hello, world!\n"));
    assert_eq!(reply.field("content-type"), "text/plain; charset=utf-8");
    std::thread::scope(|scope| {
        for name in ["Ada", "Alan", "Barbara", "Edsger"] {
            let server = &server;
            scope.spawn(move || {
                for _ in 0..5 {
                    let reply = server.get(&format!("/{name}"));
                    assert_eq!(reply.text(), format!("Hello, {name}!\n"));
                }
            });
        }
    });
    server.stop();
}
