//! One request and its answer on the connection of one worker.

use std::fs::File;
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, FileRange, Frame, Method};
use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::task::JoinHandle;

use crate::after::work_on;
use crate::connection::Connection;
use crate::error::Failure;
use crate::request::Upload;
use crate::shared::{Shared, count};
use crate::signal::Signal;
use crate::wire::{self, Ending, Event, Message, ResponseHead};

/// One request and its answer on the connection of one worker.
///
/// Dropped before the answer is whole, the worker is told that the client is gone, and its connection
/// is read until it is free again.
#[derive(Debug)]
pub(crate) struct Exchange {
    shared: Arc<Shared>,
    /// Taken when it is over.
    connection: Option<Connection>,
    pub(crate) request: Asked,
    upload: Upload,
    /// Bytes of the request that were written, until it is written whole.
    sent: Option<usize>,
    /// What the worker asked for and did not get yet.
    pulled: Option<u32>,
    has_pulled: bool,
    /// A BODY frame that is being written.
    writing: Option<Writing>,
    /// A piece of content that is longer than what was asked for.
    rest: Bytes,
    file: FileContent,
}

/// What is known of a request beside its content.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) message: Message,
    pub(crate) method: Method,
    /// What logs tell it apart by, if a client sent it.
    pub(crate) id: Option<u64>,
    /// The WebSocket that it is about.
    pub(crate) socket: Option<Bytes>,
}

#[derive(Debug)]
struct Writing {
    header: [u8; wire::HEADER],
    header_left: usize,
    content: Bytes,
}

/// Content that was put aside in a file.
#[derive(Debug, Default)]
enum FileContent {
    #[default]
    None,
    Range(FileRange),
    Reading(FileRange, JoinHandle<io::Result<Vec<u8>>>),
}

/// Why an exchange ended without an answer, and what was left of it.
pub(crate) struct Broken {
    pub(crate) failure: Failure,
    /// Whether the worker cannot have begun with the request.
    pub(crate) is_untouched: bool,
    pub(crate) request: Asked,
    pub(crate) upload: Upload,
}

/// How long a piece of a file is that is read at once.
const FILE_PIECE: u64 = 128 * 1024;

impl Exchange {
    pub(crate) fn new(
        shared: Arc<Shared>,
        connection: Connection,
        request: Asked,
        upload: Upload,
    ) -> Self {
        Self {
            shared,
            connection: Some(connection),
            request,
            upload,
            sent: Some(0),
            pulled: None,
            has_pulled: false,
            writing: None,
            rest: Bytes::new(),
            file: FileContent::None,
        }
    }

