//! The addresses on which the engine listens: TCP over IPv4 and IPv6, Unix sockets, sockets from systemd.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use apus_http::ServiceFactory;
use apus_net::{Engine, ListenAddress, ListenerPlan};

use crate::harness::{
    Client, PATIENCE, Server, connect, in_own_process_with, ok, paths, plan, service, tcp,
};

/// Responds with the addresses of both ends, without their ports.
fn ends() -> Arc<dyn ServiceFactory> {
    service(|request| {
        let connection = request.connection();
        let ip = |peer: &apus_http::Peer| peer.ip().map_or("unix".to_owned(), |ip| ip.to_string());
        ok(format!(
            "{} {}",
            ip(&connection.peer),
            ip(&connection.local)
        ))
        .into()
    })
}

fn unix(path: &Path, mode: u32) -> ListenAddress {
    ListenAddress::Unix {
        path: path.to_owned(),
        mode,
    }
}

fn connect_unix(path: &Path) -> Client<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    Client::new(stream)
}

fn refusal(address: ListenAddress) -> String {
    match Engine::start(plan(vec![ListenerPlan::new(address, paths())])) {
        Ok(_) => panic!("it started"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn listens_on_ipv4_and_ipv6() {
    let server = Server::run(plan(vec![
        ListenerPlan::new(tcp("127.0.0.1:0"), ends()),
        ListenerPlan::new(tcp("[::1]:0"), ends()),
    ]));
    let seen: Vec<_> = server
        .addresses()
        .into_iter()
        .map(|address| Client::new(connect(address).unwrap()).get("/").text())
        .collect();
    assert_eq!(seen, ["127.0.0.1 127.0.0.1", "::1 ::1"]);
}

#[test]
fn an_ipv6_wildcard_takes_ipv4_unless_configured_otherwise() {
    let server = Server::run(plan(vec![ListenerPlan::new(tcp("[::]:0"), ends())]));
    let port = server.address().port();
    for (address, seen) in [("127.0.0.1", "127.0.0.1 127.0.0.1"), ("::1", "::1 ::1")] {
        let address = SocketAddr::new(address.parse().unwrap(), port);
        assert_eq!(Client::new(connect(address).unwrap()).get("/").text(), seen);
    }
    // Another socket of this process has the port for IPv4, which would conflict with an IPv6 listener that
    // accepts IPv4 too.
    let other = TcpListener::bind("0.0.0.0:0").unwrap();
    let port = other.local_addr().unwrap().port();
    let address = |ipv6_only| ListenAddress::Tcp {
        address: SocketAddr::new("::".parse().unwrap(), port),
        ipv6_only,
    };
    assert!(refusal(address(false)).contains("this process listens on port"));
    let _server = Server::run(plan(vec![ListenerPlan::new(address(true), ends())]));
    let address = SocketAddr::new("::1".parse().unwrap(), port);
    assert_eq!(
        Client::new(connect(address).unwrap()).get("/").text(),
        "::1 ::1"
    );
}

#[test]
fn the_error_of_a_port_that_this_process_has_blames_no_other() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let message = refusal(tcp(&address.to_string()));
    let expected = format!("cannot listen on {address}: ");
    assert!(message.starts_with(&expected), "{message}");
    let port = address.port();
    let own = format!(
        "; this process listens on port {port} already, at an address that overlaps this one"
    );
    assert!(message.ends_with(&own), "{message}");
    // Another engine has its sockets with SO_REUSEPORT, which must not share them silently.
    let server = Server::start(paths());
    let message = refusal(tcp(&server.address().to_string()));
    assert!(
        message.contains("this process listens on port"),
        "{message}"
    );
}

#[test]
fn addresses_of_one_plan_that_overlap_are_served_and_the_narrowest_one_gets_a_connection() {
    let named = |name: &'static str| service(move |_| ok(name.to_owned()).into());
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1]] {
        let port = apus_testkit::free_port();
        let addresses = [
            (format!("[::]:{port}"), "all"),
            (format!("0.0.0.0:{port}"), "ipv4"),
            (format!("127.0.0.1:{port}"), "loopback"),
        ];
        let listeners = order.map(|at: usize| {
            let (address, name) = &addresses[at];
            ListenerPlan::new(tcp(address), named(name))
        });
        let _server = Server::run(plan(listeners.into()));
        for (host, name) in [
            ("127.0.0.1", "loopback"),
            ("127.0.0.2", "ipv4"),
            ("::1", "all"),
        ] {
            let address = SocketAddr::new(host.parse().unwrap(), port);
            let text = Client::new(connect(address).unwrap()).get("/").text();
            assert_eq!(text, name, "{host} {order:?}");
        }
    }
}

