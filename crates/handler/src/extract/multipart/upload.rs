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

/// What is written at a time, in bytes.
const BATCH: usize = 256 * 1024;

/// A file that was sent with a form: in memory while it is short, else in a temporary file that is gone
/// when this is dropped.
#[derive(Debug)]
pub struct Upload {
    name: String,
    file_name: String,
    content_type: Option<String>,
    content: UploadData,
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

    /// The name that the file had where it came from, without folders. It is the client's word: show it,
    /// but think of another name to store it by.
    pub fn file_name(&self) -> &str {
        &self.file_name
    }

    /// What the client says that the file is.
    pub fn content_type(&self) -> Option<&str> {
        self.content_type.as_deref()
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        match &self.content {
            UploadData::Memory(bytes) => bytes.len() as u64,
            UploadData::File(range) => range.len,
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is kept in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.content, UploadData::Memory(_))
    }

    /// All of it, read into memory.
    ///
    /// # Errors
    /// The temporary file cannot be read.
    pub async fn bytes(&self) -> io::Result<Bytes> {
        match &self.content {
            UploadData::Memory(bytes) => Ok(bytes.clone()),
            UploadData::File(range) => {
                let range = range.clone();
                aside(move || {
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
    /// There is a file of this name already, or it cannot be written; what was written of it then is
    /// removed.
    pub async fn save(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref().to_owned();
        let content = match &self.content {
            UploadData::Memory(bytes) => UploadData::Memory(bytes.clone()),
            UploadData::File(range) => UploadData::File(range.clone()),
        };
        aside(move || {
            let mut new = File::create_new(&path)?;
            let written = match content {
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

    /// The content of a response, or of a request to somebody else, which is sent without reading it
    /// into memory.
    pub fn into_body(self) -> Body {
        match self.content {
            UploadData::Memory(bytes) => bytes.into(),
            UploadData::File(range) => Body::File(range),
        }
    }
}

/// Pieces that are not longer are gathered in a buffer of their own: a few bytes would keep all of the
/// buffer alive that they were read into.
const SMALL: usize = 4096;

/// A file that is still coming.
pub(super) struct UploadBuffer {
    /// What is not in the file yet.
    pieces: Vec<Bytes>,
    /// And small pieces behind that.
    small: BytesMut,
    /// Its length.
    gathered: usize,
    file: Option<FileRange>,
}

impl UploadBuffer {
    pub(super) fn new() -> Self {
        Self {
            pieces: Vec::new(),
            small: BytesMut::new(),
            gathered: 0,
            file: None,
        }
    }

    /// Takes a piece; writes what is too much to be kept.
    pub(super) async fn push(&mut self, piece: Bytes, limits: &UploadLimits) -> io::Result<()> {
        self.gathered = self.gathered.saturating_add(piece.len());
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
        match self.gathered > keep {
            true => self.write(limits).await,
            false => Ok(()),
        }
    }

    fn join_small(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(std::mem::take(&mut self.small).freeze());
        }
    }

    /// Writes all that was gathered.
    async fn write(&mut self, limits: &UploadLimits) -> io::Result<()> {
        self.join_small();
        let known = self.file.take();
        let folder = limits.folder.clone();
        let pieces = std::mem::take(&mut self.pieces);
        self.gathered = 0;
        let written = aside(move || {
            let mut range = match known {
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
        if self.file.is_some() && self.gathered > 0 {
            self.write(limits).await?;
        }
        self.join_small();
        let content = match self.file {
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
            content,
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

/// Runs what blocks on a thread of its own kind.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
}
