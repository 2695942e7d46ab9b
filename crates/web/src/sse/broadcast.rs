//! The same events for many clients, on all workers.
//!
//! The last events are kept once, and each client reads them from there. A client has what it
//! missed while its connection was lost, and one that reads slowly costs no memory of its own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::{Event, LastEventId, Prepared};
use crate::websocket::SlowReceivers;

/// Events for all who subscribed: clones are the same broadcast, and can be used on any thread.
#[derive(Clone)]
pub struct Broadcast(Arc<Inner>);

/// How much a broadcast keeps, and what becomes of those who were away longer.
#[derive(Clone, Debug)]
pub struct BroadcastSettings {
    /// Events that are kept for those who come back or read slowly.
    pub kept: usize,
    /// How many of those a client gets that had none before.
    pub replay: usize,
    /// What becomes of a client for which more events wait than are kept: it misses them, or its stream ends,
    /// and it may come back.
    pub slow: SlowReceivers,
    /// What a client is told that missed events which are not kept any more, before those that are; as one
    /// by which the page loads everything anew.
    pub missed: Option<Event>,
}

impl Default for BroadcastSettings {
    /// 256 events, none for new clients; who is slow misses events, and is not told.
    fn default() -> Self {
        Self {
            kept: 256,
            replay: 0,
            slow: SlowReceivers::Skip,
            missed: None,
        }
    }
}

struct Inner {
    /// In the ids of its events, so that those of another process, or of one before this, are known as such.
    name: u64,
    kept: usize,
    replay: u64,
    slow: SlowReceivers,
    missed: Option<Prepared>,
    ring: Mutex<Ring>,
}

/// The events that are kept, and who waits for the next.
#[derive(Default)]
struct Ring {
    events: VecDeque<Prepared>,
    /// The number of the event to come.
    next: u64,
    waiting: HashMap<u64, Waker>,
    subscriptions: u64,
}

impl Default for Broadcast {
    fn default() -> Self {
        Self::new(BroadcastSettings::default())
    }
}

impl Broadcast {
    /// A broadcast without events.
    pub fn new(settings: BroadcastSettings) -> Self {
        Self(Arc::new(Inner {
            name: RandomState::new().hash_one(0),
            kept: settings.kept.max(1),
            replay: settings.replay as u64,
            slow: settings.slow,
            missed: settings.missed.map(Prepared::from),
            ring: Mutex::default(),
        }))
    }

    /// Sends an event to all who subscribed. It gets an id in place of its own.
    pub fn publish(&self, event: impl Into<Event>) {
        let event = event.into();
        let waiting = {
            let mut ring = self.0.ring();
            let id = Id {
                broadcast: self.0.name,
                number: ring.next,
            };
            ring.events.push_back(event.id(id).into());
            ring.next = ring.next.saturating_add(1);
            if ring.events.len() > self.0.kept {
                ring.events.pop_front();
            }
            std::mem::take(&mut ring.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// The events after the last one that a client had; for one that had none, those that come, and as many
    /// before them as [`BroadcastSettings::replay`] says.
    pub fn subscribe(&self, last: &LastEventId) -> Subscription {
        let mut ring = self.0.ring();
        ring.subscriptions = ring.subscriptions.saturating_add(1);
        let fresh = ring.next.saturating_sub(self.0.replay).max(ring.first());
        let (next, has_missed) = match last.get().map(|id| Id::parse(id, self.0.name)) {
            None => (fresh, false),
            Some(Some(had)) if had < ring.next => {
                let next = had.saturating_add(1);
                (next.max(ring.first()), next < ring.first())
            }
            // Of another process: what came between cannot be known.
            Some(_) => (fresh, true),
        };
        Subscription {
            id: ring.subscriptions,
            next,
            has_missed,
            broadcast: Arc::clone(&self.0),
        }
    }

    /// How many clients wait for the next event. Those that read slowly have not come so far.
    pub fn waiting(&self) -> usize {
        self.0.ring().waiting.len()
    }
}

impl Inner {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    /// The number of the first event that is kept.
    fn first(&self) -> u64 {
        self.next.saturating_sub(self.events.len() as u64)
    }

    fn get(&self, number: u64) -> Option<&Prepared> {
        let place = number.checked_sub(self.first())?;
        self.events.get(usize::try_from(place).ok()?)
    }
}

/// The events of a [`Broadcast`] for one client; [`Sse::new`](super::Sse::new) sends them.
pub struct Subscription {
    id: u64,
    /// The number of the event that is next.
    next: u64,
    /// Whether the client is still to be told that it missed events.
    has_missed: bool,
    broadcast: Arc<Inner>,
}

impl Stream for Subscription {
    type Item = Prepared;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Prepared>> {
        let broadcast = Arc::clone(&self.broadcast);
        let mut ring = broadcast.ring();
        if self.next < ring.first() {
            if broadcast.slow == SlowReceivers::Close {
                return Poll::Ready(None);
            }
            self.next = ring.first();
            self.has_missed = true;
        }
        if std::mem::take(&mut self.has_missed)
            && let Some(missed) = &broadcast.missed
        {
            return Poll::Ready(Some(missed.clone()));
        }
        if let Some(event) = ring.get(self.next) {
            self.next = self.next.saturating_add(1);
            return Poll::Ready(Some(event.clone()));
        }
        ring.waiting.insert(self.id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.broadcast.ring().waiting.remove(&self.id);
    }
}

/// What names an event among all.
struct Id {
    broadcast: u64,
    number: u64,
}

impl Id {
    /// The number of an event of this broadcast.
    fn parse(id: &str, broadcast: u64) -> Option<u64> {
        let (name, number) = id.split_once('-')?;
        let is_known = u64::from_str_radix(name, 16) == Ok(broadcast);
        is_known.then(|| number.parse().ok()).flatten()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{}", self.broadcast, self.number)
    }
}

impl fmt::Debug for Broadcast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broadcast")
            .field("kept", &self.0.kept)
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("next", &self.next)
            .finish_non_exhaustive()
    }
}
