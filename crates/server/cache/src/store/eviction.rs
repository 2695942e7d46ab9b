//! Eviction by S3-FIFO (Yang and others, SOSP 2023).
//!
//! New objects enter a small queue, which has a tenth of the bytes. Objects that are used again
//! while they are in it move to the main queue; the others leave, and their hashes stay in the
//! ghost queue for a while. An object that returns in that time enters the main queue directly. So
//! a scan of many objects passes through the small queue and leaves the main queue alone, and a hit
//! is one store to a byte, without a lock or a list to reorder.

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::key::KeyHash;

/// How often an object was used lately, and in which queue it is. Shared between the object and its
/// queue.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    uses: AtomicU8,
    queue: AtomicU8,
    bytes: AtomicU64,
}

const OUTSIDE: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;

// The numbers of the paper: two bits for the uses, and a tenth of the bytes for the small queue.
/// Uses are counted up to this number.
const MAX_USES: u8 = 3;

/// The small queue's share of the bytes: one tenth.
const SMALL_SHARE: u64 = 10;

impl Usage {
    /// Counts a use. Only the first few since the last eviction check write anything.
    pub(crate) fn touch(&self) {
        // A hot object is at the limit, so that its hits only read the line, which all workers have in their caches. A
        // count that is lost between the two operations costs nothing but a rank.
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < MAX_USES {
            self.uses.store(uses.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// How often it was used lately, up to the limit.
    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }
}

/// An object in a queue.
#[derive(Clone, Debug)]
pub(crate) struct EvictionCandidate {
    /// Which object.
    pub(crate) hash: KeyHash,
    /// The hash of its primary key.
    pub(crate) primary: KeyHash,
    /// Tells apart successive objects with the same hash.
    pub(crate) generation: u64,
    /// Its usage, which also says whether it was removed.
    pub(crate) usage: Arc<Usage>,
}

/// The queues of one tier, or of one shard of it.
#[derive(Debug)]
pub(crate) struct EvictionQueues {
    capacity: u64,
    small: VecDeque<EvictionCandidate>,
    main: VecDeque<EvictionCandidate>,
    small_bytes: u64,
    main_bytes: u64,
    /// The number of removed candidates that are still in the queues.
    removed: usize,
    ghosts: GhostQueue,
}

impl EvictionQueues {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            removed: 0,
            ghosts: GhostQueue::default(),
        }
    }

