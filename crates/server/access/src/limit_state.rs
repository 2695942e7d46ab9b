//! What a limit has counted, which outlives the configuration that it was made for.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::concurrency::ConcurrencyTable;
use crate::key_table::KeyTable;
use crate::quota::QuotaTable;

/// What a limit has counted, for all workers.
#[derive(Debug)]
pub struct LimitState {
    /// The times of rates.
    pub times: KeyTable,
    /// What runs at once.
    pub running: Arc<ConcurrencyTable>,
    /// What was used of quotas, if it is a quota.
    pub quotas: Option<Arc<QuotaTable>>,
    /// The decisions.
    pub counters: Arc<LimitCounters>,
    size: LimitSize,
    partitions: RandomState,
}

/// About how many keys a state remembers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSize {
    /// Keys of rates; 0 for a limit that remembers no more than what runs.
    pub rates: usize,
    /// Keys of quotas; `None` if it is no quota.
    pub quotas: Option<usize>,
}

/// The decisions of a limit.
#[derive(Debug, Default)]
pub struct LimitCounters {
    allowed: AtomicU64,
    delayed: AtomicU64,
    refused: AtomicU64,
    would_refuse: AtomicU64,
    would_delay: AtomicU64,
    /// When a refusal was logged last, in milliseconds; 0 if none was.
    logged: AtomicU64,
    /// The refusals that were logged, by a line that said how many there were.
    told: AtomicU64,
}

/// A decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It went on at once.
    Allowed,
    /// It waited, and went on.
    Delayed,
    /// It was refused.
    Refused,
    /// It would have waited, if this were no dry run.
    WouldDelay,
    /// It would have been refused, if this were no dry run.
    WouldRefuse,
}

/// What a limit has decided so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCounts {
    /// Requests that went on, at once or later.
    pub allowed: u64,
    /// Requests of these that waited.
    pub delayed: u64,
    /// Requests that were refused.
    pub refused: u64,
    /// Requests that would have waited, in a dry run.
    pub would_delay: u64,
    /// Requests that would have been refused, in a dry run.
    pub would_refuse: u64,
}

/// The time between two lines of the log about the refusals of a limit.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

impl LimitState {
    /// A state that remembers about this many keys.
    pub fn new(size: LimitSize) -> Self {
        Self {
            times: KeyTable::new(size.rates),
            running: Arc::default(),
            quotas: size.quotas.map(|keys| Arc::new(QuotaTable::new(keys))),
            counters: Arc::default(),
            size,
            partitions: RandomState::new(),
        }
    }

    /// A number for a key that says nothing about where it is in the table, and so can be told to clients.
    pub fn partition(&self, key: impl Hash) -> u64 {
        self.partitions.hash_one(key)
    }

    /// As this one, with room for another number of keys.
    fn resized(&self, size: LimitSize) -> Self {
        let quotas = size.quotas.map(|keys| match &self.quotas {
            Some(table) if self.size.quotas == Some(keys) => Arc::clone(table),
            Some(table) => Arc::new(table.resized(keys)),
            None => Arc::new(QuotaTable::new(keys)),
        });
        Self {
            times: self.times.resized(size.rates),
            running: Arc::clone(&self.running),
            quotas,
            counters: Arc::clone(&self.counters),
            size,
            partitions: self.partitions.clone(),
        }
    }
}

impl LimitCounters {
    /// Counts a decision.
    pub fn count(&self, outcome: LimitOutcome) {
        let add = |counter: &AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        match outcome {
            LimitOutcome::Allowed => add(&self.allowed),
            LimitOutcome::Delayed => {
                add(&self.allowed);
                add(&self.delayed);
            }
            LimitOutcome::Refused => add(&self.refused),
            LimitOutcome::WouldDelay => {
                add(&self.allowed);
                add(&self.would_delay);
            }
            LimitOutcome::WouldRefuse => add(&self.would_refuse),
        }
    }

    /// Everything so far.
    pub fn counts(&self) -> LimitCounts {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LimitCounts {
            allowed: read(&self.allowed),
            delayed: read(&self.delayed),
            refused: read(&self.refused),
            would_delay: read(&self.would_delay),
            would_refuse: read(&self.would_refuse),
        }
    }

