//! Where stored responses are kept: in memory, shared by all workers.
//!
//! The store knows nothing of HTTP. What a response is stored under, until when it is fresh and
//! whether it may be sent is for [`policy`](crate::policy) to say; to the store its metadata is [a
//! few bytes](Head).
//!
//! - [`Store::lookup_or_fill`] finds an object, or one that is being filled and can be read along,
//!   or makes the caller the one who asks the origin while the others [wait](Wait).
//! - Who asks gets a [`FillTicket`], and for a response that may be stored a [`Filler`]; everybody,
//!   the one who asked too, reads by [`Object::body`] or a [`Reader`], on whatever thread.
//! - [`Store::purge`] takes objects out, or makes them stale, whatever their number.
//! - A worker keeps what it serves most in a [`WorkerFront`], whose hits take no lock.

mod collapse;
mod content;
mod counters;
mod eviction;
mod fill;
mod front;
mod intervals;
mod key;
mod object;
mod purge;
mod read;
mod shard;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use collapse::Pending;
pub use collapse::{Awaited, FillTicket, Wait};
pub use content::Filled;
use content::Mode;
use counters::Counters;
pub use counters::Figures;
pub use fill::{Filler, Unwanted};
pub use front::WorkerFront;
pub use intervals::Intervals;
use key::Hash;
pub use key::Key;
use object::Origin;
pub use object::{Head, NewObject, Object};
pub use purge::{Purge, Purged};
use purge::{Purges, Verdict};
pub use read::{Piece, ReadError, Reader};
use shard::Shard;

/// What a store may take.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The bytes of memory for objects.
    pub memory_bytes: u64,
    /// The largest object to be kept in memory, in bytes; at most an eighth of all is used.
    pub memory_object_bytes: u64,
    /// The most variants below one key.
    pub most_variants: usize,
    /// The bytes of an object that cannot be stored to be held for readers who share it.
    pub window_bytes: u64,
    /// How long a slow reader of such an object may hold up the others before it is left behind.
    pub lag: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            memory_bytes: 256 << 20,
            memory_object_bytes: 1 << 20,
            most_variants: 32,
            window_bytes: 1 << 20,
            lag: Duration::from_secs(5),
        }
    }
}

/// The objects of a cache, shared by all workers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Store(Arc<Shared>);

/// What a lookup came to.
#[derive(Debug)]
pub enum Found {
    /// A stored object, whole or in parts. Whether it may be sent is for the policy to say.
    Hit(Arc<Object>),
    /// An object that is being filled: its metadata is there, its content can be read as it comes.
    Filling(Arc<Object>),
    /// Another request has gone to the origin for it, and there is no answer yet.
    Wait(Wait),
    /// Nobody has: the caller goes, for all that come meanwhile.
    Lead(FillTicket),
    /// Responses for this key could not be shared lately: the caller goes for itself alone.
    Pass,
}

/// What the handles of a store share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) purges: Purges,
    /// The bytes of objects that are being filled.
    pub(crate) filling: AtomicU64,
    counters: Counters,
    generations: AtomicU64,
    shards: Box<[Mutex<Shard>]>,
}

impl Store {
    /// An empty store in memory.
    pub fn new(mut settings: Settings) -> Self {
        let most = settings.memory_bytes / 8;
        settings.memory_object_bytes = settings.memory_object_bytes.min(most);
        // A shard is large enough that its largest object is a small part of it.
        let wanted = settings.memory_bytes / settings.memory_object_bytes.saturating_mul(8).max(1);
        let shards = wanted.clamp(1, 64);
        let shard = || Mutex::new(Shard::new(settings.memory_bytes / shards));
        Self(Arc::new(Shared {
            shards: (0..shards).map(|_| shard()).collect(),
            purges: Purges::new(0),
            filling: AtomicU64::new(0),
            counters: Counters::default(),
            generations: AtomicU64::new(0),
            settings,
        }))
    }

