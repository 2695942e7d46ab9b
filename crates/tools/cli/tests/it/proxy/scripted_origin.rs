//! An origin that sends exactly the bytes that a test scripts, and records every byte that it
//! receives.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::harness::{is_open, wait_until};

/// An origin that listens on its own port, with a thread for each connection, until it is dropped.
pub(crate) struct ScriptedOrigin {
    address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    ends: AtomicBool,
    /// The connections in the order in which they were opened.
    connections: Mutex<Vec<ConnectionRecord>>,
}

struct ConnectionRecord {
    /// Every byte that was received.
    received: Vec<u8>,
    /// The socket, which ends with the origin.
    socket: Option<TcpStream>,
}

impl ScriptedOrigin {
    /// Runs `script` for each connection, which is closed at the end of the script.
    pub(crate) fn start(script: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), script)
    }

    /// Starts at the address of an origin that has ended.
    pub(crate) fn start_at(
        address: SocketAddr,
        script: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static,
    ) -> Self {
        let mut listener = None;
        wait_until("the port is free", || {
            listener = TcpListener::bind(address).ok();
            listener.is_some()
        });
        Self::listen(listener.unwrap(), script)
    }

    /// Responds to every request with these bytes.
    pub(crate) fn responding(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |connection| {
            while connection.read_request().is_some() {
                connection.send(&response);
            }
        })
    }

    fn listen(
        listener: TcpListener,
        script: impl Fn(&mut ScriptedConnection) + Send + Sync + 'static,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State::default());
        let shared = state.clone();
        let script = Arc::new(script);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if shared.ends.load(Ordering::SeqCst) {
                    return;
                }
                stream.set_nodelay(true).unwrap();
                let mut connections = shared.connections.lock().unwrap();
                let mut connection = ScriptedConnection {
                    number: connections.len(),
                    state: shared.clone(),
                    unread: Vec::new(),
                    resets: false,
                    stream: stream.try_clone().unwrap(),
                };
                connections.push(ConnectionRecord {
                    received: Vec::new(),
                    socket: Some(stream),
                });
                drop(connections);
                let script = script.clone();
                thread::spawn(move || {
                    script(&mut connection);
                    connection.end();
                });
            }
        });
        Self { address, state }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The number of connections that were opened to the origin.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.lock().unwrap().len()
    }

    /// The number of connections that are still open.
    pub(crate) fn open(&self) -> usize {
        let connections = self.state.connections.lock().unwrap();
        let open = connections.iter().filter(|one| one.socket.is_some());
        open.count()
    }

    /// The received bytes of all connections, one connection after another.
    pub(crate) fn received(&self) -> String {
        self.received_over_each().concat()
    }

    pub(crate) fn received_over_each(&self) -> Vec<String> {
        let connections = self.state.connections.lock().unwrap();
        let text = |one: &ConnectionRecord| String::from_utf8_lossy(&one.received).into_owned();
        connections.iter().map(text).collect()
    }
}

impl Drop for ScriptedOrigin {
    fn drop(&mut self) {
        self.state.ends.store(true, Ordering::SeqCst);
        // This connection wakes the thread that accepts.
        let _ = is_open(self.address);
        for connection in self.state.connections.lock().unwrap().iter() {
            if let Some(socket) = &connection.socket {
                let _ = socket.shutdown(Shutdown::Both);
            }
        }
    }
}

/// One connection in the script of an origin. Errors of sends and reads are ignored: the peer may have closed
/// the connection.
pub(crate) struct ScriptedConnection {
    stream: TcpStream,
    number: usize,
    state: Arc<State>,
    unread: Vec<u8>,
    /// Whether the connection ends with a reset.
    resets: bool,
}

impl ScriptedConnection {
    /// The number of this connection to the origin, from 0.
    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Reads the next head; `None` at the end of the connection.
    pub(crate) fn read_head(&mut self) -> Option<String> {
        self.read_up_to(b"\r\n\r\n")
    }

    pub(crate) fn read_line(&mut self) -> Option<String> {
        self.read_up_to(b"\r\n")
    }

    fn read_up_to(&mut self, end: &[u8]) -> Option<String> {
        loop {
            if let Some(at) = find(&self.unread, end) {
                let text: Vec<u8> = self.unread.drain(..at + end.len()).collect();
                return Some(String::from_utf8_lossy(&text).into_owned());
            }
            if !self.read_more() {
                return None;
            }
        }
    }

    /// Reads the next head and the body that follows by its framing; the head.
    pub(crate) fn read_request(&mut self) -> Option<String> {
        let head = self.read_head()?;
        let lower = head.to_ascii_lowercase();
        if let Some((_, rest)) = lower.split_once("\r\ncontent-length: ") {
            let length = rest.split("\r\n").next().unwrap().parse().unwrap();
            self.read_bytes(length)?;
        } else if lower.contains("\r\ntransfer-encoding: chunked\r\n") {
            loop {
                let line = self.read_line()?;
                let size = line.split(';').next().unwrap().trim_end();
                match usize::from_str_radix(size, 16).unwrap() {
                    0 => break,
                    size => self.read_bytes(size + 2)?,
                };
            }
            while self.read_line()? != "\r\n" {}
        }
        Some(head)
    }

    /// Reads this number of bytes; `None` at the end of the connection.
    pub(crate) fn read_bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.unread.len() < count {
            if !self.read_more() {
                return None;
            }
        }
        Some(self.unread.drain(..count).collect())
    }

    fn read_more(&mut self) -> bool {
        let mut buffer = [0; 16_384];
        let read = match self.stream.read(&mut buffer) {
            Ok(read) => &buffer[..read],
            Err(error) if error.kind() == ErrorKind::Interrupted => return true,
            Err(_) => return false,
        };
        self.unread.extend_from_slice(read);
        let mut connections = self.state.connections.lock().unwrap();
        connections[self.number].received.extend_from_slice(read);
        !read.is_empty()
    }

    /// Sends these bytes; whether the peer accepted them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Sends nothing and reads until the peer closes the connection.
    pub(crate) fn freeze(&mut self) {
        while self.read_more() {}
    }

    /// Neither sends nor reads, until the origin ends.
    pub(crate) fn hold(&mut self) {
        while !self.state.ends.load(Ordering::SeqCst) {
            thread::park_timeout(Duration::from_millis(5));
        }
    }

    /// Sends these bytes repeatedly, as fast as the peer accepts them, until it closes the connection.
    pub(crate) fn flood(&mut self, bytes: impl AsRef<[u8]>) {
        while self.send(bytes.as_ref()) {}
    }

    /// Sends one byte at a time, with pauses.
    pub(crate) fn send_slowly(&mut self, bytes: impl AsRef<[u8]>, pause: Duration) {
        for byte in bytes.as_ref() {
            if !self.send([*byte]) {
                return;
            }
            thread::park_timeout(pause);
        }
    }

    /// Lets the connection end with a reset at the end of the script.
    pub(crate) fn reset(&mut self) {
        self.resets = true;
    }

    fn end(self) {
        let socket = self.state.connections.lock().unwrap()[self.number]
            .socket
            .take();
        if self.resets {
            set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
        } else {
            let _ = self.stream.shutdown(Shutdown::Both);
        }
        drop(socket);
    }
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
