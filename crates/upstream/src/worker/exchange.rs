//! A request to a group and its response: one attempt over an idle connection, and what follows where that is not enough.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use apus_net::client::{ClientRequest, OriginExchange};

use super::WorkerGroup;
use super::acquire::Acquisition;
use super::attempt::RequestAttempt;
use super::group_view::GroupView;
use super::request_body::RequestBody;
use super::send::{
    FirstStep, RequestAttempts, RequestContext, RequestTemplate, UpstreamError, UpstreamRequest,
    UpstreamResponse,
};
use crate::counters::increment;
use crate::queue::TriedNodes;

/// A request to a group, as the future of its response. Dropping it, or later the body of the response, ends
/// the request and releases what it took.
///
/// Nearly all requests are sent once, over an idle connection to a node that is free: this state machine does
/// that itself. Whatever else may be needed, such as waiting for a node, connecting, deadlines, hedging and
/// retries, is done by `RequestAttempts`.
#[must_use = "the request is cancelled if nothing waits for its response"]
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
    /// `None` once it has ended.
    attempt: Option<RequestAttempt>,
    response: OriginExchange,
}

impl WorkerGroup {
    /// Sends a request to one of the nodes, and to others if that fails and the retry rules allow it.
    pub fn send(
        self: &Rc<Self>,
        request: ClientRequest,
        context: RequestContext<'_>,
    ) -> UpstreamExchange {
        increment(&self.counters.requests);
        let view = self.view();
        let began = Instant::now();
        let total = view.set.plan.total_timeout;
        let total = total.and_then(|total| began.checked_add(total));
        let mut body = RequestBody::new(request.body);
        let attempts = RequestAttempts {
            request: UpstreamRequest {
                group: Rc::clone(self),
                key: context.key,
                sticky: context.sticky.map(Box::from),
                client: context.client,
                idempotent: context.idempotent,
                deadline: context.deadline.into_iter().chain(total).min(),
                template: RequestTemplate {
                    head: request.head,
                    interim: request.interim,
                    timeouts: request.timeouts,
                    stderr: request.stderr,
                },
                began,
            },
            tried: TriedNodes::new(),
            failed: Vec::new(),
        };
        let queueing = Some(None);
        let first = attempts
            .request
            .choose_in(&view, &attempts.tried, queueing, began);
        let mut attempt = match first {
            Acquisition::Acquired(attempt) => attempt,
            other => return UpstreamExchange::further(attempts, body, FirstStep::Acquire(other)),
        };
        if let Some(receiver) = attempt.admit() {
            let first = FirstStep::Admit(attempt, receiver);
            return UpstreamExchange::further(attempts, body, first);
        }
        match attempts.request.send_at_once(&view, &attempt, &mut body) {
            Some(response) => UpstreamExchange {
                first: Some(IdleAttempt {
                    attempts,
                    body,
                    attempt: Some(attempt),
                    response,
                }),
                further: None,
            },
            None => UpstreamExchange::further(attempts, body, FirstStep::Send(attempt)),
        }
    }
}

impl UpstreamRequest {
    /// Sends the request over an idle connection, if there is one, and if no time limits the whole request and
    /// no second attempt may begin beside the first.
    fn send_at_once(
        &self,
        view: &GroupView,
        attempt: &RequestAttempt,
        body: &mut RequestBody,
    ) -> Option<OriginExchange> {
        if self.deadline.is_some() || view.set.plan.retry.hedge.is_some() {
            return None;
        }
        let idle = self.checkout(attempt)?;
        Some(idle.send(self.template.request(body.take())))
    }
}

impl UpstreamExchange {
    fn further(attempts: RequestAttempts, body: RequestBody, first: FirstStep) -> Self {
        Self {
            first: None,
            further: Some(Box::pin(attempts.send(body, first))),
        }
    }
}

impl Future for UpstreamExchange {
    type Output = Result<UpstreamResponse, UpstreamError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(first) = &mut self.first {
            let next = match ready!(first.poll(cx)) {
                Ok(response) => return Poll::Ready(Ok(response)),
                Err(next) => next,
            };
            if let Some(first) = self.first.take() {
                *self = Self::further(first.attempts, first.body, next);
            }
        }
        match &mut self.further {
            Some(attempts) => attempts.as_mut().poll(cx),
            None => Poll::Pending,
        }
    }
}

impl IdleAttempt {
    /// Waits for the response, or returns what has to be done next.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<UpstreamResponse, FirstStep>> {
        let result = ready!(Pin::new(&mut self.response).poll(cx));
        let Some(attempt) = self.attempt.take() else {
            return Poll::Pending;
        };
        Poll::Ready(match result {
            Ok(response) => self
                .attempts
                .handle_response(attempt, response, &self.body)
                .map_err(FirstStep::Send),
            Err(mut failure) => {
                self.body.put_back(failure.body.take());
                Err(FirstStep::Failed(attempt, failure))
            }
        })
    }
}
