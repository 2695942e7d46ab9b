//! Glitches: what clients do wrong is counted for each, over every protocol and behind proxies, and refused while the workers are busy.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use apus_testkit::wait_until;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use serde_json::Value;

use crate::harness::{Home, address_of};

const PATIENCE: Duration = Duration::from_secs(20);

/// What breaks HTTP/1.1: two hosts (RFC 9112 section 3.2).
const MALFORMED: &str = "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n";
/// HTTP/2 with DATA on the stream of the connection (RFC 9113 section 6.1).
const BROKEN_H2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
/// A record that says it is a handshake, and is none.
const BROKEN_TLS: &[u8] = b"\x16\x03\x01\x00\x05hello";

/// The count of the client as a field, from 0 to 9.
fn rules() -> String {
    let rule = |count: usize| {
        format!(
            "[[sites.rules]]\nwhen = \"glitches == {count}\"\nheaders.set = {{ x-glitches = \"{count}\" }}\n"
        )
    };
    (0..10).map(rule).collect()
}

/// All that a client at this address receives; nothing if it gets no connection.
fn exchange(from: Ipv4Addr, to: SocketAddr, sent: impl AsRef<[u8]>) -> String {
    let SocketAddr::V4(to) = to else {
        panic!("{to}")
    };
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddrV4::new(from, 0)).unwrap();
    if connect(&socket, &to).is_err() {
        return String::new();
    }
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A connection that is closed may be reset.
    let _ = stream.write_all(sent.as_ref());
    let _ = stream.shutdown(Shutdown::Write);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The response to a request for a path.
fn ask(from: Ipv4Addr, to: SocketAddr, (path, fields): (&str, &str)) -> String {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}Connection: close\r\n\r\n");
    exchange(from, to, request).to_ascii_lowercase()
}

/// How many glitches a client has.
fn glitches(from: Ipv4Addr, to: SocketAddr, fields: &str) -> Option<u32> {
    let response = ask(from, to, ("/", fields));
    let mut lines = response.lines();
    let count = lines.find_map(|line| line.strip_prefix("x-glitches: "))?;
    count.parse().ok()
}

fn status(home: &Home) -> Value {
    let (json, _) = home.expect(&["status", "--json"], 0);
    serde_json::from_str(&json).unwrap()
}

/// Also if a test fails, so that the threads that look at it end.
struct SetWhenDropped<'a>(&'a AtomicBool);

impl Drop for SetWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 0, 0, last)
}

#[test]
fn what_a_client_does_wrong_is_counted_over_every_protocol_and_for_nobody_else() {
    let home = Home::new();
    let rules = rules();
    home.write(
        "apus.toml",
        format!(
            "[[sites]]\nserver_name = \"localhost\"\nlisten = \"127.0.0.1:0\"\nlisten_tls = \"127.0.0.10:0\"\n\
             return = {{ status = 200, text = \"\" }}\n{rules}\
             [[sites.locations]]\npath = \"/gone\"\nreturn = {{ status = 404 }}\n"
        ),
    );
    let apus = home.serve(&["--tls", "apus.toml"]);
    let of = |scheme: &str| {
        let url = apus.urls().iter().find(|url| url.starts_with(scheme));
        address_of(url.unwrap())
    };
    let (clear, tls) = (of("http:"), of("https:"));
    let (client, other) = (address(2), address(3));
    assert_eq!(glitches(client, clear, ""), Some(0));
    for _ in 0..3 {
        assert!(exchange(client, clear, MALFORMED).starts_with("HTTP/1.1 400 "));
    }
    assert_eq!(glitches(client, clear, ""), Some(3));
    let target = "a".repeat(10_000);
    assert!(ask(client, clear, (&format!("/{target}"), "")).starts_with("http/1.1 414 "));
    assert_eq!(glitches(client, clear, ""), Some(4));
    exchange(client, clear, BROKEN_H2);
    assert_eq!(glitches(client, clear, ""), Some(5));
    exchange(client, tls, BROKEN_TLS);
    wait_until("the handshake is counted", || {
        glitches(client, clear, "") == Some(6)
    });
    // Ten errors are one glitch, of the tenth on.
    for number in 1..=10 {
        assert!(ask(client, clear, ("/gone", "")).starts_with("http/1.1 404 "));
        let expected = if number == 10 { 7 } else { 6 };
        assert_eq!(glitches(client, clear, ""), Some(expected), "{number}");
    }
    // Neither does a client that connects and leaves, nor one that others resemble.
    exchange(other, clear, "");
    assert_eq!(glitches(other, clear, ""), Some(0));
    let shown = status(&home);
    assert_eq!(shown["glitches"]["clients"], 1, "{shown}");
    let counted = &shown["glitches"]["counted"];
    for (kind, expected) in [
        ("protocol", 5),
        ("floods", 0),
        ("handshakes", 1),
        ("abandoned", 0),
        ("error_responses", 10),
    ] {
        assert_eq!(counted[kind], expected, "{kind} {shown}");
    }
    let (text, _) = home.expect(&["status"], 0);
    let expected = "5 errors of protocols, 1 broken handshakes, 10 error responses";
    assert!(text.contains(expected), "{text}");
    // They outlast a reload.
    home.expect(&["reload"], 0);
    assert_eq!(glitches(client, clear, ""), Some(7));
}

