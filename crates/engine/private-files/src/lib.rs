//! The files of a server that it must not send: its configuration, private keys, passwords and logs.
//!
//! Whoever reads or writes such a file names it once by [`register`]; the services that send files
//! consult [`registered`]. A file stays private until the process ends, also when a later
//! configuration does not name it any more: it was a secret, and probably still is one.
//!
//! # Decisions
//!
//! - **The reader registers the file, not the configuration.** So no list has to be kept in step with what the server
//!   reads, and a key in a folder that is served by mistake is not sent.
//!
//! # Tests
//!
//! `crates/tools/cli/tests/it/server/own_files.rs`, from outside.

#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

/// The private files of this process. The lock is not on the path of a request: services take the
/// set once a second, when they open their folder.
static REGISTERED: RwLock<Option<Arc<PrivateFiles>>> = RwLock::new(None);

/// Adds these files and folders to the private ones of this process.
pub fn register(files: PrivateFiles) {
    let mut registered = REGISTERED.write().unwrap_or_else(PoisonError::into_inner);
    let all = Arc::make_mut(registered.get_or_insert_default());
    for (folder, names) in files.names {
        all.names.entry(folder).or_default().extend(names);
    }
    all.folders.extend(files.folders);
    all.inodes.extend(files.inodes);
}

/// The private files of this process.
pub fn registered() -> Arc<PrivateFiles> {
    let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
    registered.clone().unwrap_or_default()
}

/// A set of files, and of folders with everything below them.
#[derive(Clone, Debug, Default)]
pub struct PrivateFiles {
    /// The names of files by their folders: as they were given, and without symbolic links.
    names: HashMap<PathBuf, HashSet<OsString>>,
    folders: HashSet<PathBuf>,
    /// The path of each file by device and inode, which finds hard links and bind mounts.
    inodes: HashMap<(u64, u64), PathBuf>,
}

/// A file that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub struct OpenedFile<'a> {
    /// Its path without symbolic links; `None` if no private file is below the folder that is served.
    pub path: Option<&'a Path>,
    /// The folder that is served, without symbolic links.
    pub root: &'a Path,
    /// Its device and inode.
    pub inode: (u64, u64),
}

impl PrivateFiles {
    /// Adds a file, which need not exist yet. Copies beside it that editors, packages and the
    /// rotation of logs make are private too, and the logs of a database.
    #[must_use]
    pub fn file(mut self, path: impl AsRef<Path>) -> Self {
        let path = absolute(path.as_ref());
        if let Ok(metadata) = fs::metadata(&path) {
            let inode = (metadata.dev(), metadata.ino());
            self.inodes.insert(inode, path.clone());
        }
        for path in [resolve(&path), resolve_folder(&path), Some(path)]
            .into_iter()
            .flatten()
        {
            if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
                let names = self.names.entry(folder.to_owned()).or_default();
                names.insert(name.to_owned());
            }
        }
        self
    }

    /// Adds a folder, which need not exist yet. A root inside of it is served: somebody chose it.
    #[must_use]
    pub fn folder(mut self, path: impl AsRef<Path>) -> Self {
        let path = absolute(path.as_ref());
        self.folders.extend(resolve(&path));
        self.folders.insert(path);
        self
    }

    /// Whether a file must not be sent.
    pub fn contains(&self, file: OpenedFile<'_>) -> bool {
        // Another file may have got the inode since it was read.
        let has_inode = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| (found.dev(), found.ino()) == file.inode)
        };
        self.inodes.get(&file.inode).is_some_and(has_inode)
            || file.path.is_some_and(|path| self.names(path, file.root))
    }

    /// Whether the path of a file is private in the folder that is served.
    pub fn names(&self, path: &Path, root: &Path) -> bool {
        let is_named = || {
            let names = self.names.get(path.parent()?)?;
            let name = path.file_name()?;
            let is_copy = |private: &OsString| is_copy(name.as_bytes(), private.as_bytes());
            Some(names.contains(name) || names.iter().any(is_copy))
        };
        let is_around = |folder: &Path| folder != root && root.starts_with(folder);
        is_named().unwrap_or(false)
            || (path.ancestors()).any(|folder| self.folders.contains(folder) && !is_around(folder))
    }

    /// The private files and folders below a folder without symbolic links, and itself.
    pub fn below<'a>(&'a self, root: &'a Path) -> impl Iterator<Item = PathBuf> + 'a {
        let files = (self.names.iter())
            .filter(move |(folder, _)| folder.starts_with(root))
            .flat_map(|(folder, names)| names.iter().map(|name| folder.join(name)));
        let folders = self
            .folders
            .iter()
            .filter(move |path| path.starts_with(root));
        files.chain(folders.cloned())
    }
}

/// The endings of copies beside a file, and of the logs of a database.
const COPIES: &[&str] = &[
    "~",
    "#",
    ".bak",
    ".backup",
    ".old",
    ".orig",
    ".save",
    ".swp",
    ".swo",
    ".swn",
    ".tmp",
    ".new",
    ".dpkg-old",
    ".dpkg-dist",
    ".dpkg-new",
    ".rpmnew",
    ".rpmsave",
    ".ucf-old",
    ".ucf-dist",
    ".gz",
    ".bz2",
    ".xz",
    ".zst",
    ".br",
    "-wal",
    "-shm",
    "-journal",
];

