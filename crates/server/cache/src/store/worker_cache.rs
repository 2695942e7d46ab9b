//! A cache of prepared responses in each worker, whose hits take no lock and write nothing that
//! other workers read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::Store;
use super::object::Object;

/// Hits are reported to the object in batches of this size.
const HIT_BATCH: u32 = 64;

/// The most entries of one key.
const MAX_PER_KEY: usize = 8;

/// A map of one worker from keys to values that were made from objects, such as prepared responses.
///
/// An entry is valid as long as its object does not change, which costs two atomic loads to check.
/// Entries may hold on to the bodies of objects that the memory tier has evicted, so both their
/// number and their bytes are limited.
#[derive(Debug)]
pub struct WorkerCache<T> {
    store: Store,
    max_entries: usize,
    max_bytes: u64,
    entries: RefCell<WorkerCacheEntries<T>>,
}

#[derive(Debug)]
struct WorkerCacheEntries<T> {
    keys: HashMap<Box<[u8]>, Vec<Rc<WorkerCacheEntry<T>>>>,
    /// In order of insertion: the oldest entry that was not used since the last check is evicted
    /// first.
    order: VecDeque<Rc<WorkerCacheEntry<T>>>,
    bytes: u64,
}

#[derive(Debug)]
struct WorkerCacheEntry<T> {
    key: Box<[u8]>,
    object: Arc<Object>,
    epoch: u64,
    checked: Cell<u64>,
    bytes: u64,
    hits: Cell<u32>,
    used: Cell<bool>,
    removed: Cell<bool>,
    value: Rc<T>,
}

impl<T> WorkerCache<T> {
    /// A worker cache for `store` with at most `max_entries`, which together take at most
    /// `max_bytes`.
    pub fn new(store: Store, max_entries: usize, max_bytes: u64) -> Self {
        Self {
            store,
            max_entries,
            max_bytes,
            entries: RefCell::new(WorkerCacheEntries {
                keys: HashMap::new(),
                order: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    /// The value of the first valid entry for `key` that `matches`, for example because it is the
    /// right variant.
    pub fn find(&self, key: &[u8], mut matches: impl FnMut(&T) -> bool) -> Option<Rc<T>> {
        let entries = self.entries.borrow();
        let found = entries.keys.get(key)?;
        let mut outdated = false;
        for entry in found {
            // Two atomic loads of memory that is rarely written: a lock here would be taken by every hit of every
            // worker.
            if !self.is_valid(entry) {
                outdated = true;
            } else if matches(&entry.value) {
                entry.used.set(true);
                entry.count_hit();
                return Some(entry.value.clone());
            }
        }
        drop(entries);
        if outdated {
            self.entries
                .borrow_mut()
                .remove_where(key, |entry| !self.is_valid(entry));
        }
        None
    }

    /// Inserts `value`, which was made from `object` at `epoch`: the caller reads the epoch before
    /// any other property of the object. `bytes` is what the value holds on to.
    pub fn insert(&self, key: &[u8], object: &Arc<Object>, epoch: u64, value: Rc<T>, bytes: u64) {
        // One large body would push out most other entries.
        if bytes > self.max_bytes / 4 || self.max_entries == 0 {
            return;
        }
        let entry = Rc::new(WorkerCacheEntry {
            key: key.into(),
            object: object.clone(),
            epoch,
            checked: Cell::new(object.checked()),
            bytes,
            hits: Cell::new(0),
            used: Cell::new(false),
            removed: Cell::new(false),
            value,
        });
        let mut entries = self.entries.borrow_mut();
        entries.remove_where(key, |old| Arc::ptr_eq(&old.object, object));
        let of_key = entries.keys.entry(key.into()).or_default();
        if of_key.len() >= MAX_PER_KEY {
            let old = of_key.remove(0);
            entries.count_removed(&old);
        }
        entries.bytes = entries.bytes.saturating_add(bytes);
        entries
            .keys
            .entry(key.into())
            .or_default()
            .push(entry.clone());
        entries.order.push_back(entry);
        while entries.bytes > self.max_bytes || entries.order.len() > self.max_entries {
            entries.evict_one();
        }
    }

    /// Removes all entries.
    pub fn clear(&self) {
        let mut entries = self.entries.borrow_mut();
        entries.keys.clear();
        entries.order.clear();
        entries.bytes = 0;
    }

    fn is_valid(&self, entry: &WorkerCacheEntry<T>) -> bool {
        if entry.object.epoch() != entry.epoch {
            return false;
        }
        let purges = self.store.shared().purges.current();
        if entry.checked.get() == purges {
            return true;
        }
        // There were purges since the last check: they are applied once.
        // A soft purge keeps the object and changes its epoch: the value, which was made before, does not know that
        // it is stale.
        let keep_unless_purged = self.store.shared().keep_unless_purged(&entry.object)
            && entry.object.epoch() == entry.epoch;
        if keep_unless_purged {
            entry.checked.set(purges);
        }
        keep_unless_purged
    }
}

impl<T> WorkerCacheEntries<T> {
    fn remove_where(&mut self, key: &[u8], which: impl Fn(&WorkerCacheEntry<T>) -> bool) {
        let Some(entries) = self.keys.get_mut(key) else {
            return;
        };
        let removed: Vec<_> = entries.extract_if(.., |entry| which(entry)).collect();
        if entries.is_empty() {
            self.keys.remove(key);
        }
        for entry in removed {
            self.count_removed(&entry);
        }
        // Removed entries stay in the order until they are the oldest, unless there are too many.
        let live: usize = self.keys.len();
        if self.order.len() > 64 && self.order.len() / 2 > live {
            self.order.retain(|entry| !entry.removed.get());
        }
    }

    fn count_removed(&mut self, entry: &WorkerCacheEntry<T>) {
        if !entry.removed.replace(true) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }

    /// Evicts the oldest entry that was not used since the last check.
    fn evict_one(&mut self) {
        while let Some(entry) = self.order.pop_front() {
            if entry.removed.get() {
                return;
            }
            if entry.used.replace(false) {
                self.order.push_back(entry);
                continue;
            }
            if let Some(entries) = self.keys.get_mut(&entry.key) {
                entries.retain(|held| !Rc::ptr_eq(held, &entry));
                if entries.is_empty() {
                    self.keys.remove(&entry.key);
                }
            }
            self.count_removed(&entry);
            return;
        }
    }
}

impl<T> WorkerCacheEntry<T> {
    fn count_hit(&self) {
        let hits = self.hits.get().saturating_add(1);
        if hits >= HIT_BATCH {
            self.report_hits(hits);
        } else {
            self.hits.set(hits);
        }
    }

    fn report_hits(&self, hits: u32) {
        self.object.count_hits(u64::from(hits));
        self.hits.set(0);
    }
}

impl<T> Drop for WorkerCacheEntry<T> {
    fn drop(&mut self) {
        if self.hits.get() > 0 {
            self.report_hits(self.hits.get());
        }
    }
}
