//! `apus status` and `apus stop` of an application in Rust, over its control socket.

use std::io::Write;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use apus::jobs::{Job, JobRunner, Jobs};
use apus::{App, Path, Running, Server};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::commands::dev::application_command;
use crate::harness::{Home, get, get_unix, is_open, wait_until};

async fn show(Path(id): Path<u32>) -> String {
    id.to_string()
}

/// An application in this process, and its address.
fn application(socket: PathBuf) -> (Running, SocketAddr) {
    let admin = App::new().get("/figures", async || "1");
    let app = App::new()
        .get("/users/{id:[0-9]+}", show)
        .name("user")
        .host("a.example", |host| host.mount("/admin", admin));
    let server = Server::new(app)
        .workers(NonZeroUsize::MIN)
        .control_socket(socket);
    let running = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    let address = running.addresses()[0];
    (running, address)
}

#[test]
fn the_status_of_an_application_lists_its_routes() {
    let home = Home::new();
    let (_running, address) = application(home.path("app.sock"));
    assert_eq!(get(address, "/users/7").body, "7");

    let (json, _) = home.expect(&["status", "--socket", "app.sock", "--json"], 0);
    let status: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["pid"], std::process::id());
    assert_eq!(status["listening"][0], address.to_string());
    assert_eq!(status["totals"]["requests"], 1, "{json}");
    let program = std::env::current_exe().unwrap();
    assert_eq!(status["source"], program.to_str().unwrap());
    let routes = status["routes"].as_array().unwrap();
    let field = |name: &str| -> Vec<&str> {
        let fields = routes.iter().map(|route| &route[name]);
        fields.map(|field| field.as_str().unwrap_or("-")).collect()
    };
    assert_eq!(field("method"), ["GET", "-", "GET"]);
    assert_eq!(
        field("path"),
        ["/users/{id:[0-9]+}", "/admin/{*}", "/admin/figures"]
    );
    assert_eq!(field("host"), ["-", "a.example", "a.example"]);
    assert_eq!(field("name"), ["user", "-", "-"]);
    assert!(field("handler")[0].ends_with("application::show"), "{json}");
    assert!(
        field("at").iter().all(|at| at.contains("application.rs:")),
        "{json}"
    );

    let (text, _) = home.expect(&["status", "--socket", "app.sock"], 0);
    let route = text.lines().find(|line| line.contains("{id:[0-9]+}"));
    let route: Vec<&str> = route.unwrap().split_whitespace().collect();
    assert_eq!(route[..2], ["GET", "/users/{id:[0-9]+}"], "{text}");
    assert!(text.contains("any a.example/admin/{*}"), "{text}");
    let (metrics, _) = home.expect(&["status", "--socket", "app.sock", "--metrics"], 0);
    assert!(
        metrics.contains("apus_worker_requests_total{worker=\"0\"} 1\n"),
        "{metrics}"
    );
}

#[test]
fn an_application_stops_on_command_and_refuses_to_reload() {
    let home = Home::new();
    let (running, address) = application(home.path("app.sock"));
    let (_, errors) = home.expect(&["reload", "--socket", "app.sock"], 1);
    assert!(errors.contains("no configuration to reload"), "{errors}");
    let (out, _) = home.expect(&["stop", "--socket", "app.sock"], 0);
    assert_eq!(out, "stopped\n");
    // The application is in this process. Programs that other tests start inherit its sockets until they call
    // `execve`.
    wait_until("the socket is closed", || !is_open(address));
    running.wait();
    assert!(!home.path("app.sock").exists());
    let (_, errors) = home.expect(&["status", "--socket", "app.sock"], 1);
    assert!(
        errors.contains("no server is running") && !errors.contains("apus serve"),
        "{errors}"
    );
    home.expect(&["status", "site", "--socket", "app.sock"], 2);
}

#[test]
fn a_control_socket_belongs_to_one_server() {
    let home = Home::new();
    let socket = home.path("app.sock");
    let (running, _) = application(socket.clone());
    let second = Server::new(App::new()).control_socket(&socket);
    let error = second.listen("127.0.0.1:0").unwrap().start().unwrap_err();
    assert!(error.to_string().contains("already running"), "{error}");
    running.stop();
    application(socket).0.stop();
}

#[test]
fn a_second_signal_stops_an_application_at_once() {
    let home = Home::new();
    let socket = home.path("app.sock");
    let mut child = application_command(&socket).spawn().unwrap();
    wait_until("the application listens", || {
        UnixStream::connect(&socket).is_ok()
    });
    assert_eq!(get_unix(&socket, "/json").status, 200);
    let mut hanging = UnixStream::connect(&socket).unwrap();
    let request = b"GET /never HTTP/1.1\r\nHost: localhost\r\n\r\n";
    hanging.write_all(request).unwrap();
    // It has the request.
    wait_until("the handler waits", || {
        get_unix(&socket, "/waiting").body == "1"
    });
    let signal = || kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    signal();
    wait_until("it accepts nobody", || {
        UnixStream::connect(&socket).is_err()
    });
    let begin = Instant::now();
    signal();
    let status = child.wait().unwrap();
    assert!(status.success(), "{status}");
    // The first signal gives the request 30 seconds.
    assert!(
        begin.elapsed() < Duration::from_secs(20),
        "{:?}",
        begin.elapsed()
    );
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Letter;

impl Job for Letter {
    const NAME: &'static str = "letter";
}

#[test]
fn the_status_of_an_application_counts_its_jobs() {
    let home = Home::new();
    let jobs = Jobs::in_memory().named("letters");
    let runner = JobRunner::new(&jobs).on(async |_: Letter| Ok::<_, std::io::Error>(()));
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(jobs.push(&Letter)).unwrap();
    let _running = Server::new(App::new())
        .workers(NonZeroUsize::MIN)
        .control_socket(home.path("app.sock"))
        .jobs(runner)
        .listen("127.0.0.1:0")
        .unwrap()
        .start()
        .unwrap();
    let status = || home.expect(&["status", "--socket", "app.sock"], 0).0;
    wait_until("the job is done", || {
        status().contains("here: 1 done, 0 retried, 0 dead")
    });
    let text = status();
    assert!(text.contains("\njobs letters: "), "{text}");
}