#[test]
fn proxies_are_not_blamed_for_their_clients_nor_these_for_proxies() {
    let home = Home::new();
    let (rules, gone) = (
        rules(),
        "[[sites.locations]]\npath = \"/gone\"\nreturn = { status = 404 }\n",
    );
    home.write(
        "apus.toml",
        format!(
            "[global]\ntrusted_proxies = \"127.0.0.9\"\n\
             [[sites]]\nserver_name = \"a\"\nlisten = \"127.0.0.1:0\"\nreturn = {{ status = 200, text = \"\" }}\n{rules}{gone}\
             [[sites]]\nserver_name = \"b\"\nlisten = \"127.0.0.10:0\"\nproxy_protocol_from = \"127.0.0.8\"\n\
             return = {{ status = 200, text = \"\" }}\n{rules}{gone}"
        ),
    );
    let apus = home.serve(&[]);
    let [behind, heads] = [0, 1].map(|at: usize| address_of(&apus.urls()[at]));
    let (trusted, balancer) = (address(9), address(8));
    let named = "X-Forwarded-For: 192.0.2.7\r\n";
    for _ in 0..3 {
        assert!(exchange(trusted, behind, MALFORMED).starts_with("HTTP/1.1 400 "));
    }
    for _ in 0..20 {
        assert!(ask(trusted, behind, ("/gone", named)).starts_with("http/1.1 404 "));
        ask(trusted, behind, ("/gone", ""));
    }
    assert_eq!(glitches(trusted, behind, named), Some(2));
    assert_eq!(glitches(trusted, behind, ""), Some(0));
    assert_eq!(
        glitches(trusted, behind, "X-Forwarded-For: 192.0.2.8\r\n"),
        Some(0)
    );

    let by_head = |client: &str, rest: &str| {
        let head = format!("PROXY TCP4 {client} 192.0.2.1 4000 80\r\n{rest}");
        exchange(balancer, heads, head).to_ascii_lowercase()
    };
    for _ in 0..3 {
        assert!(by_head("192.0.2.20", MALFORMED).starts_with("http/1.1 400 "));
        // A head that is none is the fault of the proxy.
        assert_eq!(exchange(balancer, heads, "nonsense\r\n\r\n"), "");
    }
    let get = "GET / HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n";
    assert!(by_head("192.0.2.20", get).contains("x-glitches: 3\r\n"));
    assert!(by_head("192.0.2.21", get).contains("x-glitches: 0\r\n"));
    assert_eq!(status(&home)["glitches"]["counted"]["protocol"], 3);
}

#[test]
fn a_client_with_many_glitches_gets_no_connection_while_the_workers_are_busy() {
    let home = Home::new();
    let write = |keys: &str| {
        home.write(
            "apus.toml",
            format!(
                "[global]\nworker_threads = 1\n{keys}\n[[sites]]\nlisten = \"127.0.0.1:0\"\nreturn = {{ status = 200, text = \"\" }}\n{}",
                rules()
            ),
        )
    };
    write("glitches = { refuse_above = 3, load = 1 }\nbans = { never = \"127.0.0.4\" }");
    let apus = home.serve(&[]);
    let to = apus.address();
    let (client, never, other) = (address(2), address(4), address(3));
    for _ in 0..4 {
        for client in [client, never] {
            assert!(exchange(client, to, MALFORMED).starts_with("HTTP/1.1 400 "));
        }
    }
    for _ in 0..3 {
        exchange(other, to, MALFORMED);
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let _end = SetWhenDropped(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                glitches(address(5), to, "");
            }
        });
        wait_until("the client gets no connection", || {
            ask(client, to, ("/", "")).is_empty()
        });
        apus.wait_for_log("refused connections of clients that did much wrong");
        assert_eq!(glitches(other, to, ""), Some(3));
        assert_eq!(glitches(never, to, ""), Some(4));
        let shown = status(&home);
        let refused = shown["totals"]["refused_for_glitches"].as_u64();
        assert!(refused >= Some(1), "{shown}");
        assert_eq!(shown["totals"]["banned"], 0, "{shown}");
        // Unless it is turned off.
        write("glitches = false\nbans = { never = \"127.0.0.4\" }");
        home.expect(&["reload"], 0);
        wait_until("the client may connect", || {
            glitches(client, to, "") == Some(4)
        });
    });
}
