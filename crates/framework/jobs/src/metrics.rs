//! What runners of this process did, for metrics and the status of the application.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use apus_metrics::{MetricLabels, PrometheusText};
use serde_json::{Value, json};

use crate::record::JobCounts;

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

    pub(crate) fn write_attempts(&self, queue: &str, text: &mut PrometheusText) {
        for ((job, outcome), count) in &*lock(&self.attempts) {
            let labels = MetricLabels::new().with("queue", queue).with("job", job);
            let labels = labels.with("result", outcome.name());
            text.sample("job_attempts_total", &labels, count);
        }
    }

    pub(crate) fn write_counts(&self, queue: &str, text: &mut PrometheusText) {
        if let Some(counts) = *lock(&self.counts) {
            for (state, count) in states(counts) {
                let labels = MetricLabels::new()
                    .with("queue", queue)
                    .with("state", state);
                text.sample("jobs", &labels, count);
            }
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
