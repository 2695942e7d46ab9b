//! The service: a hit, a request that joins another one, or a request to the service behind.

use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{
    Conditions, HeadUpdate, Key, OriginResponse, PresentedRequest, Reuse, Timestamp, Variance,
    invalidated, must_not_forward, reuse, update_by_head,
};
use crate::store::{Awaited, Found, Key as StoreKey, Object, WorkerFront};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{
    Answer, Method, Request, Response, RouteInfo, Service, ServiceFactory, StatusCode,
};
use tokio::time::Instant;

use super::answer::{Prepared, Sending};
use super::clock::now;
use super::device::device;
use super::fetch::{Asked, Errand, head};
use super::forms::Forming;
use super::purge::{self, PurgeRequest};
use super::ranges::{Beginning, Gaps, Opened};
use super::settings::{Cache, CacheSettings};
use super::telling::Telling;
use apus_compress::Compression;

/// What a worker keeps ready of one location.
const FRONT_ENTRIES: usize = 10_000;
const FRONT_BYTES: u64 = 32 << 20;

/// How often a request looks again for what another one fetched.
const MAX_LOOKS: usize = 8;

/// What makes a service whose answers are cached.
#[derive(Clone, Debug)]
pub struct Cached<F> {
    cache: Cache,
    site: Arc<str>,
    settings: Arc<CacheSettings>,
    compression: Compression,
    inner: F,
}

impl<F> Cached<F> {
    /// Caches the answers of what `inner` makes. Only services of the same site share what is stored.
    pub fn new(cache: &Cache, site: &str, settings: CacheSettings, inner: F) -> Self {
        Self {
            cache: cache.clone(),
            site: site.into(),
            settings: Arc::new(settings),
            compression: Compression::NONE,
            inner,
        }
    }

    /// Has compressed forms of what is stored made once, instead of for every answer.
    pub fn compression(self, compression: Compression) -> Self {
        Self {
            compression,
            ..self
        }
    }
}

impl<F: ServiceFactory> ServiceFactory for Cached<F> {
    fn service(&self) -> Rc<dyn Service> {
        let store = self.cache.0.store.clone();
        Rc::new(CachedService(Rc::new(Inner {
            cache: self.cache.clone(),
            site: Arc::clone(&self.site),
            settings: Arc::clone(&self.settings),
            compression: self.compression,
            inner: self.inner.service(),
            front: WorkerFront::new(store, FRONT_ENTRIES, FRONT_BYTES),
        })))
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.inner.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.inner.routes()
    }
}

struct CachedService(Rc<Inner>);

/// The cache of one location on one worker.
pub(super) struct Inner {
    pub(super) cache: Cache,
    pub(super) site: Arc<str>,
    pub(super) settings: Arc<CacheSettings>,
    compression: Compression,
    pub(super) inner: Rc<dyn Service>,
    front: WorkerFront<Prepared>,
}

impl Service for CachedService {
    fn call(&self, mut request: Request) -> Answer {
        let cached = &self.0;
        // What is sent on as the same is stored as the same, and purged as that.
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
            _ => return cached.change(request),
        }
        if cached.settings.is_bypassed(&request) {
            return cached.forward(request, ForwardReason::Bypass);
        }
        let presented = presented(&request, &cached.settings);
        let key = cached.settings.rules.key.key(&presented);
        let conditions = cached.conditions(&request, &key);
        let found = cached
            .front
            .find(key.bytes(), |kept| kept.stored.matches(&presented));
        if let Some(kept) = found {
            let now = now();
            match reuse(
                &presented,
                &kept.stored,
                &cached.settings.rules,
                &conditions,
                now,
            ) {
                Reuse::Fresh { age } => {
                    return kept.respond(&presented, cached.hit(age, now)).into();
                }
                Reuse::Stale { age, refresh } => {
                    let response = kept.respond(&presented, cached.hit(age, now));
                    if refresh {
                        cached.refresh(&request, &key, kept);
                    }
                    return response.into();
                }
                _ => {}
            }
        }
        let cached = Rc::clone(cached);
        Answer::later(async move { cached.look(request, key, conditions).await })
    }
}

