//! How often rules applied.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Rule;

/// The counters of rules by place and name. They outlive a configuration: a rule that the next one has, too, goes on counting.
#[derive(Clone, Default)]
pub struct RuleCounters(Arc<Mutex<BTreeMap<RuleKey, RuleCounter>>>);

/// One counter for each worker that has the rule, so that workers share no memory that they write to.
#[derive(Default)]
struct RuleCounter {
    workers: Vec<Arc<AtomicU64>>,
    /// What workers that ended have counted.
    ended: u64,
}

/// The place and the name of a rule.
type RuleKey = (Arc<str>, Arc<str>);

/// How often a rule applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleCount {
    /// Where it stands.
    pub place: Arc<str>,
    /// Its name.
    pub rule: Arc<str>,
    /// How often its condition held.
    pub applied: u64,
    /// Whether it only counts.
    pub is_dry_run: bool,
}

impl RuleCounters {
    /// A counter of a rule for one worker.
    pub(super) fn counter(&self, place: &Arc<str>, rule: &Arc<str>) -> Arc<AtomicU64> {
        let key = (Arc::clone(place), Arc::clone(rule));
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let counter = known.entry(key).or_default();
        counter.forget_ended();
        let own = Arc::new(AtomicU64::new(0));
        counter.workers.push(Arc::clone(&own));
        own
    }

    pub(super) fn count(&self, place: &Arc<str>, rule: &Rule) -> RuleCount {
        RuleCount {
            place: Arc::clone(place),
            rule: Arc::clone(&rule.name),
            applied: self.total(place, &rule.name),
            is_dry_run: rule.is_dry_run,
        }
    }

    /// How often the conditions of all rules held, also in dry runs and of rules that are gone.
    pub fn matches(&self) -> u64 {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(RuleCounter::total).sum()
    }

    fn total(&self, place: &Arc<str>, rule: &Arc<str>) -> u64 {
        let key = (Arc::clone(place), Arc::clone(rule));
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&key).map_or(0, RuleCounter::total)
    }
}

impl RuleCounter {
    fn total(&self) -> u64 {
        let workers = self.workers.iter();
        let counted: u64 = workers.map(|own| own.load(Ordering::Relaxed)).sum();
        counted.saturating_add(self.ended)
    }

    fn forget_ended(&mut self) {
        let ended = &mut self.ended;
        self.workers.retain(|own| {
            let is_used = Arc::strong_count(own) > 1;
            if !is_used {
                *ended = ended.saturating_add(own.load(Ordering::Relaxed));
            }
            is_used
        });
    }
}

impl fmt::Debug for RuleCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleCounters").finish_non_exhaustive()
    }
}
