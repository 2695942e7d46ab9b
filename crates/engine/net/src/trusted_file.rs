//! Reading files for a process that may be root, in folders that other users may be able to change.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::process::geteuid;

/// The most symbolic links in a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Reads a regular file of at most `limit` bytes, as a certificate or a file of passwords. It never waits, as for the writer of a
/// named pipe.
///
/// For root, other users cannot choose the file by means of links: a link that another user owns, or that is in a folder which
/// another user can change, is followed only to files of that user, and to files in folders that this user can change; a hard
/// link in such a folder only to files of that user. Links of root in folders that only root can change lead everywhere, such
/// as the links that certbot makes.
///
/// # Errors
/// The file cannot be read, is none, or is larger, or another user may have chosen it.
pub fn read_trusted_file(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let file = if geteuid().is_root() {
        FileLookup::open(path)?
    } else {
        // Another user gains nothing by what this one could not read.
        open_regular(CWD, path, OFlags::empty())?
    };
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        Err(io::Error::new(
            io::ErrorKind::FileTooLarge,
            format!("it is larger than {} MB", limit >> 20),
        ))
    } else {
        Ok(bytes)
    }
}

/// Who, other than root, can change what a name in a folder stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameControl {
    Root,
    User(u32),
    Anyone,
}

impl NameControl {
    /// Whether a file of this user is no secret to those who control the name.
    fn may_choose(self, owner: u32) -> bool {
        match self {
            Self::Root => true,
            Self::User(user) => user == owner,
            Self::Anyone => false,
        }
    }
}

/// A folder on the way to a file.
struct OpenFolder {
    descriptor: OwnedFd,
    control: NameControl,
}

impl OpenFolder {
    fn new(descriptor: OwnedFd, parent: NameControl, top: u32) -> io::Result<Self> {
        let found = fstat(&descriptor)?;
        let is_shared = found.st_mode & 0o022 != 0;
        // In a sticky folder, names of root are safe from others.
        let is_sticky = found.st_mode & 0o1000 != 0;
        let is_of_root = [0, top].contains(&found.st_uid);
        let control = if !is_of_root {
            NameControl::User(found.st_uid)
        } else if is_shared && !is_sticky {
            NameControl::Anyone
        } else {
            parent
        };
        Ok(Self {
            descriptor,
            control,
        })
    }

    /// The root folder, and its owner.
    fn top() -> io::Result<(Self, u32)> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptor = openat(CWD, "/", flags, Mode::empty())?;
        let owner = fstat(&descriptor)?.st_uid;
        Ok((Self::new(descriptor, NameControl::Root, owner)?, owner))
    }
}

/// The look-up of a path, one name after another, so that nothing changes between check and use.
struct FileLookup {
    /// From the root on.
    folders: Vec<OpenFolder>,
    /// The names that are left.
    names: VecDeque<OsString>,
    links: usize,
    /// The owner of the root folder, who controls all names as root does: not the same user in a user namespace.
    top: u32,
    /// Those who could change links on the way.
    chosen_by: Vec<NameControl>,
}

impl FileLookup {
    fn open(path: &Path) -> io::Result<File> {
        let (folder, top) = OpenFolder::top()?;
        let mut lookup = Self {
            top,
            folders: vec![folder],
            names: VecDeque::new(),
            links: 0,
            chosen_by: Vec::new(),
        };
        lookup.put_in_front(&std::path::absolute(path)?);
        while let Some(name) = lookup.names.pop_front() {
            if name == OsStr::new("..") {
                if lookup.folders.len() > 1 {
                    lookup.folders.pop();
                }
                continue;
            }
            if let Some(file) = lookup.step(&name)? {
                return Ok(file);
            }
        }
        Err(io::ErrorKind::IsADirectory.into())
    }

    fn put_in_front(&mut self, path: &Path) {
        for component in path.components().rev() {
            match component {
                Component::Normal(name) => self.names.push_front(name.to_owned()),
                Component::ParentDir => self.names.push_front("..".into()),
                Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
            }
        }
        if path.is_absolute() {
            self.folders.truncate(1);
        }
    }