impl Inner {
    /// Answers out of the store, or sees to it that the answer gets there.
    async fn look(self: Rc<Self>, request: Request, key: Key, conditions: Conditions) -> Response {
        let rules = &self.settings.rules;
        let stored_under = self.stored_under(&key);
        let until = Instant::now() + self.settings.lock_timeout;
        let is_head = *request.method() == Method::HEAD;
        // What is stored and has to be validated first.
        let mut stale: Option<Rc<Prepared>> = None;
        let mut reason = ForwardReason::UriMiss;
        for _ in 0..MAX_LOOKS {
            let presented = presented(&request, &self.settings);
            let is_stale = stale.is_some();
            let found = match self.fetches_nothing(&presented) {
                true if is_stale => None,
                true => self.stored(&stored_under, &presented).await.map(Found::Hit),
                false => Some(self.find(&stored_under, &presented, is_stale)),
            };
            let (object, is_along) = match found {
                Some(Found::Hit(object)) => (object, false),
                Some(Found::Filling(object)) => (object, true),
                Some(Found::Wait(wait)) => {
                    match tokio::time::timeout_at(until, wait.outcome()).await {
                        Ok(Awaited::Again) => continue,
                        Ok(Awaited::Pass) | Err(_) => break,
                    }
                }
                Some(Found::Lead(ticket)) => {
                    let asked = Rc::new(self.asked(&request));
                    let errand = Errand {
                        ticket,
                        stale,
                        reason,
                        conditions,
                    };
                    return self.fetch(asked, request, errand).await;
                }
                Some(Found::Pass) | None => {
                    if must_not_forward(&presented) {
                        return Response::new(StatusCode::GATEWAY_TIMEOUT);
                    }
                    break;
                }
            };
            // While this is here nothing is let go of what the request is to be sent. What cannot be stored, and has
            // begun to go, is nothing to come along with.
            let follows = (is_along && !is_head).then(|| object.read(None));
            if follows.is_some() && !object.is_joinable() {
                continue;
            }
            let now = now();
            let epoch = object.epoch();
            let Some(kept) = Prepared::of(&object, now) else {
                self.drop_object(&object);
                continue;
            };
            let gaps = match object.is_resumable() && !object.is_complete() && !is_head {
                true => Gaps::of(&self, &Rc::new(self.asked(&request)), &kept.stored, &object),
                false => None,
            };
            let kept = Rc::new(kept.with(gaps));
            if !object.is_complete() && !is_along && !is_head && kept.gaps.is_none() {
                // The rest cannot be asked for any more.
                self.drop_object(&object);
                continue;
            }
            if is_along && wants_middle(&presented) && kept.may_take_long() {
                break;
            }
            let forwarded = |reason, collapsed| Handling::Forwarded {
                reason,
                status: None,
                stored: true,
                collapsed,
            };
            let mut handling = match is_along {
                false => Handling::Hit,
                true => forwarded(reason, true),
            };
            let decision = reuse(&presented, &kept.stored, rules, &conditions, now);
            if matches!(decision, Reuse::Fresh { .. } | Reuse::Stale { .. }) {
                let lacks = kept.lacks(&presented);
                if must_not_forward(&presented) && lacks {
                    return Response::new(StatusCode::GATEWAY_TIMEOUT);
                }
                match kept.complete(&presented).await {
                    Opened::Fetched => handling = forwarded(ForwardReason::Partial, false),
                    Opened::Comes if lacks => handling = forwarded(ForwardReason::Partial, true),
                    Opened::Comes => {}
                    Opened::Outdated => continue,
                    Opened::Alone => break,
                    Opened::Refused(response) => return self.told(response, reason),
                }
            }
            let sending = |age| Sending {
                handling,
                ..self.hit(age, now)
            };
            match decision {
                Reuse::Fresh { age } => {
                    // What is on disk is looked at before each response.
                    if !is_along && object.bytes().is_some() && kept.gaps.is_none() {
                        self.front
                            .keep(key.bytes(), &object, epoch, Rc::clone(&kept), kept.size());
                    }
                    return kept.respond(&presented, sending(age));
                }
                Reuse::Stale { age, refresh } => {
                    let response = kept.respond(&presented, sending(age));
                    if refresh && !is_along {
                        self.refresh(&request, &key, kept);
                    }
                    return response;
                }
                // What another request is just being sent is current, if it may be shared at all.
                Reuse::Validate(why) if is_along => {
                    reason = why;
                    break;
                }
                Reuse::Validate(why) => {
                    reason = why;
                    stale = Some(kept);
                }
                Reuse::Forward(why) => {
                    reason = why;
                    break;
                }
                Reuse::GatewayTimeout => return Response::new(StatusCode::GATEWAY_TIMEOUT),
            }
        }
        if is_head {
            return self.forward_head(request, &stored_under, reason).await;
        }
        self.forward(request, reason).wait().await
    }

