//! A client that sends arbitrary bytes and reads responses by their framing.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;

use crate::harness::connect;

/// An HTTP/1 connection in clear text.
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
}

/// A response as it was received.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// Status line and field lines, names in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Field lines of the trailer section of a chunked body.
    pub(crate) trailers: Vec<String>,
}

impl Received {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.iter().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            (found == name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Wire {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self {
            stream: BufReader::new(connect(address)),
        }
    }

    /// Leaves as a client that is gone: the server gets a reset, and not only the end of its input, behind which a client may
    /// still read.
    pub(crate) fn reset(self) {
        set_socket_linger(self.stream.get_ref(), Some(Duration::ZERO)).unwrap();
    }

    /// Sends all bytes. Returns whether the server accepted them.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Writes as much as the socket takes without blocking.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let stream = self.stream.get_mut();
        stream.set_nonblocking(true)?;
        let written = stream.write(bytes);
        stream.set_nonblocking(false)?;
        written
    }

    /// The next response to a request whose method is not HEAD.
    pub(crate) fn read(&mut self) -> Received {
        let mut received = self.read_head();
        if received.status < 200 || matches!(received.status, 204 | 304) {
            return received;
        }
        if received.field("transfer-encoding") == Some("chunked") {
            loop {
                let mut line = String::new();
                self.stream.read_line(&mut line).unwrap();
                let size = u64::from_str_radix(line.trim_end(), 16).expect(&line);
                if size == 0 {
                    received.trailers = self.read_lines();
                    break;
                }
                self.take(size, &mut received.body);
                let mut end = [0; 2];
                self.stream.read_exact(&mut end).unwrap();
            }
        } else if let Some(length) = received.field("content-length") {
            let length = length.parse().unwrap();
            self.take(length, &mut received.body);
        }
        received
    }

    /// The head of the next response. The body is not read.
    pub(crate) fn read_head(&mut self) -> Received {
        let head = self.read_lines();
        assert!(!head.is_empty(), "no status line");
        Received {
            status: head[0].split(' ').nth(1).unwrap().parse().unwrap(),
            head,
            body: Vec::new(),
            trailers: Vec::new(),
        }
    }

    /// The next `count` bytes. Panics if the connection ends before.
    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        self.take(count as u64, &mut bytes);
        bytes
    }

    fn take(&mut self, length: u64, body: &mut Vec<u8>) {
        let read = self.stream.by_ref().take(length).read_to_end(body).unwrap();
        assert_eq!(read as u64, length, "the response is truncated");
    }

    fn read_lines(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        loop {
            let mut bytes = Vec::new();
            self.stream.read_until(b'\n', &mut bytes).unwrap();
            assert!(bytes.ends_with(b"\r\n"), "{lines:?} {bytes:?}");
            let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
            if line.is_empty() {
                return lines;
            }
            lines.push(match line.split_once(": ") {
                Some((name, value)) => format!("{}: {value}", name.to_ascii_lowercase()),
                None => line,
            });
        }
    }

    /// Waits until a response has begun to arrive.
    pub(crate) fn wait(&mut self) {
        self.stream.fill_buf().unwrap();
    }

    /// All bytes until the connection is closed. Panics if it stays open.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                panic!("not closed: {error}; {:?}", String::from_utf8_lossy(&rest))
            }
            _ => rest,
        }
    }

    /// Expects the connection to be closed without another byte.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }

    /// Whether the server has closed or reset the connection.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self.peek(), Some(Ok(1)) | None)
    }

    /// Whether there are bytes to read or the connection is closed.
    pub(crate) fn is_readable(&self) -> bool {
        self.peek().is_some()
    }

    /// The result of a read of one byte, or none if the read would block.
    fn peek(&self) -> Option<std::io::Result<usize>> {
        let stream = self.stream.get_ref();
        stream.set_nonblocking(true).unwrap();
        let peeked = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        match peeked {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            peeked => Some(peeked),
        }
    }
}