    /// Sends the request and waits for the head of the answer.
    pub(crate) async fn run(mut self) -> Result<(Self, ResponseHead), Box<Broken>> {
        if let Err(error) = poll_fn(|cx| self.poll_send(cx)).await {
            // Nothing is read from a connection that is closed: the worker did not get all of it.
            let is_gone = matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            );
            return Err(self.broken(Failure::Io(error), is_gone));
        }
        loop {
            let event = poll_fn(|cx| self.poll_event(cx)).await;
            return match event {
                Ok(Event::Head(head)) => Ok((self, head)),
                Ok(Event::Bye(reason)) => {
                    if &*reason == b"again" {
                        self.shared.signal(Signal::NotTwice);
                    }
                    Err(self.broken(Failure::Crashed, true))
                }
                Ok(Event::Failed(text)) => {
                    let text = String::from_utf8_lossy(&text).into();
                    Err(self.broken(Failure::Refused(text), false))
                }
                Ok(_) => continue,
                Err(failure) => Err(self.broken(failure, false)),
            };
        }
    }

    fn broken(mut self, failure: Failure, is_untouched: bool) -> Box<Broken> {
        let mut failure = failure;
        if let Some(connection) = self.connection.take() {
            if connection.record.is_killed() {
                failure = Failure::TimedOut;
            }
            self.shared.discard(&connection);
        }
        let upload = std::mem::replace(&mut self.upload, Upload::OnPull(Body::Empty));
        let request = Asked {
            message: std::mem::take(&mut self.request.message),
            method: std::mem::take(&mut self.request.method),
            id: self.request.id,
            socket: self.request.socket.take(),
        };
        Box::new(Broken {
            is_untouched: is_untouched && !self.has_pulled && !matches!(failure, Failure::TimedOut),
            failure,
            request,
            upload,
        })
    }

    /// Writes the request and the content that travels with it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let pieces = match &self.upload {
            Upload::Inline(pieces) => pieces.as_slice(),
            Upload::OnPull(_) => &[],
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

    /// What the worker says of its answer. What it asks for meanwhile is given, and what it wants to
    /// be done is done.
    pub(crate) fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Result<Event, Failure>> {
        loop {
            let uploading = self.poll_upload(cx);
            if let Poll::Ready(Err(failure)) = uploading {
                return Poll::Ready(Err(failure));
            }
            let Some(connection) = &mut self.connection else {
                return Poll::Ready(Err(Failure::Crashed));
            };
            match connection.next_event().map_err(Failure::Wire)? {
                Some(Event::Pull(bytes)) => {
                    if self.pulled.is_some() || self.writing.is_some() || bytes == 0 {
                        let error = wire::WireError::OutOfOrder(69);
                        return Poll::Ready(Err(Failure::Wire(error)));
                    }
                    self.pulled = Some(bytes);
                    self.has_pulled = true;
                }
                Some(Event::Log(level, text)) => self.log(level, &text),
                Some(Event::Command(command)) => {
                    self.shared.command(command, self.request.socket.as_ref());
                }
                Some(Event::Pong) => {}
                Some(Event::Hello(_) | Event::Ready(_)) => {
                    let error = wire::WireError::OutOfOrder(66);
                    return Poll::Ready(Err(Failure::Wire(error)));
                }
                Some(event) => return Poll::Ready(Ok(event)),
                None => {
                    let is_clients_turn = self.pulled.is_some() && self.writing.is_none();
                    connection.record.awaits(!is_clients_turn);
                    match ready!(connection.poll_read(cx)) {
                        Ok(0) => return Poll::Ready(Err(Failure::Crashed)),
                        Ok(_) => {}
                        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                            return Poll::Ready(Err(Failure::Crashed));
                        }
                        Err(error) => return Poll::Ready(Err(Failure::Io(error))),
                    }
                }
            }
        }
    }

    /// Gives the worker the content that it asked for. Ready when there is nothing to do.
    fn poll_upload(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let Some(connection) = &mut self.connection else {
                    return Poll::Ready(Err(Failure::Crashed));
                };
                let at = writing.header.len() - writing.header_left;
                let header = writing.header.get(at..).unwrap_or_default();
                let slices = [IoSlice::new(header), IoSlice::new(&writing.content)];
                let written = match ready!(connection.poll_write(cx, &slices)) {
                    Ok(0) => return Poll::Ready(Err(Failure::Crashed)),
                    Ok(written) => written,
                    // What it said before it went is read.
                    Err(_) => {
                        self.writing = None;
                        return Poll::Ready(Ok(()));
                    }
                };
                let of_header = written.min(writing.header_left);
                writing.header_left -= of_header;
                writing.content.advance(written - of_header);
                if writing.header_left == 0 && writing.content.is_empty() {
                    self.writing = None;
                }
                continue;
            }
            let Some(most) = self.pulled else {
                return Poll::Ready(Ok(()));
            };
            let mut piece = match ready!(self.poll_content(cx)) {
                Ok(piece) => piece,
                Err(error) => return Poll::Ready(Err(Failure::Content(error))),
            };
            let is_last = piece.is_none();
            let mut content = piece.take().unwrap_or_default();
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            if content.len() > most {
                self.rest = content.split_off(most);
            }
            let len = u32::try_from(content.len()).unwrap_or(u32::MAX);
            self.pulled = None;
            self.writing = Some(Writing {
                header: wire::body_header(len, is_last),
                header_left: wire::HEADER,
                content,
            });
        }
    }

    /// The next piece of content, which is not empty.
    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, BodyError>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Ok(Some(std::mem::take(&mut self.rest))));
        }
        loop {
            if let Some(bytes) = ready!(self.file.poll_read(cx))? {
                return Poll::Ready(Ok(Some(bytes)));
            }
            let Upload::OnPull(body) = &mut self.upload else {
                return Poll::Ready(Ok(None));
            };
            match ready!(body.poll_frame(cx)) {
                Some(Ok(Frame::Data(bytes))) if bytes.is_empty() => {}
                Some(Ok(Frame::Data(bytes))) => return Poll::Ready(Ok(Some(bytes))),
                Some(Ok(Frame::File(range))) => self.file = FileContent::Range(range),
                Some(Ok(Frame::Trailers(_))) | None => {
                    *body = Body::Empty;
                    return Poll::Ready(Ok(None));
                }
                Some(Err(error)) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn log(&self, level: wire::Level, text: &[u8]) {
        let Some(connection) = &self.connection else {
            return;
        };
        let line = Line {
            pool: &self.shared.plan.name,
            pid: connection.record.pid_number(),
            request: Some(&self.request),
        };
        line.write(level, text);
    }

    /// The number of the process that has the request.
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

    /// PHP is not waited for: the client does not read.
    pub(crate) fn rest(&self) {
        if let Some(connection) = &self.connection {
            connection.record.awaits(false);
        }
    }

    /// Whether its process was killed for working too long.
    pub(crate) fn is_killed(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.record.is_killed())
    }

    /// Gives the worker back after its answer.
    pub(crate) fn finish(&mut self, ending: Ending) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        if self.writing.is_some() || self.pulled.is_some() {
            // It asked for content and then did not wait for it.
            self.shared.discard(&connection);
        } else if ending.leaves {
            self.shared.signal(Signal::Leaving(connection));
        } else if ending.works_on {
            // On this thread, whose reactor knows the connection.
            tokio::spawn(work_on(Arc::clone(&self.shared), connection));
        } else if !connection.is_read_up() {
            self.shared.signal(Signal::Leaving(connection));
        } else {
            self.shared.release(connection);
        }
    }

    /// Ends the connection after an answer that broke.
    pub(crate) fn give_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            count(&self.shared.totals.crashes);
            self.shared.discard(&connection);
        }
    }
}

