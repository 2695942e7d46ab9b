//! A shard of the memory tier: the objects of some keys, behind one lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::eviction::{EvictionCandidate, EvictionQueues};
use super::key::{KeyHash, StoreKey};
use super::object::Object;
use super::pending::PendingRequest;

/// The most different `Vary` lists that are tried for one key.
const MAX_VARIES: usize = 4;

/// The most keys with a hit-for-pass mark.
const MAX_PASSES: usize = 4096;

/// The objects of some keys.
#[derive(Debug)]
pub(crate) struct Shard {
    primaries: HashMap<KeyHash, PrimaryEntry>,
    eviction: EvictionQueues,
    /// Keys whose responses could not be shared lately, and until when requests for them do not
    /// wait for one another (hit-for-pass).
    passes: HashMap<KeyHash, Instant>,
    /// The least weight of an object with an open file, which limits the number of open files.
    file_weight: u64,
}

/// The objects that an insertion removed.
#[derive(Debug, Default)]
pub(crate) struct RemovedObjects {
    /// Older objects of the same variant.
    pub(crate) replaced: Vec<Arc<Object>>,
    /// Evicted objects.
    pub(crate) evicted: Vec<Arc<Object>>,
}

/// All objects with one primary key.
#[derive(Debug)]
pub(crate) struct PrimaryEntry {
    pub(crate) key: StoreKey,
    /// The `Vary` lists of responses, the latest first. One is empty for responses without `Vary`.
    varies: Vec<Arc<[u8]>>,
    objects: Vec<Arc<Object>>,
    /// Objects that are being filled and can be joined.
    pub(crate) filling: Vec<Arc<Object>>,
    pub(crate) pending: Vec<Arc<PendingRequest>>,
}

impl Shard {
    pub(crate) fn new(capacity: u64, file_weight: u64) -> Self {
        Self {
            primaries: HashMap::new(),
            eviction: EvictionQueues::new(capacity),
            passes: HashMap::new(),
            file_weight,
        }
    }

    /// The entry of `key`; `Err` if another key has the same hash.
    pub(crate) fn primary(
        &mut self,
        key: &StoreKey,
    ) -> Result<Option<&mut PrimaryEntry>, HashCollision> {
        match self.primaries.get_mut(&key.hash()) {
            // A response for another key must never be sent, however unlikely the collision is.
            Some(primary) if primary.key != *key => Err(HashCollision),
            found => Ok(found),
        }
    }

    /// As [`Shard::primary`], and inserts an entry if there is none.
    pub(crate) fn primary_or_new(
        &mut self,
        key: &StoreKey,
    ) -> Result<&mut PrimaryEntry, HashCollision> {
        let primary = self
            .primaries
            .entry(key.hash())
            .or_insert_with(|| PrimaryEntry {
                key: key.clone(),
                varies: Vec::new(),
                objects: Vec::new(),
                filling: Vec::new(),
                pending: Vec::new(),
            });
        if primary.key == *key {
            Ok(primary)
        } else {
            Err(HashCollision)
        }
    }

    /// Removes the entry of `key` if it is empty.
    pub(crate) fn remove_if_empty(&mut self, key: KeyHash) {
        if self.primaries.get(&key).is_some_and(PrimaryEntry::is_empty) {
            self.primaries.remove(&key);
        }
    }

    /// Inserts an object, which replaces an older one of the same variant.
    pub(crate) fn insert(&mut self, object: Arc<Object>, max_variants: usize) -> RemovedObjects {
        let candidate = object.candidate();
        let bytes = self.weight(&object);
        let Ok(primary) = self.primary_or_new(object.key()) else {
            return RemovedObjects::default();
        };
        let mut removed = primary.insert(object, max_variants);
        for old in removed.replaced.iter().chain(&removed.evicted) {
            self.eviction.remove(old.usage());
        }
        self.eviction.insert(candidate, bytes);
        removed.evicted.extend(self.evict());
        removed
    }

    /// Updates the size of an object. Returns the objects that are evicted by it.
    pub(crate) fn resize(&mut self, object: &Object) -> RemovedObjects {
        self.eviction.resize(object.usage(), self.weight(object));
        RemovedObjects {
            evicted: self.evict(),
            ..RemovedObjects::default()
        }
    }

    fn weight(&self, object: &Object) -> u64 {
        // An object on disk takes little memory but a descriptor, of which a process has a limited number.
        let least = object.stored_body().file().map_or(0, |_| self.file_weight);
        object.memory().max(least)
    }

