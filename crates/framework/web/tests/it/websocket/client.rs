//! A blocking WebSocket client.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::PATIENCE;
use apus::websocket::{Close, CloseCode, Compression, Message};
use apus_websocket::codec::{CodecSettings, WebSocketConnection, WebSocketEvent};
use bytes::BytesMut;

/// A client after its handshake.
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
    pub(crate) connection: WebSocketConnection,
    input: BytesMut,
}

#[expect(clippy::disallowed_methods, reason = "a test may block")]
pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// The head of the response to a request with these lines.
pub(crate) fn request(stream: &mut TcpStream, lines: &[&str]) -> String {
    let request = format!("GET / HTTP/1.1\r\n{}\r\n\r\n", lines.join("\r\n"));
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap().to_lowercase()
}

/// The lines of a handshake, and further lines.
pub(crate) fn handshake<'a>(more: &[&'a str]) -> Vec<&'a str> {
    let mut lines = vec![
        "Host: example.com",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ];
    lines.extend(more);
    lines
}

impl Client {
    pub(crate) fn open(address: SocketAddr) -> Self {
        Self::open_with(address, None)
    }

    /// A client that offers compression, if it is given.
    pub(crate) fn open_with(address: SocketAddr, compression: Option<Compression>) -> Self {
        let mut stream = connect(address);
        let offer =
            compression.map(|offered| format!("Sec-WebSocket-Extensions: {}", offered.offer()));
        let more: Vec<&str> = offer.iter().map(|line| &**line).collect();
        let head = request(&mut stream, &handshake(&more));
        assert!(head.starts_with("http/1.1 101 "), "{head}");
        let extensions = head
            .lines()
            .filter_map(|line| line.strip_prefix("sec-websocket-extensions: "));
        let agreed = compression.and_then(|offered| {
            offered
                .read_response(extensions.map(str::as_bytes))
                .unwrap()
        });
        assert_eq!(agreed.is_some(), compression.is_some(), "{head}");
        let settings = CodecSettings {
            max_frame: 64 << 20,
            max_message: 64 << 20,
            compression: agreed,
        };
        Self {
            stream,
            connection: WebSocketConnection::client(&settings, || [1, 2, 3, 4]),
            input: BytesMut::new(),
        }
    }

    /// Sends the pending output.
    pub(crate) fn flush(&mut self) {
        while !self.connection.output().is_empty() {
            let written = self.stream.write(self.connection.output()).unwrap();
            self.connection.consume_output(written);
        }
    }

    pub(crate) fn send(&mut self, message: impl Into<Message>) {
        self.connection.send(message.into()).unwrap();
        self.flush();
    }

    pub(crate) fn close(&mut self, code: CloseCode) {
        self.connection.close_with(code).unwrap();
        self.flush();
    }

    /// The next event; `None` at the end of the stream.
    pub(crate) fn event(&mut self) -> Option<WebSocketEvent> {
        loop {
            if let Some(event) = self.connection.handle_input(&mut self.input) {
                self.connection.respond_to_close();
                self.flush();
                return Some(event);
            }
            let mut buffer = [0; 16 * 1024];
            match self.stream.read(&mut buffer) {
                Ok(0) => return None,
                Ok(read) => self.input.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// The next message; pings and pongs are skipped.
    pub(crate) fn message(&mut self) -> Message {
        loop {
            match self.event() {
                Some(WebSocketEvent::Message(message)) => return message,
                Some(WebSocketEvent::Ping(_) | WebSocketEvent::Pong(_)) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The close of the server, after which the stream must end; messages before it are skipped.
    pub(crate) fn closed(&mut self) -> Option<Close> {
        loop {
            match self.event() {
                Some(WebSocketEvent::Close(close)) => {
                    assert_eq!(self.event(), None);
                    return close;
                }
                Some(WebSocketEvent::Failed(error)) => panic!("{error}"),
                Some(_) => {}
                None => panic!("the stream ends without a close"),
            }
        }
    }
}
