//! What challenges remember over configurations: counters, used tickets, and the random key.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use apus_tokens::NoRandomness;

use super::pressure::SitePressure;
use super::spent::SpentTickets;
use super::token::{ChallengeKey, ChallengeLevel};

/// What the challenge of one site remembers.
#[derive(Debug, Default)]
pub struct ChallengeState {
    random_key: OnceLock<ChallengeKey>,
    pub(super) spent: SpentTickets,
    pub(super) pressure: SitePressure,
    pub(super) counts: ChallengeCounters,
}

impl ChallengeState {
    pub(super) fn random_key(&self) -> Result<&ChallengeKey, NoRandomness> {
        if let Some(key) = self.random_key.get() {
            return Ok(key);
        }
        let key = ChallengeKey::random()?;
        Ok(self.random_key.get_or_init(|| key))
    }

    /// What happened so far.
    pub fn counts(&self) -> ChallengeCounts {
        self.counts.counts()
    }
}

/// The states of the challenges of all sites, by their names.
#[derive(Debug, Default)]
pub struct ChallengeStates(Mutex<BTreeMap<String, Arc<ChallengeState>>>);

impl ChallengeStates {
    /// The state of a site.
    pub fn of(&self, site: &str) -> Arc<ChallengeState> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(states.entry(site.to_owned()).or_default())
    }
}

/// Counters that workers share. Only requests that are challenged, and those that pass, write to them.
#[derive(Debug, Default)]
pub(super) struct ChallengeCounters {
    sent: [AtomicU64; 3],
    passed: [AtomicU64; 3],
    failed: AtomicU64,
    refused: AtomicU64,
}

impl ChallengeCounters {
    pub(super) fn sent(&self, level: ChallengeLevel) {
        add_one(&self.sent, level);
    }

    pub(super) fn passed(&self, level: ChallengeLevel) {
        add_one(&self.passed, level);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    fn counts(&self) -> ChallengeCounts {
        let all = |counters: &[AtomicU64; 3]| {
            let [one, two, three] = counters;
            [one, two, three].map(|counter| counter.load(Ordering::Relaxed))
        };
        ChallengeCounts {
            sent: all(&self.sent),
            passed: all(&self.passed),
            failed: self.failed.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }
}

fn add_one(counters: &[AtomicU64; 3], level: ChallengeLevel) {
    let mut levels = ChallengeLevel::ALL.into_iter().zip(counters);
    if let Some((_, counter)) = levels.find(|(known, _)| *known == level) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChallengeCounts {
    /// The pages that were sent, by level.
    pub sent: [u64; 3],
    /// The clients that have passed, by level.
    pub passed: [u64; 3],
    /// Wrong, late and repeated answers.
    pub failed: u64,
    /// Requests of programs that were refused.
    pub refused: u64,
}