    /// The bytes that all objects take.
    pub(crate) fn bytes(&self) -> u64 {
        self.small_bytes.saturating_add(self.main_bytes)
    }

    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        (self.small.len().saturating_add(self.main.len())).saturating_sub(self.removed)
    }

    /// Inserts an object. The caller then calls [`EvictionQueues::next`] until it returns `None`.
    pub(crate) fn insert(&mut self, candidate: EvictionCandidate, bytes: u64) {
        let usage = &candidate.usage;
        usage.bytes.store(bytes, Ordering::Relaxed);
        if self.ghosts.forget(candidate.hash) {
            usage.queue.store(MAIN, Ordering::Relaxed);
            self.main_bytes = self.main_bytes.saturating_add(bytes);
            self.main.push_back(candidate);
        } else {
            usage.queue.store(SMALL, Ordering::Relaxed);
            self.small_bytes = self.small_bytes.saturating_add(bytes);
            self.small.push_back(candidate);
        }
    }

    /// Removes an object that was purged or replaced. Does nothing if it is removed already.
    pub(crate) fn remove(&mut self, usage: &Usage) {
        let queue = usage.queue.swap(OUTSIDE, Ordering::Relaxed);
        if queue == OUTSIDE {
            return;
        }
        self.subtract(queue, usage.bytes.load(Ordering::Relaxed));
        self.removed = self.removed.saturating_add(1);
        // Removing from the middle of a queue would move half of it for each object. This way each removal pays for
        // one move.
        if self.removed > 64 && self.removed > self.len() {
            let inside =
                |held: &EvictionCandidate| held.usage.queue.load(Ordering::Relaxed) != OUTSIDE;
            self.small.retain(inside);
            self.main.retain(inside);
            self.removed = 0;
        }
    }

    /// Changes the size of an object.
    pub(crate) fn resize(&mut self, usage: &Usage, bytes: u64) {
        let queue = usage.queue.load(Ordering::Relaxed);
        if queue == OUTSIDE {
            return;
        }
        self.subtract(queue, usage.bytes.swap(bytes, Ordering::Relaxed));
        if queue == SMALL {
            self.small_bytes = self.small_bytes.saturating_add(bytes);
        } else {
            self.main_bytes = self.main_bytes.saturating_add(bytes);
        }
    }

    /// Removes and returns the object to evict, if all objects and `extra_bytes` bytes exceed the
    /// capacity.
    pub(crate) fn next(&mut self, extra_bytes: u64) -> Option<EvictionCandidate> {
        if self.bytes().saturating_add(extra_bytes) <= self.capacity {
            return None;
        }
        self.take()
    }

    /// Removes and returns the object to evict, regardless of the capacity.
    pub(crate) fn take(&mut self) -> Option<EvictionCandidate> {
        loop {
            let of_small = self.main.is_empty()
                || (!self.small.is_empty() && self.small_bytes > self.capacity / SMALL_SHARE);
            let taken = if of_small {
                self.take_small()?
            } else {
                self.take_main()?
            };
            if taken.is_some() {
                return taken;
            }
        }
    }

    /// Checks the oldest object of the small queue: `Some(None)` if it is not to be evicted.
    fn take_small(&mut self) -> Option<Option<EvictionCandidate>> {
        let oldest = self.small.pop_front()?;
        if oldest.usage.queue.load(Ordering::Relaxed) == OUTSIDE {
            self.removed = self.removed.saturating_sub(1);
            return Some(None);
        }
        let bytes = oldest.usage.bytes.load(Ordering::Relaxed);
        self.subtract(SMALL, bytes);
        if oldest.usage.uses() > 0 {
            oldest.usage.uses.store(0, Ordering::Relaxed);
            oldest.usage.queue.store(MAIN, Ordering::Relaxed);
            self.main_bytes = self.main_bytes.saturating_add(bytes);
            self.main.push_back(oldest);
            return Some(None);
        }
        oldest.usage.queue.store(OUTSIDE, Ordering::Relaxed);
        let most = self.main.len().max(self.small.len()).max(64);
        self.ghosts.remember(oldest.hash, most);
        Some(Some(oldest))
    }

    fn take_main(&mut self) -> Option<Option<EvictionCandidate>> {
        let oldest = self.main.pop_front()?;
        if oldest.usage.queue.load(Ordering::Relaxed) == OUTSIDE {
            self.removed = self.removed.saturating_sub(1);
            return Some(None);
        }
        let uses = oldest.usage.uses();
        if uses > 0 {
            oldest
                .usage
                .uses
                .store(uses.saturating_sub(1), Ordering::Relaxed);
            self.main.push_back(oldest);
            return Some(None);
        }
        self.subtract(MAIN, oldest.usage.bytes.load(Ordering::Relaxed));
        oldest.usage.queue.store(OUTSIDE, Ordering::Relaxed);
        Some(Some(oldest))
    }

    fn subtract(&mut self, queue: u8, bytes: u64) {
        let bytes_of_queue = if queue == SMALL {
            &mut self.small_bytes
        } else {
            &mut self.main_bytes
        };
        *bytes_of_queue = bytes_of_queue.saturating_sub(bytes);
    }
}

/// The ghost queue of S3-FIFO: hashes of objects that left the small queue lately.
#[derive(Debug, Default)]
struct GhostQueue {
    /// Each with the number of its entry.
    order: VecDeque<(KeyHash, u64)>,
    /// The number of the newest entry of each hash.
    hashes: HashMap<KeyHash, u64>,
    last: u64,
}

