//! The store of responses, in memory and on disk, shared by all workers.
//!
//! The store does not depend on HTTP. The [`policy`](crate::policy) decides on keys, freshness and
//! reuse; the store treats its metadata as [bytes](ObjectMetadata).
//!
//! - [`Store::lookup_or_fill`] finds an object, or one that is being filled and can be read
//!   meanwhile. Otherwise it lets one caller fetch it while the others [wait](FillWait).
//! - The caller that fetches gets a [`FillTicket`], and an [`ObjectFiller`] for a response that may
//!   be stored. All callers read by [`Object::body`] or an [`ObjectReader`], on any thread.
//! - [`Store::purge`] removes objects, or makes them stale, at a cost that does not depend on their
//!   number.
//! - A worker has a [`WorkerCache`] of the objects that it serves most, whose hits take no lock.
//!
//! From the lowest to the highest: `object_file` is the file of one object, `body` its body in memory or in that file, and
//! `object` the body with its `metadata`. Above it are `read`, the memory tier (`shard`) with the requests that wait for an
//! object (`pending`), and `disk`, the tier of files; `fill` and then `collapse` write into both.

mod body;
mod collapse;
mod count;
mod counters;
mod disk;
mod encode_ticket;
mod encoded_forms;
mod eviction;
mod fill;
mod intervals;
mod key;
mod list;
mod metadata;
mod object;
mod object_file;
mod pending;
mod piece;
mod purge;
mod purge_guard;
mod read;
mod shard;
mod state;
mod waker_list;
mod whole_body;
mod worker_cache;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub use body::FillOutcome;
pub use collapse::FillTicket;
pub use counters::CacheStatistics;
use counters::StoreCounters;
use disk::Disk;
pub use disk::{DiskSettings, PurgeReceipt};
pub use encode_ticket::EncodeTicket;
pub use encoded_forms::ENCODED_FORMS;
pub use fill::{ObjectFiller, UnwantedBytesError};
pub use intervals::Intervals;
pub use key::StoreKey;
pub use list::{StoreEntry, StoreListing};
pub use metadata::{NewObject, ObjectMetadata};
pub use object::Object;
use pending::PendingRequest;
pub use pending::{FillWait, WaitOutcome};
pub use piece::{ObjectPiece, ReadError};
use purge::Purges;
pub use purge::{PurgeCount, PurgeRequest, PurgeSelector};
pub use read::ObjectReader;
use shard::Shard;
use state::StoreState;
pub use worker_cache::WorkerCache;

/// The limits of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreSettings {
    /// The bytes of memory for objects.
    pub memory_bytes: u64,
    /// The largest object in memory, in bytes, but at most an eighth of `memory_bytes`.
    pub memory_object_bytes: u64,
    /// The most variants of one key.
    pub max_variants: usize,
    /// The bytes to buffer of an object that cannot be stored, for the readers that share it.
    pub window_bytes: u64,
    /// The bytes to buffer of an object while they wait to be written to disk.
    pub unwritten_bytes: u64,
    /// The most open object files.
    pub open_files: u64,
    /// How long a slow reader of an object that cannot be stored may delay the others before it is
    /// cut off.
    pub lag: Duration,
}

impl Default for StoreSettings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            memory_object_bytes: 1 << 20,
            max_variants: 32,
            window_bytes: 1 << 20,
            unwritten_bytes: 2 << 20,
            open_files: 2048,
            lag: Duration::from_secs(5),
        }
    }
}

/// After a sweep, the next one waits for this many times the duration of the sweep.
const SWEEP_PAUSE_FACTOR: u32 = 10;

/// The least memory of a store with a disk: objects pass through memory.
const MIN_MEMORY_BYTES: u64 = 4 << 20;

/// The objects of a cache, shared by all workers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<StoreState>);

/// The result of a lookup.
#[derive(Debug)]
pub enum CacheLookup {
    /// A stored object, complete or not. The policy decides whether it may be sent.
    Hit(Arc<Object>),
    /// An object that is being filled: its metadata is complete, and its body can be read as it
    /// arrives.
    Filling(Arc<Object>),
    /// Another request fetches it, and has no response yet.
    Wait(FillWait),
    /// No request fetches it: the caller does, for all that arrive meanwhile.
    Lead(FillTicket),
    /// Responses for this key could not be shared lately: the caller fetches for itself.
    Pass,
}

