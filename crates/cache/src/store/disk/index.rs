//! What is on disk, as far as memory knows: a few words for each object.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use smallvec::SmallVec;

use super::super::eviction::{Candidate, Eviction, Usage};
use super::super::key::{Hash, Key};
use super::super::locked;
use super::directory::{Name, bucket};

const SHARDS: usize = 64;
const BUCKETS: usize = 1 << 16;

/// More variants than this are not kept for one key.
const MOST_VARIANTS: usize = 64;

/// More lists of selecting fields than this are not shared.
const MOST_VARIES: usize = 4096;

/// An object on disk.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Name,
    pub(crate) generation: u64,
    /// Which request fields select it; empty for a response without Vary.
    pub(crate) vary: Arc<[u8]>,
    pub(crate) filled_at: u64,
    /// What purges may be about it, see [`marks`](super::super::purge::marks).
    pub(crate) marks: Box<[u32]>,
    pub(crate) bytes: u64,
}

/// All objects on disk that were found so far.
#[derive(Debug)]
pub(crate) struct Index {
    shards: Box<[Mutex<HashMap<Hash, Below>>]>,
    eviction: Mutex<Eviction>,
    /// The directories that were read since the start.
    scanned: Mutex<Box<[bool]>>,
    scanned_count: AtomicUsize,
    complete: AtomicBool,
    /// Each list of selecting fields once.
    varies: Mutex<HashSet<Arc<[u8]>>>,
    /// Variants beyond the most for one key, which are to be removed.
    surplus: Mutex<Vec<(Name, u64)>>,
    objects: AtomicU64,
}

/// The objects below one primary key; nearly always one.
type Below = SmallVec<[Held; 1]>;

#[derive(Debug)]
struct Held {
    entry: Entry,
    usage: Arc<Usage>,
}

