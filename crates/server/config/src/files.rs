//! The files of a configuration, from disk or from a recording of another process.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fmt, fs};

use apus_conditions::GeoDatabase;
use apus_net::read_trusted_file;
use serde::{Deserialize, Serialize};

use super::geo_files::{self, DatabaseStamp};

/// The largest file that is read for a configuration.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// The files of a configuration. Another process can read the same configuration from it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The files of certificates and other credentials, which may change while the configuration stays.
    credentials: BTreeSet<PathBuf>,
    /// The databases of places, by what their files are: each process reads them itself.
    databases: BTreeMap<PathBuf, Option<DatabaseStamp>>,
    contents: BTreeMap<PathBuf, Result<Vec<u8>, FileError>>,
    canonical: BTreeMap<PathBuf, Result<PathBuf, FileError>>,
    matches: BTreeMap<String, Result<Vec<PathBuf>, FileError>>,
}

impl Recording {
    /// The certificates and other credentials, as their files are now.
    #[must_use]
    pub fn read_credentials(&self) -> Self {
        let contents = self
            .credentials
            .iter()
            .map(|path| (path.clone(), read(path)));
        let databases = self
            .databases
            .keys()
            .map(|path| (path.clone(), DatabaseStamp::of_settled(path)));
        Self {
            contents: contents.collect(),
            databases: databases.collect(),
            credentials: self.credentials.clone(),
            ..Self::default()
        }
    }

    /// The same files with other texts of configuration files.
    #[must_use]
    pub fn with_texts(mut self, texts: impl IntoIterator<Item = (PathBuf, String)>) -> Self {
        let texts = texts.into_iter();
        self.contents
            .extend(texts.map(|(path, text)| (path, Ok(text.into_bytes()))));
        self
    }

    /// Adds the names of the certificates and other credentials of another configuration.
    pub fn add_credentials_of(&mut self, other: &Self) {
        self.credentials.extend(other.credentials.iter().cloned());
        let databases = other.databases.iter();
        self.databases
            .extend(databases.map(|(path, stamp)| (path.clone(), *stamp)));
    }

    /// The same configuration with the certificates and other credentials that another reading found; `None` if they are
    /// the same. A file that cannot be read now stays as it was.
    pub fn with_credentials_of(&self, other: &Self) -> Option<Self> {
        let mut changed = self.clone();
        for path in &self.credentials {
            if let Some(Ok(contents)) = other.contents.get(path) {
                changed.contents.insert(path.clone(), Ok(contents.clone()));
            }
        }
        for (path, stamp) in &mut changed.databases {
            if let Some(Some(now)) = other.databases.get(path) {
                *stamp = Some(*now);
            }
        }
        (changed != *self).then_some(changed)
    }
}

impl fmt::Debug for Recording {
    /// Without the contents, which can be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording")
            .field("files", &self.contents.keys())
            .finish_non_exhaustive()
    }
}

/// Why a file cannot be read, in words: a recording takes them to another process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FileError(String);

