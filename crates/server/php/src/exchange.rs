//! One request and its response on the connection of one worker.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, FileRange, Frame};
use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::task::JoinHandle;

use crate::background::finish_background_work;
use crate::connection::WorkerConnection;
use crate::error::WorkerError;
use crate::log_line::WorkerLogLine;
use crate::request::{WorkerRequestBody, WorkerRequestHead, interim_headers};
use crate::shared::{SharedPool, increment};
use crate::supervisor_message::SupervisorMessage;
use crate::wire::{self, WorkerEvent, WorkerResponseEnd, WorkerResponseHead};

/// One request and its response on the connection of one worker.
///
/// If it is dropped before the response is complete, the supervisor cancels the request and reads the rest of
/// the response, until the worker is idle again.
#[derive(Debug)]
pub(crate) struct WorkerExchange {
    shared: Arc<SharedPool>,
    /// `None` after the end of the response.
    connection: Option<WorkerConnection>,
    pub(crate) request: WorkerRequestHead,
    body: WorkerRequestBody,
    /// The number of written bytes of the request; `None` once it is written.
    sent: Option<usize>,
    /// The number of body bytes that the worker requested and did not get yet.
    pulled: Option<u32>,
    has_pulled: bool,
    /// A BODY frame that is being written.
    writing: Option<BodyFrame>,
    /// The rest of a piece of the body that is longer than the worker requested.
    rest: Bytes,
    file: FileBodyReader,
    /// The number of reads from the worker.
    reads: u32,
    /// Whether the worker sent other frames before its response.
    has_other_frames: bool,
}

#[derive(Debug)]
struct BodyFrame {
    header: [u8; wire::HEADER_LEN],
    header_left: usize,
    payload: Bytes,
}

/// A part of the body that is in a file.
#[derive(Debug, Default)]
enum FileBodyReader {
    #[default]
    None,
    Range(FileRange),
    Reading(FileRange, JoinHandle<io::Result<Vec<u8>>>),
}

/// An exchange without a response, and its request, which may be sent again.
pub(crate) struct FailedExchange {
    pub(crate) error: WorkerError,
    /// Whether the worker did not begin to process the request.
    pub(crate) is_unprocessed: bool,
    pub(crate) request: WorkerRequestHead,
    pub(crate) body: WorkerRequestBody,
}

/// The maximum number of bytes of one read from a file.
const FILE_PIECE: u64 = 128 * 1024;

impl WorkerExchange {
    pub(crate) fn new(
        shared: Arc<SharedPool>,
        connection: WorkerConnection,
        request: WorkerRequestHead,
        body: WorkerRequestBody,
    ) -> Self {
        Self {
            shared,
            connection: Some(connection),
            request,
            body,
            sent: Some(0),
            pulled: None,
            has_pulled: false,
            writing: None,
            rest: Bytes::new(),
            file: FileBodyReader::None,
            reads: 0,
            has_other_frames: false,
        }
    }

