//! What is cached, and where it is kept.

use std::sync::Arc;
use std::time::Duration;

use apus_cache::policy::{NamePattern, Rules};
use apus_cache::store::{Figures, Settings, Store};

use super::purge::{PurgeAccess, PurgeRequest};
use super::uses::Uses;

/// What is stored, for all sites and workers. It outlives configurations.
#[derive(Clone, Debug)]
pub struct Cache(pub(super) Arc<Kept>);

#[derive(Debug)]
pub(super) struct Kept {
    pub(super) store: Store,
    pub(super) uses: Uses,
}

impl Cache {
    /// An empty cache.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Kept {
            store: Store::new(settings),
            uses: Uses::default(),
        }))
    }

    /// Takes stored responses out, or makes them stale.
    pub fn purge(&self, purge: &PurgeRequest) {
        self.0.store.purge(&purge.to_purge());
    }

    /// What it has done and holds.
    pub fn figures(&self) -> Figures {
        self.0.store.figures()
    }
}

/// How a location caches.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// What may be stored and sent.
    pub rules: Rules,
    /// Requests with one of these cookies are not answered from the cache, nor are their answers
    /// stored.
    pub bypass_cookies: Vec<NamePattern>,
    /// Nor those with one of these fields, in lower case.
    pub bypass_headers: Vec<Box<str>>,
    /// How long a request waits for the answer to another one, before it goes to the origin itself.
    pub lock_timeout: Duration,
    /// Whether answers say in `Cache-Status` what the cache did (RFC 9211).
    pub status_field: bool,
    /// Who may purge by requests; `None`: nobody.
    pub purge: Option<PurgeAccess>,
}

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            rules: Rules::default(),
            bypass_cookies: Vec::new(),
            bypass_headers: Vec::new(),
            lock_timeout: Duration::from_secs(5),
            status_field: true,
            purge: None,
        }
    }
}
