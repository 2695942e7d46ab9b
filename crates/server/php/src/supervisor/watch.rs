//! Watching the files of an application in development, which is reloaded when one changes.

use std::path::{Component, Path, PathBuf};

use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Duration, timeout};

use crate::supervisor_message::SupervisorMessage;

/// Watches the files of an application until it is dropped.
pub(super) struct SourceWatcher {
    watcher: Option<RecommendedWatcher>,
    task: JoinHandle<()>,
}

/// The time without changes before a reload: editors and package managers change many files at once.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// Folders that applications write to, or that have no code of the application.
const IGNORED_FOLDERS: [&str; 6] = ["var", "cache", "storage", "node_modules", ".git", "uploads"];

impl SourceWatcher {
    /// Watches the project of `script`.
    pub(super) fn start(
        script: &Path,
        supervisor: mpsc::UnboundedSender<SupervisorMessage>,
    ) -> Self {
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
                    "the application's files cannot be watched; `apus reload` reloads it"
                );
            })
            .ok();
        let task = tokio::task::spawn_local(async move {
            while let Some(path) = changed.recv().await {
                while let Ok(Some(_)) = timeout(DEBOUNCE, changed.recv()).await {}
                let _ = supervisor.send(SupervisorMessage::FilesChanged(path));
            }
        });
        Self { watcher, task }
    }
}

impl Drop for SourceWatcher {
    fn drop(&mut self) {
        drop(self.watcher.take());
        self.task.abort();
    }
}

/// The folder of the project: the nearest parent with a `composer.json`, or else the folder of the script.
fn project(script: &Path) -> PathBuf {
    let folder = script.parent().unwrap_or(Path::new("/"));
    folder
        .ancestors()
        .find(|parent| parent.join("composer.json").is_file())
        .unwrap_or(folder)
        .to_owned()
}

/// Whether a change of this file requires a reload.
fn is_code(project: &Path, path: &Path) -> bool {
    let relative = path.strip_prefix(project).unwrap_or(path);
    let is_ignored = relative.components().any(|part| match part {
        Component::Normal(name) => IGNORED_FOLDERS.iter().any(|ignored| name == *ignored),
        _ => false,
    });
    let is_code = matches!(
        path.extension().and_then(|extension| extension.to_str()),
        Some("php" | "phtml" | "inc" | "twig" | "yaml" | "yml" | "xml" | "json" | "neon" | "latte")
    ) || path
        .file_name()
        .is_some_and(|name| name.as_encoded_bytes().starts_with(b".env"));
    is_code && !is_ignored
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recognizes_code_and_ignores_files_that_applications_write() {
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
