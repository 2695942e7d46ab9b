//! A part of the memory tier: the objects of some keys, behind one lock that is held for moments.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use super::collapse::Pending;
use super::eviction::{Candidate, Eviction};
use super::key::{Hash, Key};
use super::object::Object;

/// More than this many lists of selecting fields are not tried for one key.
const MOST_VARIES: usize = 4;

/// More marks than this are not kept.
const MOST_PASSES: usize = 4096;

/// The objects of some keys.
#[derive(Debug)]
pub(crate) struct Shard {
    primaries: HashMap<Hash, Primary>,
    eviction: Eviction,
    /// Keys whose responses could not be shared lately, and until when that is assumed.
    passes: HashMap<Hash, Instant>,
    /// What an object with an open file counts for at least, so that there are not too many.
    file_weight: u64,
}

/// What an insertion moved out.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// An older object of the same variant.
    pub(crate) replaced: Vec<Arc<Object>>,
    /// Those that had to make room.
    pub(crate) evicted: Vec<Arc<Object>>,
}

/// All there is below one primary key.
#[derive(Debug)]
pub(crate) struct Primary {
    pub(crate) key: Key,
    /// The lists of selecting fields that responses came with, the latest first; one is empty: no
    /// Vary.
    varies: Vec<Arc<[u8]>>,
    objects: Vec<Arc<Object>>,
    /// Objects that are being filled and can be read along.
    pub(crate) filling: Vec<Arc<Object>>,
    pub(crate) pending: Vec<Arc<Pending>>,
}

impl Shard {
    pub(crate) fn new(capacity: u64, file_weight: u64) -> Self {
        Self {
            primaries: HashMap::new(),
            eviction: Eviction::new(capacity),
            passes: HashMap::new(),
            file_weight,
        }
    }

    /// What there is below `key`: `Err` when its place is taken by another key with the same hash.
    pub(crate) fn primary(&mut self, key: &Key) -> Result<Option<&mut Primary>, Collision> {
        match self.primaries.get_mut(&key.hash()) {
            Some(primary) if primary.key != *key => Err(Collision),
            found => Ok(found),
        }
    }

    /// As [`Shard::primary`], and makes it when there is none.
    pub(crate) fn primary_or_new(&mut self, key: &Key) -> Result<&mut Primary, Collision> {
        let primary = self.primaries.entry(key.hash()).or_insert_with(|| Primary {
            key: key.clone(),
            varies: Vec::new(),
            objects: Vec::new(),
            filling: Vec::new(),
            pending: Vec::new(),
        });
        if primary.key == *key {
            Ok(primary)
        } else {
            Err(Collision)
        }
    }

    /// Forgets `key` when there is nothing below it.
    pub(crate) fn tidy(&mut self, key: Hash) {
        if self.primaries.get(&key).is_some_and(Primary::is_empty) {
            self.primaries.remove(&key);
        }
    }

    /// Puts an object in, in the place of an older one of the same variant.
    pub(crate) fn insert(&mut self, object: Arc<Object>, most_variants: usize) -> Moved {
        let candidate = object.candidate();
        let bytes = self.weight(&object);
        let Ok(primary) = self.primary_or_new(object.key()) else {
            return Moved::default();
        };
        let mut moved = primary.insert(object, most_variants);
        for old in moved.replaced.iter().chain(&moved.evicted) {
            self.eviction.remove(old.usage());
        }
        self.eviction.insert(candidate, bytes);
        moved.evicted.extend(self.evict());
        moved
    }

    /// Tells that an object takes another number of bytes now. Returns what had to make room.
    pub(crate) fn resize(&mut self, object: &Object) -> Moved {
        self.eviction.resize(object.usage(), self.weight(object));
        Moved {
            evicted: self.evict(),
            ..Moved::default()
        }
    }

    fn weight(&self, object: &Object) -> u64 {
        let least = object.content().file().map_or(0, |_| self.file_weight);
        object.memory().max(least)
    }

    /// All objects that are stored.
    pub(crate) fn objects(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.primaries.values().flat_map(|primary| &primary.objects)
    }

    /// Takes an object out.
    pub(crate) fn remove(&mut self, object: &Object) {
        self.eviction.remove(object.usage());
        self.take(object.key().hash(), object.generation());
    }

    /// The object with this name, whatever it is that it is a candidate for.
    pub(crate) fn named(&self, candidate: &Candidate) -> Option<&Arc<Object>> {
        let objects = &self.primaries.get(&candidate.primary)?.objects;
        objects
            .iter()
            .find(|held| held.generation() == candidate.generation)
    }