impl Store {
    /// An empty store in memory.
    pub fn new(settings: StoreSettings) -> Self {
        Self::build(settings, None, Purges::new(0))
    }

    /// A store in memory and on disk. It can be used immediately: objects on disk are found again
    /// by lookups, and by a scan in the background. Blocks for a few reads.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(mut settings: StoreSettings, disk: DiskSettings) -> io::Result<Self> {
        settings.memory_bytes = settings.memory_bytes.max(MIN_MEMORY_BYTES);
        let (disk, purges) = Disk::open(disk)?;
        let store = Self::build(settings, Some(disk), purges);
        store.scan_disk();
        Ok(store)
    }

    fn build(mut settings: StoreSettings, disk: Option<Disk>, purges: Purges) -> Self {
        let most = settings.memory_bytes / 8;
        settings.memory_object_bytes = settings.memory_object_bytes.min(most);
        // A shard is so large that its largest object is a small part of it.
        let wanted = settings.memory_bytes / settings.memory_object_bytes.saturating_mul(8).max(1);
        let shards = wanted.clamp(1, 64);
        let capacity = settings.memory_bytes / shards;
        let file_weight = (settings.memory_bytes / settings.open_files.max(1)).min(capacity / 8);
        let shard = || Mutex::new(Shard::new(capacity, file_weight));
        Self(Arc::new(StoreState {
            shards: (0..shards).map(|_| shard()).collect(),
            filling: AtomicU64::new(0),
            counters: StoreCounters::default(),
            // Greater than in any previous run, because the numbers of purges are.
            generations: AtomicU64::new(purges.current().saturating_mul(1 << 20)),
            guarded_purges: Mutex::default(),
            sweeping: AtomicUsize::new(0),
            disk,
            purges,
            settings,
        }))
    }

    /// Finds the object for `key`, or lets one request fetch it.
    ///
    /// `secondary` returns the secondary key of the request for the fields in [`NewObject::vary`].
    /// It is called under a lock: it must be quick, and must not use the store.
    pub fn lookup_or_fill(
        &self,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> CacheLookup {
        let mut shard = self.0.shard(key.hash());
        if let Some(object) = self.0.find(&mut shard, key, secondary) {
            return CacheLookup::Hit(object);
        }
        // Under the same lock, so that an object whose fill has just ended is found above.
        if let Some(object) = self.0.join(&mut shard, key, secondary) {
            return CacheLookup::Filling(object);
        }
        if let Some(wait) = self.search_disk(key, secondary) {
            return CacheLookup::Wait(wait);
        }
        self.lead_in_shard(&mut shard, key, secondary)
    }

    /// Finds the object for `key` in memory or on disk.
    pub async fn find(
        &self,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        loop {
            if let Some(object) = self.lookup(key, secondary) {
                return Some(object);
            }
            self.search_disk(key, secondary)?.outcome().await;
        }
    }

    /// Finds the object for `key` in memory.
    pub fn lookup(
        &self,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let mut shard = self.0.shard(key.hash());
        self.0.find(&mut shard, key, secondary)
    }

    /// As [`Store::lookup_or_fill`], regardless of stored objects: for a request that has to be
    /// forwarded, such as a validation. Never returns [`CacheLookup::Hit`].
    pub fn lead(&self, key: &StoreKey, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> CacheLookup {
        let mut shard = self.0.shard(key.hash());
        self.lead_in_shard(&mut shard, key, secondary)
    }

    fn lead_in_shard(
        &self,
        shard: &mut Shard,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> CacheLookup {
        let shared = &*self.0;
        if let Some(object) = shared.join(shard, key, secondary) {
            return CacheLookup::Filling(object);
        }
        if shard.is_pass(key.hash()) {
            shared.counters.misses.add(1);
            return CacheLookup::Pass;
        }
        let Ok(primary) = shard.primary_or_new(key) else {
            return CacheLookup::Pass;
        };
        let expected = primary.expected_secondary(secondary);
        if let Some(pending) = primary
            .pending
            .iter()
            .find(|held| *held.secondary == *expected)
        {
            shared.counters.collapsed.add(1);
            return CacheLookup::Wait(FillWait(pending.clone()));
        }
        shared.counters.misses.add(1);
        let pending = Arc::new(PendingRequest::new(&expected));
        primary.pending.push(pending.clone());
        CacheLookup::Lead(FillTicket::new(self.clone(), key.clone(), pending))
    }

    /// Removes objects, or makes them stale. It takes effect immediately for all responses that
    /// were requested before the call, including those that are being filled. The receipt confirms
    /// when it would survive a crash.
    pub fn purge(&self, purge: &PurgeRequest) -> PurgeReceipt {
        let shared = &*self.0;
        shared.counters.purges.add(1);
        if shared.has_no_target(purge) {
            return PurgeReceipt::nothing();
        }
        let number = shared.purges.add(purge);
        let recorded = self.record(number, purge);
        self.sweep();
        recorded
    }

    /// Removes one object that is outdated or damaged, and no other object of its key. Its readers
    /// can still read the part that is present.
    pub fn remove(&self, object: &Arc<Object>) {
        self.0.drop_object(object);
        self.remove_file(object);
    }

    /// Removes an object with a damaged piece on disk.
    pub(crate) fn remove_damaged(&self, object: &Arc<Object>) {
        if !object.is_removed() {
            self.0.on_disk(Disk::count_damage);
        }
        self.remove(object);
    }

    /// Waits until all stored objects are written to disk, and purged ones are removed. Blocks.
    pub fn flush(&self) {
        self.0.on_disk(Disk::flush);
    }

    /// Writes everything to the disk and stops using it. Blocks. Another process can use the
    /// directory when the last handle of the store is dropped.
    ///
    /// # Errors
    /// Not everything could be written, so that more has to be fetched and verified after a
    /// restart.
    pub fn close(&self) -> io::Result<()> {
        self.0.on_disk(Disk::close).unwrap_or(Ok(()))
    }

    /// Counts of what the store has done and contains.
    pub fn statistics(&self) -> CacheStatistics {
        let counters = &self.0.counters;
        let mut figures = CacheStatistics {
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            collapsed: counters.collapsed.get(),
            stored: counters.stored.get(),
            evictions: counters.evictions.get(),
            purges: counters.purges.get(),
            ..CacheStatistics::default()
        };
        for shard in &self.0.shards {
            let (bytes, objects) = locked(shard).size();
            figures.memory_bytes = figures.memory_bytes.saturating_add(bytes);
            figures.memory_objects = figures.memory_objects.saturating_add(objects);
        }
        figures.disk_scanned = 1000;
        if let Some(disk) = &self.0.disk {
            let size = disk.size();
            figures.disk_objects = size.objects;
            figures.disk_bytes = size.bytes;
            figures.disk_scanned = size.scanned_permille;
            figures.disk_hits = disk.counters.hits.get();
            figures.disk_evictions = disk.counters.evictions.get();
            figures.disk_errors = disk.counters.errors.get();
            figures.disk_damaged = disk.counters.damaged.get();
            figures.disk_verified_bytes = disk.counters.verified_bytes.get();
            figures.disk_skipped = disk.counters.skipped.get();
        }
        figures
    }

    pub(crate) fn freshen(&self, object: &Arc<Object>, metadata: ObjectMetadata, filled_at: u64) {
        object.freshen(metadata, filled_at);
        self.0.update_size(object);
        self.update_record(object);
    }

    /// Removes purged objects in the background, and then forgets the purges. Purges during a sweep
    /// are left for the next one.
    fn sweep(&self) {
        self.sweep_after(Duration::ZERO);
    }

    fn sweep_after(&self, delay: Duration) {
        if self.0.sweeping.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let store = self.clone();
        let job = move || {
            let before = store.0.sweeping.load(Ordering::Acquire);
            let start = Instant::now();
            store.0.sweep();
            let duration = start.elapsed();
            // Purges that come one after another share the next sweep, which costs a tenth of the time at most: a purge of
            // each page of a site would otherwise look at all objects each time.
            if store.0.sweeping.swap(0, Ordering::AcqRel) > before {
                store.sweep_after(duration.saturating_mul(SWEEP_PAUSE_FACTOR));
            }
        };
        match &self.0.disk {
            Some(disk) => disk.run_after(delay, job),
            // If no thread can be started, the next purge sweeps.
            None => {
                let delayed = move || {
                    thread::park_timeout(delay);
                    job();
                };
                let thread = thread::Builder::new().name("apus-cache".to_owned());
                if thread.spawn(delayed).is_err() {
                    self.0.sweeping.store(0, Ordering::Release);
                }
            }
        }
    }

    pub(crate) fn shared(&self) -> &StoreState {
        &self.0
    }
}

/// Locks a mutex, also after a panic: no critical section leaves a half-done change behind.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