    /// All objects that are stored.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.primaries.values().flat_map(|primary| &primary.objects)
    }

    /// Removes an object.
    pub(crate) fn remove(&mut self, object: &Object) {
        self.eviction.remove(object.usage());
        self.take(object.key().hash(), object.generation());
    }

    /// The object that the candidate stands for.
    pub(crate) fn find_candidate(&self, candidate: &EvictionCandidate) -> Option<&Arc<Object>> {
        let objects = &self.primaries.get(&candidate.primary)?.objects;
        objects
            .iter()
            .find(|held| held.generation() == candidate.generation)
    }

    pub(crate) fn remember_pass(&mut self, key: KeyHash, until: Instant, now: Instant) {
        if self.passes.len() >= MAX_PASSES {
            self.passes.retain(|_, until| *until > now);
        }
        // A client can request as many URLs without a shared response as it likes. Without a mark, requests for one
        // wait for another.
        if self.passes.len() < MAX_PASSES {
            self.passes.insert(key, until);
        }
    }

    /// Whether responses to `key` could not be shared lately.
    pub(crate) fn is_pass(&mut self, key: KeyHash) -> bool {
        // The clock is read only if there is a mark.
        let Some(until) = self.passes.get(&key) else {
            return false;
        };
        let holds = *until > Instant::now();
        if !holds {
            self.passes.remove(&key);
        }
        holds
    }

    pub(crate) fn forget_pass(&mut self, key: KeyHash) {
        self.passes.remove(&key);
    }

    /// The bytes and the number of all objects.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.eviction.bytes(), self.eviction.len() as u64)
    }

    fn evict(&mut self) -> Vec<Arc<Object>> {
        let mut evicted = Vec::new();
        let mut busy: Vec<(EvictionCandidate, u64)> = Vec::new();
        while let Some(candidate) = self.eviction.next(0) {
            let Some(object) = self.take(candidate.primary, candidate.generation) else {
                continue;
            };
            if object.is_filling() {
                // The fill needs it. There are never many of these.
                let bytes = self.weight(&object);
                if let Ok(primary) = self.primary_or_new(object.key()) {
                    primary.objects.push(object);
                    busy.push((candidate, bytes));
                }
                continue;
            }
            evicted.push(object);
        }
        for (candidate, bytes) in busy {
            self.eviction.insert(candidate, bytes);
        }
        evicted
    }

    fn take(&mut self, key: KeyHash, generation: u64) -> Option<Arc<Object>> {
        let primary = self.primaries.get_mut(&key)?;
        let at = primary
            .objects
            .iter()
            .position(|held| held.generation() == generation);
        let object = at.map(|at| primary.objects.remove(at));
        self.remove_if_empty(key);
        object
    }
}

/// Two keys have the same hash.
#[derive(Debug)]
pub(crate) struct HashCollision;

impl PrimaryEntry {
    /// The secondary keys of the request, one for each `Vary` list, the latest first.
    fn selectors<'a>(
        &'a self,
        secondary: &'a mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> impl Iterator<Item = (&'a Arc<[u8]>, Vec<u8>)> {
        self.varies.iter().map(|vary| {
            let selected = if vary.is_empty() {
                Vec::new()
            } else {
                secondary(vary)
            };
            (vary, selected)
        })
    }

    /// The latest stored object that the request selects.
    pub(crate) fn object(
        &self,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<&Arc<Object>> {
        Self::select(self.selectors(secondary), &self.objects)
    }

    /// The object being filled that the request selects.
    pub(crate) fn being_filled(
        &self,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<&Arc<Object>> {
        Self::select(self.selectors(secondary), &self.filling)
    }

    fn select<'a, 'b>(
        mut selectors: impl Iterator<Item = (&'b Arc<[u8]>, Vec<u8>)>,
        objects: &'a [Arc<Object>],
    ) -> Option<&'a Arc<Object>> {
        if objects.is_empty() {
            return None;
        }
        selectors.find_map(|(vary, selected)| {
            objects
                .iter()
                .rev()
                .find(|object| object.is_variant(vary, &selected))
        })
    }

    /// The secondary key that requests for one response have in common: the part that is known
    /// before the response.
    pub(crate) fn expected_secondary(
        &self,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        // Which fields a response varies by is known only when it is here: the latest list is the best guess.
        self.selectors(secondary)
            .next()
            .map(|(_, selected)| selected)
            .unwrap_or_default()
    }

    /// Remembers the `Vary` list of a new response.
    pub(crate) fn remember_vary(&mut self, vary: &Arc<[u8]>) {
        match self.varies.iter().position(|known| known == vary) {
            Some(at) => {
                if let Some(known) = self.varies.get_mut(..=at) {
                    known.rotate_right(1);
                }
            }
            None => {
                self.varies.insert(0, vary.clone());
                self.varies.truncate(MAX_VARIES);
            }
        }
    }

    /// Removes an object from those that are being filled.
    pub(crate) fn remove_filling(&mut self, object: &Arc<Object>) {
        self.filling.retain(|held| !Arc::ptr_eq(held, object));
    }

    /// Whether `object` is stored here.
    pub(crate) fn contains(&self, object: &Arc<Object>) -> bool {
        self.objects.iter().any(|held| Arc::ptr_eq(held, object))
    }

    /// Whether an object of the same variant as `object` is stored here.
    pub(crate) fn contains_variant(&self, object: &Object) -> bool {
        let same = |held: &Arc<Object>| held.is_variant(object.vary(), object.secondary());
        self.objects.iter().any(same)
    }

    fn insert(&mut self, object: Arc<Object>, max_variants: usize) -> RemovedObjects {
        self.remember_vary(object.shared_vary());
        let same = |held: &mut Arc<Object>| held.is_variant(object.vary(), object.secondary());
        let replaced = self.objects.extract_if(.., same).collect();
        let surplus = self
            .objects
            .len()
            .saturating_add(1)
            .saturating_sub(max_variants);
        let evicted = self
            .objects
            .drain(..surplus.min(self.objects.len()))
            .collect();
        self.objects.push(object);
        RemovedObjects { replaced, evicted }
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.filling.is_empty() && self.pending.is_empty()
    }
}
