//! The files of a configuration, and places in them.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A stretch of one of the files of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceSpan {
    /// The file, by its position in [`SourceFiles`].
    pub(super) file: usize,
    /// The bytes of its text.
    pub(super) bytes: Range<usize>,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    /// Where the value stands; the place of its table if `value` is the default.
    pub(super) span: SourceSpan,
    /// Whether the file says so; otherwise `value` is the default.
    pub(super) given: bool,
}

impl<T> Setting<T> {
    /// This value if it was given, else `other`.
    pub(super) fn or<'a>(&'a self, other: &'a Self) -> &'a Self {
        if self.given { self } else { other }
    }
}

impl<T> std::ops::Deref for Setting<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// One file of a configuration.
#[derive(Clone, Debug)]
pub(super) struct SourceFile {
    /// Its name as people are shown it.
    pub(super) name: String,
    /// What relative paths in it are relative to.
    pub(super) folder: PathBuf,
    /// What it says.
    pub(super) text: String,
}

impl SourceFile {
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
pub(super) struct SourceFiles {
    files: Vec<SourceFile>,
}

impl SourceFiles {
    /// Adds a file; its position.
    pub(super) fn add(&mut self, source: SourceFile) -> usize {
        self.files.push(source);
        self.files.len() - 1
    }

    pub(super) fn get(&self, span: &SourceSpan) -> Option<&SourceFile> {
        self.files.get(span.file)
    }

    /// `path` as it is meant in the file of `place`.
    pub(super) fn resolve(&self, span: &SourceSpan, path: impl AsRef<Path>) -> PathBuf {
        match self.get(span) {
            Some(source) => source.folder.join(path),
            None => path.as_ref().to_path_buf(),
        }
    }
}
