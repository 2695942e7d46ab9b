//! A server in C with a route for each part of the header, and its clients.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use apus_testkit::{CertificateAuthority, free_port};
use tempfile::TempDir;
use tungstenite::protocol::CloseFrame;
use tungstenite::protocol::frame::coding::CloseCode;
use tungstenite::{Message, WebSocket};

use crate::program::{
    OtherProcess, Program, command, compile, connect, eventually, exchange, get, get_with,
    try_connect,
};

/// The compiled program, for all tests.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, program) = PROGRAM.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let program = compile("server.c", folder.path());
        (folder, program)
    });
    program
}

struct CServer {
    program: Program,
    port: u16,
    /// The port of the configuration.
    configured: u16,
    tls: u16,
    folder: TempDir,
}

impl CServer {
    fn start() -> Self {
        Self::start_with(command(program()), &[])
    }

    fn start_with(mut command: Command, tls: &[PathBuf]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("small.txt"), "small file\n").unwrap();
        fs::write(folder.path().join("big.txt"), "0123456789".repeat(50_000)).unwrap();
        let configured = free_port();
        command
            .arg(folder.path())
            .arg(configured.to_string())
            .args(tls);
        let mut program = Program::start(command);
        let line = program.line();
        let ports: Vec<u16> = line.split(' ').map(|port| port.parse().unwrap()).collect();
        assert_eq!(ports.len(), usize::from(ports[0]) + 1, "{line}");
        assert_eq!(*ports.last().unwrap(), configured);
        Self {
            program,
            port: ports[1],
            configured,
            tls: if tls.is_empty() { 0 } else { ports[2] },
            folder,
        }
    }

    fn body(&self, path: &str) -> String {
        let reply = get(self.port, path);
        assert_eq!(reply.status(), 200, "{path}: {reply:?}");
        reply.body
    }

    /// Waits until the counts of the program contain a text.
    fn eventually_counts(&self, text: &str) {
        let mut last = String::new();
        eventually(text, || {
            last = self.body("/counts");
            last.contains(text)
        });
    }

    fn end(self) {
        assert_eq!(self.program.end(), "freed 1 1\n");
    }
}

