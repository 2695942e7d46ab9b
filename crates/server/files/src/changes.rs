//! What one worker finds out about changed files, for the other workers.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use crate::tree::FileIdentity;

/// The number of changes that the workers of a tree of files have found.
///
/// It is written when a file has changed, so that each core keeps its line in its own cache, and
/// reading it is an ordinary load.
#[derive(Clone, Default)]
pub(crate) struct ChangeCount(Arc<AtomicU64>);

/// When a file was last known to be current.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CheckTime {
    pub(crate) time: Instant,
    /// The number of changes that were known then.
    pub(crate) changes: u64,
}

/// The changes of a tree, as one worker knows them.
pub(crate) struct ChangeWatch {
    count: ChangeCount,
    known: Cell<u64>,
    /// The number at which another worker had found a change. What was checked at a lower one has to be
    /// compared with the file system again.
    news: Cell<u64>,
    /// The young versions that this worker has reported. They may change again without a trace, and
    /// are read again each time: two workers would report them to each other without end.
    reported: RefCell<HashSet<u64>>,
}

/// The most young versions that a worker remembers.
const MAX_REPORTED: usize = 4096;

impl ChangeWatch {
    pub(crate) fn new(count: &ChangeCount) -> Self {
        Self {
            known: Cell::new(count.0.load(Ordering::Relaxed)),
            news: Cell::default(),
            count: count.clone(),
            reported: RefCell::default(),
        }
    }

    /// Whether another worker has found a change that this worker learns of now.
    pub(crate) fn has_news(&self) -> bool {
        let count = self.count.0.load(Ordering::Relaxed);
        let has_news = self.known.replace(count) != count;
        if has_news {
            self.news.set(count);
        }
        has_news
    }

    /// Whether other workers have found a change since this check.
    pub(crate) fn is_outdated(&self, checked: CheckTime) -> bool {
        checked.changes < self.news.get()
    }

    /// The number of changes that this worker knows of.
    pub(crate) fn known(&self) -> u64 {
        self.known.get()
    }

    /// Reports a change that this worker found by itself.
    pub(crate) fn report(&self) {
        let before = self.count.0.fetch_add(1, Ordering::Relaxed);
        // Otherwise, another worker has reported a change that is news here.
        if self.known.get() == before {
            self.known.set(before.wrapping_add(1));
        }
    }

    /// Reports a version that is read from disk, if it is so young that other workers may have the
    /// one before it.
    pub(crate) fn report_young(&self, identity: &FileIdentity) {
        if identity.is_settled() {
            return;
        }
        let mut reported = self.reported.borrow_mut();
        if reported.len() >= MAX_REPORTED {
            reported.clear();
        }
        if reported.insert(identity.fingerprint()) {
            self.report();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_reaches_the_other_workers_once() {
        let count = ChangeCount::default();
        let (one, other) = (ChangeWatch::new(&count), ChangeWatch::new(&count));
        assert!(!one.has_news() && !other.has_news());
        let check = |watch: &ChangeWatch| CheckTime {
            time: Instant::now(),
            changes: watch.known(),
        };
        let (checked, other_checked) = (check(&one), check(&other));
        one.report();
        assert!(other.has_news() && !other.has_news());
        assert!(other.is_outdated(other_checked) && !other.is_outdated(check(&other)));
        assert!(!one.has_news() && !one.is_outdated(checked), "its own");
        one.report();
        other.report();
        assert!(one.has_news() && other.has_news());
    }
}
