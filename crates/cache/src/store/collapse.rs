//! Request collapsing: of many requests for the same, one goes to the origin.

use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::fill::Filler;
use super::key::Key;
use super::object::{Head, NewObject, Object};
use super::{Store, locked};

/// A request on its way to the origin, of which nothing is known yet.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// What the requests that wait for it have in the fields known to select a variant.
    pub(crate) secondary: Box<[u8]>,
    state: AtomicU8,
    notify: Notify,
}

const OPEN: u8 = 0;
const AGAIN: u8 = 1;
const PASS: u8 = 2;

impl Pending {
    pub(crate) fn new(secondary: &[u8]) -> Self {
        Self {
            secondary: secondary.into(),
            ..Self::default()
        }
    }

    /// Has those who wait look again.
    pub(crate) fn look_again(&self) {
        self.close(AGAIN);
    }

    fn close(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// What became of the request that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// It has ended or begun to fill an object: look again.
    Again,
    /// The response cannot be shared: every request has to go to the origin by itself.
    Pass,
}

/// Waits for the request that leads.
#[derive(Debug)]
pub struct Wait(pub(crate) Arc<Pending>);

impl Wait {
    /// What became of it. How long to wait at most is the caller's to say: the future may be
    /// dropped at any time.
    pub async fn outcome(&self) -> Awaited {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        loop {
            // Registered before the look, so that nothing is missed between the two.
            notified.as_mut().enable();
            match self.0.state.load(Ordering::Acquire) {
                OPEN => {}
                PASS => return Awaited::Pass,
                _ => return Awaited::Again,
            }
            notified.as_mut().await;
            notified.set(self.0.notify.notified());
        }
    }
}

/// A request to the origin, or what came of it, that purges since it was made have to meet.
#[derive(Debug)]
pub(crate) struct Asked {
    store: Store,
    /// The number of the last purge when the origin was asked: later ones meet what it answers.
    number: u64,
}

impl Asked {
    fn now(store: &Store) -> Self {
        let mut asked = locked(&store.shared().asked);
        let number = store.shared().purges.current();
        *asked.entry(number).or_default() += 1;
        drop(asked);
        Self {
            store: store.clone(),
            number,
        }
    }
}

impl Clone for Asked {
    fn clone(&self) -> Self {
        *locked(&self.store.shared().asked)
            .entry(self.number)
            .or_default() += 1;
        Self {
            store: self.store.clone(),
            number: self.number,
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let mut asked = locked(&self.store.shared().asked);
        if let Entry::Occupied(mut held) = asked.entry(self.number) {
            *held.get_mut() = held.get().saturating_sub(1);
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

/// The duty of one request to ask the origin for all that wait.
///
/// One that is dropped lets the next of them lead.
#[derive(Debug)]
pub struct FillTicket {
    store: Store,
    key: Key,
    pending: Arc<Pending>,
    asked: Asked,
    outcome: u8,
}

impl FillTicket {
    pub(crate) fn new(store: Store, key: Key, pending: Arc<Pending>) -> Self {
        Self {
            asked: Asked::now(&store),
            store,
            key,
            pending,
            outcome: AGAIN,
        }
    }

    /// The key that it leads for.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The origin has answered, and the response may be stored: those who wait read it along. An
    /// older response stays what others find until this one is filled.
    pub fn start(self, new: NewObject) -> Filler {
        let object = self.object(new);
        let filler = Filler::of_all(self.store.clone(), object.clone(), self.asked.clone());
        self.store.shared().list(object);
        filler
    }

    /// As [`FillTicket::start`], when the origin has answered with the part `range` of the content
    /// only. The length of the whole has to be known.
    pub fn start_part(self, new: NewObject, range: Range<u64>) -> Filler {
        let object = self.object(new);
        let (store, asked) = (self.store.clone(), self.asked.clone());
        let filler = Filler::of_part(store, object.clone(), asked, range);
        self.store.shared().list(object);
        filler
    }

    fn object(&self, new: NewObject) -> Arc<Object> {
        let shared = self.store.shared();
        Arc::new(shared.object(self.key.clone(), new, self.asked.number))
    }

    /// The origin has said that `object` is still right (304): `head` is its metadata from now on
    /// (RFC 9111 section 4.3.4).
    pub fn freshen(self, object: &Arc<Object>, head: Head) {
        self.store.freshen(object, head, self.asked.number);
    }

    /// The response cannot be shared. Those who wait go to the origin by themselves, and for the
    /// time of `memory` so do those who come, without waiting.
    pub fn pass(mut self, memory: Duration) {
        self.outcome = PASS;
        self.store.shared().remember_pass(&self.key, memory);
    }
}

impl Drop for FillTicket {
    fn drop(&mut self) {
        self.store.shared().end_pending(&self.key, &self.pending);
        self.pending.close(self.outcome);
    }
}
