//! Limits on the requests of a client at once: 503 (RFC 9110 section 15.6.4), with a queue in which clients take turns.

use std::fmt;
use std::time::Duration;

use apus_access::{Concurrency, ConcurrencyPlace, LimitOutcome, PlaceAttempt, WaitingPlace};
use apus_handler::gate::{Gate, GateDecision, GatePass, QuotaLeft};
use apus_handler::middleware::Hook;
use apus_handler::{Middleware, Next, Rendering};
use apus_http::{Request, Response, ResponseFuture, StatusCode};

use crate::client_network::client_network;
use crate::limit::{LimitHandle, Partition, PolicyFields, RefusedRequest, sleep};
use crate::limit_key::LimitKey;

/// A layer that responds 503 to clients with too many requests at once.
///
/// A request counts until its response was sent, and a WebSocket until it is closed. Clients are identified by their address (an IPv6
/// /64 network is one client), unless [`ConcurrentRequests::by_key`] is set. All workers count together. Requests beyond the limit wait
/// if [`ConcurrentRequests::queue`] allows it: those of different clients take turns, and in a full queue a client with many
/// requests makes room for one with few.
#[derive(Clone)]
pub struct ConcurrentRequests {
    limit: LimitHandle,
    quota: Concurrency,
    timeout: Duration,
    status: StatusCode,
    fields: PolicyFields,
}

/// When a client that was refused may try again. Nobody knows when a place is free.
const RETRY_AFTER: Duration = Duration::from_secs(1);

impl ConcurrentRequests {
    /// A number of requests of a client at once; at least one.
    pub fn new(requests: u32) -> Self {
        let limit = LimitHandle::new(0);
        let max = requests.max(1);
        Self {
            fields: PolicyFields::concurrent(&limit.name, max),
            limit,
            quota: Concurrency { max, queue: 0 },
            timeout: Duration::ZERO,
            status: StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// How many more requests may wait, and for how long. Default: none.
    #[must_use]
    pub fn queue(mut self, requests: u32, timeout: Duration) -> Self {
        self.quota.queue = requests;
        self.timeout = timeout;
        self
    }

    /// The name of this limit in the header fields: letters, digits, `-` and `_`. Default: `default`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.limit.set_name(name);
        self.fields = PolicyFields::concurrent(&self.limit.name, self.quota.max);
        self
    }

    /// Counts by this in place of the client's address.
    #[must_use]
    pub fn by_key(mut self, key: LimitKey) -> Self {
        self.limit.key = key;
        self.limit.reset();
        self
    }

    /// The status of refusals in place of 503.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.status = status;
        self
    }

    /// Bans a client after so many refusals, at least one, of which one is forgotten again and again: all of them within ten minutes. The
    /// ban is longer if the client was banned before. A server of `apus.toml` has bans; elsewhere, [`LimitHandle::use_bans`] says
    /// where. Use it with a key of clients, or clients are banned for what others did.
    #[must_use]
    pub fn ban_after(mut self, refusals: u32, time: Duration) -> Self {
        self.limit.set_ban(refusals, time);
        self
    }

