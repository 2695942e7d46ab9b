//! Ranges of stored objects, and fetching the missing ones (RFC 9111 section 3.4, RFC 9110 section
//! 14).
//!
//! A request that reads an incomplete object fetches the missing ranges that no other request
//! fetches, with `If-Range`. A fetched range is stored only if it is the requested one, of the
//! stored version. Otherwise the object is outdated, and is not sent any more.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::policy::{
    CacheRules, CachingContext, ContentRange, StorableResponse, StoredResponse, add_conditions,
    may_store,
};
use crate::store::{Object, ObjectPiece, ObjectReader, ReadError};
use apus_http::fields::Ranges;
use apus_http::{Body, BodyError, BodyStream, Frame, Headers, Response};

use super::clock::now;
use super::exchange::{FetchedResponse, RequestSnapshot};
use super::fill::fill;
use super::location::CachedLocation;

/// A reader that is further ahead of the running fetch fetches its range itself.
pub(super) const MAX_WAIT_DISTANCE: u64 = 1 << 20;

/// An object with this many separate ranges gets no more of them, but those that it has still grow.
const MAX_PARTS: usize = 48;

/// How often the same bytes are requested for one response, if the origin sends too few.
const MAX_SHORT_RESPONSES: u32 = 2;

/// Fetches the missing ranges of a stored object on behalf of one request.
pub(super) struct GapFetcher {
    location: Rc<CachedLocation>,
    snapshot: Rc<RequestSnapshot>,
    /// The strong validator of the stored response.
    if_range: Box<[u8]>,
}

/// The result of looking for a gap and fetching it.
pub(super) enum GapResult {
    /// There is no gap, or another request fetches it.
    NotNeeded,
    /// The fetch has begun.
    Started,
    /// The stored object is outdated, and was removed.
    Outdated,
    /// The response may not be stored, because of the request.
    NotStorable,
    /// The origin responded with an error, which says nothing about the stored object.
    OriginError(Response),
}

enum PartVerdict {
    Fits,
    Outdated,
    NotStorable,
    OriginError,
}

impl GapFetcher {
    /// `None` if the object is complete, or cannot be completed.
    pub(super) fn of(
        location: &Rc<CachedLocation>,
        snapshot: &Rc<RequestSnapshot>,
        stored: &StoredResponse,
        object: &Object,
    ) -> Option<Rc<Self>> {
        if !object.is_resumable() || object.is_complete() {
            return None;
        }
        Some(Rc::new(Self {
            location: Rc::clone(location),
            snapshot: Rc::clone(snapshot),
            if_range: stored.if_range()?.into(),
        }))
    }

    /// `range` of the object as a body, whose missing ranges are fetched.
    pub(super) fn body(self: &Rc<Self>, object: &Arc<Object>, range: Option<Range<u64>>) -> Body {
        Body::stream(GapFillingBody {
            gap_fetcher: Rc::clone(self),
            reader: object.read(range),
            fetch: None,
            requested_until: 0,
            short_responses: 0,
        })
    }

    /// As [`GapFetcher::fetch_first`], before the response begins: only if the object does not get too
    /// many separate ranges by it.
    pub(super) async fn fetch_first_if_few(
        self: Rc<Self>,
        object: Arc<Object>,
        range: Range<u64>,
    ) -> GapResult {
        // The record of an object on disk has room for a limited number of parts, and a client could ask for every second
        // byte of a body.
        if is_separate(&object, range.clone()) && object.stored().iter().len() >= MAX_PARTS {
            return GapResult::NotStorable;
        }
        self.fetch_first(object, range).await
    }

    /// Fetches the first missing range in `range`.
    pub(super) async fn fetch_first(
        self: Rc<Self>,
        object: Arc<Object>,
        range: Range<u64>,
    ) -> GapResult {
        let store = &self.location.cache.0.store;
        let Some(filler) = object.fill_first(store, range, MAX_WAIT_DISTANCE) else {
            return GapResult::NotNeeded;
        };
        let gap = filler.range();
        let mut request = self.snapshot.to_fetch_request();
        add_conditions(&[], request.headers_mut());
        let last = gap.end.saturating_sub(1);
        let range = format!("bytes={}-{last}", gap.start);
        // `If-Range` makes an origin with a newer version send all of it with 200, instead of a part that does not fit (RFC
        // 9110 section 13.1.5). Digits and a stored field value are valid.
        let _ = request.headers_mut().try_append("range", range);
        let _ = request
            .headers_mut()
            .try_append("if-range", &*self.if_range);
        let requested = now();
        let response = self.location.inner.call(request).wait().await;
        let mut fetched = FetchedResponse {
            response,
            requested,
            received: now(),
        };
        match self.evaluate(&fetched, &gap, object.length()) {
            PartVerdict::Fits => {
                let body = fetched.response.take_body();
                fill(filler, body, self.location.settings.rules.max_size).await;
                GapResult::Started
            }
            PartVerdict::Outdated => {
                tracing::debug!(
                    path = self.snapshot.presented().path,
                    "the incomplete stored response is outdated"
                );
                filler.discard();
                store.remove(&object);
                GapResult::Outdated
            }
            PartVerdict::NotStorable => GapResult::NotStorable,
            PartVerdict::OriginError => GapResult::OriginError(fetched.response),
        }
    }

