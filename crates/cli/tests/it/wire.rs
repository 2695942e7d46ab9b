//! A client that sends any bytes at all and reads answers by their framing.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::connect;

/// A connection in clear text.
pub(crate) struct Wire {
    stream: BufReader<TcpStream>,
}

/// An answer as it came.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) status: u16,
    /// Status line and field lines, names in lower case.
    pub(crate) head: Vec<String>,
    pub(crate) body: Vec<u8>,
    /// Field lines after chunked content.
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

    /// Sends it, as far as the server takes it.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.get_mut().write_all(bytes.as_ref()).is_ok()
    }

    /// Writes what the server takes at once.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let stream = self.stream.get_mut();
        stream.set_nonblocking(true)?;
        let written = stream.write(bytes);
        stream.set_nonblocking(false)?;
        written
    }

    /// The next answer to a request that is not HEAD.
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

    /// The head of the next answer, whatever follows it.
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

    /// The next bytes, which have to come.
    pub(crate) fn read_bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        self.take(count as u64, &mut bytes);
        bytes
    }

    fn take(&mut self, length: u64, body: &mut Vec<u8>) {
        let read = self.stream.by_ref().take(length).read_to_end(body).unwrap();
        assert_eq!(read as u64, length, "the answer is cut");
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

    /// Waits until an answer has begun to come.
    pub(crate) fn wait(&mut self) {
        self.stream.fill_buf().unwrap();
    }

    /// Everything up to the end of the connection, which has to come.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Err(error) if error.kind() != ErrorKind::ConnectionReset => {
                panic!("not closed: {error}; {:?}", String::from_utf8_lossy(&rest))
            }
            _ => rest,
        }
    }

    /// Sees the connection end with nothing more.
    pub(crate) fn assert_closed(&mut self) {
        let rest = self.rest();
        assert!(rest.is_empty(), "{:?}", String::from_utf8_lossy(&rest));
    }

    /// Whether the server has closed it, or cut it.
    pub(crate) fn is_closed(&self) -> bool {
        !matches!(self.peek(), Some(Ok(1)) | None)
    }

    /// Whether there is something to read, be it the end.
    pub(crate) fn is_readable(&self) -> bool {
        self.peek().is_some()
    }

    /// What a read would say, if it would say anything at once.
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
