//! The background work of a purge: recording it, and removing what it names.

use std::io;
use std::sync::atomic::Ordering;

use tokio::sync::oneshot;

use super::super::purge::{Purge, Sieve, Subject, Verdict};
use super::super::{Shared, Store, locked};
use super::Disk;
use super::index::Entry;

/// Confirms that a purge holds after a crash, too. It holds for this run from the start, and may be
/// dropped.
#[derive(Debug)]
pub struct Recorded(Option<oneshot::Receiver<io::Result<()>>>);

impl Recorded {
    /// There is nothing to write down.
    pub(crate) fn nothing() -> Self {
        Self(None)
    }

    /// Waits until the purge is written down.
    ///
    /// # Errors
    /// It could not be: objects on disk may be found again after a restart.
    pub async fn durable(self) -> io::Result<()> {
        match self.0 {
            None => Ok(()),
            Some(written) => written.await.unwrap_or_else(|_| {
                Err(io::Error::other(
                    "the store was closed before the purge was written down",
                ))
            }),
        }
    }
}

impl Store {
    /// Has a purge written down, and what it is about removed.
    pub(crate) fn record(&self, number: u64, purge: &Purge) -> Recorded {
        let Some(disk) = &self.shared().disk else {
            return Recorded::nothing();
        };
        let (told, written) = oneshot::channel();
        let (store, purge) = (self.clone(), purge.clone());
        disk.pool.run_first(move || {
            let appended = store.shared().on_disk(|disk| {
                let appended = locked(&disk.journal).append(number, &purge);
                if appended.is_err() {
                    disk.counters.errors.add(1);
                }
                appended
            });
            let _ = told.send(appended.unwrap_or(Ok(())));
        });
        Recorded(Some(written))
    }
}

impl Disk {
    /// Removes what rules up to `target` are about, and then forgets those up to `limit`.
    pub(crate) fn sweep(&self, shared: &Shared, target: u64, limit: u64) {
        if !self.index.is_complete() {
            // What was not found yet meets the rules when it is.
            return;
        }
        let sieve = shared.purges.sieve();
        let mut clean = true;
        for part in 0..self.index.parts() {
            for entry in self.index.older_than(part, target) {
                clean &= self.sweep_entry(shared, &sieve, &entry);
            }
        }
        if clean && self.leaving.load(Ordering::Acquire) == 0 {
            let retired = locked(&self.journal).retire(&self.directory, limit);
            match retired {
                Ok(()) => shared.purges.retire(limit),
                Err(_) => self.counters.errors.add(1),
            }
        }
    }

    /// `false` when the entry may still have to meet a rule.
    fn sweep_entry(&self, shared: &Shared, sieve: &Sieve, entry: &Entry) -> bool {
        if !sieve.catches(&entry.marks) {
            return true;
        }
        let swept = self.meet(shared, entry);
        if swept.is_err() {
            self.counters.errors.add(1);
        }
        swept.is_ok()
    }

    fn meet(&self, shared: &Shared, entry: &Entry) -> io::Result<()> {
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
        let subject = Subject {
            key: &record.key,
            tags: &record.new.tags,
            filled_at: record.filled_at,
        };
        match shared.purges.verdict(subject).0 {
            Verdict::Untouched => {}
            Verdict::Gone => {
                self.directory.remove_object(name)?;
                self.index.remove(name, entry.generation);
            }
            Verdict::Stale if record.stale => {}
            Verdict::Stale => {
                opened.record.stale = true;
                let sequence = opened.sequence.saturating_add(1);
                let record = opened.record.encode();
                opened.layout.write_slot(&file, &record, sequence)?;
            }
        }
        Ok(())
    }
}
