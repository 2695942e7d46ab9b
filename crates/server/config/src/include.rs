//! Reading the files of a configuration: the first one, and those that it includes.

use std::path::{Path, PathBuf};

use toml::de::DeTable;

use super::diagnostics::Finding;
use super::files::FileError;
use super::keys::{ConfigReader, ConfigTable, TableNode, shown};
use super::raw::File;
use super::source::{Setting, SourceFile, SourceSpan};
use super::syntax::RepairedText;
use super::value::Text;

/// Reads a configuration file and those that it includes into one.
pub(super) fn load(path: &Path, reader: &mut ConfigReader<'_>) -> Option<File> {
    let source = match read_source(path, reader) {
        Ok(source) => source,
        Err(why) => {
            reader.report(
                Finding::nowhere(format!("cannot read {}: {why}", path.display()))
                    .help("name a configuration file, or a folder to serve"),
            );
            return None;
        }
    };
    let mut files: Vec<_> = reader.files.canonicalize(path).into_iter().collect();
    IncludeLoader {
        reader,
        files: &mut files,
    }
    .source(source, None)
}

/// Reads a configuration from memory, and the files that it includes.
pub(super) fn parse(source: SourceFile, reader: &mut ConfigReader<'_>) -> Option<File> {
    IncludeLoader {
        reader,
        files: &mut Vec::new(),
    }
    .source(source, None)
}

fn read_source(path: &Path, reader: &ConfigReader<'_>) -> Result<SourceFile, FileError> {
    let text = String::from_utf8(reader.files.read(path)?).map_err(|error| {
        FileError::of(format!(
            "byte {} is not UTF-8, which TOML is written in",
            error.utf8_error().valid_up_to() + 1
        ))
    })?;
    // A path without a folder has an empty parent; joined with it, relative paths stay relative to
    // the working folder, which may change later.
    let folder = std::path::absolute(path)
        .ok()
        .and_then(|path| path.parent().map(Path::to_path_buf))
        .unwrap_or_default();
    Ok(SourceFile {
        name: path.display().to_string(),
        folder,
        text,
    })
}

struct IncludeLoader<'a, 'r> {
    reader: &'a mut ConfigReader<'r>,
    /// The files that have been read or are being read.
    files: &'a mut Vec<PathBuf>,
}

impl IncludeLoader<'_, '_> {
    fn source(&mut self, source: SourceFile, included: Option<&SourceSpan>) -> Option<File> {
        let text = source.text.clone();
        let file = self.reader.sources.add(source);
        let repaired = RepairedText::of(&text, file);
        for error in repaired.errors {
            self.reader.report(error);
        }
        self.reader.is_partial |= repaired.is_partial;
        if !repaired.is_toml {
            return None;
        }
        let spans = repaired.broken.into_iter();
        let spans = spans.map(|bytes| SourceSpan { file, bytes });
        self.reader.broken.extend(spans);
        let (document, _) = DeTable::parse_recoverable(&repaired.text);
        let node = TableNode {
            table: document.get_ref(),
            span: SourceSpan { file, bytes: 0..0 },
        };
        let mut read = File::read_table(&node, self.reader)?;
        if let (Some(global), Some(included)) = (&read.global, included) {
            self.reader.report(
                Finding::error(
                    &global.span,
                    "`[global]` stands in an included file",
                    "only the first file may hold it",
                )
                .related(included, "included here"),
            );
        }
        for pattern in std::mem::take(&mut read.include.value.0) {
            for path in self.matches(&pattern) {
                if let Some(included) = self.include(&path, &pattern) {
                    read.sites.value.0.extend(included.sites.value.0);
                }
            }
        }
        Some(read)
    }

    fn include(&mut self, path: &Path, pattern: &Setting<Text>) -> Option<File> {
        let read =
            self.reader.files.canonicalize(path).and_then(|canonical| {
                read_source(path, self.reader).map(|source| (canonical, source))
            });
        let (canonical, source) = match read {
            Ok(read) => read,
            Err(why) => {
                self.reader.report(Finding::error(
                    &pattern.span,
                    format!("cannot read {}: {why}", path.display()),
                    "included here",
                ));
                return None;
            }
        };
        if self.files.contains(&canonical) {
            self.reader.report(
                Finding::error(
                    &pattern.span,
                    format!("{} is included twice, or by itself", path.display()),
                    "this file has been read already",
                )
                .help("keep included files in a folder of their own, as sites/*.toml"),
            );
            return None;
        }
        self.files.push(canonical);
        self.source(source, Some(&pattern.span))
    }

    /// The files that match a pattern of `include`, in order.
    fn matches(&mut self, pattern: &Setting<Text>) -> Vec<PathBuf> {
        let path = self.reader.sources.resolve(&pattern.span, &pattern.0);
        if !pattern.0.contains(['*', '?', '[']) {
            return vec![path];
        }
        let found = path
            .to_str()
            .ok_or_else(|| FileError::of("it is not UTF-8"))
            .and_then(|path| self.reader.files.matches(path));
        match found {
            Ok(paths) => paths,
            Err(why) => {
                self.reader.report(Finding::error(
                    &pattern.span,
                    format!("`{}` is not a pattern of paths: {why}", shown(&pattern.0)),
                    "expected a path, which may hold *, ? and [...]",
                ));
                Vec::new()
            }
        }
    }
}
