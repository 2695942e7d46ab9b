//! A server whose response to each request is scripted, with a thread for each connection.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// What the server does with a request.
pub enum Action {
    /// Sends these bytes.
    Respond(Vec<u8>),
    /// Sends these bytes after a time.
    After(Duration, Vec<u8>),
    /// Sends these bytes and closes the connection.
    Close(Vec<u8>),
    /// Resets the connection.
    Reset,
    /// Does nothing until the client closes.
    Wait,
    /// Closes all connections, and accepts no more.
    Die,
}

/// A request: its number, from 0 on, and its bytes. The first one is the one before the load.
pub struct Received<'a> {
    /// Its number.
    pub number: u64,
    /// The request line and the fields.
    pub head: &'a str,
    /// The bytes of the body.
    pub body: &'a [u8],
}

type Script = dyn Fn(&Received<'_>) -> Action + Send + Sync;

struct ScriptedState {
    script: Box<Script>,
    tls: Option<Arc<ServerConfig>>,
    requests: AtomicU64,
    accepted: AtomicU64,
    is_dead: AtomicBool,
    open: Mutex<HashMap<u64, TcpStream>>,
}

/// A server whose response to each request is scripted.
pub struct ScriptedServer {
    /// The port of 127.0.0.1 at which it listens.
    pub port: u16,
    shared: Arc<ScriptedState>,
}

impl ScriptedServer {
    /// Starts a server without TLS.
    pub fn start(script: impl Fn(&Received<'_>) -> Action + Send + Sync + 'static) -> Self {
        Self::start_with(None, script)
    }

    /// Starts a server, with TLS if there is a configuration of it.
    pub fn start_with(
        tls: Option<ServerConfig>,
        script: impl Fn(&Received<'_>) -> Action + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(ScriptedState {
            script: Box::new(script),
            tls: tls.map(Arc::new),
            requests: AtomicU64::new(0),
            accepted: AtomicU64::new(0),
            is_dead: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accepting.accept(&listener));
        Self { port, shared }
    }

    /// The URL of a path.
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// How many connections it accepted.
    pub fn accepted(&self) -> u64 {
        self.shared.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.shared.die(self.port);
    }
}

impl ScriptedState {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            let stream = stream.unwrap();
            if self.is_dead.load(Ordering::SeqCst) {
                return;
            }
            let id = self.accepted.fetch_add(1, Ordering::SeqCst);
            stream.set_nodelay(true).unwrap();
            self.open
                .lock()
                .unwrap()
                .insert(id, stream.try_clone().unwrap());
            let shared = Arc::clone(&self);
            let port = listener.local_addr().unwrap().port();
            thread::spawn(move || {
                // After an error, dropping the socket resets the connection if that was the plan.
                if shared.serve(&stream, port).is_ok() {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                shared.open.lock().unwrap().remove(&id);
            });
        }
    }

    fn serve(&self, socket: &TcpStream, port: u16) -> io::Result<()> {
        match &self.tls {
            None => self.respond(socket, socket, port),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).unwrap();
                let mut stream = StreamOwned::new(session, socket);
                let result = self.respond(&mut stream, socket, port);
                stream.conn.send_close_notify();
                let _ = stream.flush();
                result
            }
        }
    }

    fn respond(
        &self,
        mut stream: impl Read + Write,
        socket: &TcpStream,
        port: u16,
    ) -> io::Result<()> {
        let mut input = Vec::new();
        loop {
            let mut buffer = [0; 8192];
            while let Some((head, body, end)) = whole_request(&input) {
                let received = Received {
                    number: self.requests.fetch_add(1, Ordering::SeqCst),
                    head: &head,
                    body: &input[body..end],
                };
                let action = (self.script)(&received);
                input.drain(..end);
                match action {
                    Action::Respond(bytes) => stream.write_all(&bytes)?,
                    Action::After(time, bytes) => {
                        wait(time);
                        stream.write_all(&bytes)?;
                    }
                    Action::Close(bytes) => {
                        stream.write_all(&bytes)?;
                        return Ok(());
                    }
                    Action::Reset => {
                        let linger = Some(Duration::ZERO);
                        socket2::SockRef::from(socket).set_linger(linger)?;
                        self.open.lock().unwrap().clear();
                        return Err(io::ErrorKind::ConnectionReset.into());
                    }
                    Action::Wait => {
                        let _ = io::copy(&mut stream, &mut io::sink());
                        return Ok(());
                    }
                    Action::Die => {
                        self.die(port);
                        return Ok(());
                    }
                }
            }
            let read = stream.read(&mut buffer)?;
            if read == 0 {
                return Ok(());
            }
            input.extend_from_slice(&buffer[..read]);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "a thread of the test may block")]
    fn die(&self, port: u16) {
        if !self.is_dead.swap(true, Ordering::SeqCst) {
            for stream in self.open.lock().unwrap().values() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            // Wakes the thread that accepts, which ends.
            let _ = TcpStream::connect(("127.0.0.1", port));
        }
    }
}

/// The head of the first request, and where its body begins and ends.
fn whole_request(input: &[u8]) -> Option<(String, usize, usize)> {
    let end = input.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8(input[..end].to_vec()).unwrap();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |length| length.parse().unwrap());
    (input.len() >= end + length).then_some((head, end, end + length))
}

/// Waits for this time.
pub fn wait(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) = until
        .checked_duration_since(Instant::now())
        .filter(|left| !left.is_zero())
    {
        thread::park_timeout(left);
    }
}

/// A response with this status and body.
pub fn response(status: u16, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}
