//! How a site or location serves files.

use std::io;
use std::path::PathBuf;

use apus_files::{Symlinks, TryFiles};
use apus_net::Account;
use apus_sites::Preset;
use rustix::fs::Access;

use super::Resolver;
use crate::diagnostics::Finding;
use crate::files::reason;
use crate::keys::{Reader, shown};
use crate::plan::{Files, Root};
use crate::raw;
use crate::source::{At, Place};
use crate::value::{FilePath, Several, Text};

impl Resolver<'_> {
    /// The folder of a location.
    pub(super) fn root(
        &self,
        location: &At<raw::Location>,
        reader: &mut Reader<'_>,
    ) -> Option<Root> {
        match (&location.alias, &location.content.root) {
            (Some(alias), Some(root)) => {
                reader.report(
                    Finding::error(
                        &alias.place,
                        "`alias` and `root` exclude each other",
                        "expected one of them",
                    )
                    .related(&root.place, "the other one"),
                );
                None
            }
            (Some(alias), None) => {
                let path = location.path.value.0.to_string();
                if path.starts_with('~') {
                    reader.report(
                        Finding::error(
                            &alias.place,
                            "`alias` in a location with a regular expression",
                            "it stands for the location's path, and there is none",
                        )
                        .related(&location.path.place, "the expression")
                        .help("use `root`, or a prefix as path"),
                    );
                    return None;
                }
                folder(alias, reader).map(Root::Alias)
            }
            (None, Some(root)) => folder(root, reader).map(Root::Root),
            (None, None) => match &self.site.content.root {
                // Whether it is there has been asked for the site.
                Some(root) => {
                    self.used.root.set(true);
                    Some(Root::Root(root.value.0.clone()))
                }
                None if reader.has_wrong(&location.place, &["root", "alias"])
                    || reader.has_wrong(&self.site.place, &["root"]) =>
                {
                    None
                }
                None => {
                    reader.report(Finding::error(
                        &location.place,
                        "the location has nothing to serve",
                        "expected `root` or `alias` here, or `root` in the site",
                    ));
                    None
                }
            },
        }
    }

    /// How files of `root` are served.
    pub(super) fn files(
        &self,
        own: &raw::Content,
        root: Option<Root>,
        reader: &mut Reader<'_>,
    ) -> Option<Files> {
        let site = &self.site.content;
        let texts = |several: &Several<Text>| {
            several
                .0
                .iter()
                .map(|text| text.0.clone())
                .collect::<Vec<_>>()
        };
        let index = own.index.or(&site.index);
        for name in index.0.iter().filter(|name| name.0.contains('/')) {
            reader.report(Finding::error(
                &name.place,
                format!("`{}` is not a file name", shown(&name.0)),
                "expected a name without a slash",
            ));
        }
        let try_files = try_files(own.try_files.or(&site.try_files), reader);
        let protected = site.fastcgi.as_ref().map(|keys| &keys.protected);
        let protected = protected.into_iter().flat_map(|globs| &globs.0);
        Some(Files {
            root: root?,
            index: texts(index),
            spa: match try_files {
                None => self.preset().and_then(Preset::page).map(str::to_owned),
                Some(_) => None,
            },
            try_files,
            listing: **own.listing.or(&site.listing),
            hidden_files: **own.hidden_files.or(&site.hidden_files),
            symlinks: match own.symlinks.or(&site.symlinks) {
                said if !said.given => self.preset().map_or(Symlinks::Inside, Preset::symlinks),
                said => match said.value {
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
            // That takes all sites to know.
            has_programs: false,
        })
    }
}

/// The keys about files that are given, and where.
pub(super) fn given(content: &raw::Content) -> Vec<(&'static str, &Place)> {
    fn one<'a, T>(name: &'static str, key: &'a At<T>) -> Option<(&'static str, &'a Place)> {
        key.given.then_some((name, &key.place))
    }
    let root = content.root.as_ref();
    [
        root.map(|root| ("root", &root.place)),
        one("index", &content.index),
        one("try_files", &content.try_files),
        one("listing", &content.listing),
        one("hidden_files", &content.hidden_files),
        one("symlinks", &content.symlinks),
        one("mime", &content.mime),
        one("charset", &content.charset),
        one("cache_control", &content.cache_control),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The folder, if it is there.
pub(super) fn folder(path: &At<FilePath>, reader: &mut Reader<'_>) -> Option<PathBuf> {
    let folder = &path.value.0;
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
        &path.place,
        format!("cannot serve {}: {why}", folder.display()),
        "expected a folder",
    ));
    None
}

/// Warns of a folder whose files the user of the server may not read.
fn warn_of_unreadable(path: &At<FilePath>, reader: &mut Reader<'_>) {
    let folder = &path.value.0;
    if rustix::fs::access(folder, Access::READ_OK | Access::EXEC_OK).is_ok() {
        return;
    }
    let user = Account::current_name();
    reader.report(
        Finding::warning(
            &path.place,
            format!("the user `{user}` may not read {}", folder.display()),
            "the server runs as this user, so its files are not served",
        )
        .help("let the user read the folder and enter those above it, or choose another by [global] user"),
    );
}

fn try_files(list: &At<Several<Text>>, reader: &mut Reader<'_>) -> Option<TryFiles> {
    if !list.given {
        return None;
    }
    TryFiles::parse(list.0.iter().map(|path| &path.0))
        .map_err(|error| {
            reader.report(Finding::error(
                &list.place,
                error.to_string(),
                "in this list",
            ));
        })
        .ok()
}
