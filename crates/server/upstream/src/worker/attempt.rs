//! One attempt of a request at a node, which releases what it took there when it is dropped.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::RequestFailure;
use apus_http::{BodyError, StatusCode};

use super::WorkerGroup;
use super::choose::ChosenNode;
use super::group_view::{GroupView, WorkerNode};
use super::outcome::{AttemptFailure, AttemptTimes, FailedAttempt};
use crate::counters::FailureKind;
use crate::group::NodeSlot;
use crate::health::ProbeOutcome;
use crate::plan::GroupPlan;
use crate::pool::{Admission, PermitReceiver, RequestPermit};
use crate::wait_queue::QueueOutcome;

/// An attempt of a request at a node. Dropping it ends the attempt.
pub(super) struct RequestAttempt {
    group: Rc<WorkerGroup>,
    node: Rc<WorkerNode>,
    /// Goes to the next request in the queue when the attempt ends.
    slot: Option<NodeSlot>,
    /// The permit of the application, over FastCGI.
    permit: Option<Rc<RequestPermit>>,
    counts_load: bool,
    /// Whether this is the probe of the node's circuit breaker.
    probe: bool,
    /// Whether it has a result, so that it is not dropped because the client gave up.
    has_result: bool,
    began: Instant,
    /// The time until there was a connection; `None`: there was one.
    connect: Cell<Option<Duration>>,
}

impl RequestAttempt {
    /// Begins an attempt at a chosen node; `None` if that node is gone.
    pub(super) fn begin(
        group: &Rc<WorkerGroup>,
        view: &GroupView,
        chosen: ChosenNode,
        now: Instant,
    ) -> Option<Self> {
        let node = view.nodes.get(chosen.index)?;
        let counts_load = view.set.plan.strategy.uses_load();
        // All workers change this number, so it is counted only for strategies that use it.
        if counts_load {
            node.node.state.add_load();
        }
        node.counters.begin();
        Some(Self {
            group: Rc::clone(group),
            node: Rc::clone(node),
            slot: chosen.slot,
            permit: None,
            counts_load,
            probe: chosen.probe,
            has_result: false,
            began: now,
            connect: Cell::new(None),
        })
    }

    /// Returns the node.
    pub(super) fn node(&self) -> &Rc<WorkerNode> {
        &self.node
    }

    /// Asks the application of a FastCGI node to admit the request. Returns where to wait for its permit, unless
    /// it has that. A request that could not enter the queue does not wait.
    pub(super) fn admit(&mut self) -> Option<PermitReceiver> {
        self.node.node.application.as_ref()?;
        let may_wait = self.slot.is_some() || self.node.node.plan.queue.max_waiting > 0;
        match self.node.pool.admit(may_wait)? {
            Admission::Admitted(permit) => {
                self.set_permit(permit);
                None
            }
            Admission::Wait(receiver) => Some(receiver),
        }
    }

    /// Whether the request has one of a limited number of slots of the node.
    pub(super) fn has_slot(&self) -> bool {
        self.slot.is_some()
    }

    /// Returns the permit of the application, over FastCGI.
    pub(super) fn permit(&self) -> Option<&Rc<RequestPermit>> {
        self.permit.as_ref()
    }

    /// Sets the permit of the application.
    pub(super) fn set_permit(&mut self, permit: RequestPermit) {
        self.permit = Some(Rc::new(permit));
    }

    /// Returns the time since the attempt began.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// Notes how long it took to connect.
    pub(super) fn note_connect(&self, took: Duration) {
        self.connect.set(Some(took));
    }

    /// Returns the times of the attempt, which has ended or has a response now.
    pub(super) fn times(&self, now: Instant) -> AttemptTimes {
        AttemptTimes {
            began: self.began,
            connect: self.connect.get(),
            took: self.elapsed(now),
        }
    }

    /// Describes this attempt after it failed.
    pub(super) fn describe(&self, failure: AttemptFailure, now: Instant) -> FailedAttempt {
        FailedAttempt {
            node: Rc::clone(&self.node.label),
            failure,
            times: self.times(now),
        }
    }

