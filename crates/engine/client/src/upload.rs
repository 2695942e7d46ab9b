//! The body of a request on its way to the origin.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use apus_codec::{fastcgi, h1};
use apus_http::{Body, BodyError, FileRange, Frame, Headers};
use apus_transport::buffers::{BufferPool, PAGE};
use apus_transport::file::{is_cached, read_cached, read_cold, without_first};
use apus_transport::{Transport, yield_to_events};
use bytes::{Buf, Bytes};
use rustix::io::Errno;

/// A chunk up to this size is copied behind its head; a larger one is written from where it is.
const MAX_COPY: usize = 4 * 1024;

/// Encoded bytes that are gathered before a write, while more are available.
const GATHER: usize = 32 * 1024;

/// How much of a file is sent before other connections are polled.
const FILE_TURN: u64 = 1024 * 1024;

/// How a body is framed.
pub(crate) trait UploadFraming {
    /// Appends the framing before `len` bytes of data, or before the first of them if one frame does not hold
    /// all. Returns how many it holds.
    fn start(&mut self, len: u64, out: &mut Vec<u8>) -> u64;

    /// Appends the framing behind data.
    fn finish(&mut self, out: &mut Vec<u8>);

    /// Appends the end of the body.
    fn end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>);
}

impl UploadFraming for h1::ClientConnection {
    fn start(&mut self, len: u64, out: &mut Vec<u8>) -> u64 {
        self.send_chunk_start(usize::try_from(len).unwrap_or(usize::MAX), out);
        len
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.send_chunk_end(out);
    }

    fn end(&mut self, trailers: Option<&Headers>, out: &mut Vec<u8>) {
        self.send_end(trailers, out);
    }
}

impl UploadFraming for fastcgi::FastCgiConnection {
    fn start(&mut self, len: u64, out: &mut Vec<u8>) -> u64 {
        let held = len.min(Self::MAX_DATA as u64);
        self.send_data_start(held as usize, out);
        held
    }

    fn finish(&mut self, _out: &mut Vec<u8>) {}

    fn end(&mut self, _trailers: Option<&Headers>, out: &mut Vec<u8>) {
        self.send_end(out);
    }
}

/// A request that is being sent.
#[derive(Default)]
pub(crate) struct RequestUpload {
    /// The encoded bytes; the first `written` of them have left.
    out: Vec<u8>,
    written: usize,
    /// Whether TLS may hold some of the written bytes until it is flushed.
    unflushed: bool,
    /// The data behind `out`.
    piece: UploadChunk,
    /// The rest of the data that the last frame did not hold.
    rest: Option<Frame>,
    body: Body,
    /// Whether any of the body was taken out of it. Bytes and files stay in it.
    taken: bool,
    /// Bytes of the body that were taken.
    body_bytes: u64,
    /// Bytes of the body still to come, if the head has a length.
    left: Option<u64>,
    state: UploadState,
    /// The read of a part of a file from its disk.
    cold: Option<Pin<Box<dyn Future<Output = io::Result<()>>>>>,
    /// Bytes that have left.
    sent: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UploadState {
    /// Waits until the origin asks for the body.
    Held,
    Flowing,
    /// All was encoded.
    #[default]
    Ended,
    /// The rest will not be sent.
    Stopped,
}

/// Data to send.
#[derive(Default)]
enum UploadChunk {
    #[default]
    None,
    Bytes(Bytes),
    File(FileRange),
    /// A part of a file in memory, and the rest of the file.
    Page(UploadPage, FileRange),
}

struct UploadPage {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Why a request is not sent to its end.
#[derive(Debug)]
pub(crate) enum UploadError {
    /// The connection to the origin failed.
    Origin(io::Error),
    /// The source of the body failed.
    Source(BodyError),
}

impl RequestUpload {
    /// A request whose head was encoded into `out`. `length` is the length of the body, if the head has one.
    pub(crate) fn new(out: Vec<u8>, body: Body, length: Option<u64>, is_held: bool) -> Self {
        Self {
            out,
            body,
            left: length,
            state: if is_held {
                UploadState::Held
            } else {
                UploadState::Flowing
            },
            ..Self::default()
        }
    }

    /// Counts bytes that were written before.
    pub(crate) fn count_sent(&mut self, bytes: usize) {
        self.sent += bytes as u64;
    }

