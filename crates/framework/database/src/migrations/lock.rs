//! The lock that one process has while it migrates an SQLite database, a file beside the database.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The lock, until it is dropped.
pub(super) struct MigrationLock {
    _file: File,
    path: PathBuf,
}

impl MigrationLock {
    /// Waits for the lock of a database.
    ///
    /// The file is not the database itself: the locks that a process has on that end when it closes any descriptor of it.
    pub(super) fn of(database: &Path) -> io::Result<Self> {
        let mut path = database.as_os_str().to_owned();
        path.push("-migrate");
        let path = PathBuf::from(path);
        loop {
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            file.lock()?;
            // The process that had the lock before removed the file, so others lock a new one.
            let mine = file.metadata()?;
            let is_there =
                |there: fs::Metadata| (there.dev(), there.ino()) == (mine.dev(), mine.ino());
            if fs::metadata(&path).is_ok_and(is_there) {
                return Ok(Self { _file: file, path });
            }
        }
    }
}

impl Drop for MigrationLock {
    fn drop(&mut self) {
        // If it stays, it is locked again the next time.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[test]
    fn one_has_the_lock_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let inside = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = MigrationLock::of(&database).unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
