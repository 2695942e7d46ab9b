//! The versions of the configuration that were in force, with who brought them and what became of them, over restarts.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tracing::error;

use crate::saved_file::{SavedFile, SavedFileWords};
use crate::state_folder::StateFolder;

/// The file, in the state folder. It has the secrets that the configuration has, and only the user of the server can read it.
const FILE: &str = "versions";

const WORDS: SavedFileWords = SavedFileWords {
    contents: "the versions of the configuration of before the restart",
    failed: "cannot store the versions of the configuration: a restart forgets them until that is possible",
    works_again: "the versions of the configuration are stored again",
};

/// The versions that are kept, beside the one in force.
const MAX_VERSIONS: usize = 100;

/// The most bytes of the texts of versions that are not in force.
const MAX_BYTES: usize = 8 << 20;

/// A file of the configuration: the first one, or one that it includes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigText {
    /// Its path, as it was read.
    pub(crate) path: String,
    pub(crate) text: String,
}

/// A version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConfigVersion {
    pub(crate) id: u64,
    /// When it was put in force, in seconds since 1970.
    pub(crate) time: u64,
    /// Who did that.
    pub(crate) by: String,
    /// Why, in the words of who did it.
    pub(crate) note: Option<String>,
    /// The first file first.
    pub(crate) files: Vec<ConfigText>,
    /// Why it is not in force any more, if that is not only that another followed.
    pub(crate) rolled_back: Option<String>,
}

impl ConfigVersion {
    /// The text of the first file.
    pub(crate) fn text(&self) -> &str {
        self.files.first().map_or("", |file| &file.text)
    }

    fn bytes(&self) -> usize {
        self.files.iter().map(|file| file.text.len()).sum()
    }

    fn description(&self, current: u64) -> Value {
        json!({
            "id": self.id,
            "time": self.time,
            "by": self.by,
            "note": self.note,
            "in_force": self.id == current,
            "rolled_back": self.rolled_back,
        })
    }
}

/// All versions.
pub(crate) struct ConfigVersions {
    stored: StoredVersions,
    file: SavedFile,
}

#[derive(Default, Serialize, Deserialize)]
struct StoredVersions {
    /// The one in force.
    current: u64,
    /// The oldest first.
    versions: Vec<ConfigVersion>,
}

impl ConfigVersions {
    pub(crate) fn start(folder: StateFolder) -> Self {
        let file = SavedFile::new(FILE, WORDS, folder);
        let stored = match file.read() {
            None => StoredVersions::default(),
            Some(text) => serde_json::from_slice(&text).unwrap_or_else(|damage| {
                let path = file.put_aside();
                error!(path = %path.display(), error = %damage, "the versions of the configuration of before the restart are damaged, and were put aside");
                StoredVersions::default()
            }),
        };
        Self { stored, file }
    }

    /// Writes to another folder from now on.
    pub(crate) fn configure(&mut self, folder: StateFolder) {
        self.file.set_folder(folder);
    }

    /// Notes that these texts are in force now. The id of the version, which is a new one unless it is the same as before.
    pub(crate) fn put_in_force(
        &mut self,
        files: Vec<ConfigText>,
        by: &str,
        note: Option<&str>,
    ) -> u64 {
        if self.current().is_some_and(|current| current.files == files) {
            return self.stored.current;
        }
        let last = self.stored.versions.last().map_or(0, |last| last.id);
        let id = last.max(self.stored.current) + 1;
        let time = SystemTime::now().duration_since(UNIX_EPOCH);
        self.stored.versions.push(ConfigVersion {
            id,
            time: time.map_or(0, |time| time.as_secs()),
            by: by.to_owned(),
            note: note.map(str::to_owned),
            files,
            rolled_back: None,
        });
        self.stored.current = id;
        self.forget_oldest();
        self.save();
        id
    }

    /// Notes that a version was rolled back, and another one is in force again.
    pub(crate) fn roll_back(&mut self, id: u64, to: u64, reason: &str) {
        let mut versions = self.stored.versions.iter_mut();
        if let Some(version) = versions.find(|version| version.id == id) {
            version.rolled_back = Some(reason.to_owned());
        }
        self.stored.current = to;
        self.save();
    }

