//! The objects that one worker serves most.
//!
//! A hit here takes no lock and writes nothing that other workers read.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use super::Store;
use super::object::Object;

/// Hits are told to the object in lots of this many.
const HITS_AT_ONCE: u32 = 64;

/// More entries than this are not kept below one key.
const MOST_PER_KEY: usize = 8;

/// One worker's own map from keys to what it has made of the objects: `T`, say a prepared response.
///
/// An entry is good as long as nothing happened to its object, which two atomic loads tell. Entries
/// may hold on to the content of objects that the memory tier has dropped, so both their number and
/// their bytes are bounded.
#[derive(Debug)]
pub struct WorkerFront<T> {
    store: Store,
    most_entries: usize,
    most_bytes: u64,
    kept: RefCell<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    keys: HashMap<Box<[u8]>, Vec<Rc<Entry<T>>>>,
    /// In the order in which they came: the oldest without a use since the last look goes first.
    order: VecDeque<Rc<Entry<T>>>,
    bytes: u64,
}

#[derive(Debug)]
struct Entry<T> {
    key: Box<[u8]>,
    object: Arc<Object>,
    epoch: u64,
    checked: Cell<u64>,
    bytes: u64,
    hits: Cell<u32>,
    used: Cell<bool>,
    out: Cell<bool>,
    value: Rc<T>,
}

impl<T> WorkerFront<T> {
    /// A front of `store` with at most `most_entries`, which take `most_bytes` together.
    pub fn new(store: Store, most_entries: usize, most_bytes: u64) -> Self {
        Self {
            store,
            most_entries,
            most_bytes,
            kept: RefCell::new(Kept {
                keys: HashMap::new(),
                order: VecDeque::new(),
                bytes: 0,
            }),
        }
    }

    /// The first entry below `key` that is still good and that `matches`, as the variant for a
    /// request.
    pub fn find(&self, key: &[u8], mut matches: impl FnMut(&T) -> bool) -> Option<Rc<T>> {
        let kept = self.kept.borrow();
        let entries = kept.keys.get(key)?;
        let mut outdated = false;
        for entry in entries {
            if !self.is_good(entry) {
                outdated = true;
            } else if matches(&entry.value) {
                entry.used.set(true);
                entry.count_hit();
                return Some(entry.value.clone());
            }
        }
        drop(kept);
        if outdated {
            self.kept
                .borrow_mut()
                .forget(key, |entry| !self.is_good(entry));
        }
        None
    }

    /// Keeps `value`, which was made of `object` when its epoch was `epoch`: read that before
    /// anything else of it. `bytes` is what it holds on to.
    pub fn keep(&self, key: &[u8], object: &Arc<Object>, epoch: u64, value: Rc<T>, bytes: u64) {
        if bytes > self.most_bytes / 4 || self.most_entries == 0 {
            return;
        }
        let entry = Rc::new(Entry {
            key: key.into(),
            object: object.clone(),
            epoch,
            checked: Cell::new(object.checked()),
            bytes,
            hits: Cell::new(0),
            used: Cell::new(false),
            out: Cell::new(false),
            value,
        });
        let mut kept = self.kept.borrow_mut();
        kept.forget(key, |old| Arc::ptr_eq(&old.object, object));
        let below = kept.keys.entry(key.into()).or_default();
        if below.len() >= MOST_PER_KEY {
            let old = below.remove(0);
            kept.count_out(&old);
        }
        kept.bytes = kept.bytes.saturating_add(bytes);
        kept.keys.entry(key.into()).or_default().push(entry.clone());
        kept.order.push_back(entry);
        while kept.bytes > self.most_bytes || kept.order.len() > self.most_entries {
            kept.drop_one();
        }
    }

    /// Forgets everything.
    pub fn clear(&self) {
        let mut kept = self.kept.borrow_mut();
        kept.keys.clear();
        kept.order.clear();
        kept.bytes = 0;
    }

    fn is_good(&self, entry: &Entry<T>) -> bool {
        if entry.object.epoch() != entry.epoch {
            return false;
        }
        let purges = self.store.shared().purges.current();
        if entry.checked.get() == purges {
            return true;
        }
        // Something was purged since: looked at once, then good again.
        let stands =
            self.store.shared().stands(&entry.object) && entry.object.epoch() == entry.epoch;
        if stands {
            entry.checked.set(purges);
        }
        stands
    }
}

impl<T> Kept<T> {
    fn forget(&mut self, key: &[u8], which: impl Fn(&Entry<T>) -> bool) {
        let Some(entries) = self.keys.get_mut(key) else {
            return;
        };
        let out: Vec<_> = entries.extract_if(.., |entry| which(entry)).collect();
        if entries.is_empty() {
            self.keys.remove(key);
        }
        for entry in out {
            self.count_out(&entry);
        }
        // Those that are out stay in the order until they come up, unless they become many.
        let live: usize = self.keys.len();
        if self.order.len() > 64 && self.order.len() / 2 > live {
            self.order.retain(|entry| !entry.out.get());
        }
    }

    fn count_out(&mut self, entry: &Entry<T>) {
        if !entry.out.replace(true) {
            self.bytes = self.bytes.saturating_sub(entry.bytes);
        }
    }

    /// Drops the oldest that was not used since it was last looked at.
    fn drop_one(&mut self) {
        while let Some(entry) = self.order.pop_front() {
            if entry.out.get() {
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
            self.count_out(&entry);
            return;
        }
    }
}

impl<T> Entry<T> {
    fn count_hit(&self) {
        let hits = self.hits.get().saturating_add(1);
        if hits >= HITS_AT_ONCE {
            self.tell_hits(hits);
        } else {
            self.hits.set(hits);
        }
    }

    fn tell_hits(&self, hits: u32) {
        self.object.count_hits(u64::from(hits));
        self.hits.set(0);
    }
}

impl<T> Drop for Entry<T> {
    fn drop(&mut self) {
        if self.hits.get() > 0 {
            self.tell_hits(self.hits.get());
        }
    }
}