    /// Sends the request and waits for the head of the response.
    pub(crate) async fn run(mut self) -> Result<(Self, WorkerResponseHead), Box<FailedExchange>> {
        if let Err(error) = poll_fn(|cx| self.poll_send(cx)).await {
            // The worker closed the connection before it read the whole request.
            let is_closed = matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            );
            return Err(self.fail(WorkerError::Io(error), is_closed));
        }
        loop {
            let event = poll_fn(|cx| self.poll_event(cx)).await;
            return match event {
                Ok(WorkerEvent::Head(head)) => Ok((self, head)),
                Ok(WorkerEvent::Interim(status, block)) => {
                    if let Ok(headers) = interim_headers(&block) {
                        self.request.interim.send(status, headers);
                    }
                    continue;
                }
                Ok(WorkerEvent::Bye(reason)) => {
                    if &*reason == b"again" {
                        self.shared
                            .notify_supervisor(SupervisorMessage::CannotIncludeTwice);
                    }
                    Err(self.fail(WorkerError::Crashed, true))
                }
                Ok(WorkerEvent::Failed(text)) => {
                    let text = String::from_utf8_lossy(&text).into();
                    Err(self.fail(WorkerError::Refused(text), false))
                }
                Ok(_) => continue,
                Err(error) => Err(self.fail(error, false)),
            };
        }
    }

    fn fail(mut self, error: WorkerError, is_unprocessed: bool) -> Box<FailedExchange> {
        let mut error = error;
        if let Some(mut connection) = self.connection.take() {
            self.log_late_messages(&mut connection);
            if connection.record.is_killed() {
                error = WorkerError::TimedOut;
            }
            self.shared.discard(&connection);
        }
        let body = std::mem::replace(&mut self.body, WorkerRequestBody::OnPull(Body::Empty));
        let request = self.take_request();
        Box::new(FailedExchange {
            is_unprocessed: is_unprocessed
                && !self.has_pulled
                && !matches!(error, WorkerError::TimedOut),
            error,
            request,
            body,
        })
    }

    fn take_request(&mut self) -> WorkerRequestHead {
        WorkerRequestHead {
            message: std::mem::take(&mut self.request.message),
            method: std::mem::take(&mut self.request.method),
            id: self.request.id.take(),
            socket: self.request.socket.take(),
            interim: self.request.interim.clone(),
        }
    }

    /// Writes the request with its inline body.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let pieces = match &self.body {
            WorkerRequestBody::Inline(pieces) => pieces.as_slice(),
            WorkerRequestBody::OnPull(_) => &[],
        };
        while let Some(sent) = &mut self.sent {
            let mut skip = *sent;
            let mut slices: SmallVec<[IoSlice<'_>; 8]> = SmallVec::new();
            let parts =
                std::iter::once(self.request.message.as_bytes()).chain(pieces.iter().map(|b| &**b));
            for part in parts {
                let left = part.get(skip..).unwrap_or_default();
                skip = skip.saturating_sub(part.len());
                if !left.is_empty() && slices.len() < MAX_SLICES {
                    slices.push(IoSlice::new(left));
                }
            }
            if slices.is_empty() {
                self.sent = None;
                break;
            }
            match ready!(connection.poll_write(cx, &slices))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => *sent += written,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// The next event of the response. Meanwhile the worker gets the body that it requests, and its commands are
    /// executed.
    pub(crate) fn poll_event(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<WorkerEvent, WorkerError>> {
        loop {
            if let Poll::Ready(Err(error)) = self.poll_send_body(cx) {
                return Poll::Ready(Err(error));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Err(WorkerError::Crashed));
            };
            let event = connection.next_event().map_err(WorkerError::Wire)?;
            self.has_other_frames |= matches!(
                event,
                Some(
                    WorkerEvent::Pull(_)
                        | WorkerEvent::Log(..)
                        | WorkerEvent::Command(_)
                        | WorkerEvent::Interim(..)
                )
            );
            match event {
                Some(WorkerEvent::Pull(bytes)) => {
                    if self.pulled.is_some() || self.writing.is_some() || bytes == 0 {
                        let error = wire::WireError::OutOfOrder(69);
                        return Poll::Ready(Err(WorkerError::Wire(error)));
                    }
                    self.pulled = Some(bytes);
                    self.has_pulled = true;
                }
                Some(WorkerEvent::Log(level, text)) => self.log(level, &text),
                Some(WorkerEvent::Command(command)) => {
                    self.shared.execute(command, self.request.socket.as_ref());
                }
                Some(WorkerEvent::Pong) => {}
                Some(WorkerEvent::Hello(_) | WorkerEvent::Ready(_)) => {
                    let error = wire::WireError::OutOfOrder(66);
                    return Poll::Ready(Err(WorkerError::Wire(error)));
                }
                Some(event) => return Poll::Ready(Ok(event)),
                None => {
                    let waits_for_client = self.pulled.is_some() && self.writing.is_none();
                    connection.record.set_executing(!waits_for_client);
                    match ready!(connection.poll_read(cx)) {
                        Ok(0) => return Poll::Ready(Err(WorkerError::Crashed)),
                        Ok(_) => self.reads = self.reads.saturating_add(1),
                        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                            return Poll::Ready(Err(WorkerError::Crashed));
                        }
                        Err(error) => return Poll::Ready(Err(WorkerError::Io(error))),
                    }
                }
            }
        }
    }

    /// Writes the part of the body that the worker requested. Ready when it requests nothing.
    fn poll_send_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), WorkerError>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let Some(connection) = &mut self.connection else {
                    return Poll::Ready(Err(WorkerError::Crashed));
                };
                let at = writing.header.len() - writing.header_left;
                let header = writing.header.get(at..).unwrap_or_default();
                let slices = [IoSlice::new(header), IoSlice::new(&writing.payload)];
                let written = match ready!(connection.poll_write(cx, &slices)) {
                    Ok(0) => return Poll::Ready(Err(WorkerError::Crashed)),
                    Ok(written) => written,
                    // The worker closed the connection; messages that it sent before are read.
                    Err(_) => {
                        self.writing = None;
                        return Poll::Ready(Ok(()));
                    }
                };
                let of_header = written.min(writing.header_left);
                writing.header_left -= of_header;
                writing.payload.advance(written - of_header);
                if writing.header_left == 0 && writing.payload.is_empty() {
                    self.writing = None;
                }
                continue;
            }
            let Some(max) = self.pulled else {
                return Poll::Ready(Ok(()));
            };
            let mut piece = match ready!(self.poll_body(cx)) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Err(WorkerError::RequestBody(error))),
            };
            let is_last = piece.is_none();
            let mut payload = piece.take().unwrap_or_default();
            let max = usize::try_from(max).unwrap_or(usize::MAX);
            if payload.len() > max {
                self.rest = payload.split_off(max);
            }
            let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
            self.pulled = None;
            self.writing = Some(BodyFrame {
                header: wire::body_header(len, is_last),
                header_left: wire::HEADER_LEN,
                payload,
            });
        }
    }

    /// The next piece of the body, which is not empty.
    fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.rest))));
        }
        loop {
            if let Some(bytes) = ready!(self.file.poll_read(cx))? {
                return Poll::Ready(Ok(Some(bytes)));
            }
            let WorkerRequestBody::OnPull(body) = &mut self.body else {
                return Poll::Ready(Ok(None));
            };
            match ready!(body.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) if bytes.is_empty() => {}
                Some(Ok(Frame::Data(bytes))) => return Poll::Ready(Ok(Some(bytes))),
                Some(Ok(Frame::File(range))) => self.file = FileBodyReader::Range(range),
                Some(Ok(Frame::Trailers(_))) | None => {
                    *body = Body::Empty;
                    return Poll::Ready(Ok(None));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn log(&self, level: wire::LogLevel, text: &[u8]) {
        if let Some(connection) = &self.connection {
            self.log_of(connection, level, text);
        }
    }

    fn log_of(&self, connection: &WorkerConnection, level: wire::LogLevel, text: &[u8]) {
        let line = WorkerLogLine {
            pool: &self.shared.plan.name,
            pid: connection.record.pid_number(),
            request: Some(&self.request.logged()),
        };
        line.write(level, text);
    }

    /// Logs a line of the response's head that is no field: a mistake of the script.
    pub(crate) fn log_invalid_line(&self, line: &[u8]) {
        let before = b"a line of the response head is not valid and is left out: ";
        self.log(wire::LogLevel::Warning, &[before, line].concat());
    }

    /// Logs the messages of PHP's error log of which the reactor does not know yet.
    fn log_late_messages(&self, connection: &mut WorkerConnection) {
        for message in connection.late_messages() {
            self.log_of(connection, message.level, &message.text);
        }
    }

    /// The process ID of the worker.
    pub(crate) fn pid(&self) -> i32 {
        self.connection
            .as_ref()
            .map_or(0, |connection| connection.record.pid_number())
    }

    pub(crate) fn remember_memory(&self, bytes: u32) {
        if let Some(connection) = &self.connection {
            connection.record.remember_memory(bytes);
        }
    }

    /// Pauses the execution limit: the exchange waits for the client, not for PHP.
    pub(crate) fn pause_execution_limit(&self) {
        if let Some(connection) = &self.connection {
            connection.record.set_executing(false);
        }
    }

    /// Whether the process was killed because it exceeded the execution limit.
    pub(crate) fn is_killed(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.record.is_killed())
    }

    /// Returns the worker to the pool after its response.
    pub(crate) fn finish(&mut self, end: WorkerResponseEnd) {
        let Some(mut connection) = self.connection.take() else {
            return;
        };
        // The reactor reported a message together with the first frame after it, or before.
        if self.reads > 1 || self.has_other_frames {
            self.log_late_messages(&mut connection);
        }
        if self.writing.is_some() || self.pulled.is_some() {
            // The worker requested a part of the body and did not wait for it.
            self.shared.discard(&connection);
        } else if end.is_leaving {
            self.shared
                .notify_supervisor(SupervisorMessage::Leaving(connection));
        } else if end.continues_working {
            // On this thread, whose reactor has the connection.
            let request = self.request.logged();
            let shared = Arc::clone(&self.shared);
            tokio::spawn(finish_background_work(shared, connection, request));
        } else if !connection.is_input_empty() {
            self.shared
                .notify_supervisor(SupervisorMessage::Leaving(connection));
        } else {
            self.shared.release(connection);
        }
    }

    /// Closes the connection after an incomplete response.
    pub(crate) fn abort(&mut self) {
        if let Some(mut connection) = self.connection.take() {
            self.log_late_messages(&mut connection);
            increment(&self.shared.counters.crashes);
            self.shared.discard(&connection);
        }
    }
}

