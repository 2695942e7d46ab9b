//! Limits on what happens at once, with a bounded queue in which clients take turns.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, Hash, RandomState};
use std::ops::Bound;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::sync::oneshot;

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 64;

/// What happens at once for each key, exact over all workers.
///
/// A key is there while something of it runs, so the memory is bounded by what runs and waits. A worker that takes or frees a place
/// holds a lock of a part of the table for some tens of nanoseconds: to count without one, a key would need a place that it never
/// loses, and a queue that several workers change needs a lock in any case.
#[derive(Debug)]
pub struct ConcurrencyTable {
    shards: Box<[Mutex<HashMap<u64, RunningKey>>]>,
    hasher: RandomState,
}

/// How much may happen at once for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    /// How many may run.
    pub max: u32,
    /// How many more may wait.
    pub queue: u32,
}

/// Whose turn it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    key: u64,
    client: u64,
}

/// The result of an attempt to take a place.
#[derive(Debug)]
pub enum PlaceAttempt {
    /// There was a place.
    Taken(ConcurrencyPlace),
    /// All places are taken, and this waits for one.
    Waiting(WaitingPlace),
    /// All places are taken, and the queue is full.
    Full,
}

/// What runs and waits for a key.
#[derive(Debug, Default)]
struct RunningKey {
    running: u32,
    queue: TurnQueue,
}

/// Those who wait, by client. A client that waits often gets no more turns than one that waits once.
#[derive(Debug, Default)]
struct TurnQueue {
    clients: BTreeMap<u64, BTreeMap<u64, oneshot::Sender<ConcurrencyPlace>>>,
    /// How often each client waits.
    lengths: BTreeSet<(usize, u64)>,
    waiting: usize,
    /// The client that had its turn last.
    last: u64,
    next_number: u64,
}

/// A place among those that run, which is free again when this is dropped.
#[derive(Debug)]
pub struct ConcurrencyPlace {
    table: Arc<ConcurrencyTable>,
    key: u64,
    /// How many run now, this one included.
    running: u32,
}

/// Someone who waits for a place, until it is dropped.
#[derive(Debug)]
pub struct WaitingPlace {
    place: oneshot::Receiver<ConcurrencyPlace>,
    table: Arc<ConcurrencyTable>,
    claimant: Claimant,
    number: u64,
}

impl Default for ConcurrencyTable {
    fn default() -> Self {
        Self {
            shards: std::iter::repeat_with(Mutex::default)
                .take(SHARDS)
                .collect(),
            hasher: RandomState::new(),
        }
    }
}

impl ConcurrencyTable {
    /// The claimant of a key and a client.
    pub fn claimant(&self, key: impl Hash, client: impl Hash) -> Claimant {
        Claimant {
            key: self.hasher.hash_one(key),
            client: self.hasher.hash_one(client),
        }
    }

    /// Takes a place, or begins to wait for one.
    pub fn take(self: &Arc<Self>, claimant: Claimant, limit: Concurrency) -> PlaceAttempt {
        let mut shard = self.shard(claimant.key);
        let held = shard.entry(claimant.key).or_default();
        if held.running < limit.max {
            held.running = held.running.saturating_add(1);
            return PlaceAttempt::Taken(self.place(claimant.key, held.running));
        }
        let (sender, place) = oneshot::channel();
        let queue = usize::try_from(limit.queue).unwrap_or(usize::MAX);
        let Ok((number, displaced)) = held.queue.push(claimant.client, sender, queue) else {
            return PlaceAttempt::Full;
        };
        drop(shard);
        // It wakes a task, which is no work for the time of the lock.
        drop(displaced);
        PlaceAttempt::Waiting(WaitingPlace {
            place,
            table: Arc::clone(self),
            claimant,
            number,
        })
    }

    /// How many run for the key of a claimant, and how many wait.
    pub fn count(&self, claimant: Claimant) -> (u32, usize) {
        let shard = self.shard(claimant.key);
        let held = shard.get(&claimant.key);
        held.map_or((0, 0), |held| (held.running, held.queue.waiting))
    }