    /// How many refusals a line of the log is to tell of now, those of dry runs included; `None` if there was a line a moment ago.
    pub fn refusals_to_log(&self, now: Duration) -> Option<u64> {
        let now = u64::try_from(now.as_millis()).unwrap_or(u64::MAX).max(1);
        let interval = u64::try_from(LOG_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let logged = self.logged.load(Ordering::Relaxed);
        if logged != 0 && now.saturating_sub(logged) < interval {
            return None;
        }
        let order = Ordering::Relaxed;
        (self.logged.compare_exchange(logged, now, order, order)).ok()?;
        let counts = self.counts();
        let refused = counts.refused.saturating_add(counts.would_refuse);
        Some(refused.saturating_sub(self.told.swap(refused, order)))
    }
}

/// Which limit of a configuration a state belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LimitId {
    /// The site; `None` for a limit of all sites together.
    pub site: Option<String>,
    /// The location, if the limit is one of a location.
    pub location: Option<String>,
    /// The name of the limit.
    pub name: String,
    /// What its keys are: a limit that counts by something else begins anew.
    pub key: String,
}

/// The states of the limits of all configurations that are in use. A limit of a new configuration continues with the state that a limit
/// of this id has in another one.
#[derive(Debug, Default)]
pub struct LimitStates(Mutex<Vec<(LimitId, Weak<LimitState>)>>);

impl LimitStates {
    /// The state of a limit that is to remember about this many keys.
    pub fn state(&self, id: &LimitId, size: LimitSize) -> Arc<LimitState> {
        let mut states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        states.retain(|(_, state)| state.strong_count() > 0);
        // The latest is the one in use.
        let mut known = states.iter().rev().filter(|(known, _)| known == id);
        let known = known.find_map(|(_, state)| state.upgrade());
        let state = match known {
            Some(known) if known.size == size => return known,
            Some(other) => Arc::new(other.resized(size)),
            None => Arc::new(LimitState::new(size)),
        };
        states.push((id.clone(), Arc::downgrade(&state)));
        state
    }

    /// The quotas of the configuration in use.
    pub fn quotas(&self) -> Vec<(LimitId, Arc<QuotaTable>)> {
        let states = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut quotas: Vec<(LimitId, Arc<QuotaTable>)> = Vec::new();
        for (id, state) in states.iter().rev() {
            let Some(state) = state.upgrade() else {
                continue;
            };
            // The latest is the one in use.
            if let Some(table) = &state.quotas
                && !quotas.iter().any(|(known, _)| known == id)
            {
                quotas.push((id.clone(), Arc::clone(table)));
            }
        }
        quotas
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn size(rates: usize) -> LimitSize {
        LimitSize {
            rates,
            quotas: None,
        }
    }

    fn id(name: &str, key: &str) -> LimitId {
        LimitId {
            site: Some("site".to_owned()),
            location: None,
            name: name.to_owned(),
            key: key.to_owned(),
        }
    }

    #[test]
    fn a_limit_of_the_same_id_continues_as_long_as_a_configuration_has_it() {
        let states = LimitStates::default();
        let first = states.state(&id("a", "client"), size(100));
        let key = first.times.key("k");
        let _ = first.times.update(key, |_| Ok::<_, Infallible>(7));
        first.counters.count(LimitOutcome::Refused);
        assert!(Arc::ptr_eq(
            &first,
            &states.state(&id("a", "client"), size(100))
        ));
        for (name, key) in [("b", "client"), ("a", "host")] {
            assert!(!Arc::ptr_eq(
                &first,
                &states.state(&id(name, key), size(100))
            ));
        }
        let larger = states.state(&id("a", "client"), size(1000));
        assert_eq!(larger.times.value(key), Some(7));
        assert_eq!(larger.counters.counts().refused, 1);
        assert!(Arc::ptr_eq(
            &larger,
            &states.state(&id("a", "client"), size(1000))
        ));
        drop((first, larger));
        let anew = states.state(&id("a", "client"), size(100));
        assert_eq!(anew.times.value(anew.times.key("k")), None);
    }

    #[test]
    fn a_line_of_the_log_tells_of_all_refusals_since_the_last_one() {
        let counters = LimitCounters::default();
        let second = Duration::from_secs(1);
        counters.count(LimitOutcome::Refused);
        assert_eq!(counters.refusals_to_log(second), Some(1));
        for _ in 0..5 {
            counters.count(LimitOutcome::WouldRefuse);
            assert_eq!(counters.refusals_to_log(5 * second), None);
        }
        assert_eq!(counters.refusals_to_log(11 * second), Some(5));
    }
}
