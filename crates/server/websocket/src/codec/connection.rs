//! The state machine of a WebSocket connection, without its transport (RFC 6455).

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::deflate::Deflater;
use super::extension::DeflateConfig;
use super::frame::Opcode;
use super::inflate::Inflater;
use super::output::OutputBuffer;
use super::reader::{FrameReader, ReaderEvent};
use super::writer::FrameWriter;
use super::{Close, CloseCode, Message, PreparedMessage, WebSocketProtocolError};

/// One end of a WebSocket connection, after its handshake.
///
/// Its methods are of four kinds:
///
/// - [`handle_input`](Self::handle_input) takes received bytes and returns events; call it until it returns
///   `None`, then append more bytes to the rest of the input. It responds to pings by itself.
/// - Commands send frames: [`send`](Self::send), [`send_prepared`](Self::send_prepared),
///   [`ping`](Self::ping), [`close`](Self::close), [`respond_to_close`](Self::respond_to_close).
/// - [`output`](Self::output) is the bytes to write;
///   [`consume_output`](Self::consume_output) removes those that were written. The output is not
///   limited: check [`output_len`](Self::output_len) before a command.
/// - Getters: once [`is_finished`](Self::is_finished), close the transport.
#[derive(Debug)]
pub struct WebSocketConnection {
    reader: FrameReader,
    writer: FrameWriter,
    output: OutputBuffer,
    /// The pong that is due for the latest ping, while the output is long.
    pong: Option<Bytes>,
    /// Whether a close frame was sent: nothing follows it.
    is_close_sent: bool,
    /// Whether the last event was returned; further input is dropped.
    has_input_ended: bool,
    /// The close frame that responds to the peer's close or protocol error.
    close_response: Option<Close>,
}

/// The limits and the compression of a connection.
#[derive(Clone, Copy, Debug)]
pub struct CodecSettings {
    /// The maximum length of a frame's payload in bytes.
    pub max_frame: usize,
    /// The maximum length of a message in bytes, after decompression.
    pub max_message: usize,
    /// The compression that the handshake negotiated.
    pub compression: Option<DeflateConfig>,
}

impl Default for CodecSettings {
    /// Messages of 1 MiB, frames of the same length, no compression.
    fn default() -> Self {
        Self {
            max_frame: 1 << 20,
            max_message: 1 << 20,
            compression: None,
        }
    }
}

/// An event of a connection, caused by input from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WebSocketEvent {
    /// A message.
    Message(Message),
    /// A ping; the pong is in the output already.
    Ping(Bytes),
    /// A pong.
    Pong(Bytes),
    /// The peer closes the connection; this is the last event. Messages can still be sent; then call
    /// [`WebSocketConnection::respond_to_close`].
    Close(Option<Close>),
    /// The peer violated the protocol; this is the last event. Messages can still be sent; then call
    /// [`WebSocketConnection::respond_to_close`], which sends the error to the peer.
    Failed(WebSocketProtocolError),
}

/// The connection is closed, and nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionClosed;

impl fmt::Display for ConnectionClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the WebSocket connection is closed")
    }
}

impl std::error::Error for ConnectionClosed {}

/// The length of the output from which on only the latest ping gets a pong (RFC 6455 section 5.5.3): a peer
/// that sends pings and reads nothing must not fill our memory.
const PONG_LIMIT: usize = 16 * 1024;

impl WebSocketConnection {
    /// The connection of a server.
    pub fn server(settings: &CodecSettings) -> Self {
        Self::new(true, settings, None)
    }

    /// The connection of a client. `keys` returns the masking keys, which must be unpredictable (RFC 6455
    /// section 5.3).
    pub fn client(settings: &CodecSettings, keys: impl FnMut() -> [u8; 4] + 'static) -> Self {
        Self::new(false, settings, Some(Box::new(keys)))
    }

    fn new(
        is_server: bool,
        settings: &CodecSettings,
        keys: Option<super::writer::MaskKeys>,
    ) -> Self {
        let config = settings.compression.as_ref();
        let limits = (settings.max_frame, settings.max_message);
        Self {
            reader: FrameReader::new(is_server, limits, config.map(Inflater::new)),
            writer: FrameWriter::new(keys, config.map(Deflater::new)),
            output: OutputBuffer::default(),
            pong: None,
            is_close_sent: false,
            has_input_ended: false,
            close_response: None,
        }
    }

