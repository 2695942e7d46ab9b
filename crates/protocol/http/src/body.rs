//! The body of a message (RFC 9110 section 6.4), as an enum that connection drivers match on.

use std::collections::VecDeque;
use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use apus_memfd::SealedMemory;
use bytes::Bytes;

use crate::Headers;

/// The body of a request or a response.
///
/// The driver of a connection matches on it: it writes bytes together with the head, sends file ranges
/// and sealed memory by `sendfile`, and polls a stream as fast as the peer reads.
#[derive(Default)]
pub enum Body {
    /// No body.
    #[default]
    Empty,
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a memfd, which `sendfile` can send. A driver may also treat them as bytes in memory.
    Sealed(SealedMemory),
    /// A part of a file.
    File(FileRange),
    /// A stream of frames with back-pressure: no frame is polled before it can be sent.
    Stream(Box<dyn BodyStream>),
}

/// A part of an open file, not longer than the file was when it was opened.
#[derive(Clone, Debug)]
pub struct FileRange {
    /// The file. Its position is neither used nor changed.
    pub file: Arc<File>,
    /// Where the range starts, in bytes.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// A body as a stream of frames.
pub trait BodyStream {
    /// The next frame; `None` after the last one. Not polled again after `None` or an error.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>>;

    /// The bytes of data that are left, if their number is known exactly.
    fn remaining(&self) -> Option<u64> {
        None
    }

    /// Whether polling takes so much memory or work that drivers should wait until the client's window
    /// is open. A stream that returns true has data left, not only its end or trailers.
    fn waits_for_window(&self) -> bool {
        false
    }
}

/// A frame of a body.
#[derive(Debug)]
pub enum Frame {
    /// Data in memory.
    Data(Bytes),
    /// Data in a file.
    File(FileRange),
    /// The trailer section (RFC 9110 section 6.5); no data follows.
    Trailers(Headers),
}

impl Frame {
    /// The bytes of data in the frame.
    #[allow(
        clippy::len_without_is_empty,
        reason = "no caller needs to know whether a frame is empty"
    )]
    pub fn len(&self) -> u64 {
        match self {
            Self::Data(bytes) => bytes.len() as u64,
            Self::File(range) => range.len,
            Self::Trailers(_) => 0,
        }
    }
}

/// Why a body ended before it was complete.
#[derive(Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The peer closed or reset the connection: a broken network, or a client that gave up.
    Disconnected,
    /// The peer broke the framing, such as by an invalid chunk size: a faulty or hostile peer.
    Malformed,
    /// The peer sent slower than the limits allow.
    TimedOut,
    /// The body is larger than its limit.
    TooLarge,
    /// The source of the body failed.
    Source(Box<dyn std::error::Error + Send + Sync>),
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disconnected => f.write_str("the peer disconnected before the body ended"),
            Self::Malformed => f.write_str("the framing of the body is invalid"),
            Self::TimedOut => f.write_str("the body came too slowly"),
            Self::TooLarge => f.write_str("the body is larger than allowed"),
            Self::Source(error) => write!(f, "the source of the body failed: {error}"),
        }
    }
}

impl std::error::Error for BodyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Source(error) => Some(&**error),
            _ => None,
        }
    }
}

impl From<io::Error> for BodyError {
    fn from(error: io::Error) -> Self {
        Self::Source(error.into())
    }
}

impl Body {
    /// A body whose frames come from `stream`.
    pub fn stream(stream: impl BodyStream + 'static) -> Self {
        Self::Stream(Box::new(stream))
    }

