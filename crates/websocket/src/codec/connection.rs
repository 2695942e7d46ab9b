//! A WebSocket connection without its transport.

use std::fmt;

use bytes::{Bytes, BytesMut};

use super::deflate::Deflater;
use super::extension::Agreement;
use super::frame::Opcode;
use super::inflate::Inflater;
use super::output::Output;
use super::reader::{Item, Reader};
use super::writer::Writer;
use super::{Close, CloseCode, Message, Prepared, ProtocolError};

/// One end of a WebSocket connection, after its handshake.
///
/// Its methods are of four kinds:
///
/// - [`handle_input`](Self::handle_input) takes bytes that came, and gives what they mean; call it
///   until it gives `None`, then read more behind what it left. Pings are answered by it.
/// - Commands say what is to be sent: [`send`](Self::send), [`send_prepared`](Self::send_prepared),
///   [`ping`](Self::ping), [`close`](Self::close), [`answer_close`](Self::answer_close).
/// - [`output`](Self::output) has the bytes to be sent;
///   [`consume_output`](Self::consume_output) says how many of them were. Nothing bounds what
///   commands put there: look at [`output_len`](Self::output_len).
/// - Getters: once [`is_finished`](Self::is_finished), the transport is to be closed.
#[derive(Debug)]
pub struct Connection {
    reader: Reader,
    writer: Writer,
    output: Output,
    /// The answer to the latest ping, where much waits to be sent already.
    pong: Option<Bytes>,
    /// Whether a close frame was sent: nothing follows it.
    said_close: bool,
    /// Whether the peer said all that we listen to.
    heard_end: bool,
    /// What answers the peer's last word.
    answer: Option<Close>,
}

/// What a connection is bound by.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a frame's payload.
    pub max_frame: usize,
    /// Bytes of a message, decompressed.
    pub max_message: usize,
    /// The compression that the handshake settled on.
    pub compression: Option<Agreement>,
}

impl Default for Settings {
    /// Messages of a megabyte, in any frames, without compression.
    fn default() -> Self {
        Self {
            max_frame: 1 << 20,
            max_message: 1 << 20,
            compression: None,
        }
    }
}

/// What came from the peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A message.
    Message(Message),
    /// A ping, which is answered already.
    Ping(Bytes),
    /// A pong.
    Pong(Bytes),
    /// The peer closes the connection, and this is the last event. What came before it can still be
    /// answered; then [`Connection::answer_close`] is due.
    Close(Option<Close>),
    /// The peer broke the protocol, and this is the last event. What came before it was right and can
    /// still be answered; then [`Connection::answer_close`] is due, and tells the peer.
    Failed(ProtocolError),
}

/// The connection is closed, and nothing can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the WebSocket connection is closed")
    }
}

impl std::error::Error for Closed {}

/// Bytes that wait to be sent, past which only the latest ping gets an answer (RFC 6455 section
/// 5.5.3): whoever pings and does not read must not fill our memory.
const MUCH: usize = 16 * 1024;

impl Connection {
    /// The end of a server.
    pub fn server(settings: &Settings) -> Self {
        Self::new(true, settings, None)
    }

    /// The end of a client. `keys` gives the masking keys, which must be from a source that nobody
    /// can predict (RFC 6455 section 5.3).
    pub fn client(settings: &Settings, keys: impl FnMut() -> [u8; 4] + 'static) -> Self {
        Self::new(false, settings, Some(Box::new(keys)))
    }

    fn new(is_server: bool, settings: &Settings, keys: Option<super::writer::MaskKeys>) -> Self {
        let agreement = settings.compression.as_ref();
        let limits = (settings.max_frame, settings.max_message);
        Self {
            reader: Reader::new(is_server, limits, agreement.map(Inflater::new)),
            writer: Writer::new(keys, agreement.map(Deflater::new)),
            output: Output::default(),
            pong: None,
            said_close: false,
            heard_end: false,
            answer: None,
        }
    }

