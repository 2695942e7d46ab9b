//! One attempt of a request at a node.
//!
//! What it takes there is released however it ends.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use apus_http::{Body, BodyError, BodyStream, Frame};
use apus_net::client::{ClientResponse, RequestFailure};
use apus_net::coarse_now;

use tokio::time::{Sleep, sleep_until};

use super::WorkerGroup;
use super::choose::Chosen;
use super::send::{Attempt, AttemptOutcome};
use super::view::{LocalNode, View};
use crate::counts::FailureKind;
use crate::group::PlaceAt;
use crate::health::Outcome;

/// A request at a node. Dropping it ends it.
pub(super) struct Flight {
    group: Rc<WorkerGroup>,
    local: Rc<LocalNode>,
    /// Given back to the first who waits.
    _place: Option<PlaceAt>,
    counts_load: bool,
    /// Whether the breaker waits for the outcome.
    probe: bool,
    began: Instant,
}

impl Flight {
    /// Begins a request at a chosen node; `None` if that is gone.
    pub(super) fn begin(
        group: &Rc<WorkerGroup>,
        view: &View,
        chosen: Chosen,
        now: Instant,
    ) -> Option<Self> {
        let local = view.nodes.get(chosen.index)?;
        let counts_load = view.set.plan.strategy.looks_at_load();
        if counts_load {
            local.node.state.add_load();
        }
        local.counts.begin();
        Some(Self {
            group: Rc::clone(group),
            local: Rc::clone(local),
            _place: chosen.place,
            counts_load,
            probe: chosen.probe,
            began: now,
        })
    }

    /// The node.
    pub(super) fn local(&self) -> &Rc<LocalNode> {
        &self.local
    }

    /// How long it has been under way.
    pub(super) fn took(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.began)
    }

    /// What there is to tell of an attempt that went wrong.
    pub(super) fn attempt(&self, outcome: AttemptOutcome, now: Instant) -> Attempt {
        Attempt {
            node: Rc::clone(&self.local.label),
            outcome,
            took: self.took(now),
        }
    }

    /// The node answered.
    pub(super) fn answered(&mut self, now: Instant) {
        self.local.counts.conclude();
        self.local.answered_in(self.took(now), now);
        let node = &self.local.node;
        if self.probe {
            self.probe = false;
            node.state.probe_ended(&node.plan, Outcome::Answered, now);
        }
        if node.state.is_watched() {
            node.state.succeeded(&node.plan, now);
        }
    }

    /// The node failed, or somebody else did.
    pub(super) fn failed(&mut self, failure: &RequestFailure, now: Instant) {
        match FailureKind::of(failure) {
            Some(kind) => self.failed_by(kind, now),
            None => self.told_nothing(now),
        }
    }

    /// The request ended without saying anything of the node.
    pub(super) fn told_nothing(&mut self, now: Instant) {
        self.end_probe(Outcome::Nothing, now);
    }

    /// The node failed.
    pub(super) fn failed_by(&mut self, kind: FailureKind, now: Instant) {
        self.local.counts.conclude();
        self.local.counts.fail(kind);
        // A node that fails quickly must not look quick.
        let latency = self.local.latency(now).unwrap_or_default();
        let penalty = Duration::from_secs_f64((latency * 2.0).min(SLOWEST));
        self.local.answered_in(self.took(now).max(penalty), now);
        self.end_probe(Outcome::Failed, now);
        self.group.group.node_failed(&self.local.node, now);
    }

    fn end_probe(&mut self, outcome: Outcome, now: Instant) {
        if std::mem::take(&mut self.probe) {
            let node = &self.local.node;
            node.state.probe_ended(&node.plan, outcome, now);
        }
    }

    /// Stays with the response until its content has ended. Ends here if that is there already.
    pub(super) fn accompany(
        self,
        mut response: ClientResponse,
        deadline: Option<Instant>,
    ) -> ClientResponse {
        if let Some(tunnel) = response.tunnel.take() {
            response.tunnel = Some(Box::new(super::tunnel::Accompanied::new(tunnel, self)));
            return response;
        }
        response.body = match response.body {
            Body::Stream(inner) => Body::stream(Accompanied {
                inner,
                flight: Some(self),
                deadline: deadline.map(Deadline::new),
            }),
            whole => whole,
        };
        response
    }
}

/// The slowest that a failing node is taken for, in seconds.
const SLOWEST: f64 = 30.0;

impl Drop for Flight {
    fn drop(&mut self) {
        if self.probe {
            self.told_nothing(Instant::now());
        }
        self.local.counts.end();
        if self.counts_load {
            self.local.node.state.remove_load();
        }
    }
}

/// The content of a response, with its request.
struct Accompanied {
    inner: Box<dyn BodyStream>,
    /// `None` once the content has ended.
    flight: Option<Flight>,
    deadline: Option<Deadline>,
}

impl BodyStream for Accompanied {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let polled = self.inner.poll_frame(cx);
        if let Some(deadline) = &mut self.deadline
            && !matches!(polled, Poll::Ready(None | Some(Err(_))))
            && deadline.is_over(polled.is_pending(), cx)
        {
            // Who was slow, the node or who reads its content, is not known.
            self.flight = None;
            return Poll::Ready(Some(Err(BodyError::TimedOut)));
        }
        match &polled {
            Poll::Ready(Some(Err(error))) => {
                if let Some(mut flight) = self.flight.take()
                    && !matches!(error, BodyError::TooLarge)
                {
                    flight.content_failed(error);
                }
            }
            Poll::Ready(None) => self.flight = None,
            _ => {}
        }
        polled
    }

    fn remaining(&self) -> Option<u64> {
        self.inner.remaining()
    }
}

impl Flight {
    /// The content of the response broke off.
    fn content_failed(&mut self, error: &BodyError) {
        let kind = match error {
            BodyError::TimedOut => FailureKind::TimedOut,
            _ => FailureKind::Content,
        };
        self.local.counts.fail(kind);
        self.group
            .group
            .node_failed(&self.local.node, Instant::now());
    }
}

/// The time by which the content has to be there. The timer is made when the content keeps one waiting.
struct Deadline {
    at: Instant,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Deadline {
    fn new(at: Instant) -> Self {
        Self { at, sleep: None }
    }

    fn is_over(&mut self, waits: bool, cx: &mut Context<'_>) -> bool {
        if !waits {
            return coarse_now() >= self.at;
        }
        let at = self.at;
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(at.into())));
        sleep.as_mut().poll(cx).is_ready()
    }
}
