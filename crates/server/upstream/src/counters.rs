//! Counters of nodes and groups, which each worker has for itself and readers add up.

use std::error::Error;
use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use apus_client::{FailureCause, RequestFailure, RequestPhase};
use apus_codec::fastcgi::FastCgiError;

use crate::health::RequestTotals;

/// Why requests to a node failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No connection could be opened.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The node was too slow.
    TimedOut,
    /// The connection was closed or reset before the response.
    Closed,
    /// The node broke the protocol.
    Protocol,
    /// The response has a status that counts as a failure.
    Status,
    /// The body of the response broke off.
    Body,
}

/// Whether an error is a mistake of one script, whose server is in order.
pub(crate) fn is_of_script(error: &(dyn Error + 'static)) -> bool {
    error.downcast_ref().is_some_and(FastCgiError::is_of_script)
}

impl FailureKind {
    /// All kinds, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::Connect,
        Self::Tls,
        Self::TimedOut,
        Self::Closed,
        Self::Protocol,
        Self::Status,
        Self::Body,
    ];

    /// Returns the label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::TimedOut => "timed_out",
            Self::Closed => "closed",
            Self::Protocol => "protocol",
            Self::Status => "status",
            Self::Body => "body",
        }
    }

    /// Returns the kind of a failure of the node; `None` for other failures, for example of the request's own
    /// body, or of one script.
    pub(crate) fn of(failure: &RequestFailure) -> Option<Self> {
        match (&failure.cause, failure.phase) {
            (FailureCause::Protocol(error), _) if is_of_script(&**error) => None,
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
            (_, RequestPhase::Body) => Some(Self::Body),
            (FailureCause::Protocol(_), _) => Some(Self::Protocol),
            _ => Some(Self::Closed),
        }
    }
}

/// The counters of one worker for one node.
#[derive(Debug, Default)]
pub(crate) struct NodeCounters {
    requests: AtomicU64,
    ended: AtomicU64,
    failures: [AtomicU64; FailureKind::ALL.len()],
    in_flight: AtomicU32,
    /// The mean latency in seconds, as the bits of an `f64`.
    latency: AtomicU64,
}

impl NodeCounters {
    /// Counts a request that is sent to the node.
    pub(crate) fn begin(&self) {
        add(&self.requests, 1);
        // A load and a store, and no `fetch_add`: no other worker writes these counters, and a locked instruction
        // would cost each request more.
        let open = self.in_flight.load(Ordering::Relaxed);
        self.in_flight.store(open + 1, Ordering::Relaxed);
    }

    /// Counts a request that ended, with the body of its response.
    pub(crate) fn end(&self) {
        let open = self.in_flight.load(Ordering::Relaxed);
        self.in_flight
            .store(open.saturating_sub(1), Ordering::Relaxed);
    }

    /// Counts a request that the node responded to, or failed.
    pub(crate) fn complete(&self) {
        add(&self.ended, 1);
    }

    /// Counts a failure of the node.
    pub(crate) fn add_failure(&self, kind: FailureKind) {
        if let Some(count) = self.failures.get(kind as usize) {
            add(count, 1);
        }
    }

    /// Sets the mean latency.
    pub(crate) fn set_latency(&self, seconds: f64) {
        // There is no atomic `f64`.
        self.latency.store(seconds.to_bits(), Ordering::Relaxed);
    }
}

/// The counters of all workers for one node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct NodeSums {
    pub(crate) requests: u64,
    pub(crate) ended: u64,
    pub(crate) failures: [u64; FailureKind::ALL.len()],
    pub(crate) in_flight: u32,
    /// The mean of the workers' mean latencies, weighted by their requests; 0 before the first response.
    pub(crate) latency: f64,
}

impl NodeSums {
    /// Returns the totals that the health rules need.
    pub(crate) fn totals(&self) -> RequestTotals {
        RequestTotals {
            requests: self.ended,
            failures: self.failures.iter().sum(),
        }
    }
}

