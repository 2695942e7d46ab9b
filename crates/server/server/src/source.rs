//! The source of a configuration: a file, or a folder to serve.

use std::path::{Component, Path, PathBuf};
use std::{fmt, fs, io};

/// The default name of the configuration.
pub const DEFAULT_FILE: &str = "apus.toml";

/// The source of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// A configuration file.
    File(PathBuf),
    /// A folder of files.
    Folder(PathBuf),
}

impl ConfigSource {
    /// The source that `argument` names; by default `apus.toml` in the current folder if it exists,
    /// else that folder.
    ///
    /// # Errors
    /// There is no such file or folder.
    pub fn find(argument: Option<&Path>) -> Result<Self, SourceNotFound> {
        let path = match argument {
            Some(path) => path,
            None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
            None => Path::new("."),
        };
        let failed = |error| SourceNotFound {
            path: path.to_owned(),
            error,
        };
        let found = fs::metadata(path).map_err(failed)?;
        let path = absolute(path).map_err(failed)?;
        Ok(if found.is_dir() {
            Self::Folder(path)
        } else {
            Self::File(path)
        })
    }

    /// Its absolute path.
    pub fn path(&self) -> &Path {
        match self {
            Self::File(path) | Self::Folder(path) => path,
        }
    }
}

/// The absolute path. Symbolic links stay in it, so that a reload finds a release that was switched
/// by a link; only `..` is resolved.
pub(crate) fn absolute(path: &Path) -> io::Result<PathBuf> {
    let absolute: PathBuf = std::path::absolute(path)?.components().collect();
    if absolute
        .components()
        .any(|part| part == Component::ParentDir)
    {
        fs::canonicalize(absolute)
    } else {
        Ok(absolute)
    }
}

/// There is no such file or folder.
#[derive(Debug)]
pub struct SourceNotFound {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for SourceNotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; expected a folder to serve or a configuration file",
            self.path.display(),
            match self.error.kind() {
                io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
                _ => self.error.to_string(),
            }
        )
    }
}

impl std::error::Error for SourceNotFound {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distinguishes_a_folder_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        fs::write(&file, "").unwrap();
        let found = ConfigSource::find(Some(folder.path())).unwrap();
        assert_eq!(found, ConfigSource::Folder(folder.path().to_owned()));
        assert!(matches!(
            ConfigSource::find(Some(&file)).unwrap(),
            ConfigSource::File(_)
        ));
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert_eq!(ConfigSource::find(Some(&link)).unwrap().path(), link);
        let winding = folder.path().join(".").join("..").join(folder.path());
        let winding = ConfigSource::find(Some(&winding.join("site.toml"))).unwrap();
        assert_eq!(
            winding.path(),
            file,
            "one source has one path, however it is written"
        );
        let error = ConfigSource::find(Some(&folder.path().join("no"))).unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }
}
