//! Logs of connections in the qlog format (draft-ietf-quic-qlog-main-schema, draft-ietf-quic-qlog-quic-events), as JSON text
//! sequences (RFC 7464).
//!
//! A connection gives its events to a thread through a channel, as they are, without waiting. The thread writes them as
//! JSON.

mod observer;
mod record;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use apus_quic_protocol::StartObserver;

use observer::QlogObserver;

/// The folders that connections of a process are logged in.
#[derive(Default)]
pub(crate) struct QlogFolders(Mutex<Vec<(PathBuf, Arc<QlogObserver>)>>);

impl QlogFolders {
    /// What logs connections in a folder; `None` if no thread can be started. Only a start and a reload take the lock.
    pub(crate) fn open(&self, folder: &Path) -> Option<Arc<dyn StartObserver>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, observer)) = open.iter().find(|(known, _)| known == folder) {
            return Some(Arc::clone(observer) as Arc<dyn StartObserver>);
        }
        // Those of configurations that are no longer in force.
        open.retain(|(_, observer)| Arc::strong_count(observer) > 1);
        match QlogObserver::new(folder) {
            Ok(observer) => {
                let observer = Arc::new(observer);
                open.push((folder.to_owned(), Arc::clone(&observer)));
                Some(observer)
            }
            Err(error) => {
                let folder = folder.display();
                tracing::warn!(%folder, %error, "connections are not logged: no thread can be started");
                None
            }
        }
    }
}

impl Drop for QlogFolders {
    /// The process may end: what was logged is written before.
    fn drop(&mut self) {
        let open = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (_, observer) in open {
            observer.flush();
        }
    }
}
