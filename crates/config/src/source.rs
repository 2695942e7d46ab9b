//! The files of a configuration, and places in them.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A stretch of one of the files of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The file, by its position in [`Sources`].
    pub(super) file: usize,
    /// The bytes of its text.
    pub(super) span: Range<usize>,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct At<T> {
    pub(super) value: T,
    /// Where the value stands; the place of its table if `value` is the default.
    pub(super) place: Place,
    /// Whether the file says so; otherwise `value` is the default.
    pub(super) given: bool,
}

impl<T> At<T> {
    /// This value if it was given, else `other`.
    pub(super) fn or<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.given { self } else { other }
    }
}

impl<T> std::ops::Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// One file of a configuration.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its name as people are shown it.
    pub(super) name: String,
    /// What relative paths in it are relative to.
    pub(super) folder: PathBuf,
    /// What it says.
    pub(super) text: String,
}

impl Source {
    /// A text that lies in no file; relative paths in it are relative to `folder`.
    pub(super) fn from_memory(text: &str, name: &str, folder: &Path) -> Self {
        Self {
            name: name.to_owned(),
            folder: folder.to_path_buf(),
            text: text.to_owned(),
        }
    }
}

/// The files of a configuration, in the order in which they were read.
#[derive(Clone, Debug, Default)]
pub(super) struct Sources {
    files: Vec<Source>,
}

impl Sources {
    /// Adds a file; its position.
    pub(super) fn add(&mut self, source: Source) -> usize {
        self.files.push(source);
        self.files.len() - 1
    }

    pub(super) fn get(&self, place: &Place) -> Option<&Source> {
        self.files.get(place.file)
    }

    /// `path` as it is meant in the file of `place`.
    pub(super) fn resolve(&self, place: &Place, path: impl AsRef<Path>) -> PathBuf {
        match self.get(place) {
            Some(source) => source.folder.join(path),
            None => path.as_ref().to_path_buf(),
        }
    }
}
