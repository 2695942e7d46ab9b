//! `SocketClient`: a blocking HTTP/1.1 client that sends the bytes of a test.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The time limit for bytes of the server.
const PATIENCE: Duration = Duration::from_secs(20);

/// A keep-alive connection.
pub struct SocketClient(BufReader<TcpStream>);

/// A response, read to its end.
#[derive(Debug)]
pub struct SocketReply {
    /// The status code.
    pub status: u16,
    lines: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl SocketClient {
    /// A connection to this address.
    #[expect(clippy::disallowed_methods, reason = "a test may block")]
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    /// Sends a request, and reads its response.
    pub fn request(&mut self, request: &str) -> SocketReply {
        self.send(request);
        self.read(request.starts_with("HEAD "))
    }

    /// Sends bytes.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.get_mut().write_all(bytes.as_ref()).unwrap();
    }

    /// As [`SocketClient::send`]; the server may have closed the connection.
    ///
    /// # Errors
    /// It has.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        self.0.get_mut().write_all(bytes.as_ref())
    }

    /// Reads a response, which has no body if the method was HEAD.
    pub fn read(&mut self, is_head: bool) -> SocketReply {
        let status_line = self.line();
        let status = status_line.split(' ').nth(1).unwrap().parse().unwrap();
        let mut lines = Vec::new();
        loop {
            let line = self.line();
            match line.split_once(':') {
                Some((name, value)) => {
                    lines.push((name.to_ascii_lowercase(), value.trim().to_owned()));
                }
                None => break,
            }
        }
        let mut reply = SocketReply {
            status,
            lines,
            body: Vec::new(),
        };
        if is_head || status == 204 || status == 304 {
            return reply;
        }
        if reply.field("transfer-encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line(), 16).unwrap();
                let mut chunk = vec![0; size];
                self.0.read_exact(&mut chunk).unwrap();
                reply.body.extend_from_slice(&chunk);
                self.line();
                if size == 0 {
                    return reply;
                }
            }
        }
        let length = reply.field("content-length").map(|text| text.parse());
        reply.body = vec![0; length.unwrap().unwrap()];
        self.0.read_exact(&mut reply.body).unwrap();
        reply
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert!(line.ends_with("\r\n"), "{line:?}");
        line.truncate(line.len() - 2);
        line
    }
}

impl SocketReply {
    /// The first line of this name.
    pub fn field(&self, name: &str) -> Option<&str> {
        let line = self.lines.iter().find(|line| line.0 == name);
        line.map(|line| &*line.1)
    }

    /// All lines of this name.
    pub fn fields<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        let lines = self.lines.iter().filter(move |line| line.0 == name);
        lines.map(|line| &*line.1)
    }

    /// The members of the lines of a list field, in lower case.
    pub fn members(&self, name: &str) -> Vec<String> {
        let lines = self.fields(name).flat_map(|line| line.split(','));
        lines.map(|member| member.trim().to_lowercase()).collect()
    }

    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// The bytes of a request without a body, with the host `example.com` and these field lines.
pub fn request_text(method: &str, path: &str, lines: &[&str]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: example.com\r\n");
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text
}
