//! What runners of this process did, for metrics and the status of the application.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use apus_metrics::{MetricDefinition, MetricSamples};
use serde_json::{Value, json};

use crate::record::JobCounts;

static ATTEMPTS: MetricDefinition =
    MetricDefinition::counter("job_attempts", "Attempts of jobs that ended.")
        .labels(&["queue", "job", "result"]);
static JOBS: MetricDefinition =
    MetricDefinition::gauge("jobs", "Jobs in the store.").labels(&["queue", "state"]);

/// Counters of one queue in this process, and the last counts of its store.
#[derive(Default)]
pub(crate) struct JobMetrics {
    attempts: Mutex<BTreeMap<(String, AttemptOutcome), u64>>,
    running: AtomicU64,
    counts: Mutex<Option<JobCounts>>,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum AttemptOutcome {
    Done,
    Retried,
    Dead,
    GivenBack,
}

impl AttemptOutcome {
    fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retried => "retried",
            Self::Dead => "dead",
            Self::GivenBack => "given back",
        }
    }
}

impl JobMetrics {
    pub(crate) fn begin(&self) {
        self.running.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end(&self, name: &str, outcome: AttemptOutcome) {
        self.running.fetch_sub(1, Ordering::Relaxed);
        let mut attempts = lock(&self.attempts);
        let count = attempts.entry((name.to_owned(), outcome)).or_default();
        *count = count.saturating_add(1);
    }

    pub(crate) fn set_counts(&self, counts: JobCounts) {
        *lock(&self.counts) = Some(counts);
    }

    pub(crate) fn add_to(&self, queue: &str, samples: &mut MetricSamples) {
        let queue: Arc<str> = queue.into();
        let attempts = samples.of(&ATTEMPTS);
        for ((job, outcome), count) in &*lock(&self.attempts) {
            let labels = [(&queue).into(), job.clone().into(), outcome.name().into()];
            attempts.add(labels, *count);
        }
        let jobs = samples.of(&JOBS);
        for (state, count) in lock(&self.counts).into_iter().flat_map(states) {
            jobs.add([(&queue).into(), state.into()], count);
        }
    }

    pub(crate) fn status(&self, queue: &str) -> Value {
        let mut outcomes = BTreeMap::<&str, u64>::new();
        for ((_, outcome), count) in &*lock(&self.attempts) {
            let sum = outcomes.entry(outcome.name()).or_default();
            *sum = sum.saturating_add(*count);
        }
        let counts: Option<BTreeMap<&str, u64>> =
            lock(&self.counts).map(|counts| states(counts).into_iter().collect());
        json!({
            "queue": queue,
            "attempts": outcomes,
            "running_here": self.running.load(Ordering::Relaxed),
            "jobs": counts,
        })
    }
}

fn states(counts: JobCounts) -> [(&'static str, u64); 4] {
    [
        ("ready", counts.ready),
        ("delayed", counts.delayed),
        ("running", counts.running),
        ("dead", counts.dead),
    ]
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
