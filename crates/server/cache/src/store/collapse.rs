//! Request collapsing: one of many requests for a response is forwarded to the origin.

use std::collections::btree_map::Entry;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::fill::ObjectFiller;
use super::key::StoreKey;
use super::object::{NewObject, Object, ObjectMetadata};
use super::{Store, locked};

/// A forwarded request without a response yet.
#[derive(Debug, Default)]
pub(crate) struct PendingRequest {
    /// The secondary key that the waiting requests have in common, as far as it is known.
    pub(crate) secondary: Box<[u8]>,
    state: AtomicU8,
    notify: Notify,
}

const OPEN: u8 = 0;
const AGAIN: u8 = 1;
const PASS: u8 = 2;

impl PendingRequest {
    pub(crate) fn new(secondary: &[u8]) -> Self {
        Self {
            secondary: secondary.into(),
            ..Self::default()
        }
    }

    /// Lets the waiting requests look up the store again.
    pub(crate) fn look_again(&self) {
        self.close(AGAIN);
    }

    fn close(&self, state: u8) {
        self.state.store(state, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// The result of waiting for another request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The request has ended or begun to fill an object: look up the store again.
    Again,
    /// The response cannot be shared: every request has to be forwarded separately.
    Pass,
}

/// Waits for the request that fetches.
#[derive(Debug)]
pub struct FillWait(pub(crate) Arc<PendingRequest>);

impl FillWait {
    /// The result. The caller limits the time of the wait: the future may be dropped at any time.
    pub async fn outcome(&self) -> WaitOutcome {
        let mut notified = std::pin::pin!(self.0.notify.notified());
        loop {
            // Registered before the state is read, so that no notification is missed between the
            // two.
            notified.as_mut().enable();
            match self.0.state.load(Ordering::Acquire) {
                OPEN => {}
                PASS => return WaitOutcome::Pass,
                _ => return WaitOutcome::Again,
            }
            notified.as_mut().await;
            notified.set(self.0.notify.notified());
        }
    }
}

/// Keeps the purges since a request was forwarded, as they apply to its response.
#[derive(Debug)]
pub(crate) struct PurgeGuard {
    store: Store,
    /// The number of the last purge when the request was forwarded: later ones apply to the
    /// response.
    number: u64,
}

impl PurgeGuard {
    fn new(store: &Store) -> Self {
        let mut guarded = locked(&store.shared().guarded_purges);
        let number = store.shared().purges.current();
        *guarded.entry(number).or_default() += 1;
        drop(guarded);
        Self {
            store: store.clone(),
            number,
        }
    }
}

impl Clone for PurgeGuard {
    fn clone(&self) -> Self {
        *locked(&self.store.shared().guarded_purges)
            .entry(self.number)
            .or_default() += 1;
        Self {
            store: self.store.clone(),
            number: self.number,
        }
    }
}

impl Drop for PurgeGuard {
    fn drop(&mut self) {
        let mut guarded = locked(&self.store.shared().guarded_purges);
        if let Entry::Occupied(mut count) = guarded.entry(self.number) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// The permit of one request to fetch for all that wait.
///
/// If it is dropped, the next one may fetch.
#[derive(Debug)]
pub struct FillTicket {
    store: Store,
    key: StoreKey,
    pending: Arc<PendingRequest>,
    purge_guard: PurgeGuard,
    outcome: u8,
}

impl FillTicket {
    pub(crate) fn new(store: Store, key: StoreKey, pending: Arc<PendingRequest>) -> Self {
        Self {
            purge_guard: PurgeGuard::new(&store),
            store,
            key,
            pending,
            outcome: AGAIN,
        }
    }

    /// The key to fetch.
    pub fn key(&self) -> &StoreKey {
        &self.key
    }

    /// Starts to fill an object with a response that may be stored. The waiting requests read it
    /// meanwhile. Lookups find an older response until the fill has ended.
    pub fn start(self, new: NewObject) -> ObjectFiller {
        let object = self.object(new);
        let filler =
            ObjectFiller::of_all(self.store.clone(), object.clone(), self.purge_guard.clone());
        self.store.shared().publish_filling(object);
        filler
    }

    /// As [`FillTicket::start`], for a partial response with `range` of the body. The complete
    /// length has to be known.
    pub fn start_part(self, new: NewObject, range: Range<u64>) -> ObjectFiller {
        let object = self.object(new);
        let (store, purge_guard) = (self.store.clone(), self.purge_guard.clone());
        let filler = ObjectFiller::of_part(store, object.clone(), purge_guard, range);
        self.store.shared().publish_filling(object);
        filler
    }

    fn object(&self, new: NewObject) -> Arc<Object> {
        let shared = self.store.shared();
        Arc::new(shared.object(self.key.clone(), new, self.purge_guard.number))
    }

    /// Replaces the metadata of `object`, which the origin has confirmed as current (304, RFC 9111
    /// section 4.3.4).
    pub fn freshen(self, object: &Arc<Object>, metadata: ObjectMetadata) {
        self.store
            .freshen(object, metadata, self.purge_guard.number);
    }

    /// Reports that the response cannot be shared. The waiting requests are forwarded separately,
    /// and so are those that arrive within `memory`, without waiting (hit-for-pass in Varnish).
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