#[test]
fn listens_on_a_unix_socket_with_its_mode_and_removes_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("apus.sock");
    let server = Server::run(plan(vec![ListenerPlan::new(unix(&path, 0o620), ends())]));
    let found = std::fs::metadata(&path).unwrap();
    assert!(found.file_type().is_socket());
    assert_eq!(found.permissions().mode() & 0o777, 0o620);
    let mut client = connect_unix(&path);
    assert_eq!(client.get("/").text(), "unix unix");
    assert_eq!(client.get("/").text(), "unix unix");
    drop(server);
    apus_testkit::wait_until("the removal of the socket", || !path.exists());
}

#[test]
fn replaces_a_stale_unix_socket_and_no_other_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stale.sock");
    drop(UnixListener::bind(&path).unwrap());
    let server = Server::run(plan(vec![ListenerPlan::new(unix(&path, 0o600), paths())]));
    assert_eq!(connect_unix(&path).get("/a").text(), "/a");
    // A socket file that a process listens on stays.
    let message = refusal(unix(&path, 0o600));
    assert!(
        message.contains("this process listens on this socket already"),
        "{message}"
    );
    assert_eq!(connect_unix(&path).get("/b").text(), "/b");
    drop(server);

    let file = folder.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    let message = refusal(unix(&file, 0o600));
    assert!(message.contains("not a socket"), "{message}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    assert!(refusal(unix(&link, 0o600)).contains("not a socket"));
}

#[test]
fn sends_a_file_over_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("apus.sock");
    let body = vec![b'x'; 1_000_000];
    let file = folder.path().join("file");
    std::fs::write(&file, &body).unwrap();
    let file = Arc::new(std::fs::File::open(file).unwrap());
    let sends = service(move |_| {
        let range = apus_http::FileRange {
            file: Arc::clone(&file),
            offset: 0,
            len: 1_000_000,
        };
        apus_http::Response::new(apus_http::StatusCode::OK)
            .with_body(apus_http::Body::File(range))
            .into()
    });
    let _server = Server::run(plan(vec![ListenerPlan::new(unix(&path, 0o600), sends)]));
    assert!(connect_unix(&path).get("/").body == body);
}

#[test]
fn listens_on_sockets_that_systemd_passed() {
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let other = UnixListener::bind(folder.path().join("other.sock")).unwrap();
    let passed = [web.as_raw_fd(), other.as_raw_fd()];
    let address = web.local_addr().unwrap();
    let mut command = Command::new("/bin/sh");
    // The shell knows its own process id, and keeps it as it becomes the test.
    command.args(["-c", "export LISTEN_PID=$$; exec \"$0\" \"$@\""]);
    command.arg(std::env::current_exe().unwrap());
    command
        .env("LISTEN_FDS", "2")
        .env("LISTEN_FDNAMES", "web:other");
    command.env(
        "APUS_TEST_SOCKETS",
        format!("{address} {}", folder.path().display()),
    );
    let install = move || {
        // Copies with unused numbers first: a target may be the number of the other socket.
        let mut copies = [0; 2];
        for (copy, descriptor) in copies.iter_mut().zip(passed) {
            *copy = duplicate(descriptor)?;
        }
        for (target, copy) in (3..).zip(copies) {
            dup_to(copy, target)?;
        }
        Ok(())
    };
    // SAFETY: it only duplicates descriptors, which is async-signal-safe.
    unsafe { command.pre_exec(install) };
    if !in_own_process_with(
        "listeners::listens_on_sockets_that_systemd_passed",
        &mut command,
    ) {
        return;
    }
    let sockets = std::env::var("APUS_TEST_SOCKETS").unwrap();
    let (address, folder) = sockets.split_once(' ').unwrap();
    let inherited = |name: &str| ListenAddress::Inherited {
        name: name.to_owned(),
    };
    let server = Server::run(plan(vec![
        ListenerPlan::new(inherited("web"), paths()),
        ListenerPlan::new(inherited("1"), ends()),
    ]));
    let mut client = Client::new(connect(address.parse().unwrap()).unwrap());
    assert_eq!(client.get("/inherited").text(), "/inherited");
    let mut client = connect_unix(&Path::new(folder).join("other.sock"));
    assert_eq!(client.get("/").text(), "unix unix");
    let message = refusal(inherited("mail"));
    assert!(
        message.contains("no socket of this name; it passed: 0, 1, other, web"),
        "{message}"
    );
    // The next process gets the sockets as they were.
    server.stop(PATIENCE);
    let _next = Server::run(plan(vec![ListenerPlan::new(inherited("web"), paths())]));
    let mut client = Client::new(connect(address.parse().unwrap()).unwrap());
    assert_eq!(client.get("/next").text(), "/next");
}

