//! What a store has done and holds, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) hits: Counter,
    pub(crate) misses: Counter,
    pub(crate) collapsed: Counter,
    pub(crate) stored: Counter,
    pub(crate) evictions: Counter,
    pub(crate) purges: Counter,
}

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a store has done since it was opened, and what it holds now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Figures {
    /// Lookups that found an object.
    pub hits: u64,
    /// Lookups that found nothing and were told to ask the origin.
    pub misses: u64,
    /// Lookups that met a request for the same on its way.
    pub collapsed: u64,
    /// Objects that were stored.
    pub stored: u64,
    /// Objects dropped from memory for want of room.
    pub evictions: u64,
    /// Purges.
    pub purges: u64,
    /// Objects in memory.
    pub memory_objects: u64,
    /// The bytes that they take.
    pub memory_bytes: u64,
    /// Objects on disk, as far as it was looked through.
    pub disk_objects: u64,
    /// The bytes that they take.
    pub disk_bytes: u64,
    /// How much of the disk was looked through since the start, in thousandths; 1000 without a
    /// disk.
    pub disk_scanned: u64,
    /// Objects that were brought from disk into memory.
    pub disk_hits: u64,
    /// Objects dropped from disk for want of room.
    pub disk_evictions: u64,
    /// Reads and writes that failed, as on a full disk.
    pub disk_errors: u64,
    /// Files that were not whole, or not what they said, and were removed.
    pub disk_damaged: u64,
    /// Objects that were not written: there was no room for all that were being filled, or the disk
    /// was too slow for them.
    pub disk_skipped: u64,
}
