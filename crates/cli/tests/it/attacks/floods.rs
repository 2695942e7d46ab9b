//! Many and large: heads, targets, connections, log lines, descriptors, a full disk.

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
    victim.assert_stands();
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
    victim.assert_stands();
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
    victim.assert_stands();
}

#[test]
fn pipelined_requests_without_end_take_no_memory_while_nobody_reads() {
    let victim = Victim::with_defaults();
    let requests = "GET /large.bin HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1000);
    let mut clients: Vec<_> = (0..50).map(|_| victim.connect()).collect();
    for client in &mut clients {
        while client
            .try_send(requests.as_bytes())
            .is_ok_and(|sent| sent > 0)
        {}
    }
    victim.assert_stands();
}

#[test]
fn a_flood_from_one_address_is_bounded_where_the_configuration_says_so() {
    let victim = Victim::configured("worker_threads = 1\nconnections_per_address = 10", "");
    let mut clients = Vec::new();
    let mut refused = 0;
    for _ in 0..100 {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        clients.push(client);
    }
    for client in &mut clients {
        wait_until("it is answered or closed", || client.is_readable());
        match client.is_closed() {
            true => refused += 1,
            false => assert_eq!(client.read().status, 200),
        }
    }
    assert_eq!(refused, 90);
    assert_eq!(victim.total("refused"), 90);
    drop(clients);
    wait_until("there is room again", || {
        let mut client = victim.connect();
        client.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        wait_until("it is answered or closed", || client.is_readable());
        !client.is_closed()
    });
    victim.assert_stands();
}

#[test]
fn a_flood_of_long_log_lines_takes_no_memory_and_loses_nothing_silently() {
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
    victim.assert_stands();
    let requests = victim.total("requests");
    let mut status = victim.status();
    wait_until("all lines are accounted for", || {
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

/// A server that may open this many files, with one worker.
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
    // Files that were not asked for before have to be opened.
    for name in ["a", "b", "c"] {
        assert_eq!(victim.get(&format!("/{name}"), "").text(), name);
    }
    assert!(victim.total("evicted") > 100);
    victim.assert_stands();
}

#[test]
fn without_descriptors_accept_rests_and_goes_on_when_they_are_back() {
    let victim = with_descriptors(64);
    // Answers that are not read, and longer than the kernel holds, keep their connections from being
    // closed for others.
    victim.home.write("site/film.bin", vec![b'x'; 32 << 20]);
    let mut clients: Vec<_> = (0..100).map(|_| victim.connect()).collect();
    for client in &mut clients {
        client.send("GET /film.bin HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    wait_until("it is out of descriptors", || {
        victim.apus.log().contains("cannot accept")
    });
    // An honest client that has to wait meanwhile.
    let mut waiting = victim.connect();
    waiting.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    // It still fills the sockets for a while. A server that tried again and again would never rest.
    let (mut since, mut ticks) = (Instant::now(), victim.ticks());
    wait_until(
        "a second has gone by with a fifth of it spent at most",
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
    victim.assert_stands();
}

/// A small file system in memory, for as long as the test.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// None where the user may not mount.
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
fn a_disk_that_is_full_costs_log_lines_alone_and_they_are_counted() {
    let home = Home::new();
    fill(&home);
    // Where the test may not mount, the device that is always full has to do.
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
    wait_until("all are accounted for", || {
        let status = victim.status();
        log(&status, "lines_lost") + log(&status, "lines_written") == requests
    });
    victim.assert_stands();
    if disk.is_none() {
        return;
    }
    // When there is room again, the log goes on with a line of its own.
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
    // Before the folder that it is mounted in is removed.
    drop(disk);
}
