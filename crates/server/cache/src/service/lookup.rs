//! The way of a request through the store: a stored response, one that another request is just receiving, or a fetch.

use std::rc::Rc;
use std::sync::Arc;

use apus_http::fields::{ForwardReason, Handling};
use apus_http::{Method, Request, Response, StatusCode};
use tokio::time::Instant;

use super::clock::now;
use super::fetch::{FetchContext, metadata};
use super::location::CachedLocation;
use super::prepared_response::{PreparedResponse, SendContext};
use super::ranges::{GapFetcher, GapResult, InitialRange};
use crate::policy::{
    CachingContext, HeadUpdate, OriginResponse, PresentedRequest, RequestKey, ReuseDecision,
    Timestamp, VaryFields, decide_reuse, must_not_forward, update_by_head,
};
use crate::store::{
    CacheLookup, FillTicket, Object, ObjectReader, StoreKey, WaitOutcome, WorkerCache,
};

/// How often a request looks up the store again after waiting for another one.
const MAX_LOOKUPS: usize = 8;

/// The cache of one location on one worker.
pub(super) struct LocationCache {
    pub(super) location: Rc<CachedLocation>,
    pub(super) worker_cache: WorkerCache<PreparedResponse>,
}

/// A request that looks up the store.
///
/// One attempt has three steps: [`Self::look_up`] finds an object, [`Self::prepare`] makes a response of it, and
/// [`Self::reuse`] sends it if it may be reused. Each of them may end the attempt with a [`NotReused`].
pub(super) struct StoreRequest {
    pub(super) cached: Rc<LocationCache>,
    pub(super) request: Request,
    pub(super) key: RequestKey,
    pub(super) conditions: CachingContext,
}

/// What the attempts before this one found out.
struct LookupState {
    store_key: StoreKey,
    /// The end of the time to wait for other requests.
    wait_end: Instant,
    /// The stored response that has to be validated first.
    stale: Option<Rc<PreparedResponse>>,
    reason: ForwardReason,
}

/// An object in the store for a request.
struct FoundObject {
    object: Arc<Object>,
    /// Whether another request is just receiving it.
    is_joined: bool,
}

/// A stored response that the request can be sent, if the rules of reuse allow it.
struct ReuseCandidate {
    prepared: Rc<PreparedResponse>,
    is_joined: bool,
    /// Of the object, when it was prepared.
    epoch: u64,
    now: Timestamp,
    /// The store keeps the bytes that are to be sent, as long as there is a reader.
    _reader: Option<ObjectReader>,
}

/// Why an attempt has not sent a stored response.
enum NotReused {
    /// The store has changed meanwhile.
    Again,
    /// The stored response has to be validated.
    Validate(ForwardReason, Rc<PreparedResponse>),
    /// This request fetches the response for all that wait for it.
    Fetch(FillTicket),
    /// The request is forwarded, and nothing is stored.
    Forward(ForwardReason),
    /// This response is sent in its place.
    Instead(Response),
}

impl NotReused {
    fn gateway_timeout() -> Self {
        Self::Instead(Response::new(StatusCode::GATEWAY_TIMEOUT))
    }
}

impl StoreRequest {
    /// Responds from the store, or fetches the response into it.
    pub(super) async fn respond(self) -> Response {
        let location = &self.cached.location;
        let mut state = LookupState {
            store_key: location.store_key(&self.key),
            // One end for all attempts, so that a request that waits for one fetch after another is not delayed
            // `MAX_LOOKUPS` times.
            wait_end: Instant::now() + location.settings.lock_timeout,
            stale: None,
            reason: ForwardReason::UriMiss,
        };
        for _ in 0..MAX_LOOKUPS {
            match self.attempt(&state).await {
                Ok(response) | Err(NotReused::Instead(response)) => return response,
                Err(NotReused::Again) => {}
                Err(NotReused::Validate(reason, stale)) => {
                    (state.reason, state.stale) = (reason, Some(stale));
                }
                Err(NotReused::Fetch(ticket)) => return self.fetch(ticket, state).await,
                Err(NotReused::Forward(reason)) => {
                    state.reason = reason;
                    break;
                }
            }
        }
        self.forward(state).await
    }

    async fn attempt(&self, state: &LookupState) -> Result<Response, NotReused> {
        let presented = self.cached.location.settings.presented(&self.request);
        let found = self.look_up(&presented, state).await?;
        let candidate = self.prepare(&presented, found, state)?;
        self.reuse(&presented, candidate, state).await
    }

