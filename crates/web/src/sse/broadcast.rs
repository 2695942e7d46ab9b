//! `Broadcast`: the same events for many clients on all workers.
//!
//! The last events are kept once, and each client reads them from there: a client that reconnects gets
//! the events that it missed, and a slow client needs no memory of its own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use super::{EncodedEvent, Event, LastEventId};
use crate::websocket::SlowReceivers;

/// Events for all who subscribed: clones are the same broadcast, and can be used on any thread.
#[derive(Clone)]
pub struct Broadcast(Arc<BroadcastState>);

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

struct BroadcastState {
    /// In the ids of its events, so that those of another process, or of one before this, are known as such.
    name: u64,
    kept: usize,
    replay: u64,
    slow: SlowReceivers,
    missed: Option<EncodedEvent>,
    buffer: Mutex<EventBuffer>,
}

/// The events that are kept, and who waits for the next.
#[derive(Default)]
struct EventBuffer {
    events: VecDeque<EncodedEvent>,
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
        Self(Arc::new(BroadcastState {
            name: RandomState::new().hash_one(0),
            kept: settings.kept.max(1),
            replay: settings.replay as u64,
            slow: settings.slow,
            missed: settings.missed.map(EncodedEvent::from),
            buffer: Mutex::default(),
        }))
    }

    /// Sends an event to all who subscribed. It gets an id in place of its own.
    pub fn publish(&self, event: impl Into<Event>) {
        let event = event.into();
        let waiting = {
            let mut buffer = self.0.buffer();
            let id = BroadcastEventId {
                broadcast: self.0.name,
                number: buffer.next,
            };
            buffer.events.push_back(event.id(id).into());
            buffer.next = buffer.next.saturating_add(1);
            if buffer.events.len() > self.0.kept {
                buffer.events.pop_front();
            }
            std::mem::take(&mut buffer.waiting)
        };
        waiting.into_values().for_each(Waker::wake);
    }

    /// The events after the last one that a client had; for one that had none, those that come, and as many
    /// before them as [`BroadcastSettings::replay`] says.
    pub fn subscribe(&self, last: &LastEventId) -> Subscription {
        let mut buffer = self.0.buffer();
        buffer.subscriptions = buffer.subscriptions.saturating_add(1);
        let fresh = buffer
            .next
            .saturating_sub(self.0.replay)
            .max(buffer.first());
        let (next, has_missed) = match last
            .get()
            .map(|id| BroadcastEventId::parse(id, self.0.name))
        {
            None => (fresh, false),
            Some(Some(had)) if had < buffer.next => {
                let next = had.saturating_add(1);
                (next.max(buffer.first()), next < buffer.first())
            }
            // Of another process: what came between cannot be known.
            Some(_) => (fresh, true),
        };
        Subscription {
            id: buffer.subscriptions,
            next,
            has_missed,
            broadcast: Arc::clone(&self.0),
        }
    }

    /// How many clients wait for the next event. Those that read slowly have not come so far.
    pub fn waiting(&self) -> usize {
        self.0.buffer().waiting.len()
    }
}

impl BroadcastState {
    fn buffer(&self) -> MutexGuard<'_, EventBuffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventBuffer {
    /// The number of the first event that is kept.
    fn first(&self) -> u64 {
        self.next.saturating_sub(self.events.len() as u64)
    }

    fn get(&self, number: u64) -> Option<&EncodedEvent> {
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
    broadcast: Arc<BroadcastState>,
}

impl Stream for Subscription {
    type Item = EncodedEvent;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<EncodedEvent>> {
        let broadcast = Arc::clone(&self.broadcast);
        let mut buffer = broadcast.buffer();
        if self.next < buffer.first() {
            if broadcast.slow == SlowReceivers::Close {
                return Poll::Ready(None);
            }
            self.next = buffer.first();
            self.has_missed = true;
        }
        if std::mem::take(&mut self.has_missed)
            && let Some(missed) = &broadcast.missed
        {
            return Poll::Ready(Some(missed.clone()));
        }
        if let Some(event) = buffer.get(self.next) {
            self.next = self.next.saturating_add(1);
            return Poll::Ready(Some(event.clone()));
        }
        buffer.waiting.insert(self.id, cx.waker().clone());
        Poll::Pending
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.broadcast.buffer().waiting.remove(&self.id);
    }
}

/// What names an event among all.
struct BroadcastEventId {
    broadcast: u64,
    number: u64,
}

impl BroadcastEventId {
    /// The number of an event of this broadcast.
    fn parse(id: &str, broadcast: u64) -> Option<u64> {
        let (name, number) = id.split_once('-')?;
        let is_known = u64::from_str_radix(name, 16) == Ok(broadcast);
        is_known.then(|| number.parse().ok()).flatten()
    }
}

impl fmt::Display for BroadcastEventId {
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
