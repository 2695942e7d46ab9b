//! Reading an object, whole or a range of it, also while it is filled.

use std::fmt;
use std::future::poll_fn;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use apus_http::{BodyError, BodyStream, FileRange, Frame};
use bytes::Bytes;
use tokio::task::{JoinHandle, spawn_blocking};

use super::content::Unread;
use super::disk::Checked;
use super::object::Object;

/// Part of an object's content.
#[derive(Debug)]
pub enum Piece {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Bytes in a file.
    File(FileRange),
}

impl Piece {
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
    /// Who filled the object broke off, and the rest cannot be asked for: it has no strong
    /// validator.
    BrokenOff,
    /// The next piece on disk is not what was written there. The object was removed.
    Damaged,
    /// The object cannot be stored, the others who read it along had everything, and this reader
    /// was too slow.
    LeftBehind,
    /// Nobody fills this range now. The reader may go on once somebody has claimed it with
    /// [`Object::fill`].
    Gap(Range<u64>),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BrokenOff => f.write_str("the stored response broke off while it was fetched"),
            Self::Damaged => f.write_str("the stored response is damaged on disk"),
            Self::LeftBehind => f.write_str("the client read too slowly to share the response"),
            Self::Gap(gap) => write!(f, "bytes {} to {} are not stored", gap.start, gap.end),
        }
    }
}

impl std::error::Error for ReadError {}

/// Reads a range of an object in order, and waits for what is still being filled. It counts as
/// somebody who wants the fill to go on until it is dropped.
///
/// What is on disk is read and compared with its checksums before it is handed on, a little ahead of
/// the reader, by the blocking threads of the tokio runtime in which it is polled.
#[derive(Debug)]
pub struct Reader {
    object: Arc<Object>,
    id: u64,
    /// What was not read yet.
    range: Range<u64>,
    /// What was compared last of what is on disk.
    checked: Checked,
    /// What comes after it, which is being compared.
    check: Option<JoinHandle<Option<Checked>>>,
}

impl Reader {
    pub(crate) fn new(object: Arc<Object>, range: Range<u64>) -> Self {
        let id = object.content().follow(&range);
        Self {
            object,
            id,
            range,
            checked: Checked::default(),
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
    /// See [`ReadError`]; after a [`ReadError::Gap`] it may be asked again.
    pub async fn piece(&mut self) -> Option<Result<Piece, ReadError>> {
        poll_fn(|cx| self.poll_piece(cx)).await
    }

    /// As [`Reader::piece`], for code that is polled.
    pub fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Piece, ReadError>>> {
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
                    // The runtime ends.
                    Err(_) => return Poll::Ready(Some(Err(ReadError::BrokenOff))),
                }
            }
            let content = self.object.content();
            let polled = content.poll_read(cx, self.id, &self.range, self.checked.until);
            return Poll::Ready(match ready!(polled) {
                None => None,
                Some(Ok(piece)) => {
                    self.range.start = self.range.start.saturating_add(piece.len());
                    Some(Ok(piece))
                }
                Some(Err(Unread::Failed(error))) => Some(Err(error)),
                Some(Err(Unread::Unchecked(range))) => match content.file() {
                    Some(file) => {
                        self.check = Some(spawn_blocking(file.check(range, self.checked)));
                        continue;
                    }
                    None => Some(Err(ReadError::BrokenOff)),
                },
            });
        }
    }

    /// The bytes still to come, once the length of the object is known.
    pub fn remaining(&self) -> Option<u64> {
        let end = match self.object.length() {
            Some(length) => self.range.end.min(length),
            None if self.range.end == u64::MAX => return None,
            None => self.range.end,
        };
        Some(end.saturating_sub(self.range.start))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.object.content().leave(self.id);
    }
}

impl BodyStream for Reader {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        self.poll_piece(cx).map(|piece| {
            Some(match piece? {
                Ok(Piece::Bytes(bytes)) => Ok(Frame::Data(bytes)),
                Ok(Piece::File(range)) => Ok(Frame::File(range)),
                Err(error) => Err(BodyError::Source(error.into())),
            })
        })
    }

    fn remaining(&self) -> Option<u64> {
        Self::remaining(self)
    }
}
