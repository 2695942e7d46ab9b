//! Requests to the service behind the cache, and the storing of its responses (RFC 9111 sections 3 and
//! 4.3).

use std::rc::Rc;
use std::time::Duration;

use crate::policy::{
    CachingContext, FreshenResult, StorableResponse, StoredResponse, ValidationResult,
    add_conditions, evaluate_validation, freshen, may_store, select_validated,
};
use crate::store::{FillTicket, NewObject, ObjectMetadata};
use apus_http::fields::{ForwardReason, Handling};
use apus_http::{Request, Response, StatusCode};
use bytes::Bytes;

use super::clock::now;
use super::exchange::{FetchedResponse, RequestSnapshot};
use super::fill::fill;
use super::location::CachedLocation;
use super::prepared_response::{PreparedResponse, SendContext};
use super::ranges::{GapFetcher, GapResult, InitialRange};

/// How long requests do not wait for one another, after a response that cannot be shared.
const PASS_FOR: Duration = Duration::from_secs(2);

/// Why a request is forwarded, and for whom.
pub(super) struct FetchContext {
    /// The permit to fetch for all waiting requests.
    pub(super) ticket: FillTicket,
    /// The stored response to validate.
    pub(super) stale: Option<Rc<PreparedResponse>>,
    /// Why the stored response, if any, is not sufficient.
    pub(super) reason: ForwardReason,
    pub(super) conditions: CachingContext,
}

impl CachedLocation {
    /// Forwards a request for all that wait, either to validate the stored response or to fetch
    /// one.
    pub(super) async fn fetch(
        self: &Rc<Self>,
        snapshot: Rc<RequestSnapshot>,
        mut request: Request,
        context: FetchContext,
    ) -> Response {
        let FetchContext {
            ticket,
            stale,
            reason,
            conditions,
        } = context;
        let mut initial_range = None;
        match &stale {
            Some(stale) => add_conditions(&[&stale.stored], request.headers_mut()),
            None => {
                initial_range = InitialRange::of(request.headers(), &self.settings.rules);
                add_conditions(&[], request.headers_mut());
            }
        }
        if let Some(initial_range) = &initial_range {
            initial_range.add_to(request.headers_mut());
        }
        let requested = now();
        let response = self.inner.call(request).wait().await;
        let fetched = FetchedResponse {
            response,
            requested,
            received: now(),
        };
        let presented = snapshot.presented();
        let rules = &self.settings.rules;
        let store_context = StoreContext {
            snapshot: &snapshot,
            ticket,
            reason,
            conditions: &conditions,
            initial_range,
        };
        let Some(stale) = stale else {
            return self.store(fetched, store_context).await;
        };
        let status = fetched.response.status();
        match evaluate_validation(
            &presented,
            &stale.stored,
            status,
            rules,
            &conditions,
            fetched.received,
        ) {
            ValidationResult::Current => {
                // A 304 with another validator is not about the stored response (RFC 9111 section
                // 4.3.4).
                if select_validated(&[&stale.stored], fetched.response.headers()).is_none() {
                    self.drop_object(&stale.object);
                    return self
                        .forward(snapshot.to_fetch_request(), reason)
                        .wait()
                        .await;
                }
                self.freshen(&snapshot, &fetched, store_context.ticket, &stale)
                    .await
            }
            ValidationResult::Replaced => self.store(fetched, store_context).await,
            ValidationResult::ServeStale { age } => {
                let result = stale.ensure_available(&presented).await;
                if !matches!(result, GapResult::NotNeeded | GapResult::Started) {
                    return self.uncached_response(fetched.response, reason);
                }
                let handling = Handling::Forwarded {
                    reason: ForwardReason::Stale,
                    status: Some(status),
                    stored: true,
                    collapsed: false,
                };
                stale.respond(
                    &presented,
                    SendContext {
                        handling,
                        ..self.hit_context(age, fetched.received)
                    },
                )
            }
            ValidationResult::Failed => self.uncached_response(fetched.response, reason),
        }
    }