    /// Finds what is stored for `key`, or sees to it that one request goes and gets it.
    ///
    /// `secondary` gives what the request has in the selecting fields that a response came with
    /// ([`NewObject::vary`]). It is called under a lock: it must be quick, and not use the store.
    pub fn lookup_or_fill(&self, key: &Key, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Found {
        let mut shard = self.0.shard(key.hash());
        if let Some(object) = self.0.find(&mut shard, key, secondary) {
            return Found::Hit(object);
        }
        // Under the same lock: what has just been filled is no longer being filled.
        self.lead_in(&mut shard, key, secondary)
    }

    /// Finds what is stored for `key`.
    pub fn lookup(
        &self,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Option<Arc<Object>> {
        let mut shard = self.0.shard(key.hash());
        self.0.find(&mut shard, key, secondary)
    }

    /// As [`Store::lookup_or_fill`], whatever is stored: for a request that has to go to the
    /// origin, as to validate an object. Never [`Found::Hit`].
    pub fn lead(&self, key: &Key, secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>) -> Found {
        let mut shard = self.0.shard(key.hash());
        self.lead_in(&mut shard, key, secondary)
    }

    fn lead_in(
        &self,
        shard: &mut Shard,
        key: &Key,
        secondary: &mut dyn FnMut(&[u8]) -> Vec<u8>,
    ) -> Found {
        let shared = &*self.0;
        if shard.is_pass(key.hash()) {
            shared.counters.misses.add(1);
            return Found::Pass;
        }
        let Ok(primary) = shard.primary_or_new(key) else {
            return Found::Pass;
        };
        if let Some(object) = primary.being_filled(secondary)
            && object.content().is_joinable()
            && shared.judge(object)
        {
            shared.counters.collapsed.add(1);
            return Found::Filling(object.clone());
        }
        let expected = primary.expected(secondary);
        if let Some(pending) = primary
            .pending
            .iter()
            .find(|held| *held.secondary == *expected)
        {
            shared.counters.collapsed.add(1);
            return Found::Wait(Wait(pending.clone()));
        }
        shared.counters.misses.add(1);
        let pending = Arc::new(Pending::new(&expected));
        primary.pending.push(pending.clone());
        Found::Lead(FillTicket::new(self.clone(), key.clone(), pending))
    }

    /// Takes objects out, or makes them stale. It holds for everything that was asked for before
    /// the call, also for what is being filled.
    pub fn purge(&self, purge: &Purge) {
        self.0.purges.add(purge);
        self.0.counters.purges.add(1);
    }

    /// What the store has done and holds.
    pub fn figures(&self) -> Figures {
        let counters = &self.0.counters;
        let mut figures = Figures {
            hits: counters.hits.get(),
            misses: counters.misses.get(),
            collapsed: counters.collapsed.get(),
            stored: counters.stored.get(),
            evictions: counters.evictions.get(),
            purges: counters.purges.get(),
            ..Figures::default()
        };
        for shard in &self.0.shards {
            let (bytes, objects) = locked(shard).size();
            figures.memory_bytes = figures.memory_bytes.saturating_add(bytes);
            figures.memory_objects = figures.memory_objects.saturating_add(objects);
        }
        figures
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.0
    }
}

impl Shared {
    /// The stored object that a request selects, if it still stands.
    fn find(
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
        object.mark_gone();
        None
    }

    /// Whether `object` still stands after all purges. Notes that it is stale after a soft one.
    fn judge(&self, object: &Object) -> bool {
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
            object.mark_gone();
        }
        stands
    }

    pub(crate) fn object(&self, key: Key, new: NewObject, filled_at: u64) -> Object {
        let large = new
            .length
            .is_some_and(|length| length > self.settings.memory_object_bytes);
        let mode = if large {
            Mode::Window(self.settings.window_bytes)
        } else {
            Mode::Memory
        };
        let origin = Origin {
            key,
            generation: self.generations.fetch_add(1, Ordering::Relaxed),
            filled_at,
            mode,
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

    /// Lets nobody find an object that is being filled any more.
    pub(crate) fn unlist(&self, object: &Arc<Object>) {
        let mut shard = self.shard(object.key().hash());
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            primary.unlist(object);
        }
        shard.tidy(object.key().hash());
    }

    /// Stores an object whose fill, or the fill of a gap of it, has ended.
    pub(crate) fn filled(&self, object: &Arc<Object>, filled: Filled) {
        let mut shard = self.shard(object.key().hash());
        let mut listed = false;
        if let Ok(Some(primary)) = shard.primary(object.key()) {
            primary.unlist(object);
            listed = primary.holds(object);
        }
        let keep = matches!(filled, Filled::Whole | Filled::Partly)
            && object.content().is_joinable()
            && !object.is_gone()
            && self.judge(object);
        let out = match (keep, listed) {
            (true, true) => shard.resize(object),
            (true, false) => {
                self.counters.stored.add(1);
                shard.insert(object.clone(), self.settings.most_variants)
            }
            (false, true) if filled == Filled::Ongoing => Vec::new(),
            (false, true) => {
                shard.remove(object);
                vec![object.clone()]
            }
            (false, false) => Vec::new(),
        };
        shard.tidy(object.key().hash());
        drop(shard);
        self.dropped(out);
    }

    pub(crate) fn freshen(&self, object: &Arc<Object>, head: Head, asked_at: u64) {
        object.freshen(head, asked_at);
        let mut shard = self.shard(object.key().hash());
        let out = shard.resize(object);
        drop(shard);
        self.dropped(out);
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

    fn dropped(&self, out: Vec<Arc<Object>>) {
        for object in out {
            if object.mark_gone() {
                self.counters.evictions.add(1);
            }
        }
    }

    fn shard(&self, key: Hash) -> MutexGuard<'_, Shard> {
        let at = key.spread() % self.shards.len().max(1);
        #[expect(
            clippy::indexing_slicing,
            reason = "the remainder is less than the length"
        )]
        locked(&self.shards[at])
    }
}

/// What a panic left behind a lock is whole: nothing is changed there in two steps that could fail
/// between.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
