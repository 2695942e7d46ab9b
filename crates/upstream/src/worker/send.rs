//! Sending a request: a node, a connection, the response, and the next attempt if that failed.

use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_codec::proxy_protocol;
use apus_http::{Body, Interim, StatusCode};
use apus_net::client::{
    ClientRequest, ClientRequestHead, ClientResponse, FailureCause, RequestFailure, Stderr,
    Timeouts,
};

use super::WorkerGroup;
use super::content::Content;
use super::flight::Flight;
use super::fly::Landed;
use super::view::NodeLabel;
use super::wait::NoFlight;
use crate::balance::set_cookie;
use crate::counts::{FailureKind, count};
use crate::plan::GroupPlan;
use crate::pool::Fate;
use crate::queue::Tried;
use crate::retry::{Trouble, may_retry};

/// What is to be known of a request besides the request.
#[derive(Clone, Debug, Default)]
pub struct Context<'a> {
    /// The key of consistent hashing, by [`hash_key`](crate::hash_key), if the group's strategy has
    /// one; without it the choice is random.
    pub key: Option<u64>,
    /// The value of the cookie that [`StickyPlan`](crate::plan::StickyPlan) names, if the client has
    /// it.
    pub sticky: Option<&'a str>,
    /// The client's connection, for the PROXY protocol head.
    pub client: Option<proxy_protocol::Header>,
    /// Whether sending the request twice does the same as once; see
    /// [`is_idempotent`](crate::is_idempotent).
    pub idempotent: bool,
    /// When the response has to be there, content included, if that is sooner than the group's plan
    /// says.
    pub deadline: Option<Instant>,
}

/// A response, and how it came about.
#[derive(Debug)]
pub struct Delivered {
    /// The response. Its content keeps the place at the node until it has ended or is dropped.
    pub response: ClientResponse,
    /// Who gave it.
    pub node: Rc<NodeLabel>,
    /// The value of a `Set-Cookie` field for the client, if a cookie is to keep it with the node.
    pub set_cookie: Option<String>,
    /// What was tried before, in order; mostly nothing.
    pub attempts: Vec<Attempt>,
}

/// Why there is no response.
#[derive(Debug)]
pub struct Failed {
    /// What happened last.
    pub kind: FailedKind,
    /// What was tried before, in order.
    pub attempts: Vec<Attempt>,
    /// After which time it may go better, if that is known.
    pub retry_after: Option<Duration>,
}

/// What happened last to a request without a response.
#[derive(Debug)]
#[non_exhaustive]
pub enum FailedKind {
    /// No node is asked now: all are down, ejected, or behind an open breaker; or their names are not
    /// resolved.
    NoNode,
    /// All nodes have as many requests as they take, and too many wait already.
    QueueFull,
    /// It waited too long for a node.
    QueueTimedOut,
    /// The node failed.
    Node {
        /// Which one.
        node: Rc<NodeLabel>,
        /// Why.
        failure: RequestFailure,
    },
}

/// An attempt that went wrong and was followed by another.
#[derive(Debug)]
pub struct Attempt {
    /// The node that was asked.
    pub node: Rc<NodeLabel>,
    /// What went wrong.
    pub outcome: AttemptOutcome,
    /// From the choice of the node until then.
    pub took: Duration,
}

/// What went wrong with an attempt.
#[derive(Debug)]
pub enum AttemptOutcome {
    /// There was no response.
    Failed(RequestFailure),
    /// The response had this status.
    Status(StatusCode),
}

/// A request on its way.
pub(super) struct Journey<'a> {
    pub(super) way: Way<'a>,
    pub(super) tried: Tried,
    pub(super) attempts: Vec<Attempt>,
}

/// What stays the same for all attempts.
pub(super) struct Way<'a> {
    pub(super) group: &'a Rc<WorkerGroup>,
    pub(super) context: Context<'a>,
    pub(super) deadline: Option<Instant>,
    pub(super) parts: Parts,
    pub(super) began: Instant,
}

/// What every attempt sends.
pub(super) struct Parts {
    pub(super) head: Rc<ClientRequestHead>,
    interim: Option<Interim>,
    pub(super) timeouts: Rc<Timeouts>,
    stderr: Option<Stderr>,
}

impl Parts {
    pub(super) fn request(&self, body: Body) -> ClientRequest {
        ClientRequest {
            head: Rc::clone(&self.head),
            body,
            interim: self.interim.clone(),
            timeouts: Rc::clone(&self.timeouts),
            stderr: self.stderr.clone(),
        }
    }
}

