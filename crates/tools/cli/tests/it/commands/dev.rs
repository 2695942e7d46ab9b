//! `apus dev`: builds, runs and restarts an application, and shows its mistakes.
//!
//! Most tests have their own Cargo, which builds nothing: the program of a project is a script that runs
//! [`application`] of these tests, and its only source file is the name of the version.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use apus::layers::{Compression, CspNonce, SecurityHeaders};
use apus::{App, ErrorFormat, Html, Json, Request, Response, Server, StatusCode, WebSocketUpgrade};
use rustix::net::RecvFlags;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Apus, Ends, Home, Reply, connect, wait_until};
use crate::wire::Wire;

/// A project with a Cargo that builds nothing.
pub(crate) struct DevProject {
    pub(crate) home: Home,
}

/// The Cargo. It fails with an error of the compiler if the source has `mistake`.
const CARGO: &str = r##"#!/bin/bash
folder=$(dirname "$0")/..
case $1 in
metadata) cat "$folder/metadata.json" ;;
build)
    echo built >>"$folder/builds"
    source=$(cat "$folder/shop/src/main.rs")
    if [[ $source == *slow* ]]; then
        until [[ -e $folder/go ]]; do sleep 0.05; done
    fi
    if [[ $source == *mistake* ]]; then
        echo '{"reason":"compiler-message","message":{"level":"error","message":"expected `;`, found `<b>`","spans":[{"file_name":"src/main.rs","line_start":7,"column_start":3,"is_primary":true}],"rendered":"\u001b[1merror\u001b[0m: expected `;`, found `<b>`\n --> src/main.rs:7:3\n"}}'
        exit 101
    fi
    if [[ $source == *manifest* ]]; then
        echo "error: failed to parse manifest" >&2
        exit 101
    fi
    program=$folder/target/debug/shop
    mkdir -p "$folder/target/debug"
    printf '#!/bin/sh\nVERSION="%s" exec "%s" --exact commands::dev::application --ignored --nocapture\n' "$source" "$APPLICATION" >"$program.new"
    chmod +x "$program.new"
    cmp -s "$program.new" "$program" || mv "$program.new" "$program"
    echo "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"shop\"},\"executable\":\"$program\"}"
    ;;
esac
"##;

impl DevProject {
    pub(crate) fn new() -> Self {
        let project = Self { home: Home::new() };
        let home = &project.home;
        for folder in ["bin", "shop", "shop/src", "shop/templates"] {
            fs::create_dir(home.path(folder)).unwrap();
        }
        home.write("shop/Cargo.toml", "[package]\nname = \"shop\"\n");
        let cargo = home.write("bin/cargo", CARGO);
        fs::set_permissions(cargo, fs::Permissions::from_mode(0o755)).unwrap();
        project.set_dependency("apus");
        project.change("one");
        project
    }

    fn set_dependency(&self, name: &str) {
        let metadata = json!({
            "packages": [{
                "name": "shop",
                "manifest_path": self.home.path("shop/Cargo.toml"),
                "dependencies": [{"name": name}],
                "targets": [{"name": "shop", "kind": ["bin"]}],
            }],
            "workspace_root": self.home.path("shop"),
            "target_directory": self.home.path("target"),
        });
        self.home.write("metadata.json", metadata.to_string());
    }

    /// Changes the source.
    pub(crate) fn change(&self, source: &str) {
        self.home.write("shop/src/main.rs", source);
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.home.command(&[&["dev"], arguments].concat());
        let path = env::var("PATH").unwrap();
        command
            .env(
                "PATH",
                format!("{}:{path}", self.home.path("bin").display()),
            )
            .env("APPLICATION", env::current_exe().unwrap())
            .env_remove("RUST_BACKTRACE")
            .current_dir(self.home.path("shop"));
        command
    }

    pub(crate) fn develop(&self) -> Apus {
        Apus::start(self.command(&["--listen", "127.0.0.1:0"]))
    }

    fn builds(&self) -> usize {
        self.home.read("builds").lines().count()
    }
}

