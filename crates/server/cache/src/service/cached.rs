//! The service: a response from the store, a request that waits for another one, or a forwarded
//! request.

use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{
    CachingContext, HeadUpdate, OriginResponse, PresentedRequest, RequestKey, ReuseDecision,
    VaryFields, decide_reuse, keys_to_invalidate, must_not_forward, update_by_head,
};
use crate::store::{CacheLookup, Object, StoreKey, WaitOutcome, WorkerCache};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{
    Method, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
};
use tokio::time::Instant;

use super::cache::Cache;
use super::clock::now;
use super::exchange::RequestSnapshot;
use super::fetch::{FetchContext, metadata};
use super::location::CachedLocation;
use super::prepared_response::{PreparedResponse, SendContext};
use super::purge::{self, PurgeRequest};
use super::ranges::{GapFetcher, GapResult, InitialRange};
use super::settings::CacheSettings;
use apus_compress::Compression;

/// The bounds of the cache that a worker has for a location.
const WORKER_CACHE_ENTRIES: usize = 10_000;
const WORKER_CACHE_BYTES: u64 = 32 << 20;

/// How often a request looks up the store again after waiting for another one.
const MAX_LOOKUPS: usize = 8;

/// A service factory that puts a cache in front of the services of another one.
#[derive(Clone, Debug)]
pub struct CachedService<F> {
    cache: Cache,
    site: Arc<str>,
    settings: Arc<CacheSettings>,
    compression: Compression,
    inner: F,
}

impl<F> CachedService<F> {
    /// Caches the responses of `inner`. Only services of the same site share stored responses.
    pub fn new(cache: &Cache, site: &str, settings: CacheSettings, inner: F) -> Self {
        Self {
            cache: cache.clone(),
            site: site.into(),
            settings: Arc::new(settings),
            compression: Compression::NONE,
            inner,
        }
    }

    /// Sets which compressed forms of stored responses are made, once instead of for each response.
    pub fn compression(self, compression: Compression) -> Self {
        Self {
            compression,
            ..self
        }
    }
}

impl<F: ServiceFactory> ServiceFactory for CachedService<F> {
    fn service(&self) -> Rc<dyn Service> {
        let store = self.cache.0.store.clone();
        let location = Rc::new(CachedLocation {
            cache: self.cache.clone(),
            site: Arc::clone(&self.site),
            settings: Arc::clone(&self.settings),
            compression: self.compression,
            inner: self.inner.service(),
        });
        Rc::new(LocationCacheService(Rc::new(LocationCache {
            location,
            worker_cache: WorkerCache::new(store, WORKER_CACHE_ENTRIES, WORKER_CACHE_BYTES),
        })))
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.inner.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}

struct LocationCacheService(Rc<LocationCache>);

/// The cache of one location on one worker.
struct LocationCache {
    location: Rc<CachedLocation>,
    worker_cache: WorkerCache<PreparedResponse>,
}

impl Service for LocationCacheService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let cached = &self.0;
        let location = &cached.location;
        // Paths with the same normal form have one key and one purge target.
        let Ok(path) = request.forwarded_path() else {
            return Response::new(StatusCode::BAD_REQUEST).into();
        };
        if path != request.path() {
            let target = match request.query() {
                Some(query) => format!("{path}?{query}"),
                None => path.to_owned(),
            };
            if request.set_path_and_query(&target).is_err() {
                return Response::new(StatusCode::BAD_REQUEST).into();
            }
        }
        match *request.method() {
            Method::GET | Method::HEAD => {}
            _ if request.method().as_str() == "PURGE" && location.settings.purge.is_some() => {
                return location.purge(&request).into();
            }
            _ => return location.forward_unsafe(request),
        }
        if location.settings.is_bypassed(&request) {
            return location.forward(request, ForwardReason::Bypass);
        }
        let presented = location.settings.presented(&request);
        let key = location.settings.rules.key.key(&presented);
        let conditions = location.conditions(&request, &key);
        let found = cached
            .worker_cache
            .find(key.bytes(), |prepared| prepared.stored.matches(&presented));
        if let Some(prepared) = found {
            let now = now();
            match decide_reuse(
                &presented,
                &prepared.stored,
                &location.settings.rules,
                &conditions,
                now,
            ) {
                ReuseDecision::Fresh { age } => {
                    return prepared
                        .respond(&presented, location.hit_context(age, now))
                        .into();
                }
                ReuseDecision::Stale { age, refresh } => {
                    let response = prepared.respond(&presented, location.hit_context(age, now));
                    if refresh {
                        location.refresh(&request, &key, prepared);
                    }
                    return response.into();
                }
                _ => {}
            }
        }
        let cached = Rc::clone(cached);
        ResponseFuture::later(
            async move { cached.respond_from_store(request, key, conditions).await },
        )
    }
}

