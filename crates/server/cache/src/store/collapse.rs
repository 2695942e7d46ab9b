//! Request collapsing: one of many requests for a response is forwarded to the origin.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use super::fill::ObjectFiller;
use super::key::StoreKey;
use super::metadata::{NewObject, ObjectMetadata};
use super::object::Object;
use super::pending::{PendingRequest, WaitOutcome};
use super::purge_guard::PurgeGuard;

/// The permit of one request to fetch for all that wait.
///
/// If it is dropped, the next one may fetch.
#[derive(Debug)]
pub struct FillTicket {
    store: Store,
    key: StoreKey,
    pending: Arc<PendingRequest>,
    purge_guard: PurgeGuard,
    outcome: WaitOutcome,
}

impl FillTicket {
    pub(crate) fn new(store: Store, key: StoreKey, pending: Arc<PendingRequest>) -> Self {
        Self {
            purge_guard: PurgeGuard::new(&store),
            store,
            key,
            pending,
            outcome: WaitOutcome::Again,
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
        Arc::new(shared.object(self.key.clone(), new, self.purge_guard.number()))
    }

    /// Replaces the metadata of `object`, which the origin has confirmed as current (304, RFC 9111
    /// section 4.3.4).
    pub fn freshen(self, object: &Arc<Object>, metadata: ObjectMetadata) {
        self.store
            .freshen(object, metadata, self.purge_guard.number());
    }

    /// Reports that the response cannot be shared. The waiting requests are forwarded separately,
    /// and so are those that arrive within `memory`, without waiting (hit-for-pass in Varnish).
    pub fn pass(mut self, memory: Duration) {
        self.outcome = WaitOutcome::Pass;
        self.store.shared().remember_pass(&self.key, memory);
    }
}

impl Drop for FillTicket {
    fn drop(&mut self) {
        self.store.shared().end_pending(&self.key, &self.pending);
        self.pending.close(self.outcome);
    }
}