    /// Consumes `input` up to the end of its first event. `None` asks for more bytes behind the rest of
    /// `input`. After the last event all input is dropped.
    ///
    /// The payload of an unfragmented message shares the memory of `input`.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Option<WebSocketEvent> {
        if self.has_input_ended {
            input.clear();
            return None;
        }
        match self.reader.read(input) {
            Ok(event) => event.map(|event| self.handle(event)),
            Err(error) => {
                self.has_input_ended = true;
                self.close_response = Some(Close::new(error.code(), error.reason()));
                Some(WebSocketEvent::Failed(error))
            }
        }
    }

    /// The number of bytes that the next event is known to need still: a read buffer of this size
    /// saves reads.
    pub fn missing(&self, input: &BytesMut) -> usize {
        self.reader.missing(input)
    }

    /// Whether the peer has begun a message and not completed it.
    pub fn is_inside_message(&self) -> bool {
        self.reader.is_inside_message()
    }

    /// The bytes of memory that an incomplete message and the output take, without the bytes that are still in
    /// the input and the bytes of a [`PreparedMessage`], which other connections share.
    pub fn memory(&self) -> usize {
        self.reader.buffered().saturating_add(self.output.memory())
    }

    /// The received bytes of an incomplete message, without those that are still in the input.
    pub fn partial_len(&self) -> usize {
        self.reader.received()
    }

    /// Drops an incomplete message, and all further input.
    pub fn drop_input(&mut self) {
        self.reader.clear();
        self.has_input_ended = true;
    }

    fn handle(&mut self, event: ReaderEvent) -> WebSocketEvent {
        match event {
            ReaderEvent::Message(message) => WebSocketEvent::Message(message),
            ReaderEvent::Pong(payload) => WebSocketEvent::Pong(payload),
            ReaderEvent::Ping(payload) => {
                self.pong = Some(payload.clone());
                self.write_pong();
                WebSocketEvent::Ping(payload)
            }
            ReaderEvent::Close(close) => {
                self.has_input_ended = true;
                self.close_response = close.as_ref().map(|close| Close::new(close.code(), ""));
                WebSocketEvent::Close(close)
            }
        }
    }

    fn write_pong(&mut self) {
        if !self.is_close_sent
            && self.output.len() < PONG_LIMIT
            && let Some(payload) = self.pong.take()
        {
            self.writer
                .control(Opcode::Pong, &payload, &mut self.output);
        }
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send(&mut self, message: Message) -> Result<(), ConnectionClosed> {
        self.check_open()?;
        self.writer.message(message, &mut self.output);
        Ok(())
    }

    /// Sends a message that was encoded for many connections. Only for servers: a client masks each message
    /// with a new key.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send_prepared(&mut self, message: &PreparedMessage) -> Result<(), ConnectionClosed> {
        self.check_open()?;
        self.writer.prepared(message, &mut self.output);
        Ok(())
    }

    /// Sends a ping with a payload, which is cut after 125 bytes.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), ConnectionClosed> {
        self.check_open()?;
        let payload = payload.get(..125).unwrap_or(payload);
        self.writer.control(Opcode::Ping, payload, &mut self.output);
        Ok(())
    }

    /// Closes the connection; nothing can be sent after it. Messages of the peer can still be read until it
    /// responds.
    ///
    /// # Errors
    /// The connection was closed before.
    pub fn close(&mut self, close: Option<Close>) -> Result<(), ConnectionClosed> {
        self.check_open()?;
        self.is_close_sent = true;
        self.pong = None;
        let payload = Close::payload(close.as_ref());
        self.writer
            .control(Opcode::Close, &payload, &mut self.output);
        Ok(())
    }

    /// Closes the connection with a code and no reason.
    ///
    /// # Errors
    /// The connection was closed before.
    pub fn close_with(&mut self, code: CloseCode) -> Result<(), ConnectionClosed> {
        self.close(Some(Close::new(code, "")))
    }

    /// Echoes the code of a received [`WebSocketEvent::Close`] (RFC 6455 section 5.5.1), or sends the code of
    /// a [protocol error](WebSocketEvent::Failed). Does nothing before these events, or after a close of our own.
    pub fn respond_to_close(&mut self) {
        if self.has_input_ended {
            let response = self.close_response.take();
            // It may be closed already.
            let _ = self.close(response);
        }
    }

    fn check_open(&self) -> Result<(), ConnectionClosed> {
        if self.is_close_sent {
            Err(ConnectionClosed)
        } else {
            Ok(())
        }
    }

    /// The next bytes to write; empty only if there are none.
    pub fn output(&self) -> &[u8] {
        self.output.front()
    }

    /// The length of the whole output in bytes.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Removes bytes that were written from the front of [`WebSocketConnection::output`].
    pub fn consume_output(&mut self, written: usize) {
        self.output.consume(written);
        self.write_pong();
    }

    /// Drops the output: the transport is closed for writing.
    pub fn drop_output(&mut self) {
        self.output.clear();
        self.is_close_sent = true;
        self.pong = None;
    }

    /// Whether a close frame was sent.
    pub fn is_closing(&self) -> bool {
        self.is_close_sent
    }

    /// Whether both ends are closed and the output is written.
    pub fn is_finished(&self) -> bool {
        self.is_close_sent && self.has_input_ended && self.output.len() == 0
    }
}
