//! Reading an object or a range of it, also while it is filled.

use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_http::{Body, BodyError, BodyStream, Frame};
use tokio::task::{JoinHandle, spawn_blocking};

use super::body::PollReadError;
use super::object::Object;
use super::object_file::{CheckedRange, FileVerification};
use super::piece::{ObjectPiece, ReadError};

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

impl Object {
    /// Reads `range` of it, or all of it.
    pub fn read(self: &Arc<Self>, range: Option<Range<u64>>) -> ObjectReader {
        ObjectReader::new(self.clone(), range.unwrap_or(0..u64::MAX))
    }

    /// `range` of it as the body of a response: bytes in memory, or an [`ObjectReader`].
    pub fn body(self: &Arc<Self>, range: Option<Range<u64>>) -> Body {
        if let Some(whole) = self.stored_body().whole() {
            return whole.body(range);
        }
        Body::stream(self.read(range))
    }
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
