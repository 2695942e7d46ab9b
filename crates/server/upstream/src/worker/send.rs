//! The attempts of a request after the first one failed, or if it needs more than an idle connection: waiting for a node, sending, and retrying at other nodes.

use std::rc::Rc;
use std::time::Instant;

use apus_client::{ClientResponse, FailureCause, RequestFailure};

use super::acquire::{AcquireError, Acquisition};
use super::attempt::RequestAttempt;
use super::outcome::{
    AttemptFailure, FailedAttempt, UpstreamError, UpstreamErrorKind, UpstreamResponse,
};
use super::request::RequestAttempts;
use super::request_body::RequestBody;
use super::retry_token::RetryToken;
use crate::balance::set_cookie;
use crate::counters::{increment, is_of_script};
use crate::plan::GroupPlan;
use crate::pool::{ConnectionFailure, PermitReceiver};
use crate::retry::{RetryReason, is_retryable};

/// The nodes that a retry may use.
enum RetryScope {
    /// All, the one that failed included.
    AnyNode,
    /// All but the one that failed.
    OtherNodes,
}

/// Where the attempts of a request begin that are not over after one over an idle connection.
pub(super) enum FirstStep {
    /// A node has to be acquired.
    Acquire(Acquisition),
    /// The application of this node has to admit the request.
    Admit(RequestAttempt, PermitReceiver),
    /// The request has to be sent to this node.
    Send(RequestAttempt),
    /// It was sent over an idle connection to this node, and failed.
    Failed(RequestAttempt, Box<RequestFailure>),
}

impl RequestAttempts {
    /// Sends the request until there is a response, or until the retry rules allow no further attempt.
    pub(super) async fn send(
        mut self,
        mut body: RequestBody,
        first: FirstStep,
    ) -> Result<UpstreamResponse, UpstreamError> {
        let mut ended = match first {
            FirstStep::Acquire(acquisition) => {
                match self.request.wait_for(&self.tried, acquisition).await {
                    Ok(attempt) => self.send_attempt(attempt, &mut body).await,
                    Err(error) => return Err(self.reject(error)),
                }
            }
            FirstStep::Admit(attempt, receiver) => {
                let waiting = self.request.wait_for_application(attempt, receiver, None);
                match waiting.await {
                    Ok(attempt) => self.send_attempt(attempt, &mut body).await,
                    Err(error) => return Err(self.reject(error)),
                }
            }
            FirstStep::Send(attempt) => self.send_attempt(attempt, &mut body).await,
            FirstStep::Failed(attempt, failure) => {
                let first = Some(Err(*failure));
                self.request.send_to_node(attempt, first, &mut body).await
            }
        };
        loop {
            let next = match ended.result {
                Ok(response) => match self.handle_response(ended.attempt, response, &body) {
                    Ok(response) => return Ok(response),
                    Err(next) => next,
                },
                Err(failure) => {
                    let scope = if !ended.was_seen && self.is_process_lost(&failure) {
                        RetryScope::AnyNode
                    } else {
                        RetryScope::OtherNodes
                    };
                    let next = self.handle_failure(ended.attempt, failure, &body, scope);
                    next.await?
                }
            };
            ended = self.send_attempt(next, &mut body).await;
        }
    }

    /// Returns the response, or the attempt of a retry after a status that the retry rules name, if another
    /// node is available at once.
    pub(super) fn handle_response(
        &mut self,
        attempt: RequestAttempt,
        response: ClientResponse,
        body: &RequestBody,
    ) -> Result<UpstreamResponse, RequestAttempt> {
        let now = Instant::now();
        let mut attempt = attempt;
        let view = self.request.group.view();
        let plan = &view.set.plan;
        attempt.record_status(plan, response.status, now);
        let reason = RetryReason::Status(response.status);
        if is_retryable(&plan.retry, self.request.idempotent, reason)
            && body.is_available()
            && let Some(token) = self.retry_token(plan, now)
        {
            self.tried.push(attempt.node().node.state.id());
            // Without waiting: there is a response, which is better than a place in a queue.
            if let Some(next) = self.request.try_acquire(&self.tried) {
                let failure = AttemptFailure::Status(response.status);
                self.failed.push(attempt.describe(failure, now));
                return Err(self.retry(token, next));
            }
        }
        Ok(self.respond(plan, attempt, response, now))
    }

    /// Whether a FastCGI process closed the connection without a response to the first attempt. One address
    /// has many processes, so a retry at the same node goes to another one. There is only one such retry:
    /// a script that crashes its process would otherwise crash them all.
    fn is_process_lost(&self, failure: &RequestFailure) -> bool {
        self.request.template.head.params.is_some()
            && self.request.idempotent
            && self.failed.is_empty()
            && ConnectionFailure::of(failure, true) == ConnectionFailure::Stale
    }