#[test]
fn handlers_read_requests_and_set_responses() {
    let server = CServer::start();
    let port = server.port;
    assert_eq!(server.body("/hello"), "hello, world\n");
    assert_eq!(server.body("/users/42/ann%20b"), "42 42 ann b none");
    let reply = get(port, "/users/x/y");
    assert_eq!(reply.status(), 422);
    assert_eq!(
        reply.body,
        "apus_request_param_u64: expected an integer of 64 bits without a sign for `id`; got \"x\"; return 400 or 404 from \
         the handler"
    );
    let reply = get_with(
        port,
        "/facts?x=1&a+b=c%2Fd",
        "Cookie: other=1; taste=\"sweet\"\r\nx-case: Value\r\n",
    );
    assert_eq!(
        reply.body,
        "GET /facts q=x=1&a+b=c%2Fd v=c/d h=localhost s=http c=sweet x=Value ip=127.0.0.1 version=11 fields=3 body=0 cert=0"
    );
    for method in ["POST", "PUT", "DELETE"] {
        let reply = exchange(
            port,
            &format!("{method} /headers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"),
        );
        assert_eq!(reply.status(), 201, "{reply:?}");
        assert_eq!(reply.body, "{\"ok\":true}");
        assert_eq!(reply.field("content-type"), Some("application/json"));
        assert_eq!(reply.field("x-one"), Some("second"));
        assert_eq!(reply.field("x-removed"), None);
        assert_eq!(
            reply.head.matches("x-many").count() + reply.head.matches("X-Many").count(),
            2
        );
    }
    assert_eq!(
        get(port, "/page").field("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(get(port, "/redirect").field("location"), Some("/hello"));
    assert_eq!(server.body("/owned"), "owned bytes");
    server.eventually_counts("body=1");
    assert_eq!(server.body("/copied"), "copied bytes");
    assert_eq!(server.body("/sendfile").len(), 499_990);
    server.end();
}

#[test]
fn errors_of_handlers_get_the_form_of_the_error_handler() {
    let server = CServer::start();
    assert_eq!(get(server.port, "/status/409").body, "error 409  format 0");
    let reply = get_with(server.port, "/status/503", "Accept: application/json\r\n");
    assert_eq!((reply.status(), &*reply.body), (503, "error 503  format 2"));
    // Left to the library.
    assert_eq!(get(server.port, "/unknown").status(), 404);
    // A mistake of the handler.
    assert_eq!(get(server.port, "/status/7").status(), 500);
    server.eventually_counts("log=1");
    assert_eq!(get(server.port, "/defer-error").status(), 429);
    server.end();
}

#[test]
fn groups_hosts_hooks_and_mounts_route_requests() {
    let server = CServer::start();
    let port = server.port;
    assert_eq!(server.body("/api/hello"), "hello from the group\n");
    assert_eq!(server.body("/api/v1/hello"), "hello from v1\n");
    assert_eq!(server.body("/api/other"), "fallback\n");
    let other = exchange(
        port,
        "GET /hello HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n",
    );
    assert_eq!(other.body, "hello from the host\n");
    let stopped = get_with(port, "/hello", "X-Stop: 1\r\n");
    assert_eq!((stopped.status(), &*stopped.body), (418, "stopped"));
    assert_eq!(get_with(port, "/hello", "X-Refuse: 1\r\n").status(), 401);
    assert_eq!(get(port, "/hello").field("x-after"), Some("yes"));
    assert_eq!(
        get_with(port, "/data", "X-User: 1\r\n").body,
        "data of the hook"
    );
    assert_eq!(get(port, "/data").body, "no data");
    server.eventually_counts("done=2 data=1 gone=0");

    assert_eq!(server.body("/files/small.txt"), "small file\n");
    assert_eq!(
        get(port, "/files/small.txt").field("cache-control"),
        Some("max-age=60")
    );
    let moved = get(port, "/moved/");
    assert_eq!(
        (moved.status(), moved.field("location")),
        (301, Some("https://example.com/"))
    );
    assert!(server.body("/mounted/inside").starts_with("GET /inside"));
    // The proxy forwards to the Unix socket of the same server.
    assert_eq!(server.body("/proxied/files/small.txt"), "small file\n");
    // With the path of the client, also where it has encoded slashes.
    for (path, status) in [
        ("/raw/object/a%2F%2Fb", 200),
        ("/raw/object/a%2f", 200),
        // Dot segments are resolved before the service that is mounted gets the path.
        ("/raw/object/..%2Fa", 404),
        ("/raw%2Fobject/a", 400),
    ] {
        assert_eq!(get(port, path).status(), status, "{path}");
    }
    let cached = get(port, "/proxied/files/small.txt");
    assert!(
        cached.field("cache-status").unwrap().contains("hit"),
        "{cached:?}"
    );
    let configured =
        "GET /sites/text HTTP/1.1\r\nHost: configured.example\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(port, configured).body, "configured");
    let configured = configured.replace("/sites", "");
    assert_eq!(exchange(server.configured, &configured).body, "configured");
    server.end();
}

fn post(port: u16, path: &str, body: &str) -> crate::program::Reply {
    exchange(
        port,
        &format!(
            "POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        ),
    )
}

#[test]
fn bodies_are_read_whole_and_in_parts() {
    let server = CServer::start();
    let port = server.port;
    assert_eq!(post(port, "/body", "").body, "read 0 ");
    assert_eq!(
        post(port, "/body", &"x".repeat(100_000)).body,
        "read 100000 "
    );
    assert_eq!(post(port, "/body", &"x".repeat(100_001)).status(), 413);
    let chunked = "POST /body HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: five\r\n\r\n";
    assert_eq!(exchange(port, chunked).body, "read 5 five");
    assert_eq!(
        post(port, "/upload", &"y".repeat(300_000)).body,
        "APUS_END 300000"
    );
    assert_eq!(post(port, "/upload", "").body, "APUS_END 0");
    let long = post(port, "/upload", &"y".repeat((1 << 20) + 1));
    assert_eq!(long.status(), 413, "{long:?}");
    // A client that goes away.
    let mut stream = connect(port);
    stream
        .write_all(b"POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nabc")
        .unwrap();
    drop(stream);
    server.eventually_counts("gone=1");
    server.end();
}

#[test]
fn responses_are_completed_by_threads_timers_and_posted_functions() {
    let server = CServer::start();
    assert_eq!(server.body("/defer/ann"), "deferred ann");
    assert_eq!(server.body("/timer"), "three ticks");
    assert_eq!(server.body("/executor"), "on a worker");
    let reply = get(server.port, "/interim");
    assert!(reply.head.starts_with("HTTP/1.1 103"), "{reply:?}");
    assert!(reply.body.ends_with("final"), "{reply:?}");
    // A client that goes away while a thread works.
    let mut stream = connect(server.port);
    stream
        .write_all(b"GET /slow HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    stream.shutdown(Shutdown::Both).unwrap();
    drop(stream);
    server.eventually_counts("done=1 data=1 gone=1 starts=2");
    server.eventually_counts("cancelled=1");
    server.end();
}

#[test]
fn bodies_are_written_in_parts_with_back_pressure() {
    let server = CServer::start();
    let port = server.port;
    let reply = get(port, "/stream/3000");
    assert!(reply.body.contains("2999"), "the last line");
    assert!(reply.body.len() > 3000 * 1024);
    let reply = get_with(port, "/stream/3", "TE: trailers\r\n");
    assert!(
        reply.body.to_ascii_lowercase().contains("x-lines: done"),
        "{reply:?}"
    );
    let reply = get(port, "/stream-thread");
    for part in ["part 0\n", "part 1\n", "part 2\n", "small"] {
        assert!(reply.body.contains(part), "{reply:?}");
    }
    let reply = get(port, "/stream-abort");
    assert!(!reply.body.ends_with("0\r\n\r\n"), "{reply:?}");
    assert!(get(port, "/stream-full").body.contains("123456"));
    // A client that does not read all of it.
    let mut stream = connect(port);
    stream
        .write_all(b"GET /stream/1000000 HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut some = [0; 10_000];
    stream.read_exact(&mut some).unwrap();
    drop(stream);
    server.eventually_counts("writer=1");
    let reply = get(port, "/events");
    assert_eq!(reply.field("content-type"), Some("text/event-stream"));
    for line in [
        "event: greeting",
        "data: hello",
        "data: world",
        "data: last",
    ] {
        assert!(reply.body.contains(line), "{reply:?}");
    }
    server.end();
}

fn open(server: &CServer, path: &str, protocol: &str) -> WebSocket<TcpStream> {
    use tungstenite::client::IntoClientRequest as _;

    let url = format!("ws://127.0.0.1:{}{path}", server.port);
    let mut request = url.into_client_request().unwrap();
    if !protocol.is_empty() {
        request
            .headers_mut()
            .insert("sec-websocket-protocol", protocol.parse().unwrap());
    }
    tungstenite::client(request, connect(server.port))
        .unwrap()
        .0
}

fn text(socket: &mut WebSocket<TcpStream>) -> String {
    socket.read().unwrap().into_text().unwrap().to_string()
}

#[test]
fn websockets_have_events_and_rooms() {
    let mut server = CServer::start();
    let refused = get_with(
        server.port,
        "/chat/lobby?forbidden=1",
        "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
    );
    assert_eq!(refused.status(), 403, "{refused:?}");
    let mut one = open(&server, "/chat/lobby", "superchat");
    assert_eq!(text(&mut one), "welcome to lobby by superchat");
    let mut two = open(&server, "/chat/lobby", "");
    assert_eq!(text(&mut two), "welcome to lobby by ");
    one.send(Message::text("hello")).unwrap();
    assert_eq!(text(&mut two), "hello");
    one.send(Message::binary(vec![1, 2, 3])).unwrap();
    assert_eq!(one.read().unwrap().into_data().to_vec(), [1, 2, 3]);
    server.program.send("publish");
    assert_eq!(text(&mut one), "from outside");
    assert_eq!(text(&mut two), "from outside");
    assert_eq!(server.program.line(), "published");
    two.send(Message::text("leave")).unwrap();
    assert_eq!(text(&mut two), "left");
    one.send(Message::text("quit")).unwrap();
    let closed = one.read().unwrap();
    let frame = CloseFrame {
        code: CloseCode::Normal,
        reason: "bye".into(),
    };
    assert_eq!(closed, Message::Close(Some(frame)));
    let _ = one.flush();
    drop(two);
    server.eventually_counts("closes=2 sockets=2");
    // A client that reads slowly gets everything once it reads.
    let mut slow = open(&server, "/flood", "");
    server.eventually_counts("drained=");
    let mut count = 0;
    while let Ok(Message::Binary(_)) = slow.read() {
        count += 1;
    }
    assert_eq!(count, 400);
    server.eventually_counts("flooded=400 drained=1");
    server.end();
}

#[test]
fn websockets_offer_compression_unless_it_is_off() {
    let server = CServer::start();
    for (path, is_offered) in [("/chat/lobby", true), ("/flood", false)] {
        let mut stream = connect(server.port);
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.extend_from_slice(&byte);
        }
        let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let offer = "\r\nsec-websocket-extensions: permessage-deflate";
        assert_eq!(head.contains(offer), is_offered, "{path}: {head}");
    }
    server.end();
}

#[test]
fn tls_has_certificates_by_name_http2_http3_and_clients_with_certificates() {
    let authority = CertificateAuthority::generate();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let issued = authority.ecdsa(&["localhost", "a.example.com"]);
    let found = authority.ecdsa(&["found.example"]);
    let client = authority.ecdsa(&["client"]);
    let ca = file("ca.pem", &authority.pem);
    let files = [
        file("cert.pem", &issued.pem),
        file("key.pem", &issued.key),
        file("found.pem", &found.pem),
        file("found.key", &found.key),
        ca.clone(),
    ];
    let client = [
        file("client.pem", &client.pem),
        file("client.key", &client.key),
    ];
    let server = CServer::start_with(command(program()), &files);
    let curl = |host: &str, arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--cacert"])
            .arg(&ca)
            .args(["--resolve", &format!("{host}:{}:127.0.0.1", server.tls)])
            .args(arguments)
            .arg(format!("https://{host}:{}/facts", server.tls))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        text
    };
    let reply = curl("localhost", &["--http1.1"]);
    assert!(
        reply.contains("s=https") && reply.contains("version=11"),
        "{reply}"
    );
    assert!(curl("a.example.com", &["--http2"]).contains("version=20"));
    // By the function of the program, once.
    for _ in 0..2 {
        assert!(curl("found.example", &["--http2"]).contains("h=found.example"));
    }
    let reply = crate::http3::get(server.tls, &authority, "found.example", "/facts");
    assert!(reply.contains("version=30"), "{reply}");
    let [certificate, key] = client.each_ref().map(|path| path.to_str().unwrap());
    let reply = curl("localhost", &["--cert", certificate, "--key", key]);
    assert!(reply.ends_with("cert=1"), "{reply}");
    // The key that the library read from a file, and the access log, are never served.
    fs::hard_link(&files[3], server.folder.path().join("found.key")).unwrap();
    fs::hard_link(&files[2], server.folder.path().join("found.pem")).unwrap();
    for (path, status) in [
        ("/files/found.pem", 200),
        ("/files/found.key", 404),
        ("/files/access.log", 404),
    ] {
        assert_eq!(get(server.port, path).status(), status, "{path}");
    }
    server.end();
}

#[test]
fn requests_are_logged_and_counted() {
    let mut server = CServer::start();
    server.body("/hello");
    server.eventually_counts("entries=1");
    server.program.send("status");
    let status: serde_json::Value = serde_json::from_str(&server.program.line()).unwrap();
    assert_eq!(status["workers"].as_array().unwrap().len(), 2);
    assert!(
        status["totals"]["requests"].as_u64().unwrap() >= 1,
        "{status}"
    );
    assert!(status["routes"].as_array().unwrap().len() > 20);
    let log = server.folder.path().join("access.log");
    let folder = server.folder;
    assert_eq!(server.program.end(), "freed 1 1\n");
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("\"GET /hello HTTP/1.1\" 200"), "{log}");
    drop(folder);
}

#[test]
fn the_server_in_c_is_clean_under_valgrind() {
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args([
            "--quiet",
            "--error-exitcode=9",
            "--leak-check=full",
            "--show-leak-kinds=definite",
            "--errors-for-leak-kinds=definite",
            concat!(
                "--suppressions=",
                env!("CARGO_MANIFEST_DIR"),
                "/tests/workspace.supp"
            ),
        ])
        .arg(program())
        .env("LD_LIBRARY_PATH", program().parent().unwrap());
    let server = CServer::start_with(valgrind, &[]);
    for path in [
        "/hello",
        "/users/1/a",
        "/facts?a+b=c",
        "/owned",
        "/defer/x",
        "/timer",
        "/executor",
    ] {
        server.body(path);
    }
    for path in [
        "/status/404",
        "/stream/50",
        "/stream-thread",
        "/events",
        "/files/small.txt",
        "/proxied/files/small.txt",
    ] {
        get(server.port, path);
    }
    assert_eq!(
        post(server.port, "/body", &"x".repeat(50_000)).body,
        "read 50000 "
    );
    assert_eq!(
        post(server.port, "/upload", &"x".repeat(50_000)).body,
        "APUS_END 50000"
    );
    let mut socket = open(&server, "/chat/lobby", "");
    text(&mut socket);
    socket.send(Message::text("quit")).unwrap();
    while socket.read().is_ok() {}
    server.eventually_counts("sockets=1");
    server.end();
}

/// A handler that stopped its server could find that it had not started yet.
#[test]
fn workers_use_their_server_before_its_start_returns() {
    let folder = tempfile::tempdir().unwrap();
    let early = compile("early.c", folder.path());
    let mut command = command(&early);
    command.arg("127.0.0.1:0");
    let output = Program::start(command).end();
    assert_eq!(output, "3 workers, 0 without port, 0 without status\n");
}

#[test]
fn php_runs_behind_a_server_that_ends_by_signal_or_by_a_handler() {
    let folder = tempfile::tempdir().unwrap();
    let site = folder.path().join("site");
    fs::create_dir(&site).unwrap();
    fs::write(
        site.join("index.php"),
        "<?php echo 'php ', $_SERVER['REQUEST_URI'];",
    )
    .unwrap();
    fs::write(site.join("a.txt"), "a file").unwrap();
    let run = compile("run.c", folder.path());
    let backend = format!("127.0.0.1:{}", free_port());
    let php = Command::new("php-cgi8.2")
        .args(["-b", &backend])
        .spawn()
        .unwrap();
    let _php = OtherProcess(php);
    for by_signal in [true, false] {
        let port = free_port();
        let mut command = command(&run);
        command.args([
            &backend,
            site.to_str().unwrap(),
            &format!("127.0.0.1:{port}"),
        ]);
        let mut program = Program::start(command);
        assert_eq!(program.line(), "started");
        eventually("a response of PHP", || {
            try_connect(port).is_ok() && get(port, "/php/").body == "php /php/"
        });
        assert_eq!(get(port, "/php/a.txt").body, "a file");
        assert_eq!(get(port, "/php/unknown?a=1").body, "php /php/unknown?a=1");
        if by_signal {
            program.terminate()
        } else {
            assert_eq!(get(port, "/stop").body, "stopping")
        }
        assert_eq!(program.end(), "APUS_OK\n");
    }
}
