//! Reading an object or a range of it, also while it is filled.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_http::{BodyError, BodyStream, FileRange, Frame};
use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use super::body::PollReadError;
use super::disk::{CheckedRange, FileVerification};
use super::object::Object;

/// A piece of an object's body.
#[derive(Debug)]
pub enum ObjectPiece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File(FileRange),
}

impl ObjectPiece {
    /// Its length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a piece is never empty")]
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(range) => range.len,
        }
    }
}

/// Why a reader does not get the next piece.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReadError {
    /// The fill broke off, and the rest cannot be fetched because the object has no strong
    /// validator.
    BrokenOff,
    /// The next piece on disk is damaged. The object was removed.
    Damaged,
    /// The object cannot be stored, and this reader was too slow for the others.
    LeftBehind,
    /// No filler fills this range. The reader may continue once it was claimed with
    /// [`Object::fill`].
    Gap(Range<u64>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenOff => f.write_str("the fetch of the stored response broke off"),
            Self::Damaged => f.write_str("the stored response is damaged on disk"),
            Self::LeftBehind => f.write_str("the client read too slowly to share the response"),
            Self::Gap(gap) => write!(f, "bytes {} to {} are not stored", gap.start, gap.end),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a range of an object in order, and waits for bytes that are being filled. Until it is
/// dropped, it counts as a reader that wants the fill to continue.
///
/// The checksums of bytes on disk are verified before they are returned, a little ahead of the
/// reader, by blocking threads of the tokio runtime that polls it, unless they were verified lately,
/// for this reader or another.
#[derive(Debug)]
pub struct ObjectReader {
    object: Arc<Object>,
    id: u64,
    /// The range that is not read yet.
    range: Range<u64>,
    /// The last range on disk that was verified.
    checked: CheckedRange,
    /// The verification of the next range on disk.
    check: Option<JoinHandle<Option<CheckedRange>>>,
}

impl ObjectReader {
    pub(crate) fn new(object: Arc<Object>, range: Range<u64>) -> Self {
        let id = object.stored_body().add_reader(&range);
        Self {
            object,
            id,
            range,
            checked: CheckedRange::default(),
            check: None,
        }
    }

    /// The object that is read.
    pub fn object(&self) -> &Arc<Object> {
        &self.object
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// [`ReadError`]. After [`ReadError::Gap`] it may be called again.
    pub async fn piece(&mut self) -> Option<Result<ObjectPiece, ReadError>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// As [`ObjectReader::piece`], for poll functions.
    pub fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<ObjectPiece, ReadError>>> {
        loop {
            if self.range.is_empty() {
                return Poll::Ready(None);
            }
            if let Some(check) = &mut self.check {
                let checked = ready!(Pin::new(check).poll(cx));
                self.check = None;
                match checked {
                    Ok(Some(checked)) => self.checked = checked,
                    Ok(None) => {
                        self.object.remove_damaged();
                        return Poll::Ready(Some(Err(ReadError::Damaged)));
                    }
                    // The runtime is shutting down.
                    Err(_) => return Poll::Ready(Some(Err(ReadError::BrokenOff))),
                }
            }
            let body = self.object.stored_body();
            let polled = body.poll_read(cx, self.id, &self.range, self.checked.until);
            return Poll::Ready(match ready!(polled) {
                None => None,
                Some(Ok(piece)) => {
                    self.range.start = self.range.start.saturating_add(piece.len());
                    Some(Ok(piece))
                }
                Some(Err(PollReadError::Failed(error))) => Some(Err(error)),
                Some(Err(PollReadError::Unchecked(range))) => match body.file() {
                    Some(file) => {
                        match ready!(file.poll_verification(cx, &range, self.checked)) {
                            FileVerification::Done(checked) => self.checked = checked,
                            FileVerification::Needed(job) => {
                                self.check = Some(spawn_blocking(|| job.run()));
                            }
                        }
                        continue;
                    }
                    None => Some(Err(ReadError::BrokenOff)),
                },
            });
        }
    }

    /// The remaining bytes, once the length of the object is known.
    pub fn remaining(&self) -> Option<u64> {
        let end = match self.object.length() {
            Some(length) => self.range.end.min(length),
            None if self.range.end == u64::MAX => return None,
            None => self.range.end,
        };
        Some(end.saturating_sub(self.range.start))
    }
}

impl Drop for ObjectReader {
    fn drop(&mut self) {
        self.object.stored_body().remove_reader(self.id);
    }
}

impl BodyStream for ObjectReader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.poll_piece(cx).map(|piece| {
            Some(match piece? {
                Ok(ObjectPiece::Bytes(bytes)) => Ok(Frame::Data(bytes)),
                Ok(ObjectPiece::File(range)) => Ok(Frame::File(range)),
                Err(error) => Err(BodyError::Source(error.into())),
            })
        })
    }

    fn remaining(&self) -> Option<u64> {
        Self::remaining(self)
    }
}