/// The application of the tests, as `main` of a project would be.
#[test]
#[ignore = "`apus dev` runs it in the other tests"]
fn application() {
    let Ok(version) = env::var("VERSION") else {
        return;
    };
    if version.starts_with("end") {
        eprintln!("there is no <database>");
        std::process::exit(3);
    }
    if version.starts_with("busy") {
        return busy_application();
    }
    let kind = version.clone();
    let page = format!("<!doctype html><title>{version}</title><h1>{version}</h1>");
    let policy = "default-src 'none'; script-src 'nonce-{nonce}'";
    static WAITING: AtomicUsize = AtomicUsize::new(0);
    static FORMS: AtomicUsize = AtomicUsize::new(0);
    let app = App::new()
        .get("/never", async || {
            WAITING.fetch_add(1, Ordering::SeqCst);
            std::future::pending::<()>().await;
        })
        .get("/waiting", async || {
            WAITING.load(Ordering::SeqCst).to_string()
        })
        .layer(SecurityHeaders::new().content_security_policy(policy))
        .layer(Compression::default())
        .get("/", move || Html(page.clone()))
        .post("/", async |body: String| body)
        .get("/json", async || Json(["<h1>"]))
        .get("/pid", async || std::process::id().to_string())
        .get("/client", async |request: Request| {
            let client = request.client().ip.unwrap();
            let authority = request.authority().unwrap_or_default();
            format!("{client} {}://{authority}", request.scheme())
        })
        .get("/encoding", async |request: Request| {
            let encoding = request.headers().get_str("accept-encoding");
            Html(format!("{encoding:?}"))
        })
        .get("/meta", async || {
            let policy = "default-src 'self'; connect-src 'none'";
            Html(format!(
                "<meta http-equiv=Content-Security-Policy content=\"{policy}\"><title>meta</title>"
            ))
        })
        .get("/form", async |nonce: CspNonce| {
            let script = format!("<script nonce={nonce}>document.forms[0].submit()</script>");
            Html(format!("<form method=post action=/form></form>{script}"))
        })
        .post("/form", async || {
            let count = FORMS.fetch_add(1, Ordering::SeqCst) + 1;
            Html(format!("<!doctype html><title>form {count}</title><body>"))
        })
        .get("/forms", async || FORMS.load(Ordering::SeqCst).to_string())
        .get("/socket", move |upgrade: WebSocketUpgrade| {
            let version = version.clone();
            async move {
                upgrade.run(async move |mut socket| {
                    while let Some(message) = socket.recv().await {
                        let text = message.as_text().unwrap_or_default();
                        if socket.send(format!("{version} {text}")).await.is_err() {
                            break;
                        }
                    }
                })
            }
        })
        .get("/panic", async || -> Response { panic!("no such <user>") })
        .group("/api", |api| {
            api.error_format(ErrorFormat::Json)
                .get("/panic", async || -> Response { panic!("no such <user>") })
        })
        .get("/failure", async || StatusCode::INTERNAL_SERVER_ERROR);
    // Nobody can listen there, so it fails if the socket of `apus dev` is not used.
    let server = Server::new(app).listen("192.0.2.1:1").unwrap();
    let inside = App::new().get("/", async || "inside");
    let other = || Server::new(inside.clone()).listen("127.0.0.1:0").unwrap();
    if kind.starts_with("two servers") {
        let _metrics = other().start().unwrap();
        eprintln!("{}", server.start().unwrap_err());
        std::process::exit(3);
    }
    if kind.starts_with("again") {
        other().start().unwrap().stop();
    }
    let server = if kind.starts_with("also") {
        server.also("127.0.0.1:0", inside.clone()).unwrap()
    } else {
        server
    };
    server.run().unwrap();
}

/// An application on a busy machine: it reads the second request of a connection half a second after it came, and loses it when
/// it is ended meanwhile.
fn busy_application() {
    let listener = UnixListener::bind(env::var_os("APUS_DEV_SOCKET").unwrap()).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        thread::spawn(move || {
            for request in 0.. {
                let mut waiting = [0];
                let Ok(1) =
                    rustix::net::recv(&stream, &mut waiting, RecvFlags::PEEK).map(|read| read.0)
                else {
                    return;
                };
                if request > 0 {
                    thread::park_timeout(Duration::from_millis(500));
                }
                let mut head = [0; 4096];
                if stream.read(&mut head).unwrap_or(0) == 0 {
                    return;
                }
                let response = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbusy";
                if stream.write_all(response).is_err() {
                    return;
                }
            }
        });
    }
}

