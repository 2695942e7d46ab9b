//! Reading files without blocking a worker.

use std::io;
use std::sync::Arc;

use apus_http::FileRange;
use bytes::Bytes;
use rustix::io::{Errno, ReadWriteFlags};

use crate::buffers::PAGE;

/// Reads into `buffer` what can be had without waiting for a disk; `None` if nothing can.
pub(crate) fn read_cached(
    range: &FileRange,
    buffer: &mut [u8],
    offset: u64,
) -> Option<io::Result<usize>> {
    let mut buffers = [io::IoSliceMut::new(buffer)];
    match rustix::io::preadv2(&*range.file, &mut buffers, offset, ReadWriteFlags::NOWAIT) {
        Ok(read) => Some(Ok(read)),
        Err(Errno::AGAIN) => None,
        // A file system that cannot tell is one in memory, or is read as it is.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
            Some(rustix::io::preadv(&*range.file, &mut buffers, offset).map_err(Into::into))
        }
        Err(error) => Some(Err(error.into())),
    }
}

/// Whether the byte at `offset`, and so in all likelihood what stands before it, is in memory.
pub(crate) fn is_cached(range: &FileRange, offset: u64) -> bool {
    let mut byte = [0];
    let mut buffers = [io::IoSliceMut::new(&mut byte)];
    !matches!(
        rustix::io::preadv2(&*range.file, &mut buffers, offset, ReadWriteFlags::NOWAIT),
        Err(Errno::AGAIN)
    )
}

/// Brings a part of a file into memory, away from this thread.
pub(crate) async fn read_cold(range: &FileRange, offset: u64, len: u64) -> io::Result<()> {
    let file = Arc::clone(&range.file);
    let read = move || -> io::Result<()> {
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

/// Reads up to a page of a file away from this thread; nothing where the file ends.
pub(crate) async fn read_away(range: FileRange) -> io::Result<Bytes> {
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
