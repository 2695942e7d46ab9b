//! Development: the application is loaded anew when one of its files changed.

use std::path::{Component, Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use crate::signal::Signal;

/// Watches the files of an application until it is dropped.
pub(super) struct Watch {
    watcher: Option<RecommendedWatcher>,
    reports: JoinHandle<()>,
}

/// An editor, or a package manager, changes many files at once.
const SETTLE: Duration = Duration::from_millis(100);

/// Folders in which applications write by themselves, or that hold no code of theirs.
const LEFT_OUT: [&str; 6] = ["var", "cache", "storage", "node_modules", ".git", "uploads"];

impl Watch {
    /// Watches the project that `script` belongs to.
    pub(super) fn start(script: &Path, signals: mpsc::UnboundedSender<Signal>) -> Self {
        let project = project(script);
        let (changes, mut changed) = mpsc::unbounded_channel();
        let base = project.clone();
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            let Ok(event) = event else {
                return;
            };
            if matches!(event.kind, EventKind::Access(_) | EventKind::Other) {
                return;
            }
            let code = event.paths.into_iter().find(|path| is_code(&base, path));
            if let Some(path) = code {
                let _ = changes.send(path);
            }
        })
        .and_then(|mut watcher| {
            watcher.watch(&project, RecursiveMode::Recursive)?;
            Ok(watcher)
        });
        let watcher = watcher
            .inspect_err(|error| {
                tracing::warn!(
                    folder = %project.display(), %error,
                    "changes of the application's files cannot be seen; `apus reload` loads it anew"
                );
            })
            .ok();
        let reports = tokio::task::spawn_local(async move {
            while let Some(path) = changed.recv().await {
                while let Ok(Some(_)) = timeout(SETTLE, changed.recv()).await {}
                let _ = signals.send(Signal::Changed(path));
            }
        });
        Self { watcher, reports }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.watcher.take());
        self.reports.abort();
    }
}

/// The folder of the project: the nearest with a `composer.json`, or else that of the script.
fn project(script: &Path) -> PathBuf {
    let own = script.parent().unwrap_or(Path::new("/"));
    own.ancestors()
        .find(|folder| folder.join("composer.json").is_file())
        .unwrap_or(own)
        .to_owned()
}

/// Whether a change of this file is one of the application.
fn is_code(project: &Path, path: &Path) -> bool {
    let inside = path.strip_prefix(project).unwrap_or(path);
    let is_left_out = inside.components().any(|part| match part {
        Component::Normal(name) => LEFT_OUT.iter().any(|out| name == *out),
        _ => false,
    });
    let is_code = matches!(
        path.extension().and_then(|extension| extension.to_str()),
        Some("php" | "phtml" | "inc" | "twig" | "yaml" | "yml" | "xml" | "json" | "neon" | "latte")
    ) || path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b".env"));
    is_code && !is_left_out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_told_from_what_applications_write() {
        let project = Path::new("/var/cache/app");
        for (path, expected) in [
            ("src/Kernel.php", true),
            (".env.local", true),
            ("templates/a.html.twig", true),
            ("var/cache/dev/Container.php", false),
            ("storage/framework/views/x.php", false),
            ("public/style.css", false),
        ] {
            assert_eq!(is_code(project, &project.join(path)), expected, "{path}");
        }
    }
}
