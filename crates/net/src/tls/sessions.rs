//! What lets a client resume its session, kept apart for each site and across reloads.
//!
//! Sites share nothing here, so a session made without a client certificate on one cannot be
//! resumed on another that wants one (the class of CVE-2025-23419).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

/// TlsSessions that the cache of one site holds.
const SESSIONS: usize = 4096;

/// Ticket keys, which rotate by themselves, and the session cache of one site.
pub(super) struct TlsSessions {
    pub(super) ticketer: Arc<dyn ProducesTickets>,
    pub(super) storage: Arc<dyn StoresServerSessions>,
}

/// By what a site proves and asks. A plan that takes over finds here what the last one used.
static LIVE: LazyLock<Mutex<HashMap<[u8; 32], Weak<TlsSessions>>>> = LazyLock::new(Mutex::default);

impl TlsSessions {
    /// The sessions of the site that is identified so: those of the running plan where it has the
    /// same site.
    pub(super) fn of(identity: [u8; 32]) -> Result<Arc<Self>, rustls::Error> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, sessions| sessions.strong_count() > 0);
        if let Some(sessions) = live.get(&identity).and_then(Weak::upgrade) {
            return Ok(sessions);
        }
        let sessions = Arc::new(Self {
            ticketer: Ticketer::new()?,
            storage: ServerSessionMemoryCache::new(SESSIONS),
        });
        live.insert(identity, Arc::downgrade(&sessions));
        Ok(sessions)
    }
}