/// Runs [`application`] in a separate process, on a socket.
pub(crate) fn application_command(socket: &Path) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args(["--exact", "commands::dev::application", "--ignored"])
        .env("VERSION", "one")
        .env("APUS_DEV_SOCKET", socket)
        .stdout(Stdio::null());
    command
}

/// The response to a request with these lines in its head, over a new connection.
fn ask(address: SocketAddr, request_line: &str, fields: &str) -> Reply {
    let mut stream = connect(address);
    let request =
        format!("{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    Reply::read(stream)
}

/// The field of a browser that opens a page.
const HTML: &str =
    "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\nSec-Fetch-Dest: document\r\n";

#[test]
fn requests_wait_until_the_application_is_built_and_listens() {
    let project = DevProject::new();
    let apus = project.develop();
    let reply = apus.get("/");
    assert_eq!(reply.status, 200, "{reply:?}");
    assert!(reply.body.contains("<h1>one</h1>"), "{reply:?}");
    // It sees the clients of `apus dev`, and not the socket.
    let authority = apus.address();
    assert_eq!(apus.get("/client").body, "127.0.0.1 http://localhost");
    let claimed = ask(authority, "GET /client", "X-Forwarded-For: 203.0.113.1\r\n");
    assert_eq!(claimed.body, "127.0.0.1 http://localhost");
    // In a pipe, there is no progress.
    assert_eq!(apus.log(), "");
}

#[test]
fn a_page_says_that_the_application_is_built() {
    let project = DevProject::new();
    project.change("slow");
    let apus = project.develop();
    let page = ask(apus.address(), "GET /", HTML);
    assert_eq!(page.status, 503);
    assert!(page.head.contains("retry-after: 1"), "{page:?}");
    for text in ["shop is being built", "/__apus_dev/reload.js?v="] {
        assert!(page.body.contains(text), "{text} is missing:\n{page:?}");
    }
    // Requests of programs wait.
    thread::scope(|scope| {
        let waiting = scope.spawn(|| apus.get("/"));
        project.home.write("go", "");
        assert!(waiting.join().unwrap().body.contains("<h1>slow</h1>"));
    });
    // The application responds while the next version is built.
    fs::remove_file(project.home.path("go")).unwrap();
    project.change("slow again");
    wait_until("the next build runs", || project.builds() == 2);
    assert!(apus.get("/").body.contains("<h1>slow</h1>"));
    project.home.write("go", "");
    wait_until("it is built", || {
        apus.get("/").body.contains("<h1>slow again</h1>")
    });
}

#[test]
fn a_restart_loses_no_request() {
    let project = DevProject::new();
    let apus = project.develop();
    let address = apus.address();
    assert_eq!(apus.get("/").status, 200);
    let is_over = AtomicBool::new(false);
    let counts = thread::scope(|scope| {
        let ends = Ends(&is_over);
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let is_over = &is_over;
                scope.spawn(move || {
                    let mut count = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let reply = match client % 2 {
                            0 => ask(address, "GET /", ""),
                            _ => ask(
                                address,
                                "POST /",
                                "Content-Type: text/plain\r\nContent-Length: 0\r\n",
                            ),
                        };
                        assert_eq!(reply.status, 200, "{reply:?}");
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        for version in ["two", "three", "four"] {
            project.change(version);
            wait_until(version, || apus.get("/").body.contains(version));
        }
        drop(ends);
        let clients = clients.into_iter();
        clients
            .map(|client| client.join().unwrap())
            .collect::<Vec<u32>>()
    });
    assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
}

/// A page of another site can lead a browser to this machine under a name of that site (DNS rebinding).
#[test]
fn names_of_other_sites_are_refused_at_every_path() {
    let project = DevProject::new();
    let arguments = ["--listen", "127.0.0.1:0", "--host", "shop.test"];
    let apus = Apus::start(project.command(&arguments));
    let address = apus.address();
    let request = |line: &str, host: &str, fields: &str| {
        let mut stream = connect(address);
        let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{fields}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        Reply::read(stream)
    };
    let port = address.port();
    assert_eq!(apus.get("/").status, 200);
    for host in [
        format!("localhost:{port}"),
        format!("127.0.0.1:{port}"),
        format!("[::1]:{port}"),
        "app.localhost".to_owned(),
        "shop.test".to_owned(),
    ] {
        assert_eq!(request("GET /", &host, HTML).status, 200, "{host}");
    }
    let upgrade = "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    for host in [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "192.0.2.7",
    ] {
        for (line, fields) in [
            ("GET /", HTML),
            ("GET /json", ""),
            ("POST /", "Content-Length: 0\r\n"),
            ("OPTIONS /", ""),
            ("GET /socket", upgrade),
            ("GET /__apus_dev/reload.js", ""),
            ("GET /__apus_dev/events", ""),
        ] {
            let reply = request(line, host, fields);
            assert_eq!(reply.status, 421, "{line} of {host}: {reply:?}");
            assert!(!reply.body.contains("<h1>one"), "{reply:?}");
        }
    }
    let reply = request("GET /", "evil.example", "");
    assert!(reply.body.contains("--host evil.example"), "{reply:?}");
    // The mistakes of a build show sources.
    project.change("a mistake");
    wait_until("the mistake is shown", || {
        request("GET /", "localhost", HTML).status == 500
    });
    let reply = request("GET /", "evil.example", HTML);
    assert_eq!(reply.status, 421);
    assert!(!reply.body.contains("main.rs"), "{reply:?}");
}

#[test]
fn a_restart_waits_for_a_post_that_is_on_its_way_over_a_kept_connection() {
    let project = DevProject::new();
    project.change("busy");
    let apus = project.develop();
    // The workers of `apus dev` have their own connections.
    let mut clients: Vec<_> = (0..8).map(|_| connect(apus.address())).collect();
    let request = "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n";
    let mut respond = |connection: &str, between: &dyn Fn()| {
        for client in &mut clients {
            write!(client, "{request}{connection}\r\n").unwrap();
        }
        between();
        for client in &mut clients {
            let mut reader = BufReader::new(client);
            let mut lines = reader.by_ref().lines().map(Result::unwrap);
            assert_eq!(lines.next().unwrap(), "HTTP/1.1 200 OK");
            lines.find(String::is_empty).unwrap();
            let mut body = [0; 4];
            reader.read_exact(&mut body).unwrap();
            assert_eq!(&body, b"busy");
        }
    };
    respond("", &|| {});
    respond("Connection: close\r\n", &|| project.change("two"));
    wait_until("two", || apus.get("/").body.contains("two"));
}

#[test]
fn errors_of_the_compiler_are_shown_until_they_are_corrected() {
    let project = DevProject::new();
    let apus = project.develop();
    let address = apus.address();
    assert_eq!(apus.get("/").status, 200);
    project.change("a mistake");
    let mut page = ask(address, "GET /", HTML);
    wait_until("the error is shown", || {
        page = ask(address, "GET /", HTML);
        page.status == 500
    });
    for text in [
        "<title>The project does not compile: 1 error</title>",
        "src/main.rs:7:3",
        "expected `;`, found `&lt;b&gt;`",
        "error: expected",
        "/__apus_dev/reload.js?v=",
    ] {
        assert!(page.body.contains(text), "{text} is missing:\n{page:?}");
    }
    // Programs get the errors, too, as text or problem details.
    let text = apus.get("/json");
    assert_eq!(text.status, 500);
    assert!(
        text.body.contains("error: expected `;`, found `<b>`"),
        "{text:?}"
    );
    assert!(!text.body.contains('\u{1b}'), "{text:?}");
    let problem = ask(address, "GET /json", "Accept: application/json\r\n");
    assert!(
        problem.head.contains("application/problem+json"),
        "{problem:?}"
    );
    wait_until("the log has it, too", || {
        apus.log().contains("error: expected")
    });
    // A mistake that is taken back needs no restart.
    let pid = || apus.get("/pid");
    project.change("one");
    wait_until("the application is there again", || {
        apus.get("/").status == 200
    });
    let first = pid().body;
    project.change("a broken manifest");
    wait_until("what Cargo says is shown", || {
        apus.get("/").body.contains("failed to parse manifest")
    });
    project.change("one");
    wait_until("the application is there again", || {
        apus.get("/").status == 200
    });
    assert_eq!(pid().body, first);
}

#[test]
fn a_panic_is_shown_with_its_message_place_and_backtrace() {
    let project = DevProject::new();
    let apus = project.develop();
    let address = apus.address();
    assert_eq!(apus.get("/").status, 200);
    let page = ask(address, "GET /panic", HTML);
    assert_eq!(page.status, 500);
    for text in [
        "A handler panicked",
        "no such &lt;user&gt;",
        "commands/dev.rs:",
        "commands::dev::application",
        "/__apus_dev/reload.js?v=",
    ] {
        assert!(page.body.contains(text), "{text} is missing:\n{page:?}");
    }
    apus.wait_for_log("no such <user>");
    // Only the response of the panic shows it.
    let other = ask(address, "GET /failure", HTML);
    assert_eq!(other.status, 500);
    assert!(!other.body.contains("panicked"), "{other:?}");
    assert!(!apus.get("/failure").body.contains("panicked"));
}

#[test]
fn programs_get_a_panic_as_text_or_problem_details() {
    let project = DevProject::new();
    let apus = project.develop();
    let address = apus.address();
    assert_eq!(apus.get("/").status, 200);
    for (path, fields, media_type) in [
        ("/panic", "", "text/plain; charset=utf-8"),
        ("/panic", "Accept: */*\r\n", "text/plain; charset=utf-8"),
        (
            "/panic",
            "Accept: application/json\r\n",
            "application/problem+json",
        ),
        ("/api/panic", "Accept: */*\r\n", "application/problem+json"),
    ] {
        let reply = ask(address, &format!("GET {path}"), fields);
        assert_eq!(reply.status, 500);
        let line = format!("content-type: {media_type}");
        assert!(reply.head.contains(&line), "{reply:?}");
        for text in [
            "A handler panicked",
            "no such <user>",
            "commands/dev.rs:",
            "commands::dev::application",
        ] {
            assert!(reply.body.contains(text), "{text} is missing:\n{reply:?}");
        }
        if media_type.ends_with("json") {
            let problem: serde_json::Value = serde_json::from_str(&reply.body).unwrap();
            assert_eq!(problem["detail"], "no such <user>");
            assert!(problem["backtrace"].is_array(), "{problem}");
        }
    }
}

#[test]
fn a_new_migration_starts_the_application_again() {
    let project = DevProject::new();
    let apus = project.develop();
    let first = apus.get("/pid").body;
    let builds = project.builds();
    fs::create_dir_all(project.home.path("shop/migrations/sqlite")).unwrap();
    project
        .home
        .write("shop/migrations/sqlite/0002_new.sql", "SELECT 1;");
    wait_until("the application is another process", || {
        apus.get("/pid").body != first
    });
    assert_eq!(project.builds(), builds);
}

#[test]
fn a_second_address_of_the_server_is_beside_apus_dev_and_a_second_server_an_error() {
    let project = DevProject::new();
    project.change("also");
    let apus = project.develop();
    assert!(apus.get("/").body.contains("<h1>also</h1>"));
    let log = apus.wait_for_log("The application also serves http://127.0.0.1:");
    let (_, port) = log.split_once("http://127.0.0.1:").unwrap();
    let (port, _) = port.split_once('/').unwrap();
    let inside = SocketAddr::from(([127, 0, 0, 1], port.parse().unwrap()));
    assert_eq!(ask(inside, "GET /", "").body, "inside");
    // One after the other is no second one.
    project.change("again");
    wait_until("the application is another one", || {
        apus.get("/").body.contains("<h1>again</h1>")
    });
    project.change("two servers");
    wait_until("the application has ended", || apus.get("/").status == 502);
    let reply = apus.get("/");
    assert!(reply.body.contains("`Server::also`"), "{reply:?}");
}

#[test]
fn pages_get_the_script_and_other_responses_stay_as_they_are() {
    let project = DevProject::new();
    let apus = project.develop();
    let address = apus.address();
    assert_eq!(apus.get("/").status, 200);
    let script = "<script src=\"/__apus_dev/reload.js?v=";
    let compressed =
        format!("{HTML}Accept-Encoding: gzip\r\nIf-None-Match: *\r\nRange: bytes=0-1\r\n");
    let page = ask(address, "GET /", &compressed);
    assert_eq!(page.status, 200, "{page:?}");
    assert!(page.body.contains("<!doctype html>"), "{page:?}");
    assert!(page.body.contains(script), "{page:?}");
    assert!(!page.head.contains("content-encoding"), "{page:?}");
    // The script has the nonce of the page, and may connect.
    let (_, nonce) = page.body.split_once(" nonce=\"").unwrap();
    let (nonce, _) = nonce.split_once('"').unwrap();
    let policy = format!("script-src 'nonce-{nonce}'").to_lowercase();
    assert!(page.head.contains(&policy), "{page:?}");
    let events = "connect-src http://localhost/__apus_dev/events";
    assert!(page.head.contains(events), "{page:?}");
    let encoding = ask(address, "GET /encoding", &compressed);
    assert!(encoding.body.contains("None"), "{encoding:?}");

    let fragment = "Accept: text/html\r\nSec-Fetch-Dest: empty\r\nAccept-Encoding: gzip\r\n";
    assert!(
        ask(address, "GET /encoding", fragment)
            .body
            .contains("gzip")
    );
    for (line, fields) in [
        ("GET /", ""),
        ("GET /", "Accept: text/html\r\nHX-Request: true\r\n"),
        ("GET /json", HTML),
        ("HEAD /", HTML),
        (
            "POST /",
            "Accept: text/html\r\nContent-Type: text/plain\r\nContent-Length: 0\r\n",
        ),
    ] {
        let reply = ask(address, line, fields);
        assert_eq!(reply.status, 200, "{line} {fields}");
        assert!(!reply.body.contains("__apus_dev"), "{reply:?}");
        assert!(!reply.head.contains("connect-src"), "{reply:?}");
    }
    let script = apus.get("/__apus_dev/reload.js");
    assert!(script.head.contains("text/javascript"), "{script:?}");
    assert!(script.body.contains("new EventSource"), "{script:?}");
}

#[test]
fn a_policy_in_a_meta_element_allows_the_script() {
    let project = DevProject::new();
    let apus = project.develop();
    assert_eq!(apus.get("/").status, 200);
    let page = ask(apus.address(), "GET /meta", HTML);
    let events = "http://localhost/__apus_dev/events";
    let policy = format!(
        "content=\"default-src 'self'; connect-src {events}; script-src 'self' http://localhost/__apus_dev/reload.js\""
    );
    assert!(page.body.contains(&policy), "{page:?}");
    assert!(page.body.contains("<title>meta</title>"), "{page:?}");
    assert!(page.body.contains("/__apus_dev/reload.js?v="), "{page:?}");
    // A program gets the page as it is.
    let plain = ask(apus.address(), "GET /meta", "");
    assert!(plain.body.contains("connect-src 'none'\">"), "{plain:?}");
}

#[test]
fn the_response_to_a_form_has_a_script_that_does_not_send_the_form_again() {
    let project = DevProject::new();
    let apus = project.develop();
    let form = format!("{HTML}Content-Length: 0\r\n");
    let page = ask(apus.address(), "POST /form", &form);
    assert!(page.body.contains("<title>form 1</title>"), "{page:?}");
    assert!(page.body.contains(" data-form async></script>"), "{page:?}");
    let page = ask(apus.address(), "GET /", HTML);
    assert!(!page.body.contains("data-form"), "{page:?}");
}

/// The handshake of a page, and a text message, masked with zeros (RFC 6455 section 5.2).
const SOCKET: &str = "GET /socket HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nConnection: Upgrade\r\n\
                      Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const MESSAGE: &[u8] = b"\x81\x82\0\0\0\0hi";

#[test]
fn websockets_pass_through_and_reach_the_new_version_after_a_restart() {
    let project = DevProject::new();
    let apus = project.develop();
    let open = || {
        let mut wire = Wire::connect(apus.address());
        wire.send(SOCKET);
        assert_eq!(wire.read_head().status, 101);
        wire
    };
    let mut first = open();
    for _ in 0..2 {
        first.send(MESSAGE);
        assert_eq!(first.read_bytes(8), b"\x81\x06one hi");
    }
    project.change("two");
    wait_until("the new version responds", || {
        apus.get("/").body.contains("<h1>two</h1>")
    });
    let mut second = open();
    second.send(MESSAGE);
    assert_eq!(second.read_bytes(8), b"\x81\x06two hi");
    // The socket of the last version ends with it, so that a page connects again.
    wait_until("the first socket ends", || first.is_readable());
    let end = first.rest();
    assert!(end.is_empty() || end.starts_with(b"\x88"), "{end:?}");
}

/// The versions that an event stream sends.
struct Versions(BufReader<std::net::TcpStream>);

impl Versions {
    fn of(apus: &Apus) -> Self {
        let mut stream = apus.connect();
        let request = "GET /__apus_dev/events HTTP/1.1\r\nHost: localhost\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        Self(BufReader::new(stream))
    }

    fn next(&mut self) -> String {
        let mut line = String::new();
        while !line.starts_with("data: ") {
            line.clear();
            assert_ne!(
                self.0.read_line(&mut line).unwrap(),
                0,
                "the stream has ended"
            );
        }
        line
    }
}

#[test]
fn pages_are_loaded_again_after_a_change_of_a_template_without_a_build() {
    let project = DevProject::new();
    let apus = project.develop();
    assert_eq!(apus.get("/").status, 200);
    let (pid, builds) = (apus.get("/pid").body, project.builds());
    let mut versions = Versions::of(&apus);
    let first = versions.next();
    project
        .home
        .write("shop/templates/home.html", "<h1>changed</h1>");
    let second = versions.next();
    assert_ne!(first, second);
    fs::create_dir(project.home.path("shop/static")).unwrap();
    project
        .home
        .write("shop/static/style.css", "h1 { color: red }");
    assert_ne!(second, versions.next());
    assert_eq!(
        (apus.get("/pid").body, project.builds()),
        (pid.clone(), builds)
    );
    // What the application writes is no change.
    project.home.write("shop/shop.db", "");
    project.home.write("shop/.env", "LEVEL=1");
    versions.next();
    assert_ne!(apus.get("/pid").body, pid, "it reads .env when it starts");
    assert_eq!(project.builds(), builds);
}

#[test]
fn an_application_that_ends_is_shown_with_its_output() {
    let project = DevProject::new();
    project.change("end");
    let apus = project.develop();
    let reply = apus.get("/");
    assert_eq!(reply.status, 502, "{reply:?}");
    assert!(
        reply.body.contains("shop has ended: exit status: 3"),
        "{reply:?}"
    );
    assert!(reply.body.contains("there is no <database>"), "{reply:?}");
    let page = ask(apus.address(), "GET /", HTML);
    assert!(
        page.body.contains("there is no &lt;database&gt;"),
        "{page:?}"
    );
    project.change("two");
    wait_until("the application listens", || {
        apus.get("/").body.contains("two")
    });
}

fn is_running(pid: &str) -> bool {
    // A process that nobody has waited for is a zombie.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    !status.is_empty() && !status.contains("State:\tZ")
}

#[test]
fn the_application_ends_with_apus_dev() {
    for signal in [Signal::TERM, Signal::INT, Signal::KILL] {
        let project = DevProject::new();
        let mut apus = project.develop();
        let pid = apus.get("/pid").body;
        assert!(is_running(&pid));
        apus.signal(signal);
        let status = apus.wait();
        assert_eq!(status.success(), signal != Signal::KILL, "{status}");
        wait_until("the application has ended", || !is_running(&pid));
    }
}

#[test]
fn the_application_knows_that_its_clients_use_tls() {
    let project = DevProject::new();
    let apus = Apus::start(project.command(&["--tls", "--listen", "127.0.0.1:0"]));
    let url = &apus.urls()[0];
    assert!(url.starts_with("https://"), "{url}");
    let root = project.home.path(".local/share/apus/ca/root.pem");
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "50", "--cacert"])
        .arg(root)
        .arg(format!("{url}client"))
        .output()
        .unwrap();
    let expected = format!("127.0.0.1 {}", url.trim_end_matches('/'));
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        expected,
        "{output:?}"
    );
}

