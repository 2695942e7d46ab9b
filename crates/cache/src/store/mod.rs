//! Where stored responses are kept: in memory, shared by all workers.
//!
//! The store knows nothing of HTTP. What a response is stored under, until when it is fresh and
//! whether it may be sent is for [`policy`](crate::policy) to say; to the store its metadata is [a
//! few bytes](Head).
//!
//! - [`Store::lookup_or_fill`] finds an object, or one that is being filled and can be read along,
//!   or makes the caller the one who asks the origin while the others [wait](Wait).
//! - Who asks gets a [`FillTicket`], and for a response that may be stored a [`Filler`]; everybody,
//!   the one who asked too, reads by [`Object::body`] or a [`Reader`], on whatever thread.
//! - [`Store::purge`] takes objects out, or makes them stale, whatever their number.
//! - A worker keeps what it serves most in a [`WorkerFront`], whose hits take no lock.

mod collapse;
mod content;
mod counters;
mod disk;
mod eviction;
mod fill;
mod forms;
mod front;
mod intervals;
mod key;
mod object;
mod purge;
mod read;
mod shard;
mod shared;
mod whole;

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use collapse::Pending;
pub use collapse::{Awaited, FillTicket, Wait};
pub use content::Filled;
use counters::Counters;
pub use counters::Figures;
use disk::Disk;
pub use disk::{DiskSettings, Recorded};
pub use fill::{Filler, Unwanted};
pub use forms::{FORMS, FormTicket};
pub use front::WorkerFront;
pub use intervals::Intervals;
pub use key::Key;
pub use object::{Head, NewObject, Object};
use purge::Purges;
pub use purge::{Purge, Purged};
pub use read::{Piece, ReadError, Reader};
use shard::Shard;
use shared::Shared;

/// What a store may take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The bytes of memory for objects.
    pub memory_bytes: u64,
    /// The largest object to be kept in memory, in bytes; at most an eighth of all is used.
    pub memory_object_bytes: u64,
    /// The most variants below one key.
    pub most_variants: usize,
    /// The bytes of an object that cannot be stored to be held for readers who share it.
    pub window_bytes: u64,
    /// The bytes of an object to be held while they wait to be written to disk.
    pub unwritten_bytes: u64,
    /// The most files of objects to be kept open.
    pub open_files: u64,
    /// How long a slow reader of such an object may hold up the others before it is left behind.
    pub lag: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            memory_object_bytes: 1 << 20,
            most_variants: 32,
            window_bytes: 1 << 20,
            unwritten_bytes: 2 << 20,
            open_files: 2048,
            lag: Duration::from_secs(5),
        }
    }
}

/// While purges come one after another, a sweep is followed by a rest of this many times as long.
const SWEEP_REST: u32 = 10;

/// With a disk there is this much memory at least: objects pass through it on their way.
const LEAST_MEMORY_BYTES: u64 = 4 << 20;

/// The objects of a cache, shared by all workers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

/// What a lookup came to.
#[derive(Debug)]
pub enum Found {
    /// A stored object, whole or in parts. Whether it may be sent is for the policy to say.
    Hit(Arc<Object>),
    /// An object that is being filled: its metadata is there, its content can be read as it comes.
    Filling(Arc<Object>),
    /// Another request has gone to the origin for it, and there is no answer yet.
    Wait(Wait),
    /// Nobody has: the caller goes, for all that come meanwhile.
    Lead(FillTicket),
    /// Responses for this key could not be shared lately: the caller goes for itself alone.
    Pass,
}

impl Store {
    /// An empty store in memory.
    pub fn new(settings: Settings) -> Self {
        Self::build(settings, None, Purges::new(0))
    }

