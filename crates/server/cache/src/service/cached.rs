//! The service: a response from the store, a request that waits for another one, or a forwarded
//! request.

use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{
    CachingContext, HeadUpdate, OriginResponse, PresentedRequest, RequestKey, ReuseDecision,
    Timestamp, VaryFields, decide_reuse, keys_to_invalidate, must_not_forward, update_by_head,
};
use crate::store::{CacheLookup, Object, StoreKey, WaitOutcome, WorkerCache};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{
    Method, Request, Response, ResponseFuture, RouteInfo, Service, ServiceFactory, StatusCode,
};
use tokio::time::Instant;

use super::cache_status::CacheStatusWriter;
use super::clock::now;
use super::compression::ResponseCompressor;
use super::device::device;
use super::fetch::{FetchContext, RequestSnapshot, metadata};
use super::prepared_response::{PreparedResponse, SendContext};
use super::purge::{self, PurgeRequest};
use super::ranges::{GapFetcher, GapResult, InitialRange};
use super::settings::{Cache, CacheSettings};
use apus_compress::Compression;

/// The bounds of the cache that a worker has for a location.
const WORKER_CACHE_ENTRIES: usize = 10_000;
const WORKER_CACHE_BYTES: u64 = 32 << 20;

/// How often a request looks up the store again after waiting for another one.
const MAX_LOOKUPS: usize = 8;

