//! The keys and caches for session resumption, separate for each site and kept across reloads.
//!
//! Sites share none of them, so a session made without a client certificate on one site cannot be resumed on
//! another that requires one (the class of CVE-2025-23419).

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{ProducesTickets, ServerSessionMemoryCache, StoresServerSessions};

use super::tickets::{SiteTickets, TicketSecrets};

/// The most sessions in the cache of a site, whose memory is taken at once.
pub(super) const SITE_SESSIONS: usize = 4096;
/// The same of a site for one name on demand, of which there may be many thousands. Over TCP, tickets need no cache.
pub(super) const ON_DEMAND_SESSIONS: usize = 16;

/// Tickets, whose keys rotate, and the session cache of one site.
pub(super) struct TlsSessions {
    pub(super) ticketer: Arc<dyn ProducesTickets>,
    pub(super) storage: Arc<dyn StoresServerSessions>,
    /// The sessions of QUIC, each of which can be resumed once: their early data is not accepted again.
    #[cfg(feature = "http3")]
    pub(super) quic_storage: Arc<dyn StoresServerSessions>,
}

/// By the identity of a site. A new plan finds the sessions of the last plan here.
// A reload must not make all clients do full handshakes at once, so sessions are found again by what the site is, and
// not by its place in the plan. Weak: sites that are gone leave nothing.
static LIVE: LazyLock<Mutex<HashMap<[u8; 32], Weak<TlsSessions>>>> = LazyLock::new(Mutex::default);

impl TlsSessions {
    /// The sessions of the site with this identity, taken from the running plan if it has the same site. `capacity` is
    /// the most sessions of a new cache. Without `secrets`, this process makes the keys of tickets itself.
    pub(super) fn of(
        identity: [u8; 32],
        capacity: usize,
        secrets: Option<&Arc<TicketSecrets>>,
    ) -> Result<Arc<Self>, rustls::Error> {
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        live.retain(|_, sessions| sessions.strong_count() > 0);
        if let Some(sessions) = live.get(&identity).and_then(Weak::upgrade) {
            return Ok(sessions);
        }
        let sessions = Arc::new(Self {
            ticketer: match secrets {
                None => Ticketer::new()?,
                Some(secrets) => Arc::new(SiteTickets::new(Arc::clone(secrets), identity)),
            },
            storage: ServerSessionMemoryCache::new(capacity),
            #[cfg(feature = "http3")]
            quic_storage: ServerSessionMemoryCache::new(capacity),
        });
        live.insert(identity, Arc::downgrade(&sessions));
        Ok(sessions)
    }
}
