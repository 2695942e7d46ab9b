//! `StorageFolder`: objects as files of a folder.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use apus_http::{Body, FileRange};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::body::{BodyPieces, run_blocking};
use crate::error::StorageError;
use crate::key::StorageKey;
use crate::object::{ObjectInfo, StoredObject};

/// The folder of files that are being written, which is hidden as keys never are.
const INCOMING: &str = ".incoming";

/// After this time, a file there was left by a process that ended.
const LEFT: Duration = Duration::from_secs(24 * 3600);

/// Objects as files. A file is written beside and then moved into its place, so that nobody sees a part of it. No
/// symbolic link is followed below the root.
pub(crate) struct StorageFolder {
    root: PathBuf,
}

/// The flags of folders on the way to a file.
const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

impl StorageFolder {
    /// Creates the folder if it is missing. It blocks for a moment.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let incoming = root.join(INCOMING);
        std::fs::create_dir_all(&incoming)?;
        for entry in std::fs::read_dir(&incoming)? {
            let entry = entry?;
            let is_left = entry.metadata()?.modified()?.elapsed().unwrap_or_default() > LEFT;
            if is_left && let Err(error) = std::fs::remove_file(entry.path()) {
                tracing::warn!(path = %entry.path().display(), %error, "an incomplete file of the storage stays");
            }
        }
        Ok(Self {
            root: root.canonicalize()?,
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) async fn put(
        &self,
        key: &StorageKey,
        mut body: BodyPieces,
    ) -> Result<ObjectInfo, StorageError> {
        let path = self
            .root
            .join(INCOMING)
            .join(format!("{:032x}", fastrand::u128(..)));
        let mut incoming = run_blocking(move || IncomingFile::create(path))
            .await
            .map_err(StorageError::Folder)?;
        while let Some(piece) = body.piece().await? {
            incoming = run_blocking(move || {
                incoming.file.write_all(&piece)?;
                Ok(incoming)
            })
            .await
            .map_err(StorageError::Folder)?;
        }
        let (root, key) = (self.root.clone(), key.clone());
        run_blocking(move || incoming.move_to(&root, &key))
            .await
            .map_err(StorageError::Folder)
    }

    pub(crate) async fn get(&self, key: &StorageKey) -> Result<Option<StoredObject>, StorageError> {
        let Some((file, info)) = self.open_file(key).await? else {
            return Ok(None);
        };
        let range = FileRange {
            file: Arc::new(file),
            offset: 0,
            len: info.bytes,
        };
        Ok(Some(StoredObject {
            info,
            body: Body::File(range),
        }))
    }

    pub(crate) async fn info(&self, key: &StorageKey) -> Result<Option<ObjectInfo>, StorageError> {
        Ok(self.open_file(key).await?.map(|(_, info)| info))
    }

    async fn open_file(
        &self,
        key: &StorageKey,
    ) -> Result<Option<(File, ObjectInfo)>, StorageError> {
        let (root, key) = (self.root.clone(), key.clone());
        let opened = run_blocking(move || {
            let Some(folder) = descend(&root, &key, false)? else {
                return Ok(None);
            };
            let (_, name) = key.split();
            // A pipe must not block the thread.
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(&folder, name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
                Err(error) => return Err(error.into()),
            };
            let metadata = file.metadata()?;
            if !metadata.is_file() {
                return Ok(None);
            }
            let info = info_of(key, &metadata)?;
            Ok(Some((file, info)))
        });
        opened.await.map_err(StorageError::Folder)
    }

    pub(crate) async fn delete(&self, key: &StorageKey) -> Result<(), StorageError> {
        let (root, key) = (self.root.clone(), key.clone());
        let deleted = run_blocking(move || {
            let Some(folder) = descend(&root, &key, false)? else {
                return Ok(());
            };
            let (_, name) = key.split();
            match rustix::fs::unlinkat(&folder, name, AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => Ok(()),
                Err(error) => Err(error.into()),
            }
        });
        deleted.await.map_err(StorageError::Folder)
    }

    /// The objects whose keys begin with a prefix and come after a key, in the order of their keys.
    pub(crate) async fn list(
        &self,
        prefix: &str,
        after: &str,
        most: usize,
    ) -> Result<Vec<ObjectInfo>, StorageError> {
        let (root, prefix, after) = (self.root.clone(), prefix.to_owned(), after.to_owned());
        let listed = run_blocking(move || {
            let mut found = BTreeMap::new();
            let mut folders = vec![String::new()];
            while let Some(folder) = folders.pop() {
                let entries = match std::fs::read_dir(root.join(&folder)) {
                    Ok(entries) => entries,
                    // Another process may have removed it.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                };
                for entry in entries {
                    let entry = entry?;
                    let Ok(name) = entry.file_name().into_string() else {
                        continue;
                    };
                    let path = match folder.as_str() {
                        "" => name,
                        folder => format!("{folder}/{name}"),
                    };
                    let Ok(key) = path.parse::<StorageKey>() else {
                        continue;
                    };
                    let metadata = match entry.metadata() {
                        Ok(metadata) => metadata,
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        Err(error) => return Err(error),
                    };
                    let may_contain = prefix.starts_with(&format!("{path}/"))
                        || format!("{path}/").starts_with(&prefix);
                    if metadata.is_dir() && may_contain {
                        folders.push(path);
                    } else if metadata.is_file() && path.starts_with(&prefix) && *path > *after {
                        found.insert(key.clone(), info_of(key, &metadata)?);
                        if found.len() > most {
                            found.pop_last();
                        }
                    }
                }
            }
            Ok(found.into_values().collect())
        });
        listed.await.map_err(StorageError::Folder)
    }

    pub(crate) async fn ping(&self) -> Result<(), StorageError> {
        let incoming = self.root.join(INCOMING);
        let checked = run_blocking(move || std::fs::metadata(incoming).map(|_| ()));
        checked.await.map_err(StorageError::Folder)
    }
}

/// Opens the folder of a key; `None` if it is missing.
fn descend(root: &Path, key: &StorageKey, creates: bool) -> io::Result<Option<OwnedFd>> {
    let mut folder: OwnedFd = File::open(root)?.into();
    for name in key.split().0 {
        if creates {
            match rustix::fs::mkdirat(&folder, name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        folder = match rustix::fs::openat(&folder, name, FOLDER, Mode::empty()) {
            Ok(folder) => folder,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) if !creates => return Ok(None),
            Err(error) => return Err(error.into()),
        };
    }
    Ok(Some(folder))
}

fn info_of(key: StorageKey, metadata: &std::fs::Metadata) -> io::Result<ObjectInfo> {
    let modified = metadata.modified()?;
    let since = modified.duration_since(SystemTime::UNIX_EPOCH);
    let nanoseconds = since.unwrap_or_default().as_nanos();
    Ok(ObjectInfo {
        key,
        bytes: metadata.len(),
        modified,
        tag: format!("{nanoseconds:x}-{:x}-{:x}", metadata.ino(), metadata.len()),
    })
}

/// A file that is being written, and is removed if it is dropped before it is in its place.
struct IncomingFile {
    file: File,
    path: PathBuf,
    is_moved: bool,
}

impl IncomingFile {
    fn create(path: PathBuf) -> io::Result<Self> {
        Ok(Self {
            file: File::create_new(&path)?,
            path,
            is_moved: false,
        })
    }

    fn move_to(mut self, root: &Path, key: &StorageKey) -> io::Result<ObjectInfo> {
        self.file.sync_all()?;
        let folder = descend(root, key, true)?.ok_or(io::ErrorKind::NotFound)?;
        let (_, name) = key.split();
        rustix::fs::renameat(rustix::fs::CWD, &self.path, folder.as_fd(), name)?;
        self.is_moved = true;
        info_of(key.clone(), &self.file.metadata()?)
    }
}

impl Drop for IncomingFile {
    fn drop(&mut self) {
        if !self.is_moved {
            // Otherwise it is removed after a day.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
