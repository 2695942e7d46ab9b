//! What a server was told to serve: a configuration file, or a folder without one.

use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

/// The configuration that is read where none is named.
pub const DEFAULT_FILE: &str = "apus.toml";

/// What a server was told to serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// What this configuration says.
    File(PathBuf),
    /// The files in this folder.
    Folder(PathBuf),
}

impl Source {
    /// What `argument` names; without one, `apus.toml` in the current folder if it is there, else
    /// that folder.
    ///
    /// # Errors
    /// There is nothing of this name.
    pub fn find(argument: Option<&Path>) -> Result<Self, NoSource> {
        let path = match argument {
            Some(path) => path,
            None if Path::new(DEFAULT_FILE).exists() => Path::new(DEFAULT_FILE),
            None => Path::new("."),
        };
        let absolute = |error| NoSource {
            path: path.to_owned(),
            error,
        };
        let found = fs::metadata(path).map_err(absolute)?;
        let path = fs::canonicalize(path).map_err(absolute)?;
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

/// There is nothing to serve under a name.
#[derive(Debug)]
pub struct NoSource {
    path: PathBuf,
    error: io::Error,
}

impl fmt::Display for NoSource {
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

impl std::error::Error for NoSource {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_a_folder_from_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("site.toml");
        fs::write(&file, "").unwrap();
        let found = Source::find(Some(folder.path())).unwrap();
        assert_eq!(found, Source::Folder(folder.path().canonicalize().unwrap()));
        assert!(matches!(
            Source::find(Some(&file)).unwrap(),
            Source::File(_)
        ));
        let error = Source::find(Some(&folder.path().join("no"))).unwrap_err();
        assert!(error.to_string().contains("no such file"), "{error}");
    }
}