    /// Whether all was sent, or sending was stopped.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state, UploadState::Ended | UploadState::Stopped) && self.is_flushed()
    }

    /// Whether the request was sent to its end.
    pub(crate) fn is_whole(&self) -> bool {
        self.state == UploadState::Ended && self.is_flushed()
    }

    /// Bytes that the origin may have received.
    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes of the body that were sent, or are being sent.
    pub(crate) fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether no frame is incomplete.
    pub(crate) fn is_between_frames(&self) -> bool {
        self.state != UploadState::Stopped && self.is_flushed()
    }

    /// Whether the body waits until the origin asks for it.
    pub(crate) fn is_held(&self) -> bool {
        self.state == UploadState::Held
    }

    /// Whether bytes wait until the origin takes them.
    pub(crate) fn is_blocked(&self) -> bool {
        // While a part of a file is read, the wait is for our disk.
        self.cold.is_none() && !self.is_flushed()
    }

    /// Whether no memory is held.
    #[cfg(test)]
    pub(crate) fn holds_nothing(&self) -> bool {
        self.is_flushed() && matches!(self.body, Body::Empty)
    }

    /// Starts to send a body that was held back.
    pub(crate) fn release(&mut self) {
        if self.state == UploadState::Held {
            self.state = UploadState::Flowing;
        }
    }

    /// Stops sending, and drops the source of the body.
    pub(crate) fn stop(&mut self, buffers: &BufferPool) {
        if !self.is_over() {
            self.state = UploadState::Stopped;
        }
        self.piece = UploadChunk::None;
        self.rest = None;
        self.cold = None;
        self.written = 0;
        self.unflushed = false;
        buffers.put(std::mem::take(&mut self.out));
        self.body = Body::Empty;
    }

    /// The body, if it can be sent again.
    pub(crate) fn give_back(&mut self) -> Option<Body> {
        let body = std::mem::take(&mut self.body);
        (!self.taken).then_some(body)
    }

