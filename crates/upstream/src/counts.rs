//! Counters of nodes and groups.
//!
//! Each worker counts in numbers of its own, which nobody else writes; they are added up when they
//! are read.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use apus_net::client::{FailureCause, RequestFailure, RequestPhase};

use crate::health::Totals;

/// Why requests to a node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection.
    Connect,
    /// No TLS connection.
    Tls,
    /// Too slow.
    TimedOut,
    /// The connection was closed or reset before the response.
    Closed,
    /// What came was no HTTP.
    Protocol,
    /// A status that counts as a failure.
    Status,
    /// The content of the response broke off.
    Content,
}

impl FailureKind {
    /// All, in the order in which they are counted.
    pub const ALL: [Self; 7] = [
        Self::Connect,
        Self::Tls,
        Self::TimedOut,
        Self::Closed,
        Self::Protocol,
        Self::Status,
        Self::Content,
    ];

    /// One word, as for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Status => "status",
            Self::Content => "content",
        }
    }

    /// The kind of a failure that is the node's; `None` for others, as of the request's own content.
    pub(crate) fn of(failure: &RequestFailure) -> Option<Self> {
        match (&failure.cause, failure.phase) {
            (
                FailureCause::Request(_)
                | FailureCause::Source(_)
                | FailureCause::Refused
                | FailureCause::NoTunnel
                | FailureCause::NoDescriptors,
                _,
            ) => None,
            (FailureCause::TimedOut, _) => Some(Self::TimedOut),
            (_, RequestPhase::Connect) => Some(Self::Connect),
            (_, RequestPhase::Tls) => Some(Self::Tls),
            (_, RequestPhase::Content) => Some(Self::Content),
            (FailureCause::Protocol(_), _) => Some(Self::Protocol),
            _ => Some(Self::Closed),
        }
    }
}

/// What one worker counts of one node.
#[derive(Debug, Default)]
pub(crate) struct NodeCounts {
    requests: AtomicU64,
    ended: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    in_flight: AtomicU32,
    /// The mean latency in seconds, as bits.
    latency: AtomicU64,
}

impl NodeCounts {
    /// A request goes to the node.
    pub(crate) fn begin(&self) {
        add(&self.requests, 1);
        let open = self.in_flight.load(Ordering::Relaxed);
        self.in_flight.store(open + 1, Ordering::Relaxed);
    }

    /// A request, its response's content included, is over.
    pub(crate) fn end(&self) {
        let open = self.in_flight.load(Ordering::Relaxed);
        self.in_flight
            .store(open.saturating_sub(1), Ordering::Relaxed);
    }

    /// The node answered, or failed.
    pub(crate) fn conclude(&self) {
        add(&self.ended, 1);
    }

    /// The node failed.
    pub(crate) fn fail(&self, kind: FailureKind) {
        if let Some(count) = self.failures.get(kind as usize) {
            add(count, 1);
        }
    }

    /// Shows the mean latency.
    pub(crate) fn show_latency(&self, seconds: f64) {
        self.latency.store(seconds.to_bits(), Ordering::Relaxed);
    }
}

/// What all workers counted of one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeSums {
    pub(crate) requests: u64,
    pub(crate) ended: u64,
    pub(crate) failures: [u64; FailureKind::ALL.len()],
    pub(crate) in_flight: u32,
    /// The mean of the workers' mean latencies, by their requests; 0 before the first answer.
    pub(crate) latency: f64,
}

impl NodeSums {
    /// What the rules of health count with.
    pub(crate) fn totals(&self) -> Totals {
        Totals {
            requests: self.ended,
            failures: self.failures.iter().sum(),
        }
    }
}

impl Count for NodeCounts {
    type Sums = NodeSums;

    fn add_to(&self, sums: &mut NodeSums) {
        let requests = self.requests.load(Ordering::Relaxed);
        let latency = f64::from_bits(self.latency.load(Ordering::Relaxed));
        let all = sums.requests + requests;
        if latency > 0.0 && all > 0 {
            let before = sums.latency * sums.requests as f64;
            sums.latency = (before + latency * requests as f64) / all as f64;
        }
        sums.requests = all;
        sums.ended += self.ended.load(Ordering::Relaxed);
        sums.in_flight += self.in_flight.load(Ordering::Relaxed);
        for (sum, count) in sums.failures.iter_mut().zip(&self.failures) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

/// What one worker counts of one group.
#[derive(Debug, Default)]
pub(crate) struct GroupCounts {
    pub(crate) requests: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) hedges: AtomicU64,
    pub(crate) queued: AtomicU64,
    pub(crate) queue_full: AtomicU64,
    pub(crate) queue_timed_out: AtomicU64,
    pub(crate) no_node: AtomicU64,
    pub(crate) budget_spent: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) copies_dropped: AtomicU64,
}