/// The system takes more, but a request has not that many pieces.
const MAX_SLICES: usize = 64;

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            if self.sent == Some(0) {
                self.shared.release(connection);
                return;
            }
            if self.writing.is_some() || self.sent.is_some() {
                // Half a frame cannot be taken back.
                self.shared.discard(&connection);
                return;
            }
            self.shared.signal(Signal::Abandoned {
                connection,
                pulled: self.pulled.is_some(),
            });
        }
    }
}

impl FileContent {
    /// Reads a piece; nothing once it is read.
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

/// A line for the log that a worker wrote.
pub(crate) struct Line<'a> {
    pub(crate) pool: &'a str,
    pub(crate) pid: i32,
    /// What it is about.
    pub(crate) request: Option<&'a Asked>,
}

impl Line<'_> {
    pub(crate) fn write(&self, level: wire::Level, text: &[u8]) {
        let (pool, pid) = (self.pool, self.pid);
        let (method, target) = match self.request {
            Some(asked) => (asked.method.as_str(), asked.message.target()),
            None => ("", &b""[..]),
        };
        let request_id = self.request.and_then(|asked| asked.id);
        let request_id = request_id.map(|id| format!("{id:016x}"));
        let text = text.trim_ascii_end().escape_ascii_but_lines();
        let path = target.escape_ascii();
        match level {
            wire::Level::Error => tracing::error!(pool, pid, method, %path, request_id, "{text}"),
            wire::Level::Warning => tracing::warn!(pool, pid, method, %path, request_id, "{text}"),
            wire::Level::Info => tracing::info!(pool, pid, method, %path, request_id, "{text}"),
            wire::Level::Debug => tracing::debug!(pool, pid, method, %path, request_id, "{text}"),
        }
    }
}

/// Text of an application, which may hold anything.
trait Shown {
    /// With line ends and without other control characters.
    fn escape_ascii_but_lines(&self) -> String;
}

impl Shown for [u8] {
    fn escape_ascii_but_lines(&self) -> String {
        String::from_utf8_lossy(self)
            .chars()
            .map(|c| match c {
                '\n' | '\t' => c,
                c if c.is_control() => char::REPLACEMENT_CHARACTER,
                c => c,
            })
            .collect()
    }
}
