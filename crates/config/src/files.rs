//! The files of a configuration, from disk or from a recording of another process.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The largest file that is read for a configuration.
const MAX_FILE: u64 = 16 * 1024 * 1024;

/// The files of a configuration. Another process can read the same configuration from it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Recording {
    contents: BTreeMap<PathBuf, Result<Vec<u8>, String>>,
    canonical: BTreeMap<PathBuf, Result<PathBuf, String>>,
    matches: BTreeMap<String, Result<Vec<PathBuf>, String>>,
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
    pub(super) fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let known = &mut self.0.borrow_mut().contents;
        known
            .entry(path.to_owned())
            .or_insert_with(|| read(path))
            .clone()
    }

    /// The path without symbolic links.
    pub(super) fn canonicalize(&self, path: &Path) -> Result<PathBuf, String> {
        let known = &mut self.0.borrow_mut().canonical;
        known
            .entry(path.to_owned())
            .or_insert_with(|| fs::canonicalize(path).map_err(|error| reason(&error)))
            .clone()
    }

    /// The files that a pattern means, in order.
    pub(super) fn matches(&self, pattern: &str) -> Result<Vec<PathBuf>, String> {
        let known = &mut self.0.borrow_mut().matches;
        known
            .entry(pattern.to_owned())
            .or_insert_with(|| {
                glob::glob(pattern)
                    .map(|paths| paths.filter_map(Result::ok).collect())
                    .map_err(|error| error.msg.to_owned())
            })
            .clone()
    }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let open = || -> io::Result<Result<Vec<u8>, String>> {
        // Checked before the file is opened, because opening a named pipe blocks.
        if !fs::metadata(path)?.is_file() {
            return Ok(Err("it is not a file".to_owned()));
        }
        let mut bytes = Vec::new();
        fs::File::open(path)?
            .take(MAX_FILE + 1)
            .read_to_end(&mut bytes)?;
        if bytes.len() as u64 > MAX_FILE {
            return Ok(Err("it is larger than 16 MB".to_owned()));
        }
        Ok(Ok(bytes))
    };
    open().map_err(|error| reason(&error)).flatten()
}

/// The message of a file system error, without its number.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file or folder".to_owned(),
        io::ErrorKind::PermissionDenied => "permission was denied".to_owned(),
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
