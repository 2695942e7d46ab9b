//! Starts the real binary in a temporary folder and stops it at the end of the test.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use apus_testkit::{free_port, wait_until};
use rustix::process::{Pid, Signal, getegid, geteuid, kill_process};
use tempfile::TempDir;

/// How long a read or a write may block before the test fails.
const IO_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a server may take to stop at the end of its test before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// A temporary folder with the files to serve and the configuration. It is the working directory and `HOME`
/// of the commands.
pub(crate) struct Home {
    folder: TempDir,
}

impl Home {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("site")).unwrap();
        // A server that is started as root changes to this user and writes its logs and sockets here.
        if is_root() {
            let (uid, gid) = unprivileged();
            for path in [folder.path(), &folder.path().join("site")] {
                chown(path, Some(uid), Some(gid)).unwrap();
            }
        }
        let home = Self { folder };
        home.write("site/index.html", "<h1>hello</h1>");
        home
    }

    /// Makes the user who runs the tests the owner of the folder, for a server that does not change its
    /// user, as in a user namespace that has no other user.
    pub(crate) fn take_back(&self) {
        let owner = (geteuid().as_raw(), getegid().as_raw());
        chown(self.folder.path(), Some(owner.0), Some(owner.1)).unwrap();
    }

    /// Makes a folder that the server can write to.
    pub(crate) fn make_folder(&self, name: &str) {
        fs::create_dir(self.path(name)).unwrap();
        if is_root() {
            let (uid, gid) = unprivileged();
            chown(self.path(name), Some(uid), Some(gid)).unwrap();
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The `apus` command with this folder as its working directory and `HOME`.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_through(&[], arguments)
    }

    /// As [`Home::command`], run by a program that executes it.
    pub(crate) fn command_through(&self, program: &[&str], arguments: &[&str]) -> Command {
        let words = [program, &[env!("CARGO_BIN_EXE_apus")], arguments].concat();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .current_dir(self.folder.path())
            .env("HOME", self.folder.path())
            .env("XDG_RUNTIME_DIR", self.folder.path())
            .env_remove("XDG_DATA_HOME")
            .env_remove("APUS_LOG")
            .env_remove("NOTIFY_SOCKET")
            .stdin(Stdio::null());
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs the command to its end and expects this exit status. Returns standard output and error.
    pub(crate) fn expect(&self, arguments: &[&str], status: i32) -> (String, String) {
        let output = self.run(arguments);
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let (out, err) = (text(output.stdout), text(output.stderr));
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}\n{out}\n{err}"
        );
        (out, err)
    }

    /// Starts `apus serve` with these arguments and waits until it listens.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Apus {
        self.serve_through(&[], arguments)
    }

    /// As [`Home::serve`], run by a program that executes the server.
    pub(crate) fn serve_through(&self, program: &[&str], arguments: &[&str]) -> Apus {
        let arguments = [&["serve"], arguments].concat();
        let mut apus = Apus::start(self.command_through(program, &arguments));
        if let Some(mut output) = apus.unread.take() {
            thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
        }
        apus
    }

    /// As [`Home::serve`], but standard output is not read after the first line.
    pub(crate) fn serve_unread(&self, arguments: &[&str]) -> Apus {
        Apus::start(self.command(&[&["serve"], arguments].concat()))
    }
}

/// Whether the tests run as root, so that a server that they start changes to an unprivileged user.
pub(crate) fn is_root() -> bool {
    geteuid().is_root()
}

/// The default user and group of a server that is started as root.
pub(crate) fn unprivileged() -> (u32, u32) {
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = users
            .lines()
            .find(|line| line.split(':').next() == Some(name))?;
        let mut numbers = line
            .split(':')
            .skip(2)
            .map(|number| number.parse().unwrap());
        Some((numbers.next()?, numbers.next()?))
    };
    find("www-data").or_else(|| find("nobody")).unwrap()
}

/// A running server. It is stopped when this is dropped.
pub(crate) struct Apus {
    child: Child,
    /// Standard output after the first line, while nobody reads it.
    unread: Option<BufReader<ChildStdout>>,
    urls: Vec<String>,
    log: Arc<Mutex<String>>,
}

