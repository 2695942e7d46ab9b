//! The configuration file as a place where a change can be written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// The file, behind any symbolic links.
pub(crate) struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    /// The file that was read with this text.
    ///
    /// # Errors
    /// It cannot be written, or has another text now.
    pub(crate) fn writable(path: &Path, text: &str) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot write {}: {error}", path.display());
        let path = fs::canonicalize(path).map_err(failed)?;
        let file = Self { path };
        file.check(text)?;
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        access(folder, Access::WRITE_OK).map_err(|error| {
            format!(
                "cannot write {}: the user of the server may not write to its folder: {error}",
                file.path.display()
            )
        })?;
        Ok(file)
    }

    fn check(&self, text: &str) -> Result<(), String> {
        let path = self.path.display();
        let now = fs::read_to_string(&self.path)
            .map_err(|error| format!("cannot read {path}: {error}"))?;
        if now != text {
            return Err(format!(
                "{path} has been changed since it was loaded: load it first, or do not write the change"
            ));
        }
        Ok(())
    }

    /// Replaces its text. After a crash or on a full disk there is the old one or the new one.
    ///
    /// # Errors
    /// It has another text than `old`, or cannot be written.
    pub(crate) fn replace(&self, old: &str, new: &str) -> Result<(), String> {
        self.check(old)?;
        let temporary = self.path.with_added_extension("apus-new");
        let written = self.write(&temporary, new);
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written.map_err(|error| format!("cannot write {}: {error}", self.path.display()))
    }

    fn write(&self, temporary: &Path, text: &str) -> io::Result<()> {
        let before = fs::metadata(&self.path)?;
        // One that a crash left behind. A link that somebody else put there is removed, and not followed.
        let _ = fs::remove_file(temporary);
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(temporary)?;
        file.write_all(text.as_bytes())?;
        let own = file.metadata()?;
        if (own.uid(), own.gid()) != (before.uid(), before.gid()) {
            fchown(&file, Some(before.uid()), Some(before.gid())).map_err(|error| {
                io::Error::new(error.kind(), format!("its owner cannot be kept: {error}"))
            })?;
        }
        file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
        file.sync_all()?;
        fs::rename(temporary, &self.path)?;
        File::open(self.path.parent().unwrap_or(Path::new("/")))?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_behind_its_link_and_keeps_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("apus.toml");
        let link = folder.path().join("link.toml");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        std::os::unix::fs::symlink("/dev/null", path.with_added_extension("apus-new")).unwrap();
        let file = ConfigFile::writable(&link, "old").unwrap();
        file.replace("old", "new").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_file_that_somebody_has_changed_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("apus.toml");
        fs::write(&path, "old").unwrap();
        let file = ConfigFile::writable(&path, "old").unwrap();
        fs::write(&path, "by hand").unwrap();
        let error = file.replace("old", "new").unwrap_err();
        assert!(error.contains("has been changed"), "{error}");
        assert!(ConfigFile::writable(&path, "old").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "by hand");
        fs::remove_file(&path).unwrap();
        assert!(ConfigFile::writable(&path, "old").is_err());
    }
}