    /// Finds the object of the request, waits for another request that fetches it, or gets the permit to fetch it.
    async fn look_up(
        &self,
        presented: &PresentedRequest<'_>,
        state: &LookupState,
    ) -> Result<FoundObject, NotReused> {
        let location = &self.cached.location;
        let is_stale = state.stale.is_some();
        let found = if !location.never_fetches(presented) {
            Some(location.find(&state.store_key, presented, is_stale))
        } else if is_stale {
            None
        } else {
            let stored = location.find_stored(&state.store_key, presented).await;
            stored.map(CacheLookup::Hit)
        };
        match found {
            Some(CacheLookup::Hit(object)) => Ok(FoundObject {
                object,
                is_joined: false,
            }),
            Some(CacheLookup::Filling(object)) => Ok(FoundObject {
                object,
                is_joined: true,
            }),
            Some(CacheLookup::Wait(wait)) => {
                match tokio::time::timeout_at(state.wait_end, wait.outcome()).await {
                    Ok(WaitOutcome::Again) => Err(NotReused::Again),
                    Ok(WaitOutcome::Pass) | Err(_) => Err(NotReused::Forward(state.reason)),
                }
            }
            Some(CacheLookup::Lead(ticket)) => Err(NotReused::Fetch(ticket)),
            Some(CacheLookup::Pass) | None if must_not_forward(presented) => {
                Err(NotReused::gateway_timeout())
            }
            Some(CacheLookup::Pass) | None => Err(NotReused::Forward(state.reason)),
        }
    }

    /// Makes a response of an object, unless bytes are missing that nobody can fetch any more.
    fn prepare(
        &self,
        presented: &PresentedRequest<'_>,
        found: FoundObject,
        state: &LookupState,
    ) -> Result<ReuseCandidate, NotReused> {
        let location = &self.cached.location;
        let FoundObject { object, is_joined } = found;
        let is_head = self.is_head();
        // An object that turns out not to be storable drops the bytes that all its readers have had. The reader is here
        // before that is checked, so that nothing is dropped after the check, however late the worker has its next turn.
        let reader = (is_joined && !is_head).then(|| object.read(None));
        if reader.is_some() && !object.is_joinable() {
            return Err(NotReused::Again);
        }
        // The epoch is read before all else of the object, so that what a purge or a 304 changes meanwhile is noticed.
        let epoch = object.epoch();
        let now = now();
        let Some(prepared) = PreparedResponse::of(&object, now, location.compression) else {
            location.drop_object(&object);
            return Err(NotReused::Again);
        };
        let gap_fetcher = if object.is_resumable() && !object.is_complete() && !is_head {
            let snapshot = Rc::new(location.snapshot(&self.request));
            GapFetcher::of(location, &snapshot, &prepared.stored, &object)
        } else {
            None
        };
        let prepared = Rc::new(prepared.with_gap_fetcher(gap_fetcher));
        if !object.is_complete() && !is_joined && !is_head && prepared.gap_fetcher.is_none() {
            // The missing ranges can no longer be fetched.
            location.drop_object(&object);
            return Err(NotReused::Again);
        }
        // The fill would first have to arrive there, from the beginning of the body.
        if is_joined && wants_later_range(presented) && prepared.may_take_long() {
            return Err(NotReused::Forward(state.reason));
        }
        Ok(ReuseCandidate {
            prepared,
            is_joined,
            epoch,
            now,
            _reader: reader,
        })
    }

    /// Sends a stored response, if it may be reused.
    async fn reuse(
        &self,
        presented: &PresentedRequest<'_>,
        candidate: ReuseCandidate,
        state: &LookupState,
    ) -> Result<Response, NotReused> {
        let location = &self.cached.location;
        let prepared = &candidate.prepared;
        let decision = decide_reuse(
            presented,
            &prepared.stored,
            &location.settings.rules,
            &self.conditions,
            candidate.now,
        );
        let (age, is_stale, refresh) = match decision {
            ReuseDecision::Fresh { age } => (age, false, false),
            ReuseDecision::Stale { age, refresh } => (age, true, refresh),
            // A response that another request is just receiving is current, if it may be shared at all.
            ReuseDecision::Validate(reason) if candidate.is_joined => {
                return Err(NotReused::Forward(reason));
            }
            ReuseDecision::Validate(reason) => {
                return Err(NotReused::Validate(reason, candidate.prepared));
            }
            ReuseDecision::Forward(reason) => return Err(NotReused::Forward(reason)),
            ReuseDecision::GatewayTimeout => return Err(NotReused::gateway_timeout()),
        };
        let handling = self.fill_gaps(presented, &candidate, state).await?;
        let context = SendContext {
            handling,
            ..location.hit_context(age, candidate.now)
        };
        if !is_stale {
            self.keep_for_worker(&candidate);
        }
        let response = prepared.respond(presented, context);
        if refresh && !candidate.is_joined {
            location.refresh(&self.request, &self.key, candidate.prepared);
        }
        Ok(response)
    }