    /// The answer to a HEAD also tells whether what is stored for GET is current (RFC 9111 section
    /// 4.3.5).
    async fn forward_head(
        &self,
        request: Request,
        key: &StoreKey,
        reason: ForwardReason,
    ) -> Response {
        let asked = self.asked(&request);
        let requested = now();
        let response = self.forward(request, reason).wait().await;
        let received = now();
        let presented = asked.presented();
        let Some(object) = self.stored(key, &presented).await else {
            return response;
        };
        let answer = OriginResponse {
            status: response.status(),
            headers: response.headers(),
            requested,
            received,
        };
        let rules = &self.settings.rules;
        let update = Prepared::of(&object, received)
            .map(|kept| update_by_head(&presented, &kept.stored, &answer, rules));
        match update {
            Some(HeadUpdate::Stored(newer)) => {
                if let Found::Lead(ticket) = self.find(key, &presented, true) {
                    ticket.freshen(&object, head(&newer));
                }
            }
            Some(HeadUpdate::Invalid) => self.drop_object(&object),
            Some(HeadUpdate::Unchanged) | None => {}
        }
        response
    }

    /// What is stored, or who gets it; only the latter if what is stored is stale.
    fn find(&self, key: &StoreKey, presented: &PresentedRequest<'_>, is_stale: bool) -> Found {
        let store = &self.cache.0.store;
        let mut secondary = |line: &[u8]| secondary(presented, line);
        match is_stale {
            true => store.lead(key, &mut secondary),
            false => store.lookup_or_fill(key, &mut secondary),
        }
    }

    /// What is stored.
    async fn stored(
        &self,
        key: &StoreKey,
        presented: &PresentedRequest<'_>,
    ) -> Option<Arc<Object>> {
        let mut secondary = |line: &[u8]| secondary(presented, line);
        self.cache.0.store.find(key, &mut secondary).await
    }

    /// Whether a request has nobody asked for something to store: HEAD, some parts, and what only wants
    /// what is stored. What others are sent just now is not looked at for it then, but what is on disk.
    fn fetches_nothing(&self, presented: &PresentedRequest<'_>) -> bool {
        *presented.method == Method::HEAD
            || must_not_forward(presented)
            || (wants_middle(presented)
                && Beginning::of(presented.headers, &self.settings.rules).is_none())
    }

