//! The root folder, and opening paths that never lead outside of it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How long information from the file system counts as current.
pub const REVALIDATE: Duration = Duration::from_secs(1);

/// A file that was changed more recently may change again without a trace in its metadata, whose
/// clock has a coarse resolution.
const SETTLED: Duration = Duration::from_secs(2);

/// Where symbolic links below the root may lead.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// Nowhere: a path through one is not found.
    Refuse,
    /// To anything below the root.
    #[default]
    Inside,
    /// Anywhere. Only for trees that nobody but the operator can write to.
    Follow,
}

/// The root, which may be a symbolic link that a release swaps.
pub struct Tree {
    root: PathBuf,
    symlinks: Symlinks,
    current: RefCell<Option<(Instant, Arc<RootFolder>)>>,
}

impl Tree {
    /// The folder that is the root, which may not exist yet.
    pub fn new(root: PathBuf, symlinks: Symlinks) -> Self {
        Self {
            root,
            symlinks,
            current: RefCell::default(),
        }
    }

    /// The root as it was at most a second ago.
    pub fn root(&self, now: Instant) -> rustix::io::Result<Arc<RootFolder>> {
        let mut current = self.current.borrow_mut();
        if let Some((opened, root)) = &*current
            && now.saturating_duration_since(*opened) < REVALIDATE
        {
            return Ok(Arc::clone(root));
        }
        *current = None;
        let root = Arc::new(RootFolder {
            fd: openat(rustix::fs::CWD, &self.root, DIRECTORY, Mode::empty())?,
            path: self.root.clone(),
            symlinks: self.symlinks,
        });
        *current = Some((now, Arc::clone(&root)));
        Ok(root)
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// `NONBLOCK`, because a FIFO would block the worker.
const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// An open root folder.
pub struct RootFolder {
    fd: OwnedFd,
    path: PathBuf,
    symlinks: Symlinks,
}

impl RootFolder {
    /// Opens `path`, which is relative to the root and in normal form; the empty path is the root
    /// itself.
    pub(crate) fn open(&self, path: &[u8]) -> rustix::io::Result<FileHandle> {
        let fd = match self.open_with(path, READ) {
            // A folder may be searchable but not readable.
            Err(Errno::ACCESS) => match self.open_with(path, OFlags::PATH | OFlags::CLOEXEC) {
                Ok(fd) => fd,
                Err(_) => return Err(Errno::ACCESS),
            },
            opened => opened?,
        };
        let file = File::from(fd);
        let metadata = file
            .metadata()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        Ok(FileHandle { file, metadata })
    }

    /// The metadata of `path`. The file need not be readable.
    pub fn metadata(&self, path: &[u8]) -> rustix::io::Result<Metadata> {
        let fd = self.open_with(path, OFlags::PATH | OFlags::CLOEXEC)?;
        let metadata = File::from(fd).metadata();
        metadata.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
    }

    fn open_with(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.is_empty() { &b"."[..] } else { path };
        let resolve = match self.symlinks {
            Symlinks::Refuse => ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            Symlinks::Inside => ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS,
            Symlinks::Follow => ResolveFlags::NO_MAGICLINKS,
        };
        // EAGAIN: a concurrent rename prevented the kernel from checking the path.
        let mut attempts = 0..4;
        loop {
            match openat2(&self.fd, path, flags, Mode::empty(), resolve) {
                Err(Errno::AGAIN | Errno::INTR) if attempts.next().is_some() => {}
                Err(Errno::XDEV) if self.symlinks == Symlinks::Inside => {
                    // An absolute link, which may lead to below the root.
                    return self.open_canonical(path, flags);
                }
                // Not supported by this kernel, or forbidden by a sandbox.
                Err(Errno::NOSYS | Errno::PERM) => return self.open_canonical(path, flags),
                opened => return opened,
            }
        }
    }

    /// Opens the canonical form of `path` if it is below the root, without following any link, so
    /// that no link can be swapped between the check and the opening.
    fn open_canonical(&self, path: &[u8], flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let errno = |error: std::io::Error| Errno::from_io_error(&error).unwrap_or(Errno::NOENT);
        let path = Path::new(OsStr::from_bytes(path));
        let target = self.path.join(path).canonicalize().map_err(errno)?;
        let root = match self.symlinks {
            Symlinks::Follow => PathBuf::from("/"),
            Symlinks::Refuse | Symlinks::Inside => self.path.canonicalize().map_err(errno)?,
        };
        let below = target.strip_prefix(&root).map_err(|_| Errno::XDEV)?;
        let is_same = below.components().eq(path
            .components()
            .filter(|part| !matches!(part, Component::CurDir)));
        if self.symlinks == Symlinks::Refuse && !is_same {
            return Err(Errno::LOOP);
        }
        let mut folder = openat(rustix::fs::CWD, &root, DIRECTORY, Mode::empty())?;
        let mut names = below.components().peekable();
        while let Some(name) = names.next() {
            let name = name.as_os_str();
            if names.peek().is_none() {
                return openat(&folder, name, flags | OFlags::NOFOLLOW, Mode::empty());
            }
            folder = openat(&folder, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?;
        }
        openat(&folder, ".", flags, Mode::empty())
    }
}

/// An open file or folder.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
}

/// A version of a file, as far as metadata can tell versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileIdentity {
    device: u64,
    inode: u64,
    pub(crate) len: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl FileIdentity {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Whether any later change is visible in the metadata. This depends on the change time of the
    /// inode, which cannot be set, unlike the modification time.
    pub(crate) fn is_settled(&self) -> bool {
        let changed = since_epoch(self.changed);
        SystemTime::now()
            .checked_sub(SETTLED)
            .and_then(|limit| limit.duration_since(UNIX_EPOCH).ok())
            .is_some_and(|limit| changed < limit)
    }

    /// The modification time, but never one in the future (RFC 9110 section 8.8.2.1).
    pub(crate) fn last_modified(&self) -> SystemTime {
        UNIX_EPOCH
            .checked_add(since_epoch(self.modified))
            .unwrap_or(UNIX_EPOCH)
            .min(SystemTime::now())
    }

    pub(crate) fn modified(&self) -> (i64, i64) {
        self.modified
    }
}

fn since_epoch((seconds, nanoseconds): (i64, i64)) -> Duration {
    Duration::new(
        u64::try_from(seconds).unwrap_or(0),
        u32::try_from(nanoseconds).unwrap_or(0),
    )
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn opens_only_canonical_paths_below_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("root");
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/b/file"), "x").unwrap();
        std::fs::write(folder.path().join("secret"), "s").unwrap();
        symlink(root.join("a/b/file"), root.join("absolute")).unwrap();
        symlink("a/b", root.join("folder")).unwrap();
        symlink("../secret", root.join("out")).unwrap();
        symlink("/etc", root.join("etc")).unwrap();
        for (symlinks, path, opens) in [
            (Symlinks::Inside, &b"a/b/file"[..], true),
            (Symlinks::Inside, b"", true),
            (Symlinks::Inside, b"absolute", true),
            (Symlinks::Inside, b"folder/file", true),
            (Symlinks::Inside, b"out", false),
            (Symlinks::Inside, b"etc/passwd", false),
            (Symlinks::Refuse, b"a/b/file", true),
            (Symlinks::Refuse, b"absolute", false),
            (Symlinks::Refuse, b"folder/file", false),
            (Symlinks::Follow, b"out", true),
            (Symlinks::Follow, b"absolute", true),
        ] {
            let tree = Tree::new(root.clone(), symlinks);
            let root = tree.root(Instant::now()).unwrap();
            assert_eq!(root.open(path).is_ok(), opens, "{symlinks:?} {path:?}");
            let canonical = root.open_canonical(if path.is_empty() { b"." } else { path }, READ);
            assert_eq!(canonical.is_ok(), opens, "{symlinks:?} {path:?}");
        }
    }
}
