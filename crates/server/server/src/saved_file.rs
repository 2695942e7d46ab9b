//! A file of the state folder that is written again when what it holds has changed, on a separate thread.

use std::io;
use std::path::PathBuf;

use tokio::task::{JoinHandle, spawn_blocking};
use tracing::{error, info};

use crate::state_folder::StateFolder;

/// A file of the state folder. What it holds is in the hands of its user, who says when it has changed.
///
/// At most one write runs at a time. One that failed, on a full disk, is tried again with the next [`SavedFile::tick`], and the log
/// says so once.
pub(crate) struct SavedFile {
    name: &'static str,
    words: SavedFileWords,
    folder: StateFolder,
    is_unsaved: bool,
    saving: Option<JoinHandle<io::Result<()>>>,
    /// Why it could not be written.
    fault: Option<String>,
}

/// What the log says about a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SavedFileWords {
    /// What it holds, as `the bans of before the restart`.
    pub(crate) contents: &'static str,
    /// It cannot be written.
    pub(crate) failed: &'static str,
    /// It can be written again.
    pub(crate) works_again: &'static str,
}

impl SavedFile {
    pub(crate) fn new(name: &'static str, words: SavedFileWords, folder: StateFolder) -> Self {
        Self {
            name,
            words,
            folder,
            is_unsaved: false,
            saving: None,
            fault: None,
        }
    }

    /// Writes to another folder from now on.
    pub(crate) fn set_folder(&mut self, folder: StateFolder) {
        self.folder = folder;
    }

    /// What was written before the restart, if there is something that can be read.
    pub(crate) fn read(&self) -> Option<Vec<u8>> {
        match self.folder.read(self.name) {
            Ok(stored) => stored,
            Err(error) => {
                let (path, contents) = (self.folder.path(self.name), self.words.contents);
                error!(path = %path.display(), %error, "cannot read {contents}");
                None
            }
        }
    }

    /// Renames the file, which is damaged. Returns its new path.
    pub(crate) fn put_aside(&self) -> PathBuf {
        self.folder.put_aside(self.name)
    }

    /// Notes that what is written differs from what should be.
    pub(crate) fn mark_unsaved(&mut self) {
        self.is_unsaved = true;
    }

    /// Whether there is nothing to write, and nothing is being written.
    pub(crate) fn is_settled(&self) -> bool {
        !self.is_unsaved && self.saving.is_none()
    }

    /// Why it could not be written last time.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_deref()
    }

    /// Begins to write if something has changed and nothing is being written.
    pub(crate) fn save_if_idle(&mut self, contents: impl FnOnce() -> String) {
        if self.is_unsaved && self.saving.is_none() {
            self.save(contents);
        }
    }

    /// Looks whether a write has ended, and begins the next one if something has changed. It has to be called about once a second.
    pub(crate) async fn tick(&mut self, contents: impl FnOnce() -> String) {
        if self.saving.as_ref().is_some_and(JoinHandle::is_finished) {
            self.finish_saving().await;
        }
        self.save_if_idle(contents);
    }

    /// Writes, and waits for it.
    ///
    /// # Errors
    /// It cannot be written: why.
    pub(crate) async fn save_now(&mut self, contents: impl FnOnce() -> String) -> Result<(), &str> {
        self.finish_saving().await;
        self.save(contents);
        self.finish_saving().await;
        self.fault().map_or(Ok(()), Err)
    }

    fn save(&mut self, contents: impl FnOnce() -> String) {
        let (folder, name, text) = (self.folder.clone(), self.name, contents());
        self.is_unsaved = false;
        self.saving = Some(spawn_blocking(move || folder.write(name, text.as_bytes())));
    }

    async fn finish_saving(&mut self) {
        let Some(saving) = self.saving.take() else {
            return;
        };
        let saved = saving.await.map_err(io::Error::other).flatten();
        let fault = saved.err().map(|error| error.to_string());
        if let Some(fault) = &fault {
            self.is_unsaved = true;
            if self.fault.is_none() {
                let (path, failed) = (self.folder.path(self.name), self.words.failed);
                error!(path = %path.display(), error = fault, "{failed}");
            }
        } else if self.fault.is_some() {
            info!("{}", self.words.works_again);
        }
        self.fault = fault;
    }
}
