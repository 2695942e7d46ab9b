//! Examples that are compiled with sanitizers: AddressSanitizer with LeakSanitizer, and ThreadSanitizer. The library is as it is:
//! allocations, frees and leaks are seen on both sides, accesses and locks of the program on its side.

use std::fs;
use std::io::{BufReader, Write};
use std::path::Path;
use std::process::Command;

use crate::harness::{
    Build, Server, WebSocket, compile_file, curl, line_with, programs_folder, repository,
};

const LIBUV: &[&str] = &["-luv"];

/// A build of gcc, which comes with both sanitizers.
fn sanitized(kind: Sanitizer, is_cpp: bool, libraries: &'static [&'static str]) -> Build {
    Build {
        compiler: match (kind, is_cpp) {
            (Sanitizer::Address, false) => &["gcc", "-std=c11", "-fsanitize=address"],
            (Sanitizer::Address, true) => &["g++", "-std=c++17", "-fsanitize=address"],
            (Sanitizer::Thread, false) => &["gcc", "-std=c11", "-O1", "-fsanitize=thread"],
            (Sanitizer::Thread, true) => &["g++", "-std=c++17", "-O1", "-fsanitize=thread"],
        },
        libraries,
    }
}

#[derive(Clone, Copy)]
enum Sanitizer {
    Address,
    Thread,
}

/// Starts an example whose text `change` has changed.
fn start_changed(
    source: &str,
    sanitizer: Sanitizer,
    libraries: &'static [&'static str],
    change: impl FnOnce(String) -> String,
) -> Server {
    let folder = tempfile::tempdir_in(programs_folder()).unwrap();
    let original = fs::read_to_string(repository().join("examples/c").join(source)).unwrap();
    let changed = folder.path().join(source);
    fs::write(&changed, change(original)).unwrap();
    let program = folder.path().join("program");
    let build = sanitized(sanitizer, source.ends_with(".cpp"), libraries);
    compile_file(&changed, &program, build);
    run(&program, source, &[])
}

fn start(source: &str, sanitizer: Sanitizer, libraries: &'static [&'static str]) -> Server {
    start_changed(source, sanitizer, libraries, |text| text)
}

fn run(program: &Path, name: &str, arguments: &[&str]) -> Server {
    Server::run(sanitized_command(program), name, |_, _| {}, arguments)
}

fn sanitized_command(program: &Path) -> Command {
    // ThreadSanitizer needs the addresses that it expects.
    let mut command = Command::new("setarch");
    command
        .arg("--addr-no-randomize")
        .arg(program)
        .env("ASAN_OPTIONS", "detect_leaks=1:exitcode=97")
        // The library does not say by which of its operations threads wait for one another: what it does itself is not looked at.
        .env(
            "TSAN_OPTIONS",
            "exitcode=97:halt_on_error=0:ignore_noninstrumented_modules=1",
        );
    command
}

/// Requests, and among them some whose clients leave.
fn use_workers(server: &Server) {
    std::thread::scope(|scope| {
        for (n, expected) in [(10, "55\n"), (17, "1597\n"), (12, "144\n")] {
            scope.spawn(move || {
                for _ in 0..5 {
                    let reply = server.get(&format!("/fibonacci/{n}"));
                    assert_eq!((reply.status, reply.text()), (200, expected));
                    let request = b"GET /fibonacci/18 HTTP/1.1\r\nHost: x\r\n\r\n";
                    server.connect().write_all(request).unwrap();
                }
            });
        }
    });
}

fn use_chat(server: &Server) {
    let mut ada = WebSocket::open(server, "/rooms/swifts?name=Ada");
    assert_eq!(ada.receive(), "Ada is here");
    let mut alan = WebSocket::open(server, "/rooms/swifts?name=Alan");
    assert_eq!(ada.receive(), "Alan is here");
    alan.send("hello");
    assert_eq!(ada.receive(), "Alan: hello");
    drop(alan);
    assert_eq!(ada.receive(), "Alan is gone");
    ada.close();
}

fn use_cpp(server: &Server) {
    assert_eq!(server.get("/").text(), "Hello, visitor 1!\n");
    let shout = server.url("/shout");
    assert_eq!(curl(&["--data", "swift", &shout]).text(), "swift!\n");
    for _ in 0..3 {
        assert_eq!(server.get("/later").text(), "later\n");
    }
    assert_eq!(server.get("/mistake").status, 500);
}

#[test]
fn examples_have_no_finding_of_address_and_leak_sanitizer() {
    let server = start("workers.c", Sanitizer::Address, &[]);
    use_workers(&server);
    // Threads still compute for clients that left when the server ends.
    for _ in 0..20 {
        let request = b"GET /fibonacci/27 HTTP/1.1\r\nHost: x\r\n\r\n";
        server.connect().write_all(request).unwrap();
    }
    server.stop();
    let server = start("chat.c", Sanitizer::Address, &[]);
    use_chat(&server);
    server.stop();
    let server = start("libuv.c", Sanitizer::Address, LIBUV);
    assert_eq!(server.get("/").status, 200);
    server.stop();
    let server = start("hello.cpp", Sanitizer::Address, &[]);
    use_cpp(&server);
    server.stop();
}

