//! The folder of what the server remembers over restarts: small files, each of which is replaced as a whole.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use apus_acme::CertificateStore;
use apus_control::socket_path;

/// The most bytes that are read of a file: more was not written by this program.
const MAX_BYTES: u64 = 64 << 20;

/// The folder of one server. It is created when something is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateFolder(PathBuf);

impl StateFolder {
    pub(crate) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The folder of all servers that this user starts.
    pub(crate) fn default_parent() -> PathBuf {
        CertificateStore::default_folder().with_file_name("state")
    }

    /// The folder by default of the server of a source, in that of all servers. Each source has its own.
    pub(crate) fn default_of(source: &Path) -> PathBuf {
        let socket = socket_path(source);
        Self::default_parent().join(socket.file_stem().unwrap_or_default())
    }

    /// Reads a file; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn read(&self, name: &str) -> io::Result<Option<Vec<u8>>> {
        let file = match File::open(self.0.join(name)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let mut contents = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut contents)?;
        Ok(Some(contents))
    }

    /// Replaces a file. After a crash or on a full disk there is the old one or the new one.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn write(&self, name: &str, contents: &[u8]) -> io::Result<()> {
        self.create()?;
        let temporary = self.0.join(format!("{name}.new"));
        let written = write_new(&temporary, contents)
            .and_then(|()| fs::rename(&temporary, self.0.join(name)))
            // The new name is durable once the folder is.
            .and_then(|()| File::open(&self.0)?.sync_all());
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Creates the folder, if it is not there.
    ///
    /// # Errors
    /// It cannot be created.
    pub(crate) fn create(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)
    }

    /// Renames a damaged file, so that it can be looked at and a new one can be written. Returns its new path.
    pub(crate) fn put_aside(&self, name: &str) -> PathBuf {
        let aside = self.0.join(format!("{name}.damaged"));
        let _ = fs::rename(self.0.join(name), &aside);
        aside
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

fn write_new(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(contents)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_and_only_its_user_can_read_it() {
        let parent = tempfile::tempdir().unwrap();
        let folder = StateFolder::new(&parent.path().join("a/b"));
        assert_eq!(folder.read("x").unwrap(), None);
        folder.write("x", b"long contents").unwrap();
        folder.write("x", b"short").unwrap();
        assert_eq!(folder.read("x").unwrap().unwrap(), b"short");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder.path("x")), 0o600);
        assert_eq!(mode(&parent.path().join("a/b")), 0o700);
        let aside = folder.put_aside("x");
        assert_eq!(fs::read(aside).unwrap(), b"short");
        assert_eq!(folder.read("x").unwrap(), None);
    }

    #[test]
    fn each_source_has_its_own_folder() {
        let of = |path: &str| StateFolder::default_of(Path::new(path));
        assert_ne!(of("/srv/a/apus.toml"), of("/srv/b/apus.toml"));
        assert_eq!(of("/srv/a/apus.toml"), of("/srv/a/apus.toml"));
        assert!(of("/srv/a/apus.toml").starts_with(StateFolder::default_parent()));
    }
}
