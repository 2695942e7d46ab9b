//! The state that the handles of a store share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use super::collapse::Pending;
use super::content::{Content, Filled, Mode};
use super::counters::Counters;
use super::disk::Disk;
use super::eviction::Candidate;
use super::key::{Hash, Key};
use super::object::{NewObject, Object, Origin};
use super::purge::{Purge, Purged, Purges, Verdict};
use super::shard::{Moved, Shard};
use super::{Settings, locked};

/// What the handles of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) purges: Purges,
    /// The bytes of objects that are being filled.
    pub(crate) filling: AtomicU64,
    pub(crate) disk: Option<Disk>,
    /// How many requests are on their way to origins, by the number of the last purge before.
    pub(crate) asked: Mutex<BTreeMap<u64, usize>>,
    pub(super) sweeping: AtomicUsize,
    pub(super) counters: Counters,
    pub(super) generations: AtomicU64,
    pub(super) shards: Box<[Mutex<Shard>]>,
}

impl Shared {
    /// The stored object that a request selects, if it still stands.
    pub(super) fn find(
        &self,
        shard: &mut Shard,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let object = shard
            .primary(key)
            .ok()
            .flatten()?
            .object(secondary)?
            .clone();
        if self.judge(&object) {
            object.count_hits(1);
            self.counters.hits.add(1);
            return Some(object);
        }
        shard.remove(&object);
        object.mark_out();
        None
    }

    /// Whether `object` still stands after all purges. Notes that it is stale after a soft one.
    pub(super) fn judge(&self, object: &Object) -> bool {
        if object.checked() == self.purges.current() {
            return true;
        }
        let (verdict, current) = self.purges.verdict(object.subject());
        match verdict {
            Verdict::Gone => return false,
            Verdict::Stale => object.mark_stale(),
            Verdict::Untouched => {}
        }
        object.set_checked(current);
        true
    }

    /// As [`Shared::judge`], and takes it out when it does not.
    pub(crate) fn stands(&self, object: &Object) -> bool {
        let stands = self.judge(object);
        if !stands {
            self.shard(object.key().hash()).remove(object);
            object.mark_out();
        }
        stands
    }

    /// The object that is being filled and that a request selects, if it still stands.
    pub(super) fn join(
        &self,
        shard: &mut Shard,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let object = shard.primary(key).ok().flatten()?.being_filled(secondary)?;
        let joins = object.content().is_joinable() && self.judge(object);
        joins.then(|| {
            self.counters.collapsed.add(1);
            object.clone()
        })
    }

    /// What `with` says of the disk, if there is one.
    pub(crate) fn on_disk<T>(&self, with: impl FnOnce(&Disk) -> T) -> Option<T> {
        self.disk.as_ref().map(with)
    }

    pub(crate) fn object(&self, key: Key, new: NewObject, filled_at: u64) -> Object {
        let origin = Origin {
            key,
            generation: self.generations.fetch_add(1, Ordering::Relaxed),
            filled_at,
            content: Content::new(new.length, Mode::Memory),
        };
        Object::new(new, origin)
    }

    /// Lets others find an object that is being filled.
    pub(crate) fn list(&self, object: Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        shard.forget_pass(object.key().hash());
        if let Ok(primary) = shard.primary_or_new(object.key()) {
            primary.learn(object.shared_vary());
            if object.content().is_joinable() {
                primary.filling.push(object);
            }
        }
    }