    /// The keys of which something runs.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| locked(shard).len()).sum()
    }

    /// Whether nothing runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn place(self: &Arc<Self>, key: u64, running: u32) -> ConcurrencyPlace {
        ConcurrencyPlace {
            table: Arc::clone(self),
            key,
            running,
        }
    }

    fn shard(&self, key: u64) -> MutexGuard<'_, HashMap<u64, RunningKey>> {
        let index = usize::try_from(key).unwrap_or(usize::MAX) % SHARDS;
        // There are as many as this.
        #[expect(
            clippy::indexing_slicing,
            reason = "the index is below the number of shards"
        )]
        locked(&self.shards[index])
    }

    /// Gives the place to the next one that waits, or frees it.
    fn free(self: &Arc<Self>, key: u64) {
        let mut shard = self.shard(key);
        let Some(held) = shard.get_mut(&key) else {
            return;
        };
        if let Some(next) = held.queue.pop() {
            let place = self.place(key, held.running);
            drop(shard);
            // If it does not wait any more, the place comes back here by being dropped.
            drop(next.send(place));
            return;
        }
        held.running = held.running.saturating_sub(1);
        if held.running == 0 {
            shard.remove(&key);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Displaced = Option<oneshot::Sender<ConcurrencyPlace>>;

impl TurnQueue {
    /// Adds one that waits, with its number. If the queue is full, it takes the place of the one that came last of the client that waits
    /// most, if that client waits at least twice as often as this one then would.
    fn push(
        &mut self,
        client: u64,
        sender: oneshot::Sender<ConcurrencyPlace>,
        max: usize,
    ) -> Result<(u64, Displaced), ()> {
        let own = self.clients.get(&client).map_or(0, BTreeMap::len);
        let mut displaced = None;
        if self.waiting >= max {
            let (longest, busiest) = self.lengths.last().copied().ok_or(())?;
            // Not of one that waits as much: two clients would displace each other without end.
            if longest < own.saturating_add(2) {
                return Err(());
            }
            let number = self
                .clients
                .get(&busiest)
                .and_then(|own| own.keys().last().copied());
            displaced = self.remove(busiest, number.ok_or(())?);
        }
        let number = self.next_number;
        self.next_number = number.wrapping_add(1);
        self.lengths.remove(&(own, client));
        self.lengths.insert((own.saturating_add(1), client));
        self.clients
            .entry(client)
            .or_default()
            .insert(number, sender);
        self.waiting = self.waiting.saturating_add(1);
        Ok((number, displaced))
    }

    /// Takes the first one of the client whose turn is next.
    fn pop(&mut self) -> Option<oneshot::Sender<ConcurrencyPlace>> {
        let mut later = self
            .clients
            .range((Bound::Excluded(self.last), Bound::Unbounded));
        let (client, own) = later.next().or_else(|| self.clients.first_key_value())?;
        let (client, number) = (*client, *own.keys().next()?);
        self.last = client;
        self.remove(client, number)
    }

    fn remove(&mut self, client: u64, number: u64) -> Option<oneshot::Sender<ConcurrencyPlace>> {
        let Entry::Occupied(mut own) = self.clients.entry(client) else {
            return None;
        };
        let length = own.get().len();
        let removed = own.get_mut().remove(&number)?;
        self.lengths.remove(&(length, client));
        if length > 1 {
            self.lengths.insert((length.saturating_sub(1), client));
        } else {
            own.remove();
        }
        self.waiting = self.waiting.saturating_sub(1);
        Some(removed)
    }
}

impl ConcurrencyPlace {
    /// How many ran when this place was taken, this one included.
    pub fn running(&self) -> u32 {
        self.running
    }
}

impl Drop for ConcurrencyPlace {
    fn drop(&mut self) {
        self.table.free(self.key);
    }
}

impl Future for WaitingPlace {
    /// `None` if the place in the queue went to a client that waits less.
    type Output = Option<ConcurrencyPlace>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.place).poll(context).map(Result::ok)
    }
}