    /// Records a response as a success or a failure of the node, by its status.
    pub(super) fn record_status(&mut self, plan: &GroupPlan, status: StatusCode, now: Instant) {
        if plan.failure_statuses.contains(&status) {
            self.record_failure_of_node(FailureKind::Status, now);
        } else {
            self.record_response(now);
        }
    }

    /// Records a response of the node.
    fn record_response(&mut self, now: Instant) {
        self.record_outcome(QueueOutcome::Responded);
        self.has_result = true;
        self.node.counters.complete();
        self.node.add_latency(self.elapsed(now), now);
        let node = &self.node.node;
        if self.probe {
            self.probe = false;
            node.state
                .end_probe(&node.plan, ProbeOutcome::Responded, now);
        }
        // Nearly always the health has nothing to forgive, and its lock is not taken.
        if node.state.needs_successes() {
            node.state.record_success(&node.plan, now);
        }
    }

    /// Records a failure, if it is one of the node.
    pub(super) fn record_failure(&mut self, failure: &RequestFailure, now: Instant) {
        match FailureKind::of(failure) {
            Some(kind) => self.record_failure_of_node(kind, now),
            None => self.abandon_probe(now),
        }
    }

    /// Ends the probe, if this is one, without a result: the attempt says nothing about the node.
    pub(super) fn abandon_probe(&mut self, now: Instant) {
        self.has_result = true;
        self.end_probe(ProbeOutcome::Abandoned, now);
    }

    /// Records a failure of the node.
    pub(super) fn record_failure_of_node(&mut self, kind: FailureKind, now: Instant) {
        self.has_result = true;
        self.node.counters.complete();
        self.node.counters.add_failure(kind);
        // Without a penalty, a node that fails quickly would have the lowest latency.
        let latency = self.node.latency(now).unwrap_or_default();
        let penalty = Duration::from_secs_f64((latency * 2.0).min(MAX_PENALTY));
        self.node.add_latency(self.elapsed(now).max(penalty), now);
        self.end_probe(ProbeOutcome::Failed, now);
        self.record_in_health(kind, now);
    }

    /// Records that the body of the response broke off.
    pub(super) fn record_body_failure(&mut self, error: &BodyError) {
        let kind = match error {
            BodyError::TimedOut => FailureKind::TimedOut,
            _ => FailureKind::Body,
        };
        self.node.counters.add_failure(kind);
        self.record_in_health(kind, Instant::now());
    }

    /// Records a failure in the health of the node. A FastCGI process that ends or is slow is one of many at the
    /// node, and its script may be the reason. So this takes the node out of service only if there is another one,
    /// or a circuit breaker, which was asked for.
    fn record_in_health(&self, kind: FailureKind, now: Instant) {
        let is_of_process = self.node.node.application.is_some()
            && matches!(
                kind,
                FailureKind::Closed | FailureKind::TimedOut | FailureKind::Body
            );
        let view = self.group.view();
        if !is_of_process || view.nodes.len() > 1 || view.set.plan.breaker.is_some() {
            self.group.group.record_failure(&self.node.node, now);
        }
    }

    /// Tells the queues in which the request waited what became of it.
    fn record_outcome(&self, outcome: QueueOutcome) {
        if let Some(slot) = &self.slot {
            slot.record(outcome);
        }
        if let Some(permit) = &self.permit {
            permit.record(outcome);
        }
    }

    fn end_probe(&mut self, outcome: ProbeOutcome, now: Instant) {
        if std::mem::take(&mut self.probe) {
            let node = &self.node.node;
            node.state.end_probe(&node.plan, outcome, now);
        }
    }
}

/// The highest latency that a failure counts as, in seconds.
const MAX_PENALTY: f64 = 30.0;

impl Drop for RequestAttempt {
    fn drop(&mut self) {
        // Without its permit, the request has not been sent to an application.
        if !self.has_result && (self.permit.is_some() || self.node.node.application.is_none()) {
            self.record_outcome(QueueOutcome::Abandoned);
        }
        if self.probe {
            self.abandon_probe(Instant::now());
        }
        self.node.counters.end();
        if self.counts_load {
            self.node.node.state.remove_load();
        }
    }
}
