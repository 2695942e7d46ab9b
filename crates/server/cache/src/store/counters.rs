//! The counters of a store, for metrics.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts since the store was opened.
#[derive(Debug, Default)]
pub(crate) struct StoreCounters {
    pub(crate) hits: StoreCounter,
    pub(crate) misses: StoreCounter,
    pub(crate) collapsed: StoreCounter,
    pub(crate) stored: StoreCounter,
    pub(crate) evictions: StoreCounter,
    pub(crate) purges: StoreCounter,
}

/// A counter that only grows.
#[derive(Debug, Default)]
pub(crate) struct StoreCounter(AtomicU64);

impl StoreCounter {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What a store has done since it was opened, and what it contains now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheStatistics {
    /// Lookups that found an object.
    pub hits: u64,
    /// Lookups that found nothing, so that the caller forwarded the request.
    pub misses: u64,
    /// Lookups that waited for or joined another request.
    pub collapsed: u64,
    /// Objects that were stored.
    pub stored: u64,
    /// Objects evicted from memory.
    pub evictions: u64,
    /// Purges.
    pub purges: u64,
    /// Objects in memory.
    pub memory_objects: u64,
    /// The bytes that they take.
    pub memory_bytes: u64,
    /// Objects on disk that were found so far.
    pub disk_objects: u64,
    /// The bytes that they take.
    pub disk_bytes: u64,
    /// How much of the disk was scanned since the start, in thousandths; 1000 without a disk.
    pub disk_scanned: u64,
    /// Objects that were loaded from disk into memory.
    pub disk_hits: u64,
    /// Objects evicted from disk.
    pub disk_evictions: u64,
    /// Reads and writes that failed, as on a full disk.
    pub disk_errors: u64,
    /// Files that were incomplete or damaged, and were removed.
    pub disk_damaged: u64,
    /// The bytes of large bodies that were read to verify their checksums.
    pub disk_verified_bytes: u64,
    /// Objects that were not written, because there was no room for all that were being filled or
    /// the disk was too slow.
    pub disk_skipped: u64,
}
