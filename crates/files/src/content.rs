//! Reading files into memory without blocking a worker.

use std::fs::File;
use std::hash::{DefaultHasher, Hasher};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use apus_http::Sealed;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::tree::{Identity, Opened};

/// The longest file that is kept in memory; longer ones go from file to socket in the kernel.
pub(crate) const MAX_IN_MEMORY: u64 = 512 << 10;

/// The content of a file as it was when it was opened.
#[derive(Clone)]
pub(crate) enum Content {
    Memory {
        bytes: Bytes,
        hash: u64,
        /// The same, if it is long, in a form that the kernel sends by itself.
        sealed: Option<Sealed>,
    },
    File {
        file: Arc<File>,
        len: u64,
    },
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write(&bytes);
        let hash = hasher.finish();
        let sealed = Sealed::gather(std::iter::once(&bytes[..]));
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

/// A file that was opened to be read.
pub(crate) struct Unread {
    pub(crate) file: Arc<File>,
    pub(crate) identity: Identity,
}

/// Whether reading may wait for the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Never,
    ForDisk,
}

impl Unread {
    pub(crate) fn new(opened: Opened) -> Self {
        Self {
            identity: Identity::of(&opened.metadata),
            file: Arc::new(opened.file),
        }
    }

    /// Reads the file, if it is short enough, and tells whether it stayed the same meanwhile.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if the disk would have to be waited for and must not be.
    pub(crate) fn read(&self, wait: Wait) -> io::Result<(Content, bool)> {
        let len = self.identity.len;
        if len > MAX_IN_MEMORY {
            let file = Arc::clone(&self.file);
            return Ok((Content::File { file, len }, true));
        }
        let mut content = vec![0; usize::try_from(len).unwrap_or(0)];
        let mut filled = 0_usize;
        while let Some(rest) = content.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let offset = filled as u64;
            let read = match wait {
                Wait::Never => read_cached(&self.file, rest, offset)?,
                Wait::ForDisk => match self.file.read_at(rest, offset) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    read => read?,
                },
            };
            if read == 0 {
                content.truncate(filled);
                break;
            }
            filled = filled.saturating_add(read);
        }
        let is_same = Identity::of(&self.file.metadata()?) == self.identity;
        Ok((Bytes::from(content).into(), is_same))
    }
}

/// Reads what is in the page cache.
///
/// # Errors
/// [`io::ErrorKind::WouldBlock`] if the disk would have to be waited for.
fn read_cached(file: &File, into: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut slices = [IoSliceMut::new(into)];
    match preadv2(file, &mut slices, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Ok(read),
        // The file system cannot tell what is in the cache.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::AGAIN | Errno::INTR) => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(error) => Err(error.into()),
    }
}
