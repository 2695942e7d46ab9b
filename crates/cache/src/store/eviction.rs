//! What goes first when a tier is full: S3-FIFO (Yang and others, SOSP 2023).
//!
//! New objects enter a small queue that holds a tenth of the bytes. Those used again while they are
//! in it move to the main queue, the others leave and are remembered for a while; who comes back
//! then enters the main queue at once. So a scan over many objects passes through the small queue
//! and leaves the main one alone, and a hit is no more than a store into one byte: no lock, no list
//! to reorder.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use super::key::Hash;

/// How often an object was used lately, and where it stands: shared between the object and its
/// queue.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    uses: AtomicU8,
    place: AtomicU8,
    bytes: AtomicU64,
}

const OUTSIDE: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;

/// More uses than this make no difference.
const MOST_USES: u8 = 3;

/// The small queue's share of the bytes: one tenth.
const SMALL_SHARE: u64 = 10;

impl Usage {
    /// Notes a use. Only the first few since the last look write anything.
    pub(crate) fn touch(&self) {
        let uses = self.uses.load(Ordering::Relaxed);
        if uses < MOST_USES {
            self.uses.store(uses.saturating_add(1), Ordering::Relaxed);
        }
    }

    /// How often it was used lately; a few uses count as many.
    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Ordering::Relaxed)
    }
}

/// An object in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    /// Which object.
    pub(crate) hash: Hash,
    /// The hash of its primary key.
    pub(crate) primary: Hash,
    /// Which of those that had this name one after another.
    pub(crate) generation: u64,
    /// Its usage; also tells whether it was taken out meanwhile.
    pub(crate) usage: Arc<Usage>,
}

/// The queues of one tier, or of one shard of it.
#[derive(Debug)]
pub(crate) struct Eviction {
    capacity: u64,
    small: VecDeque<Candidate>,
    main: VecDeque<Candidate>,
    small_bytes: u64,
    main_bytes: u64,
    /// Candidates in the queues that were taken out.
    removed: usize,
    ghosts: Ghosts,
}

impl Eviction {
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            capacity,
            small: VecDeque::new(),
            main: VecDeque::new(),
            small_bytes: 0,
            main_bytes: 0,
            removed: 0,
            ghosts: Ghosts::default(),
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

    /// Lets an object in. The caller then asks [`Eviction::next`] until it says `None`.
    pub(crate) fn insert(&mut self, candidate: Candidate, bytes: u64) {
        let usage = &candidate.usage;
        usage.bytes.store(bytes, Ordering::Relaxed);
        if self.ghosts.forget(candidate.hash) {
            usage.place.store(MAIN, Ordering::Relaxed);
            self.main_bytes = self.main_bytes.saturating_add(bytes);
            self.main.push_back(candidate);
        } else {
            usage.place.store(SMALL, Ordering::Relaxed);
            self.small_bytes = self.small_bytes.saturating_add(bytes);
            self.small.push_back(candidate);
        }
    }

    /// Takes an object out, as one that was purged or replaced. Harmless when it is out already.
    pub(crate) fn remove(&mut self, usage: &Usage) {
        let place = usage.place.swap(OUTSIDE, Ordering::Relaxed);
        if place == OUTSIDE {
            return;
        }
        self.subtract(place, usage.bytes.load(Ordering::Relaxed));
        self.removed = self.removed.saturating_add(1);
        if self.removed > 64 && self.removed > self.len() {
            let inside = |held: &Candidate| held.usage.place.load(Ordering::Relaxed) != OUTSIDE;
            self.small.retain(inside);
            self.main.retain(inside);
            self.removed = 0;
        }
    }

    /// Tells that an object takes another number of bytes now.
    pub(crate) fn resize(&mut self, usage: &Usage, bytes: u64) {
        let place = usage.place.load(Ordering::Relaxed);
        if place == OUTSIDE {
            return;
        }
        self.subtract(place, usage.bytes.swap(bytes, Ordering::Relaxed));
        if place == SMALL {
            self.small_bytes = self.small_bytes.saturating_add(bytes);
        } else {
            self.main_bytes = self.main_bytes.saturating_add(bytes);
        }
    }

    /// The object to drop, when these and `beside` bytes are more than `capacity`; it is out of the
    /// queues then.
    pub(crate) fn next(&mut self, beside: u64) -> Option<Candidate> {
        if self.bytes().saturating_add(beside) <= self.capacity {
            return None;
        }
        self.take()
    }

