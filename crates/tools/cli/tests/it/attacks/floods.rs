//! Floods of large heads and targets, connections and log lines, exhausted descriptors and a full disk.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use serde_json::Value;

use super::{Victim, fill};
use crate::harness::{Apus, Home, wait_until};

#[test]
fn header_and_cookie_bombs_are_refused() {
    let victim = Victim::with_defaults();
    let many: String = (0..10_000).map(|n| format!("X-{n}: y\r\n")).collect();
    let large: String = (0..90)
        .map(|n| format!("X-{n}: {}\r\n", "x".repeat(1000)))
        .collect();
    let cookie = format!("Cookie: {}\r\n", "c=1; ".repeat(200_000));
    let cookies = "Cookie: a=b\r\n".repeat(5000);
    for bomb in [many, large, cookie, cookies] {
        for _ in 0..20 {
            let received = victim.get("/", &bomb);
            assert_eq!(received.status, 431);
            assert_eq!(received.field("connection"), Some("close"));
        }
    }
    assert_eq!(victim.total("bad_requests"), 80);
    victim.assert_healthy();
}

#[test]
fn heads_at_the_limit_on_many_connections_fit_into_memory() {
    let victim = Victim::with_defaults();
    let almost = format!(
        "GET / HTTP/1.1\r\nHost: localhost\r\nX: {}",
        "x".repeat(31_000)
    );
    let mut clients: Vec<_> = (0..500).map(|_| victim.connect()).collect();
    for client in &mut clients {
        client.send(&almost);
    }
    victim.assert_healthy();
    for client in &mut clients {
        client.send("\r\n\r\n");
        assert_eq!(client.read().status, 200);
    }
}

#[test]
fn very_long_targets_are_refused() {
    let victim = Victim::with_defaults();
    for length in [8 * 1024, 100_000, 1_000_000] {
        for target in [
            format!("/{}", "a".repeat(length)),
            format!("/?{}", "a=b&".repeat(length / 4 + 1)),
            "/a".repeat(length / 2 + 1),
            "/..".repeat(length / 3 + 1),
        ] {
            let received = victim.get(&target, "");
            assert_eq!(received.status, 414, "{length}");
            assert_eq!(received.field("connection"), Some("close"));
        }
    }
    let longest = format!("/?{}", "q".repeat(8 * 1024 - 2));
    assert_eq!(victim.get(&longest, "").status, 200);
    assert_eq!(victim.total("bad_requests"), 12);
    victim.assert_healthy();
}

#[test]
fn endless_pipelined_requests_of_a_client_that_reads_nothing_take_no_memory() {
    let victim = Victim::with_defaults();
    let requests = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let mut clients: Vec<_> = (0..50).map(|_| victim.connect()).collect();
    for client in &mut clients {
        while client
            .try_send(requests.as_bytes())
            .is_ok_and(|sent| sent > 0)
        {}
    }
    victim.assert_healthy();
}

#[test]
fn connections_from_one_address_are_limited_as_configured() {
    let victim = Victim::configured("worker_threads = 1\nconnections_per_address = 10", "");
    let mut clients = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        clients.push(client);
    }
    for client in &mut clients {
        wait_until("there is a response or it is closed", || {
            client.is_readable()
        });
        if client.is_closed() {
            refused += 1
        } else {
            assert_eq!(client.read().status, 200)
        }
    }
    assert_eq!(refused, 90);
    assert_eq!(victim.total("refused"), 90);
    drop(clients);
    wait_until("a new connection is accepted", || {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wait_until("there is a response or it is closed", || {
            client.is_readable()
        });
        !client.is_closed()
    });
    victim.assert_healthy();
}

#[test]
fn a_flood_of_long_log_lines_takes_no_memory_and_lost_lines_are_counted() {
    const CONNECTIONS: usize = 8;
    const REQUESTS: usize = 300;
    let mut victim = Victim::configured("access_log = \"access.log\"", "");
    let request = format!(
        "GET /?{} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {}\r\nReferer: {}\r\n\r\n",
        "q".repeat(7000),
        "\"\u{1b}[31m".repeat(1000),
        "r".repeat(8000),
    );
    let request = request.replace('\u{1b}', "\u{9b}");
    let mut clients: Vec<_> = (0..CONNECTIONS).map(|_| victim.connect()).collect();
    std::thread::scope(|scope| {
        for client in &mut clients {
            scope.spawn(|| {
                for _ in 0..REQUESTS {
                    client.send(&request);
                    assert_eq!(client.read().status, 200);
                }
            });
        }
    });
    drop(clients);
    victim.assert_healthy();
    let requests = victim.total("requests");
    let mut status = victim.status();
    wait_until("all lines are counted", || {
        status = victim.status();
        let log = &status["access_logs"][0];
        log["lines_written"].as_u64().unwrap() + log["lines_lost"].as_u64().unwrap() == requests
    });
    let lost = status["access_logs"][0]["lines_lost"].as_u64().unwrap();
    victim.home.expect(&["stop"], 0);
    assert!(victim.apus.wait().success());
    let log = fs::read(victim.home.path("access.log")).unwrap();
    let lines = log.iter().filter(|byte| **byte == b'\n').count() as u64;
    assert_eq!(lines, requests - lost);
    assert!(
        log.iter()
            .all(|byte| *byte == b'\n' || (b' '..=b'~').contains(byte))
    );
}