impl Apus {
    /// Starts the command and waits until it prints its URLs.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let errors = BufReader::new(child.stderr.take().unwrap());
        let collected = log.clone();
        let collecting = thread::spawn(move || {
            for line in errors.lines().map_while(Result::ok) {
                *collected.lock().unwrap() += &(line + "\n");
            }
        });
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let urls = match line.split_once(" at ") {
            Some((_, urls)) => urls.trim().split(", ").map(str::to_owned).collect(),
            None => {
                let status = child.wait().unwrap();
                collecting.join().unwrap();
                let log = log.lock().unwrap().clone();
                panic!("not serving: {status}\n{log}");
            }
        };
        Self {
            child,
            unread: Some(output),
            urls,
            log,
        }
    }

    /// The URLs of its listeners, in the order of the configuration.
    pub(crate) fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The first address.
    pub(crate) fn address(&self) -> SocketAddr {
        address_of(&self.urls[0])
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What the server has written to standard error so far.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Waits until the log contains the text, and returns it. A separate thread writes the log, so that a line may come
    /// after the response to the request or command that it is about.
    pub(crate) fn wait_for_log(&self, text: &str) -> String {
        wait_until(&format!("the log contains {text:?}"), || {
            self.log().contains(text)
        });
        self.log()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits until the process has exited.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the server ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// A connection to the first address.
    pub(crate) fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// The response to `GET path`, over a new connection.
    pub(crate) fn get(&self, path: &str) -> Reply {
        get(self.address(), path)
    }
}

impl Drop for Apus {
    fn drop(&mut self) {
        // A second signal stops the server at once, and it still removes its control socket.
        let start = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && start.elapsed() < STOP_TIMEOUT {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            thread::park_timeout(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- log of the server\n{}", self.log());
        }
    }
}

/// The address in `http://address:port/`, where the address may be `localhost`.
pub(crate) fn address_of(url: &str) -> SocketAddr {
    let authority = url.split('/').nth(2).unwrap();
    authority.replace("localhost", "127.0.0.1").parse().unwrap()
}

/// A connection whose reads and writes time out.
#[expect(clippy::disallowed_methods, reason = "a test may block")]
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(IO_TIMEOUT)).unwrap();
    stream
}

/// Whether the address accepts connections.
#[expect(clippy::disallowed_methods, reason = "a test may block")]
pub(crate) fn is_open(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

/// The response to `GET path`, over a new connection.
pub(crate) fn get(address: SocketAddr, path: &str) -> Reply {
    let mut stream = connect(address);
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    Reply::read(stream)
}

/// A response that ends with its connection.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    pub(crate) fn read(mut stream: impl Read) -> Self {
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        Self::parse(&String::from_utf8_lossy(&bytes))
    }

    /// Reads a status line and returns its status, or 0 if the connection closes without a response.
    pub(crate) fn read_head(stream: impl Read) -> u16 {
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        let status = line.split(' ').nth(1).map(str::parse);
        status.map_or(0, |status| status.unwrap())
    }

    pub(crate) fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").expect(text);
        Self {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            head: head.to_ascii_lowercase(),
            body: body.to_owned(),
        }
    }
}

/// A Unix socket that receives the notifications of a service, as systemd has one.
pub(crate) struct Systemd {
    socket: std::os::unix::net::UnixDatagram,
    path: PathBuf,
}

impl Systemd {
    pub(crate) fn listen(path: &Path) -> Self {
        let socket = std::os::unix::net::UnixDatagram::bind(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        socket.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
        Self {
            socket,
            path: path.to_owned(),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn next(&self) -> String {
        let mut buffer = [0; 1024];
        let len = self.socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..len]).into_owned()
    }
}

/// The response to `GET path` over a Unix socket.
pub(crate) fn get_unix(socket: &Path, path: &str) -> Reply {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream.set_read_timeout(Some(IO_TIMEOUT)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    Reply::read(stream)
}

/// Sets the flag when it is dropped, also by a panic. Threads that loop until the flag is set then end, and
/// the panic is reported.
pub(crate) struct Ends<'a>(pub(crate) &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