/// What follows an attempt.
enum Next {
    /// Another one, at this node.
    Again(Flight),
    Delivered(Delivered),
    Failed(Failed),
}

/// Which nodes another attempt may ask.
enum Again {
    /// The one that failed, too.
    Anywhere,
    /// Those that did not.
    Elsewhere,
}

impl WorkerGroup {
    /// Sends a request to one of the nodes, and to others if that fails and the rules allow it.
    ///
    /// Dropping the future, or later the response's content, ends the request and gives back what it
    /// took.
    ///
    /// # Errors
    /// There is no response; see [`FailedKind`].
    pub async fn send(
        self: &Rc<Self>,
        request: ClientRequest,
        context: Context<'_>,
    ) -> Result<Delivered, Failed> {
        count(&self.counts.requests);
        let began = Instant::now();
        let total = self.plan(|plan| plan.total_timeout);
        let total = total.and_then(|total| began.checked_add(total));
        let mut content = Content::new(request.body);
        let mut journey = Journey {
            way: Way {
                group: self,
                began,
                deadline: context.deadline.into_iter().chain(total).min(),
                context,
                parts: Parts {
                    head: request.head,
                    interim: request.interim,
                    timeouts: request.timeouts,
                    stderr: request.stderr,
                },
            },
            tried: Tried::new(),
            attempts: Vec::new(),
        };
        let mut flight = match journey.way.board(&journey.tried).await {
            Ok(flight) => flight,
            Err(none) => return Err(journey.turned_away(none)),
        };
        loop {
            let landed = journey.fly(flight, &mut content).await;
            let next = match landed.result {
                Ok(response) => journey.answered(landed.flight, response, &content),
                Err(failure) => {
                    let again = match !landed.was_seen && journey.is_lost(&failure) {
                        true => Again::Anywhere,
                        false => Again::Elsewhere,
                    };
                    let failed = journey.failed(landed.flight, failure, &content, again);
                    failed.await
                }
            };
            match next {
                Next::Again(next) => flight = next,
                Next::Delivered(delivered) => return Ok(delivered),
                Next::Failed(failed) => return Err(failed),
            }
        }
    }
}