impl CounterSet for NodeCounters {
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

/// The counters of one worker for one group.
#[derive(Debug, Default)]
pub(crate) struct GroupCounters {
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

/// The counters of all workers for one group, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupTotals {
    /// Requests to the group.
    pub requests: u64,
    /// Attempts after one that failed.
    pub retries: u64,
    /// Requests sent to a second node because the first was slow.
    pub hedges: u64,
    /// Requests that waited in the queue.
    pub queued: u64,
    /// Requests rejected because the queue was full.
    pub queue_full: u64,
    /// Requests that waited in the queue for too long.
    pub queue_timed_out: u64,
    /// Requests for which no node was available.
    pub no_node: u64,
    /// Retries that were not made because the budget was spent.
    pub budget_spent: u64,
    /// Requests sent again over another connection to the same node, because the node had closed the first
    /// one or accepted no more requests on it.
    pub reconnects: u64,
    /// Mirrored requests that were not sent or were aborted, because too many were in flight or they were too
    /// slow.
    pub copies_dropped: u64,
}

impl CounterSet for GroupCounters {
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

/// Adds one to a counter that only this thread writes.
pub(crate) fn increment(number: &AtomicU64) {
    add(number, 1);
}

fn add(number: &AtomicU64, more: u64) {
    number.store(
        number.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

/// Counters of one worker that can be added up.
pub(crate) trait CounterSet: Default + fmt::Debug {
    type Sums: Copy + Default + fmt::Debug;

    fn add_to(&self, sums: &mut Self::Sums);
}

/// The counters of all workers, and the sums of workers that are gone.
#[derive(Debug)]
pub(crate) struct WorkerCounterSets<C: CounterSet>(Mutex<CounterState<C>>);

#[derive(Debug)]
struct CounterState<C: CounterSet> {
    live: Vec<Arc<C>>,
    gone: C::Sums,
}

impl<C: CounterSet> Default for WorkerCounterSets<C> {
    fn default() -> Self {
        Self(Mutex::new(CounterState {
            live: Vec::new(),
            gone: C::Sums::default(),
        }))
    }
}

impl<C: CounterSet> WorkerCounterSets<C> {
    /// Creates the counters of one more worker.
    pub(crate) fn add_worker(&self) -> Arc<C> {
        let counters = Arc::new(C::default());
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.live.push(Arc::clone(&counters));
        counters
    }

    /// Adds up all counters.
    pub(crate) fn sums(&self) -> C::Sums {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let CounterState { live, gone } = &mut *state;
        live.retain(|counters| {
            // The worker of the others is gone, so that nothing is added to them any more.
            let lives = Arc::strong_count(counters) > 1;
            if !lives {
                counters.add_to(gone);
            }
            lives
        });
        let mut sums = *gone;
        live.iter().for_each(|counters| counters.add_to(&mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_and_logs_name_a_response_that_broke_off_after_its_body() {
        let labels = FailureKind::ALL.map(FailureKind::as_str);
        let expected = [
            "connect",
            "tls",
            "timed_out",
            "closed",
            "protocol",
            "status",
            "body",
        ];
        assert_eq!(labels, expected);
        assert_eq!(RequestPhase::Body.as_str(), FailureKind::Body.as_str());
    }

    #[test]
    fn adds_up_all_workers_and_those_that_are_gone() {
        let counters = WorkerCounterSets::<NodeCounters>::default();
        let (first, second) = (counters.add_worker(), counters.add_worker());
        for worker in [&first, &second] {
            worker.begin();
            worker.complete();
            worker.add_failure(FailureKind::Status);
        }
        first.end();
        first.set_latency(0.1);
        second.set_latency(0.3);
        let sums = counters.sums();
        assert_eq!((sums.requests, sums.in_flight), (2, 1));
        let expected = RequestTotals {
            requests: 2,
            failures: 2,
        };
        assert_eq!(sums.totals(), expected);
        assert!((sums.latency - 0.2).abs() < 1e-9);
        drop(first);
        assert_eq!(counters.sums().requests, 2);
        assert_eq!(counters.sums().totals(), expected);
    }
}
