//! Origins: real servers that a test starts and that end with it. Their programs are in
//! `tests/origins`; what they need is installed by `make tools`.
//!
//! Python, Node, Go and quic-go have these resources beside the files of [`folder`]: `/stream`, the large file
//! in chunks; `/echo`, which sends the request body back (any path in Python); `/request`, the request
//! line and the fields as received, one per line; Node, Go and quic-go also `/trailers`, a body with the trailer
//! `x-sum: 7`, and `/early`, a 103 before the 200. nginx has `/stream`, and stores files that are PUT below
//! `/kept/`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clients::{program, quic_go};
use crate::harness::{free_port, is_open, wait_until};

/// The size of the large file.
pub(crate) const LARGE: usize = 20 << 20;

/// The small file.
pub(crate) const SMALL: &str = "small and served by the origin\n";

/// The content of the large file, in which no line occurs twice.
pub(crate) fn large() -> &'static [u8] {
    static LARGE_FILE: OnceLock<Vec<u8>> = OnceLock::new();
    LARGE_FILE.get_or_init(|| {
        (0..LARGE / 8)
            .flat_map(|number| format!("{number:07}\n").into_bytes())
            .collect()
    })
}

/// The folder that origins serve: `small.txt` and `large.bin`.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("origins/site");
        fs::create_dir_all(&folder).unwrap();
        for (name, content) in [("small.txt", SMALL.as_bytes()), ("large.bin", large())] {
            // Another run may be serving it.
            if fs::read(folder.join(name)).ok().as_deref() != Some(content) {
                fs::write(folder.join(name), content).unwrap();
            }
        }
        folder
    })
}

/// A program of `tests/origins`.
pub(crate) fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/origins")
        .join(name)
}

/// Debian's Python, which finds Debian's modules.
pub(crate) fn python(script: &str) -> Command {
    let mut command = program("/usr/bin/python3");
    command.arg(source(script));
    command
}

/// A program in Go, built once.
pub(crate) fn go(name: &str) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = BUILT.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("origins/go");
        fs::create_dir_all(&folder).unwrap();
        let output = program("go")
            .args(["build", "-o"])
            .arg(&folder)
            .arg("./...")
            .current_dir(source("go"))
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        folder
    });
    Command::new(folder.join(name))
}

/// A running server.
pub(crate) struct Origin {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    /// The folder in which nginx stores files.
    _folder: Option<TempDir>,
}

impl Origin {
    pub(crate) fn python() -> Self {
        let mut command = python("site.py");
        command.arg(folder());
        Self::start("python", command)
    }

    pub(crate) fn node() -> Self {
        let mut command = program("node");
        command.arg(source("site.mjs")).arg(folder());
        Self::start("node", command)
    }

    /// Go with HTTP/1.1, and HTTP/2 with prior knowledge.
    pub(crate) fn go() -> Self {
        let mut command = go("http");
        command.arg(folder());
        Self::start("go", command)
    }

    /// Go with HTTP/1.1 and HTTP/2 over TLS, with `FILE.pem` and `FILE.key`.
    pub(crate) fn go_over_tls(file: &Path) -> Self {
        let mut command = go("http");
        command.args(certificate(file)).arg(folder());
        Self::start("go over TLS", command)
    }

    /// quic-go with HTTP/3, with `FILE.pem` and `FILE.key`. With `retry`, clients prove their address first.
    pub(crate) fn quic_go(file: &Path, retry: bool) -> Self {
        let [_, certificate, _, key] = certificate(file);
        let mut command = quic_go();
        command.args(["serve", &certificate, &key]).arg(folder());
        if retry {
            command.arg("retry");
        }
        Self::start("quic-go", command)
    }

    pub(crate) fn nginx() -> Self {
        let kept = tempfile::tempdir().unwrap();
        fs::create_dir(kept.path().join("kept")).unwrap();
        let port = free_port();
        let configuration = fs::read_to_string(source("nginx.conf"))
            .unwrap()
            .replace("SITE", folder().to_str().unwrap())
            .replace("KEPT", kept.path().to_str().unwrap())
            .replace("PORT", &port.to_string());
        fs::write(kept.path().join("nginx.conf"), configuration).unwrap();
        let child = program("/usr/sbin/nginx")
            .arg("-c")
            .arg(kept.path().join("nginx.conf"))
            .arg("-e")
            .arg(kept.path().join("nginx.log"))
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        wait_until("nginx listens", || is_open(address));
        Self {
            name: "nginx",
            child,
            address,
            _folder: Some(kept),
        }
    }

    /// The test server of the gRPC project.
    pub(crate) fn grpc() -> Self {
        let mut command = go("grpc");
        command.arg("serve");
        Self::start("grpc", command)
    }

    /// The test server of the gRPC project over TLS, with `FILE.pem` and `FILE.key`.
    pub(crate) fn grpc_over_tls(file: &Path) -> Self {
        let mut command = go("grpc");
        command.args(certificate(file)).arg("serve");
        Self::start("grpc over TLS", command)
    }

    pub(crate) fn websocket() -> Self {
        Self::start("websocket", python("websocket.py"))
    }

    /// Starts a program whose first line of output is its port.
    fn start(name: &'static str, mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let port: u16 = line.trim().parse().expect(name);
        Self {
            name,
            child,
            address: SocketAddr::from(([127, 0, 0, 1], port)),
            _folder: None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Kills the process.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Stops the process; its socket still accepts connections.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until("all threads are stopped", || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            threads.map_while(Result::ok).all(|thread| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                // The state follows the name in parentheses.
                stat.rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }

    pub(crate) fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn certificate(file: &Path) -> [String; 4] {
    let name = |ending| file.with_extension(ending).to_str().unwrap().to_owned();
    ["-cert".into(), name("pem"), "-key".into(), name("key")]
}

/// A program that sends each line of its input over a stream that stays open, and prints the line once the
/// response has come.
pub(crate) struct HoldingClient {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl HoldingClient {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Sends a line and waits for the response.
    pub(crate) fn echo(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        assert_eq!(self.read(), line);
    }

    /// The next line of output.
    pub(crate) fn read(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the stream, which has to succeed.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}
