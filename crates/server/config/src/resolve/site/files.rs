//! The keys of static files.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

use apus_files::{InvalidTryFiles, RewriteUri, Symlinks, TryFiles};
use apus_net::SystemAccount;
use apus_sites::{Preset, Template, TryFilesTemplate};
use rustix::fs::Access;

use super::super::templates::check_text;
use super::SiteResolver;
use crate::diagnostics::Finding;
use crate::files::reason;
use crate::keys::{ConfigReader, shown};
use crate::plan::{FilesPlan, FilesRoot};
use crate::raw;
use crate::source::{Setting, SourceSpan};
use crate::value::{FilePath, OneOrMore, Text};

impl SiteResolver<'_> {
    /// The folder of a location.
    pub(super) fn root(
        &self,
        location: &Setting<raw::Location>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<FilesRoot> {
        match (&location.alias, &location.keys.root) {
            (Some(alias), Some(root)) => {
                reader.report(
                    Finding::error(
                        &alias.span,
                        "`alias` and `root` exclude each other",
                        "expected one of them",
                    )
                    .related(&root.span, "the other one"),
                );
                None
            }
            (Some(alias), None) => {
                let path = location.path.value.0.to_string();
                if path.starts_with('~') {
                    reader.report(
                        Finding::error(
                            &alias.span,
                            "`alias` in a location with a regular expression",
                            "it stands for the location's path, and there is none",
                        )
                        .related(&location.path.span, "the expression")
                        .help("use `root`, or a prefix as path"),
                    );
                    return None;
                }
                folder(alias, reader).map(FilesRoot::Alias)
            }
            (None, Some(root)) => folder(root, reader).map(FilesRoot::Root),
            (None, None) => match &self.site.keys.root {
                // Whether it exists was checked for the site.
                Some(root) => {
                    self.effective.root.set(true);
                    Some(FilesRoot::Root(root.value.0.clone()))
                }
                None if reader.has_wrong(&location.span, &["root", "alias"])
                    || reader.has_wrong(&self.site.span, &["root"]) =>
                {
                    None
                }
                None => {
                    reader.report(Finding::error(
                        &location.span,
                        "the location has nothing to serve",
                        "expected `root` or `alias` here, or `root` in the site",
                    ));
                    None
                }
            },
        }
    }

    /// The settings for files below `root`.
    pub(super) fn files(
        &self,
        own: &raw::LocationKeys,
        root: Option<FilesRoot>,
        reader: &mut ConfigReader<'_>,
    ) -> Option<FilesPlan> {
        let site = &self.site.keys;
        let texts = |several: &OneOrMore<Text>| {
            several
                .0
                .iter()
                .map(|text| text.0.clone())
                .collect::<Vec<_>>()
        };
        let index = own.index.or(&site.index);
        for name in index.0.iter().filter(|name| name.0.contains('/')) {
            reader.report(Finding::error(
                &name.span,
                format!("`{}` is not a file name", shown(&name.0)),
                "expected a name without a slash",
            ));
        }
        let root = root?;
        let try_files = try_files(own.try_files.or(&site.try_files), reader, |template| {
            TryFilesTemplate {
                template,
                site: self.groups.site_name().into(),
                root: root.folder().as_os_str().as_bytes().into(),
            }
        });
        let protected = site.fastcgi.as_ref().map(|keys| &keys.protected);
        let protected = protected.into_iter().flat_map(|globs| &globs.0);
        Some(FilesPlan {
            root,
            index: texts(index),
            spa: match try_files {
                None => self.preset().and_then(Preset::page).map(str::to_owned),
                Some(_) => None,
            },
            try_files,
            listing: **own.listing.or(&site.listing),
            hidden_files: **own.hidden_files.or(&site.hidden_files),
            symlinks: match own.symlinks.or(&site.symlinks) {
                key if !key.given => self.preset().map_or(Symlinks::Inside, Preset::symlinks),
                key => match key.value {
                    raw::Symlinks::Inside => Symlinks::Inside,
                    raw::Symlinks::All => Symlinks::Follow,
                    raw::Symlinks::None => Symlinks::Refuse,
                },
            },
            mime: own
                .mime
                .or(&site.mime)
                .0
                .iter()
                .map(|(extension, kind)| {
                    let extension = extension.0.trim_start_matches('.').to_ascii_lowercase();
                    (extension, kind.0.clone())
                })
                .collect(),
            charset: Some(own.charset.or(&site.charset).0.clone())
                .filter(|charset| !charset.is_empty()),
            cache_control: own
                .cache_control
                .or(&site.cache_control)
                .0
                .iter()
                .map(|(pattern, value)| (pattern.0.clone(), value.0.clone()))
                .chain(self.preset().into_iter().flat_map(Preset::cache_control))
                .collect(),
            protected: protected
                .map(|pattern| pattern.value.0.clone())
                .chain(self.preset().into_iter().flat_map(Preset::protected))
                .collect(),
            // This depends on all sites, so it is set at the end.
            has_scripts: false,
        })
    }
}