    /// Updates a stored response that is current.
    async fn freshen(
        self: &Rc<Self>,
        snapshot: &Rc<RequestSnapshot>,
        fetched: &FetchedResponse,
        ticket: FillTicket,
        stale: &PreparedResponse,
    ) -> Response {
        let presented = &snapshot.presented();
        let rules = &self.settings.rules;
        let origin = fetched.as_origin_response();
        let now = fetched.received;
        let handling = Handling::Forwarded {
            reason: ForwardReason::Stale,
            status: Some(StatusCode::NOT_MODIFIED),
            stored: true,
            collapsed: false,
        };
        match freshen(presented, &stale.stored, &origin, rules) {
            FreshenResult::Stored(stored) => {
                ticket.freshen(&stale.object, metadata(&stored));
                let age = stored.age(now);
                let gap_fetcher = GapFetcher::of(self, snapshot, &stored, &stale.object);
                let current =
                    PreparedResponse::new(*stored, stale.object.clone(), self.compression)
                        .with_gap_fetcher(gap_fetcher);
                match current.ensure_available(presented).await {
                    GapResult::NotNeeded | GapResult::Started => {}
                    GapResult::OriginError(response) => {
                        return self.uncached_response(response, ForwardReason::Stale);
                    }
                    GapResult::Outdated | GapResult::NotStorable => {
                        let response =
                            self.forward(snapshot.to_fetch_request(), ForwardReason::Stale);
                        return response.wait().await;
                    }
                }
                current.respond(
                    presented,
                    SendContext {
                        handling,
                        ..self.hit_context(age, now)
                    },
                )
            }
            FreshenResult::NotStored {
                mut headers,
                is_revoked,
                renewed,
                ..
            } => {
                if let Some(renewed) = renewed {
                    ticket.freshen(&stale.object, metadata(&renewed));
                } else if is_revoked {
                    self.drop_object(&stale.object);
                }
                // The head is not sent before the first bytes were verified: a body that breaks off is all that is left later.
                if !stale.object.is_sound_at(0).await {
                    let response = self.forward(snapshot.to_fetch_request(), ForwardReason::Stale);
                    return response.wait().await;
                }
                let body = stale.body(None);
                let status = stale.stored.status();
                headers.remove_internal();
                let mut response = Response::with_headers(status, headers, body);
                let handling = Handling::Forwarded {
                    reason: ForwardReason::Stale,
                    status: Some(StatusCode::NOT_MODIFIED),
                    stored: false,
                    collapsed: false,
                };
                self.settings
                    .status_writer()
                    .write(&mut response, handling, None);
                response
            }
        }
    }

    /// Stores a response, if that is allowed, while it is sent.
    async fn store(
        self: &Rc<Self>,
        mut fetched: FetchedResponse,
        store_context: StoreContext<'_>,
    ) -> Response {
        let StoreContext {
            snapshot,
            ticket,
            reason,
            conditions,
            initial_range,
        } = store_context;
        let presented = snapshot.presented();
        let rules = &self.settings.rules;
        let origin = fetched.as_origin_response();
        let StorableResponse { stored, part } =
            match may_store(&presented, &origin, rules, conditions) {
                Ok(storable) => storable,
                Err(refusal) => {
                    tracing::debug!(path = presented.path, %refusal, "the response is not stored");
                    // A partial response that cannot be stored says nothing about the complete one.
                    ticket.pass(if refusal.is_about_request() || initial_range.is_some() {
                        Duration::ZERO
                    } else {
                        PASS_FOR
                    });
                    return self.uncached_response(fetched.response, reason);
                }
            };
        let is_asked =
            |part| initial_range.is_some_and(|initial_range| initial_range.matches(part));
        let range = match part {
            Some(part) if !is_asked(part) => {
                ticket.pass(Duration::ZERO);
                return self.uncached_response(fetched.response, reason);
            }
            part => part.map(|part| part.range.start..part.range.end()),
        };
        let body = fetched.response.take_body();
        let length = match part {
            Some(part) => Some(part.complete),
            None => body.len(),
        };
        let new = NewObject {
            resumable: can_be_resumed(&stored, part.is_some()),
            ..new_object(&stored, length)
        };
        let filler = match range {
            Some(range) => ticket.start_part(new, range),
            None => ticket.start(new),
        };
        let object = filler.object().clone();
        // Before the response is made: a body that is in memory already is complete then, and is sent as such.
        fill(filler, body, rules.max_size).await;
        let now = fetched.received;
        let age = stored.age(now);
        let gap_fetcher = GapFetcher::of(self, snapshot, &stored, &object);
        let prepared =
            PreparedResponse::new(stored, object, self.compression).with_gap_fetcher(gap_fetcher);
        prepared.respond(
            &presented,
            SendContext {
                handling: Handling::Forwarded {
                    reason,
                    status: None,
                    stored: true,
                    collapsed: false,
                },
                ..self.hit_context(age, now)
            },
        )
    }
}

/// What is needed to store a response.
struct StoreContext<'a> {
    snapshot: &'a Rc<RequestSnapshot>,
    ticket: FillTicket,
    reason: ForwardReason,
    conditions: &'a CachingContext,
    initial_range: Option<InitialRange>,
}

/// Whether missing ranges of a response can be fetched later. An origin that has sent a partial
/// response sends others.
fn can_be_resumed(stored: &StoredResponse, is_part: bool) -> bool {
    stored.status() == StatusCode::OK
        && stored.has_strong_validator()
        && (is_part || stored.headers().get("accept-ranges") == Some(b"bytes"))
}

/// The metadata of a response in the form of the store.
pub(super) fn metadata(stored: &StoredResponse) -> ObjectMetadata {
    let mut policy = Vec::with_capacity(stored.headers().wire().len() + 128);
    stored.encode(&mut policy);
    ObjectMetadata {
        policy: policy.into(),
        fields: Bytes::new(),
        expires: stored.useful_until().as_unix_seconds(),
        received: stored.received().as_unix_seconds(),
    }
}

fn new_object(stored: &StoredResponse, length: Option<u64>) -> NewObject {
    let (vary, secondary) = if stored.vary().is_empty() {
        (Vec::new(), Vec::new())
    } else {
        (
            stored.vary().line(),
            stored.secondary_key().bytes().to_vec(),
        )
    };
    NewObject {
        metadata: metadata(stored),
        vary,
        secondary,
        tags: stored.tags().map(Into::into).collect(),
        length,
        resumable: false,
        // The fill continues when all clients have left.
        fill_without_readers: true,
    }
}