/// Duplicates a descriptor to an unused number above those that systemd passes.
fn duplicate(descriptor: i32) -> std::io::Result<i32> {
    use std::os::fd::{BorrowedFd, IntoRawFd};
    // SAFETY: the descriptor is open.
    let from = unsafe { BorrowedFd::borrow_raw(descriptor) };
    Ok(rustix::io::fcntl_dupfd_cloexec(from, 10)?.into_raw_fd())
}

/// Duplicates a descriptor to the number `target`, without the close-on-exec flag.
fn dup_to(descriptor: i32, target: i32) -> std::io::Result<i32> {
    use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
    // SAFETY: the descriptors are open, and nothing else in this process, between fork and exec,
    // owns `target`.
    let (from, to) = unsafe {
        (
            BorrowedFd::borrow_raw(descriptor),
            OwnedFd::from_raw_fd(target),
        )
    };
    let mut to = to;
    rustix::io::dup2(from, &mut to)?;
    Ok(to.into_raw_fd())
}

#[test]
fn without_systemd_no_socket_is_inherited() {
    let message = refusal(ListenAddress::Inherited {
        name: "web".to_owned(),
    });
    assert!(
        message.contains("systemd:web") && message.contains("it passed: none"),
        "{message}"
    );
}

#[test]
fn removing_a_listener_closes_its_port_and_finishes_open_requests() {
    let server = Server::run(plan(vec![
        ListenerPlan::new(tcp("127.0.0.1:0"), paths()),
        ListenerPlan::new(tcp("127.0.0.3:0"), paths()),
    ]));
    let [kept, removed] = server.addresses()[..] else {
        panic!("two addresses")
    };
    let mut open = Client::new(connect(removed).unwrap());
    assert_eq!(open.get("/a").text(), "/a");
    open.send("GET /half HTTP/1.1\r\n");
    let bytes = server.totals().bytes_in;
    server.wait_for("the half", |totals| totals.bytes_in >= bytes);
    let mut idle = Client::new(connect(removed).unwrap());
    assert_eq!(idle.get("/a").text(), "/a");
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(tcp("127.0.0.1:0"), paths())]))
        .unwrap();
    idle.assert_closed();
    open.send("Host: a\r\n\r\n");
    let received = open.read_response();
    assert_eq!(
        (received.text().as_str(), received.field("connection")),
        ("/half", Some("close"))
    );
    open.assert_closed();
    apus_testkit::wait_until("the port to be closed", || connect(removed).is_err());
    assert_eq!(Client::new(connect(kept).unwrap()).get("/k").text(), "/k");
    assert_eq!(server.addresses(), [kept]);
}

#[test]
fn an_address_that_cannot_be_bound_leaves_the_old_plan_whole() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = Server::start(paths());
    let mut client = server.connect();
    assert_eq!(client.get("/a").text(), "/a");
    let error = server
        .engine
        .reload(plan(vec![
            ListenerPlan::new(tcp("127.0.0.1:0"), service(|_| ok("new").into())),
            ListenerPlan::new(tcp("127.0.0.4:0"), paths()),
            ListenerPlan::new(tcp(&taken.local_addr().unwrap().to_string()), paths()),
        ]))
        .unwrap_err();
    assert_eq!(
        error.address().map(ToString::to_string),
        Some(taken.local_addr().unwrap().to_string())
    );
    assert_eq!(client.get("/b").text(), "/b");
    assert_eq!(server.connect().get("/c").text(), "/c");
    assert_eq!(server.addresses().len(), 1);
}

#[test]
fn a_reload_changes_the_mode_of_a_unix_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("apus.sock");
    let server = Server::run(plan(vec![ListenerPlan::new(unix(&path, 0o600), paths())]));
    let mut client = connect_unix(&path);
    assert_eq!(client.get("/a").text(), "/a");
    server
        .engine
        .reload(plan(vec![ListenerPlan::new(unix(&path, 0o666), paths())]))
        .unwrap();
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o666
    );
    assert_eq!(connect_unix(&path).get("/b").text(), "/b");
    let mut rest = Vec::new();
    let _ = client
        .stream
        .write_all(b"GET /c HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let _ = client.stream.read_to_end(&mut rest);
}
