//! The files of a project: which are watched, and what has to be done when one changes.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;

use crate::project::CargoProject;

/// The most folders that are watched: each takes memory of the kernel.
const MAX_FOLDERS: usize = 10_000;

/// Folders with files that neither Cargo nor the application reads, or that the application writes.
const IGNORED_FOLDERS: [&str; 5] = ["target", "node_modules", "storage", "uploads", "var"];

/// Files that the browser shows, and texts that an application in development reads again.
const SHOWN_EXTENSIONS: [&str; 29] = [
    "html",
    "htm",
    "j2",
    "jinja",
    "jinja2",
    "xml",
    "css",
    "js",
    "mjs",
    "map",
    "wasm",
    "json",
    "txt",
    "md",
    "svg",
    "png",
    "jpg",
    "jpeg",
    "gif",
    "webp",
    "avif",
    "ico",
    "woff",
    "woff2",
    "ttf",
    "mp4",
    "webm",
    "csv",
    "webmanifest",
];

/// Files that an application reads when it starts. A debug build reads its migrations and runs those that are new.
const START_EXTENSIONS: [&str; 5] = ["toml", "ftl", "yaml", "yml", "sql"];

/// What has to be done after a change, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SourceChange {
    /// The browser loads the page again.
    Reload,
    /// The application starts again.
    Restart,
    /// Cargo builds the application again.
    Build,
}

/// The watched files.
pub(crate) struct SourceTree {
    watcher: RecommendedWatcher,
    folders: HashSet<PathBuf>,
    /// The files that the program was built from, as Cargo says.
    built_from: HashSet<PathBuf>,
    package: PathBuf,
    target: PathBuf,
}

impl SourceTree {
    /// Watches a project. The paths that change are sent.
    pub(crate) fn watch(
        project: &CargoProject,
        changes: mpsc::UnboundedSender<PathBuf>,
    ) -> notify::Result<Self> {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let Ok(event) = event else {
                return;
            };
            if !matches!(event.kind, EventKind::Access(_) | EventKind::Other) {
                for path in event.paths {
                    // It fails when the supervisor has ended.
                    let _ = changes.send(path);
                }
            }
        })?;
        let mut tree = Self {
            watcher,
            folders: HashSet::new(),
            built_from: HashSet::new(),
            package: project.folder().to_owned(),
            target: project.target.clone(),
        };
        tree.watch_folder(project.folder())?;
        tree.add_folders(project.folder());
        // The manifest and Cargo.lock of the workspace.
        tree.watch_folder(&project.workspace)?;
        Ok(tree)
    }

    /// Watches the files that a program was built from, too.
    pub(crate) fn add_sources(&mut self, sources: &[PathBuf]) {
        for path in sources {
            if let Some(folder) = path.parent()
                && !self.folders.contains(folder)
                && !folder.starts_with(&self.target)
            {
                // A file that cannot be watched is built with the next change of another.
                let _ = self.watch_folder(folder);
            }
        }
        self.built_from = sources.iter().cloned().collect();
    }

    /// What a change of this path requires; `None` for files that do not matter. New folders are watched.
    pub(crate) fn change(&mut self, path: &Path) -> Option<SourceChange> {
        if path.is_dir() && self.is_followed(path) {
            return self.add_folders(path);
        }
        self.classify(path)
    }

    fn classify(&self, path: &Path) -> Option<SourceChange> {
        if path.starts_with(&self.target) {
            return None;
        }
        if self.built_from.contains(path) {
            return Some(SourceChange::Build);
        }
        let name = path.file_name().and_then(OsStr::to_str)?;
        let extension = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        let parent = path.parent().and_then(Path::file_name);
        let is_of_cargo = matches!(
            name,
            "Cargo.toml" | "Cargo.lock" | "rust-toolchain" | "rust-toolchain.toml"
        ) || parent == Some(OsStr::new(".cargo")) && name.starts_with("config");
        if is_of_cargo {
            return Some(SourceChange::Build);
        }
        let relative = path.strip_prefix(&self.package).ok()?;
        let folders = relative.parent().into_iter().flat_map(Path::iter);
        if folders.into_iter().any(is_ignored) {
            return None;
        }
        if extension == "rs" {
            Some(SourceChange::Build)
        } else if name == ".env"
            || name.starts_with(".env.")
            || START_EXTENSIONS.contains(&extension)
        {
            Some(SourceChange::Restart)
        } else if SHOWN_EXTENSIONS.contains(&extension) && !name.starts_with('.') {
            Some(SourceChange::Reload)
        } else {
            None
        }
    }

    /// Whether the files of a folder matter.
    fn is_followed(&self, folder: &Path) -> bool {
        let Ok(relative) = folder.strip_prefix(&self.package) else {
            return false;
        };
        folder != self.target && !relative.iter().any(is_ignored)
    }

    /// Watches the folders in a folder, and the folder. Returns what its files require if they are new.
    fn add_folders(&mut self, folder: &Path) -> Option<SourceChange> {
        let mut found = None;
        let mut left = vec![folder.to_owned()];
        while let Some(folder) = left.pop() {
            if self.watch_folder(&folder).is_err() {
                continue;
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                // Links are not followed: they may lead into a circle.
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                if !is_folder {
                    found = found.max(self.classify(&path));
                } else if self.is_followed(&path) && self.folders.len() < MAX_FOLDERS {
                    left.push(path);
                }
            }
        }
        found
    }

    fn watch_folder(&mut self, folder: &Path) -> notify::Result<()> {
        self.watcher.watch(folder, RecursiveMode::NonRecursive)?;
        self.folders.insert(folder.to_owned());
        Ok(())
    }
}

