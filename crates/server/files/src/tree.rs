//! The root folder, and opening paths that never lead outside of it.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use apus_http::StatusCode;
use apus_private_files::{OpenedFile, PrivateFiles, registered};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;

/// How long information from the file system counts as current.
pub const REVALIDATE: Duration = Duration::from_secs(1);

/// A file that was changed more recently may change again without a trace in its metadata, whose
/// clock has a coarse resolution.
const SETTLED: Duration = Duration::from_secs(2);

/// The most that the two times of a file differ if nobody set them.
const SAME_CHANGE: Duration = Duration::from_secs(1);

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
    /// The open root, and when it was opened unless it is due again.
    current: RefCell<Option<(Option<Instant>, Arc<RootFolder>)>>,
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

    /// Opens the root again for the next request.
    pub(crate) fn forget(&self) {
        if let Some((opened, _)) = &mut *self.current.borrow_mut() {
            *opened = None;
        }
    }

    /// The root as it was at most a second ago.
    pub fn root(&self, now: Instant) -> rustix::io::Result<Arc<RootFolder>> {
        let mut current = self.current.borrow_mut();
        if let Some((Some(opened), root)) = &*current
            && now.saturating_duration_since(*opened) < REVALIDATE
        {
            return Ok(Arc::clone(root));
        }
        let last = current.take();
        let fd = openat(rustix::fs::CWD, &self.root, DIRECTORY, Mode::empty())?;
        let stat = rustix::fs::fstat(&fd)?;
        let root = Arc::new(RootFolder {
            inode: (stat.st_dev, stat.st_ino),
            secrets: RootSecrets::of(
                real_path(&fd, &self.root),
                last.as_ref().map(|(_, root)| &root.secrets),
            ),
            fd,
            path: self.root.clone(),
            symlinks: self.symlinks,
        });
        *current = Some((Some(now), Arc::clone(&root)));
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
    inode: (u64, u64),
    path: PathBuf,
    symlinks: Symlinks,
    secrets: RootSecrets,
}

/// The private files of the process that concern a root folder.
#[derive(Clone)]
struct RootSecrets {
    /// The path of the root without symbolic links.
    real_path: PathBuf,
    files: Arc<PrivateFiles>,
    /// Whether there are any below the root. If not, only links out of the root and hard links lead
    /// to one.
    are_below: bool,
}

impl RootSecrets {
    fn of(real_path: PathBuf, last: Option<&Self>) -> Self {
        let files = registered();
        // Comparing all names takes long on a server with many certificates.
        if let Some(last) = last
            && Arc::ptr_eq(&last.files, &files)
            && last.real_path == real_path
        {
            return last.clone();
        }
        let are_below = files.below(&real_path).next().is_some();
        Self {
            are_below,
            real_path,
            files,
        }
    }
}

/// The path of an open file without symbolic links.
fn real_path(fd: impl AsFd, path: &Path) -> PathBuf {
    let link = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::read_link(link)
        .or_else(|_| path.canonicalize())
        .unwrap_or_else(|_| path.to_owned())
}

impl RootFolder {
    /// Its device and inode.
    pub(crate) fn inode(&self) -> (u64, u64) {
        self.inode
    }

    /// Opens `path`, which is relative to the root and in normal form; the empty path is the root
    /// itself. A private file looks like a missing one.
    pub(crate) fn open(&self, path: &[u8]) -> rustix::io::Result<FileHandle> {
        let fd = match self.open_with(path, READ) {
            // A folder may be searchable but not readable.
            Err(Errno::ACCESS) => self.open_with(path, OFlags::PATH | OFlags::CLOEXEC)?,
            opened => return self.checked(File::from(opened?), path),
        };
        let found = self.checked(File::from(fd), path)?;
        if found.metadata.is_dir() {
            Ok(FileHandle {
                is_readable: false,
                ..found
            })
        } else {
            Err(Errno::ACCESS)
        }
    }

    /// The metadata of `path`. The file need not be readable.
    pub fn metadata(&self, path: &[u8]) -> rustix::io::Result<Metadata> {
        let fd = self.open_with(path, OFlags::PATH | OFlags::CLOEXEC)?;
        self.checked(File::from(fd), path)
            .map(|found| found.metadata)
    }

    /// An open file with its metadata, unless it is private.
    fn checked(&self, file: File, path: &[u8]) -> rustix::io::Result<FileHandle> {
        let metadata = file
            .metadata()
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        let secrets = &self.secrets;
        let needs_path = secrets.are_below || self.symlinks == Symlinks::Follow;
        let found = needs_path.then(|| {
            let path = Path::new(OsStr::from_bytes(path));
            (
                real_path(&file, &self.path.join(path)),
                secrets.real_path.join(path),
            )
        });
        let opened = |path| OpenedFile {
            path,
            root: &secrets.real_path,
            inode: (metadata.dev(), metadata.ino()),
        };
        let is_private = match &found {
            // A private name may be a link to a file that was replaced since.
            Some((real, named)) => {
                secrets.files.contains(opened(Some(real)))
                    || secrets.files.names(named, &secrets.real_path)
            }
            None => secrets.files.contains(opened(None)),
        };
        if is_private {
            Err(Errno::NOENT)
        } else {
            Ok(FileHandle {
                file,
                metadata,
                is_readable: true,
            })
        }
    }

    /// Which entries of an open folder are private.
    pub(crate) fn entries_of(&self, folder: &File, path: &[u8]) -> FolderSecrets<'_> {
        let path = self.path.join(OsStr::from_bytes(path));
        FolderSecrets {
            secrets: &self.secrets,
            folder: real_path(folder, &path),
        }
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

/// The status of a response about a file that cannot be opened or read.
pub fn status_of(errno: Errno) -> StatusCode {
    match errno {
        Errno::ACCESS | Errno::PERM => StatusCode::FORBIDDEN,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        // No such name, one that no file can have, a link that may not be followed, or a socket.
        Errno::NOENT
        | Errno::NOTDIR
        | Errno::NAMETOOLONG
        | Errno::ILSEQ
        | Errno::INVAL
        | Errno::LOOP
        | Errno::XDEV
        | Errno::NXIO
        | Errno::NODEV
        | Errno::STALE => StatusCode::NOT_FOUND,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The private files in one folder.
pub(crate) struct FolderSecrets<'a> {
    secrets: &'a RootSecrets,
    folder: PathBuf,
}

impl FolderSecrets<'_> {
    /// Whether the entry of this name, which is no link, is private.
    pub(crate) fn contains(&self, name: &[u8], inode: (u64, u64)) -> bool {
        let path = self.folder.join(OsStr::from_bytes(name));
        self.secrets.files.contains(OpenedFile {
            path: Some(&path),
            root: &self.secrets.real_path,
            inode,
        })
    }
}

/// An open file or folder.
pub(crate) struct FileHandle {
    pub(crate) file: File,
    pub(crate) metadata: Metadata,
    /// Whether it is open for reading; a folder may only be entered.
    pub(crate) is_readable: bool,
}

/// A version of a file, by the metadata that tell versions apart.
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

    /// A hash of what identifies the version on this machine. The device is left out: its number can
    /// be another one after a restart of the machine.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        (self.inode, self.len, self.modified, self.changed).hash(&mut hasher);
        hasher.finish()
    }

    /// Whether the modification time is the time of the last change, so that no two versions have
    /// the same. Copies and builds that set the time to an earlier one can have the time of another
    /// version.
    pub(crate) fn is_modified_when_changed(&self) -> bool {
        let (modified, changed) = (since_epoch(self.modified), since_epoch(self.changed));
        changed.abs_diff(modified) < SAME_CHANGE
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
