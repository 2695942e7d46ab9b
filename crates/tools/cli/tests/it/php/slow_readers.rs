//! Clients that read large responses slowly or not at all: they occupy no process of PHP, and get every byte.

use std::fs;
use std::net::SocketAddr;

use super::stack::Stack;
use crate::harness::{Apus, Home, wait_until};
use crate::wire::Wire;

/// More bytes than the kernel buffers for a client that does not read.
const LARGE: usize = 20 << 20;

/// The number of PHP processes.
const PROCESSES: usize = 2;

/// Prints as many bytes as the request names, in which no line occurs twice.
const SCRIPT: &str = "<?php
    $size = (int) ($_GET['size'] ?? 0);
    if (isset($_GET['told'])) { header(\"Content-Length: $size\"); }
    for ($at = 0; $at < $size; $at += strlen($lines)) {
        $lines = '';
        for ($line = 0; $line < 8192; $line++) { $lines .= sprintf(\"%07d\\n\", $at / 8 + $line); }
        echo $at + 65536 <= $size ? $lines : substr($lines, 0, $size - $at);
    }";

fn pattern(size: usize) -> Vec<u8> {
    let lines = (0..size.div_ceil(8)).flat_map(|line| format!("{line:07}\n").into_bytes());
    lines.take(size).collect()
}

/// A server in front of PHP-FPM or resident workers, with this number of processes.
struct SlowReaderSite {
    _stack: Option<Stack>,
    home: Home,
    apus: Apus,
}

impl SlowReaderSite {
    fn php_fpm(fastcgi: &str) -> Self {
        let stack = Stack::php(PROCESSES);
        let site = format!("php_fastcgi = \"{}\"\n{fastcgi}", stack.socket().display());
        Self::start(Some(stack), &site, &[])
    }

    fn resident() -> Self {
        let site = format!(
            "php_fastcgi = \"/usr/bin/php-cgi8.2\"\n\
             [sites.fastcgi.workers]\nfolder = \"run\"\nmax = {PROCESSES}"
        );
        Self::start(None, &site, &[])
    }

    fn start(stack: Option<Stack>, site: &str, program: &[&str]) -> Self {
        let home = Home::new();
        fs::remove_file(home.path("site/index.html")).unwrap();
        let root = match &stack {
            Some(stack) => {
                let script = stack.write("slow/index.php", SCRIPT);
                script.parent().unwrap().to_owned()
            }
            None => {
                home.write("site/index.php", SCRIPT);
                home.path("site")
            }
        };
        home.write(
            "apus.toml",
            format!(
                "[global]\ncontrol_socket = \"apus.sock\"\n\
                 [[sites]]\nlisten = [\"127.0.0.1:0\"]\nroot = \"{}\"\n{site}\n",
                root.display()
            ),
        );
        home.make_folder("disk");
        if program.first() == Some(&"unshare") {
            home.take_back();
        }
        let apus = home.serve_through(program, &[]);
        Self {
            _stack: stack,
            home,
            apus,
        }
    }

    fn address(&self) -> SocketAddr {
        self.apus.address()
    }
}

/// A client that requests this number of bytes and does not read them.
fn slow_reader(address: SocketAddr, query: &str) -> Wire {
    let mut wire = Wire::connect(address);
    wire.send(format!("GET /?{query} HTTP/1.1\r\nhost: a\r\n\r\n"));
    wire.wait();
    wire
}

fn assert_no_process_is_occupied(served: &SlowReaderSite) {
    let address = served.address();
    let query = format!("size={LARGE}&told");
    let readers: Vec<_> = (0..3 * PROCESSES)
        .map(|_| slow_reader(address, &query))
        .collect();
    for _ in 0..PROCESSES {
        assert_eq!(served.apus.get("/?size=100").body.as_bytes(), pattern(100));
    }
    let expected = pattern(LARGE);
    for mut reader in readers {
        let received = reader.read();
        assert_eq!(received.status, 200);
        assert!(received.body == expected, "{} bytes", received.body.len());
    }
}

#[test]
fn slow_readers_of_large_responses_occupy_no_process_of_php_fpm() {
    assert_no_process_is_occupied(&SlowReaderSite::php_fpm(""));
}

#[test]
fn slow_readers_of_large_responses_occupy_no_resident_worker() {
    assert_no_process_is_occupied(&SlowReaderSite::resident());
}

#[test]
fn the_file_of_a_held_response_is_released_when_the_client_disconnects() {
    let served = SlowReaderSite::php_fpm("fastcgi = { hold_response = { folder = \"disk\" } }");
    let held = || {
        let files = fs::read_dir(format!("/proc/{}/fd", served.apus.pid())).unwrap();
        let targets = files.filter_map(|file| fs::read_link(file.unwrap().path()).ok());
        let folder = served.home.path("disk");
        targets.filter(|target| target.starts_with(&folder)).count()
    };
    let query = format!("size={LARGE}");
    let readers: Vec<_> = (0..PROCESSES)
        .map(|_| slow_reader(served.address(), &query))
        .collect();
    wait_until("responses are held in files", || held() == PROCESSES);
    // The files have no name in the folder.
    assert_eq!(fs::read_dir(served.home.path("disk")).unwrap().count(), 0);
    drop(readers);
    wait_until("the files are gone", || held() == 0);
}

#[test]
fn a_full_disk_slows_a_response_down_and_cuts_nothing_off() {
    // The folder is too small for any response.
    const SMALL: [&str; 8] = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        "mount -t tmpfs -o size=4m none disk && exec \"$@\"",
        "sh",
    ];
    const LIMITED: [&str; 4] = [
        "sh",
        "-c",
        "trap '' XFSZ; ulimit -f 8192; exec \"$@\"",
        "sh",
    ];
    let may_mount = std::process::Command::new(SMALL[0])
        .args(&SMALL[1..4])
        .args(["mount", "-t", "tmpfs", "none", "/mnt"])
        .output()
        .is_ok_and(|output| output.status.success());
    let program = if may_mount { &SMALL[..] } else { &LIMITED };
    let stack = Stack::php(PROCESSES);
    let site = format!(
        "php_fastcgi = \"{}\"\nfastcgi = {{ hold_response = {{ folder = \"disk\" }} }}",
        stack.socket().display()
    );
    let served = SlowReaderSite::start(Some(stack), &site, program);
    for query in [format!("size={LARGE}&told"), format!("size={LARGE}")] {
        let mut reader = slow_reader(served.address(), &query);
        wait_until("the disk is full", || {
            served.apus.log().contains("cannot hold a body in a file")
        });
        let received = reader.read();
        assert!(
            received.body == pattern(LARGE),
            "{} bytes",
            received.body.len()
        );
    }
    assert_eq!(served.apus.get("/?size=100").body.as_bytes(), pattern(100));
}