/// A server with one worker and this limit of open files.
fn with_descriptors(number: u32) -> Victim {
    let home = Home::new();
    fill(&home);
    let mut command = Command::new("sh");
    let apus = home.command(&["serve", "site", "--listen", "127.0.0.1:0", "--workers", "1"]);
    command
        .args(["-c", &format!("ulimit -n {number}; exec \"$0\" \"$@\"")])
        .arg(apus.get_program())
        .args(apus.get_args())
        .current_dir(apus.get_current_dir().unwrap());
    for (name, value) in apus.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let apus = Apus::start(command);
    Victim::new(home, apus, "site")
}

#[test]
fn idle_connections_leave_descriptors_for_files() {
    let victim = with_descriptors(64);
    for name in ["a", "b", "c"] {
        victim.home.write(&format!("site/{name}"), name);
    }
    let mut clients = Vec::new();
    for _ in 0..200 {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_eq!(client.read().status, 200);
        clients.push(client);
    }
    // Files that were not requested before have to be opened.
    for name in ["a", "b", "c"] {
        assert_eq!(victim.get(&format!("/{name}"), "").text(), name);
    }
    assert!(victim.total("evicted") > 100);
    victim.assert_healthy();
}

#[test]
fn accept_pauses_without_descriptors_and_resumes_when_there_are_some() {
    // So few that what the process has open itself and half as many connections are too many.
    let victim = with_descriptors(36);
    // A connection is not evicted while its response is unread and larger than the buffers of the kernel.
    victim.home.write("site/film.bin", vec![b'x'; 32 << 20]);
    let is_out = || victim.apus.log().contains("cannot accept");
    let mut clients = Vec::new();
    while !is_out() {
        assert!(clients.len() < 40);
        let mut client = victim.connect();
        client.send("GET /film.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wait_until("the response begins, or it is out of descriptors", || {
            client.is_readable() || is_out()
        });
        clients.push(client);
    }
    // An honest client waits meanwhile.
    let mut waiting = victim.connect();
    waiting.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // The server still fills the sockets for a while. One that retried `accept` in a loop would stay busy.
    let (mut since, mut ticks) = (Instant::now(), victim.ticks());
    wait_until(
        "the server uses at most a fifth of a second of CPU time in a second",
        || {
            if victim.ticks() - ticks >= 20 {
                (since, ticks) = (Instant::now(), victim.ticks());
            }
            since.elapsed().as_secs() >= 1
        },
    );
    drop(clients);
    assert_eq!(waiting.read().text(), "<h1>hello</h1>");
    assert!(victim.total("accept_failures") > 0);
    victim.assert_healthy();
}

/// A small file system in memory, which is unmounted when this is dropped.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// None if the user may not mount.
    fn mount(folder: PathBuf) -> Option<Self> {
        fs::create_dir(&folder).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(&folder)
            .output();
        mounted
            .is_ok_and(|output| output.status.success())
            .then_some(Self { folder })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg("--lazy")
            .arg(&self.folder)
            .status();
    }
}

#[test]
fn a_full_disk_loses_only_log_lines_and_they_are_counted() {
    let home = Home::new();
    fill(&home);
    // If the test may not mount, it uses the device that is always full.
    let disk = SmallDisk::mount(home.path("disk"));
    let path = if disk.is_some() {
        "disk/access.log"
    } else {
        "/dev/full"
    };
    home.write(
        "apus.toml",
        format!(
            "[global]\naccess_log = \"{path}\"\n\
             [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"site\"\n"
        ),
    );
    let apus = home.serve(&[]);
    let victim = Victim::new(home, apus, "apus.toml");
    let log = |status: &Value, key: &str| status["access_logs"][0][key].as_u64().unwrap();
    let long = format!("/?{}", "q".repeat(4000));
    let mut requests = 1;
    wait_until("lines are lost", || {
        for _ in 0..20 {
            assert_eq!(victim.get(&long, "").status, 200);
            requests += 1;
        }
        log(&victim.status(), "lines_lost") > 0
    });
    wait_until("all are counted", || {
        let status = victim.status();
        log(&status, "lines_lost") + log(&status, "lines_written") == requests
    });
    victim.assert_healthy();
    if disk.is_none() {
        return;
    }
    // When there is space again, the log continues with a complete line.
    fs::write(victim.home.path("disk/access.log"), "").unwrap();
    let written = log(&victim.status(), "lines_written");
    wait_until("lines are written again", || {
        assert_eq!(victim.get("/?again", "").status, 200);
        log(&victim.status(), "lines_written") > written
    });
    wait_until("a whole line is in the file", || {
        let text = victim.home.read("disk/access.log");
        text.lines()
            .any(|line| line.starts_with("127.0.0.1 ") && line.contains("\"GET /?again HTTP/1.1\""))
    });
    // The file system is unmounted before its folder is removed.
    drop(disk);
}