    /// Decides whether a response is the requested range.
    fn evaluate(
        &self,
        fetched: &FetchedResponse,
        gap: &Range<u64>,
        length: Option<u64>,
    ) -> PartVerdict {
        let rules = &self.location.settings.rules;
        let conditions = CachingContext {
            uses: rules.minimum_uses,
            ..CachingContext::default()
        };
        let status = fetched.response.status();
        let origin = fetched.as_origin_response();
        match may_store(&self.snapshot.presented(), &origin, rules, &conditions) {
            Ok(StorableResponse {
                stored,
                part: Some(part),
            }) if stored.if_range() == Some(&*self.if_range)
                && Some(part.complete) == length
                && part.range.start == gap.start
                && part.range.end() <= gap.end =>
            {
                PartVerdict::Fits
            }
            Err(refusal) if refusal.is_about_request() => PartVerdict::NotStorable,
            _ if status.is_success()
                || status.is_redirection()
                || matches!(status.as_u16(), 404 | 410 | 416) =>
            {
                PartVerdict::Outdated
            }
            _ => PartVerdict::OriginError,
        }
    }
}

/// Whether the first missing range in `range` touches no stored range.
fn is_separate(object: &Object, range: Range<u64>) -> bool {
    let missing = object.missing(range);
    missing.first().is_some_and(|gap| {
        let around = gap.start.saturating_sub(1)..gap.end.saturating_add(1);
        // One more byte on each side is missing, too.
        object.missing(around.clone()).first() == Some(&around)
    })
}

/// The body of an incomplete object.
struct GapFillingBody {
    gap_fetcher: Rc<GapFetcher>,
    reader: ObjectReader,
    fetch: Option<Pin<Box<dyn Future<Output = GapResult>>>>,
    /// The end of the last gap that was requested.
    requested_until: u64,
    short_responses: u32,
}

impl BodyStream for GapFillingBody {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(fetch) = &mut self.fetch {
                let result = ready!(fetch.as_mut().poll(cx));
                self.fetch = None;
                if !matches!(result, GapResult::NotNeeded | GapResult::Started) {
                    return Poll::Ready(Some(Err(BodyError::Source(Box::new(IncompleteError)))));
                }
            }
            let gap = match ready!(self.reader.poll_piece(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(ObjectPiece::Bytes(bytes))) => {
                    return Poll::Ready(Some(Ok(Frame::Data(bytes))));
                }
                Some(Ok(ObjectPiece::File(range))) => {
                    return Poll::Ready(Some(Ok(Frame::File(range))));
                }
                Some(Err(ReadError::Gap(gap))) => gap,
                Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Source(error.into())))),
            };
            if gap.start < self.requested_until {
                self.short_responses = self.short_responses.saturating_add(1);
                if self.short_responses > MAX_SHORT_RESPONSES {
                    return Poll::Ready(Some(Err(BodyError::Source(Box::new(IncompleteError)))));
                }
            }
            self.requested_until = gap.end;
            let object = Arc::clone(self.reader.object());
            self.fetch = Some(Box::pin(
                Rc::clone(&self.gap_fetcher).fetch_first(object, gap),
            ));
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.reader.remaining()
    }
}

/// The origin did not send a missing range.
#[derive(Debug)]
struct IncompleteError;

impl fmt::Display for IncompleteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the origin did not send a missing range of the stored response")
    }
}

impl std::error::Error for IncompleteError {}

/// The range with which an object begins, because a request is for this range only.
pub(super) struct InitialRange {
    range: Box<[u8]>,
    if_range: Option<Box<[u8]>>,
}

impl InitialRange {
    /// `None` if the request is for the complete response, for a range at its beginning, or for
    /// several ranges.
    pub(super) fn of(headers: &Headers, rules: &CacheRules) -> Option<Self> {
        let range = headers.get("range").filter(|_| rules.store_parts)?;
        // With the greatest possible length, all positions are distinct.
        let Ranges::Parts(parts) = Ranges::parse(range, u64::MAX) else {
            return None;
        };
        let is_single = parts.len() == 1 && !range.contains(&b',');
        let is_later = parts.first().is_some_and(|part| part.start > 0);
        (is_single && is_later).then(|| Self {
            range: range.into(),
            if_range: headers.get("if-range").map(Into::into),
        })
    }

    /// Adds the range to a request for the complete response.
    pub(super) fn add_to(&self, headers: &mut Headers) {
        // Both are values of valid fields.
        let _ = headers.try_append("range", &*self.range);
        if let Some(if_range) = &self.if_range {
            let _ = headers.try_append("if-range", &**if_range);
        }
    }

    /// Whether a partial response is the requested range, or the beginning of it.
    pub(super) fn matches(&self, part: ContentRange) -> bool {
        match Ranges::parse(&self.range, part.complete) {
            Ranges::Parts(parts) => matches!(*parts, [requested]
                if requested.start == part.range.start && part.range.end() <= requested.end()),
            Ranges::Whole | Ranges::Unsatisfiable => false,
        }
    }
}
