//! Reload, stop and SIGKILL under load.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use rustix::process::Signal;

use crate::clients::{Curl, certificate, h2load, program};
use crate::harness::{Apus, Home, free_port, get_unix, wait_until};
use crate::wire::Wire;

const PAGE: usize = 30_000;

/// Writes the page, once: a file that is written again while it is served is short for a moment.
fn write_page(home: &Home) {
    home.write("site/page.txt", "x".repeat(PAGE));
}

/// Writes the configuration of a site in clear text, over TLS and on a Unix socket.
fn configure(home: &Home, ports: (u16, u16), more: &str) {
    home.write(
        "apus.toml",
        format!(
            r#"
            [global]
            access_log = "access.log"
            [[sites]]
            server_name = ["localhost", "_"]
            listen = ["127.0.0.1:{}", "unix:web.sock"]
            listen_tls = ["127.0.0.1:{}"]
            root = "site"
            tls = {{ cert = "current/localhost.pem", key = "current/localhost.key" }}
            {more}
            "#,
            ports.0, ports.1
        ),
    );
}

/// Makes two certificates and selects the first.
fn certificates(home: &Home) {
    for folder in ["first", "second"] {
        fs::create_dir(home.path(folder)).unwrap();
        certificate(home, &format!("{folder}/localhost"), "localhost");
    }
    select_certificate(home, "first");
}

fn select_certificate(home: &Home, folder: &str) {
    symlink(folder, home.path("next")).unwrap();
    fs::rename(home.path("next"), home.path("current")).unwrap();
}

/// Runs ab to its end and expects that no request fails. Returns the number of responses.
fn ab(arguments: &[&str], url: &str) -> u64 {
    let output = program("ab")
        .args(arguments)
        .arg("-q")
        .arg(url)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?} {url}: {report}{errors}"
    );
    let number = |name: &str| {
        let line = report.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().last()?.parse::<u64>().ok()
    };
    assert_eq!(number("Failed requests:"), Some(0), "{report}");
    assert_eq!(number("Non-2xx responses:"), None, "{report}");
    number("Complete requests:").unwrap()
}

/// Sends requests over one connection that stays open, however often the server reloads.
fn send_requests(apus: &Apus, requests: u64) -> u64 {
    let mut wire = Wire::connect(apus.address());
    for _ in 0..requests {
        assert!(wire.send("GET /page.txt HTTP/1.1\r\nHost: localhost\r\n\r\n"));
        let received = wire.read();
        assert_eq!((received.status, received.body.len()), (200, PAGE));
    }
    requests
}

#[test]
fn no_request_fails_and_no_log_line_is_missing_while_reloads_exchange_certificates() {
    let home = Home::new();
    certificates(&home);
    write_page(&home);
    let ports = (free_port(), free_port());
    configure(&home, ports, "");
    let mut apus = home.serve(&[]);
    let http = format!("http://127.0.0.1:{}/page.txt", ports.0);
    let https = format!("https://localhost:{}/page.txt", ports.1);
    let responses = AtomicU64::new(0);
    let (apus_now, home_now) = (&apus, &home);
    let count = |requests: u64| responses.fetch_add(requests, Ordering::Relaxed);
    thread::scope(|scope| {
        let clients = [
            scope.spawn(|| count(send_requests(apus_now, 4000))),
            scope.spawn(|| count(ab(&["-n", "3000", "-c", "4"], &http))),
            scope.spawn(|| count(ab(&["-k", "-n", "8000", "-c", "8"], &http))),
            scope.spawn(|| count(ab(&["-n", "800", "-c", "4"], &https))),
            scope.spawn(|| count(ab(&["-k", "-n", "6000", "-c", "8"], &https))),
            scope.spawn(|| count(h2load(&["-n6000", "-c4", "-m20", "-t1"], &https))),
            scope.spawn(|| count(h2load(&["-n6000", "-c4", "-m20", "-t1"], &http))),
        ];
        let mut reloads = 0;
        while reloads < 10 || clients.iter().any(|client| !client.is_finished()) {
            let folder = ["second", "first"][reloads % 2];
            select_certificate(home_now, folder);
            let location = "[[sites.locations]]\npath = \"/other/\"\nroot = \"site\"";
            configure(home_now, ports, ["", location][reloads % 2]);
            home_now.expect(&["reload"], 0);
            // New connections get the new certificate.
            let authority = home_now.path(&format!("{folder}/localhost.pem"));
            let reply = Curl::new()
                .args(&["--cacert", authority.to_str().unwrap(), "--noproxy", "*"])
                .run(&https);
            assert_eq!(reply.unwrap().status, 200);
            count(1);
            reloads += 1;
        }
    });
    let responses = responses.load(Ordering::Relaxed);
    home.expect(&["stop"], 0);
    assert!(apus.wait().success());
    let lines = home.read("access.log").lines().count() as u64;
    // Each connection of ab may have sent one request more than ab counts.
    assert!(
        (responses..=responses + 24).contains(&lines),
        "{lines} lines for {responses} responses"
    );
    let whole = home
        .read("access.log")
        .lines()
        .all(|line| line.contains("\"GET /page.txt HTTP/"));
    assert!(whole);
}

#[test]
fn every_request_before_a_stop_is_in_the_log() {
    let home = Home::new();
    certificates(&home);
    write_page(&home);
    let ports = (free_port(), free_port());
    configure(&home, ports, "");
    let mut apus = home.serve(&[]);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| send_requests(&apus, 500));
        }
    });
    apus.signal(Signal::TERM);
    assert!(apus.wait().success());
    assert_eq!(home.read("access.log").lines().count(), 2000);
}

#[test]
fn sigkill_under_load_does_not_prevent_the_next_start() {
    let home = Home::new();
    certificates(&home);
    write_page(&home);
    let ports = (free_port(), free_port());
    configure(&home, ports, "");
    let mut apus = home.serve(&[]);
    let mut wires: Vec<_> = (0..20).map(|_| Wire::connect(apus.address())).collect();
    for wire in &mut wires {
        wire.send("GET /page.txt HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100));
    }
    wires[0].read();
    apus.signal(Signal::KILL);
    assert!(!apus.wait().success());
    let before = home.read("access.log").len();

    // The next server uses the same ports, Unix socket and log.
    let apus = home.serve(&[]);
    assert_eq!(apus.get("/page.txt").body.len(), PAGE);
    assert_eq!(get_unix(&home.path("web.sock"), "/page.txt").status, 200);
    wait_until("the log grows", || home.read("access.log").len() > before);
    home.expect(&["reload"], 0);
    home.expect(&["stop"], 0);
    for socket in ["web.sock", "apus.toml.sock"] {
        assert!(!home.path(socket).exists(), "{socket} is left");
    }
}
