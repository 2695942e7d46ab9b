//! `BodyPieces`: a body as pieces in memory, also where it is a file.

use std::io;
use std::os::unix::fs::FileExt;

use apus_http::{Body, BodyError, FileRange, Frame};
use bytes::Bytes;

use crate::error::StorageError;

/// The bytes that are read of a file at a time.
const PIECE: u64 = 256 * 1024;

/// Reads a body piece by piece, up to a limit.
pub(crate) struct BodyPieces {
    body: Body,
    file: Option<FileRange>,
    read: u64,
    max: u64,
}

impl BodyPieces {
    pub(crate) fn new(body: Body, max: u64) -> Self {
        Self {
            body,
            file: None,
            read: 0,
            max,
        }
    }

    /// The next piece; `None` after the last one.
    pub(crate) async fn piece(&mut self) -> Result<Option<Bytes>, StorageError> {
        loop {
            if let Some(range) = self.file.take().filter(|range| range.len > 0) {
                let piece = read(range.clone()).await;
                let piece = piece.map_err(|error| StorageError::Body(BodyError::from(error)))?;
                let length = piece.len() as u64;
                self.file = Some(FileRange {
                    offset: range.offset.saturating_add(length),
                    len: range.len.saturating_sub(length),
                    ..range
                });
                return self.counted(piece).map(Some);
            }
            match self.body.frame().await {
                None | Some(Ok(Frame::Trailers(_))) => return Ok(None),
                Some(Ok(Frame::Data(bytes))) => return self.counted(bytes).map(Some),
                Some(Ok(Frame::File(range))) => self.file = Some(range),
                Some(Err(BodyError::TooLarge)) => {
                    return Err(StorageError::TooLarge { max: self.read });
                }
                Some(Err(error)) => return Err(StorageError::Body(error)),
            }
        }
    }

    fn counted(&mut self, piece: Bytes) -> Result<Bytes, StorageError> {
        self.read = self.read.saturating_add(piece.len() as u64);
        if self.read > self.max {
            Err(StorageError::TooLarge { max: self.max })
        } else {
            Ok(piece)
        }
    }
}

/// Reads the begin of a range.
async fn read(range: FileRange) -> io::Result<Bytes> {
    run_blocking(move || {
        let length = usize::try_from(range.len.min(PIECE)).map_err(io::Error::other)?;
        let mut piece = vec![0; length];
        let read = range.file.read_at(&mut piece, range.offset)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        piece.truncate(read);
        Ok(piece.into())
    })
    .await
}

/// Runs work on the file system on a thread that may block.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(io::Error::other(error)),
    }
}
