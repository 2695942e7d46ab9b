//! The directory of a store: its lock and its files.
//!
//! No path below it is resolved through a symbolic link, and only the owner may read what is
//! created in it.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::super::key::{KeyHash, ObjectName};

const LOCK: &str = "lock";
const TEMPORARY: &str = "tmp";

/// An open directory that only this process uses.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    temporary: OwnedFd,
    /// The number of the next temporary name.
    names: AtomicU64,
    /// The lock file, locked as long as the directory is open.
    lock: OwnedFd,
}

impl Drop for Directory {
    /// Another process may open the directory now. Closing the lock file is not enough while a child
    /// process that was just forked has a copy of the descriptor.
    fn drop(&mut self) {
        // A test failed of that beside tests that start processes: `CLOEXEC` closes the copy only at `exec`.
        let _ = fs::flock(&self.lock, FlockOperation::Unlock);
    }
}

impl ObjectName {
    /// The file name: `<primary>` for an object without variants, else `<primary>-<variant>`.
    fn file(self) -> String {
        if self.primary == self.hash {
            self.primary.to_string()
        } else {
            format!("{}-{}", self.primary, self.hash)
        }
    }

    /// Parses the result of [`ObjectName::file`].
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file).ok()?;
        let (primary, hash) = text.split_once('-').unwrap_or((text, text));
        let number = |text| u128::from_str_radix(text, 16).ok().map(KeyHash);
        let name = Self {
            primary: number(primary)?,
            hash: number(hash)?,
        };
        (name.file() == text).then_some(name)
    }

    /// Its subdirectory, out of 65,536.
    pub(crate) fn bucket(self) -> u16 {
        bucket(self.primary)
    }
}

/// The subdirectory of the objects with the primary key `primary`, out of 65,536.
pub(crate) fn bucket(primary: KeyHash) -> u16 {
    (primary.0 >> 112) as u16
}