impl FileError {
    /// What is wrong with the file.
    pub(super) fn of(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Files by name. Each is read once and cached.
#[derive(Debug, Default)]
pub struct ConfigFiles(RefCell<Recording>);

impl ConfigFiles {
    /// Recorded files; others are read from disk.
    pub fn recorded(recording: Recording) -> Self {
        Self(RefCell::new(recording))
    }

    /// The files that were read.
    pub fn into_recording(self) -> Recording {
        self.0.into_inner()
    }

    /// The bytes of a regular file of limited size.
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        let known = &mut self.0.borrow_mut().contents;
        known
            .entry(path.to_owned())
            .or_insert_with(|| read(path))
            .clone()
    }

    /// As [`Self::read`], of a certificate or another credential.
    pub(super) fn read_credential(&self, path: &Path) -> Result<Vec<u8>, FileError> {
        self.0.borrow_mut().credentials.insert(path.to_owned());
        self.read(path)
    }

    /// A database of places.
    pub(super) fn geo_database(&self, path: &Path) -> Result<Arc<GeoDatabase>, FileError> {
        let databases = &mut self.0.borrow_mut().databases;
        databases
            .entry(path.to_owned())
            .or_insert_with(|| DatabaseStamp::of(path));
        geo_files::geo_database(path).map_err(|error| FileError(reason(&error)))
    }

    /// The files that were read, except certificates and lists of revoked ones, which are public.
    pub(super) fn secrets(&self) -> Vec<PathBuf> {
        let is_public = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let is_certified = ["-----BEGIN CERTIFICATE", "-----BEGIN X509 CRL"]
                .iter()
                .any(|label| text.contains(label));
            is_certified && !text.contains("PRIVATE KEY-----")
        };
        let recording = self.0.borrow();
        let secrets = recording.contents.iter().filter(|(_, read)| match read {
            Ok(bytes) => !is_public(bytes),
            Err(_) => true,
        });
        secrets.map(|(path, _)| path.clone()).collect()
    }

    /// The path without symbolic links.
    pub(super) fn canonicalize(&self, path: &Path) -> Result<PathBuf, FileError> {
        let known = &mut self.0.borrow_mut().canonical;
        known
            .entry(path.to_owned())
            .or_insert_with(|| fs::canonicalize(path).map_err(|error| FileError(reason(&error))))
            .clone()
    }

    /// The files that a pattern means, in order.
    pub(super) fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, FileError> {
        let known = &mut self.0.borrow_mut().matches;
        known
            .entry(pattern.to_owned())
            .or_insert_with(|| {
                glob::glob(pattern)
                    .map(|paths| paths.filter_map(Result::ok).collect())
                    .map_err(|error| FileError::of(error.msg))
            })
            .clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    read_trusted_file(path, MAX_FILE).map_err(|error| FileError(reason(&error)))
}

/// The message of a file system error, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::IsADirectory => "it is a folder, expected a file".to_owned(),
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        // Others have their own reason.
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => {
            "permission was denied".to_owned()
        }
        _ => error.to_string(),
    }
}

/// Whether `path` is not a folder. A folder that this user cannot reach counts as one.
pub(super) fn is_no_folder(path: &Path) -> bool {
    match fs::metadata(path) {
        Ok(found) => !found.is_dir(),
        Err(error) => error.kind() != io::ErrorKind::PermissionDenied,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recording(files: &[(&str, Result<&str, &str>)], credentials: &[&str]) -> Recording {
        let contents = files.iter().map(|(path, contents)| {
            let contents = contents.map(|text| text.into()).map_err(FileError::of);
            (PathBuf::from(path), contents)
        });
        Recording {
            credentials: credentials.iter().map(PathBuf::from).collect(),
            contents: contents.collect(),
            ..Recording::default()
        }
    }

    #[test]
    fn changed_credentials_are_taken_and_the_configuration_stays() {
        let old = recording(
            &[("apus.toml", Ok("1")), ("cert.pem", Ok("1"))],
            &["cert.pem"],
        );
        assert_eq!(old.with_credentials_of(&old), None);
        let edited = recording(
            &[("apus.toml", Ok("2")), ("cert.pem", Ok("1"))],
            &["cert.pem"],
        );
        assert_eq!(old.with_credentials_of(&edited), None);
        let renewed = recording(&[("apus.toml", Ok("2")), ("cert.pem", Ok("2"))], &[]);
        let expected = recording(
            &[("apus.toml", Ok("1")), ("cert.pem", Ok("2"))],
            &["cert.pem"],
        );
        assert_eq!(old.with_credentials_of(&renewed), Some(expected));
        for gone in [
            recording(&[("cert.pem", Err("gone"))], &[]),
            Recording::default(),
        ] {
            assert_eq!(old.with_credentials_of(&gone), None);
        }
    }
}
