//! One attempt at a node, or two beside each other: a connection, the request, the head of the response.

use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::time::{Duration, Instant};

use apus_http::Body;
use apus_net::client::{ClientResponse, FailureCause, RequestFailure, RequestPhase};
use tokio::time::{sleep, timeout_at};

use super::content::Content;
use super::flight::Flight;
use super::send::{Journey, Way};
use crate::counts::count;
use crate::pool::{Fate, Lease};

/// Over how many connections a request is sent to one node at most.
const CONNECTIONS: usize = 8;

/// An attempt that ended.
pub(super) struct Landed {
    pub(super) flight: Flight,
    pub(super) result: Result<ClientResponse, RequestFailure>,
    /// Whether the node may have seen the request over a connection before the one that ended it.
    pub(super) was_seen: bool,
}

impl Journey<'_> {
    /// Sends the request to the node.
    pub(super) async fn fly(&mut self, flight: Flight, content: &mut Content) -> Landed {
        let hedge = self.way.group.view().set.plan.retry.hedge;
        let may_hedge = self.way.context.idempotent
            && self.attempts.is_empty()
            && content.is_empty()
            && self.way.parts.head.upgrade.is_none();
        match hedge.filter(|_| may_hedge) {
            // Kept out of the way of those who do not use it.
            Some(after) => Box::pin(self.hedge(flight, after)).await,
            None => self.way.attempt(flight, content).await,
        }
    }

    /// Sends the request to a second node when the first is slow; the first answer counts, and the other
    /// attempt ends.
    async fn hedge(&mut self, flight: Flight, after: Duration) -> Landed {
        let slow = Rc::clone(flight.local());
        let (mut content, mut again) = (Content::new(Body::Empty), Content::new(Body::Empty));
        let began = Instant::now();
        let first = self.way.attempt(flight, &mut content);
        let mut first = pin!(first);
        tokio::select! {
            biased;
            landed = &mut first => return landed,
            () = sleep(after) => {}
        }
        self.tried.push(slow.node.state.id());
        let may = self.way.has_budget(Instant::now());
        let Some(other) = may.then(|| self.way.board_now(&self.tried)).flatten() else {
            return first.await;
        };
        count(&self.way.group.counts.hedges);
        self.tried.push(other.local().node.state.id());
        let mut second = pin!(self.way.attempt(other, &mut again));
        let (landed, rest) = tokio::select! {
            biased;
            landed = &mut first => (landed, Rest::Second),
            landed = &mut second => (landed, Rest::First),
        };
        let is_good = match &landed.result {
            Ok(response) => !self.way.group.plan(|plan| plan.is_failure(response.status)),
            Err(_) => false,
        };
        if is_good {
            if matches!(rest, Rest::First) {
                let now = Instant::now();
                slow.answered_in(now.saturating_duration_since(began), now);
            }
            return landed;
        }
        let went_wrong = self.way.note(landed);
        self.attempts.push(went_wrong);
        match rest {
            Rest::First => first.await,
            Rest::Second => second.await,
        }
    }
}

/// Which of two attempts goes on.
enum Rest {
    First,
    Second,
}

impl Way<'_> {
    /// Sends the request over a connection that is open, or a new one. That the node closed a connection
    /// meanwhile, or has no room on it, says nothing of the node: the request goes over another one, if
    /// it may be sent again.
    async fn attempt(&self, flight: Flight, content: &mut Content) -> Landed {
        let pool = &flight.local().pool;
        let mut open = pool.checkout(self.context.client, self.context.idempotent);
        let mut connections = 1;
        let mut needs_http1 = false;
        let mut was_seen = false;
        loop {
            let is_reused = open.is_some();
            let leased = match open {
                Some(lease) => Ok(lease),
                None => {
                    let (client, timeouts) = (self.context.client, &self.parts.timeouts);
                    // Seldom and large: kept out of the way of requests that have a connection.
                    let mut connecting = Box::pin(async {
                        match needs_http1 {
                            true => pool.connect_http1(client, timeouts).await,
                            false => pool.connect(client, timeouts).await,
                        }
                    });
                    self.in_time(RequestPhase::Connect, connecting.as_mut())
                        .await
                }
            };
            let result = match leased {
                Ok(lease) => self.send_over(lease, content).await,
                Err(failure) => Err(failure),
            };
            let fate = match &result {
                Err(failure) if content.is_available() => Fate::of(failure, is_reused),
                _ => Fate::Lasting,
            };
            if fate == Fate::NoTunnel {
                if needs_http1 || !pool.has_choice() {
                    return Landed {
                        flight,
                        result,
                        was_seen,
                    };
                }
                needs_http1 = true;
                open = None;
                continue;
            }
            let is_seen = |failure: &RequestFailure| failure.request_sent;
            let is_seen = result.as_ref().err().is_some_and(is_seen);
            let may_be_sent = result.is_err() && (!is_seen || self.context.idempotent);
            if fate == Fate::Lasting || !may_be_sent || connections == CONNECTIONS {
                return Landed {
                    flight,
                    result,
                    was_seen,
                };
            }
            was_seen |= is_seen;
            count(&self.group.counts.reconnects);
            connections += 1;
            open = match fate {
                Fate::Refused => pool.checkout(self.context.client, self.context.idempotent),
                // Others that wait have likely been closed, too.
                _ => None,
            };
        }
    }

    async fn send_over(
        &self,
        lease: Lease,
        content: &mut Content,
    ) -> Result<ClientResponse, RequestFailure> {
        let sending = pin!(lease.send(self.parts.request(content.take())));
        let result = self.in_time(RequestPhase::Head, sending).await;
        result.map_err(|mut failure| {
            content.put_back(failure.body.take());
            failure
        })
    }

    /// Waits no longer than the request may take. The step is lent, as every future that takes another
    /// has room for it twice.
    async fn in_time<T>(
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