    /// Lets nobody find an object any more.
    pub(crate) fn drop_object(&self, object: &Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            primary.unlist(object);
        }
        shard.remove(object);
        object.mark_out();
    }

    /// Stores an object whose fill, or the fill of a gap of it, has ended. `false` when it is not
    /// kept.
    pub(crate) fn filled(&self, object: &Arc<Object>, filled: Filled) -> bool {
        let mut shard = self.shard(object.key().hash());
        let mut listed = false;
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            listed = primary.holds(object);
            if filled != Filled::Ongoing {
                primary.unlist(object);
            }
        }
        let keep = matches!(filled, Filled::Whole | Filled::Partly)
            && object.content().is_joinable()
            && !object.is_out()
            && self.judge(object);
        let moved = match (keep, listed) {
            (true, true) => shard.resize(object),
            (true, false) => {
                self.counters.stored.add(1);
                self.on_disk(|disk| disk.supersede(object));
                shard.insert(object.clone(), self.settings.most_variants)
            }
            (false, _) if filled == Filled::Ongoing => Moved::default(),
            (false, _) => {
                shard.remove(object);
                object.mark_out();
                Moved::default()
            }
        };
        drop(shard);
        self.moved(moved);
        keep
    }

    /// Takes in an object that was found on disk, unless there is another in its place by now.
    pub(crate) fn adopt(&self, object: Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        let known = self.on_disk(|disk| disk.knows(&object)).unwrap_or_default();
        let Ok(primary) = shard.primary_or_new(object.key()) else {
            return;
        };
        // It was looked for: so it is found from now on, if it is there already.
        primary.learn(object.shared_vary());
        if !known || primary.holds_variant(&object) {
            shard.tidy(object.key().hash());
            return;
        }
        let moved = shard.insert(object, self.settings.most_variants);
        drop(shard);
        self.moved(moved);
    }

    /// Whether what may have to go from disk was used in memory lately.
    pub(crate) fn is_used(&self, candidate: &Candidate) -> bool {
        let shard = self.shard(candidate.primary);
        shard
            .named(candidate)
            .is_some_and(|object| object.usage().uses() > 0)
    }

    /// Lets go of the file of an object that is no longer on disk.
    pub(crate) fn close_file(&self, candidate: &Candidate) {
        let mut shard = self.shard(candidate.primary);
        let object = shard.named(candidate).cloned();
        if let Some(object) = object.filter(|object| object.content().file().is_some()) {
            shard.remove(&object);
            object.mark_evicted();
        }
    }

    /// Counts anew what an object takes.
    pub(crate) fn resized(&self, object: &Object) {
        let mut shard = self.shard(object.key().hash());
        let moved = shard.resize(object);
        drop(shard);
        self.moved(moved);
    }

    /// Whether nothing is stored, or on its way, that `purge` could be about.
    pub(super) fn is_about_nothing(&self, purge: &Purge) -> bool {
        let (Some(site), Purged::Key(key)) = (&purge.site, &purge.what) else {
            return false;
        };
        let key = Key::new(&Arc::from(&**site), key);
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
                self.stands(&object);
            }
        }
        let limit = target.min(self.oldest_asked());
        match &self.disk {
            Some(disk) => disk.sweep(self, target, limit),
            None => self.purges.retire(limit),
        }
    }

    /// The number of the last purge before the oldest request that is on its way.
    pub(super) fn oldest_asked(&self) -> u64 {
        locked(&self.asked)
            .keys()
            .next()
            .copied()
            .unwrap_or(u64::MAX)
    }

    pub(crate) fn remember_pass(&self, key: &Key, memory: Duration) {
        let now = Instant::now();
        if let Some(until) = now.checked_add(memory).filter(|until| *until > now) {
            self.shard(key.hash()).remember_pass(key.hash(), until, now);
        }
    }

    pub(crate) fn end_pending(&self, key: &Key, pending: &Arc<Pending>) {
        let mut shard = self.shard(key.hash());
        if let Ok(Some(primary)) = shard.primary(key) {
            primary.pending.retain(|held| !Arc::ptr_eq(held, pending));
        }
        shard.tidy(key.hash());
    }

    pub(super) fn moved(&self, moved: Moved) {
        for object in moved.replaced {
            object.mark_out();
        }
        for object in moved.evicted {
            if object.mark_evicted() {
                self.counters.evictions.add(1);
            }
        }
    }

    pub(super) fn shard(&self, key: Hash) -> MutexGuard<'_, Shard> {
        let at = key.spread() % self.shards.len().max(1);
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.shards[at])
    }
}
