//! How often requests were from a bot, and how often they only said so.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus_conditions::BotProof;

use crate::auth::FetchCounts;

/// The counters of a bot, which all workers share.
// Only requests that name a bot count, each of which has had a signature or an address checked.
#[derive(Debug, Default)]
pub(super) struct BotCounters {
    verified: AtomicU64,
    refuted: AtomicU64,
    unproven: AtomicU64,
}

/// What was found out about requests that say they are from a bot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BotCounts {
    /// The name of the bot.
    pub name: Arc<str>,
    /// Requests from the bot.
    pub verified: u64,
    /// Requests that were not from it.
    pub refuted: u64,
    /// Requests about which that could not be found out, as its keys or the name of the address were not there in time.
    pub unproven: u64,
    /// How often its keys were fetched, if they are.
    pub fetched: Option<FetchCounts>,
}

impl BotCounters {
    pub(super) fn count(&self, proof: BotProof) {
        let counter = match proof {
            BotProof::Verified => &self.verified,
            BotProof::Refuted => &self.refuted,
            BotProof::Unknown => &self.unproven,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn counts(&self, name: &Arc<str>, fetched: Option<FetchCounts>) -> BotCounts {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        BotCounts {
            name: Arc::clone(name),
            verified: count(&self.verified),
            refuted: count(&self.refuted),
            unproven: count(&self.unproven),
            fetched,
        }
    }
}
