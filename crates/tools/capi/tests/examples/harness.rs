//! Compiles the examples in C, runs them as servers, and talks to them.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

pub(crate) use apus_testkit::free_port;
use apus_testkit::wait_until;
use tempfile::TempDir;

/// How long a test waits for bytes of a server. It is long because the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(90);

/// The root of the repository.
pub(crate) fn repository() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."))
}

/// The folder with the programs, and with the library that cargo built, by the names that it has once it is installed.
pub(crate) fn programs_folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let test = std::env::current_exe().unwrap();
        let dependencies = test.parent().unwrap();
        let built = dependencies.parent().unwrap();
        let library = [dependencies, built]
            .map(|folder| folder.join("libapus_capi.so"))
            .into_iter()
            .find(|library| library.exists())
            .expect("libapus_capi.so beside the test");
        let folder = built.join("c-examples");
        fs::create_dir_all(&folder).unwrap();
        for name in ["libapus.so", "libapus.so.1"] {
            let link = folder.join(name);
            if fs::read_link(&link).is_err() {
                std::os::unix::fs::symlink(&library, link).unwrap();
            }
        }
        folder
    })
}

/// The options of a compiler that finds `apus.h` and `apus.hpp`.
pub(crate) fn include_folders() -> [String; 2] {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    ["-I".to_owned(), folder.to_owned()]
}

/// What a program needs besides libapus.
#[derive(Clone, Copy, Default)]
pub(crate) struct Build {
    /// The compiler and the standard of the language.
    pub(crate) compiler: &'static [&'static str],
    /// Libraries of the system.
    pub(crate) libraries: &'static [&'static str],
}

/// Strict C11.
pub(crate) const C: Build = Build {
    compiler: &["cc", "-std=c11"],
    libraries: &[],
};

/// Strict C++17.
pub(crate) const CPP: Build = Build {
    compiler: &["g++", "-std=c++17"],
    libraries: &[],
};

/// The program of a source file below `examples/c`, which is compiled once.
pub(crate) fn compile(source: &str, build: Build) -> PathBuf {
    static COMPILED: OnceLock<Mutex<HashMap<String, Arc<OnceLock<PathBuf>>>>> = OnceLock::new();
    let once = Arc::clone(
        COMPILED
            .get_or_init(Mutex::default)
            .lock()
            .unwrap()
            .entry(source.to_owned())
            .or_default(),
    );
    once.get_or_init(|| compile_now(source, build)).clone()
}

fn compile_now(source: &str, build: Build) -> PathBuf {
    let program = programs_folder().join(source.replace(['/', '.'], "-"));
    compile_file(
        &repository().join("examples/c").join(source),
        &program,
        build,
    );
    program
}

/// Compiles a file to a program that finds the library.
pub(crate) fn compile_file(source: &Path, program: &Path, build: Build) {
    let programs = programs_folder();
    let output = Command::new(build.compiler[0])
        .args(&build.compiler[1..])
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"])
        .args(include_folders())
        .arg(source)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(programs)
        .arg(format!("-Wl,-rpath,{}", programs.display()))
        .args(["-lapus", "-pthread"])
        .args(build.libraries)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}: {}",
        source.display(),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A connection to a port of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "tests have no worker that could be blocked"
)]
pub(crate) fn connect(port: u16) -> io::Result<TcpStream> {
    TcpStream::connect(("127.0.0.1", port))
}

/// An example that runs as a server.
pub(crate) struct Server {
    process: Child,
    name: String,
    output: PathBuf,
    pub(crate) port: u16,
    pub(crate) folder: TempDir,
}

impl Server {
    /// Starts an example with the address that it is to listen on and these arguments.
    pub(crate) fn start(source: &str, build: Build, arguments: &[&str]) -> Self {
        Self::prepare(source, build, |_, _| {}, arguments)
    }

    /// The same, once its working folder is filled.
    pub(crate) fn prepare(
        source: &str,
        build: Build,
        fill: impl FnOnce(&Path, u16),
        arguments: &[&str],
    ) -> Self {
        let program = compile(source, build);
        Self::run(Command::new(program), source, fill, arguments)
    }

    /// Runs a command with the address and these arguments.
    pub(crate) fn run(
        mut command: Command,
        name: &str,
        fill: impl FnOnce(&Path, u16),
        arguments: &[&str],
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = free_port();
        fill(folder.path(), port);
        let output = folder.path().join("output.log");
        let log = File::create(&output).unwrap();
        let process = command
            .arg(format!("127.0.0.1:{port}"))
            .args(arguments)
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Self {
            process,
            name: name.to_owned(),
            output,
            port,
            folder,
        };
        wait_until("the example to listen", || {
            if let Some(status) = server.process.try_wait().unwrap() {
                panic!("{} ended with {status}: {}", server.name, server.log());
            }
            connect(server.port).is_ok()
        });
        server
    }

    /// What it wrote so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.output).unwrap()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// GET, by curl.
    pub(crate) fn get(&self, path: &str) -> Reply {
        curl(&[&self.url(path)])
    }