impl Directory {
    /// Opens the directory `path`, and creates it if it is missing.
    ///
    /// # Errors
    /// It cannot be created or written, or another process uses it ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        // Through a symbolic link in its place, the server would create a file elsewhere with its own rights.
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&root, LOCK, flags, private())?;
        fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let temporary = make_directory(&root, TEMPORARY)?;
        Ok(Self {
            root,
            temporary,
            names: AtomicU64::new(0),
            lock,
        })
    }

    /// An unused temporary name.
    pub(crate) fn new_name(&self) -> String {
        self.names.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// Creates a file with a temporary name.
    pub(crate) fn create_temporary(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let file = fs::openat(&self.temporary, name, flags | OFlags::CLOEXEC, private())?;
        Ok(File::from(file))
    }

    /// Renames a temporary file to the name of an object, and replaces the file that has the name.
    pub(crate) fn publish(&self, temporary: &str, name: ObjectName) -> io::Result<()> {
        let bucket = self.make_bucket(name.bucket())?;
        fs::renameat(&self.temporary, temporary, bucket, name.file())?;
        Ok(())
    }

    /// Renames a temporary file to a name in the root.
    pub(crate) fn publish_in_root(&self, temporary: &str, name: &str) -> io::Result<()> {
        fs::renameat(&self.temporary, temporary, &self.root, name)?;
        fs::fsync(&self.root)?;
        Ok(())
    }

    /// Removes a temporary file.
    pub(crate) fn remove_temporary(&self, name: &str) -> io::Result<()> {
        ignore_not_found(fs::unlinkat(&self.temporary, name, AtFlags::empty()))
    }

    /// Removes all temporary files of the previous process.
    pub(crate) fn clear_temporary(&self) -> io::Result<()> {
        for name in list(&self.temporary)? {
            ignore_not_found(fs::unlinkat(
                &self.temporary,
                name.as_slice(),
                AtFlags::empty(),
            ))?;
        }
        Ok(())
    }

    /// Opens an object's file; `None` when there is none.
    pub(crate) fn open_object(&self, name: ObjectName) -> io::Result<Option<File>> {
        let Some(bucket) = self.bucket(name.bucket())? else {
            return Ok(None);
        };
        open_file(&bucket, &name.file())
    }

    /// Opens a file in the root; `None` when there is none.
    pub(crate) fn open_in_root(&self, name: &str) -> io::Result<Option<File>> {
        open_file(&self.root, name)
    }

    /// Removes an object's file, if there is one.
    pub(crate) fn remove_object(&self, name: ObjectName) -> io::Result<()> {
        match self.bucket(name.bucket())? {
            Some(bucket) => ignore_not_found(fs::unlinkat(bucket, name.file(), AtFlags::empty())),
            None => Ok(()),
        }
    }

    /// The existing subdirectories of `outer`.
    pub(crate) fn buckets(&self, outer: u8) -> io::Result<Vec<u16>> {
        let (name, _) = bucket_names(u16::from_be_bytes([outer, 0]));
        let names = match open_directory(&self.root, &name) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            opened => list(&opened?)?,
        };
        let inner = names.iter().filter_map(|name| {
            let inner = u8::from_str_radix(std::str::from_utf8(name).ok()?, 16).ok()?;
            Some(u16::from_be_bytes([outer, inner]))
        });
        Ok(inner.collect())
    }

    /// The names of the objects in a subdirectory. Other files are removed.
    pub(crate) fn objects(&self, number: u16) -> io::Result<Vec<ObjectName>> {
        let Some(bucket) = self.bucket(number)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for file in list(&bucket)? {
            match ObjectName::parse(&file).filter(|name| name.bucket() == number) {
                Some(name) => names.push(name),
                // Nothing else would ever remove them, and no limit counts their bytes.
                None => {
                    ignore_not_found(fs::unlinkat(&bucket, file.as_slice(), AtFlags::empty()))?;
                }
            }
        }
        Ok(names)
    }

    /// The free bytes of the file system for users other than root.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let status = fs::fstatvfs(&self.root)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    /// Writes the file system to the disk (`syncfs`).
    pub(crate) fn sync(&self) -> io::Result<()> {
        Ok(fs::syncfs(&self.root)?)
    }

    fn bucket(&self, number: u16) -> io::Result<Option<OwnedFd>> {
        let (outer, inner) = bucket_names(number);
        let outer = match open_directory(&self.root, &outer) {
            Err(Errno::NOENT) => return Ok(None),
            opened => opened?,
        };
        match open_directory(outer, &inner) {
            Err(Errno::NOENT) => Ok(None),
            opened => Ok(Some(opened?)),
        }
    }

    fn make_bucket(&self, number: u16) -> io::Result<OwnedFd> {
        if let Some(bucket) = self.bucket(number)? {
            return Ok(bucket);
        }
        let (outer, inner) = bucket_names(number);
        make_directory(make_directory(&self.root, &outer)?, &inner)
    }
}

fn bucket_names(number: u16) -> (String, String) {
    let [outer, inner] = number.to_be_bytes();
    (format!("{outer:02x}"), format!("{inner:02x}"))
}

fn private() -> Mode {
    // The files contain responses, which other users of the machine may not be allowed to see.
    Mode::RUSR | Mode::WUSR
}

fn open_directory(at: impl AsFd, name: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(at, name, flags, Mode::empty())
}

fn make_directory(at: impl AsFd, name: &str) -> io::Result<OwnedFd> {
    match fs::mkdirat(&at, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(open_directory(at, name)?),
        Err(error) => Err(error.into()),
    }
}

fn open_file(at: impl AsFd, name: &str) -> io::Result<Option<File>> {
    // Opening a named pipe in its place would wait for ever without `NONBLOCK`.
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    match fs::openat(at, name, flags, Mode::empty()) {
        Ok(file) => {
            let file = File::from(file);
            Ok(file.metadata()?.is_file().then_some(file))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn list(directory: &OwnedFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    Ok(names)
}

fn ignore_not_found(removed: Result<(), Errno>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
