//! `Upload`: a file of a form, in memory or in a temporary file.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use apus_http::{Body, FileRange};
use bytes::{Bytes, BytesMut};

use super::UploadLimits;
use crate::multipart::PartHead;

/// The bytes that are written at a time.
const BATCH: usize = 256 * 1024;

/// A file of a form: in memory if it is short, else in a temporary file that is removed when this is
/// dropped.
#[derive(Debug)]
pub struct Upload {
    name: String,
    file_name: String,
    content_type: Option<String>,
    data: UploadData,
}

#[derive(Debug)]
enum UploadData {
    Memory(Bytes),
    File(FileRange),
}

impl Upload {
    /// The name of the form's field.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The name of the file, as the client sent it, without folders. Do not store the file under this name.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// The media type, as the client sent it.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// The length in bytes.
    pub fn len(&self) -> u64 {
        match &self.data {
            UploadData::Memory(bytes) => bytes.len() as u64,
            UploadData::File(range) => range.len,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is kept in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.data, UploadData::Memory(_))
    }

    /// Reads all of the file into memory.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub async fn bytes(&self) -> io::Result<Bytes> {
        match &self.data {
            UploadData::Memory(bytes) => Ok(bytes.clone()),
            UploadData::File(range) => {
                let range = range.clone();
                run_blocking(move || {
                    let length = usize::try_from(range.len).map_err(io::Error::other)?;
                    let mut bytes = BytesMut::zeroed(length);
                    range.file.read_exact_at(&mut bytes, range.offset)?;
                    Ok(bytes.freeze())
                })
                .await
            }
        }
    }

    /// Stores it as a new file.
    ///
    /// # Errors
    /// The file already exists, or it cannot be written. An incomplete file is removed.
    pub async fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref().to_owned();
        let data = match &self.data {
            UploadData::Memory(bytes) => UploadData::Memory(bytes.clone()),
            UploadData::File(range) => UploadData::File(range.clone()),
        };
        run_blocking(move || {
            let mut new = File::create_new(&path)?;
            let written = match data {
                UploadData::Memory(bytes) => new.write_all(&bytes),
                UploadData::File(range) => copy(&range, &mut new),
            };
            if written.is_err() {
                let _ = std::fs::remove_file(&path);
            }
            written
        })
        .await
    }

    /// A body for a response or a client request, which is sent without reading the file into memory.
    pub fn into_body(self) -> Body {
        match self.data {
            UploadData::Memory(bytes) => bytes.into(),
            UploadData::File(range) => Body::File(range),
        }
    }
}

/// The longest piece that is copied to a buffer. A small slice would keep the whole read buffer alive.
const SMALL: usize = 4096;

/// A file that is being received.
pub(super) struct UploadBuffer {
    /// The pieces that are not written yet.
    pieces: Vec<Bytes>,
    /// Small pieces behind them.
    small: BytesMut,
    /// The bytes that are not written yet.
    unwritten: usize,
    file: Option<FileRange>,
}

impl UploadBuffer {
    pub(super) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            small: BytesMut::new(),
            unwritten: 0,
            file: None,
        }
    }

    /// Adds a piece, and writes to the file if too much is in memory.
    pub(super) async fn push(&mut self, piece: Bytes, limits: &UploadLimits) -> io::Result<()> {
        self.unwritten = self.unwritten.saturating_add(piece.len());
        if piece.len() <= SMALL {
            self.small.extend_from_slice(&piece);
        } else {
            self.join_small();
            self.pieces.push(piece);
        }
        let keep = match self.file {
            None => limits.in_memory,
            Some(_) => BATCH,
        };
        if self.unwritten > keep {
            self.write(limits).await
        } else {
            Ok(())
        }
    }

    fn join_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Writes all pieces to the file.
    async fn write(&mut self, limits: &UploadLimits) -> io::Result<()> {
        self.join_small();
        let file = self.file.take();
        let folder = limits.folder.clone();
        let pieces = std::mem::take(&mut self.pieces);
        self.unwritten = 0;
        let written = run_blocking(move || {
            let mut range = match file {
                Some(range) => range,
                None => FileRange {
                    file: Arc::new(match folder {
                        Some(folder) => tempfile::tempfile_in(folder)?,
                        None => tempfile::tempfile()?,
                    }),
                    offset: 0,
                    len: 0,
                },
            };
            for piece in pieces {
                range.file.write_all_at(&piece, range.len)?;
                range.len = range.len.saturating_add(piece.len() as u64);
            }
            Ok(range)
        });
        self.file = Some(written.await?);
        Ok(())
    }

    pub(super) async fn finish(
        mut self,
        head: PartHead,
        limits: &UploadLimits,
    ) -> io::Result<Upload> {
        if self.file.is_some() && self.unwritten > 0 {
            self.write(limits).await?;
        }
        self.join_small();
        let data = match self.file {
            Some(range) => UploadData::File(range),
            None => UploadData::Memory(match &mut *self.pieces {
                [] => Bytes::new(),
                [only] => std::mem::take(only),
                several => several.concat().into(),
            }),
        };
        Ok(Upload {
            name: head.name,
            file_name: head.file_name.unwrap_or_default(),
            content_type: head.content_type,
            data,
        })
    }
}

fn copy(range: &FileRange, to: &mut File) -> io::Result<()> {
    let mut buffer = vec![0; BATCH];
    let mut at = 0;
    while at < range.len {
        let read = range
            .file
            .read_at(&mut buffer, range.offset.saturating_add(at))?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        to.write_all(bytes)?;
        at = at.saturating_add(read as u64);
    }
    Ok(())
}

/// Runs blocking work on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
