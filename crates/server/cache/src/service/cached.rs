//! The service: a response from the store, a request that waits for another one, or a forwarded
//! request.

use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{CachingContext, RequestKey, ReuseDecision, decide_reuse, keys_to_invalidate};
use crate::store::{CacheLookup, WorkerCache};
use apus_http::fields::ForwardReason;
use apus_http::{
    Method, Request, RequestEvent, Response, ResponseFuture, RouteInfo, Service, ServiceFactory,
    StatusCode,
};

use super::cache::Cache;
use super::clock::now;
use super::exchange::RequestSnapshot;
use super::fetch::FetchContext;
use super::location::CachedLocation;
use super::lookup::{LocationCache, StoreRequest};
use super::prepared_response::PreparedResponse;
use super::purge::{self, PurgeRequest};
use super::settings::CacheSettings;
use apus_compress::Compression;

/// The bounds of the cache that a worker has for a location.
const WORKER_CACHE_ENTRIES: usize = 10_000;
const WORKER_CACHE_BYTES: u64 = 32 << 20;

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

impl Service for LocationCacheService {
    fn call(&self, mut request: Request) -> ResponseFuture {
        let cached = &self.0;
        let location = &cached.location;
        if use_normal_path(&mut request).is_none() {
            return Response::new(StatusCode::BAD_REQUEST).into();
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
        request.note(|| RequestEvent::CacheKey { hash: key.hash() });
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
        let lookup = StoreRequest {
            cached: Rc::clone(cached),
            request,
            key,
            conditions,
        };
        ResponseFuture::later(lookup.respond())
    }
}

/// Gives a request the normal form of its path: paths with the same form have one key and one purge target.
/// `None` if there is no such form.
fn use_normal_path(request: &mut Request) -> Option<()> {
    let path = request.forwarded_path().ok()?;
    if path == request.path() {
        return Some(());
    }
    let target = match request.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    request.set_path_and_query(&target).ok()
}

impl CachedLocation {
    /// Refreshes a stored response in the background, while the stale one is sent.
    pub(super) fn refresh(
        self: &Rc<Self>,
        request: &Request,
        key: &RequestKey,
        stale: Rc<PreparedResponse>,
    ) {
        let presented = self.settings.presented(request);
        let found = self.find(&self.store_key(key), &presented, true);
        let CacheLookup::Lead(ticket) = found else {
            // Another request refreshes it already.
            return;
        };
        let mut snapshot = self.snapshot(request);
        // The client does not wait for it.
        snapshot.remove_record();
        let snapshot = Rc::new(snapshot);
        let fetch_request = snapshot.to_fetch_request();
        let location = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let context = FetchContext {
                ticket,
                stale: Some(stale),
                reason: ForwardReason::Stale,
                conditions: CachingContext {
                    // What is stored was requested often enough before, and need not prove it again.
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

    pub(super) fn snapshot(&self, request: &Request) -> RequestSnapshot {
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
