//! `apus serve`: folders and configurations, signals and systemd.

use std::io::{Read, Write};

use rustix::process::{Resource, Signal, getrlimit};

use crate::harness::{Apus, Home, Reply, Systemd, get_unix, is_open, wait_until};

#[test]
fn serves_a_folder_without_a_configuration() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    assert!(
        apus.urls()[0].starts_with("http://127.0.0.1:"),
        "{:?}",
        apus.urls()
    );
    let reply = apus.get("/");
    assert_eq!((reply.status, reply.body.as_str()), (200, "<h1>hello</h1>"));
    assert!(
        reply.head.contains("\r\ncontent-type: text/html"),
        "{}",
        reply.head
    );
    assert_eq!(apus.get("/none").status, 404);
}

#[test]
fn uses_the_configuration_of_the_current_folder_if_there_is_one() {
    let home = Home::new();
    home.write(
        "apus.toml",
        "[[sites]]\nroot = \"site\"\nlisten = [\"127.0.0.1:0\"]\n",
    );
    let apus = home.serve(&["--workers", "1"]);
    assert_eq!(apus.get("/").body, "<h1>hello</h1>");
    let (json, _) = home.expect(&["status", "--json"], 0);
    let status: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(status["workers"].as_array().unwrap().len(), 1);
}

#[test]
fn uses_the_next_port_if_the_default_one_is_in_use() {
    let home = Home::new();
    std::fs::create_dir(home.path("other")).unwrap();
    let first = home.serve(&["site"]);
    let second = home.serve(&["other"]);
    assert_ne!(first.address(), second.address());
    assert_eq!(first.get("/").status, 200);
}

#[test]
fn servers_that_start_at_once_have_different_default_ports() {
    let homes: Vec<Home> = (0..4).map(|_| Home::new()).collect();
    let servers = std::thread::scope(|scope| {
        let starts: Vec<_> = homes
            .iter()
            .map(|home| scope.spawn(|| home.serve(&["site", "--tls"])))
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect::<Vec<_>>()
    });
    let mut addresses: Vec<_> = servers.iter().flat_map(|one| one.urls().to_vec()).collect();
    addresses.sort();
    addresses.dedup();
    assert_eq!(addresses.len(), 8);
}

#[test]
fn serves_over_a_unix_socket() {
    let home = Home::new();
    let socket = home.path("web.sock");
    let _apus = home.serve(&["site", "--listen", &format!("unix:{}", socket.display())]);
    assert_eq!(get_unix(&socket, "/").body, "<h1>hello</h1>");
}

#[test]
fn sigterm_completes_open_requests_and_refuses_new_connections() {
    let home = Home::new();
    home.write("site/large", vec![b'x'; 64 << 20]);
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let mut stream = apus.connect();
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut start = [0; 1];
    stream.read_exact(&mut start).unwrap();
    apus.signal(Signal::TERM);
    let address = apus.address();
    wait_until("new connections are refused", || !is_open(address));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    let at = rest
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    assert_eq!(rest.len() - at - 4, 64 << 20);
    assert!(apus.wait().success());
}

#[test]
fn a_second_signal_stops_the_server_at_once() {
    let home = Home::new();
    home.write("site/large", vec![b'x'; 64 << 20]);
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let mut stream = apus.connect();
    stream
        .write_all(b"GET /large HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut start = [0; 1];
    stream.read_exact(&mut start).unwrap();
    apus.signal(Signal::INT);
    wait_until("the server is stopping", || {
        apus.log().contains("stopping after the open requests")
    });
    apus.signal(Signal::INT);
    assert!(apus.wait().success());
    apus.wait_for_log("at once");
}

#[test]
fn a_mistake_in_the_configuration_prevents_the_start() {
    let home = Home::new();
    home.write("bad.toml", "[[sites]]\nroots = \"site\"\n");
    let (out, errors) = home.expect(&["serve", "bad.toml"], 1);
    assert!(
        out.is_empty() && errors.contains("bad.toml:2:1"),
        "{errors}"
    );
}

#[test]
fn an_address_in_use_is_reported_with_its_position_and_a_remedy() {
    let home = Home::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (_, errors) = home.expect(&["serve", "site", "--listen", &address], 1);
    assert!(errors.contains(&address), "{errors}");
    home.write(
        "apus.toml",
        format!("[[sites]]\nroot = \"site\"\nlisten = [\"127.0.0.1:0\", \"{address}\"]\n"),
    );
    let (_, errors) = home.expect(&["serve"], 1);
    for text in [&*address, "apus.toml:3:26", "ss -ltnp"] {
        assert!(errors.contains(text), "{errors}");
    }
}

#[test]
fn raises_the_limit_of_open_files_to_the_hard_limit() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", apus.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .unwrap();
    let values: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(values[3], values[4], "{line}");
    let hard = getrlimit(Resource::Nofile).maximum;
    assert_eq!(values[4].parse().ok(), hard);
}

#[test]
fn systemd_is_notified_of_start_reload_and_stop() {
    let home = Home::new();
    let systemd = Systemd::listen(&home.path("notify"));
    let mut command = home.command(&["serve", "site", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", systemd.path());
    let mut apus = Apus::start(command);
    assert_eq!(systemd.next().trim(), "READY=1");
    apus.signal(Signal::HUP);
    let reloading = systemd.next();
    assert!(
        reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(systemd.next().trim(), "READY=1");
    apus.signal(Signal::TERM);
    assert_eq!(systemd.next().trim(), "STOPPING=1");
    assert!(apus.wait().success());
}

#[test]
fn the_log_is_json_in_a_pipe_with_the_level_of_the_environment() {
    let home = Home::new();
    let mut apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    apus.signal(Signal::TERM);
    apus.wait();
    wait_until("the log is read", || apus.log().contains("stopped"));
    for line in apus.log().lines() {
        let entry: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_eq!(entry["level"], "INFO", "{line}");
    }
    let mut command = home.command(&["serve", "site"]);
    let output = command.env("APUS_LOG", "a=b=c").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("APUS_LOG"));
}

#[test]
fn one_connection_serves_many_pipelined_requests() {
    let home = Home::new();
    let apus = home.serve(&["site", "--listen", "127.0.0.1:0"]);
    let mut stream = apus.connect();
    let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let last = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    stream
        .write_all((request.repeat(9) + last).as_bytes())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 10, "{text}");
    assert_eq!(Reply::parse(&text).status, 200);
}
