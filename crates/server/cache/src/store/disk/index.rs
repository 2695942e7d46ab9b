//! The index of the objects on disk, with a few words for each.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use super::super::eviction::{EvictionCandidate, EvictionQueues, Usage};
use super::super::key::{KeyHash, ObjectName, StoreKey};
use super::super::locked;
use super::directory::bucket;

const SHARDS: usize = 64;
const BUCKETS: usize = 1 << 16;

/// The most variants of one key.
const MAX_VARIANTS: usize = 64;

/// The most `Vary` lists that are shared between objects.
const MAX_VARIES: usize = 4096;

/// An object on disk.
#[derive(Clone, Debug)]
pub(crate) struct IndexEntry {
    pub(crate) name: ObjectName,
    pub(crate) generation: u64,
    /// The fields in `Vary`; empty for a response without it.
    pub(crate) vary: Arc<[u8]>,
    pub(crate) filled_at: u64,
    /// The fingerprints of the purges that may apply to it, see
    /// [`fingerprints`](super::super::purge::fingerprints).
    pub(crate) fingerprints: Box<[u32]>,
    pub(crate) bytes: u64,
}

/// The objects on disk that were found so far.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<HashMap<KeyHash, IndexedVariants>>]>,
    eviction: Mutex<EvictionQueues>,
    /// The subdirectories that were scanned since the start.
    scanned: Mutex<Box<[bool]>>,
    scanned_count: AtomicUsize,
    /// The subdirectories among them that hold objects which could not be read.
    unread: Mutex<BTreeSet<u16>>,
    complete: AtomicBool,
    /// Each `Vary` list once.
    varies: Mutex<HashSet<Arc<[u8]>>>,
    /// Surplus variants of keys, which are to be removed.
    surplus: Mutex<Vec<(ObjectName, u64)>>,
    objects: AtomicU64,
}

/// The objects with one primary key; nearly always one.
type IndexedVariants = SmallVec<[IndexedObject; 1]>;

#[derive(Debug)]
struct IndexedObject {
    entry: IndexEntry,
    usage: Arc<Usage>,
}