impl Journey<'_> {
    /// The node answered: that is the response, unless another node may have a better one at once.
    fn answered(&mut self, flight: Flight, response: ClientResponse, content: &Content) -> Next {
        let now = Instant::now();
        let mut flight = flight;
        let view = self.way.group.view();
        let plan = &view.set.plan;
        conclude(&mut flight, plan, &response, now);
        let trouble = Trouble::Status(response.status);
        if may_retry(&plan.retry, self.way.context.idempotent, trouble)
            && content.is_available()
            && self.may_go_on(plan, now)
        {
            self.tried.push(flight.local().node.state.id());
            if let Some(next) = self.way.board_now(&self.tried) {
                let outcome = AttemptOutcome::Status(response.status);
                self.attempts.push(flight.attempt(outcome, now));
                return self.again(next);
            }
        }
        Next::Delivered(self.deliver(plan, flight, response))
    }

    /// Whether the first process of an application that was asked went away without an answer. Behind one
    /// address there are many, so the next at the same node is another one. It is asked once, as a program
    /// that takes its process with it would end them all.
    fn is_lost(&self, failure: &RequestFailure) -> bool {
        self.way.parts.head.params.is_some()
            && self.way.context.idempotent
            && self.attempts.is_empty()
            && Fate::of(failure, true) == Fate::Stale
    }

    /// The attempt failed: that is the end, unless a node may be asked again.
    async fn failed(
        &mut self,
        flight: Flight,
        failure: RequestFailure,
        content: &Content,
        again: Again,
    ) -> Next {
        let now = Instant::now();
        let mut flight = flight;
        let is_late = self.way.deadline.is_some_and(|deadline| deadline <= now);
        if is_late && !content.is_available() {
            // Who was slow, the client with its content or the node, is not known.
            flight.told_nothing(now);
        } else {
            flight.failed(&failure, now);
        }
        let node = Rc::clone(&flight.local().label);
        let took = flight.took(now);
        if matches!(again, Again::Elsewhere) {
            self.tried.push(flight.local().node.state.id());
        }
        // Its place is free for others, and this request does not hold one while it waits for another.
        drop(flight);
        let view = self.way.group.view();
        let plan = &view.set.plan;
        let may = trouble_of(&failure)
            .is_some_and(|trouble| may_retry(&plan.retry, self.way.context.idempotent, trouble));
        if may && content.is_available() && self.may_go_on(plan, now) {
            match self.way.board(&self.tried).await {
                Ok(next) => {
                    let outcome = AttemptOutcome::Failed(failure);
                    self.attempts.push(Attempt {
                        node,
                        outcome,
                        took,
                    });
                    return self.again(next);
                }
                // The failure says more.
                Err(NoFlight::NoNode(_)) => {}
                Err(none) => {
                    let outcome = AttemptOutcome::Failed(failure);
                    self.attempts.push(Attempt {
                        node,
                        outcome,
                        took,
                    });
                    return Next::Failed(self.turned_away(none));
                }
            }
        }
        Next::Failed(Failed {
            kind: FailedKind::Node { node, failure },
            attempts: std::mem::take(&mut self.attempts),
            retry_after: None,
        })
    }

    fn again(&self, next: Flight) -> Next {
        count(&self.way.group.counts.retries);
        Next::Again(next)
    }

    /// Whether there may be another attempt: tries, time and budget.
    fn may_go_on(&self, plan: &GroupPlan, now: Instant) -> bool {
        let retry = &plan.retry;
        let elapsed = now.saturating_duration_since(self.way.began);
        self.attempts.len() + 1 < retry.tries as usize
            && retry.within.is_none_or(|within| elapsed < within)
            && self.way.deadline.is_none_or(|deadline| now < deadline)
            && self.way.has_budget(now)
    }

    fn deliver(&mut self, plan: &GroupPlan, flight: Flight, response: ClientResponse) -> Delivered {
        let local = flight.local();
        let node = Rc::clone(&local.label);
        let route = &*local.node.route;
        let sticky = plan.sticky.as_ref();
        let set_cookie = sticky
            .filter(|_| self.way.context.sticky != Some(route))
            .map(|sticky| set_cookie(sticky, route));
        Delivered {
            node,
            set_cookie,
            attempts: std::mem::take(&mut self.attempts),
            response: flight.accompany(response, self.way.deadline),
        }
    }

    fn turned_away(&mut self, none: NoFlight) -> Failed {
        let group = self.way.group;
        let (kind, counted, retry_after) = match none {
            NoFlight::NoNode(after) => (FailedKind::NoNode, &group.counts.no_node, after),
            NoFlight::QueueFull => (FailedKind::QueueFull, &group.counts.queue_full, None),
            NoFlight::QueueTimedOut => {
                let counted = &group.counts.queue_timed_out;
                (FailedKind::QueueTimedOut, counted, None)
            }
        };
        count(counted);
        Failed {
            kind,
            attempts: std::mem::take(&mut self.attempts),
            retry_after,
        }
    }
}

impl Way<'_> {
    /// Ends an attempt that went wrong while another one goes on.
    pub(super) fn note(&self, landed: Landed) -> Attempt {
        let now = Instant::now();
        let Landed {
            mut flight, result, ..
        } = landed;
        let outcome = match result {
            Ok(response) => {
                conclude(&mut flight, &self.group.view().set.plan, &response, now);
                AttemptOutcome::Status(response.status)
            }
            Err(failure) => {
                flight.failed(&failure, now);
                AttemptOutcome::Failed(failure)
            }
        };
        flight.attempt(outcome, now)
    }

    /// Takes a token for one more attempt. Tells whether there was one.
    pub(super) fn has_budget(&self, now: Instant) -> bool {
        let granted = self
            .group
            .plan(|plan| self.group.group.may_retry(plan, now));
        if !granted {
            count(&self.group.counts.budget_spent);
        }
        granted
    }
}

/// Tells the node what its answer says of it.
fn conclude(flight: &mut Flight, plan: &GroupPlan, response: &ClientResponse, now: Instant) {
    match plan.failure_statuses.contains(&response.status) {
        true => flight.failed_by(FailureKind::Status, now),
        false => flight.answered(now),
    }
}

/// What the rules of retries know of a failure; `None` where no other node would do better.
fn trouble_of(failure: &RequestFailure) -> Option<Trouble> {
    let sent = failure.request_sent;
    match failure.cause {
        FailureCause::Request(_)
        | FailureCause::Source(_)
        | FailureCause::NoTunnel
        | FailureCause::NoDescriptors => None,
        FailureCause::TimedOut => Some(Trouble::TimedOut { sent }),
        _ => Some(Trouble::Error { sent }),
    }
}
