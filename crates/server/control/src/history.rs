//! The history of a server, which its control thread writes and the API reads.

use std::fmt;
use std::sync::Arc;

use apus_metrics::{HistoryFile, HistoryRecord};
use tokio::sync::watch;

/// What a server did, second by second. Clones are the same.
#[derive(Clone)]
pub struct ServerHistory {
    file: watch::Sender<HistoryState>,
    /// The last second.
    last: watch::Sender<Option<Arc<HistoryRecord>>>,
}

/// Where the history is.
#[derive(Clone, Default)]
enum HistoryState {
    /// It is not open yet. The API may be reached a moment before.
    #[default]
    Closed,
    Open(Arc<HistoryFile>),
    /// There is none.
    Failed,
}

impl Default for ServerHistory {
    fn default() -> Self {
        Self {
            file: watch::Sender::default(),
            last: watch::Sender::new(None),
        }
    }
}

impl ServerHistory {
    /// Where the records are; `None`: there are none. It waits until that is known.
    pub async fn file(&self) -> Option<Arc<HistoryFile>> {
        let mut state = self.file.subscribe();
        let is_known = |state: &HistoryState| !matches!(state, HistoryState::Closed);
        let known = state.wait_for(is_known).await;
        match known.as_deref() {
            Ok(HistoryState::Open(file)) => Some(Arc::clone(file)),
            _ => None,
        }
    }

    /// Has readers wait for a file.
    pub fn close(&self) {
        self.file.send_replace(HistoryState::Closed);
    }

    /// Has the records read from this file, or from none.
    pub fn set_file(&self, file: Option<Arc<HistoryFile>>) {
        let state = file.map_or(HistoryState::Failed, HistoryState::Open);
        self.file.send_replace(state);
    }

    /// Tells those who watch what happened in a second.
    pub fn publish(&self, second: Arc<HistoryRecord>) {
        self.last.send_replace(Some(second));
    }

    /// The last second, and each one from now on. Who reads slowly misses some.
    pub fn watch(&self) -> watch::Receiver<Option<Arc<HistoryRecord>>> {
        self.last.subscribe()
    }
}

impl fmt::Debug for ServerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHistory").finish_non_exhaustive()
    }
}