/// The maximum number of slices of one write.
const MAX_SLICES: usize = 64;

impl Drop for WorkerExchange {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            if self.sent == Some(0) {
                self.shared.release(connection);
                return;
            }
            if self.writing.is_some() || self.sent.is_some() {
                // A part of a frame was written, so the request cannot be cancelled.
                self.shared.discard(&connection);
                return;
            }
            let is_pulling = self.pulled.is_some();
            let request = Box::new(self.request.logged());
            self.shared
                .notify_supervisor(SupervisorMessage::ClientGone {
                    connection,
                    is_pulling,
                    request,
                });
        }
    }
}

impl FileBodyReader {
    /// Reads the next piece; `None` at the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        loop {
            match self {
                Self::None => return Poll::Ready(Ok(None)),
                Self::Range(range) if range.len == 0 => *self = Self::None,
                Self::Range(range) => {
                    let (file, at) = (Arc::clone(&range.file), range.offset);
                    let len = range.len.min(FILE_PIECE);
                    let rest = FileRange {
                        file: Arc::clone(&file),
                        offset: at.saturating_add(len),
                        len: range.len - len,
                    };
                    let reading = tokio::task::spawn_blocking(move || read_at(&file, at, len));
                    *self = Self::Reading(rest, reading);
                }
                Self::Reading(rest, reading) => {
                    let read = ready!(Pin::new(reading).poll(cx));
                    let rest = rest.clone();
                    *self = Self::Range(rest);
                    let read = read.map_err(io::Error::other).and_then(|read| read);
                    return Poll::Ready(
                        read.map(|read| Some(read.into())).map_err(BodyError::from),
                    );
                }
            }
        }
    }
}

fn read_at(file: &File, at: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}