    /// Takes `input` up to the end of the first event in it. `None`: more has to come, behind what
    /// is left in `input`. After the last event everything is dropped.
    ///
    /// The content of a message in one frame is `input`'s own memory.
    pub fn handle_input(&mut self, input: &mut BytesMut) -> Option<Event> {
        if self.heard_end {
            input.clear();
            return None;
        }
        match self.reader.read(input) {
            Ok(item) => item.map(|item| self.handle(item)),
            Err(error) => {
                self.heard_end = true;
                self.answer = Some(Close::new(error.code(), error.reason()));
                Some(Event::Failed(error))
            }
        }
    }

    /// Bytes that have to come before the next event, as far as that is known: room for them saves
    /// reads.
    pub fn missing(&self, input: &BytesMut) -> usize {
        self.reader.missing(input)
    }

    fn handle(&mut self, item: Item) -> Event {
        match item {
            Item::Message(message) => Event::Message(message),
            Item::Pong(payload) => Event::Pong(payload),
            Item::Ping(payload) => {
                self.pong = Some(payload.clone());
                self.write_pong();
                Event::Ping(payload)
            }
            Item::Close(close) => {
                self.heard_end = true;
                self.answer = close.as_ref().map(|close| Close::new(close.code(), ""));
                Event::Close(close)
            }
        }
    }

    fn write_pong(&mut self) {
        if !self.said_close
            && self.output.len() < MUCH
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
    pub fn send(&mut self, message: Message) -> Result<(), Closed> {
        self.check_open()?;
        self.writer.message(message, &mut self.output);
        Ok(())
    }

    /// Sends a message that was encoded for many connections. A server's only: what a client sends
    /// is masked each time anew.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn send_prepared(&mut self, message: &Prepared) -> Result<(), Closed> {
        self.check_open()?;
        self.writer.prepared(message, &mut self.output);
        Ok(())
    }

    /// Sends a ping with a payload of at most 125 bytes; of a longer one the rest is dropped.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn ping(&mut self, payload: &[u8]) -> Result<(), Closed> {
        self.check_open()?;
        let payload = payload.get(..125).unwrap_or(payload);
        self.writer.control(Opcode::Ping, payload, &mut self.output);
        Ok(())
    }

    /// Closes the connection; nothing can be sent after it. What the peer sends until it answers
    /// can still be read.
    ///
    /// # Errors
    /// It was closed before.
    pub fn close(&mut self, close: Option<Close>) -> Result<(), Closed> {
        self.check_open()?;
        self.said_close = true;
        self.pong = None;
        let payload = Close::payload(close.as_ref());
        self.writer
            .control(Opcode::Close, &payload, &mut self.output);
        Ok(())
    }

    /// Closes the connection with a code and no more words.
    ///
    /// # Errors
    /// It was closed before.
    pub fn close_with(&mut self, code: CloseCode) -> Result<(), Closed> {
        self.close(Some(Close::new(code, "")))
    }

    /// Gives the peer back the code of its [`Event::Close`] (RFC 6455 section 5.5.1), or tells it how it
    /// [broke the protocol](Event::Failed). Does nothing before that, or after a close of our own.
    pub fn answer_close(&mut self) {
        if self.heard_end {
            let answer = self.answer.take();
            // It may be closed already.
            let _ = self.close(answer);
        }
    }

    fn check_open(&self) -> Result<(), Closed> {
        match self.said_close {
            true => Err(Closed),
            false => Ok(()),
        }
    }

    /// The next bytes to send; empty only if there are none.
    pub fn output(&self) -> &[u8] {
        self.output.front()
    }

    /// Bytes that wait to be sent, in all.
    pub fn output_len(&self) -> usize {
        self.output.len()
    }

    /// Drops so many bytes of [`Connection::output`], which were sent.
    pub fn consume_output(&mut self, sent: usize) {
        self.output.consume(sent);
        self.write_pong();
    }

    /// Drops what waits to be sent: the transport takes no more.
    pub fn drop_output(&mut self) {
        self.output.clear();
        self.said_close = true;
        self.pong = None;
    }

    /// Whether a close frame was sent.
    pub fn is_closing(&self) -> bool {
        self.said_close
    }

    /// Whether both ends said all, and everything was sent.
    pub fn is_finished(&self) -> bool {
        self.said_close && self.heard_end && self.output.len() == 0
    }
}
