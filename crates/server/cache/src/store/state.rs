//! The state that all handles of a store share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::body::{BodyStorage, FillOutcome, ObjectBody};
use super::counters::StoreCounters;
use super::disk::Disk;
use super::eviction::EvictionCandidate;
use super::key::{KeyHash, StoreKey};
use super::metadata::NewObject;
use super::object::{Object, ObjectContext};
use super::pending::PendingRequest;
use super::purge::{PurgeRequest, PurgeSelector, PurgeVerdict, Purges};
use super::shard::{RemovedObjects, Shard};
use super::{StoreSettings, locked};

/// The state that all handles of a store share.
#[derive(Debug)]
pub(crate) struct StoreState {
    pub(crate) settings: StoreSettings,
    pub(crate) purges: Purges,
    /// The bytes of objects that are being filled.
    pub(crate) filling: AtomicU64,
    pub(crate) disk: Option<Disk>,
    /// The number of forwarded requests, by the number of the last purge before them.
    pub(crate) guarded_purges: Mutex<BTreeMap<u64, usize>>,
    pub(super) sweeping: AtomicUsize,
    pub(super) counters: StoreCounters,
    pub(super) generations: AtomicU64,
    pub(super) shards: Box<[Mutex<Shard>]>,
}

impl StoreState {
    /// The stored object that a request selects, if it is not purged.
    pub(super) fn find(
        &self,
        shard: &mut Shard,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let object = shard
            .primary(key)
            .ok()
            .flatten()?
            .object(secondary)?
            .clone();
        if self.survives_purges(&object) {
            object.count_hits(1);
            self.counters.hits.add(1);
            return Some(object);
        }
        shard.remove(&object);
        object.mark_removed();
        None
    }

    /// Applies the purges since the last check to `object`, and returns whether it remains. A soft
    /// purge marks it as stale.
    pub(super) fn survives_purges(&self, object: &Object) -> bool {
        if object.checked() == self.purges.current() {
            return true;
        }
        let (verdict, current) = self.purges.verdict(object.subject());
        match verdict {
            PurgeVerdict::Gone => return false,
            PurgeVerdict::Stale => object.mark_stale(),
            PurgeVerdict::Untouched => {}
        }
        object.set_checked(current);
        true
    }

    /// As [`StoreState::survives_purges`], and removes a purged object.
    pub(crate) fn keep_unless_purged(&self, object: &Object) -> bool {
        let keep_unless_purged = self.survives_purges(object);
        if !keep_unless_purged {
            self.shard(object.key().hash()).remove(object);
            object.mark_removed();
        }
        keep_unless_purged
    }

    /// The object that is being filled and that a request selects, if it is not purged.
    pub(super) fn join(
        &self,
        shard: &mut Shard,
        key: &StoreKey,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let object = shard.primary(key).ok().flatten()?.being_filled(secondary)?;
        let joins = object.stored_body().is_joinable() && self.survives_purges(object);
        joins.then(|| {
            self.counters.collapsed.add(1);
            object.clone()
        })
    }

    /// Calls `with` for the disk, if there is one.
    pub(crate) fn on_disk<T>(&self, with: impl FnOnce(&Disk) -> T) -> Option<T> {
        self.disk.as_ref().map(with)
    }

    pub(crate) fn object(&self, key: StoreKey, new: NewObject, filled_at: u64) -> Object {
        let origin = ObjectContext {
            key,
            generation: self.generations.fetch_add(1, Ordering::Relaxed),
            filled_at,
            body: ObjectBody::new(new.length, BodyStorage::Memory),
        };
        Object::new(new, origin)
    }

    /// Makes an object that is being filled visible to lookups.
    pub(crate) fn publish_filling(&self, object: Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        shard.forget_pass(object.key().hash());
        if let Ok(primary) = shard.primary_or_new(object.key()) {
            primary.remember_vary(object.shared_vary());
            if object.stored_body().is_joinable() {
                primary.filling.push(object);
            }
        }
    }

