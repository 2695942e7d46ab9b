//! An unnamed file for the part of a body that does not fit into memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use apus_http::FileRange;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use super::log_rate_limiter::LogRateLimiter;

/// The space of a file system that responses leave free: a twentieth of it, or this many bytes if that is less.
const LEFT_FREE: u64 = 1 << 30;

/// An unnamed file, which is gone when it and all its ranges are closed.
pub(super) struct Spool {
    folder: PathBuf,
    max_len: u64,
    leaves_space: bool,
    file: Option<Arc<File>>,
    len: u64,
}

impl Spool {
    /// Creates a spool for a request body, in a file of this folder, with at most `max_len` bytes.
    pub(super) fn of_request(folder: PathBuf, max_len: u64) -> Self {
        Self {
            folder,
            max_len,
            leaves_space: false,
            file: None,
            len: 0,
        }
    }

    /// Creates a spool for a response body. It writes nothing while the file system is nearly full, so that slow
    /// clients cannot fill it.
    pub(super) fn of_response(folder: PathBuf, max_len: u64) -> Self {
        Self {
            leaves_space: true,
            ..Self::of_request(folder, max_len)
        }
    }

    /// Returns the number of bytes until it is full. The last write may exceed it.
    pub(super) fn room(&self) -> u64 {
        self.max_len.saturating_sub(self.len)
    }

    /// Starts a new file if there are no ranges of the old one left. Bytes are never overwritten, because the
    /// kernel may still send them from the page cache.
    pub(super) fn renew(&mut self) {
        if self
            .file
            .as_ref()
            .is_some_and(|file| Arc::strong_count(file) == 1)
        {
            self.file = None;
            self.len = 0;
        }
    }

    /// Appends these pieces to the file, on a blocking thread.
    ///
    /// # Errors
    /// The write failed, which is logged. The pieces are returned, and the spool is full from now on.
    pub(super) async fn write(&mut self, pieces: Vec<Bytes>) -> Result<FileRange, Vec<Bytes>> {
        let (offset, leaves_space) = (self.len, self.leaves_space);
        let target = match &self.file {
            Some(file) => Ok(Arc::clone(file)),
            None => Err(self.folder.clone()),
        };
        let copies = pieces.clone();
        let written = tokio::task::spawn_blocking(move || {
            let file = match target {
                Ok(file) => file,
                Err(folder) => Arc::new(open(folder)?),
            };
            let len = copies.iter().map(|piece| piece.len() as u64).sum();
            if leaves_space && !has_space(&file, len) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            let mut at = offset;
            for piece in copies {
                file.write_all_at(&piece, at)?;
                at = at.saturating_add(piece.len() as u64);
            }
            Ok(FileRange { file, offset, len })
        });
        match written
            .await
            .map_err(io::Error::other)
            .and_then(|written| written)
        {
            Ok(range) => {
                self.len = offset.saturating_add(range.len);
                self.file = Some(Arc::clone(&range.file));
                Ok(range)
            }
            Err(error) => {
                self.max_len = 0;
                if let Some(withheld) = LOG_LIMITER.with(|limiter| limiter.allow(Instant::now())) {
                    tracing::warn!(
                        folder = %self.folder.display(), %error, withheld,
                        "cannot hold a body in a file; it is passed on as it comes"
                    );
                }
                Err(pieces)
            }
        }
    }
}

thread_local! {
    static LOG_LIMITER: LogRateLimiter = LogRateLimiter::default();
}

/// Opens an unnamed file, which no other process can open.
fn open(folder: PathBuf) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Whether enough of the file system stays free after this many more bytes; true if the file system does not
/// say.
fn has_space(file: &File, more: u64) -> bool {
    let Ok(system) = rustix::fs::fstatvfs(file) else {
        return true;
    };
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let left = (bytes(system.f_blocks) / 20).min(LEFT_FREE);
    bytes(system.f_bavail) >= more.saturating_add(left)
}