#[test]
fn mistakes_of_the_user_are_told_in_words() {
    let project = DevProject::new();
    let expect = |mut command: Command, status: i32, text: &str| {
        let output = command.output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{error}");
        assert!(error.contains(text), "{error}");
        assert!(output.stdout.is_empty(), "{output:?}");
    };
    let mut elsewhere = project.command(&[]);
    elsewhere.current_dir(project.home.path("site"));
    expect(elsewhere, 2, "is not in a Cargo project");
    let mut without_cargo = project.command(&[]);
    without_cargo.env("PATH", project.home.path("site"));
    expect(without_cargo, 2, "cargo is not installed");
    let command = project.command(&["--bin", "other"]);
    expect(command, 2, "has no program other; it has: shop");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let command = project.command(&["--listen", &address]);
    expect(command, 1, "another process has port");
    project.set_dependency("axum");
    expect(
        project.command(&[]),
        2,
        "does not depend on the crate `apus`",
    );
}

/// A program that responds to each request with its version and its arguments.
const MINIMAL: &str = r#"
use std::io::{Read, Write};
use std::os::unix::net::UnixListener;

fn main() {
    let socket = std::env::var_os("APUS_DEV_SOCKET").unwrap();
    let listener = UnixListener::bind(socket).unwrap();
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut head = [0; 4096];
        let _ = stream.read(&mut head);
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        let body = format!("{} {}", VERSION, arguments.join(" "));
        let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    }
}
"#;