    /// The object to drop, however many bytes there are.
    pub(crate) fn take(&mut self) -> Option<Candidate> {
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

    /// Looks at the oldest of the small queue: `Some(None)` when it was not one to drop.
    fn take_small(&mut self) -> Option<Option<Candidate>> {
        let oldest = self.small.pop_front()?;
        if oldest.usage.place.load(Ordering::Relaxed) == OUTSIDE {
            self.removed = self.removed.saturating_sub(1);
            return Some(None);
        }
        let bytes = oldest.usage.bytes.load(Ordering::Relaxed);
        self.subtract(SMALL, bytes);
        if oldest.usage.uses() > 0 {
            oldest.usage.uses.store(0, Ordering::Relaxed);
            oldest.usage.place.store(MAIN, Ordering::Relaxed);
            self.main_bytes = self.main_bytes.saturating_add(bytes);
            self.main.push_back(oldest);
            return Some(None);
        }
        oldest.usage.place.store(OUTSIDE, Ordering::Relaxed);
        let most = self.main.len().max(self.small.len()).max(64);
        self.ghosts.remember(oldest.hash, most);
        Some(Some(oldest))
    }

    fn take_main(&mut self) -> Option<Option<Candidate>> {
        let oldest = self.main.pop_front()?;
        if oldest.usage.place.load(Ordering::Relaxed) == OUTSIDE {
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
        oldest.usage.place.store(OUTSIDE, Ordering::Relaxed);
        Some(Some(oldest))
    }

    fn subtract(&mut self, place: u8, bytes: u64) {
        let queue = if place == SMALL {
            &mut self.small_bytes
        } else {
            &mut self.main_bytes
        };
        *queue = queue.saturating_sub(bytes);
    }
}

/// Names of objects that left the small queue lately.
#[derive(Debug, Default)]
struct Ghosts {
    order: VecDeque<Hash>,
    names: HashSet<Hash>,
}

impl Ghosts {
    fn remember(&mut self, hash: Hash, most: usize) {
        if self.names.insert(hash) {
            self.order.push_back(hash);
        }
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.names.remove(&oldest);
            }
        }
    }

    /// Whether it was remembered. Its place in the order stays and runs out by itself.
    fn forget(&mut self, hash: Hash) -> bool {
        self.names.remove(&hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Cache {
        eviction: Eviction,
        held: std::collections::HashMap<Hash, Arc<Usage>>,
    }

    impl Cache {
        fn new(capacity: u64) -> Self {
            Self {
                eviction: Eviction::new(capacity),
                held: Default::default(),
            }
        }

        /// Whether it was a hit.
        fn ask(&mut self, number: u64) -> bool {
            let hash = Hash::of(&[&number.to_le_bytes()]);
            if let Some(usage) = self.held.get(&hash) {
                usage.touch();
                return true;
            }
            let usage = Arc::new(Usage::default());
            self.held.insert(hash, usage.clone());
            let candidate = Candidate {
                hash,
                primary: hash,
                generation: 0,
                usage,
            };
            self.eviction.insert(candidate, 10);
            while let Some(dropped) = self.eviction.next(0) {
                self.held.remove(&dropped.hash);
            }
            false
        }
    }

    #[test]
    fn a_scan_leaves_what_is_used_again_and_again() {
        let mut cache = Cache::new(1000);
        for _ in 0..5 {
            for number in 0..50 {
                cache.ask(number);
            }
        }
        for number in 1000..101_000 {
            cache.ask(number);
            if number % 100 == 0 {
                for hot in 0..50 {
                    cache.ask(hot);
                }
            }
        }
        let hits = (0..50).filter(|number| cache.ask(*number)).count();
        assert_eq!(hits, 50);
    }

    #[test]
    fn never_holds_more_than_its_capacity() {
        let mut cache = Cache::new(1000);
        for number in 0..10_000 {
            cache.ask(number % 300);
            assert!(cache.eviction.bytes() <= 1000);
            assert_eq!(cache.held.len(), cache.eviction.len());
        }
    }

    #[test]
    fn what_is_taken_out_again_and_again_leaves_nothing_behind() {
        let mut eviction = Eviction::new(1000);
        for _ in 0..100_000 {
            let usage = Arc::new(Usage::default());
            let candidate = Candidate {
                hash: Hash::of(&[b"one"]),
                primary: Hash::of(&[b"one"]),
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
