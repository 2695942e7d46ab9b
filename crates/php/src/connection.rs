//! The connection to one worker, which whoever asks it takes along to his own thread.

use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use apus_net::QuietSocket;
use bytes::BytesMut;

use crate::record::Record;
use crate::wire::{Decoder, Event, WireError};

/// The connection to one worker.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: QuietSocket,
    /// The thread whose reactor knows the socket.
    thread: ThreadId,
    decoder: Decoder,
    input: BytesMut,
    pub(crate) record: Arc<Record>,
}

/// Room for an answer of common size; most are read at once.
const ROOM: usize = 16 * 1024;

/// Room where an answer is known to be long.
const WIDE_ROOM: usize = 128 * 1024;

impl Connection {
    /// Of a worker that said who it is, from its socket and what was read of it.
    pub(crate) fn new(
        socket: UnixStream,
        decoder: Decoder,
        input: BytesMut,
        record: Arc<Record>,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: QuietSocket::new(socket)?,
            thread: thread::current().id(),
            decoder,
            input,
            record,
        })
    }

    pub(crate) fn is_of(&self, thread: ThreadId) -> bool {
        self.thread == thread
    }

    /// Makes it the business of this thread's reactor.
    pub(crate) fn adopt(self) -> io::Result<Self> {
        let thread = thread::current().id();
        if self.thread == thread {
            return Ok(self);
        }
        let socket = QuietSocket::new(self.socket.into_std())?;
        Ok(Self {
            socket,
            thread,
            ..self
        })
    }

    /// Whether the worker said or did anything while nobody asked it: then it leaves. Costs no system
    /// call if nothing happened.
    pub(crate) fn is_leaving(&mut self) -> bool {
        if self.input.is_empty() {
            self.make_room();
            match self.socket.try_read(&mut self.input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
        // Lines for the log may come late, and change nothing.
        loop {
            match self.decoder.handle_input(&mut self.input) {
                Ok(Some(Event::Pong | Event::Log(..))) => {}
                Ok(None) => return !self.input.is_empty(),
                _ => return true,
            }
        }
    }

    /// The next event, if it was read already.
    pub(crate) fn next_event(&mut self) -> Result<Option<Event>, WireError> {
        self.decoder.handle_input(&mut self.input)
    }

    /// Whether nothing was read that is not understood.
    pub(crate) fn is_read_up(&self) -> bool {
        self.input.is_empty()
    }

    /// Reads what comes; 0 at the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.make_room();
        self.socket.poll_read(cx, &mut self.input)
    }

    fn make_room(&mut self) {
        let spare = self.input.capacity() - self.input.len();
        if spare < ROOM / 4 {
            let room = match self.decoder.is_in_response() {
                true => WIDE_ROOM,
                false => ROOM,
            };
            self.input.reserve(room);
        }
    }

    /// Writes some of these bytes.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, slices)
    }
}