    /// A store in memory and on disk, with what is on disk already. It can be used at once; what
    /// is on disk is looked through meanwhile. Blocks for a few reads.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(mut settings: Settings, disk: DiskSettings) -> io::Result<Self> {
        settings.memory_bytes = settings.memory_bytes.max(LEAST_MEMORY_BYTES);
        let (disk, purges) = Disk::open(disk)?;
        let store = Self::build(settings, Some(disk), purges);
        store.scan_disk();
        Ok(store)
    }

    fn build(mut settings: Settings, disk: Option<Disk>, purges: Purges) -> Self {
        let most = settings.memory_bytes / 8;
        settings.memory_object_bytes = settings.memory_object_bytes.min(most);
        // A shard is large enough that its largest object is a small part of it.
        let wanted = settings.memory_bytes / settings.memory_object_bytes.saturating_mul(8).max(1);
        let shards = wanted.clamp(1, 64);
        let capacity = settings.memory_bytes / shards;
        let file_weight = (settings.memory_bytes / settings.open_files.max(1)).min(capacity / 8);
        let shard = || Mutex::new(Shard::new(capacity, file_weight));
        Self(Arc::new(Shared {
            shards: (0..shards).map(|_| shard()).collect(),
            filling: AtomicU64::new(0),
            counters: Counters::default(),
            // Greater than in any run before, and so are the numbers of purges.
            generations: AtomicU64::new(purges.current().saturating_mul(1 << 20)),
            asked: Mutex::default(),
            sweeping: AtomicUsize::new(0),
            disk,
            purges,
            settings,
        }))
    }

    /// Finds what is stored for `key`, or sees to it that one request goes and gets it.
    ///
    /// `secondary` gives what the request has in the selecting fields that a response came with
    /// ([`NewObject::vary`]). It is called under a lock: it must be quick, and not use the store.
    pub fn lookup_or_fill(&self, key: &Key, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Found {
        let mut shard = self.0.shard(key.hash());
        if let Some(object) = self.0.find(&mut shard, key, secondary) {
            return Found::Hit(object);
        }
        // Under the same lock: what has just been filled is no longer being filled.
        if let Some(object) = self.0.join(&mut shard, key, secondary) {
            return Found::Filling(object);
        }
        if let Some(wait) = self.search_disk(key, secondary) {
            return Found::Wait(wait);
        }
        self.lead_in(&mut shard, key, secondary)
    }

    /// Finds what is stored for `key`, also on disk.
    pub async fn find(
        &self,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        loop {
            if let Some(object) = self.lookup(key, secondary) {
                return Some(object);
            }
            self.search_disk(key, secondary)?.outcome().await;
        }
    }

    /// Finds what is stored for `key` and in memory.
    pub fn lookup(
        &self,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let mut shard = self.0.shard(key.hash());
        self.0.find(&mut shard, key, secondary)
    }

    /// As [`Store::lookup_or_fill`], whatever is stored: for a request that has to go to the
    /// origin, as to validate an object. Never [`Found::Hit`].
    pub fn lead(&self, key: &Key, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Found {
        let mut shard = self.0.shard(key.hash());
        self.lead_in(&mut shard, key, secondary)
    }

    fn lead_in(
        &self,
        shard: &mut Shard,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Found {
        let shared = &*self.0;
        if let Some(object) = shared.join(shard, key, secondary) {
            return Found::Filling(object);
        }
        if shard.is_pass(key.hash()) {
            shared.counters.misses.add(1);
            return Found::Pass;
        }
        let Ok(primary) = shard.primary_or_new(key) else {
            return Found::Pass;
        };
        let expected = primary.expected(secondary);
        if let Some(pending) = primary
            .pending
            .iter()
            .find(|held| *held.secondary == *expected)
        {
            shared.counters.collapsed.add(1);
            return Found::Wait(Wait(pending.clone()));
        }
        shared.counters.misses.add(1);
        let pending = Arc::new(Pending::new(&expected));
        primary.pending.push(pending.clone());
        Found::Lead(FillTicket::new(self.clone(), key.clone(), pending))
    }

    /// Takes objects out, or makes them stale. It holds at once, for everything that was asked for
    /// before the call, also for what is being filled; what it returns tells when it would hold
    /// after a crash.
    pub fn purge(&self, purge: &Purge) -> Recorded {
        let shared = &*self.0;
        shared.counters.purges.add(1);
        if shared.is_about_nothing(purge) {
            return Recorded::nothing();
        }
        let number = shared.purges.add(purge);
        let recorded = self.record(number, purge);
        self.sweep();
        recorded
    }

    /// Takes one object out that turned out to be outdated or damaged, whatever else there is for
    /// its key. Who reads it goes on with what is there of it.
    pub fn remove(&self, object: &Arc<Object>) {
        self.0.drop_object(object);
        self.remove_file(object);
    }

    /// Removes an object of which a piece on disk is not what was written there.
    pub(crate) fn remove_damaged(&self, object: &Arc<Object>) {
        if !object.is_out() {
            self.0.on_disk(Disk::count_damage);
        }
        self.remove(object);
    }

    /// Waits until everything that is stored is on disk, and what was purged is not. Blocks.
    pub fn flush(&self) {
        self.0.on_disk(Disk::flush);
    }

    /// Ends the use of the disk, with everything written. Blocks. The directory is free for others
    /// when the last handle of the store is dropped.
    ///
    /// # Errors
    /// Not everything could be written: more has to be fetched and verified after a restart.
    pub fn close(&self) -> io::Result<()> {
        self.0.on_disk(Disk::close).unwrap_or(Ok(()))
    }

    /// What the store has done and holds.
    pub fn figures(&self) -> Figures {
        let counters = &self.0.counters;
        let mut figures = Figures {
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            collapsed: counters.collapsed.get(),
            stored: counters.stored.get(),
            evictions: counters.evictions.get(),
            purges: counters.purges.get(),
            ..Figures::default()
        };
        for shard in &self.0.shards {
            let (bytes, objects) = locked(shard).size();
            figures.memory_bytes = figures.memory_bytes.saturating_add(bytes);
            figures.memory_objects = figures.memory_objects.saturating_add(objects);
        }
        figures.disk_scanned = 1000;
        if let Some(disk) = &self.0.disk {
            (
                figures.disk_objects,
                figures.disk_bytes,
                figures.disk_scanned,
            ) = disk.size();
            figures.disk_hits = disk.counters.hits.get();
            figures.disk_evictions = disk.counters.evictions.get();
            figures.disk_errors = disk.counters.errors.get();
            figures.disk_damaged = disk.counters.damaged.get();
            figures.disk_skipped = disk.counters.skipped.get();
        }
        figures
    }

    pub(crate) fn freshen(&self, object: &Arc<Object>, head: Head, asked_at: u64) {
        object.freshen(head, asked_at);
        self.0.resized(object);
        self.update_record(object);
    }

    /// Removes what purges are about in the background, and forgets them then. Those that come
    /// while that is done are for the next time.
    fn sweep(&self) {
        self.sweep_after(Duration::ZERO);
    }

    fn sweep_after(&self, rest: Duration) {
        if self.0.sweeping.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let store = self.clone();
        let job = move || {
            let before = store.0.sweeping.load(Ordering::Acquire);
            let begun = Instant::now();
            store.0.sweep();
            let took = begun.elapsed();
            if store.0.sweeping.swap(0, Ordering::AcqRel) > before {
                store.sweep_after(took.saturating_mul(SWEEP_REST));
            }
        };
        match &self.0.disk {
            Some(disk) => disk.run_after(rest, job),
            // Without a thread for it, it is left to the next purge.
            None => {
                let rested = move || {
                    thread::park_timeout(rest);
                    job();
                };
                let thread = thread::Builder::new().name("apus-cache".to_owned());
                if thread.spawn(rested).is_err() {
                    self.0.sweeping.store(0, Ordering::Release);
                }
            }
        }
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

/// What a panic left behind a lock is whole: nothing is changed there in two steps that could fail
/// between.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
