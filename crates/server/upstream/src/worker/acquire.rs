//! Acquiring a node for an attempt, at once or after waiting in the queue.

use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use super::WorkerGroup;
use super::attempt::RequestAttempt;
use super::choose::{ChoiceCriteria, ChosenNode, NodeChoice};
use super::group_view::GroupView;
use super::request::UpstreamRequest;
use crate::counters::increment;
use crate::group::NodeSlot;
use crate::pool::PermitReceiver;
use crate::queue::TriedNodes;
use crate::wait_queue::WaitTicket;

/// Why no node was acquired.
#[derive(Clone, Copy, Debug)]
pub(super) enum AcquireError {
    /// No node is available; one may be after this time.
    NoNode(Option<Duration>),
    /// Too many requests wait already.
    QueueFull,
    /// The request waited for too long.
    QueueTimedOut,
}

impl UpstreamRequest {
    /// Begins an attempt at a node that was not tried yet, and waits for it in the queue if it is busy.
    pub(super) async fn acquire(&self, tried: &TriedNodes) -> Result<RequestAttempt, AcquireError> {
        let acquisition = self.choose(tried, Some(None));
        self.wait_for(tried, acquisition).await
    }

    /// Waits for a node if none was chosen at once, and for its application.
    pub(super) async fn wait_for(
        &self,
        tried: &TriedNodes,
        acquisition: Acquisition,
    ) -> Result<RequestAttempt, AcquireError> {
        let mut until = None;
        let mut attempt = match acquisition {
            Acquisition::Acquired(attempt) => attempt,
            Acquisition::Wait(ticket, slot) => {
                until = Some(self.waits_until());
                self.wait(tried, ticket, slot).await?
            }
            Acquisition::Failed(error) => return Err(error),
        };
        match attempt.admit() {
            None => Ok(attempt),
            Some(receiver) => self.wait_for_application(attempt, receiver, until).await,
        }
    }

    /// Waits until the application of a FastCGI node admits the request. `until` is set if it waited for a slot
    /// before.
    pub(super) async fn wait_for_application(
        &self,
        attempt: RequestAttempt,
        receiver: PermitReceiver,
        until: Option<Instant>,
    ) -> Result<RequestAttempt, AcquireError> {
        let (mut attempt, mut receiver) = (attempt, receiver);
        let group = &self.group.group;
        let max_waiting = self.group.view().set.plan.queue.max_waiting;
        // A request with a slot has been let in by the queue for slots, which has the same limit.
        if !attempt.has_slot() && group.waiting() >= max_waiting {
            return Err(AcquireError::QueueFull);
        }
        if until.is_none() {
            increment(&self.group.counters.queued);
        }
        let _guard = group.begin_waiting();
        let until = until.unwrap_or_else(|| self.waits_until());
        // `until` is the end of the wait for a slot, if there was one: both waits together have one limit.
        let permit = receiver.receive(until).await;
        attempt.set_permit(permit.ok_or(AcquireError::QueueTimedOut)?);
        Ok(attempt)
    }

    /// Waits for a slot, and chooses again if the nodes change meanwhile.
    async fn wait(
        &self,
        tried: &TriedNodes,
        ticket: WaitTicket,
        slot: oneshot::Receiver<NodeSlot>,
    ) -> Result<RequestAttempt, AcquireError> {
        increment(&self.group.counters.queued);
        let until = self.waits_until();
        let _guard = QueueGuard {
            group: &self.group,
            ticket,
        };
        let mut slot = slot;
        loop {
            match timeout_at(until.into(), slot).await {
                Ok(Ok(slot)) => {
                    if let Some(attempt) = self.begin_in(slot) {
                        return Ok(attempt);
                    }
                }
                // The nodes changed.
                Ok(Err(_)) => {}
                Err(_) => {
                    // Before the guard is dropped, which would count the request as one whose client gave up.
                    self.group.group.queue().leave(ticket);
                    return Err(AcquireError::QueueTimedOut);
                }
            }
            slot = match self.choose(tried, Some(Some(ticket))) {
                Acquisition::Acquired(attempt) => return Ok(attempt),
                Acquisition::Wait(_, slot) => slot,
                Acquisition::Failed(error) => return Err(error),
            };
        }
    }

    /// Begins an attempt in a slot; `None` if its node is gone.
    fn begin_in(&self, slot: NodeSlot) -> Option<RequestAttempt> {
        let view = self.group.view();
        let index = view.position(slot.node()?.state.id())?;
        let chosen = ChosenNode {
            index,
            slot: Some(slot),
            probe: false,
        };
        RequestAttempt::begin(&self.group, &view, chosen, Instant::now())
    }

    /// Begins an attempt at a node that was not tried yet, if that is possible without waiting.
    pub(super) fn try_acquire(&self, tried: &TriedNodes) -> Option<RequestAttempt> {
        match self.choose(tried, None) {
            Acquisition::Acquired(mut attempt) => attempt.admit().is_none().then_some(attempt),
            Acquisition::Wait(..) | Acquisition::Failed(_) => None,
        }
    }

    /// Chooses a node; for `queueing`, see [`ChoiceCriteria::queueing`].
    fn choose(&self, tried: &TriedNodes, queueing: Option<Option<WaitTicket>>) -> Acquisition {
        self.choose_in(&self.group.view(), tried, queueing, Instant::now())
    }

    /// Chooses a node of this view.
    pub(super) fn choose_in(
        &self,
        view: &GroupView,
        tried: &TriedNodes,
        queueing: Option<Option<WaitTicket>>,
        now: Instant,
    ) -> Acquisition {
        let criteria = ChoiceCriteria {
            key: self.key,
            sticky: self.sticky.as_deref(),
            tried,
            queueing,
        };
        match self.group.choose(view, &criteria, now) {
            NodeChoice::Node(chosen) => {
                match RequestAttempt::begin(&self.group, view, chosen, now) {
                    Some(attempt) => Acquisition::Acquired(attempt),
                    None => Acquisition::Failed(AcquireError::NoNode(None)),
                }
            }
            NodeChoice::Wait(ticket, slot) => Acquisition::Wait(ticket, slot),
            NodeChoice::QueueFull => Acquisition::Failed(AcquireError::QueueFull),
            NodeChoice::NoNode(after) => Acquisition::Failed(AcquireError::NoNode(after)),
        }
    }

    fn waits_until(&self) -> Instant {
        let timeout = self.group.view().set.plan.queue.timeout;
        let now = Instant::now();
        let until = now.checked_add(timeout).unwrap_or(now);
        self.deadline.map_or(until, |deadline| deadline.min(until))
    }
}

/// The result of a choice.
pub(super) enum Acquisition {
    Acquired(RequestAttempt),
    Wait(WaitTicket, oneshot::Receiver<NodeSlot>),
    Failed(AcquireError),
}

/// A request's position in the queue. If this is dropped while the request is there, its client gave up.
struct QueueGuard<'a> {
    group: &'a Rc<WorkerGroup>,
    ticket: WaitTicket,
}

impl Drop for QueueGuard<'_> {
    fn drop(&mut self) {
        self.group.group.queue().give_up(self.ticket);
    }
}
