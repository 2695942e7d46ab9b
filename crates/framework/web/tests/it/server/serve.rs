//! `App::serve` over a socket, and the example of the README.

use std::env;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use apus::{App, Path, Server};
use apus_testkit::{eventually, wait_until};
use rustix::process::{Pid, Signal, getpid, kill_process};

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
}

#[expect(clippy::disallowed_methods, reason = "a test may block")]
fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(address)
}

fn wait_for(address: SocketAddr) -> TcpStream {
    wait_until("a connection", || connect(address).ok())
}

/// A signal reaches all servers of this process.
static SIGNALS: Mutex<()> = Mutex::new(());

#[test]
fn a_second_signal_stops_the_server_at_once() {
    let _alone = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    let entered = Arc::new(AtomicBool::new(false));
    let entered_now = entered.clone();
    let app = App::new().get("/", move || {
        entered_now.store(true, Ordering::SeqCst);
        std::future::pending::<&str>()
    });
    let address = free_address();
    let server = thread::spawn(move || app.serve(address));
    let mut client = wait_for(address);
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    wait_until("the request arrives", || entered.load(Ordering::SeqCst));
    kill_process(getpid(), Signal::TERM).unwrap();
    wait_until("connections are refused", || connect(address).is_err());
    assert!(!server.is_finished());
    kill_process(getpid(), Signal::TERM).unwrap();
    server.join().unwrap().unwrap();
    let mut response = String::new();
    let _ = client.read_to_string(&mut response);
    assert_eq!(response, "");
}

#[test]
fn serves_until_sigterm_or_stop() {
    let _alone = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
    async fn hello(Path(name): Path<String>) -> String {
        format!("Hello, {name}!\n")
    }
    let address = free_address();
    let server = thread::spawn(move || App::new().get("/{name}", hello).serve(address));
    let mut client = wait_for(address);
    client
        .write_all(b"GET /world HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
        .unwrap();
    let mut response = String::new();
    client.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    assert!(response.ends_with("\r\n\r\nHello, world!\n"), "{response}");

    kill_process(getpid(), Signal::TERM).unwrap();
    server.join().unwrap().unwrap();
    assert!(connect(address).is_err());
}

/// Names the folder of a program of [`start_and_wait_stop_gracefully_at_a_signal`].
const FOLDER: &str = "APUS_TEST_FOLDER";

/// A server that is started as the guide shows it, with a handler that ends when there is a file `go`.
#[test]
#[ignore = "a program of another test"]
fn program() {
    let folder = PathBuf::from(env::var_os(FOLDER).unwrap());
    let served = folder.clone();
    let app = App::new().get("/", move || {
        let folder = served.clone();
        async move {
            fs::write(folder.join("entered"), "").unwrap();
            eventually("the test goes on", || folder.join("go").exists()).await;
            "finished"
        }
    });
    let server = Server::new(app).workers(NonZeroUsize::MIN);
    let running = server.listen("127.0.0.1:0").unwrap().start().unwrap();
    fs::write(folder.join("part"), running.addresses()[0].to_string()).unwrap();
    fs::rename(folder.join("part"), folder.join("address")).unwrap();
    running.wait();
    fs::write(folder.join("ended"), "").unwrap();
}

/// Whether a process catches SIGTERM.
fn catches_sigterm(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask & (1 << 14) != 0)
}

#[test]
fn start_and_wait_stop_gracefully_at_a_signal() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "server::serve::program", "--ignored"])
            .env(FOLDER, folder.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let address = wait_until("the address", || {
            fs::read_to_string(path("address")).ok()?.parse().ok()
        });
        wait_until("the program waits", || catches_sigterm(child.id()));
        let mut client = wait_for(address);
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .unwrap();
        wait_until("the request arrives", || path("entered").exists());
        kill_process(Pid::from_child(&child), signal).unwrap();
        wait_until("connections are refused", || connect(address).is_err());
        fs::write(path("go"), "").unwrap();
        let mut response = String::new();
        client.read_to_string(&mut response).unwrap();
        assert!(response.ends_with("\r\n\r\nfinished"), "{response}");
        assert!(child.wait().unwrap().success());
        assert!(path("ended").exists());
    }
}

#[test]
fn an_invalid_route_is_an_error_at_the_start() {
    let app = App::new().get("no-slash", async || "never");
    assert!(app.serve(free_address()).is_err());
}

#[test]
fn the_readme_shows_the_example() {
    let example = include_str!("../../../examples/hello.rs");
    let (_, code) = example.split_once('\n').unwrap();
    for readme in [
        include_str!("../../../../../../README.md"),
        include_str!("../../../../../../README.zh-CN.md"),
    ] {
        assert!(readme.contains(&format!("```rust\n{code}```")), "{code}");
    }
}