/// Whether `name` names a copy of the file `private` in the same folder.
fn is_copy(name: &[u8], private: &[u8]) -> bool {
    // `#name#` and `.name.swp` are made by editors.
    let hidden = name.strip_prefix(b".").or(name.strip_prefix(b"#"));
    if private == b".env" && name.starts_with(b".env.") {
        // `.env.production`.
        return true;
    }
    [Some(name), hidden].into_iter().flatten().any(|name| {
        let Some(rest) = name.strip_prefix(private) else {
            return false;
        };
        let is_ending = |ending: &&str| {
            rest.get(..ending.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(ending.as_bytes()))
        };
        // `access.log.1`, `access.log-20261127.gz`.
        let is_rotated = matches!(rest, [b'.' | b'-', b'0'..=b'9', ..]);
        is_rotated || COPIES.iter().any(is_ending)
    })
}

/// The absolute path, with `.` and `..` resolved by their names.
fn absolute(path: &Path) -> PathBuf {
    let mut absolute = PathBuf::new();
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    for part in path.components() {
        match part {
            Component::ParentDir => {
                absolute.pop();
            }
            part => absolute.push(part),
        }
    }
    absolute
}

/// The path without symbolic links, of a file that may not exist yet.
fn resolve(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok().or_else(|| resolve_folder(path))
}

/// The path with its folder without symbolic links.
fn resolve_folder(path: &Path) -> Option<PathBuf> {
    let name: &OsStr = path.file_name()?;
    let folder = path.ancestors().skip(1).find_map(|folder| {
        let rest = path.parent()?.strip_prefix(folder).ok()?;
        Some(folder.canonicalize().ok()?.join(rest))
    })?;
    Some(folder.join(name))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn inode(path: &Path) -> (u64, u64) {
        let metadata = fs::metadata(path).unwrap();
        (metadata.dev(), metadata.ino())
    }

    #[test]
    fn a_private_file_is_found_by_each_of_its_names() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("live")).unwrap();
        fs::create_dir(root.join("archive")).unwrap();
        fs::write(root.join("archive/key1.pem"), "key").unwrap();
        fs::write(root.join("page.html"), "page").unwrap();
        symlink("../archive/key1.pem", root.join("live/key.pem")).unwrap();
        fs::hard_link(root.join("archive/key1.pem"), root.join("hard")).unwrap();
        let private = PrivateFiles::default()
            .file(root.join("archive/../live/key.pem"))
            .file(root.join("later/access.log"));
        for (path, is_private) in [
            ("live/key.pem", true),
            ("archive/key1.pem", true),
            ("hard", true),
            ("page.html", false),
        ] {
            let path = root.join(path);
            let file = OpenedFile {
                path: Some(&path),
                root: &root,
                inode: inode(&path),
            };
            assert_eq!(private.contains(file), is_private, "{path:?}");
        }
        assert!(private.names(&root.join("later/access.log"), &root));
        assert!(!private.names(&root.join("other/access.log"), &root));
        assert_eq!(private.below(&root.join("later")).count(), 1);
    }

    #[test]
    fn an_inode_that_another_file_got_is_not_private() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (key, page) = (root.join("key.pem"), root.join("page.html"));
        fs::write(&key, "key").unwrap();
        let private = PrivateFiles::default().file(&key);
        let file = OpenedFile {
            path: Some(&page),
            root: &root,
            inode: inode(&key),
        };
        assert!(private.contains(file));
        fs::rename(&key, &page).unwrap();
        fs::write(&key, "new").unwrap();
        assert!(!private.contains(file), "the old key is not named any more");
    }

    #[test]
    fn copies_beside_a_private_file_are_private() {
        for (name, is_private) in [
            ("apus.toml~", true),
            ("apus.toml.bak", true),
            ("apus.toml.BAK2", true),
            ("#apus.toml#", true),
            (".apus.toml.swp", true),
            ("apus.toml.1", true),
            ("apus.toml-20261127.gz", true),
            ("apus.toml.gz", true),
            ("apus.toml.dpkg-old", true),
            ("apus.toml.html", false),
            (".env.production", false),
            ("apus.tom", false),
            ("my-apus.toml", false),
            ("apus.tomlx", false),
        ] {
            assert_eq!(is_copy(name.as_bytes(), b"apus.toml"), is_private, "{name}");
        }
        assert!(is_copy(b".env.production", b".env") && !is_copy(b".envrc", b".env"));
    }

    #[test]
    fn a_root_in_a_private_folder_is_served_and_the_folder_itself_is_not() {
        let private = PrivateFiles::default().folder("/var/lib/acme");
        let root = Path::new;
        assert!(private.names(root("/var/lib/acme/x/key"), root("/var")));
        assert!(private.names(root("/var/lib/acme/x/key"), root("/var/lib/acme")));
        assert!(!private.names(root("/var/lib/acme/x/key"), root("/var/lib/acme/x")));
        assert!(!private.names(root("/var/lib/acme2/key"), root("/var")));
    }
}