/// A service factory that puts a cache in worker_cache of another one.
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
        Rc::new(LocationCacheService(Rc::new(LocationCache {
            cache: self.cache.clone(),
            site: Arc::clone(&self.site),
            settings: Arc::clone(&self.settings),
            compression: self.compression,
            inner: self.inner.service(),
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
pub(super) struct LocationCache {
    pub(super) cache: Cache,
    pub(super) site: Arc<str>,
    pub(super) settings: Arc<CacheSettings>,
    pub(super) compression: Compression,
    pub(super) inner: Rc<dyn Service>,
    worker_cache: WorkerCache<PreparedResponse>,
}

impl Service for LocationCacheService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let cached = &self.0;
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
            _ if request.method().as_str() == "PURGE" && cached.settings.purge.is_some() => {
                return cached.purge(&request).into();
            }
            _ => return cached.forward_unsafe(request),
        }
        if cached.settings.is_bypassed(&request) {
            return cached.forward(request, ForwardReason::Bypass);
        }
        let presented = presented(&request, &cached.settings);
        let key = cached.settings.rules.key.key(&presented);
        let conditions = cached.conditions(&request, &key);
        let found = cached
            .worker_cache
            .find(key.bytes(), |prepared| prepared.stored.matches(&presented));
        if let Some(prepared) = found {
            let now = now();
            match decide_reuse(
                &presented,
                &prepared.stored,
                &cached.settings.rules,
                &conditions,
                now,
            ) {
                ReuseDecision::Fresh { age } => {
                    return prepared
                        .respond(&presented, cached.hit_context(age, now))
                        .into();
                }
                ReuseDecision::Stale { age, refresh } => {
                    let response = prepared.respond(&presented, cached.hit_context(age, now));
                    if refresh {
                        cached.refresh(&request, &key, prepared);
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
        let rules = &self.settings.rules;
        let store_key = self.store_key(&key);
        let until = Instant::now() + self.settings.lock_timeout;
        let is_head = *request.method() == Method::HEAD;
        // The stored response that has to be validated first.
        let mut stale: Option<Rc<PreparedResponse>> = None;
        let mut reason = ForwardReason::UriMiss;
        for _ in 0..MAX_LOOKUPS {
            let presented = presented(&request, &self.settings);
            let is_stale = stale.is_some();
            let found = match self.never_fetches(&presented) {
                true if is_stale => None,
                true => self
                    .find_stored(&store_key, &presented)
                    .await
                    .map(CacheLookup::Hit),
                false => Some(self.find(&store_key, &presented, is_stale)),
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
                    let snapshot = Rc::new(self.snapshot(&request));
                    let context = FetchContext {
                        ticket,
                        stale,
                        reason,
                        conditions,
                    };
                    return self.fetch(snapshot, request, context).await;
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
            let Some(prepared) = PreparedResponse::of(&object, now, self.compression) else {
                self.drop_object(&object);
                continue;
            };
            let gap_fetcher = match object.is_resumable() && !object.is_complete() && !is_head {
                true => GapFetcher::of(
                    &self,
                    &Rc::new(self.snapshot(&request)),
                    &prepared.stored,
                    &object,
                ),
                false => None,
            };
            let prepared = Rc::new(prepared.with_gap_fetcher(gap_fetcher));
            if !object.is_complete() && !is_joined && !is_head && prepared.gap_fetcher.is_none() {
                // The missing ranges can no longer be fetched.
                self.drop_object(&object);
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
            let mut handling = match is_joined {
                false => Handling::Hit,
                true => forwarded(reason, true),
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
                        return self.uncached_response(response, reason);
                    }
                }
            }
            let context = |age| SendContext {
                handling,
                ..self.hit_context(age, now)
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
                        self.refresh(&request, &key, prepared);
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
            return self.forward_head(request, &store_key, reason).await;
        }
        self.forward(request, reason).wait().await
    }

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
        match is_stale {
            true => store.lead(key, &mut secondary),
            false => store.lookup_or_fill(key, &mut secondary),
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
        let presented = presented(request, &self.settings);
        let found = self.find(&self.store_key(key), &presented, true);
        let CacheLookup::Lead(ticket) = found else {
            // Another request refreshes it already.
            return;
        };
        let snapshot = Rc::new(self.snapshot(request));
        let fetch_request = snapshot.to_fetch_request();
        let cached = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let context = FetchContext {
                ticket,
                stale: Some(stale),
                reason: ForwardReason::Stale,
                conditions: CachingContext {
                    uses: cached.settings.rules.minimum_uses,
                    ..CachingContext::default()
                },
            };
            // The response is not sent to a client; it is only stored.
            drop(cached.fetch(snapshot, fetch_request, context).await);
        });
    }

    /// Forwards an unsafe request, which may invalidate stored responses (RFC 9111 section 4.4).
    fn forward_unsafe(self: &Rc<Self>, request: Request) -> ResponseFuture {
        let snapshot = self.snapshot(&request);
        let cached = Rc::clone(self);
        self.forward(request, ForwardReason::Method)
            .map(move |response| {
                let rules = &cached.settings.rules.key;
                let keys = keys_to_invalidate(
                    &snapshot.presented(),
                    response.status(),
                    response.headers(),
                    rules,
                );
                for key in &keys {
                    cached.cache.purge(&PurgeRequest {
                        site: Some(cached.site.as_ref().into()),
                        selector: purge::selector_of(key, rules),
                        soft: false,
                    });
                }
                response
            })
    }

    /// Forwards a request without storing the response.
    pub(super) fn forward(&self, request: Request, reason: ForwardReason) -> ResponseFuture {
        let status_writer = self.settings.status_writer();
        self.inner
            .call(request)
            .map(move |response| mark_uncached(response, reason, status_writer))
    }

    /// Reports a response of the service behind as not stored.
    pub(super) fn uncached_response(&self, response: Response, reason: ForwardReason) -> Response {
        mark_uncached(response, reason, self.settings.status_writer())
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
                &presented(request, &self.settings),
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

    pub(super) fn hit_context(&self, age: u32, now: Timestamp) -> SendContext<'_> {
        SendContext {
            age,
            now,
            handling: Handling::Hit,
            status_writer: self.settings.status_writer(),
            compressor: ResponseCompressor {
                cache: &self.cache,
                compression: self.compression,
            },
        }
    }

    pub(super) fn store_key(&self, key: &RequestKey) -> StoreKey {
        StoreKey::new(&self.site, key.bytes())
    }

    /// Removes an object from memory and disk.
    pub(super) fn drop_object(&self, object: &Arc<Object>) {
        self.cache.0.store.remove(object);
    }
}

/// Reports a response of the service behind as not stored.
fn mark_uncached(
    mut response: Response,
    reason: ForwardReason,
    status_writer: CacheStatusWriter,
) -> Response {
    let handling = Handling::Forwarded {
        reason,
        status: None,
        stored: false,
        collapsed: false,
    };
    status_writer.write(&mut response, handling, None);
    response
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

/// The properties of a request that the policy needs.
pub(super) fn presented<'a>(
    request: &'a Request,
    settings: &CacheSettings,
) -> PresentedRequest<'a> {
    let target = settings.target(request);
    PresentedRequest {
        method: request.method(),
        scheme: request.scheme(),
        authority: request.authority().unwrap_or(""),
        path: target.path(),
        query: target.query(),
        headers: request.headers(),
        device: (settings.rules.key.device).then(|| device(request.headers())),
        has_body: request.has_body(),
        has_certificate: (request.connection().tls.as_ref())
            .is_some_and(|tls| tls.client_certificate.is_some()),
    }
}