    pub(crate) fn remember_pass(&mut self, key: Hash, until: Instant, now: Instant) {
        if self.passes.len() >= MOST_PASSES {
            self.passes.retain(|_, until| *until > now);
        }
        if self.passes.len() < MOST_PASSES {
            self.passes.insert(key, until);
        }
    }

    /// Whether responses to `key` could not be shared lately.
    pub(crate) fn is_pass(&mut self, key: Hash) -> bool {
        // No clock is read where no mark is.
        let Some(until) = self.passes.get(&key) else {
            return false;
        };
        let holds = *until > Instant::now();
        if !holds {
            self.passes.remove(&key);
        }
        holds
    }

    pub(crate) fn forget_pass(&mut self, key: Hash) {
        self.passes.remove(&key);
    }

    /// The bytes of all objects, and how many there are.
    pub(crate) fn size(&self) -> (u64, u64) {
        (self.eviction.bytes(), self.eviction.len() as u64)
    }

    fn evict(&mut self) -> Vec<Arc<Object>> {
        let mut out = Vec::new();
        let mut busy: Vec<(Candidate, u64)> = Vec::new();
        while let Some(candidate) = self.eviction.next(0) {
            let Some(object) = self.take(candidate.primary, candidate.generation) else {
                continue;
            };
            if object.is_filling() {
                // Who fills it counts on it; there are never many of these.
                let bytes = self.weight(&object);
                if let Ok(primary) = self.primary_or_new(object.key()) {
                    primary.objects.push(object);
                    busy.push((candidate, bytes));
                }
                continue;
            }
            out.push(object);
        }
        for (candidate, bytes) in busy {
            self.eviction.insert(candidate, bytes);
        }
        out
    }

    fn take(&mut self, key: Hash, generation: u64) -> Option<Arc<Object>> {
        let primary = self.primaries.get_mut(&key)?;
        let at = primary
            .objects
            .iter()
            .position(|held| held.generation() == generation);
        let object = at.map(|at| primary.objects.remove(at));
        self.tidy(key);
        object
    }
}

/// Two keys have one hash.
#[derive(Debug)]
pub(crate) struct Collision;

impl Primary {
    /// What the caller's request has in the fields known to select a variant: one for each list of
    /// fields, the latest first.
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

    /// The stored object that the request selects; the latest of them.
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

    /// What requests that may share a response have in common, as far as it is known before the
    /// response.
    pub(crate) fn expected(&self, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Vec<u8> {
        self.selectors(secondary)
            .next()
            .map(|(_, selected)| selected)
            .unwrap_or_default()
    }

    /// Notes the selecting fields of a response that just came.
    pub(crate) fn learn(&mut self, vary: &Arc<[u8]>) {
        match self.varies.iter().position(|known| known == vary) {
            Some(at) => {
                if let Some(known) = self.varies.get_mut(..=at) {
                    known.rotate_right(1);
                }
            }
            None => {
                self.varies.insert(0, vary.clone());
                self.varies.truncate(MOST_VARIES);
            }
        }
    }

    /// Takes an object out of those that are being filled.
    pub(crate) fn unlist(&mut self, object: &Arc<Object>) {
        self.filling.retain(|held| !Arc::ptr_eq(held, object));
    }

    /// Whether `object` is stored here.
    pub(crate) fn holds(&self, object: &Arc<Object>) -> bool {
        self.objects.iter().any(|held| Arc::ptr_eq(held, object))
    }

    /// Whether an object of the same variant as `object` is stored here.
    pub(crate) fn holds_variant(&self, object: &Object) -> bool {
        let same = |held: &Arc<Object>| held.is_variant(object.vary(), object.secondary());
        self.objects.iter().any(same)
    }

    fn insert(&mut self, object: Arc<Object>, most_variants: usize) -> Moved {
        self.learn(object.shared_vary());
        let same = |held: &mut Arc<Object>| held.is_variant(object.vary(), object.secondary());
        let replaced = self.objects.extract_if(.., same).collect();
        let surplus = self
            .objects
            .len()
            .saturating_add(1)
            .saturating_sub(most_variants);
        let evicted = self
            .objects
            .drain(..surplus.min(self.objects.len()))
            .collect();
        self.objects.push(object);
        Moved { replaced, evicted }
    }

    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.filling.is_empty() && self.pending.is_empty()
    }
}