    /// Asks for what is stored anew, while the stale answer is on its way.
    fn refresh(self: &Rc<Self>, request: &Request, key: &Key, stale: Rc<Prepared>) {
        let presented = presented(request, &self.settings);
        let found = self.find(&self.stored_under(key), &presented, true);
        let Found::Lead(ticket) = found else {
            // Somebody does already.
            return;
        };
        let asked = Rc::new(self.asked(request));
        let again = asked.again();
        let cached = Rc::clone(self);
        tokio::task::spawn_local(async move {
            let errand = Errand {
                ticket,
                stale: Some(stale),
                reason: ForwardReason::Stale,
                conditions: Conditions {
                    uses: cached.settings.rules.minimum_uses,
                    ..Conditions::default()
                },
            };
            // The answer goes nowhere; what is stored counts.
            drop(cached.fetch(asked, again, errand).await);
        });
    }

    /// A request that may change what is stored (RFC 9111 section 4.4).
    fn change(self: &Rc<Self>, request: Request) -> Answer {
        let asked = self.asked(&request);
        let cached = Rc::clone(self);
        self.forward(request, ForwardReason::Method)
            .map(move |response| {
                let rules = &cached.settings.rules.key;
                let keys = invalidated(
                    &asked.presented(),
                    response.status(),
                    response.headers(),
                    rules,
                );
                for key in &keys {
                    cached.cache.purge(&PurgeRequest {
                        site: Some(cached.site.as_ref().into()),
                        what: purge::of_uri(key, rules),
                        soft: false,
                    });
                }
                response
            })
    }

    /// What the service behind answers, which is not stored.
    pub(super) fn forward(&self, request: Request, reason: ForwardReason) -> Answer {
        let telling = self.settings.telling();
        let answer = self.inner.call(request);
        answer.map(move |response| passed_on(response, reason, telling))
    }

    /// An answer of the service behind, which is not stored.
    pub(super) fn told(&self, response: Response, reason: ForwardReason) -> Response {
        passed_on(response, reason, self.settings.telling())
    }

    fn asked(&self, request: &Request) -> Asked {
        Asked::of(request, &self.settings)
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
                tracing::info!(site = &*self.site, ?purge, "purged by request");
                self.cache.purge(&purge);
            }
        }
        purge::answer(is_allowed)
    }

    fn conditions(&self, request: &Request, key: &Key) -> Conditions {
        let minimum = self.settings.rules.minimum_uses;
        let trusted = &self.settings.trusted;
        Conditions {
            uses: match minimum {
                0 | 1 => 1,
                _ => self.cache.0.uses.count(key.bytes()),
            },
            is_trusted: !trusted.is_empty() && {
                let client = request.client().peer();
                trusted.iter().any(|network| network.contains(&client))
            },
            ..Conditions::default()
        }
    }

    pub(super) fn hit(&self, age: u32, now: Timestamp) -> Sending<'_> {
        Sending {
            age,
            now,
            handling: Handling::Hit,
            telling: self.settings.telling(),
            forming: Forming {
                cache: &self.cache,
                compression: self.compression,
            },
        }
    }

    pub(super) fn stored_under(&self, key: &Key) -> StoreKey {
        StoreKey::new(&self.site, key.bytes())
    }

    /// Takes one object out for good.
    pub(super) fn drop_object(&self, object: &Arc<Object>) {
        self.cache.0.store.remove(object);
    }
}

/// An answer of the service behind, which is not stored, and what the cache did if that is told.
fn passed_on(mut response: Response, reason: ForwardReason, telling: Telling) -> Response {
    let handling = Handling::Forwarded {
        reason,
        status: None,
        stored: false,
        collapsed: false,
    };
    telling.tell(&mut response, handling, None);
    response
}

/// Whether a request is for a part that does not begin at the beginning.
fn wants_middle(presented: &PresentedRequest<'_>) -> bool {
    presented
        .headers
        .get("range")
        .is_some_and(|range| !range.starts_with(b"bytes=0-"))
}

/// What a request has in the fields that select a variant.
fn secondary(presented: &PresentedRequest<'_>, line: &[u8]) -> Vec<u8> {
    let variance = Variance::from_line(line);
    variance.variant(presented).bytes().to_vec()
}

/// What the policy sees of a request.
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
