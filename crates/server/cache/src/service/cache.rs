//! The cache of all sites.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use crate::store::{
    CacheStatistics, DiskSettings, PurgeCount, PurgeReceipt, Store, StoreListing, StoreSettings,
};
use tokio::sync::Semaphore;

use super::purge::PurgeRequest;
use super::use_counter::UseCounter;

/// The number of long bodies that are compressed at the same time.
const MAX_COMPRESSIONS: usize = 2;

/// The stored responses of all sites and workers. It outlives configurations.
#[derive(Clone, Debug)]
pub struct Cache(pub(super) Arc<CacheInner>);

#[derive(Debug)]
pub(super) struct CacheInner {
    pub(super) store: Store,
    pub(super) use_counter: UseCounter,
    /// A permit for each long body that may be compressed at the same time.
    pub(super) compression_permits: Arc<Semaphore>,
}

impl Cache {
    /// An empty cache in memory.
    pub fn new(settings: StoreSettings) -> Self {
        Self::of(Store::new(settings))
    }

    /// A cache in memory and on disk, which finds the responses on disk again. Blocks for a few
    /// reads.
    ///
    /// # Errors
    /// The directory cannot be made, read or written, or another process uses it
    /// ([`io::ErrorKind::WouldBlock`]).
    pub fn open(settings: StoreSettings, disk: DiskSettings) -> io::Result<Self> {
        Store::open(settings, disk).map(Self::of)
    }

    fn of(store: Store) -> Self {
        Self(Arc::new(CacheInner {
            store,
            use_counter: UseCounter::default(),
            compression_permits: Arc::new(Semaphore::new(MAX_COMPRESSIONS)),
        }))
    }

    /// Counts the stored responses that the purges will apply to. Reads the disk to find URLs with a prefix,
    /// until `deadline`. Blocks.
    pub fn count(&self, purges: &[PurgeRequest], deadline: Instant) -> PurgeCount {
        self.0.store.count(purges, deadline)
    }

    /// The largest stored responses that one of the purges would apply to, at most this many. Reads the disk, until `deadline`. Blocks.
    pub fn list(&self, purges: &[PurgeRequest], most: usize, deadline: Instant) -> StoreListing {
        self.0.store.list(purges, most, deadline)
    }

    /// Removes stored responses, or makes them stale. It takes effect immediately; the receipt
    /// confirms when it would survive a crash.
    pub fn purge(&self, purge: &PurgeRequest) -> PurgeReceipt {
        self.0.store.purge(purge)
    }

    /// Writes everything to the disk and stops using it. Blocks.
    ///
    /// # Errors
    /// Not everything could be written, so that more has to be fetched after a restart.
    pub fn close(&self) -> io::Result<()> {
        self.0.store.close()
    }

    /// Counts of what the cache has done and contains.
    pub fn statistics(&self) -> CacheStatistics {
        self.0.store.statistics()
    }
}
