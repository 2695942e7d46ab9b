//! The sending of one attempt, over an idle or a new connection, or of two hedged attempts at once.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_client::{ClientResponse, FailureCause, OriginConnection, RequestFailure, RequestPhase};
use apus_http::Body;
use tokio::time::{sleep, timeout_at};

use super::attempt::RequestAttempt;
use super::outcome::{AttemptFailure, FailedAttempt};
use super::request::{RequestAttempts, UpstreamRequest};
use super::request_body::RequestBody;
use super::retry_token::RetryToken;
use crate::counters::increment;
use crate::pool::{ConnectionFailure, PooledConnection};

/// The most connections over which one attempt sends its request.
// A node that accepts connections and refuses request after request over them must not hold an attempt for ever.
const MAX_CONNECTIONS: usize = 8;

/// The result of an attempt.
pub(super) struct AttemptResult {
    pub(super) attempt: RequestAttempt,
    pub(super) result: Result<ClientResponse, RequestFailure>,
    /// Whether the node may have seen the request over an earlier connection of this attempt.
    pub(super) was_seen: bool,
}

impl RequestAttempts {
    /// Sends the request to the node of the attempt, hedged if the plan says so.
    pub(super) async fn send_attempt(
        &mut self,
        attempt: RequestAttempt,
        body: &mut RequestBody,
    ) -> AttemptResult {
        let hedge = self.request.group.view().set.plan.retry.hedge;
        let may_hedge = self.request.idempotent
            // Hedging is for slow nodes. After a failure, the retry itself is the second attempt.
            && self.failed.is_empty()
            // A second node would act on the body, too, and a stream can be read once only.
            && body.is_empty()
            && self.request.template.head.upgrade.is_none();
        match hedge.filter(|_| may_hedge) {
            // Boxed, so that requests without hedging have a smaller future.
            Some(after) => Box::pin(self.send_hedged(attempt, after)).await,
            None => self.request.send_over_any(attempt, body).await,
        }
    }

    /// Sends the request to a second node when the first is slow. The first response wins, and the other
    /// attempt ends.
    async fn send_hedged(&mut self, attempt: RequestAttempt, after: Duration) -> AttemptResult {
        let slow = Rc::clone(attempt.node());
        let mut first_body = RequestBody::new(Body::Empty);
        let mut second_body = RequestBody::new(Body::Empty);
        let began = Instant::now();
        let first = self.request.send_over_any(attempt, &mut first_body);
        let mut first = pin!(first);
        tokio::select! {
            // A response that comes with the end of the wait is used.
            biased;
            result = &mut first => return result,
            () = sleep(after) => {}
        }
        self.tried.push(slow.node.state.id());
        // Out of the budget of retries: when all nodes are slow, a second attempt for each request would double the
        // load.
        let Some(token) = RetryToken::take(&self.request.group, Instant::now()) else {
            return first.await;
        };
        let Some(second) = self.request.try_acquire(&self.tried) else {
            drop(token);
            return first.await;
        };
        token.spend();
        increment(&self.request.group.counters.hedges);
        self.tried.push(second.node().node.state.id());
        let mut second = pin!(self.request.send_over_any(second, &mut second_body));
        let (ended, pending) = tokio::select! {
            biased;
            ended = &mut first => (ended, PendingAttempt::Second),
            ended = &mut second => (ended, PendingAttempt::First),
        };
        let is_good = match &ended.result {
            Ok(response) => !(self.request.group).plan(|plan| plan.is_failure(response.status)),
            Err(_) => false,
        };
        if is_good {
            if matches!(pending, PendingAttempt::First) {
                let now = Instant::now();
                // The slow node has no response to measure. Without this, its average would contain only its fast
                // responses.
                slow.add_latency(now.saturating_duration_since(began), now);
            }
            return ended;
        }
        let failed = self.request.record_result(ended);
        self.failed.push(failed);
        match pending {
            PendingAttempt::First => first.await,
            PendingAttempt::Second => second.await,
        }
    }
}

/// The one of two hedged attempts that has not ended.
enum PendingAttempt {
    First,
    Second,
}

impl UpstreamRequest {
    /// Records the result of a failed attempt while another one is in flight.
    fn record_result(&self, ended: AttemptResult) -> FailedAttempt {
        let now = Instant::now();
        let AttemptResult {
            mut attempt,
            result,
            ..
        } = ended;
        let failure = match result {
            Ok(response) => {
                let view = self.group.view();
                attempt.record_status(&view.set.plan, response.status, now);
                AttemptFailure::Status(response.status)
            }
            Err(failure) => {
                attempt.record_failure(&failure, now);
                AttemptFailure::NoResponse(failure)
            }
        };
        attempt.describe(failure, now)
    }