/// Ends a program by SIGTERM, and returns what ThreadSanitizer found. It holds signals back in a thread that waits inside the library for
/// another one, as the main thread does in `apus_server_run`, but not in one that waits for sockets.
fn findings(server: Server, thread: &str) -> String {
    let (status, log) = server.terminate_thread(thread);
    match log.find("WARNING: ThreadSanitizer") {
        Some(at) => {
            assert_eq!(status.code(), Some(97), "{log}");
            log[at..].to_owned()
        }
        None => {
            assert!(status.success(), "{status}: {log}");
            String::new()
        }
    }
}

/// A thread of the library, which waits for sockets.
const WORKER: &str = "apus-worker";

#[test]
fn examples_with_threads_have_no_finding_of_thread_sanitizer_up_to_their_end_by_sigterm() {
    let server = start("workers.c", Sanitizer::Thread, &[]);
    use_workers(&server);
    // The server ends while a thread computes, and others wait for work.
    let requests = b"GET /fibonacci/10 HTTP/1.1\r\nHost: x\r\n\r\nGET /fibonacci/30 HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut client = BufReader::new(server.connect());
    client.get_mut().write_all(requests).unwrap();
    line_with(&mut client, "55");
    assert_eq!(findings(server, WORKER), "");
    let server = start("chat.c", Sanitizer::Thread, &[]);
    use_chat(&server);
    // And while sockets are open, in rooms that the main thread frees.
    let mut grace = WebSocket::open(&server, "/rooms/swifts?name=Grace");
    assert_eq!(grace.receive(), "Grace is here");
    assert_eq!(findings(server, WORKER), "");
    let server = start("libuv.c", Sanitizer::Thread, LIBUV);
    assert_eq!(server.get("/").status, 200);
    assert_eq!(findings(server, "program"), "");
    let server = start("hello.cpp", Sanitizer::Thread, &[]);
    use_cpp(&server);
    assert_eq!(findings(server, WORKER), "");
}

#[test]
fn writers_that_threads_finish_while_clients_leave_have_no_finding_of_sanitizers() {
    let source = repository().join("crates/tools/capi/tests/c/races.c");
    for kind in [Sanitizer::Address, Sanitizer::Thread] {
        let folder = tempfile::tempdir_in(programs_folder()).unwrap();
        let program = folder.path().join("races");
        compile_file(&source, &program, sanitized(kind, false, &[]));
        let output = sanitized_command(&program).arg("load").output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {errors}", output.status);
        assert_eq!(errors, "");
    }
}

/// The text with a part that is there once in place of another one.
fn replace(text: &str, from: &str, to: &str) -> String {
    assert_eq!(text.matches(from).count(), 1, "{from}");
    text.replace(from, to)
}

/// The checks above would see mistakes in how a program uses the library.
#[test]
fn sanitizers_find_mistakes_that_are_put_into_examples() {
    // Handlers and threads count in a variable without a lock.
    let server = start_changed("workers.c", Sanitizer::Thread, &[], |text| {
        let text = replace(
            &text,
            "static bool ends;",
            "static bool ends;\nstatic unsigned all;",
        );
        let text = replace(
            &text,
            "\tint result = 0;\n",
            "\tint result = 0;\n\tall++;\n",
        );
        let from = "\t\tif (!apus_deferred_is_cancelled(job.deferred)) {";
        replace(&text, from, &format!("\t\tall++;\n{from}"))
    });
    for _ in 0..5 {
        assert_eq!(server.get("/fibonacci/10").status, 200);
    }
    let found = findings(server, WORKER);
    assert!(found.contains("data race"), "{found}");
    assert!(found.contains("'all'"), "{found}");

    // After SIGTERM, the main thread ends the other threads without a lock.
    let server = start_changed("workers.c", Sanitizer::Thread, &[], |text| {
        let from = "\tpthread_mutex_lock(&lock);\n\tends = true;\n\tpthread_cond_broadcast(&changed);\n\tpthread_mutex_unlock(&lock);\n";
        replace(
            &text,
            from,
            "\tends = true;\n\tpthread_mutex_lock(&lock);\n\tpthread_cond_broadcast(&changed);\n\tpthread_mutex_unlock(&lock);\n",
        )
    });
    use_workers(&server);
    let found = findings(server, WORKER);
    assert!(found.contains("data race"), "{found}");
    assert!(found.contains("'ends'"), "{found}");

    // A member of a room is not freed.
    let server = start_changed("chat.c", Sanitizer::Address, &[], |text| {
        let from = "apus_websocket_set_data(socket, member, free);";
        replace(
            &text,
            from,
            "apus_websocket_set_data(socket, member, NULL);",
        )
    });
    use_chat(&server);
    let found = server.stop_with(97);
    assert!(found.contains("detected memory leaks"), "{found}");
    assert!(found.contains("in enter "), "{found}");

    // The body of a response is freed while the library sends it.
    let server = start_changed("hello.c", Sanitizer::Address, &[], |text| {
        let text = text.replace(
            "#include <stdio.h>",
            "#include <stdio.h>\n#include <stdlib.h>",
        );
        let body = "apus_response_text(response, \"Hello, world!\\n\", APUS_NTS);";
        let freed = "char *text = calloc(1, 9);\n\tapus_response_body_owned(response, text, 9, free, text);\n\tfree(text);";
        replace(&text, body, freed)
    });
    let mut client = server.connect();
    let _ = client.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let _ = std::io::copy(&mut client, &mut std::io::sink());
    let found = server.ended_with(97);
    assert!(found.contains("AddressSanitizer"), "{found}");
}
