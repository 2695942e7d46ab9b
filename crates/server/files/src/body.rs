//! Reading files into memory without blocking a worker.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use apus_http::SealedMemory;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::tree::{FileHandle, FileIdentity};

/// The longest file that is cached in memory; longer ones are sent with `sendfile`.
pub(crate) const MAX_IN_MEMORY: u64 = 512 << 10;

/// The content of a file at the time when it was opened.
#[derive(Clone)]
pub(crate) enum FileBytes {
    Memory {
        bytes: Bytes,
        hash: u64,
        /// The same bytes in a sealed memfd, if they are long.
        sealed: Option<SealedMemory>,
    },
    File {
        file: Arc<File>,
        len: u64,
    },
}

impl From<Bytes> for FileBytes {
    fn from(bytes: Bytes) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let hash = hasher.finish();
        let sealed = SealedMemory::gather(std::iter::once(&bytes[..]));
        let bytes = match &sealed {
            Some(sealed) => sealed.bytes().clone(),
            None => bytes,
        };
        Self::Memory {
            bytes,
            hash,
            sealed,
        }
    }
}

/// An open file that is not read yet.
pub(crate) struct UnreadFile {
    pub(crate) file: Arc<File>,
    pub(crate) identity: FileIdentity,
}

/// Whether reading may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiskWait {
    Never,
    ForDisk,
}

impl UnreadFile {
    pub(crate) fn new(opened: FileHandle) -> Self {
        Self {
            identity: FileIdentity::of(&opened.metadata),
            file: Arc::new(opened.file),
        }
    }

    /// Reads the file, if it is short enough, and returns whether it did not change meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if `wait` forbids to wait for the disk.
    pub(crate) fn read(&self, wait: DiskWait) -> io::Result<(FileBytes, bool)> {
        let len = self.identity.len;
        if len > MAX_IN_MEMORY {
            let file = Arc::clone(&self.file);
            return Ok((FileBytes::File { file, len }, true));
        }
        let mut body = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0_usize;
        while let Some(rest) = body.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let offset = filled as u64;
            let read = match wait {
                DiskWait::Never => read_cached(&self.file, rest, offset)?,
                DiskWait::ForDisk => match self.file.read_at(rest, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                },
            };
            if read == 0 {
                body.truncate(filled);
                break;
            }
            filled = filled.saturating_add(read);
        }
        let is_same = FileIdentity::of(&self.file.metadata()?) == self.identity;
        Ok((Bytes::from(body).into(), is_same))
    }
}

/// Reads what is in the page cache.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the bytes are not in the page cache.
fn read_cached(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut slices = [IoSliceMut::new(into)];
    match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read),
        // The file system does not support it, or the bytes are not in the page cache.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::AGAIN | Errno::INTR) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}
