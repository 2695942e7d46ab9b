//! Eviction from the disk tier.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::eviction::EvictionCandidate;
use super::super::key::ObjectName;
use super::super::{StoreState, locked};
use super::Disk;

/// The bytes that are evicted when the disk is full.
const EVICTION_BYTES: u64 = 32 << 20;

/// The interval of warnings about a failing disk, which fails for every object.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// The most objects that are spared at once because they are used in memory.
const MAX_SPARED: usize = 16;

impl Disk {
    /// Evicts objects until the rest fits.
    ///
    /// # Errors
    /// The files that are being filled exceed the capacity alone.
    pub(super) fn evict(&self, shared: &StoreState) -> io::Result<()> {
        for (name, generation) in self.index.take_surplus() {
            self.remove(name, generation);
        }
        let filling = self.filling.load(Ordering::Relaxed);
        if filling > self.settings.bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut spared = 0;
        while self.evict_one(shared, &mut spared, || self.index.next_to_evict(filling)) {}
        Ok(())
    }

    /// Evicts objects until the file system has enough free space.
    ///
    /// # Errors
    /// It still has not enough free space afterwards.
    pub(super) fn ensure_free_space(&self, shared: &StoreState) -> io::Result<()> {
        let floor = self.settings.min_free_bytes;
        if floor == 0 {
            return Ok(());
        }
        for _ in 0..64 {
            if self.directory.free_bytes()? >= floor {
                return Ok(());
            }
            if !self.free_space(shared) {
                break;
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Counts and logs an error, and evicts objects if the disk is full.
    pub(super) fn count_error(&self, shared: &StoreState, error: &io::Error) {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        if full && error.raw_os_error().is_none() {
            // The limit of the configuration is reached, not the capacity of the disk.
            self.counters.skipped.add(1);
            return;
        }
        self.counters.errors.add(1);
        self.log_error(error);
        if full {
            self.free_space(shared);
        }
    }

    fn log_error(&self, error: &io::Error) {
        let now = Instant::now();
        let mut last_warning = locked(&self.last_warning);
        if last_warning.is_some_and(|last_warning| {
            now.saturating_duration_since(last_warning) < WARNING_INTERVAL
        }) {
            return;
        }
        *last_warning = Some(now);
        drop(last_warning);
        tracing::warn!(
            dir = %self.settings.path.display(),
            %error,
            errors = self.counters.errors.get(),
            "the cache cannot write to disk: responses are sent without being stored there"
        );
    }

    /// Evicts some objects. Returns `false` if there are none.
    fn free_space(&self, shared: &StoreState) -> bool {
        let goal = self.index.bytes().saturating_sub(EVICTION_BYTES);
        let mut spared = 0;
        let mut dropped = false;
        while self.index.bytes() > goal
            && self.evict_one(shared, &mut spared, || self.index.take_to_evict())
        {
            dropped = true;
        }
        dropped
    }

    /// Evicts or spares the object that `next` returns. Returns `false` if it returns none.
    fn evict_one(
        &self,
        shared: &StoreState,
        spared: &mut usize,
        next: impl FnOnce() -> Option<EvictionCandidate>,
    ) -> bool {
        // Purges still have to be applied to it until its file is removed.
        self.removing.fetch_add(1, Ordering::AcqRel);
        let candidate = next();
        if let Some(candidate) = &candidate {
            // Hits in memory do not reach the queue of the disk: what is used there would leave the disk, for objects that
            // were read once.
            if *spared < MAX_SPARED && shared.is_used(candidate) {
                *spared = spared.saturating_add(1);
                self.index.put_back(candidate);
            } else {
                self.evict_candidate(shared, candidate);
            }
        }
        self.removing.fetch_sub(1, Ordering::AcqRel);
        candidate.is_some()
    }

    fn evict_candidate(&self, shared: &StoreState, candidate: &EvictionCandidate) {
        let name = ObjectName {
            primary: candidate.primary,
            hash: candidate.hash,
        };
        self.remove(name, candidate.generation);
        // An open file would still take space.
        shared.close_file(candidate);
        self.counters.evictions.add(1);
    }
}