    /// Looks up one name; returns the file at the end of the path.
    fn step(&mut self, name: &OsStr) -> io::Result<Option<File>> {
        let folder = self.folders.last().ok_or_else(not_a_file)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = openat(&folder.descriptor, name, flags, Mode::empty())?;
        let facts = fstat(&found)?;
        match FileType::from_raw_mode(facts.st_mode) {
            FileType::Directory => {
                let control = folder.control;
                self.folders
                    .push(OpenFolder::new(found, control, self.top)?);
                Ok(None)
            }
            FileType::Symlink => {
                let control = if [0, self.top].contains(&facts.st_uid) {
                    folder.control
                } else {
                    NameControl::User(facts.st_uid)
                };
                self.follow(&found, control)?;
                Ok(None)
            }
            FileType::RegularFile if self.names.is_empty() => {
                let file = open_regular(&folder.descriptor, name, OFlags::NOFOLLOW)?;
                self.check(&fstat(&file)?)?;
                Ok(Some(file))
            }
            FileType::RegularFile => Err(io::ErrorKind::NotADirectory.into()),
            _ => Err(not_a_file()),
        }
    }

    fn follow(&mut self, link: &OwnedFd, control: NameControl) -> io::Result<()> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(rustix::io::Errno::LOOP.into());
        }
        if control != NameControl::Root {
            self.chosen_by.push(control);
        }
        // The link itself: an empty path.
        let target = readlinkat(link, "", Vec::new())?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        self.put_in_front(&target);
        Ok(())
    }

    /// Whether a file may be read that others may have chosen.
    fn check(&self, facts: &Stat) -> io::Result<()> {
        let owner = facts.st_uid;
        let control = self
            .folders
            .last()
            .map_or(NameControl::Anyone, |folder| folder.control);
        // Who can change the folder of the file could as well put it in the place of the link.
        let may_choose = |who: &NameControl| {
            who.may_choose(owner) || *who == control && control != NameControl::Anyone
        };
        if !self.chosen_by.iter().all(may_choose) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "a symbolic link leads to it that others than root can change, and it is not their own file: name the file \
                 itself, or let root own the link and its folder",
            ));
        }
        if facts.st_nlink > 1 && !control.may_choose(owner) {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "it has several names (hard links), and others than root can change the folder: copy the file, or let root own \
                 the folder",
            ));
        }
        Ok(())
    }
}

/// Opens a file, if it is a regular one.
fn open_regular(
    folder: impl std::os::fd::AsFd,
    path: impl rustix::path::Arg + Copy,
    more: OFlags,
) -> io::Result<File> {
    let found = rustix::fs::statat(
        folder.as_fd(),
        path,
        if more.contains(OFlags::NOFOLLOW) {
            rustix::fs::AtFlags::SYMLINK_NOFOLLOW
        } else {
            rustix::fs::AtFlags::empty()
        },
    )?;
    // To open a device can have effects.
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(not_a_file());
    }
    // It may have become something else, as a named pipe, which must not block.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | more;
    let file = File::from(openat(folder.as_fd(), path, flags, Mode::empty())?);
    match FileType::from_raw_mode(fstat(&file)?.st_mode) {
        FileType::RegularFile => Ok(file),
        _ => Err(not_a_file()),
    }
}

