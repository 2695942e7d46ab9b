//! Origins: real servers that a test starts, and that end with it. Their programs lie in
//! `tests/origins`; what they need is installed by `make tools`.
//!
//! Python, Node and Go have these resources beside the files of [`folder`]: `/stream`, the large file
//! in chunks; `/echo`, which sends content back (any path in Python); `/request`, the request as it
//! came, a line each; Node and Go also `/trailers`, content with the trailer `x-sum: 7`, and `/early`,
//! 103 before 200. nginx has `/stream`, and keeps what is PUT below `/kept/`.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::clients::program;
use crate::harness::{free_port, is_open, wait_until};

/// The size of the large file.
pub(crate) const LARGE: usize = 20 << 20;

/// The small file.
pub(crate) const SMALL: &str = "small and served by the origin\n";

/// The content of the large file, no two parts of which are alike.
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

/// A server that runs.
pub(crate) struct Origin {
    name: &'static str,
    child: Child,
    address: SocketAddr,
    /// Where nginx keeps what it gets.
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

    /// HTTP/1.1, and HTTP/2 with prior knowledge.
    pub(crate) fn go() -> Self {
        let mut command = go("http");
        command.arg(folder());
        Self::start("go", command)
    }

    /// Over TLS, with `FILE.pem` and `FILE.key`: HTTP/1.1 and HTTP/2.
    pub(crate) fn go_over_tls(file: &Path) -> Self {
        let mut command = go("http");
        command.args(certificate(file)).arg(folder());
        Self::start("go over TLS", command)
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

    /// The same over TLS, with `FILE.pem` and `FILE.key`.
    pub(crate) fn grpc_over_tls(file: &Path) -> Self {
        let mut command = go("grpc");
        command.args(certificate(file)).arg("serve");
        Self::start("grpc over TLS", command)
    }

    pub(crate) fn websocket() -> Self {
        Self::start("websocket", python("websocket.py"))
    }

    /// Starts a program that prints its port first.
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

    /// Ends it at once.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// It goes on to listen, and does nothing.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::STOP);
        wait_until("it stands still", || {
            let threads = fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
            threads.map_while(Result::ok).all(|thread| {
                let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                // The state is behind the name, which stands in parentheses.
                stat.rsplit_once(") ")
                    .is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        });
    }

    pub(crate) fn thaw(&self) {
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

/// A client that sends each line it is told over a stream that stays open, and prints it once it is
/// answered.
pub(crate) struct Holder {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Holder {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Sends a line and waits until it is answered.
    pub(crate) fn say(&mut self, line: &str) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{line}").unwrap();
        assert_eq!(self.read(), line);
    }

    /// The next line that it prints.
    pub(crate) fn read(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the stream, which has to end well.
    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}
