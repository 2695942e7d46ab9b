//! `Broadcast`: the same events for many clients on all workers.
//!
//! The last events are kept once, and each client reads them from there: a client that reconnects gets
//! the events that it missed, and a slow client needs no memory of its own.
//!
//! It has no table of topics as rooms of WebSocket have: a broadcast is one list of events, from which its clients read. A table with a
//! queue for each client would lose what a client missed, or keep it once for each of them.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use apus_net::SlowReceivers;
use futures_core::Stream;

use super::{EncodedEvent, Event, LastEventId};

/// Sends events to all subscribers. Clones are the same broadcast and can be used on any thread.
#[derive(Clone)]
pub struct Broadcast(Arc<BroadcastState>);

/// The settings of a [`Broadcast`].
#[derive(Clone, Debug)]
pub struct BroadcastSettings {
    /// The number of events that are kept for clients that reconnect or read slowly.
    pub kept: usize,
    /// The number of kept events that a new client gets.
    pub replay: usize,
    /// What happens to a client that is more events behind than are kept: it misses events, or its stream
    /// ends and it can reconnect.
    pub slow: SlowReceivers,
    /// The event that a client gets if it missed events that are no longer kept, for example to make the page
    /// reload its data.
    pub missed: Option<Event>,
}

impl Default for BroadcastSettings {
    /// 256 events, none for new clients; slow clients miss events without notice.
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
    /// A random part of its event ids, which identifies the ids of other processes.
    name: u64,
    kept: usize,
    replay: u64,
    slow: SlowReceivers,
    missed: Option<EncodedEvent>,
    buffer: Mutex<EventBuffer>,
}

/// The events that are kept, and the wakers of the subscriptions that wait for the next one.
#[derive(Default)]
struct EventBuffer {
    events: VecDeque<EncodedEvent>,
    /// The number of the next event.
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

    /// Sends an event to all subscribers, with a new id.
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

    /// Subscribes to the events after the last one of a client. A new client gets the next events, and the
    /// number of kept ones in [`BroadcastSettings::replay`].
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
            // An id of another process: the missed events are unknown.
            Some(_) => (fresh, true),
        };
        Subscription {
            id: buffer.subscriptions,
            next,
            has_missed,
            broadcast: Arc::clone(&self.0),
        }
    }

    /// The number of clients that wait for the next event, without those that are behind.
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
    /// Whether the client missed events and did not get [`BroadcastSettings::missed`] yet.
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

/// The id of an event.
struct BroadcastEventId {
    broadcast: u64,
    number: u64,
}

impl BroadcastEventId {
    /// The number of an event of this broadcast; `None` for other ids.
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
