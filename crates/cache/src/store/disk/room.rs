//! Making room on disk.

use std::io;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::super::eviction::Candidate;
use super::super::{Shared, locked};
use super::Disk;
use super::directory::Name;

/// When the disk is full, this much is dropped to make room.
const ROOM_BYTES: u64 = 32 << 20;

/// A disk that takes nothing fails for every object; it is told this seldom.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// At most this many are spared at once for being used in memory.
const MOST_SPARED: usize = 16;

impl Disk {
    /// Drops objects until the rest fits.
    ///
    /// # Errors
    /// What is being filled alone is too much.
    pub(super) fn evict(&self, shared: &Shared) -> io::Result<()> {
        for (name, generation) in self.index.take_surplus() {
            self.remove(name, generation);
        }
        let filling = self.filling.load(Ordering::Relaxed);
        if filling > self.settings.bytes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut spared = 0;
        while self.drop_one(shared, &mut spared, || self.index.next_out(filling)) {}
        Ok(())
    }

    /// Drops objects until the file system has room enough.
    ///
    /// # Errors
    /// It has not, whatever is dropped.
    pub(super) fn check_room(&self, shared: &Shared) -> io::Result<()> {
        let floor = self.settings.min_free_bytes;
        if floor == 0 {
            return Ok(());
        }
        for _ in 0..64 {
            if self.directory.free_bytes()? >= floor {
                return Ok(());
            }
            if !self.make_room(shared) {
                break;
            }
        }
        Err(io::ErrorKind::StorageFull.into())
    }

    /// Counts an error and tells of it, and makes room if there was none.
    pub(super) fn note(&self, shared: &Shared, error: &io::Error) {
        let full = matches!(
            error.kind(),
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
        );
        if full && error.raw_os_error().is_none() {
            // It is our own bound.
            self.counters.skipped.add(1);
            return;
        }
        self.counters.errors.add(1);
        self.tell(error);
        if full {
            self.make_room(shared);
        }
    }

    fn tell(&self, error: &io::Error) {
        let now = Instant::now();
        let mut told = locked(&self.told);
        if told.is_some_and(|told| now.saturating_duration_since(told) < TELL_EVERY) {
            return;
        }
        *told = Some(now);
        drop(told);
        tracing::warn!(
            dir = %self.settings.path.display(),
            %error,
            errors = self.counters.errors.get(),
            "the cache cannot be written to disk: answers are passed on and not kept there"
        );
    }

    /// Drops some objects. `false` when there are none.
    fn make_room(&self, shared: &Shared) -> bool {
        let goal = self.index.bytes().saturating_sub(ROOM_BYTES);
        let mut spared = 0;
        let mut dropped = false;
        while self.index.bytes() > goal
            && self.drop_one(shared, &mut spared, || self.index.take_out())
        {
            dropped = true;
        }
        dropped
    }

    /// Drops the object that `next` names, or spares it. `false` when it names none.
    fn drop_one(
        &self,
        shared: &Shared,
        spared: &mut usize,
        next: impl FnOnce() -> Option<Candidate>,
    ) -> bool {
        // Until its file is gone, it still has to meet what is purged.
        self.leaving.fetch_add(1, Ordering::AcqRel);
        let candidate = next();
        if let Some(candidate) = &candidate {
            // Hits in memory are not seen here.
            if *spared < MOST_SPARED && shared.is_used(candidate) {
                *spared = spared.saturating_add(1);
                self.index.put_back(candidate);
            } else {
                self.drop_candidate(shared, candidate);
            }
        }
        self.leaving.fetch_sub(1, Ordering::AcqRel);
        candidate.is_some()
    }

    fn drop_candidate(&self, shared: &Shared, candidate: &Candidate) {
        let name = Name {
            primary: candidate.primary,
            hash: candidate.hash,
        };
        self.remove(name, candidate.generation);
        // An open file would go on to take room.
        shared.close_file(candidate);
        self.counters.evictions.add(1);
    }
}
