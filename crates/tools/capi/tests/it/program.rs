//! Programs in C: compiled with the header and the library of this build, and run.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// The folder of this crate.
pub(crate) fn crate_folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The folder of the shared library of this build.
pub(crate) fn library_folder() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    let folder = program.parent().unwrap();
    let folders = [folder, folder.parent().unwrap()];
    let found = folders
        .into_iter()
        .find(|folder| folder.join("libapus_capi.so").exists());
    found
        .expect("libapus_capi.so beside the test")
        .to_path_buf()
}

/// Compiles a program of `tests/c` to a folder.
pub(crate) fn compile(name: &str, folder: &Path) -> PathBuf {
    let source = crate_folder().join("tests/c").join(name);
    let program = folder.join(name.trim_end_matches(".c"));
    // Programs look for libapus.so.1, which the file of the build is not called.
    let library = folder.join("libapus.so.1");
    if !library.exists() {
        std::os::unix::fs::symlink(library_folder().join("libapus_capi.so"), &library).unwrap();
    }
    let output = Command::new("cc")
        .args([
            "-std=c11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Werror",
            "-g",
            "-O1",
        ])
        .arg("-I")
        .arg(crate_folder().join("include"))
        .arg(&source)
        .arg(&library)
        .args(["-pthread", "-rdynamic", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {text}");
    program
}

/// A command that finds the library.
pub(crate) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", program.parent().unwrap());
    command
}

/// A running program.
pub(crate) struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            input: child.stdin.take(),
            output: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn send(&mut self, line: &str) {
        let input = self.input.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
        input.flush().unwrap();
    }

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Closes its input, and waits for its end; returns what it wrote last.
    pub(crate) fn end(mut self) -> String {
        self.input.take();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let status = self.child.wait().unwrap();
        assert!(status.success(), "{status}: {rest}");
        rest
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.input.take();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process beside the program, which ends when this is dropped.
pub(crate) struct OtherProcess(pub(crate) Child);

impl Drop for OtherProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A response, as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(": ")?;
            field.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

#[allow(clippy::disallowed_methods, reason = "the thread of a test may block")]
pub(crate) fn try_connect(port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect(("127.0.0.1", port))
}

pub(crate) fn connect(port: u16) -> TcpStream {
    let stream = try_connect(port).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream
}

/// Sends a request as it is, and reads until the server closes.
pub(crate) fn exchange(port: u16, request: &str) -> Reply {
    let mut stream = connect(port);
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    // A body that was aborted ends by a reset.
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or((&response, ""));
    Reply {
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

/// A request without a body, with further field lines, over a separate connection.
pub(crate) fn get_with(port: u16, path: &str, fields: &str) -> Reply {
    exchange(
        port,
        &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"),
    )
}

pub(crate) fn get(port: u16, path: &str) -> Reply {
    get_with(port, path, "")
}

/// Waits until a condition holds.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::park_timeout(Duration::from_millis(10));
    }
}
