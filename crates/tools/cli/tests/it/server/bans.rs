//! Bans of clients: by command and by lists, before TLS, over every protocol, reloads, crashes and restarts.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::Value;

use crate::h2_client::Peer;
use crate::harness::{Apus, Home, Reply, connect, free_port, wait_until};
use crate::proxy::scripted_origin::ScriptedOrigin;
use crate::wire::Wire;

/// What a client receives that sends these bytes over a new connection.
fn received(address: SocketAddr, sent: &[u8]) -> String {
    let mut stream = connect(address);
    // A connection that is closed may be reset.
    let _ = stream.write_all(sent);
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn get(address: SocketAddr) -> String {
    received(
        address,
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    )
}

/// The status of a request that a trusted proxy forwards for a client.
fn forwarded(apus: &Apus, client: &str) -> u16 {
    let mut stream = apus.connect();
    write!(
        stream,
        "GET / HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {client}\r\nConnection: close\r\n\r\n"
    )
    .unwrap();
    Reply::read(stream).status
}

#[test]
fn a_banned_client_gets_no_connection_over_any_protocol_a_reload_a_crash_and_a_restart() {
    let home = Home::new();
    home.make_folder("state");
    let (clear, tls) = (free_port(), free_port());
    home.write(
        "apus.toml",
        format!(
            "[global]\nstate_folder = \"state\"\n[[sites]]\nserver_name = \"localhost\"\nroot = \"site\"\n\
             listen = [\"127.0.0.1:{clear}\"]\nlisten_tls = [\"127.0.0.1:{tls}\"]\n"
        ),
    );
    let [clear, tls] = [clear, tls].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let mut apus = home.serve(&["--tls", "apus.toml"]);
    assert!(get(clear).starts_with("HTTP/1.1 200"));
    let mut kept = apus.connect();
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut head = [0; 15];
    kept.write_all(request).unwrap();
    kept.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    let url = format!("https://localhost:{}/", tls.port());
    let bench = |protocol: &str, status: i32| {
        let arguments = [
            "bench",
            &url,
            "--insecure",
            "-n",
            "2",
            "-c",
            "1",
            "--timeout",
            "1s",
        ];
        home.expect(&[&arguments[..], &[protocol]].concat(), status);
    };
    bench("--http3", 0);

    // Nobody locks himself out by a slip.
    for network in ["127.0.0.1", "127.0.0.0/30", "0.0.0.0/0", "::1"] {
        let (_, error) = home.expect(&["ban", "add", network], 1);
        assert!(error.contains("--force"), "{error}");
    }
    home.expect(&["ban", "add", "nonsense"], 1);
    assert!(get(clear).starts_with("HTTP/1.1 200"));
    let add = [
        "ban",
        "add",
        "127.0.0.1",
        "--for",
        "1h",
        "--reason",
        "a test",
        "--force",
    ];
    let (out, _) = home.expect(&add, 0);
    assert_eq!(out, "127.0.0.1: banned\n");
    let line = apus.wait_for_log("banned a client");
    assert!(line.contains("a test"), "{line}");

    assert_eq!(get(clear), "");
    // Not a byte of TLS, even of an alert.
    assert_eq!(received(tls, b"\x16\x03\x01\x00\x05hello"), "");
    bench("--http2", 1);
    bench("--http3", 1);
    // It may have been closed already, a second after the ban.
    let _ = kept.write_all(request);
    let mut rest = Vec::new();
    let _ = kept.read_to_end(&mut rest);
    let rest = String::from_utf8(rest).unwrap();
    let (_, refusal) = rest.split_once("</h1>").unwrap();
    let is_refused = refusal.starts_with("HTTP/1.1 403 ")
        && refusal.to_ascii_lowercase().contains("connection: close");
    assert!(refusal.is_empty() || is_refused, "{rest}");

    let (json, _) = home.expect(&["ban", "list", "--json"], 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["bans"][0]["network"], "127.0.0.1");
    assert_eq!(json["bans"][0]["reason"], "a test");
    let (json, _) = home.expect(&["status", "--json"], 0);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert!(json["totals"]["banned"].as_u64() >= Some(4), "{json}");
    assert_eq!(
        json["bans"]["refused_requests"],
        u64::from(is_refused),
        "{json}"
    );

    home.expect(&["reload"], 0);
    assert_eq!(get(clear), "");
    apus.signal(Signal::KILL);
    apus.wait();
    let mut apus = home.serve(&["--tls", "apus.toml"]);
    assert_eq!(get(clear), "");
    home.expect(&["stop"], 0);
    apus.wait();
    let mut apus = home.serve(&["--tls", "apus.toml"]);
    assert_eq!(get(clear), "");
    let (out, _) = home.expect(&["ban", "remove", "127.0.0.1"], 0);
    assert_eq!(out, "127.0.0.1: no longer banned\n");
    assert!(get(clear).starts_with("HTTP/1.1 200"));
    bench("--http3", 0);
    home.expect(&["ban", "remove", "127.0.0.1"], 1);
    let (out, _) = home.expect(&["ban", "list"], 0);
    assert_eq!(out, "no client is banned\n");

    // A damaged file is said and put aside.
    home.expect(&["ban", "add", "192.0.2.1"], 0);
    apus.signal(Signal::KILL);
    apus.wait();
    let stored = home.read("state/bans");
    assert!(stored.contains("192.0.2.1"), "{stored}");
    home.write("state/bans", &stored[..stored.len() - 4]);
    let apus = home.serve(&["--tls", "apus.toml"]);
    apus.wait_for_log("bans.damaged");
    assert_eq!(home.read("state/bans.damaged").len(), stored.len() - 4);
}

#[test]
fn behind_proxies_the_client_is_banned_and_lists_are_read_again_when_they_change() {
    let home = Home::new();
    let (port, proxied) = (free_port(), free_port());
    home.write("blocked.txt", "# a comment\n192.0.2.0/24\n127.0.0.0/8\n");
    // The state cannot be stored below a file, as on a disk that is full.
    home.write(
        "apus.toml",
        format!(
            "[global]\nstate_folder = \"site/index.html/state\"\ntrusted_proxies = \"127.0.0.1\"\n\
             bans = {{ files = \"blocked.txt\" }}\n\
             [[sites]]\nlisten = [\"127.0.0.1:{port}\"]\nroot = \"site\"\n\
             [[sites]]\nserver_name = \"other\"\nlisten = [\"127.0.0.1:{proxied}\"]\nroot = \"site\"\n\
             proxy_protocol_from = \"127.0.0.1\"\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    let proxied = SocketAddr::from(([127, 0, 0, 1], proxied));
    let through = |client: &str| {
        let head = format!("PROXY TCP4 {client} 127.0.0.1 1234 80\r\n");
        let request = "GET / HTTP/1.1\r\nHost: other\r\nConnection: close\r\n\r\n";
        received(proxied, (head + request).as_bytes())
    };
    // The list has the proxy, too, which is never banned by it.
    assert_eq!(forwarded(&apus, "192.0.2.77"), 403);
    assert_eq!(forwarded(&apus, "192.0.3.1"), 200);
    assert_eq!(through("192.0.2.77"), "");
    assert!(through("192.0.3.1").starts_with("HTTP/1.1 200"));

    let (_, error) = home.expect(&["ban", "add", "203.0.113.9"], 1);
    assert!(error.contains("a restart will forget it"), "{error}");
    assert_eq!(forwarded(&apus, "203.0.113.9"), 403);
    assert_eq!(through("203.0.113.9"), "");
    // A client cannot name itself another one.
    assert_eq!(forwarded(&apus, "198.51.100.1, 203.0.113.9"), 403);
    let (_, error) = home.expect(&["ban", "remove", "192.0.2.77"], 1);
    assert!(error.contains("banned by a file"), "{error}");

    // A proxy's connection stays open for its other clients.
    let mut kept = apus.connect();
    for (client, status) in [
        ("192.0.2.77", "403"),
        ("192.0.3.1", "200"),
        ("192.0.2.77", "403"),
    ] {
        write!(
            kept,
            "HEAD / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: {client}\r\n\r\n"
        )
        .unwrap();
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            kept.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    }

    // While requests come, the file changes, and has a mistake afterwards.
    home.write("blocked.txt", "198.51.100.0/24\n");
    wait_until("the list is read again", || {
        assert_eq!(forwarded(&apus, "203.0.113.9"), 403);
        forwarded(&apus, "198.51.100.1") == 403
    });
    assert_eq!(forwarded(&apus, "192.0.2.77"), 200);
    home.write("blocked.txt", "198.51.100.0/24\n192.0.2.0/24\n<html>\n");
    apus.wait_for_log("line 3: `<html>`");
    assert_eq!(forwarded(&apus, "198.51.100.1"), 403);
    assert_eq!(forwarded(&apus, "192.0.2.77"), 200);
    let (out, _) = home.expect(&["ban", "list"], 0);
    assert!(
        out.contains("blocked.txt: 1 networks; it has mistakes"),
        "{out}"
    );
    let (_, warning) = home.expect(&["check", "apus.toml"], 0);
    assert!(warning.contains("line 3: `<html>`"), "{warning}");
}

#[test]
fn a_limit_bans_a_client_at_the_refusal_that_it_says_and_no_other() {
    let home = Home::new();
    let port = free_port();
    home.write(
        "apus.toml",
        format!(
            "[global]\ncontrol_socket = \"control.sock\"\nstate_folder = \"state\"\ntrusted_proxies = \"127.0.0.0/8\"\n\
             [[sites]]\nlisten = \"127.0.0.1:{port}\"\nroot = \"site\"\n\
             [[sites.limits]]\nname = \"pages\"\nrate = \"1/h\"\nban = \"10m\"\nban_after = 3\n\
             [[sites.locations]]\npath = \"/at-once/\"\nreturn = {{ status = 200, text = \"ok\" }}\n\
             [[sites.locations.limits]]\nname = \"pages\"\nenabled = false\n\
             [[sites.locations.limits]]\nname = \"first\"\nrate = \"1/h\"\nban = \"10m\"\nban_after = 1\n"
        ),
    );
    let apus = home.serve(&["apus.toml"]);
    for expected in [200, 429, 429, 429, 403, 403] {
        assert_eq!(forwarded(&apus, "203.0.113.9"), expected);
    }
    for expected in [200, 429, 429] {
        assert_eq!(forwarded(&apus, "203.0.113.10"), expected);
    }
    let at_once = || {
        let mut stream = apus.connect();
        let request = "GET /at-once/ HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 203.0.113.11\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).unwrap();
        Reply::read(stream).status
    };
    assert_eq!([(); 3].map(|()| at_once()), [200, 429, 403]);
    wait_until("the bans are listed", || {
        let (list, _) = home.expect(&["ban", "list", "--socket", "control.sock"], 0);
        ["203.0.113.9", "203.0.113.11", "limit pages", "limit first"]
            .iter()
            .all(|part| list.contains(part))
    });
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                       Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
const EVENTS: &str = "GET /events HTTP/1.1\r\nHost: localhost\r\n";

/// A tunnel, and a response that goes on for ever, over connections that begin with these bytes; `fields` end both requests.
fn lasting(address: SocketAddr, first: &str, fields: &str) -> [Wire; 2] {
    [UPGRADE, EVENTS].map(|request| {
        let mut wire = Wire::connect(address);
        wire.send(format!("{first}{request}{fields}\r\n"));
        if request == UPGRADE {
            assert_eq!(wire.read().status, 101);
            wire.send("hello");
            assert_eq!(wire.read_bytes(5), b"hello");
        } else {
            assert_eq!(wire.read_head().status, 200);
            assert_eq!(wire.read_bytes(10), b"7\r\nbegun\n\n");
        }
        wire
    })
}

#[test]
fn a_ban_closes_what_its_client_has_open_over_every_protocol_and_behind_proxies() {
    let origin = ScriptedOrigin::start(|connection| {
        let Some(head) = connection.read_request() else {
            return;
        };
        if head.starts_with("GET /chat ") {
            connection.send(
                "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            );
            while let Some(bytes) = connection.read_bytes(5) {
                connection.send(bytes);
            }
        } else {
            connection.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nbegun\n\n\r\n",
            );
            connection.freeze();
        }
    });
    let home = Home::new();
    let ports = [(); 3].map(|()| free_port());
    let site = |name: &str, listen: &str| {
        format!(
            "[[sites]]\nserver_name = \"{name}\"\n{listen}\nupstream = \"http://{}\"\n",
            origin.address()
        )
    };
    home.write(
        "apus.toml",
        [
            "[global]\nworker_threads = 2\ntrusted_proxies = \"127.0.0.1\"\n".to_owned(),
            site(
                "localhost",
                &format!(
                    "listen = \"127.0.0.1:{}\"\nlisten_tls = \"127.0.0.1:{}\"",
                    ports[0], ports[1]
                ),
            ),
            site(
                "other",
                &format!(
                    "listen = \"127.0.0.1:{}\"\nproxy_protocol_from = \"127.0.0.1\"",
                    ports[2]
                ),
            ),
        ]
        .concat(),
    );
    let _apus = home.serve(&["--tls", "apus.toml"]);
    let [clear, tls, proxied] = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let named = |client: &str| {
        let [field, head] = [
            format!("X-Forwarded-For: {client}\r\n"),
            format!("PROXY TCP4 {client} 127.0.0.1 1234 80\r\n"),
        ];
        [lasting(clear, "", &field), lasting(proxied, &head, "")]
            .into_iter()
            .flatten()
    };
    let banned: Vec<_> = named("203.0.113.9").collect();
    let mut others: Vec<_> = named("203.0.113.10").collect();
    home.expect(&["ban", "add", "203.0.113.9"], 0);
    for mut wire in banned {
        // Without the end of the response.
        assert!(matches!(&*wire.rest(), b"" | b"\r\n"));
    }
    wait_until("the requests to the origin end", || origin.open() == 4);
    for tunnel in others.iter_mut().step_by(2) {
        tunnel.send("there");
        assert_eq!(tunnel.read_bytes(5), b"there");
    }

    // Now the proxy itself, over all protocols.
    let direct = lasting(clear, "", "");
    let mut http2 = Peer::open(connect(clear));
    let events = http2.get("/events");
    http2.until("the beginning", |peer| {
        peer.received(events).body == b"begun\n\n"
    });
    let url = format!("https://localhost:{}/events", tls.port());
    let arguments = [
        "bench",
        &url,
        "--insecure",
        "-n",
        "1",
        "-c",
        "1",
        "--timeout",
        "60s",
    ];
    let mut streams: Vec<_> = ["--http2", "--http3"]
        .iter()
        .map(|protocol| {
            let mut command = home.command(&arguments);
            command
                .arg(protocol)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    wait_until("the requests arrive", || origin.open() == 9);
    home.expect(&["ban", "add", "127.0.0.1", "--force"], 0);
    for mut wire in direct {
        wire.rest();
    }
    http2.assert_ended();
    for stream in &mut streams {
        stream.wait().unwrap();
    }
    wait_until("all requests to the origin end", || origin.open() == 2);
    // The PROXY protocol names another client.
    others[2].send("there");
    assert_eq!(others[2].read_bytes(5), b"there");
}