impl GhostQueue {
    fn remember(&mut self, hash: KeyHash, most: usize) {
        if let Entry::Vacant(entry) = self.hashes.entry(hash) {
            self.last = self.last.wrapping_add(1);
            entry.insert(self.last);
            self.order.push_back((hash, self.last));
        }
        while self.order.len() > most {
            let Some((oldest, number)) = self.order.pop_front() else {
                return;
            };
            // A hash that was forgotten and came again has a later entry, with which it expires.
            if self.hashes.get(&oldest) == Some(&number) {
                self.hashes.remove(&oldest);
            }
        }
    }

    /// Removes a hash, and returns whether it was present. Its entry in the order expires by
    /// itself.
    fn forget(&mut self, hash: KeyHash) -> bool {
        self.hashes.remove(&hash).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_that_was_forgotten_and_came_again_is_remembered_as_long_as_others() {
        let mut ghosts = GhostQueue::default();
        let [first, second, third] = [1_u8, 2, 3].map(|number| KeyHash::of(&[&[number]]));
        ghosts.remember(first, 3);
        assert!(ghosts.forget(first));
        ghosts.remember(first, 3);
        ghosts.remember(second, 3);
        // The entry of the first time expires, and not the hash.
        ghosts.remember(third, 3);
        assert!(ghosts.forget(first));
        assert!(!ghosts.forget(first));
        assert!(ghosts.forget(second));
    }

    struct SimulatedTier {
        eviction: EvictionQueues,
        usages: HashMap<KeyHash, Arc<Usage>>,
    }

    impl SimulatedTier {
        fn new(capacity: u64) -> Self {
            Self {
                eviction: EvictionQueues::new(capacity),
                usages: Default::default(),
            }
        }

        /// Whether it was a hit.
        fn request(&mut self, number: u64) -> bool {
            let hash = KeyHash::of(&[&number.to_le_bytes()]);
            if let Some(usage) = self.usages.get(&hash) {
                usage.touch();
                return true;
            }
            let usage = Arc::new(Usage::default());
            self.usages.insert(hash, usage.clone());
            let candidate = EvictionCandidate {
                hash,
                primary: hash,
                generation: 0,
                usage,
            };
            self.eviction.insert(candidate, 10);
            while let Some(dropped) = self.eviction.next(0) {
                self.usages.remove(&dropped.hash);
            }
            false
        }
    }

    #[test]
    fn a_scan_does_not_evict_objects_in_use() {
        let mut cache = SimulatedTier::new(1000);
        for _ in 0..5 {
            for number in 0..50 {
                cache.request(number);
            }
        }
        for number in 1000..101_000 {
            cache.request(number);
            if number % 100 == 0 {
                for hot in 0..50 {
                    cache.request(hot);
                }
            }
        }
        let hits = (0..50).filter(|number| cache.request(*number)).count();
        assert_eq!(hits, 50);
    }

    #[test]
    fn never_exceeds_its_capacity() {
        let mut cache = SimulatedTier::new(1000);
        for number in 0..10_000 {
            cache.request(number % 300);
            assert!(cache.eviction.bytes() <= 1000);
            assert_eq!(cache.usages.len(), cache.eviction.len());
        }
    }

    #[test]
    fn repeated_removals_leave_nothing_behind() {
        let mut eviction = EvictionQueues::new(1000);
        for _ in 0..100_000 {
            let usage = Arc::new(Usage::default());
            let candidate = EvictionCandidate {
                hash: KeyHash::of(&[b"one"]),
                primary: KeyHash::of(&[b"one"]),
                generation: 0,
                usage: usage.clone(),
            };
            eviction.insert(candidate, 10);
            eviction.remove(&usage);
        }
        assert_eq!((eviction.bytes(), eviction.len()), (0, 0));
        assert!(eviction.small.len() <= 65);
    }
}