impl Index {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            eviction: Mutex::new(EvictionQueues::new(capacity)),
            scanned: Mutex::new(vec![false; BUCKETS].into()),
            scanned_count: AtomicUsize::new(0),
            unread: Mutex::default(),
            complete: AtomicBool::new(false),
            varies: Mutex::default(),
            surplus: Mutex::default(),
            objects: AtomicU64::new(0),
        }
    }

    /// The latest object with the primary key `key` that a request selects.
    pub(crate) fn select(
        &self,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<ObjectName> {
        let shard = self.shard(key.hash());
        let variants = shard.get(&key.hash())?;
        let mut latest: Option<&IndexedObject> = None;
        let mut last: Option<(&Arc<[u8]>, KeyHash)> = None;
        for object in variants {
            let vary = &object.entry.vary;
            let wanted = match last {
                Some((same, wanted)) if same == vary => wanted,
                _ if vary.is_empty() => key.hash(),
                _ => key.variant(&secondary(vary)),
            };
            last = Some((vary, wanted));
            let newer = |object: &IndexedObject, than: &IndexedObject| {
                object.entry.generation > than.entry.generation
            };
            if object.entry.name.hash == wanted && latest.is_none_or(|than| newer(object, than)) {
                latest = Some(object);
            }
        }
        latest.map(|object| {
            object.usage.touch();
            object.entry.name
        })
    }

    /// The generation of the object with this name.
    pub(crate) fn generation(&self, name: ObjectName) -> Option<u64> {
        let shard = self.shard(name.primary);
        let object = shard
            .get(&name.primary)?
            .iter()
            .find(|object| object.entry.name == name)?;
        Some(object.entry.generation)
    }

    /// The `Vary` list `vary`, shared between equal ones.
    pub(crate) fn intern(&self, vary: &[u8]) -> Arc<[u8]> {
        let mut varies = locked(&self.varies);
        if let Some(known) = varies.get(vary) {
            return known.clone();
        }
        let vary: Arc<[u8]> = vary.into();
        if varies.len() < MAX_VARIES {
            varies.insert(vary.clone());
        }
        vary
    }

    /// Whether there is an object with the primary key `key`.
    pub(crate) fn has(&self, key: KeyHash) -> bool {
        self.shard(key).contains_key(&key)
    }

    /// Inserts or updates an object. One of an older generation is replaced.
    pub(crate) fn insert(&self, entry: IndexEntry) {
        let mut shard = self.shard(entry.name.primary);
        let variants = shard.entry(entry.name.primary).or_default();
        let mut eviction = locked(&self.eviction);
        if let Some(object) = variants
            .iter_mut()
            .find(|object| object.entry.name == entry.name)
        {
            if object.entry.generation == entry.generation {
                eviction.resize(&object.usage, entry.bytes);
                object.entry = entry;
                return;
            }
            eviction.remove(&object.usage);
            object.usage = Arc::default();
            eviction.insert(entry.candidate(&object.usage), entry.bytes);
            object.entry = entry;
            return;
        }
        let usage = Arc::default();
        eviction.insert(entry.candidate(&usage), entry.bytes);
        variants.push(IndexedObject { entry, usage });
        // A field in `Vary` with free values would make a file for each value that a client invents.
        if variants.len() > MAX_VARIANTS {
            let oldest = variants.iter().min_by_key(|object| object.entry.generation);
            let oldest = oldest.map(|object| (object.entry.name, object.entry.generation));
            locked(&self.surplus).extend(oldest);
        }
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an object, if it has this generation.
    pub(crate) fn remove(&self, name: ObjectName, generation: u64) {
        self.remove_if(name, |object| object == generation);
    }

    /// Removes an object, if it is older than `generation`.
    pub(crate) fn supersede(&self, name: ObjectName, generation: u64) {
        self.remove_if(name, |object| object < generation);
    }

    /// The next object to evict, so that all objects and `extra_bytes` bytes fit. It stays in the index.
    pub(crate) fn next_to_evict(&self, extra_bytes: u64) -> Option<EvictionCandidate> {
        locked(&self.eviction).next(extra_bytes)
    }

    /// The next object to evict, regardless of the capacity.
    pub(crate) fn take_to_evict(&self) -> Option<EvictionCandidate> {
        locked(&self.eviction).take()
    }

    /// Puts a candidate back, unless it was removed.
    pub(crate) fn put_back(&self, candidate: &EvictionCandidate) {
        let shard = self.shard(candidate.primary);
        let Some(variants) = shard.get(&candidate.primary) else {
            return;
        };
        let mut all = variants.iter();
        if let Some(object) = all.find(|object| Arc::ptr_eq(&object.usage, &candidate.usage)) {
            locked(&self.eviction).insert(candidate.clone(), object.entry.bytes);
        }
    }

    /// Takes the surplus variants of keys.
    pub(crate) fn take_surplus(&self) -> Vec<(ObjectName, u64)> {
        std::mem::take(&mut *locked(&self.surplus))
    }

    /// The bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.eviction).bytes()
    }

    /// The number of objects.
    pub(crate) fn len(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// The objects in a part of [`Index::parts`] that were filled before `number`.
    pub(crate) fn older_than(&self, part: usize, number: u64) -> Vec<IndexEntry> {
        let Some(shard) = self.shards.get(part) else {
            return Vec::new();
        };
        let shard = locked(shard);
        let entries = shard.values().flatten().map(|object| &object.entry);
        entries
            .filter(|entry| entry.filled_at < number)
            .cloned()
            .collect()
    }

    /// The number of parts.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Whether the objects of `key` are known, because their subdirectory was scanned.
    pub(crate) fn knows(&self, key: KeyHash) -> bool {
        self.is_complete() || self.is_scanned(bucket(key))
    }

    /// Whether a subdirectory was scanned.
    pub(crate) fn is_scanned(&self, bucket: u16) -> bool {
        locked(&self.scanned)
            .get(usize::from(bucket))
            .copied()
            .unwrap_or(true)
    }

    /// Marks a subdirectory as scanned.
    pub(crate) fn mark_scanned(&self, bucket: u16) {
        if let Some(scanned) = locked(&self.scanned).get_mut(usize::from(bucket))
            && !std::mem::replace(scanned, true)
        {
            self.scanned_count.fetch_add(1, Ordering::AcqRel);
            self.update_complete(&locked(&self.unread));
        }
    }

    /// Notes that objects in a subdirectory could not be read. Lookups miss them, and do not scan it again themselves.
    pub(crate) fn mark_unread(&self, bucket: u16) {
        let mut unread = locked(&self.unread);
        unread.insert(bucket);
        self.update_complete(&unread);
    }

    /// Notes that a subdirectory was read after all.
    pub(crate) fn mark_read(&self, bucket: u16) {
        let mut unread = locked(&self.unread);
        unread.remove(&bucket);
        self.update_complete(&unread);
    }

    /// The subdirectories that hold objects which could not be read.
    pub(crate) fn unread(&self) -> BTreeSet<u16> {
        locked(&self.unread).clone()
    }

    /// Whether there are any.
    pub(crate) fn has_unread(&self) -> bool {
        !locked(&self.unread).is_empty()
    }

    fn update_complete(&self, unread: &BTreeSet<u16>) {
        let count = self.scanned_count.load(Ordering::Acquire);
        let is_complete = count >= BUCKETS && unread.is_empty();
        self.complete.store(is_complete, Ordering::Release);
    }

    /// Whether all subdirectories were scanned, and all objects in them read.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// The scanned share of the subdirectories, in thousandths.
    pub(crate) fn scanned_permille(&self) -> u64 {
        (self
            .scanned_count
            .load(Ordering::Acquire)
            .saturating_mul(1000)
            / BUCKETS) as u64
    }

    fn remove_if(&self, name: ObjectName, which: impl Fn(u64) -> bool) {
        let mut shard = self.shard(name.primary);
        let Some(variants) = shard.get_mut(&name.primary) else {
            return;
        };
        let found =
            |object: &IndexedObject| object.entry.name == name && which(object.entry.generation);
        if let Some(at) = variants.iter().position(found) {
            let object = variants.remove(at);
            locked(&self.eviction).remove(&object.usage);
            self.objects.fetch_sub(1, Ordering::Relaxed);
        }
        if variants.is_empty() {
            shard.remove(&name.primary);
        }
    }

    fn shard(&self, key: KeyHash) -> MutexGuard<'_, HashMap<KeyHash, IndexedVariants>> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.shards[key.spread() % SHARDS])
    }
}

impl IndexEntry {
    fn candidate(&self, usage: &Arc<Usage>) -> EvictionCandidate {
        EvictionCandidate {
            hash: self.name.hash,
            primary: self.name.primary,
            generation: self.generation,
            usage: usage.clone(),
        }
    }
}