    /// Only counts what would be refused, and logs it. Requests that would wait go on at once, and count as running.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.limit.is_dry_run = true;
        self
    }

    /// The limit as the status of a server knows it.
    pub fn handle(&self) -> &LimitHandle {
        &self.limit
    }

    /// Lets a request pass that has a place, until its response was sent.
    fn pass(&self, place: ConcurrencyPlace, partition: Partition) -> GatePass {
        let fields = (!self.limit.is_dry_run).then(|| self.fields.clone());
        let left = self.quota.max.saturating_sub(place.running());
        GatePass {
            quota: None,
            change: Some(Box::new(move |response: &mut Response| {
                if let Some(fields) = fields {
                    fields.write(response.headers_mut(), partition, left.into(), None);
                }
                // The response that opens a tunnel is complete when its head was sent.
                match response.take_tunnel() {
                    Some(tunnel) => response.set_tunnel(Box::new(move |duplex| {
                        let running = tunnel(duplex);
                        Box::pin(async move {
                            running.await;
                            drop(place);
                        })
                    })),
                    None => response.on_complete(move |_| drop(place)),
                }
            })),
        }
    }

    fn refuse(
        &self,
        partition: Partition,
        rendering: &Rendering,
        refused: &RefusedRequest,
    ) -> Response {
        self.limit.refuse(refused, apus_clock::monotonic());
        let mut response = self.limit.refusal(self.status, RETRY_AFTER, rendering);
        self.fields
            .write(response.headers_mut(), partition, 0, None);
        response
    }

    fn enter_dry(&self, attempt: PlaceAttempt, request: &mut Request) -> GatePass {
        match attempt {
            PlaceAttempt::Taken(place) => {
                let outcome = if place.running() > self.quota.max {
                    LimitOutcome::WouldDelay
                } else {
                    LimitOutcome::Allowed
                };
                self.limit.count(request.record(), outcome);
                self.pass(place, Partition::default())
            }
            PlaceAttempt::Waiting(_) | PlaceAttempt::Full => {
                self.limit.count_dry(request);
                GatePass::default()
            }
        }
    }

    /// Waits for a place.
    async fn wait(&self, waiting: WaitingPlace, about: WaitingTurn) -> Result<GatePass, Response> {
        let place = tokio::select! {
            biased;
            place = waiting => place,
            () = sleep(self.timeout) => None,
        };
        match place {
            Some(place) => {
                let record = about.request.record.as_ref();
                self.limit.count(record, LimitOutcome::Delayed);
                Ok(self.pass(place, about.partition))
            }
            None => Err(self.refuse(about.partition, &about.rendering, &about.request)),
        }
    }
}

/// What the response to a request that waits for a place depends on.
struct WaitingTurn {
    partition: Partition,
    rendering: Rendering,
    request: RefusedRequest,
}

impl Middleware<()> for ConcurrentRequests {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        // All fields are written by the change of the response.
        next.call_gate(self, request, || |_: &QuotaLeft, _: &mut Response| {})
    }

    fn hook(&self) -> Option<Hook<'_>> {
        Some(Hook::Gate(self))
    }
}

impl Gate for ConcurrentRequests {
    fn enter(
        &self,
        request: &mut Request,
        rendering: &dyn Fn(&Request) -> Rendering,
    ) -> GateDecision {
        let Some(value) = self.limit.key.value(request) else {
            self.limit
                .note(request, || "no key, so no limit".to_owned());
            return GateDecision::Pass(GatePass::default());
        };
        if self.limit.is_passed_by(request) {
            return GateDecision::Pass(GatePass::default());
        }
        let running = &self.limit.state().running;
        let claimant = running.claimant(&value.bytes, request.client().ip.map(client_network));
        let quota = if self.limit.is_dry_run {
            Concurrency {
                max: self.quota.max.saturating_add(self.quota.queue),
                queue: 0,
            }
        } else {
            self.quota
        };
        let attempt = running.take(claimant, quota);
        self.limit.note(request, || match &attempt {
            PlaceAttempt::Taken(place) => {
                format!("{} of {} requests at once", place.running(), self.quota.max)
            }
            PlaceAttempt::Waiting(_) => "the request waits for a place".to_owned(),
            PlaceAttempt::Full => "the limit is exceeded".to_owned(),
        });
        if self.limit.is_dry_run {
            return GateDecision::Pass(self.enter_dry(attempt, request));
        }
        let partition = self.limit.partition(&value);
        match attempt {
            PlaceAttempt::Taken(place) => {
                self.limit.count(request.record(), LimitOutcome::Allowed);
                GateDecision::Pass(self.pass(place, partition))
            }
            PlaceAttempt::Waiting(waiting) => {
                let limit = self.clone();
                let about = WaitingTurn {
                    partition,
                    rendering: rendering(request),
                    request: RefusedRequest::of(request),
                };
                GateDecision::Wait(Box::pin(async move { limit.wait(waiting, about).await }))
            }
            PlaceAttempt::Full => {
                let rendering = rendering(request);
                let refused = RefusedRequest::of(request);
                let response = self.refuse(partition, &rendering, &refused);
                GateDecision::Respond(response)
            }
        }
    }
}

impl fmt::Debug for ConcurrentRequests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConcurrentRequests")
            .field("limit", &self.limit)
            .field("quota", &self.quota)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