    /// The id of the version in force; 0 before there is one.
    pub(crate) fn current_id(&self) -> u64 {
        self.stored.current
    }

    /// The version in force.
    pub(crate) fn current(&self) -> Option<&ConfigVersion> {
        self.get(self.stored.current)
    }

    pub(crate) fn get(&self, id: u64) -> Option<&ConfigVersion> {
        self.stored.versions.iter().find(|version| version.id == id)
    }

    /// The version before another one that is kept.
    pub(crate) fn before(&self, id: u64) -> Option<&ConfigVersion> {
        let versions = self.stored.versions.iter().rev();
        let mut kept = versions.filter(|version| version.id < id && version.rolled_back.is_none());
        kept.next()
    }

    /// The texts of all first files.
    pub(crate) fn texts(&self) -> impl Iterator<Item = &str> {
        self.stored.versions.iter().map(ConfigVersion::text)
    }

    /// All versions without their texts, the last one first.
    pub(crate) fn list(&self) -> Value {
        let versions = self.stored.versions.iter().rev();
        let versions = versions.map(|version| version.description(self.stored.current));
        json!({ "versions": versions.collect::<Vec<_>>() })
    }

    /// What [`Self::list`] says about one.
    pub(crate) fn description(&self, version: &ConfigVersion) -> Value {
        version.description(self.stored.current)
    }

    /// Looks whether a write has ended, and begins the next one if something has changed.
    pub(crate) async fn tick(&mut self) {
        let stored = &self.stored;
        self.file.tick(|| text(stored)).await;
    }

    /// Writes what is not written.
    pub(crate) async fn finish(&mut self) {
        if !self.file.is_settled() {
            let stored = &self.stored;
            // The log has said why it was not possible.
            let _ = self.file.save_now(|| text(stored)).await;
        }
    }

    fn forget_oldest(&mut self) {
        let current = self.stored.current;
        let versions = &mut self.stored.versions;
        let mut bytes: usize = versions.iter().map(ConfigVersion::bytes).sum();
        let own = versions.iter().find(|version| version.id == current);
        bytes -= own.map_or(0, ConfigVersion::bytes);
        while versions.len() > MAX_VERSIONS + 1 || bytes > MAX_BYTES {
            let Some(oldest) = versions.iter().position(|version| version.id != current) else {
                return;
            };
            bytes -= versions.remove(oldest).bytes();
        }
    }

    fn save(&mut self) {
        self.file.mark_unsaved();
        let stored = &self.stored;
        self.file.save_if_idle(|| text(stored));
    }
}

fn text(stored: &StoredVersions) -> String {
    serde_json::to_string(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<ConfigText> {
        vec![ConfigText {
            path: "/etc/apus.toml".to_owned(),
            text: text.to_owned(),
        }]
    }

    #[tokio::test]
    async fn versions_are_kept_over_restarts_and_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let start = || ConfigVersions::start(StateFolder::new(folder.path()));
        let mut versions = start();
        assert_eq!(versions.put_in_force(files("a"), "the file", None), 1);
        assert_eq!(versions.put_in_force(files("a"), "the file", None), 1);
        assert_eq!(versions.put_in_force(files("b"), "ana", Some("why")), 2);
        versions.roll_back(2, 1, "worse");
        versions.finish().await;
        let mut again = start();
        assert_eq!(again.put_in_force(files("a"), "the file", None), 1);
        assert_eq!(again.get(2).unwrap().rolled_back.as_deref(), Some("worse"));
        assert_eq!(again.list()["versions"][0]["note"], "why");
        // What was rolled back is not what came before the next one.
        assert_eq!(again.put_in_force(files("c"), "bo", None), 3);
        assert_eq!(again.before(3).map(|version| version.id), Some(1));
        for number in 0..MAX_VERSIONS + 5 {
            again.put_in_force(files(&number.to_string()), "bo", None);
        }
        assert_eq!(again.stored.versions.len(), MAX_VERSIONS + 1);
        let large = "x".repeat(MAX_BYTES / 2 + 1);
        for part in ["a", "b", "c"] {
            again.put_in_force(files(&(large.clone() + part)), "bo", None);
        }
        assert_eq!(again.stored.versions.len(), 2);
        again.finish().await;
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(start().current_id(), 0);
    }
}