#[test]
fn a_project_is_built_by_the_real_cargo() {
    let home = Home::new();
    for folder in ["apus/src", "shop/src"] {
        fs::create_dir_all(home.path(folder)).unwrap();
    }
    let program = |version: &str| MINIMAL.replace("VERSION", version);
    let package = |name: &str| {
        format!(
            "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n[workspace]\n"
        )
    };
    // The framework takes too long to compile; the program does its part.
    home.write("apus/Cargo.toml", package("apus"));
    home.write("apus/src/lib.rs", "");
    let dependency = "[dependencies]\napus = { path = \"../apus\" }\n";
    home.write("shop/Cargo.toml", package("shop") + dependency);
    home.write("shop/src/main.rs", program("\"one\""));
    let mut command = home.command(&["dev", "--listen", "127.0.0.1:0", "--", "a", "--b"]);
    let own_home = |name: &str, folder: &str| match env::var_os(name) {
        Some(value) => value,
        None => Path::new(&env::var_os("HOME").unwrap()).join(folder).into(),
    };
    command
        .env("CARGO_HOME", own_home("CARGO_HOME", ".cargo"))
        .env("RUSTUP_HOME", own_home("RUSTUP_HOME", ".rustup"))
        .env("CARGO_TARGET_DIR", home.path("target"))
        .current_dir(home.path("shop"));
    let apus = Apus::start(command);
    assert_eq!(apus.get("/").body, "one a --b");
    home.write("shop/src/main.rs", program("\"two\""));
    wait_until("the change is built", || {
        apus.get("/").body.starts_with("two")
    });
    home.write("shop/src/main.rs", program("apus::NAME"));
    wait_until("the error is shown", || {
        let reply = apus.get("/");
        reply.body.contains("cannot find value `NAME`")
            && reply.body.contains("--> src/main.rs:13:")
    });
    // A change of a dependency on this machine is a change, too.
    home.write("apus/src/lib.rs", "pub const NAME: &str = \"three\";");
    wait_until("the dependency is built", || {
        apus.get("/").body.starts_with("three a")
    });
}
