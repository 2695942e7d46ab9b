//! A request to a group and its response: one attempt over an idle connection, and what follows where that is not enough.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use apus_client::{ClientRequest, OriginExchange};

use super::WorkerGroup;
use super::acquire::Acquisition;
use super::attempt::RequestAttempt;
use super::outcome::{UpstreamError, UpstreamResponse};
use super::request::{RequestAttempts, RequestContext, UpstreamRequest};
use super::request_body::RequestBody;
use super::send::FirstStep;
use crate::counters::increment;
use crate::queue::TriedNodes;

/// A request to a group, as the future of its response. It begins when it is first polled. Dropping it, or later
/// the body of the response, ends the request and releases what it took.
///
/// Nearly all requests are sent once, over an idle connection to a node that is free: this state machine does
/// that itself. Whatever else may be needed, such as waiting for a node, connecting, deadlines, hedging and
/// retries, is done by `RequestAttempts`.
#[must_use = "the request is not sent if nothing waits for its response"]
pub struct UpstreamExchange {
    /// The attempt over an idle connection, while it is the only one.
    first: Option<IdleAttempt>,
    further: Option<FurtherAttempts>,
}

type FurtherAttempts = Pin<Box<dyn Future<Output = Result<UpstreamResponse, UpstreamError>>>>;

/// The first attempt of a request, over an idle connection.
struct IdleAttempt {
    attempts: RequestAttempts,
    body: RequestBody,
    /// `None` until it begins.
    sent: Option<(RequestAttempt, OriginExchange)>,
}

impl WorkerGroup {
    /// Sends a request to one of the nodes, and to others if that fails and the retry rules allow it.
    pub fn send(
        self: &Rc<Self>,
        request: ClientRequest,
        context: RequestContext<'_>,
    ) -> UpstreamExchange {
        // One state machine instead of a future for each layer: a proxied request over an idle connection took
        // 25,600 instructions before, and 22,200 since.
        let began = Instant::now();
        let total = self.plan(|plan| plan.total_timeout);
        let total = total.and_then(|total| began.checked_add(total));
        let attempts = RequestAttempts {
            request: UpstreamRequest {
                group: Rc::clone(self),
                key: context.key,
                sticky: context.sticky.map(Box::from),
                client: context.client,
                idempotent: context.idempotent,
                deadline: context.deadline.into_iter().chain(total).min(),
                template: request.template,
                began,
            },
            tried: TriedNodes::new(),
            failed: Vec::new(),
        };
        UpstreamExchange {
            first: Some(IdleAttempt {
                attempts,
                body: RequestBody::new(request.body),
                sent: None,
            }),
            further: None,
        }
    }
}

impl Future for UpstreamExchange {
    type Output = Result<UpstreamResponse, UpstreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(first) = &mut self.first {
            let result = ready!(first.poll(cx));
            let first = self.first.take();
            match (result, first) {
                (Ok(response), _) => return Poll::Ready(Ok(response)),
                (Err(next), Some(IdleAttempt { attempts, body, .. })) => {
                    self.further = Some(Box::pin(attempts.send(body, next)));
                }
                (Err(_), None) => {}
            }
        }
        match &mut self.further {
            Some(attempts) => attempts.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl IdleAttempt {
    /// Sends the request and waits for the response, or returns what has to be done next.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<UpstreamResponse, FirstStep>> {
        let (_, exchange) = match &mut self.sent {
            Some(sent) => sent,
            not_begun => {
                let begun = match self.attempts.request.begin(&mut self.body) {
                    Ok(begun) => begun,
                    Err(next) => return Poll::Ready(Err(next)),
                };
                not_begun.insert(begun)
            }
        };
        let result = ready!(Pin::new(exchange).poll(cx));
        let Some((attempt, _)) = self.sent.take() else {
            return Poll::Pending;
        };
        Poll::Ready(match result {
            Ok(response) => self
                .attempts
                .handle_response(attempt, response, &self.body)
                .map_err(FirstStep::Send),
            Err(mut failure) => {
                // A stream of which nothing was sent can still be sent to another node.
                self.body.put_back(failure.body.take());
                Err(FirstStep::Failed(attempt, Box::new(failure)))
            }
        })
    }
}

impl UpstreamRequest {
    /// Sends the request to a node, if one is free and has an idle connection, no time limits the whole request,
    /// and no second attempt may begin beside the first. Else returns what has to be done.
    fn begin(&self, body: &mut RequestBody) -> Result<(RequestAttempt, OriginExchange), FirstStep> {
        increment(&self.group.counters.requests);
        let view = self.group.view();
        let mut attempt = match self.choose_in(&view, &TriedNodes::new(), Some(None), self.began) {
            Acquisition::Acquired(attempt) => attempt,
            other => return Err(FirstStep::Acquire(other)),
        };
        if let Some(receiver) = attempt.admit() {
            return Err(FirstStep::Admit(attempt, receiver));
        }
        if self.deadline.is_some() || view.set.plan.retry.hedge.is_some() {
            return Err(FirstStep::Send(attempt));
        }
        match self.checkout(&attempt) {
            Some(idle) => {
                let exchange = idle.send_attempt(&self.template, body.take());
                Ok((attempt, exchange))
            }
            None => Err(FirstStep::Send(attempt)),
        }
    }
}