impl LocationCache {
    /// Responds from the store, or fetches the response into it.
    async fn respond_from_store(
        self: Rc<Self>,
        request: Request,
        key: RequestKey,
        conditions: CachingContext,
    ) -> Response {
        let location = &self.location;
        let rules = &location.settings.rules;
        let store_key = location.store_key(&key);
        let until = Instant::now() + location.settings.lock_timeout;
        let is_head = *request.method() == Method::HEAD;
        // The stored response that has to be validated first.
        let mut stale: Option<Rc<PreparedResponse>> = None;
        let mut reason = ForwardReason::UriMiss;
        for _ in 0..MAX_LOOKUPS {
            let presented = location.settings.presented(&request);
            let is_stale = stale.is_some();
            let found = match location.never_fetches(&presented) {
                true if is_stale => None,
                true => location
                    .find_stored(&store_key, &presented)
                    .await
                    .map(CacheLookup::Hit),
                false => Some(location.find(&store_key, &presented, is_stale)),
            };
            let (object, is_joined) = match found {
                Some(CacheLookup::Hit(object)) => (object, false),
                Some(CacheLookup::Filling(object)) => (object, true),
                Some(CacheLookup::Wait(wait)) => {
                    match tokio::time::timeout_at(until, wait.outcome()).await {
                        Ok(WaitOutcome::Again) => continue,
                        Ok(WaitOutcome::Pass) | Err(_) => break,
                    }
                }
                Some(CacheLookup::Lead(ticket)) => {
                    let snapshot = Rc::new(location.snapshot(&request));
                    let context = FetchContext {
                        ticket,
                        stale,
                        reason,
                        conditions,
                    };
                    return location.fetch(snapshot, request, context).await;
                }
                Some(CacheLookup::Pass) | None => {
                    if must_not_forward(&presented) {
                        return Response::new(StatusCode::GATEWAY_TIMEOUT);
                    }
                    break;
                }
            };
            // This reader keeps the bytes that the request is to be sent. An object that cannot be
            // stored and has dropped its first bytes cannot be joined.
            let reader = (is_joined && !is_head).then(|| object.read(None));
            if reader.is_some() && !object.is_joinable() {
                continue;
            }
            let now = now();
            let epoch = object.epoch();
            let Some(prepared) = PreparedResponse::of(&object, now, location.compression) else {
                location.drop_object(&object);
                continue;
            };
            let gap_fetcher = if object.is_resumable() && !object.is_complete() && !is_head {
                GapFetcher::of(
                    location,
                    &Rc::new(location.snapshot(&request)),
                    &prepared.stored,
                    &object,
                )
            } else {
                None
            };
            let prepared = Rc::new(prepared.with_gap_fetcher(gap_fetcher));
            if !object.is_complete() && !is_joined && !is_head && prepared.gap_fetcher.is_none() {
                // The missing ranges can no longer be fetched.
                location.drop_object(&object);
                continue;
            }
            if is_joined && wants_later_range(&presented) && prepared.may_take_long() {
                break;
            }
            let forwarded = |reason, collapsed| Handling::Forwarded {
                reason,
                status: None,
                stored: true,
                collapsed,
            };
            let mut handling = if is_joined {
                forwarded(reason, true)
            } else {
                Handling::Hit
            };
            let decision = decide_reuse(&presented, &prepared.stored, rules, &conditions, now);
            if matches!(
                decision,
                ReuseDecision::Fresh { .. } | ReuseDecision::Stale { .. }
            ) {
                let is_incomplete = prepared.is_missing_bytes_for(&presented);
                if must_not_forward(&presented) && is_incomplete {
                    return Response::new(StatusCode::GATEWAY_TIMEOUT);
                }
                match prepared.ensure_available(&presented).await {
                    GapResult::Started => handling = forwarded(ForwardReason::Partial, false),
                    GapResult::NotNeeded if is_incomplete => {
                        handling = forwarded(ForwardReason::Partial, true)
                    }
                    GapResult::NotNeeded => {}
                    GapResult::Outdated => continue,
                    GapResult::NotStorable => break,
                    GapResult::OriginError(response) => {
                        return location.uncached_response(response, reason);
                    }
                }
            }
            let context = |age| SendContext {
                handling,
                ..location.hit_context(age, now)
            };
            match decision {
                ReuseDecision::Fresh { age } => {
                    // Bodies on disk are verified before each response.
                    if !is_joined && object.bytes().is_some() && prepared.gap_fetcher.is_none() {
                        self.worker_cache.insert(
                            key.bytes(),
                            &object,
                            epoch,
                            Rc::clone(&prepared),
                            prepared.size(),
                        );
                    }
                    return prepared.respond(&presented, context(age));
                }
                ReuseDecision::Stale { age, refresh } => {
                    let response = prepared.respond(&presented, context(age));
                    if refresh && !is_joined {
                        location.refresh(&request, &key, prepared);
                    }
                    return response;
                }
                // A response that another request is just receiving is current, if it may be shared
                // at all.
                ReuseDecision::Validate(new_reason) if is_joined => {
                    reason = new_reason;
                    break;
                }
                ReuseDecision::Validate(new_reason) => {
                    reason = new_reason;
                    stale = Some(prepared);
                }
                ReuseDecision::Forward(new_reason) => {
                    reason = new_reason;
                    break;
                }
                ReuseDecision::GatewayTimeout => return Response::new(StatusCode::GATEWAY_TIMEOUT),
            }
        }
        if is_head {
            return location.forward_head(request, &store_key, reason).await;
        }
        location.forward(request, reason).wait().await
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
    fn find(
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

    /// Refreshes a stored response in the background, while the stale one is sent.
    fn refresh(self: &Rc<Self>, request: &Request, key: &RequestKey, stale: Rc<PreparedResponse>) {
        let presented = self.settings.presented(request);
        let found = self.find(&self.store_key(key), &presented, true);
        let CacheLookup::Lead(ticket) = found else {
            // Another request refreshes it already.
            return;
        };
        let snapshot = Rc::new(self.snapshot(request));
        let fetch_request = snapshot.to_fetch_request();
        let location = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let context = FetchContext {
                ticket,
                stale: Some(stale),
                reason: ForwardReason::Stale,
                conditions: CachingContext {
                    uses: location.settings.rules.minimum_uses,
                    ..CachingContext::default()
                },
            };
            // The response is not sent to a client; it is only stored.
            drop(location.fetch(snapshot, fetch_request, context).await);
        });
    }

