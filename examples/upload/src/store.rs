//! The folder with the stored files.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus::extract::Upload;
use apus::tokio::fs;
use serde::Serialize;

/// The longest name, in bytes; file systems allow 255.
const MAX_NAME: usize = 100;

/// The folder with the stored files. Clones share the folder.
#[derive(Clone, Debug)]
pub struct Store {
    folder: Arc<Path>,
    count: Arc<AtomicU64>,
}

/// A stored file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Stored {
    /// The name.
    pub name: String,
    /// The length in bytes.
    pub bytes: u64,
}

impl Store {
    /// Opens the folder, or creates it. Removes unfinished files of a killed process.
    ///
    /// # Errors
    /// The folder cannot be created or read.
    pub fn open(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        std::fs::create_dir_all(&folder)?;
        for entry in std::fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".new-") {
                std::fs::remove_file(entry.path())?;
            }
        }
        Ok(Self {
            folder: folder.into(),
            count: Arc::default(),
        })
    }

    /// The path of the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The files, by name.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub async fn list(&self) -> io::Result<Vec<Stored>> {
        let mut files = Vec::new();
        let mut entries = fs::read_dir(&self.folder).await?;
        while let Some(entry) = entries.next_entry().await? {
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            // The file may have been removed meanwhile.
            if let Ok(metadata) = entry.metadata().await
                && metadata.is_file()
                && clean(&name).is_some()
            {
                files.push(Stored {
                    name,
                    bytes: metadata.len(),
                });
            }
        }
        files.sort();
        Ok(files)
    }

    /// Stores files under their names, with a number appended if a name is taken. They appear once they are
    /// complete. If one of them cannot be stored, none is.
    ///
    /// # Errors
    /// The disk is full, or the folder cannot be written.
    pub async fn keep(&self, files: Vec<(String, Upload)>) -> io::Result<Vec<Stored>> {
        let mut stored = Vec::new();
        for (name, file) in files {
            match self.keep_one(&name, &file).await {
                Ok(name) => stored.push(Stored {
                    name,
                    bytes: file.len(),
                }),
                Err(error) => {
                    for file in stored {
                        let _ = fs::remove_file(self.folder.join(file.name)).await;
                    }
                    return Err(error);
                }
            }
        }
        Ok(stored)
    }

    async fn keep_one(&self, name: &str, file: &Upload) -> io::Result<String> {
        // Names that start with a dot are neither listed nor served.
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let hidden = self
            .folder
            .join(format!(".new-{}-{number}", std::process::id()));
        file.save(&hidden).await?;
        let named = self.name(&hidden, name).await;
        let removed = fs::remove_file(&hidden).await;
        let named = named?;
        removed.map(|()| named)
    }

    /// Links a file to the first free name. Two files cannot get the same name: a link is created only if
    /// the name does not exist.
    async fn name(&self, hidden: &Path, name: &str) -> io::Result<String> {
        let (stem, extension) = match name.rsplit_once('.') {
            Some((stem, extension)) => (stem, format!(".{extension}")),
            None => (name, String::new()),
        };
        let mut candidate = name.to_owned();
        let mut number: u32 = 1;
        loop {
            match fs::hard_link(hidden, self.folder.join(&candidate)).await {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Ok(()) => return Ok(candidate),
                Err(error) => return Err(error),
            }
            number = number.saturating_add(1);
            candidate = format!("{stem} {number}{extension}");
        }
    }
}

/// A valid name in the folder: letters, digits, spaces, dots, dashes and underscores, not hidden and not too
/// long.
pub(crate) fn clean(name: &str) -> Option<&str> {
    let name = name.trim();
    let is_good = !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, ' ' | '.' | '-' | '_'));
    is_good.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_else_are_none() {
        for name in ["a.txt", "Übersicht 2.pdf", " a ", "a", "a..b", "-"] {
            assert_eq!(clean(name), Some(name.trim()), "{name:?}");
        }
        let long = "a".repeat(MAX_NAME + 1);
        for name in [
            "",
            " ",
            ".",
            "..",
            ".htaccess",
            "../x",
            "a/b",
            "a\\b",
            "a\0",
            "a\nb",
            "<b>",
            "a\"b",
            "a?b",
            "a%2e",
            &long,
        ] {
            assert_eq!(clean(name), None, "{name:?}");
        }
    }
}
