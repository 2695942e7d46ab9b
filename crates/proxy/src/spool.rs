//! A file without a name into which body bytes go that memory is not to hold.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use apus_http::FileRange;
use bytes::Bytes;
use rustix::fs::{Mode, OFlags};

use super::hold::Hold;
use super::log_rate::LogRate;

/// The part of a file system that responses leave to others: a twentieth, or this many bytes where that
/// is less.
const LEFT_FREE: u64 = 1 << 30;

/// A file without a name, which is gone when it and every range of it are closed.
pub(super) struct Spool {
    folder: PathBuf,
    most: u64,
    leaves_space: bool,
    file: Option<Arc<File>>,
    len: u64,
}

impl Spool {
    /// For the bytes of a request.
    pub(super) fn of_request(hold: &Hold) -> Self {
        Self {
            folder: hold.folder.clone(),
            most: hold.disk,
            leaves_space: false,
            file: None,
            len: 0,
        }
    }

    /// For the bytes of a response: it also takes nothing while the file system is nearly full, so that
    /// clients who read slowly do not take the last of it.
    pub(super) fn of_response(hold: &Hold) -> Self {
        Self {
            leaves_space: true,
            ..Self::of_request(hold)
        }
    }

    /// How many bytes it still takes. The piece that fills it may be longer.
    pub(super) fn room(&self) -> u64 {
        self.most.saturating_sub(self.len)
    }

    /// Begins a new file if nobody is left who reads the old one. Bytes are never overwritten: the kernel
    /// may still send them from the page cache.
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

    /// Writes these pieces behind what there is, away from this thread.
    ///
    /// # Errors
    /// The file system did not take them, which is logged. They are given back, and nothing more is
    /// taken.
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
                self.most = 0;
                if let Some(withheld) = RATE.with(|rate| rate.allows(Instant::now())) {
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
    static RATE: LogRate = LogRate::default();
}

/// Opens a file that nobody else can.
fn open(folder: PathBuf) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::RUSR | Mode::WUSR)?.into())
}

/// Whether so many bytes more leave enough of the file system free. One that does not tell is taken
/// as it is.
fn has_space(file: &File, more: u64) -> bool {
    let Ok(system) = rustix::fs::fstatvfs(file) else {
        return true;
    };
    let bytes = |blocks: u64| blocks.saturating_mul(system.f_frsize);
    let left = (bytes(system.f_blocks) / 20).min(LEFT_FREE);
    bytes(system.f_bavail) >= more.saturating_add(left)
}
