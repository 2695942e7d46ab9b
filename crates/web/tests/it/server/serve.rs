//! `App::serve` over a socket, and the example of the README.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use apus::{App, Path};
use apus_testkit::wait_until;
use rustix::process::{Signal, getpid, kill_process};

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
        include_str!("../../../../../README.md"),
        include_str!("../../../../../README.zh-CN.md"),
    ] {
        assert!(readme.contains(&format!("```rust\n{code}```")), "{code}");
    }
}