    /// The length of the data in bytes, if it is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Self::Empty => Some(0),
            Self::Bytes(bytes) => Some(bytes.len() as u64),
            Self::Sealed(sealed) => Some(sealed.bytes().len() as u64),
            Self::File(range) => Some(range.len),
            Self::Stream(stream) => stream.remaining(),
        }
    }

    /// The whole body, if it is in memory.
    pub fn in_memory(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            Self::Sealed(sealed) => Some(sealed.bytes()),
            Self::Empty | Self::File(_) | Self::Stream(_) => None,
        }
    }

    /// Another handle of the same body, without a copy; `None` for a stream, which can be read only once.
    pub fn share(&self) -> Option<Self> {
        match self {
            Self::Empty => Some(Self::Empty),
            Self::Bytes(bytes) => Some(Self::Bytes(bytes.clone())),
            Self::Sealed(sealed) => Some(Self::Sealed(sealed.clone())),
            Self::File(range) => Some(Self::File(range.clone())),
            Self::Stream(_) => None,
        }
    }

    /// Whether the body is known to have no data.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// The next frame; `None` after the last one.
    ///
    /// # Errors
    /// The body is incomplete; see [`BodyError`].
    pub async fn frame(&mut self) -> Option<Result<Frame, BodyError>> {
        poll_fn(|cx| self.poll_frame(cx)).await
    }

    /// As [`Body::frame`], for code that polls.
    pub fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self {
            Self::Stream(stream) => {
                let polled = stream.poll_frame(cx);
                if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
                    *self = Self::Empty;
                }
                polled
            }
            whole => Poll::Ready(match std::mem::take(whole) {
                Self::Bytes(bytes) if !bytes.is_empty() => Some(Ok(Frame::Data(bytes))),
                Self::Sealed(sealed) if !sealed.bytes().is_empty() => {
                    Some(Ok(Frame::Data(sealed.into_bytes())))
                }
                Self::File(range) if range.len > 0 => Some(Ok(Frame::File(range))),
                _ => None,
            }),
        }
    }

    /// These frames, followed by the rest of this body, for code that has read ahead. [`Body::len`]
    /// includes the frames.
    #[must_use]
    pub fn preceded_by(self, frames: impl IntoIterator<Item = Frame>) -> Self {
        let first: VecDeque<Frame> = frames.into_iter().collect();
        if first.is_empty() {
            self
        } else {
            Self::stream(PrecededBody { first, rest: self })
        }
    }

    /// The same body, which ends with [`BodyError::TooLarge`] if it is longer than `max` bytes.
    #[must_use]
    pub fn limit(self, max: u64) -> Self {
        match &self {
            Self::Stream(_) => {}
            whole if whole.len().is_some_and(|len| len <= max) => return self,
            _ => {}
        }
        self.limit_shared(Arc::new(SharedBodyLimit::new(max)))
    }

    /// As [`Body::limit`], with a limit that can change while the body is read.
    #[must_use]
    pub fn limit_shared(self, limit: Arc<SharedBodyLimit>) -> Self {
        Self::stream(LimitedBody {
            inner: self,
            read: 0,
            limit,
        })
    }
}

/// The limit of a body, shared by the body and the layers around its request.
#[derive(Debug)]
pub struct SharedBodyLimit {
    max: AtomicU64,
    is_exceeded: AtomicBool,
}

impl SharedBodyLimit {
    /// A limit in bytes.
    pub fn new(max: u64) -> Self {
        Self {
            max: AtomicU64::new(max),
            is_exceeded: AtomicBool::new(false),
        }
    }

    /// The limit in bytes.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Changes the limit for what is still to be read.
    pub fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
    }

    /// Whether the body was longer.
    pub fn is_exceeded(&self) -> bool {
        self.is_exceeded.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("Empty"),
            Self::Bytes(bytes) => write!(f, "Bytes({} bytes)", bytes.len()),
            Self::Sealed(sealed) => write!(f, "Sealed({} bytes)", sealed.bytes().len()),
            Self::File(range) => write!(f, "File({} bytes from {})", range.len, range.offset),
            Self::Stream(stream) => write!(f, "Stream({:?} bytes)", stream.remaining()),
        }
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        if bytes.is_empty() {
            Self::Empty
        } else {
            Self::Bytes(bytes)
        }
    }
}

impl From<SealedMemory> for Body {
    fn from(sealed: SealedMemory) -> Self {
        if sealed.bytes().is_empty() {
            Self::Empty
        } else {
            Self::Sealed(sealed)
        }
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

struct PrecededBody {
    first: VecDeque<Frame>,
    rest: Body,
}

impl BodyStream for PrecededBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        match self.first.pop_front() {
            Some(frame) => Poll::Ready(Some(Ok(frame))),
            None => self.rest.poll_frame(cx),
        }
    }

    fn remaining(&self) -> Option<u64> {
        let rest = self.rest.len()?;
        let first = self.first.iter().map(Frame::len);
        rest.checked_add(first.sum())
    }
}

struct LimitedBody {
    inner: Body,
    read: u64,
    limit: Arc<SharedBodyLimit>,
}

impl LimitedBody {
    /// Whether this number of further bytes exceeds the limit.
    fn exceeds(&self, more: u64) -> bool {
        let exceeds = self.read.saturating_add(more) > self.limit.max();
        if exceeds {
            self.limit.is_exceeded.store(true, Ordering::Relaxed);
        }
        exceeds
    }
}

impl BodyStream for LimitedBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        // A body that is known to be too long is not requested from the client.
        if self.exceeds(self.inner.len().unwrap_or(0)) {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        let frame = ready!(self.inner.poll_frame(cx));
        let len = match &frame {
            Some(Ok(frame)) => frame.len(),
            _ => 0,
        };
        if self.exceeds(len) {
            return Poll::Ready(Some(Err(BodyError::TooLarge)));
        }
        self.read = self.read.saturating_add(len);
        Poll::Ready(frame)
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.len()
    }

    fn waits_for_window(&self) -> bool {
        match &self.inner {
            Body::Stream(stream) => stream.waits_for_window(),
            _ => false,
        }
    }
}
