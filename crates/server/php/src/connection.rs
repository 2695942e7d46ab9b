//! The connection to one worker, which moves to the thread of each request.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::{self, ThreadId};

use apus_transport::ReadInterestSocket;
use bytes::BytesMut;

use crate::error_log::{ErrorLogMessage, ErrorLogReader};
use crate::record::WorkerRecord;
use crate::wire::{WireDecoder, WireError, WorkerEvent};

/// The connection to one worker.
#[derive(Debug)]
pub(crate) struct WorkerConnection {
    socket: ReadInterestSocket,
    /// The thread whose reactor has the socket.
    thread: ThreadId,
    decoder: WireDecoder,
    input: BytesMut,
    /// The error log of PHP, whose messages are events of the connection.
    error_log: Option<Box<ErrorLogReader>>,
    pub(crate) record: Arc<WorkerRecord>,
}

/// The capacity that is reserved for input: most responses fit in it.
const READ_CAPACITY: usize = 16 * 1024;

/// The capacity that is reserved within a response that is longer.
const BODY_READ_CAPACITY: usize = 128 * 1024;

impl WorkerConnection {
    /// The connection of an identified worker, from its socket and the input that was read.
    pub(crate) fn new(
        socket: UnixStream,
        decoder: WireDecoder,
        input: BytesMut,
        record: Arc<WorkerRecord>,
    ) -> io::Result<Self> {
        Ok(Self {
            socket: ReadInterestSocket::new(socket)?,
            thread: thread::current().id(),
            decoder,
            input,
            error_log: None,
            record,
        })
    }

    pub(crate) fn set_error_log(&mut self, reader: ErrorLogReader) {
        self.error_log = Some(Box::new(reader));
    }

    /// Whether the reactor of a thread has the socket.
    pub(crate) fn belongs_to(&self, thread: ThreadId) -> bool {
        self.thread == thread
    }

    /// Moves the connection to the reactor of this thread.
    pub(crate) fn adopt(self) -> io::Result<Self> {
        let thread = thread::current().id();
        if self.thread == thread {
            return Ok(self);
        }
        let socket = ReadInterestSocket::new(self.socket.into_std())?;
        let error_log = match self.error_log {
            Some(error_log) => Some(Box::new(error_log.adopt()?)),
            None => None,
        };
        Ok(Self {
            socket,
            thread,
            error_log,
            ..self
        })
    }

    /// Whether an idle worker sent a message or closed the connection, so that it gets no more requests. Needs no
    /// system call if there is no input.
    pub(crate) fn is_leaving(&mut self) -> bool {
        if self.input.is_empty() {
            self.reserve();
            match self.socket.try_read(&mut self.input) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Ok(0) | Err(_) => return true,
                Ok(_) => {}
            }
        }
        // A late log line does not mean that the worker leaves.
        loop {
            match self.decoder.handle_input(&mut self.input) {
                Ok(Some(WorkerEvent::Pong | WorkerEvent::Log(..))) => {}
                Ok(None) => return !self.input.is_empty(),
                _ => return true,
            }
        }
    }

    /// The next event in the input that was read already. PHP writes a message of its error log before the end of
    /// the response, so these come first.
    pub(crate) fn next_event(&mut self) -> Result<Option<WorkerEvent>, WireError> {
        if let Some(message) = self.error_log.as_mut().and_then(|log| log.next()) {
            let ErrorLogMessage { level, text } = message;
            return Ok(Some(WorkerEvent::Log(level, text)));
        }
        self.decoder.handle_input(&mut self.input)
    }

    /// Whether all input is decoded.
    pub(crate) fn is_input_empty(&self) -> bool {
        self.input.is_empty()
    }

    /// The messages of the error log that are not events yet, with a system call.
    pub(crate) fn late_messages(&mut self) -> VecDeque<ErrorLogMessage> {
        let error_log = self.error_log.as_mut();
        error_log.map(|log| log.take_all()).unwrap_or_default()
    }

    /// Reads available input; 0 at the end. After anything else there may be an event.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if let Some(error_log) = &self.error_log
            && error_log.poll_ready(cx).is_ready()
        {
            return Poll::Ready(Ok(1));
        }
        self.reserve();
        let read = self.socket.poll_read(cx, &mut self.input);
        // The process may have ended because of an error that it logged.
        if matches!(read, Poll::Ready(Ok(0)))
            && self.error_log.as_mut().is_some_and(|log| log.has_more())
        {
            return Poll::Ready(Ok(1));
        }
        read
    }

    fn reserve(&mut self) {
        let spare = self.input.capacity() - self.input.len();
        if spare < READ_CAPACITY / 4 {
            let capacity = if self.decoder.is_in_response() {
                BODY_READ_CAPACITY
            } else {
                READ_CAPACITY
            };
            self.input.reserve(capacity);
        }
    }

    /// Writes a part of these bytes.
    pub(crate) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(cx, slices)
    }
}

#[cfg(test)]
impl WorkerConnection {
    /// A connection for tests, and the worker's end of it.
    pub(crate) fn with_peer(id: crate::record::WorkerId) -> (Self, tokio::net::UnixStream) {
        use crate::plan::Recycle;
        use crate::record::{RecycleLimits, WorkerIdentity};
        let (socket, peer) = UnixStream::pair().unwrap();
        socket.set_nonblocking(true).unwrap();
        peer.set_nonblocking(true).unwrap();
        let record = WorkerRecord::new(WorkerIdentity {
            id,
            generation: 1,
            hello: crate::wire::Hello::default(),
            pid: None,
            limits: RecycleLimits::new(&Recycle::default(), 0),
            socket: socket.try_clone().unwrap().into(),
            launcher: None,
        });
        let decoder = WireDecoder::new(crate::wire::WireLimits::default());
        let connection = Self::new(socket, decoder, BytesMut::new(), Arc::new(record)).unwrap();
        let peer = tokio::net::UnixStream::from_std(peer).unwrap();
        (connection, peer)
    }
}