/// Whether the files of a folder of this name do not matter. `.cargo` has a configuration of the build.
fn is_ignored(name: &OsStr) -> bool {
    let is_hidden = name.as_encoded_bytes().starts_with(b".") && name != ".cargo";
    is_hidden || IGNORED_FOLDERS.iter().any(|ignored| name == *ignored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(folder: &Path) -> (SourceTree, mpsc::UnboundedReceiver<PathBuf>) {
        let project = CargoProject {
            package: "shop".to_owned(),
            binary: "shop".to_owned(),
            manifest: folder.join("Cargo.toml"),
            workspace: folder.to_owned(),
            target: folder.join("target"),
        };
        let (changes, changed) = mpsc::unbounded_channel();
        (SourceTree::watch(&project, changes).unwrap(), changed)
    }

    #[test]
    fn a_change_requires_no_more_than_it_has_to() {
        let folder = tempfile::tempdir().unwrap();
        let (mut tree, _changed) = tree(folder.path());
        tree.add_sources(&[
            folder.path().join("templates/embedded.html"),
            PathBuf::from("/elsewhere/src/lib.rs"),
        ]);
        for (path, expected) in [
            ("src/main.rs", Some(SourceChange::Build)),
            ("Cargo.toml", Some(SourceChange::Build)),
            (".cargo/config.toml", Some(SourceChange::Build)),
            ("templates/embedded.html", Some(SourceChange::Build)),
            ("/elsewhere/src/lib.rs", Some(SourceChange::Build)),
            ("/elsewhere/src/other.rs", None),
            (".env", Some(SourceChange::Restart)),
            (".env.local", Some(SourceChange::Restart)),
            ("config/app.toml", Some(SourceChange::Restart)),
            ("migrations/0002_new.sql", Some(SourceChange::Restart)),
            (
                "migrations/sqlite/0002_new.sql",
                Some(SourceChange::Restart),
            ),
            ("templates/home.html", Some(SourceChange::Reload)),
            ("static/style.css", Some(SourceChange::Reload)),
            ("target/debug/build/out/a.rs", None),
            (".git/index", None),
            ("app.db", None),
            ("src/.main.rs.swp", None),
            ("uploads/a.png", None),
            ("node_modules/a/index.js", None),
        ] {
            assert_eq!(tree.change(&folder.path().join(path)), expected, "{path}");
        }
    }

    #[tokio::test]
    async fn files_in_new_folders_are_found() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("target/debug")).unwrap();
        let (mut tree, mut changed) = tree(folder.path());
        let pages = folder.path().join("templates/pages");
        fs::create_dir_all(&pages).unwrap();
        fs::write(pages.join("first.html"), "").unwrap();
        while tree.change(&changed.recv().await.unwrap()) != Some(SourceChange::Reload) {}
        fs::write(pages.join("second.html"), "").unwrap();
        while changed.recv().await.unwrap() != pages.join("second.html") {}
    }
}
