//! Examples in other languages: C++ with `apus.hpp`, and Python by cffi.

use std::fs;
use std::process::Command;

use crate::harness::{CPP, Server, WebSocket, curl, programs_folder, repository};

/// With static thread-local storage, whether `dlopen` succeeds depends on how much of it other libraries have taken.
#[test]
fn the_library_can_be_loaded_at_run_time_whatever_else_is_loaded() {
    let output = Command::new("readelf")
        .args(["--dynamic", "--wide"])
        .arg(programs_folder().join("libapus.so.1"))
        .output()
        .unwrap();
    let dynamic = String::from_utf8(output.stdout).unwrap();
    assert!(dynamic.contains("SONAME"), "{dynamic}");
    assert!(!dynamic.contains("STATIC_TLS"), "{dynamic}");
}

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

/// Runs a script that finds `apus.py` and the library, with the address as its argument.
fn serve_by_python(arguments: &[&str]) -> Server {
    let mut python = Command::new("/usr/bin/python3");
    python
        .args(arguments)
        .env("LD_LIBRARY_PATH", programs_folder())
        .env("PYTHONPATH", repository().join("examples/c"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Server::run(python, arguments[0], |_, _| {}, &[])
}

#[test]
fn python_serves_a_wsgi_application_by_cffi() {
    let script = repository().join("examples/c/hello.py");
    let lines = fs::read_to_string(&script).unwrap().lines().count();
    assert!(lines <= 20, "a hello is short, not {lines} lines");
    let server = serve_by_python(&[script.to_str().unwrap()]);
    let reply = server.get("/");
    assert_eq!((reply.status, reply.text()), (200, "Hello, world!\n"));
    assert_eq!(reply.field("content-type"), "text/plain; charset=utf-8");
    assert_eq!(server.get("/J%C3%BCrgen").text(), "Hello, J\u{fc}rgen!\n");
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

/// An application behind the checks of Python's own library, which raise where the server or the application is wrong.
const CHECKED_APPLICATION: &str = "
import sys, apus
from wsgiref.validate import validator
def application(environ, start_response):
    if environ['PATH_INFO'] == '/mistake':
        raise ValueError('a secret')
    write = start_response('201 Created', [('Content-Type', 'text/plain'), ('X-Method', environ['REQUEST_METHOD'])])
    write(b'body=' + environ['wsgi.input'].read(100))
    names = 'QUERY_STRING', 'CONTENT_TYPE', 'HTTP_X_FIELD', 'SERVER_NAME', 'SERVER_PORT', 'REMOTE_ADDR', 'wsgi.url_scheme'
    return [f' {environ.get(name)}'.encode() for name in names]
apus.serve(validator(application), sys.argv[1], body_limit=20)
";

#[test]
fn python_has_the_requests_and_responses_of_wsgi() {
    let server = serve_by_python(&["-c", CHECKED_APPLICATION]);
    let fields = ["-H", "X-Field: a", "-H", "X-Field: b"];
    let url = server.url("/path?a=b");
    let reply = curl(&[&fields[..], &["--data", "some bytes", &url]].concat());
    assert_eq!((reply.status, reply.field("x-method")), (201, "POST"));
    let expected = format!(
        "body=some bytes a=b application/x-www-form-urlencoded a,b 127.0.0.1 {} 127.0.0.1 http",
        server.port
    );
    assert_eq!(reply.text(), expected);
    let reply = curl(&["--data", "more bytes than the limit has", &url]);
    assert_eq!(reply.status, 413);
    let reply = server.get("/mistake");
    assert_eq!(reply.status, 500);
    assert!(!reply.text().contains("secret"), "{}", reply.text());
    server.stop();
}