    /// Returns the attempt of a retry if the rules allow one after this failure, or the error.
    async fn handle_failure(
        &mut self,
        attempt: RequestAttempt,
        failure: RequestFailure,
        body: &RequestBody,
        scope: RetryScope,
    ) -> Result<RequestAttempt, UpstreamError> {
        let now = Instant::now();
        let mut attempt = attempt;
        let is_late = (self.request.deadline).is_some_and(|deadline| deadline <= now);
        if is_late && !body.is_available() {
            // No failure of the node: the client may have been slow to send the body.
            attempt.abandon_probe(now);
        } else {
            attempt.record_failure(&failure, now);
        }
        let node = Rc::clone(&attempt.node().label);
        let times = attempt.times(now);
        if matches!(scope, RetryScope::OtherNodes) {
            self.tried.push(attempt.node().node.state.id());
        }
        // Releases the slot before the request waits for another one.
        drop(attempt);
        let view = self.request.group.view();
        let plan = &view.set.plan;
        let idempotent = self.request.idempotent;
        let is_retryable = retry_reason(&failure)
            .is_some_and(|reason| is_retryable(&plan.retry, idempotent, reason));
        if is_retryable
            && body.is_available()
            && let Some(token) = self.retry_token(plan, now)
        {
            match self.request.acquire(&self.tried).await {
                Ok(next) => {
                    self.failed.push(FailedAttempt {
                        node,
                        failure: AttemptFailure::NoResponse(failure),
                        times,
                    });
                    return Ok(self.retry(token, next));
                }
                // The failure is the more useful error.
                Err(AcquireError::NoNode(_)) => {}
                Err(error) => {
                    self.failed.push(FailedAttempt {
                        node,
                        failure: AttemptFailure::NoResponse(failure),
                        times,
                    });
                    return Err(self.reject(error));
                }
            }
        }
        Err(UpstreamError {
            kind: UpstreamErrorKind::Node {
                node,
                failure,
                times,
            },
            attempts: std::mem::take(&mut self.failed),
            retry_after: None,
        })
    }

    fn retry(&self, token: RetryToken, next: RequestAttempt) -> RequestAttempt {
        token.spend();
        increment(&self.request.group.counters.retries);
        next
    }

    /// The token of another attempt, if the number of tries, the time and the budget allow one.
    fn retry_token(&self, plan: &GroupPlan, now: Instant) -> Option<RetryToken> {
        let retry = &plan.retry;
        let elapsed = now.saturating_duration_since(self.request.began);
        let is_within_limits = self.failed.len() + 1 < retry.tries as usize
            && retry.within.is_none_or(|within| elapsed < within)
            && self.request.deadline.is_none_or(|deadline| now < deadline);
        if !is_within_limits {
            return None;
        }
        RetryToken::take(&self.request.group, now)
    }

    fn respond(
        &mut self,
        plan: &GroupPlan,
        attempt: RequestAttempt,
        response: ClientResponse,
        now: Instant,
    ) -> UpstreamResponse {
        let local = attempt.node();
        let node = Rc::clone(&local.label);
        let route = &*local.node.route;
        let sticky = plan.sticky.as_ref();
        let set_cookie = sticky
            .filter(|_| self.request.sticky.as_deref() != Some(route))
            .map(|sticky| set_cookie(sticky, route));
        UpstreamResponse {
            node,
            took: now.saturating_duration_since(self.request.began),
            times: attempt.times(now),
            set_cookie,
            attempts: std::mem::take(&mut self.failed),
            response: attempt.attach_to(response, self.request.deadline),
        }
    }

    fn reject(&mut self, error: AcquireError) -> UpstreamError {
        let counters = &self.request.group.counters;
        let (kind, counter, retry_after) = match error {
            AcquireError::NoNode(after) => (UpstreamErrorKind::NoNode, &counters.no_node, after),
            AcquireError::QueueFull => (UpstreamErrorKind::QueueFull, &counters.queue_full, None),
            AcquireError::QueueTimedOut => {
                let counter = &counters.queue_timed_out;
                (UpstreamErrorKind::QueueTimedOut, counter, None)
            }
        };
        increment(counter);
        UpstreamError {
            kind,
            attempts: std::mem::take(&mut self.failed),
            retry_after,
        }
    }
}

/// Returns the reason for which the retry rules may retry after a failure; `None` where a retry would fail
/// for the same reason.
fn retry_reason(failure: &RequestFailure) -> Option<RetryReason> {
    let sent = failure.request_sent;
    match failure.cause {
        FailureCause::Request(_)
        | FailureCause::Source(_)
        | FailureCause::NoTunnel
        | FailureCause::NoDescriptors => None,
        // Another node has the same script.
        FailureCause::Protocol(ref error) if is_of_script(&**error) => None,
        FailureCause::TimedOut => Some(RetryReason::TimedOut { sent }),
        _ => Some(RetryReason::Error { sent }),
    }
}