    /// Hides an object from all lookups.
    pub(crate) fn drop_object(&self, object: &Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            primary.remove_filling(object);
        }
        shard.remove(object);
        object.mark_removed();
    }

    /// Stores an object after its fill, or the fill of a gap, has ended. Returns `false` if it is
    /// not stored.
    pub(crate) fn end_fill(&self, object: &Arc<Object>, filled: FillOutcome) -> bool {
        let mut shard = self.shard(object.key().hash());
        let mut listed = false;
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            listed = primary.contains(object);
            if filled != FillOutcome::Ongoing {
                primary.remove_filling(object);
            }
        }
        let keep = matches!(filled, FillOutcome::Complete | FillOutcome::Partial)
            && object.stored_body().is_joinable()
            && !object.is_removed()
            && self.survives_purges(object);
        let removed = match (keep, listed) {
            (true, true) => shard.resize(object),
            (true, false) => {
                self.counters.stored.add(1);
                // The older one on disk would be found again when this one leaves the memory before it is written.
                self.on_disk(|disk| disk.supersede(object));
                shard.insert(object.clone(), self.settings.max_variants)
            }
            (false, _) if filled == FillOutcome::Ongoing => RemovedObjects::default(),
            (false, _) => {
                shard.remove(object);
                object.mark_removed();
                RemovedObjects::default()
            }
        };
        drop(shard);
        self.mark_all_removed(removed);
        keep
    }

    /// Inserts an object that was found on disk, unless its place is taken.
    pub(crate) fn insert_restored(&self, object: Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        // A purge since the file was read may have passed this shard already. A sweep first removes an object from the index
        // and then the rule, so the rule is asked first.
        let survives = self.survives_purges(&object);
        let known = survives && self.on_disk(|disk| disk.knows(&object)).unwrap_or_default();
        let Ok(primary) = shard.primary_or_new(object.key()) else {
            return;
        };
        // Lookups with this `Vary` list find it from now on, if it is present already.
        primary.remember_vary(object.shared_vary());
        if !known || primary.contains_variant(&object) {
            shard.remove_if_empty(object.key().hash());
            return;
        }
        let removed = shard.insert(object, self.settings.max_variants);
        drop(shard);
        self.mark_all_removed(removed);
    }

    /// Whether a candidate for eviction from disk was used in memory lately.
    pub(crate) fn is_used(&self, candidate: &EvictionCandidate) -> bool {
        let shard = self.shard(candidate.primary);
        shard
            .find_candidate(candidate)
            .is_some_and(|object| object.usage().uses() > 0)
    }

    /// Closes the file of an object that is no longer on disk.
    pub(crate) fn close_file(&self, candidate: &EvictionCandidate) {
        let mut shard = self.shard(candidate.primary);
        let object = shard.find_candidate(candidate).cloned();
        if let Some(object) = object.filter(|object| object.stored_body().file().is_some()) {
            shard.remove(&object);
            object.mark_evicted();
        }
    }

    /// Updates the size of an object.
    pub(crate) fn update_size(&self, object: &Object) {
        let mut shard = self.shard(object.key().hash());
        let removed = shard.resize(object);
        drop(shard);
        self.mark_all_removed(removed);
    }

    /// Whether nothing that `purge` could apply to is stored or being fetched.
    pub(super) fn has_no_target(&self, purge: &PurgeRequest) -> bool {
        let (Some(site), PurgeSelector::Key(key)) = (&purge.site, &purge.selector) else {
            return false;
        };
        let key = StoreKey::new(&Arc::from(&**site), key);
        let in_memory = !matches!(self.shard(key.hash()).primary(&key), Ok(None));
        let on_disk = || {
            self.on_disk(|disk| disk.may_have(key.hash()))
                .unwrap_or_default()
        };
        !in_memory && !on_disk()
    }

    pub(super) fn sweep(&self) {
        let target = self.purges.current();
        for shard in &self.shards {
            let unchecked = |object: &&Arc<Object>| object.checked() < target;
            let objects: Vec<_> = locked(shard).objects().filter(unchecked).cloned().collect();
            for object in objects {
                self.keep_unless_purged(&object);
            }
        }
        let limit = target.min(self.oldest_guarded_purge());
        match &self.disk {
            Some(disk) => disk.sweep(self, target, limit),
            None => self.purges.retire(limit),
        }
    }

    /// The number of the last purge before the oldest forwarded request.
    pub(super) fn oldest_guarded_purge(&self) -> u64 {
        locked(&self.guarded_purges)
            .keys()
            .next()
            .copied()
            .unwrap_or(u64::MAX)
    }

    pub(crate) fn remember_pass(&self, key: &StoreKey, memory: Duration) {
        let now = Instant::now();
        if let Some(until) = now.checked_add(memory).filter(|until| *until > now) {
            self.shard(key.hash()).remember_pass(key.hash(), until, now);
        }
    }

    pub(crate) fn end_pending(&self, key: &StoreKey, pending: &Arc<PendingRequest>) {
        let mut shard = self.shard(key.hash());
        if let Ok(Some(primary)) = shard.primary(key) {
            primary.pending.retain(|held| !Arc::ptr_eq(held, pending));
        }
        shard.remove_if_empty(key.hash());
    }

    pub(super) fn mark_all_removed(&self, removed: RemovedObjects) {
        for object in removed.replaced {
            object.mark_removed();
        }
        for object in removed.evicted {
            if object.mark_evicted() {
                self.counters.evictions.add(1);
            }
        }
    }

    pub(super) fn shard(&self, key: KeyHash) -> MutexGuard<'_, Shard> {
        let at = key.spread() % self.shards.len().max(1);
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.shards[at])
    }
}
