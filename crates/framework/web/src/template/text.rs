//! `TemplateText`: the text of templates, in memory or in a folder.

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use minijinja::{Environment, ErrorKind, TemplateSource};

use super::TemplateError;

/// The text of templates.
pub(super) enum TemplateText {
    /// All templates, by name.
    Memory(Vec<(String, String)>),
    /// A folder, whose files are read on use and after changes.
    Folder(PathBuf),
}

impl TemplateText {
    /// Templates of a folder that are read again after changes.
    ///
    /// # Errors
    /// It is not a folder.
    pub(super) fn watched(folder: PathBuf) -> Result<Self, TemplateError> {
        fs::read_dir(&folder).map_err(|error| TemplateError::unreadable(&folder, &error))?;
        Ok(Self::Folder(folder))
    }

    /// Templates of a folder, read now.
    ///
    /// # Errors
    /// One of its files cannot be read as UTF-8.
    pub(super) fn read(folder: &Path) -> Result<Self, TemplateError> {
        let mut templates = Vec::new();
        let mut folders = vec![(folder.to_owned(), String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            let unreadable = |error: io::Error| TemplateError::unreadable(&folder, &error);
            for entry in fs::read_dir(&folder).map_err(unreadable)? {
                let entry = entry.map_err(unreadable)?;
                let Ok(name) = entry.file_name().into_string() else {
                    continue;
                };
                if name.starts_with('.') {
                    continue;
                }
                let path = entry.path();
                let name = format!("{prefix}{name}");
                if path.is_dir() {
                    folders.push((path, format!("{name}/")));
                } else {
                    let text = fs::read_to_string(&path)
                        .map_err(|error| TemplateError::unreadable(&path, &error))?;
                    templates.push((name, text));
                }
            }
        }
        templates.sort();
        Ok(Self::Memory(templates))
    }

    /// Templates in the program.
    ///
    /// # Errors
    /// One is not UTF-8.
    pub(super) fn of(
        templates: Vec<(Cow<'static, str>, Cow<'static, [u8]>)>,
    ) -> Result<Self, TemplateError> {
        let templates = templates.into_iter().map(|(name, text)| {
            let text = String::from_utf8(text.into_owned()).map_err(|_| {
                let error = io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8");
                TemplateError::unreadable(Path::new(&*name), &error)
            })?;
            Ok::<_, TemplateError>((name.into_owned(), text))
        });
        Ok(Self::Memory(templates.collect::<Result<_, _>>()?))
    }

    /// Adds the templates to an environment.
    ///
    /// # Errors
    /// A template has an error.
    pub(super) fn add_to(
        &self,
        environment: &mut Environment<'static>,
    ) -> Result<(), TemplateError> {
        match self {
            Self::Memory(templates) => {
                environment.set_auto_reload(false);
                for (name, text) in templates {
                    environment.add_template_owned(name.clone(), text.clone())?;
                }
            }
            Self::Folder(folder) => {
                let folder = folder.clone();
                environment.set_loader(move |name| load(&folder, name));
            }
        }
        Ok(())
    }
}

/// Reads a template, with a check for later changes.
fn load(folder: &Path, name: &str) -> Result<Option<TemplateSource>, minijinja::Error> {
    let is_inside = |segment: &str| !segment.starts_with('.') && !segment.contains('\\');
    if !name.split('/').all(is_inside) {
        return Ok(None);
    }
    let path = folder.join(name);
    let version = version(&path);
    match fs::read_to_string(&path) {
        Ok(text) => {
            let source = TemplateSource::new(text);
            Ok(Some(source.with_uptodate_check(move || {
                version.is_some() && self::version(&path) == version
            })))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let message = format!("{} cannot be read", path.display());
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, message).with_source(error))
        }
    }
}

/// The modification time and length, which identify a version of a file.
fn version(path: &Path) -> Option<(SystemTime, u64)> {
    let metadata = fs::metadata(path).ok()?;
    Some((metadata.modified().ok()?, metadata.len()))
}

impl std::fmt::Debug for TemplateText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Memory(templates) => {
                let names = templates.iter().map(|(name, _)| name);
                f.debug_list().entries(names).finish()
            }
            Self::Folder(folder) => folder.fmt(f),
        }
    }
}
