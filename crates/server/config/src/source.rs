//! The source files of a configuration, and spans of their text.

use std::ops::Range;
use std::path::{Path, PathBuf};

/// A range of one of the files of a configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SourceSpan {
    /// The file, by its position in [`SourceFiles`].
    pub(super) file: usize,
    /// The bytes of its text.
    pub(super) bytes: Range<usize>,
}

/// The value of a key with its span.
#[derive(Clone, Debug)]
pub(super) struct Setting<T> {
    pub(super) value: T,
    /// The span of the value, or of its table if `value` is the default.
    pub(super) span: SourceSpan,
    /// Whether the file gives the value; otherwise `value` is the default.
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
    /// Its name in messages.
    pub(super) name: String,
    /// The folder that relative paths are relative to.
    pub(super) folder: PathBuf,
    /// Its text.
    pub(super) text: String,
}

impl SourceFile {
    /// A text in memory; relative paths in it are relative to `folder`.
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

    /// The names and texts of the files.
    pub(super) fn texts(&self) -> impl Iterator<Item = (&str, &str)> {
        let files = self.files.iter();
        files.map(|source| (&*source.name, &*source.text))
    }

    /// The folders of the files.
    pub(super) fn folders(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|source| &*source.folder)
    }

    /// `path` as it is meant in the file of `place`.
    pub(super) fn resolve(&self, span: &SourceSpan, path: impl AsRef<Path>) -> PathBuf {
        match self.get(span) {
            Some(source) => source.folder.join(path),
            None => path.as_ref().to_path_buf(),
        }
    }
}
