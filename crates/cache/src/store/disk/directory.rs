//! The directory of a store: who may use it, and the files in it.
//!
//! Nothing below it is reached through a symbolic link, and what is made there is for its owner
//! alone.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{self, AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::super::key::Hash;

const LOCK: &str = "lock";
const TEMPORARY: &str = "tmp";

/// An open directory that this process alone uses.
#[derive(Debug)]
pub(crate) struct Directory {
    root: OwnedFd,
    temporary: OwnedFd,
    /// Counts temporary names.
    names: AtomicU64,
    /// Holds the lock as long as it is open.
    _lock: OwnedFd,
}

/// The name of an object's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    /// The hash of its primary key: also tells the directory.
    pub(crate) primary: Hash,
    /// The hash of the variant.
    pub(crate) hash: Hash,
}

impl Name {
    /// `<primary>` for an object without variants, else `<primary>-<variant>`.
    fn file(self) -> String {
        if self.primary == self.hash {
            self.primary.to_string()
        } else {
            format!("{}-{}", self.primary, self.hash)
        }
    }

    /// The reverse of [`Name::file`].
    pub(crate) fn parse(file: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file).ok()?;
        let (primary, hash) = text.split_once('-').unwrap_or((text, text));
        let number = |text| u128::from_str_radix(text, 16).ok().map(Hash);
        let name = Self {
            primary: number(primary)?,
            hash: number(hash)?,
        };
        (name.file() == text).then_some(name)
    }

    /// Which of the 65,536 directories it is in.
    pub(crate) fn bucket(self) -> u16 {
        bucket(self.primary)
    }
}

/// Which of the 65,536 directories what is below `primary` is in.
pub(crate) fn bucket(primary: Hash) -> u16 {
    (primary.0 >> 112) as u16
}

impl Directory {
    /// Opens the directory `path`, and makes it if need be.
    ///
    /// # Errors
    /// It cannot be made or written, or another process uses it ([`io::ErrorKind::WouldBlock`]).
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = fs::open(path, flags, Mode::empty())?;
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = fs::openat(&root, LOCK, flags, private())?;
        fs::flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        let temporary = make_directory(&root, TEMPORARY)?;
        Ok(Self {
            root,
            temporary,
            names: AtomicU64::new(0),
            _lock: lock,
        })
    }

    /// A temporary name that no other file has.
    pub(crate) fn new_name(&self) -> String {
        self.names.fetch_add(1, Ordering::Relaxed).to_string()
    }

    /// A file below a temporary name that no other file has.
    pub(crate) fn create_temporary(&self, name: &str) -> io::Result<File> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::NOFOLLOW;
        let file = fs::openat(&self.temporary, name, flags | OFlags::CLOEXEC, private())?;
        Ok(File::from(file))
    }

    /// Gives a temporary file the name of an object, in the place of what has it now.
    pub(crate) fn publish(&self, temporary: &str, name: Name) -> io::Result<()> {
        let bucket = self.make_bucket(name.bucket())?;
        fs::renameat(&self.temporary, temporary, bucket, name.file())?;
        Ok(())
    }

    /// Gives a temporary file a name in the root.
    pub(crate) fn publish_in_root(&self, temporary: &str, name: &str) -> io::Result<()> {
        fs::renameat(&self.temporary, temporary, &self.root, name)?;
        fs::fsync(&self.root)?;
        Ok(())
    }

    /// Removes a temporary file.
    pub(crate) fn remove_temporary(&self, name: &str) -> io::Result<()> {
        absent_is_fine(fs::unlinkat(&self.temporary, name, AtFlags::empty()))
    }

    /// Removes all temporary files: what was being filled when a process ended.
    pub(crate) fn clear_temporary(&self) -> io::Result<()> {
        for name in list(&self.temporary)? {
            absent_is_fine(fs::unlinkat(
                &self.temporary,
                name.as_slice(),
                AtFlags::empty(),
            ))?;
        }
        Ok(())
    }

    /// Opens an object's file; `None` when there is none.
    pub(crate) fn open_object(&self, name: Name) -> io::Result<Option<File>> {
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
    pub(crate) fn remove_object(&self, name: Name) -> io::Result<()> {
        match self.bucket(name.bucket())? {
            Some(bucket) => absent_is_fine(fs::unlinkat(bucket, name.file(), AtFlags::empty())),
            None => Ok(()),
        }
    }

    /// The directories below `outer` that there are.
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

    /// The names of the objects in a directory. What is not one of them is removed.
    pub(crate) fn objects(&self, number: u16) -> io::Result<Vec<Name>> {
        let Some(bucket) = self.bucket(number)? else {
            return Ok(Vec::new());
        };
        let mut names = Vec::new();
        for file in list(&bucket)? {
            match Name::parse(&file).filter(|name| name.bucket() == number) {
                Some(name) => names.push(name),
                None => {
                    absent_is_fine(fs::unlinkat(&bucket, file.as_slice(), AtFlags::empty()))?;
                }
            }
        }
        Ok(names)
    }

    /// The bytes that are free on the file system for who is not root.
    pub(crate) fn free_bytes(&self) -> io::Result<u64> {
        let status = fs::fstatvfs(&self.root)?;
        Ok(status.f_bavail.saturating_mul(status.f_frsize))
    }

    /// Writes everything to the disk.
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

fn absent_is_fine(removed: Result<(), Errno>) -> io::Result<()> {
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
