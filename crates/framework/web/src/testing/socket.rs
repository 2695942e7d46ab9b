//! `TestSocket`: the client side of a WebSocket connection.

use std::future::poll_fn;
use std::io;

use apus_http::Duplex;
use apus_websocket::codec::{
    Close, CloseCode, CodecSettings, Message, WebSocketConnection, WebSocketEvent,
};
use bytes::BytesMut;

use super::{TestClient, TestRequest, TestResponse, fail};

/// The client's end of a WebSocket connection (RFC 6455), without extensions.
///
/// It responds to pings while it reads messages.
pub struct TestSocket {
    client: TestClient,
    duplex: Box<dyn Duplex>,
    connection: WebSocketConnection,
    input: BytesMut,
    protocol: Option<String>,
}

/// The longest message, in bytes.
const MAX_MESSAGE: usize = 64 << 20;

impl TestRequest {
    /// Opens a WebSocket connection (RFC 6455).
    ///
    /// # Panics
    /// The response is not 101.
    #[track_caller]
    pub fn websocket(self) -> TestSocket {
        let request = format!("{} {}", self.method, self.target);
        let client = self.client.clone();
        let mut incoming = self
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .exchange();
        match incoming.tunnel.take() {
            Some(tunnel) => {
                let protocol = incoming.headers.get_str("sec-websocket-protocol");
                let protocol = protocol.map(str::to_owned);
                TestSocket::new(client, tunnel, protocol)
            }
            None => fail(TestResponse::new(client, request, incoming).describe()),
        }
    }
}

impl TestSocket {
    pub(super) fn new(
        client: TestClient,
        duplex: Box<dyn Duplex>,
        protocol: Option<String>,
    ) -> Self {
        let settings = CodecSettings {
            max_frame: MAX_MESSAGE,
            max_message: MAX_MESSAGE,
            compression: None,
        };
        Self {
            client,
            duplex,
            // Masks hide nothing from the application that is tested.
            connection: WebSocketConnection::client(&settings, || [1, 2, 3, 4]),
            input: BytesMut::new(),
            protocol,
        }
    }

    /// The subprotocol that the application chose.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Sends a message: a text, or bytes.
    ///
    /// # Panics
    /// The connection is closed.
    #[track_caller]
    pub fn send(&mut self, message: impl Into<Message>) {
        if self.connection.send(message.into()).is_err() {
            fail("the connection is closed");
        }
        self.flush();
    }

    /// The next message; `None` once the application closed the connection.
    ///
    /// # Panics
    /// The application breaks RFC 6455, or sends nothing.
    #[track_caller]
    pub fn recv(&mut self) -> Option<Message> {
        loop {
            match self.event() {
                Some(WebSocketEvent::Message(message)) => return Some(message),
                Some(WebSocketEvent::Ping(_) | WebSocketEvent::Pong(_)) => {}
                Some(WebSocketEvent::Close(_)) | None => return None,
                Some(WebSocketEvent::Failed(error)) => fail(error),
            }
        }
    }

    /// The next message, which must be a text.
    ///
    /// # Panics
    /// It is none, or the connection was closed.
    #[track_caller]
    pub fn text(&mut self) -> String {
        match self.recv() {
            Some(Message::Text(text)) => text.to_string(),
            other => fail(format_args!("expected a text, not {other:?}")),
        }
    }

    /// Fails unless the next message is this text.
    #[track_caller]
    pub fn assert_text(&mut self, text: &str) -> &mut Self {
        let found = self.text();
        if found != text {
            fail(format_args!("expected {text:?}, not {found:?}"));
        }
        self
    }

    /// Closes the connection and waits until the application did; messages in transit are dropped.
    /// Returns the close of the application.
    #[track_caller]
    pub fn close(mut self) -> Option<Close> {
        // It may be closed already.
        let _ = self.connection.close_with(CloseCode::NORMAL);
        self.flush();
        self.closed()
    }

    /// Waits until the application closes the connection, and returns its close; messages before
    /// it are dropped.
    ///
    /// # Panics
    /// The connection ends without it.
    #[track_caller]
    pub fn closed(mut self) -> Option<Close> {
        loop {
            match self.event() {
                Some(WebSocketEvent::Close(close)) => return close,
                Some(WebSocketEvent::Failed(error)) => fail(error),
                Some(_) => {}
                None => fail("the connection ended without a close"),
            }
        }
    }

    #[track_caller]
    fn event(&mut self) -> Option<WebSocketEvent> {
        loop {
            if let Some(event) = self.connection.handle_input(&mut self.input) {
                self.connection.respond_to_close();
                self.flush();
                return Some(event);
            }
            let mut buffer = [0; 16 * 1024];
            let read = poll_fn(|cx| self.duplex.poll_read(cx, &mut buffer));
            match self.client.run(read) {
                Ok(0) => return None,
                Ok(read) => self
                    .input
                    .extend_from_slice(buffer.get(..read).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return None,
                Err(error) => fail(error),
            }
        }
    }

    #[track_caller]
    fn flush(&mut self) {
        let Self {
            client,
            duplex,
            connection,
            ..
        } = self;
        let flushed = client.run(async {
            while !connection.output().is_empty() {
                let written = poll_fn(|cx| duplex.poll_write(cx, connection.output())).await?;
                if written == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
                connection.consume_output(written);
            }
            poll_fn(|cx| duplex.poll_flush(cx)).await
        });
        // An application that closed need not read further frames.
        if let Err(error) = flushed
            && !self.connection.is_closing()
        {
            fail(error);
        }
    }
}

impl std::fmt::Debug for TestSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestSocket")
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}
