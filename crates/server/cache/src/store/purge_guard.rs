//! The purges that apply to the response of a request which was forwarded before them.

use std::collections::btree_map::Entry;

use super::{Store, locked};

/// Keeps the purges since a request was forwarded, as they apply to its response.
#[derive(Debug)]
pub(crate) struct PurgeGuard {
    store: Store,
    /// The number of the last purge when the request was forwarded: later ones apply to the
    /// response.
    number: u64,
}

impl PurgeGuard {
    pub(crate) fn new(store: &Store) -> Self {
        // The number is read under the lock: between the two, a sweep could forget a purge that applies to the
        // response.
        let mut guarded = locked(&store.shared().guarded_purges);
        let number = store.shared().purges.current();
        *guarded.entry(number).or_default() += 1;
        drop(guarded);
        Self {
            store: store.clone(),
            number,
        }
    }

    /// The number of the last purge when the request was forwarded.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Clone for PurgeGuard {
    fn clone(&self) -> Self {
        *locked(&self.store.shared().guarded_purges)
            .entry(self.number)
            .or_default() += 1;
        Self {
            store: self.store.clone(),
            number: self.number,
        }
    }
}

impl Drop for PurgeGuard {
    fn drop(&mut self) {
        let mut guarded = locked(&self.store.shared().guarded_purges);
        if let Entry::Occupied(mut count) = guarded.entry(self.number) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}