/// The keys about files that are given.
pub(super) fn given(keys: &raw::LocationKeys) -> Vec<(&'static str, &SourceSpan)> {
    fn one<'a, T>(
        name: &'static str,
        key: &'a Setting<T>,
    ) -> Option<(&'static str, &'a SourceSpan)> {
        key.given.then_some((name, &key.span))
    }
    let root = keys.root.as_ref();
    [
        root.map(|root| ("root", &root.span)),
        one("index", &keys.index),
        one("try_files", &keys.try_files),
        one("listing", &keys.listing),
        one("hidden_files", &keys.hidden_files),
        one("symlinks", &keys.symlinks),
        one("mime", &keys.mime),
        one("charset", &keys.charset),
        one("cache_control", &keys.cache_control),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The folder, if it exists.
pub(super) fn folder(path: &Setting<FilePath>, reader: &mut ConfigReader<'_>) -> Option<PathBuf> {
    let folder = &path.value.0;
    reader.roots.push((path.span.clone(), folder.clone()));
    let why = match std::fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {
            warn_of_unreadable(path, reader);
            return Some(folder.clone());
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            warn_of_unreadable(path, reader);
            return Some(folder.clone());
        }
        Ok(_) => "it is not a folder".to_owned(),
        Err(error) => reason(&error),
    };
    reader.report(Finding::error(
        &path.span,
        format!("cannot serve {}: {why}", folder.display()),
        "expected a folder",
    ));
    None
}

/// Warns about a folder whose files the user of the server may not read.
fn warn_of_unreadable(path: &Setting<FilePath>, reader: &mut ConfigReader<'_>) {
    let folder = &path.value.0;
    if rustix::fs::access(folder, Access::READ_OK | Access::EXEC_OK).is_ok() {
        return;
    }
    let user = SystemAccount::current_name();
    reader.report(
        Finding::warning(
            &path.span,
            format!("the user `{user}` may not read {}", folder.display()),
            "the server runs as this user, so its files are not served",
        )
        .help("let the user read the folder and enter those above it, or choose another by [global] user"),
    );
}

fn try_files(
    list: &Setting<OneOrMore<Text>>,
    reader: &mut ConfigReader<'_>,
    rewrite: impl FnOnce(Template) -> TryFilesTemplate,
) -> Option<TryFiles> {
    if !list.given {
        return None;
    }
    if let Some(last) = list.0.last() {
        check_text(&last.0, &last.span, reader);
    }
    let rewrite = |last: &str| match Template::parse(last) {
        Ok(template) => Ok(Arc::new(rewrite(template)) as Arc<dyn RewriteUri>),
        Err(error) => Err(InvalidTryFiles::Rewrite(error.to_string())),
    };
    TryFiles::parse_with(list.0.iter().map(|path| &path.0), rewrite)
        .map_err(|error| {
            reader.report(Finding::error(
                &list.span,
                error.to_string(),
                "in this list",
            ));
        })
        .ok()
}