    /// Makes sure that the bytes of the request are there or on their way, and returns how `Cache-Status` reports that.
    async fn fill_gaps(
        &self,
        presented: &PresentedRequest<'_>,
        candidate: &ReuseCandidate,
        state: &LookupState,
    ) -> Result<Handling, NotReused> {
        let forwarded = |reason, collapsed| Handling::Forwarded {
            reason,
            status: None,
            stored: true,
            collapsed,
        };
        let prepared = &candidate.prepared;
        let is_incomplete = prepared.is_missing_bytes_for(presented);
        if must_not_forward(presented) && is_incomplete {
            return Err(NotReused::gateway_timeout());
        }
        match prepared.ensure_available(presented).await {
            GapResult::Started => Ok(forwarded(ForwardReason::Partial, false)),
            GapResult::NotNeeded if is_incomplete => Ok(forwarded(ForwardReason::Partial, true)),
            GapResult::NotNeeded if candidate.is_joined => Ok(forwarded(state.reason, true)),
            GapResult::NotNeeded => Ok(Handling::Hit),
            GapResult::Outdated => Err(NotReused::Again),
            GapResult::NotStorable => Err(NotReused::Forward(state.reason)),
            GapResult::OriginError(response) => {
                let location = &self.cached.location;
                let response = location.uncached_response(response, state.reason);
                Err(NotReused::Instead(response))
            }
        }
    }

    /// Keeps a fresh response in the cache of the worker, which later requests find without the store.
    fn keep_for_worker(&self, candidate: &ReuseCandidate) {
        let prepared = &candidate.prepared;
        let object = &prepared.object;
        // Bodies on disk are verified before each response: altered bytes were once sent for up to a minute.
        if candidate.is_joined || object.bytes().is_none() || prepared.gap_fetcher.is_some() {
            return;
        }
        self.cached.worker_cache.insert(
            self.key.bytes(),
            object,
            candidate.epoch,
            Rc::clone(prepared),
            prepared.size(),
        );
    }

    async fn fetch(self, ticket: FillTicket, state: LookupState) -> Response {
        let location = &self.cached.location;
        let snapshot = Rc::new(location.snapshot(&self.request));
        let context = FetchContext {
            ticket,
            stale: state.stale,
            reason: state.reason,
            conditions: self.conditions,
        };
        location.fetch(snapshot, self.request, context).await
    }

    async fn forward(self, state: LookupState) -> Response {
        let location = &self.cached.location;
        if self.is_head() {
            let key = &state.store_key;
            return location.forward_head(self.request, key, state.reason).await;
        }
        location.forward(self.request, state.reason).wait().await
    }

    fn is_head(&self) -> bool {
        *self.request.method() == Method::HEAD
    }
}

impl CachedLocation {
    /// Forwards a HEAD request. Its response also shows whether the response stored for GET is
    /// current (RFC 9111 section 4.3.5).
    async fn forward_head(
        &self,
        request: Request,
        key: &StoreKey,
        reason: ForwardReason,
    ) -> Response {
        let snapshot = self.snapshot(&request);
        let requested = now();
        let response = self.forward(request, reason).wait().await;
        let received = now();
        let presented = snapshot.presented();
        let Some(object) = self.find_stored(key, &presented).await else {
            return response;
        };
        let origin = OriginResponse {
            status: response.status(),
            headers: response.headers(),
            requested,
            received,
        };
        let rules = &self.settings.rules;
        let update = PreparedResponse::of(&object, received, self.compression)
            .map(|prepared| update_by_head(&presented, &prepared.stored, &origin, rules));
        match update {
            Some(HeadUpdate::Stored(newer)) => {
                if let CacheLookup::Lead(ticket) = self.find(key, &presented, true) {
                    ticket.freshen(&object, metadata(&newer));
                }
            }
            Some(HeadUpdate::Invalid) => self.drop_object(&object),
            Some(HeadUpdate::Unchanged) | None => {}
        }
        response
    }

    /// Looks up the store, or only the pending requests if the stored response is stale.
    pub(super) fn find(
        &self,
        key: &StoreKey,
        presented: &PresentedRequest<'_>,
        is_stale: bool,
    ) -> CacheLookup {
        let store = &self.cache.0.store;
        let mut secondary = |line: &[u8]| secondary(presented, line);
        if is_stale {
            store.lead(key, &mut secondary)
        } else {
            store.lookup_or_fill(key, &mut secondary)
        }
    }

    /// The stored response for a request, in memory or on disk.
    async fn find_stored(
        &self,
        key: &StoreKey,
        presented: &PresentedRequest<'_>,
    ) -> Option<Arc<Object>> {
        let mut secondary = |line: &[u8]| secondary(presented, line);
        self.cache.0.store.find(key, &mut secondary).await
    }

    /// Whether a request never fetches something to store: HEAD, some ranges, and `only-if-cached`.
    /// It then uses stored responses, including those on disk, but none that another request is
    /// just receiving.
    fn never_fetches(&self, presented: &PresentedRequest<'_>) -> bool {
        *presented.method == Method::HEAD
            || must_not_forward(presented)
            || (wants_later_range(presented)
                && InitialRange::of(presented.headers, &self.settings.rules).is_none())
    }
}

/// Whether a request is for a range that does not begin at 0.
fn wants_later_range(presented: &PresentedRequest<'_>) -> bool {
    presented
        .headers
        .get("range")
        .is_some_and(|range| !range.starts_with(b"bytes=0-"))
}

/// The secondary key of a request for the fields in `line`.
fn secondary(presented: &PresentedRequest<'_>, line: &[u8]) -> Vec<u8> {
    let vary = VaryFields::from_line(line);
    vary.secondary_key(presented).bytes().to_vec()
}