fn not_a_file() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it is not a file")
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};

    use super::*;

    const LIMIT: u64 = 1 << 20;
    const USER: u32 = 12_345;
    const OTHER: u32 = 54_321;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn is_read(path: &Path) -> bool {
        read_trusted_file(path, LIMIT).is_ok()
    }

    /// A folder of root with a secret, and a folder of another user beside it.
    struct Folders {
        top: tempfile::TempDir,
        secret: PathBuf,
        own: PathBuf,
    }

    impl Folders {
        /// `None` for a test that does not run as root.
        fn new() -> Option<Self> {
            if !geteuid().is_root() {
                return None;
            }
            // Its parent `/tmp` is sticky.
            let top = tempfile::tempdir().unwrap();
            mode(top.path(), 0o755);
            let secret = top.path().join("secret");
            fs::write(&secret, "secret").unwrap();
            mode(&secret, 0o600);
            let own = top.path().join("own");
            fs::create_dir(&own).unwrap();
            chown(&own, Some(USER), None).unwrap();
            Some(Self { top, secret, own })
        }

        fn link(&self, name: &str, owner: u32, target: &Path) -> PathBuf {
            let link = self.top.path().join(name);
            symlink(target, &link).unwrap();
            lchown(&link, Some(owner), None).unwrap();
            link
        }
    }

    #[test]
    fn another_user_cannot_lead_root_to_a_file_of_root_or_of_others() {
        let Some(folders) = Folders::new() else {
            return;
        };
        let their = folders.top.path().join("their");
        fs::write(&their, "x").unwrap();
        chown(&their, Some(OTHER), None).unwrap();
        for target in [&folders.secret, &their] {
            for owner in [0, USER, OTHER] {
                let link = folders.link("own/link", owner, target);
                let expected = owner == OTHER && *target == their;
                assert_eq!(is_read(&link), expected, "{target:?} {owner}");
                fs::remove_file(link).unwrap();
            }
        }
        // Not by a folder, either, and not where everybody may write.
        folders.link("own/folder", USER, folders.top.path());
        assert!(!is_read(&folders.own.join("folder/secret")));
        let open = folders.top.path().join("open");
        fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        folders.link("open/link", 0, &folders.secret);
        assert!(!is_read(&open.join("link")));
        mode(&open, 0o775);
        assert!(!is_read(&open.join("link")));
        // In a sticky folder, a link of root is safe, and one of another user is not.
        mode(&open, 0o1777);
        assert!(is_read(&open.join("link")));
        folders.link("open/other", USER, &folders.secret);
        assert!(!is_read(&open.join("other")));
        // A folder of root below one of another user.
        let below = folders.own.join("below");
        fs::create_dir(&below).unwrap();
        folders.link("own/below/link", 0, &folders.secret);
        assert!(!is_read(&below.join("link")));
        // A chain that ends well.
        folders.link("own/chain", USER, &below.join("link"));
        assert!(!is_read(&folders.own.join("chain")));
        // Hard links, where the system allows them.
        fs::hard_link(&folders.secret, folders.own.join("hard")).unwrap();
        assert!(!is_read(&folders.own.join("hard")));
    }

    #[test]
    fn links_of_root_and_files_of_users_are_read() {
        let Some(folders) = Folders::new() else {
            return;
        };
        assert!(is_read(&folders.secret));
        assert!(is_read(&folders.own.join("../secret")));
        let link = folders.link("link", 0, Path::new("secret"));
        assert!(is_read(&link));
        // As certbot has them: a folder of root with relative links.
        for name in ["live", "archive"] {
            fs::create_dir(folders.top.path().join(name)).unwrap();
            mode(&folders.top.path().join(name), 0o700);
        }
        fs::write(folders.top.path().join("archive/cert1.pem"), "x").unwrap();
        let certbot = folders.link("live/cert.pem", 0, Path::new("../archive/cert1.pem"));
        assert!(is_read(&certbot));
        // Files of the user, also by links of theirs, and a file of root in a folder of theirs.
        let mine = folders.own.join("mine");
        fs::write(&mine, "x").unwrap();
        assert!(is_read(&mine));
        // As releases of an application have them, of which the last one is current.
        for owner in [0, USER] {
            let current = folders.link("own/current", owner, Path::new("mine"));
            assert!(is_read(&current), "{owner}");
            fs::remove_file(current).unwrap();
        }
        let other = folders.link("own/current", OTHER, Path::new("mine"));
        assert!(!is_read(&other));
        chown(&mine, Some(USER), None).unwrap();
        assert!(is_read(&mine));
        let link = folders.link("own/link", USER, Path::new("mine"));
        assert!(is_read(&link));
        let link = folders.link("own/absolute", USER, &mine);
        assert!(is_read(&link));
        fs::hard_link(&mine, folders.own.join("same")).unwrap();
        assert!(is_read(&mine));
    }

    #[test]
    fn what_is_no_file_is_refused_at_once_and_so_is_a_loop_or_a_large_file() {
        let top = tempfile::tempdir().unwrap();
        let at = |name: &str| top.path().join(name);
        let pipe = at("pipe");
        rustix::fs::mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("pipe", at("link")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let wrong = [&pipe, &at("link"), &at("loop"), &at("missing"), top.path()];
        for path in wrong {
            assert!(!is_read(path), "{path:?}");
        }
        for path in [
            "/dev/null",
            "/dev/zero",
            "/proc/self/fd",
            "/",
            "/dev/watchdog",
        ] {
            assert!(!is_read(Path::new(path)), "{path}");
        }
        let file = at("file");
        for (length, expected) in [(LIMIT - 1, true), (LIMIT, true), (LIMIT + 1, false)] {
            fs::write(&file, vec![b'x'; usize::try_from(length).unwrap()]).unwrap();
            assert_eq!(is_read(&file), expected, "{length}");
        }
        let below = read_trusted_file(&file.join("x"), LIMIT).unwrap_err();
        assert_eq!(below.kind(), io::ErrorKind::NotADirectory);
        fs::write(&file, "").unwrap();
        assert!(is_read(&file));
    }
}
