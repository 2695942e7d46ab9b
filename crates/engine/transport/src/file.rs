//! Reads of files that do not block a worker.

use std::io;
use std::sync::Arc;

use apus_http::FileRange;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffers::PAGE;

/// Reads into `buffer` the bytes that are in memory; `None` if reading would wait for a disk.
pub fn read_cached(range: &FileRange, buffer: &mut [u8], offset: u64) -> Option<io::Result<usize>> {
    let mut buffers = [io::IoSliceMut::new(buffer)];
    match rustix::io::preadv2(&*range.file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(Ok(read)),
        Err(Errno::AGAIN) => None,
        // These file systems are in memory, or do not support the flag; a plain read has to do.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Some(rustix::io::preadv(&*range.file, &mut buffers, offset).map_err(Into::into))
        }
        Err(error) => Some(Err(error.into())),
    }
}

/// Whether the byte at `offset`, and so most likely the bytes before it, is in memory.
pub fn is_cached(range: &FileRange, offset: u64) -> bool {
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    // Errors, and file systems without the flag, count as in memory: the read that follows reports them, or has to
    // do.
    !matches!(
        rustix::io::preadv2(&*range.file, &mut buffers, offset, ReadWriteFlags::NOWAIT),
        Err(Errno::AGAIN)
    )
}

/// Reads a part of a file into memory, on another thread.
pub async fn read_cold(range: &FileRange, offset: u64, len: u64) -> io::Result<()> {
    let file = Arc::clone(&range.file);
    let read = move || -> io::Result<()> {
        // The bytes are read and dropped: `posix_fadvise` would return before they are there.
        let mut buffer = vec![0; PAGE];
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            match rustix::io::pread(&*file, &mut buffer, at)? {
                0 => break,
                read => at = at.saturating_add(read as u64),
            }
        }
        Ok(())
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)?
}

/// Reads up to a page of a file on another thread; empty at the end of the file.
pub async fn read_away(range: FileRange) -> io::Result<Bytes> {
    let len = usize::try_from(range.len).unwrap_or(usize::MAX).min(PAGE);
    let read = move || -> io::Result<Bytes> {
        let mut buffer = vec![0; len];
        let read = rustix::io::pread(&*range.file, &mut buffer, range.offset)?;
        buffer.truncate(read);
        Ok(buffer.into())
    };
    tokio::task::spawn_blocking(read)
        .await
        .map_err(io::Error::other)?
}

/// A range of a file without its first `bytes` bytes.
pub fn without_first(range: &FileRange, bytes: u64) -> FileRange {
    FileRange {
        file: Arc::clone(&range.file),
        offset: range.offset.saturating_add(bytes),
        len: range.len.saturating_sub(bytes),
    }
}