    /// A connection to it.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = connect(self.port).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Asks it to stop, as the system does, and waits for its end, which has to be a good one.
    pub(crate) fn stop(mut self) {
        let status = self.end();
        assert!(
            status.success(),
            "{} ended with {status}: {}",
            self.name,
            self.log()
        );
    }

    /// Asks it to stop, and waits for its end with a distinct status. Returns what it wrote.
    pub(crate) fn stop_with(mut self, code: i32) -> String {
        assert_eq!(self.end().code(), Some(code), "{}", self.log());
        self.log()
    }

    /// Sends SIGTERM to one of its threads whose name begins so, and waits for its end. Returns its status and what it wrote.
    pub(crate) fn terminate_thread(mut self, name: &str) -> (ExitStatus, String) {
        assert_eq!(self.process.try_wait().unwrap(), None, "{}", self.log());
        let process = self.process.id();
        let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap();
        let thread = threads
            .map(|thread| thread.unwrap())
            .find(|thread| {
                fs::read_to_string(thread.path().join("comm"))
                    .is_ok_and(|found| found.starts_with(name))
            })
            .unwrap_or_else(|| panic!("no thread {name}: {}", self.log()));
        let thread = thread.file_name().to_str().unwrap().parse().unwrap();
        // SAFETY: it takes numbers.
        let sent = unsafe { libc::tgkill(process as libc::pid_t, thread, libc::SIGTERM) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
        let status = wait_until("the example to end", || self.process.try_wait().unwrap());
        (status, self.log())
    }

    /// Waits for an end that nobody asked for. Returns what it wrote.
    pub(crate) fn ended_with(mut self, code: i32) -> String {
        let status = wait_until("the example to end", || self.process.try_wait().unwrap());
        assert_eq!(status.code(), Some(code), "{}", self.log());
        self.log()
    }

    fn end(&mut self) -> ExitStatus {
        let id = self.process.id().to_string();
        Command::new("kill").arg(&id).status().unwrap();
        wait_until("the example to end", || self.process.try_wait().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Ok(None) = self.process.try_wait() {
            if std::thread::panicking() {
                eprintln!("{}: {}", self.name, self.log());
            }
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// The response that curl received.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) version: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    /// The value of a field, or an empty text.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.head
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value.trim())
    }
}

/// The response to a command line of curl.
#[track_caller]
pub(crate) fn curl(arguments: &[&str]) -> Reply {
    let head = tempfile::NamedTempFile::new().unwrap();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "90"])
        .args([
            "--noproxy",
            "*",
            "--write-out",
            "%{stderr}@@%{http_code} %{http_version}",
        ])
        .arg("--dump-header")
        .arg(head.path())
        .args(arguments)
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "curl {arguments:?}: {report}");
    let (_, report) = report.split_once("@@").unwrap();
    let (status, version) = report.split_once(' ').unwrap();
    Reply {
        status: status.parse().unwrap(),
        version: version.to_owned(),
        head: fs::read_to_string(head.path()).unwrap(),
        body: output.stdout,
    }
}

/// A WebSocket (RFC 6455) of a client.
pub(crate) struct WebSocket {
    stream: BufReader<TcpStream>,
}

impl WebSocket {
    pub(crate) fn open(server: &Server, path: &str) -> Self {
        let mut stream = BufReader::new(server.connect());
        let port = server.port;
        write!(
            stream.get_mut(),
            "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        .unwrap();
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert_ne!(stream.read_line(&mut head).unwrap(), 0, "{head}");
        }
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        assert!(head.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{head}");
        Self { stream }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.send_frame(0x81, text.as_bytes());
    }

    pub(crate) fn close(mut self) {
        self.send_frame(0x88, &1000_u16.to_be_bytes());
        assert_eq!(self.receive_frame(), (0x88, 1000_u16.to_be_bytes().into()));
        let mut rest = Vec::new();
        self.stream.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
    }

    /// Frames of clients are masked; a mask of zeros leaves the bytes as they are.
    fn send_frame(&mut self, first: u8, payload: &[u8]) {
        assert!(payload.len() < 126);
        let mut frame = vec![first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        self.stream.get_mut().write_all(&frame).unwrap();
    }

    /// The next message, a text.
    pub(crate) fn receive(&mut self) -> String {
        let (first, payload) = self.receive_frame();
        assert_eq!(first, 0x81, "a whole text, not {payload:?}");
        String::from_utf8(payload).unwrap()
    }

    fn receive_frame(&mut self) -> (u8, Vec<u8>) {
        let mut head = [0; 2];
        self.stream.read_exact(&mut head).unwrap();
        assert!(head[1] < 126, "a short frame");
        let mut payload = vec![0; head[1].into()];
        self.stream.read_exact(&mut payload).unwrap();
        (head[0], payload)
    }
}

/// Reads lines until one contains this text, and returns it.
#[track_caller]
pub(crate) fn line_with(reader: &mut impl BufRead, text: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(
            reader.read_line(&mut line).unwrap(),
            0,
            "no line has {text:?}"
        );
        if line.contains(text) {
            return line;
        }
    }
}