impl Drop for WaitingPlace {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.claimant.key);
        if let Some(held) = shard.get_mut(&self.claimant.key) {
            let own = held.queue.remove(self.claimant.client, self.number);
            drop(shard);
            drop(own);
        }
        // A place that was given meanwhile is dropped with the receiver, after the lock.
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Waker;
    use std::thread;

    use super::*;

    fn taken(attempt: PlaceAttempt) -> ConcurrencyPlace {
        match attempt {
            PlaceAttempt::Taken(place) => place,
            other => panic!("{other:?}"),
        }
    }

    fn waiting(attempt: PlaceAttempt) -> WaitingPlace {
        match attempt {
            PlaceAttempt::Waiting(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    fn poll(waiting: &mut WaitingPlace) -> Poll<Option<ConcurrencyPlace>> {
        Pin::new(waiting).poll(&mut Context::from_waker(Waker::noop()))
    }

    const ONE: Concurrency = Concurrency { max: 1, queue: 4 };

    #[test]
    fn one_below_at_and_above_the_limit_and_the_queue() {
        let table = Arc::new(ConcurrencyTable::default());
        let limit = Concurrency { max: 2, queue: 1 };
        let one = table.claimant("a", "client");
        let (first, _second) = (taken(table.take(one, limit)), taken(table.take(one, limit)));
        let mut third = waiting(table.take(one, limit));
        assert!(matches!(table.take(one, limit), PlaceAttempt::Full));
        // Another key has its own places.
        let other = table.claimant("b", "client");
        assert_eq!(taken(table.take(other, limit)).running(), 1);
        assert!(poll(&mut third).is_pending());
        drop(first);
        let place = poll(&mut third);
        assert!(matches!(&place, Poll::Ready(Some(place)) if place.running() == 2));
        assert_eq!(table.count(one), (2, 0));
        drop((place, third, _second));
        assert!(table.is_empty());
    }

    #[test]
    fn clients_take_turns_and_one_with_many_requests_makes_room_for_others() {
        let table = Arc::new(ConcurrencyTable::default());
        let of = |client: &str| table.claimant("site", client.to_owned());
        let mut running = taken(table.take(of("busy"), ONE));
        let mut busy: Vec<_> = (0..4)
            .map(|_| waiting(table.take(of("busy"), ONE)))
            .collect();
        assert!(matches!(table.take(of("busy"), ONE), PlaceAttempt::Full));
        let mut quiet = waiting(table.take(of("quiet"), ONE));
        let mut third = waiting(table.take(of("third"), ONE));
        assert_eq!(table.count(of("busy")), (1, 4));
        // The last ones of the busy client lost their places.
        let lost = busy.iter_mut().filter_map(|one| match poll(one) {
            Poll::Ready(None) => Some(()),
            _ => None,
        });
        assert_eq!(lost.count(), 2);
        // Each client has its turn before one has its second.
        let mut order = Vec::new();
        for _ in 0..3 {
            drop(running);
            let mut next = None;
            let others = [("quiet", &mut quiet), ("third", &mut third)];
            let ours = busy[..2].iter_mut().map(|one| ("busy", one));
            for (name, one) in others.into_iter().chain(ours) {
                if let Poll::Ready(Some(place)) = poll_open(one) {
                    order.push(name);
                    next = Some(place);
                }
            }
            running = next.unwrap();
        }
        order.sort_unstable();
        assert_eq!(order, ["busy", "quiet", "third"]);
    }

    /// As [`poll`], but not of one whose place was taken out already.
    fn poll_open(waiting: &mut WaitingPlace) -> Poll<Option<ConcurrencyPlace>> {
        if waiting.place.is_terminated() {
            Poll::Pending
        } else {
            poll(waiting)
        }
    }

    #[test]
    fn who_gives_up_leaves_neither_a_place_nor_the_queue_taken() {
        let table = Arc::new(ConcurrencyTable::default());
        let one = table.claimant("a", 1);
        let running = taken(table.take(one, ONE));
        let gives_up = waiting(table.take(one, ONE));
        let given = waiting(table.take(one, ONE));
        drop(gives_up);
        assert_eq!(table.count(one), (1, 1));
        drop(running);
        // It was given the place, and never looked.
        assert_eq!(table.count(one), (1, 0));
        drop(given);
        assert!(table.is_empty());
    }

    #[test]
    fn over_several_workers_no_more_than_the_limit_run_and_nobody_is_forgotten() {
        let table = Arc::new(ConcurrencyTable::default());
        let limit = Concurrency { max: 3, queue: 100 };
        let (running, most, done) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for worker in 0..8_u32 {
                let (table, running, most, done) = (&table, &running, &most, &done);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .build()
                        .unwrap();
                    for round in 0..300_u32 {
                        let claimant = table.claimant("key", (worker, round % 3));
                        let place = match table.take(claimant, limit) {
                            PlaceAttempt::Taken(place) => place,
                            PlaceAttempt::Waiting(waiting) => runtime.block_on(waiting).unwrap(),
                            PlaceAttempt::Full => panic!("the queue is not full"),
                        };
                        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                        most.fetch_max(now, Ordering::SeqCst);
                        thread::yield_now();
                        running.fetch_sub(1, Ordering::SeqCst);
                        drop(place);
                        done.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(done.into_inner(), 8 * 300);
        assert!(most.into_inner() <= 3);
        assert!(table.is_empty());
    }
}
