//! Examples under valgrind: no invalid access, and nothing that a request used stays.

use std::io::Write;
use std::process::Command;

use crate::harness::{Build, C, Server, WebSocket, compile, curl};

/// An example under memcheck, which ends with a status of its own after a finding.
fn under_valgrind(source: &str, arguments: &[&str]) -> Server {
    under_valgrind_with(source, C, arguments)
}

fn under_valgrind_with(source: &str, build: Build, arguments: &[&str]) -> Server {
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args([
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
        ])
        .arg(compile(source, build));
    Server::run(command, source, |_, _| {}, arguments)
}

#[test]
fn hello_has_no_finding_of_valgrind() {
    let server = under_valgrind("hello.c", &[]);
    for _ in 0..5 {
        assert_eq!(server.get("/").text(), "Hello, world!\n");
        assert_eq!(server.get("/none").status, 404);
    }
    server.stop();
}

#[test]
fn deferred_responses_have_no_finding_of_valgrind() {
    let server = under_valgrind("workers.c", &[]);
    for _ in 0..5 {
        assert_eq!(server.get("/fibonacci/10").text(), "55\n");
    }
    for _ in 0..5 {
        let mut client = server.connect();
        client
            .write_all(b"GET /fibonacci/15 HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
    }
    assert_eq!(server.get("/fibonacci/11").text(), "89\n");
    server.stop();
}

#[test]
fn bodies_have_no_finding_of_valgrind() {
    let server = under_valgrind("upload.c", &["."]);
    let body = server.folder.path().join("body");
    std::fs::write(&body, vec![b'x'; 100_000]).unwrap();
    let reply = curl(&[
        "--upload-file",
        body.to_str().unwrap(),
        &server.url("/files/copy"),
    ]);
    assert_eq!((reply.status, reply.text()), (201, "100000 bytes\n"));
    let mut client = server.connect();
    client
        .write_all(b"PUT /files/half HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf")
        .unwrap();
    drop(client);
    server.stop();

    let server = under_valgrind("download.c", &[]);
    assert_eq!(server.get("/numbers/2000").status, 200);
    server.stop();
}

#[test]
fn chat_has_no_finding_of_valgrind() {
    let server = under_valgrind("chat.c", &[]);
    let mut ada = WebSocket::open(&server, "/rooms/swifts?name=Ada");
    assert_eq!(ada.receive(), "Ada is here");
    ada.send("hello");
    assert_eq!(ada.receive(), "Ada: hello");
    ada.close();
    server.stop();
}
