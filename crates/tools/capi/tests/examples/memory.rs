//! Examples under valgrind: no invalid access, and nothing that a request used stays.

use std::fs;
use std::io::{BufReader, Write};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use apus_testkit::CertificateAuthority;

use crate::harness::{
    Build, C, CPP, Server, WebSocket, compile, curl, free_port, line_with, repository,
};
use crate::services::{PhpCgi, serve_origin};

/// An example under memcheck, which ends with a distinct status after a finding.
fn under_valgrind(source: &str, arguments: &[&str]) -> Server {
    prepare_under_valgrind(source, C, |_, _| {}, arguments)
}

/// What is no mistake of the library.
fn suppressions() -> [String; 2] {
    [
        "examples/c/valgrind.supp",
        "crates/tools/capi/tests/workspace.supp",
    ]
    .map(|file| format!("--suppressions={}", repository().join(file).display()))
}

fn prepare_under_valgrind(
    source: &str,
    build: Build,
    fill: impl FnOnce(&Path, u16),
    arguments: &[&str],
) -> Server {
    let mut command = Command::new("valgrind");
    command
        .args(["--quiet", "--error-exitcode=99", "--leak-check=full"])
        .args([
            "--errors-for-leak-kinds=definite",
            "--show-leak-kinds=definite",
        ])
        .args(suppressions())
        .arg(compile(source, build));
    Server::run(command, source, fill, arguments)
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
    fs::write(&body, vec![b'x'; 100_000]).unwrap();
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

#[test]
fn routes_and_json_have_no_finding_of_valgrind() {
    let server = under_valgrind("routes.c", &[]);
    assert_eq!(server.get("/users/7").text(), "user 7\n");
    assert_eq!(server.get("/search?q=a%20b").text(), "10 results for a b\n");
    assert_eq!(server.get("/admin/status").status, 401);
    assert_eq!(server.get("/nowhere").status, 404);
    server.stop();

    let json = Build {
        libraries: &["-lcjson"],
        ..C
    };
    let server = prepare_under_valgrind("json.c", json, |_, _| {}, &[]);
    let notes = server.url("/notes");
    for (body, status) in [(r#"{"text":"a"}"#, 201), ("{", 400)] {
        let reply = curl(&[
            "-H",
            "Content-Type: application/json",
            "--data",
            body,
            &notes,
        ]);
        assert_eq!(reply.status, status);
    }
    assert_eq!(curl(&["-X", "DELETE", &server.url("/notes/1")]).status, 204);
    server.stop();
}

#[test]
fn files_and_tls_have_no_finding_of_valgrind() {
    let fill = |folder: &Path, _| {
        fs::create_dir(folder.join("site")).unwrap();
        fs::write(folder.join("site/index.html"), "<h1>Swift</h1>\n").unwrap();
    };
    let server = prepare_under_valgrind("static.c", C, fill, &["site"]);
    assert_eq!(server.get("/").text(), "<h1>Swift</h1>\n");
    assert_eq!(server.get("/none").status, 404);
    server.stop();

    let certificate = CertificateAuthority::generate().ecdsa(&["localhost"]);
    let fill = |folder: &Path, _| {
        fs::write(folder.join("cert.pem"), &certificate.pem).unwrap();
        fs::write(folder.join("key.pem"), &certificate.key).unwrap();
    };
    let server = prepare_under_valgrind("tls.c", C, fill, &["cert.pem", "key.pem"]);
    let url = format!("https://127.0.0.1:{}/", server.port);
    for (version, text) in [
        ("--http1.1", "Hello over HTTP/1\n"),
        ("--http2", "Hello over HTTP/2\n"),
    ] {
        assert_eq!(curl(&["--insecure", version, &url]).text(), text);
    }
    server.stop();
}

#[test]
fn events_and_a_loop_have_no_finding_of_valgrind() {
    let server = under_valgrind("sse.c", &[]);
    let mut client = server.connect();
    client
        .write_all(b"GET /events HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    let mut reader = BufReader::new(client);
    line_with(&mut reader, "event: tick");
    drop(reader);
    server.stop();

    let libuv = Build {
        libraries: &["-luv"],
        ..C
    };
    let server = prepare_under_valgrind("libuv.c", libuv, |_, _| {}, &[]);
    assert_eq!(server.get("/").status, 200);
    server.stop();
}

#[test]
fn cpp_objects_have_no_finding_of_valgrind() {
    let server = prepare_under_valgrind("hello.cpp", CPP, |_, _| {}, &[]);
    assert_eq!(server.get("/").text(), "Hello, visitor 1!\n");
    let shout = server.url("/shout");
    assert_eq!(curl(&["--data", "swift", &shout]).text(), "swift!\n");
    assert_eq!(server.get("/later").text(), "later\n");
    assert_eq!(server.get("/mistake").status, 500);
    server.stop();
}

#[test]
fn proxies_have_no_finding_of_valgrind() {
    let requests = Arc::<AtomicUsize>::default();
    let origin = serve_origin(Arc::clone(&requests));
    // Of two origins, one is not there.
    let gone = format!("127.0.0.1:{}", free_port());
    let server = under_valgrind("proxy.c", &[&origin, &gone]);
    for _ in 0..4 {
        assert_eq!(server.get("/page").text(), "GET /page");
        assert_eq!(server.get("/private").text(), "GET /private");
    }
    assert_eq!(requests.load(Ordering::SeqCst), 5);
    // A client that does not wait for its response.
    let mut client = server.connect();
    client
        .write_all(b"GET /private HTTP/1.1\r\nHost: x\r\n\r\n")
        .unwrap();
    drop(client);
    server.stop();

    let server = under_valgrind("proxy.c", &[&gone]);
    assert!([502, 503].contains(&server.get("/").status));
    server.stop();
}

#[test]
fn php_has_no_finding_of_valgrind() {
    let port = free_port();
    let _php = PhpCgi::start(port);
    let fill = |folder: &Path, _| {
        fs::create_dir(folder.join("site")).unwrap();
        let index = "<?php echo $_SERVER['REQUEST_URI'], ' ', $_POST['name'] ?? '';";
        fs::write(folder.join("site/index.php"), index).unwrap();
        fs::write(folder.join("site/style.css"), "p {}").unwrap();
    };
    let address = format!("127.0.0.1:{port}");
    let server = prepare_under_valgrind("php.c", C, fill, &[&address, "site"]);
    for _ in 0..3 {
        assert_eq!(server.get("/users/7").text(), "/users/7 ");
        let reply = curl(&["--data", "name=Ada", &server.url("/index.php")]);
        assert_eq!(reply.text(), "/index.php Ada");
        assert_eq!(server.get("/style.css").text(), "p {}");
    }
    server.stop();
}
