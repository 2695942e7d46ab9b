//! The background work of a purge: recording it, and removing purged objects from disk.

use std::io;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::super::purge::{PurgeFilter, PurgeRequest, PurgeSubject, PurgeVerdict};
use super::super::{Store, StoreState, locked};
use super::Disk;
use super::index::IndexEntry;

/// Confirms that a purge is durable. The purge itself takes effect immediately, and the receipt may
/// be dropped.
#[derive(Debug)]
pub struct PurgeReceipt(Option<oneshot::Receiver<io::Result<()>>>);

impl PurgeReceipt {
    /// A receipt for a purge that needs no record.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Waits until the purge is recorded.
    ///
    /// # Errors
    /// It could not be recorded: purged objects on disk may be found again after a restart.
    pub async fn durable(self) -> io::Result<()> {
        match self.0 {
            None => Ok(()),
            Some(recorded) => recorded.await.unwrap_or_else(|_| {
                Err(io::Error::other(
                    "the store was closed before the purge was recorded",
                ))
            }),
        }
    }
}

impl Store {
    /// Records a purge.
    pub(crate) fn record(&self, number: u64, purge: &PurgeRequest) -> PurgeReceipt {
        let Some(disk) = &self.shared().disk else {
            return PurgeReceipt::nothing();
        };
        let (sender, recorded) = oneshot::channel();
        let (store, purge) = (self.clone(), purge.clone());
        // Before the other jobs, since whoever purges waits until it holds after a crash, too.
        disk.pool.run_first(move || {
            let appended = store.shared().on_disk(|disk| {
                let appended = locked(&disk.journal).append(number, &purge);
                if appended.is_err() {
                    disk.counters.errors.add(1);
                }
                appended
            });
            let _ = sender.send(appended.unwrap_or(Ok(())));
        });
        PurgeReceipt(Some(recorded))
    }
}

impl Disk {
    /// Applies the purges up to `target` to the objects on disk, and then removes those up to
    /// `limit`.
    pub(crate) fn sweep(&self, shared: &StoreState, target: u64, limit: u64) {
        if !self.index.is_complete() {
            // Purges are applied to objects that are not found yet when they are.
            return;
        }
        let filter = shared.purges.filter();
        let mut clean = true;
        for part in 0..self.index.parts() {
            for entry in self.index.older_than(part, target) {
                clean &= self.sweep_entry(shared, &filter, &entry);
            }
        }
        // An object that eviction has taken out of the queue is not in the index, but its file is still there: a start after a
        // crash would find it, and must know the purge then.
        if clean && self.removing.load(Ordering::Acquire) == 0 {
            let retired = locked(&self.journal).retire(&self.directory, limit);
            match retired {
                Ok(()) => shared.purges.retire(limit),
                Err(_) => self.counters.errors.add(1),
            }
        }
    }

    /// Returns `false` if a purge may still apply to the entry.
    fn sweep_entry(&self, shared: &StoreState, filter: &PurgeFilter, entry: &IndexEntry) -> bool {
        if !filter.may_apply_to(&entry.fingerprints) {
            return true;
        }
        let swept = self.apply_purges(shared, entry);
        if swept.is_err() {
            self.counters.errors.add(1);
        }
        swept.is_ok()
    }

    fn apply_purges(&self, shared: &StoreState, entry: &IndexEntry) -> io::Result<()> {
        let name = entry.name;
        let _held = self.name_lock(name);
        if self.index.generation(name) != Some(entry.generation) {
            return Ok(());
        }
        let Some((file, mut opened)) = self.open_object(name)? else {
            self.directory.remove_object(name)?;
            self.index.remove(name, entry.generation);
            return Ok(());
        };
        let record = &opened.record;
        let subject = PurgeSubject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        match shared.purges.verdict(subject).0 {
            PurgeVerdict::Untouched => {}
            PurgeVerdict::Gone => {
                self.directory.remove_object(name)?;
                self.index.remove(name, entry.generation);
            }
            PurgeVerdict::Stale if record.stale => {}
            PurgeVerdict::Stale => {
                opened.record.stale = true;
                let sequence = opened.sequence.saturating_add(1);
                let record = opened.record.encode();
                opened.layout.write_slot(&file, &record, sequence)?;
            }
        }
        Ok(())
    }
}