impl Index {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            eviction: Mutex::new(Eviction::new(capacity)),
            scanned: Mutex::new(vec![false; BUCKETS].into()),
            scanned_count: AtomicUsize::new(0),
            complete: AtomicBool::new(false),
            varies: Mutex::default(),
            surplus: Mutex::default(),
            objects: AtomicU64::new(0),
        }
    }

    /// The object that a request selects below `key`: the latest that fits.
    pub(crate) fn select(
        &self,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Name> {
        let shard = self.shard(key.hash());
        let below = shard.get(&key.hash())?;
        let mut latest: Option<&Held> = None;
        let mut last: Option<(&Arc<[u8]>, Hash)> = None;
        for held in below {
            let vary = &held.entry.vary;
            let wanted = match last {
                Some((same, wanted)) if same == vary => wanted,
                _ if vary.is_empty() => key.hash(),
                _ => key.variant(&secondary(vary)),
            };
            last = Some((vary, wanted));
            let newer = |held: &Held, than: &Held| held.entry.generation > than.entry.generation;
            if held.entry.name.hash == wanted && latest.is_none_or(|than| newer(held, than)) {
                latest = Some(held);
            }
        }
        latest.map(|held| {
            held.usage.touch();
            held.entry.name
        })
    }

    /// The generation of the object with this name.
    pub(crate) fn generation(&self, name: Name) -> Option<u64> {
        let shard = self.shard(name.primary);
        let held = shard
            .get(&name.primary)?
            .iter()
            .find(|held| held.entry.name == name)?;
        Some(held.entry.generation)
    }

    /// The list of selecting fields `vary`, shared by all that have the same.
    pub(crate) fn intern(&self, vary: &[u8]) -> Arc<[u8]> {
        let mut varies = locked(&self.varies);
        if let Some(known) = varies.get(vary) {
            return known.clone();
        }
        let vary: Arc<[u8]> = vary.into();
        if varies.len() < MOST_VARIES {
            varies.insert(vary.clone());
        }
        vary
    }

    /// Whether there is anything below `key`.
    pub(crate) fn has(&self, key: Hash) -> bool {
        self.shard(key).contains_key(&key)
    }

    /// Puts an object in, or tells what has changed about it. One of an older generation leaves.
    pub(crate) fn insert(&self, entry: Entry) {
        let mut shard = self.shard(entry.name.primary);
        let below = shard.entry(entry.name.primary).or_default();
        let mut eviction = locked(&self.eviction);
        if let Some(held) = below.iter_mut().find(|held| held.entry.name == entry.name) {
            if held.entry.generation == entry.generation {
                eviction.resize(&held.usage, entry.bytes);
                held.entry = entry;
                return;
            }
            eviction.remove(&held.usage);
            held.usage = Arc::default();
            eviction.insert(entry.candidate(&held.usage), entry.bytes);
            held.entry = entry;
            return;
        }
        let usage = Arc::default();
        eviction.insert(entry.candidate(&usage), entry.bytes);
        below.push(Held { entry, usage });
        if below.len() > MOST_VARIANTS {
            let oldest = below.iter().min_by_key(|held| held.entry.generation);
            let oldest = oldest.map(|held| (held.entry.name, held.entry.generation));
            locked(&self.surplus).extend(oldest);
        }
        self.objects.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes an object out, if it is of this generation.
    pub(crate) fn remove(&self, name: Name, generation: u64) {
        self.remove_if(name, |held| held == generation);
    }

    /// Takes an object out, if it is older than `generation`.
    pub(crate) fn supersede(&self, name: Name, generation: u64) {
        self.remove_if(name, |held| held < generation);
    }

    /// What has to go, so that all that is here and `beside` bytes fit. It is not taken out of the
    /// index yet.
    pub(crate) fn next_out(&self, beside: u64) -> Option<Candidate> {
        locked(&self.eviction).next(beside)
    }

    /// The next that would have to go, whether there is room or not.
    pub(crate) fn take_out(&self) -> Option<Candidate> {
        locked(&self.eviction).take()
    }

    /// Puts back what was to go, unless it is not here any more.
    pub(crate) fn put_back(&self, candidate: &Candidate) {
        let shard = self.shard(candidate.primary);
        let Some(below) = shard.get(&candidate.primary) else {
            return;
        };
        let mut held = below.iter();
        if let Some(held) = held.find(|held| Arc::ptr_eq(&held.usage, &candidate.usage)) {
            locked(&self.eviction).insert(candidate.clone(), held.entry.bytes);
        }
    }

    /// Variants that are too many for their keys.
    pub(crate) fn take_surplus(&self) -> Vec<(Name, u64)> {
        std::mem::take(&mut *locked(&self.surplus))
    }

    /// The bytes of all objects.
    pub(crate) fn bytes(&self) -> u64 {
        locked(&self.eviction).bytes()
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> u64 {
        self.objects.load(Ordering::Relaxed)
    }

    /// Those of one part, of [`Index::parts`], that were filled before `number`.
    pub(crate) fn older_than(&self, part: usize, number: u64) -> Vec<Entry> {
        let Some(shard) = self.shards.get(part) else {
            return Vec::new();
        };
        let shard = locked(shard);
        let entries = shard.values().flatten().map(|held| &held.entry);
        entries
            .filter(|entry| entry.filled_at < number)
            .cloned()
            .collect()
    }

    /// How many parts there are.
    pub(crate) fn parts(&self) -> usize {
        self.shards.len()
    }

    /// Whether what is below `key` is known: its directory was read.
    pub(crate) fn knows(&self, key: Hash) -> bool {
        self.is_complete() || self.is_scanned(bucket(key))
    }

    /// Whether a directory was read.
    pub(crate) fn is_scanned(&self, bucket: u16) -> bool {
        locked(&self.scanned)
            .get(usize::from(bucket))
            .copied()
            .unwrap_or(true)
    }

    /// Notes that a directory was read.
    pub(crate) fn mark_scanned(&self, bucket: u16) {
        if let Some(scanned) = locked(&self.scanned).get_mut(usize::from(bucket))
            && !std::mem::replace(scanned, true)
        {
            let count = self
                .scanned_count
                .fetch_add(1, Ordering::AcqRel)
                .saturating_add(1);
            self.complete.store(count >= BUCKETS, Ordering::Release);
        }
    }

    /// Whether all directories were read.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete.load(Ordering::Acquire)
    }

    /// How many of a thousand directories were read.
    pub(crate) fn scanned_permille(&self) -> u64 {
        (self
            .scanned_count
            .load(Ordering::Acquire)
            .saturating_mul(1000)
            / BUCKETS) as u64
    }

    fn remove_if(&self, name: Name, which: impl Fn(u64) -> bool) {
        let mut shard = self.shard(name.primary);
        let Some(below) = shard.get_mut(&name.primary) else {
            return;
        };
        let found = |held: &Held| held.entry.name == name && which(held.entry.generation);
        if let Some(at) = below.iter().position(found) {
            let held = below.remove(at);
            locked(&self.eviction).remove(&held.usage);
            self.objects.fetch_sub(1, Ordering::Relaxed);
        }
        if below.is_empty() {
            shard.remove(&name.primary);
        }
    }

    fn shard(&self, key: Hash) -> MutexGuard<'_, HashMap<Hash, Below>> {
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.shards[key.spread() % SHARDS])
    }
}

impl Entry {
    fn candidate(&self, usage: &Arc<Usage>) -> Candidate {
        Candidate {
            hash: self.name.hash,
            primary: self.name.primary,
            generation: self.generation,
            usage: usage.clone(),
        }
    }
}