    /// Forwards an unsafe request, which may invalidate stored responses (RFC 9111 section 4.4).
    fn forward_unsafe(self: &Rc<Self>, request: Request) -> ResponseFuture {
        let snapshot = self.snapshot(&request);
        let location = Rc::clone(self);
        self.forward(request, ForwardReason::Method)
            .map(move |response| {
                let rules = &location.settings.rules.key;
                let keys = keys_to_invalidate(
                    &snapshot.presented(),
                    response.status(),
                    response.headers(),
                    rules,
                );
                for key in &keys {
                    location.cache.purge(&PurgeRequest {
                        site: Some(location.site.as_ref().into()),
                        selector: purge::selector_of(key, rules),
                        soft: false,
                    });
                }
                response
            })
    }

    fn snapshot(&self, request: &Request) -> RequestSnapshot {
        RequestSnapshot::of(request, &self.settings)
    }

    fn purge(&self, request: &Request) -> Response {
        let is_allowed = self
            .settings
            .purge
            .as_ref()
            .is_some_and(|access| access.allows(request));
        if is_allowed {
            let rules = &self.settings.rules.key;
            for purge in purge::read(
                request,
                &self.settings.presented(request),
                rules,
                &self.site,
            ) {
                tracing::info!(
                    site = &*self.site,
                    what = %purge.selector,
                    soft = purge.soft,
                    "purged by a request"
                );
                self.cache.purge(&purge);
            }
        }
        purge::response(is_allowed)
    }

    fn conditions(&self, request: &Request, key: &RequestKey) -> CachingContext {
        let minimum = self.settings.rules.minimum_uses;
        let trusted = &self.settings.trusted;
        CachingContext {
            uses: match minimum {
                0 | 1 => 1,
                _ => self.cache.0.use_counter.count(key.bytes()),
            },
            is_trusted: !trusted.is_empty() && {
                let client = request.client().peer();
                trusted.iter().any(|network| network.contains(&client))
            },
            ..CachingContext::default()
        }
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