    /// Sends the request over an idle connection, or a new one.
    async fn send_over_any(
        &self,
        attempt: RequestAttempt,
        body: &mut RequestBody,
    ) -> AttemptResult {
        let first = self.send_over_idle(&attempt, body).await;
        self.send_to_node(attempt, first, body).await
    }

    /// Sends the request over an idle connection, if there is one.
    async fn send_over_idle(
        &self,
        attempt: &RequestAttempt,
        body: &mut RequestBody,
    ) -> Option<Result<ClientResponse, RequestFailure>> {
        let idle = self.checkout(attempt)?;
        Some(self.send_over(idle.into(), body).await)
    }

    /// Sends the request over further connections after the `first` result, which came from an idle
    /// connection, if there was one. A connection that the node closed meanwhile, or on which it accepts no
    /// more requests, is no failure of the node: the request is sent over another one, if it may be sent
    /// again.
    pub(super) async fn send_to_node(
        &self,
        attempt: RequestAttempt,
        first: Option<Result<ClientResponse, RequestFailure>>,
        body: &mut RequestBody,
    ) -> AttemptResult {
        let pool = &attempt.node().pool;
        let mut over_idle = first;
        let mut connections = 1;
        let mut needs_http1 = false;
        let mut was_seen = false;
        loop {
            let is_reused = over_idle.is_some();
            let result = match over_idle.take() {
                Some(result) => result,
                None => self.send_over_new(&attempt, needs_http1, body).await,
            };
            let failure = match &result {
                Err(failure) if body.is_available() => ConnectionFailure::of(failure, is_reused),
                _ => ConnectionFailure::Permanent,
            };
            if failure == ConnectionFailure::NoTunnel {
                if needs_http1 || !pool.negotiates_version() {
                    return AttemptResult {
                        attempt,
                        result,
                        was_seen,
                    };
                }
                // WebSocket over HTTP/2 needs RFC 8441, which many origins do not have although they speak HTTP/2.
                needs_http1 = true;
                continue;
            }
            let is_seen = |failure: &RequestFailure| failure.request_sent;
            let is_seen = result.as_ref().err().is_some_and(is_seen);
            let may_be_sent = result.is_err() && (!is_seen || self.idempotent);
            if failure == ConnectionFailure::Permanent
                || !may_be_sent
                || connections == MAX_CONNECTIONS
            {
                return AttemptResult {
                    attempt,
                    result,
                    was_seen,
                };
            }
            was_seen |= is_seen;
            increment(&self.group.counters.reconnects);
            connections += 1;
            if failure == ConnectionFailure::Refused {
                over_idle = self.send_over_idle(&attempt, body).await;
            }
            // Else the node has likely closed the other idle connections, too.
        }
    }

    /// Takes an idle connection for an attempt.
    pub(super) fn checkout(&self, attempt: &RequestAttempt) -> Option<OriginConnection> {
        let pool = &attempt.node().pool;
        pool.checkout(self.client, self.idempotent, attempt.permit())
    }

    async fn send_over_new(
        &self,
        attempt: &RequestAttempt,
        needs_http1: bool,
        body: &mut RequestBody,
    ) -> Result<ClientResponse, RequestFailure> {
        let pool = &attempt.node().pool;
        let (client, timeouts) = (self.client, &self.template.timeouts);
        let began = Instant::now();
        let mut connecting = Box::pin(async {
            if needs_http1 {
                pool.connect_http1(client, timeouts).await
            } else {
                pool.connect(client, timeouts, attempt.permit()).await
            }
        });
        let connection = self
            .until_deadline(RequestPhase::Connect, connecting.as_mut())
            .await;
        attempt.note_connect(began.elapsed());
        let connection = connection?;
        self.send_over(connection, body).await
    }

    async fn send_over(
        &self,
        connection: PooledConnection,
        body: &mut RequestBody,
    ) -> Result<ClientResponse, RequestFailure> {
        let sending = pin!(connection.send(&self.template, body.take()));
        let result = self.until_deadline(RequestPhase::Head, sending).await;
        result.map_err(|mut failure| {
            body.put_back(failure.body.take());
            failure
        })
    }

    /// Waits for a step, but no longer than the deadline of the request. The step is borrowed, because a
    /// future that takes another by value has room for it twice.
    async fn until_deadline<T>(
        &self,
        phase: RequestPhase,
        step: Pin<&mut impl Future<Output = Result<T, RequestFailure>>>,
    ) -> Result<T, RequestFailure> {
        let Some(deadline) = self.deadline else {
            return step.await;
        };
        match Box::pin(timeout_at(deadline.into(), step)).await {
            Ok(done) => done,
            Err(_) => Err(RequestFailure {
                phase,
                cause: FailureCause::TimedOut,
                request_sent: !matches!(phase, RequestPhase::Connect),
                body: None,
            }),
        }
    }
}