    /// Sends as much as possible; ready when all was sent. It is `Pending` also while it waits for the source
    /// of the body, or for the origin to ask for it.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        codec: &mut impl UploadFraming,
        buffers: &BufferPool,
    ) -> Poll<Result<(), UploadError>> {
        let mut turn = FILE_TURN;
        let mut is_source_pending = false;
        loop {
            // Small chunks leave in one write. A source that has none now does not hold back those that are there.
            let can_gather = matches!(self.piece, UploadChunk::None) && self.out.len() < GATHER;
            if self.state == UploadState::Flowing && can_gather && !is_source_pending {
                match self.poll_source(cx, codec) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(UploadError::Source(error))),
                    Poll::Pending => is_source_pending = true,
                }
            }
            if self.is_written() {
                if self.unflushed {
                    ready!(transport.poll_flush(cx)).map_err(UploadError::Origin)?;
                    self.unflushed = false;
                }
                if self.out.capacity() > 0 {
                    self.written = 0;
                    buffers.put(std::mem::take(&mut self.out));
                }
                return match self.state {
                    UploadState::Ended | UploadState::Stopped => Poll::Ready(Ok(())),
                    UploadState::Held => Poll::Pending,
                    UploadState::Flowing if is_source_pending => Poll::Pending,
                    UploadState::Flowing => continue,
                };
            }
            if turn == 0 {
                yield_to_events(cx);
                return Poll::Pending;
            }
            let written = ready!(self.poll_write(cx, transport, buffers, turn))?;
            turn = turn.saturating_sub(written as u64);
            if matches!(self.piece, UploadChunk::None) {
                codec.finish(&mut self.out);
            }
        }
    }

    /// Whether nothing is pending here or in TLS.
    fn is_flushed(&self) -> bool {
        self.out.capacity() == 0 && !self.unflushed && matches!(self.piece, UploadChunk::None)
    }

    fn is_written(&self) -> bool {
        self.written >= self.out.len() && matches!(self.piece, UploadChunk::None)
    }

    /// Takes the next frame of the body and encodes it.
    fn poll_source(
        &mut self,
        cx: &mut Context<'_>,
        codec: &mut impl UploadFraming,
    ) -> Poll<Result<(), BodyError>> {
        let frame = match self.rest.take() {
            Some(rest) => Some(rest),
            None => ready!(self.poll_frame(cx))?,
        };
        Poll::Ready(match frame {
            Some(Frame::Data(mut bytes)) => {
                let held = codec.start(bytes.len() as u64, &mut self.out) as usize;
                // A record of FastCGI has a length of 16 bits, and does not hold a large chunk.
                if held < bytes.len() {
                    self.rest = Some(Frame::Data(bytes.split_off(held)));
                }
                if bytes.len() <= MAX_COPY {
                    self.out.extend_from_slice(&bytes);
                    codec.finish(&mut self.out);
                } else {
                    self.piece = UploadChunk::Bytes(bytes);
                }
                Ok(())
            }
            Some(Frame::File(mut range)) => {
                if range.len > 0 {
                    let held = codec.start(range.len, &mut self.out);
                    if held < range.len {
                        self.rest = Some(Frame::File(without_first(&range, held)));
                        range.len = held;
                    }
                    self.piece = UploadChunk::File(range);
                }
                Ok(())
            }
            Some(Frame::Trailers(trailers)) => self.end(Some(&trailers), codec),
            None => self.end(None, codec),
        })
    }

    /// The next frame of the body; `None` at its end.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Frame>, BodyError>> {
        let frame = match &mut self.body {
            Body::Stream(stream) => {
                let frame = ready!(stream.poll_frame(cx)).transpose()?;
                self.taken |= frame.is_some();
                frame
            }
            // A body that is available as a whole stays, to be sent again.
            _ if self.left == Some(0) => None,
            Body::Bytes(bytes) => Some(Frame::Data(bytes.clone())),
            Body::Sealed(sealed) => Some(Frame::Data(sealed.bytes().clone())),
            Body::File(range) => Some(Frame::File(range.clone())),
            Body::Empty => None,
        };
        match &frame {
            Some(Frame::Data(bytes)) => self.count(bytes.len() as u64)?,
            Some(Frame::File(range)) => self.count(range.len)?,
            Some(Frame::Trailers(_)) | None => {}
        }
        Poll::Ready(Ok(frame))
    }

    /// Checks the body against the length in the head.
    fn count(&mut self, bytes: u64) -> Result<(), BodyError> {
        self.body_bytes = self.body_bytes.saturating_add(bytes);
        if let Some(left) = &mut self.left {
            // The origin would read the excess as the next request (request smuggling, RFC 9112 section 11.2).
            *left = left.checked_sub(bytes).ok_or(BodyError::TooLarge)?;
        }
        Ok(())
    }

    fn end(
        &mut self,
        trailers: Option<&Headers>,
        codec: &mut impl UploadFraming,
    ) -> Result<(), BodyError> {
        // The origin would wait for the rest, or take the next request for it.
        if self.left.is_some_and(|left| left > 0) {
            return Err(BodyError::Disconnected);
        }
        codec.end(trailers, &mut self.out);
        self.state = UploadState::Ended;
        Ok(())
    }

    /// Writes some of the pending bytes; the chunk is `None` when all of it has left.
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        buffers: &BufferPool,
        most: u64,
    ) -> Poll<Result<usize, UploadError>> {
        let unwritten = self.out.get(self.written..).unwrap_or_default();
        let origin = UploadError::Origin;
        let written = match &mut self.piece {
            UploadChunk::None => ready!(transport.poll_write(cx, &[IoSlice::new(unwritten)])),
            UploadChunk::Bytes(bytes) if unwritten.is_empty() => {
                ready!(transport.poll_write(cx, &[IoSlice::new(bytes)]))
            }
            UploadChunk::Bytes(bytes) => {
                ready!(transport.poll_write(cx, &[IoSlice::new(unwritten), IoSlice::new(bytes)]))
            }
            UploadChunk::File(_) if transport.sends_files() && !unwritten.is_empty() => {
                ready!(transport.poll_write_more(cx, unwritten))
            }
            UploadChunk::File(_) if transport.sends_files() => {
                return self.poll_send_file(cx, transport, most);
            }
            UploadChunk::File(_) => {
                ready!(self.poll_read_page(cx, buffers))?;
                return Poll::Ready(Ok(0));
            }
            UploadChunk::Page(page, _) => ready!(transport.poll_write(
                cx,
                &[IoSlice::new(unwritten), IoSlice::new(page.unwritten())]
            )),
        };
        let written = written.map_err(origin)?;
        if written == 0 {
            return Poll::Ready(Err(origin(io::ErrorKind::WriteZero.into())));
        }
        self.advance(written, buffers);
        Poll::Ready(Ok(written))
    }

    /// Removes written bytes from the pending ones.
    fn advance(&mut self, written: usize, buffers: &BufferPool) {
        // Bytes that TLS holds count as well: they are encrypted, and may leave at any time.
        self.sent = self.sent.saturating_add(written as u64);
        self.unflushed = true;
        let of_out = written.min(self.out.len().saturating_sub(self.written));
        self.written += of_out;
        if self.written >= self.out.len() {
            self.out.clear();
            self.written = 0;
        }
        let of_piece = written - of_out;
        self.piece = match std::mem::take(&mut self.piece) {
            UploadChunk::Bytes(mut bytes) if of_piece < bytes.len() => {
                bytes.advance(of_piece);
                UploadChunk::Bytes(bytes)
            }
            UploadChunk::Page(mut page, rest) => {
                page.start += of_piece;
                if page.start < page.end {
                    UploadChunk::Page(page, rest)
                } else {
                    buffers.put_page(page.bytes);
                    UploadChunk::of_file(rest)
                }
            }
            UploadChunk::File(range) => UploadChunk::of_file(range),
            UploadChunk::Bytes(_) | UploadChunk::None => UploadChunk::None,
        };
    }

    /// Sends some of the file with `sendfile`.
    fn poll_send_file(
        &mut self,
        cx: &mut Context<'_>,
        transport: &mut Transport,
        most: u64,
    ) -> Poll<Result<usize, UploadError>> {
        let UploadChunk::File(range) = &mut self.piece else {
            return Poll::Ready(Ok(0));
        };
        if let Some(cold) = &mut self.cold {
            let read = ready!(cold.as_mut().poll(cx));
            self.cold = None;
            read.map_err(source)?;
        } else {
            let len = range.len.min(most);
            // `sendfile` would block every connection of this worker while it reads from the disk.
            if !is_cached(range, (range.offset + len).saturating_sub(1)) {
                self.cold = Some(read_into_cache(range.clone(), len));
                // The read begins when it is polled, which the next poll of this task does.
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
        let len = range.len.min(most);
        let sent = ready!(transport.poll_send_file(cx, &range.file, range.offset, len));
        // `sendfile` reports the errors of both ends alike; only the file causes these three.
        let sent = sent.map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::IO | Errno::INVAL | Errno::OVERFLOW) => source(error),
            _ => UploadError::Origin(error),
        })?;
        // The file became shorter than the length in the head.
        if sent == 0 {
            return Poll::Ready(Err(UploadError::Source(BodyError::Disconnected)));
        }
        let rest = without_first(range, sent as u64);
        self.sent = self.sent.saturating_add(sent as u64);
        self.piece = UploadChunk::of_file(rest);
        Poll::Ready(Ok(sent))
    }

    /// Reads some of the file into memory, as TLS needs it.
    fn poll_read_page(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &BufferPool,
    ) -> Poll<Result<(), UploadError>> {
        let UploadChunk::File(range) = &mut self.piece else {
            return Poll::Ready(Ok(()));
        };
        if let Some(cold) = &mut self.cold {
            let read = ready!(cold.as_mut().poll(cx));
            self.cold = None;
            read.map_err(source)?;
        }
        let mut bytes = buffers.take_page();
        let len = usize::try_from(range.len)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let part = bytes.get_mut(..len).unwrap_or_default();
        let Some(read) = read_cached(range, part, range.offset) else {
            buffers.put_page(bytes);
            self.cold = Some(read_into_cache(range.clone(), PAGE as u64));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        match read.map_err(source)? {
            0 => Poll::Ready(Err(UploadError::Source(BodyError::Disconnected))),
            end => {
                let page = UploadPage {
                    bytes,
                    start: 0,
                    end,
                };
                let rest = without_first(range, end as u64);
                self.piece = UploadChunk::Page(page, rest);
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl UploadChunk {
    fn of_file(range: FileRange) -> Self {
        match range.len {
            0 => Self::None,
            _ => Self::File(range),
        }
    }
}

impl UploadPage {
    fn unwritten(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }
}

fn source(error: io::Error) -> UploadError {
    UploadError::Source(error.into())
}

fn read_into_cache(range: FileRange, len: u64) -> Pin<Box<dyn Future<Output = io::Result<()>>>> {
    Box::pin(async move { read_cold(&range, range.offset, len.min(range.len)).await })
}