/// What a group's workers counted since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Requests that came.
    pub requests: u64,
    /// Attempts with another node after one went wrong.
    pub retries: u64,
    /// Requests sent to a second node because the first was slow.
    pub hedges: u64,
    /// Requests that waited for a node.
    pub queued: u64,
    /// Requests turned away because too many waited.
    pub queue_full: u64,
    /// Requests that waited too long.
    pub queue_timed_out: u64,
    /// Requests for which there was no node.
    pub no_node: u64,
    /// Retries that did not take place because the budget was spent.
    pub budget_spent: u64,
    /// Requests sent again over another connection to the same node, because the one they were sent over
    /// had been closed meanwhile or had no room.
    pub reconnects: u64,
    /// Copies of requests to other groups that were left out or broken off, because too many were under
    /// way or they were too slow.
    pub copies_dropped: u64,
}

impl Count for GroupCounts {
    type Sums = GroupTotals;

    fn add_to(&self, sums: &mut GroupTotals) {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        sums.requests += read(&self.requests);
        sums.retries += read(&self.retries);
        sums.hedges += read(&self.hedges);
        sums.queued += read(&self.queued);
        sums.queue_full += read(&self.queue_full);
        sums.queue_timed_out += read(&self.queue_timed_out);
        sums.no_node += read(&self.no_node);
        sums.budget_spent += read(&self.budget_spent);
        sums.reconnects += read(&self.reconnects);
        sums.copies_dropped += read(&self.copies_dropped);
    }
}

/// Counts one more, in a number that only this thread writes.
pub(crate) fn count(number: &AtomicU64) {
    add(number, 1);
}

fn add(number: &AtomicU64, more: u64) {
    number.store(
        number.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

/// Numbers that are added up.
pub(crate) trait Count: Default + fmt::Debug {
    type Sums: Copy + Default + fmt::Debug;

    fn add_to(&self, sums: &mut Self::Sums);
}

/// The counts of all workers, and what those counted that are gone.
#[derive(Debug)]
pub(crate) struct Counts<C: Count>(Mutex<Kept<C>>);

#[derive(Debug)]
struct Kept<C: Count> {
    live: Vec<Arc<C>>,
    gone: C::Sums,
}

impl<C: Count> Default for Counts<C> {
    fn default() -> Self {
        Self(Mutex::new(Kept {
            live: Vec::new(),
            gone: C::Sums::default(),
        }))
    }
}

impl<C: Count> Counts<C> {
    /// Numbers for one more worker.
    pub(crate) fn enter(&self) -> Arc<C> {
        let counts = Arc::new(C::default());
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.live.push(Arc::clone(&counts));
        counts
    }

    /// All added up.
    pub(crate) fn sums(&self) -> C::Sums {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Kept { live, gone } = &mut *kept;
        live.retain(|counts| {
            let lives = Arc::strong_count(counts) > 1;
            if !lives {
                counts.add_to(gone);
            }
            lives
        });
        let mut sums = *gone;
        live.iter().for_each(|counts| counts.add_to(&mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_all_workers_counted_and_those_that_went() {
        let counts = Counts::<NodeCounts>::default();
        let (first, second) = (counts.enter(), counts.enter());
        for worker in [&first, &second] {
            worker.begin();
            worker.conclude();
            worker.fail(FailureKind::Status);
        }
        first.end();
        first.show_latency(0.1);
        second.show_latency(0.3);
        let sums = counts.sums();
        assert_eq!((sums.requests, sums.in_flight), (2, 1));
        let expected = Totals {
            requests: 2,
            failures: 2,
        };
        assert_eq!(sums.totals(), expected);
        assert!((sums.latency - 0.2).abs() < 1e-9);
        drop(first);
        assert_eq!(counts.sums().requests, 2);
        assert_eq!(counts.sums().totals(), expected);
    }
}
