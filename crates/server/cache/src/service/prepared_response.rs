//! Responses constructed from stored ones, with `Age`, as 304 or as ranges (RFC 9111 section 4).

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{PresentedRequest, StoredResponse, Timestamp};
use crate::store::Object;
use apus_compress::{CodingRule, Compression};
use apus_http::fields::{Handling, Ranges, Validators};
use apus_http::{Body, Headers, Method, Response, StatusCode};
use bytes::Bytes;
use smallvec::SmallVec;

use super::cache_status::CacheStatusWriter;
use super::compression::{ResponseCompressor, ResponseForm, is_any_allowed, is_worthwhile};
use super::location::CachedLocation;
use super::ranges::{GapFetcher, GapResult, MAX_WAIT_DISTANCE};

/// The fields of a 304 (RFC 9110 section 15.4.5). Other fields describe a body that is not sent.
const NOT_MODIFIED_FIELDS: [&str; 10] = [
    "age",
    "cache-control",
    "cache-status",
    "cdn-cache-control",
    "content-location",
    "date",
    "etag",
    "expires",
    "last-modified",
    "vary",
];

/// A decoded stored response, ready to be sent by a worker.
pub(super) struct PreparedResponse {
    pub(super) stored: StoredResponse,
    pub(super) object: Arc<Object>,
    /// Which compressed forms the location has.
    compression: Compression,
    /// Fetches the missing ranges of the body; `None` if it is complete or cannot be completed.
    pub(super) gap_fetcher: Option<Rc<GapFetcher>>,
    /// Whether there are compressed forms of it.
    has_encoded_forms: OnceCell<bool>,
    /// The header fields with `Age` for each form. They are the same for all requests within a
    /// second.
    form_headers: RefCell<SmallVec<[FormHeaders; 1]>>,
}

struct FormHeaders {
    form: ResponseForm,
    age: u32,
    ttl: i64,
    headers: Rc<Headers>,
}

/// How a stored response is sent for one request.
#[derive(Clone, Copy)]
pub(super) struct SendContext<'a> {
    pub(super) age: u32,
    pub(super) now: Timestamp,
    pub(super) handling: Handling,
    /// Writes `Cache-Status`.
    pub(super) status_writer: CacheStatusWriter,
    pub(super) compressor: ResponseCompressor<'a>,
}

impl CachedLocation {
    /// How a stored response of this age is sent.
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
}

impl PreparedResponse {
    pub(super) fn new(
        stored: StoredResponse,
        object: Arc<Object>,
        compression: Compression,
    ) -> Self {
        Self {
            stored,
            object,
            compression,
            gap_fetcher: None,
            has_encoded_forms: OnceCell::new(),
            form_headers: RefCell::default(),
        }
    }

    /// Sets how missing ranges are fetched.
    pub(super) fn with_gap_fetcher(self, gap_fetcher: Option<Rc<GapFetcher>>) -> Self {
        Self {
            gap_fetcher,
            ..self
        }
    }

    /// Decodes the metadata of an object; `None` if that is not possible, as after an upgrade.
    pub(super) fn of(
        object: &Arc<Object>,
        now: Timestamp,
        compression: Compression,
    ) -> Option<Self> {
        let mut stored = StoredResponse::decode(&object.metadata().policy).ok()?;
        if object.is_purged_softly() {
            stored.make_stale(now);
        }
        Some(Self::new(stored, Arc::clone(object), compression))
    }

    /// The bytes of memory that it takes.
    pub(super) fn size(&self) -> u64 {
        let lines = 2 * self.stored.headers().wire().len() + 512;
        lines as u64 + self.object.bytes().map_or(0, |bytes| bytes.len() as u64)
    }

    /// `range` of the body, or all of it.
    pub(super) fn body(&self, range: Option<Range<u64>>) -> Body {
        match &self.gap_fetcher {
            Some(gap_fetcher) => gap_fetcher.body(&self.object, range),
            None => self.object.body(range),
        }
    }

    /// The range of the body that the response to a request contains; `None` for a response without
    /// a body.
    fn wanted_range(&self, request: &PresentedRequest<'_>) -> Option<Range<u64>> {
        if *request.method != Method::GET || self.stored.is_not_modified(request.headers) {
            return None;
        }
        match self.ranges(request) {
            None | Some((Ranges::Whole, _)) => Some(0..u64::MAX),
            Some((Ranges::Unsatisfiable, _)) => None,
            Some((Ranges::Parts(parts), _)) => match *parts {
                [part] => Some(part.start..part.end()),
                _ => Some(0..u64::MAX),
            },
        }
    }

    /// Whether bytes of the response to a request are not stored yet.
    pub(super) fn is_missing_bytes_for(&self, request: &PresentedRequest<'_>) -> bool {
        let wanted = self
            .wanted_range(request)
            .filter(|_| self.gap_fetcher.is_some());
        wanted.is_some_and(|range| !self.object.missing(range).is_empty())
    }

    /// Whether a later range may take long to arrive, because it cannot be requested separately.
    pub(super) fn may_take_long(&self) -> bool {
        let is_large = |length| length > MAX_WAIT_DISTANCE;
        self.gap_fetcher.is_none()
            && !self.object.is_complete()
            && self.object.length().is_none_or(is_large)
    }

    /// Ensures before the response begins that its body is available: the first piece is not
    /// damaged, and the first missing range is being fetched.
    pub(super) async fn ensure_available(&self, request: &PresentedRequest<'_>) -> GapResult {
        let Some(range) = self.wanted_range(request) else {
            return GapResult::NotNeeded;
        };
        if !self.object.is_sound_at(range.start).await {
            return GapResult::Outdated;
        }
        match &self.gap_fetcher {
            Some(gap_fetcher) => {
                Rc::clone(gap_fetcher)
                    .fetch_first_if_few(Arc::clone(&self.object), range)
                    .await
            }
            None => GapResult::NotNeeded,
        }
    }

    /// The response to a request.
    pub(super) fn respond(
        &self,
        request: &PresentedRequest<'_>,
        context: SendContext<'_>,
    ) -> Response {
        let mut response = self.build(request, context);
        let ttl = self.stored.ttl(context.now);
        response.set_cache(context.handling.result(Some(ttl)));
        response
    }

    fn build(&self, request: &PresentedRequest<'_>, context: SendContext<'_>) -> Response {
        let form = self.form(request);
        if self.stored.is_not_modified(request.headers) {
            // Of a response that is not complete yet, the client may have a compressed form, too.
            let form = if self.is_negotiated() {
                ResponseForm::of(request.headers, self.compression)
            } else {
                ResponseForm::Stored
            };
            let headers = self.headers(context, form);
            let mut selected = Headers::with_capacity(headers.wire().len());
            selected.append_from(&headers, |name, _| {
                NOT_MODIFIED_FIELDS
                    .iter()
                    .any(|kept| kept.as_bytes() == name)
            });
            let mut response =
                Response::with_headers(StatusCode::NOT_MODIFIED, selected, Body::Empty);
            response.set_coding_chosen(self.is_compressed_here());
            return response;
        }
        if let Some(response) = self.part(request, context) {
            return response;
        }
        let status = self.stored.status();
        if let ResponseForm::Coded(coding) = form
            && let Some(body) = context.compressor.compressed(&self.object, coding)
        {
            let headers = self.headers(context, form);
            let mut response = Response::with_shared_headers(status, headers, body.into());
            response.set_coding_chosen(true);
            return response;
        }
        let body = match self.body(None) {
            // A stored response without a body has the length 0.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => body,
        };
        let form = match form {
            // The site compresses it while it is sent.
            ResponseForm::Coded(_) if self.object.bytes().is_some() => ResponseForm::Stored,
            ResponseForm::Coded(_) => ResponseForm::Identity,
            form => form,
        };
        let is_chosen = form == ResponseForm::Identity
            || (self.is_compressed_here() && self.has_encoded_forms.get() == Some(&false));
        let mut response = Response::with_shared_headers(status, self.headers(context, form), body);
        response.set_coding_chosen(is_chosen);
        response
    }

    /// The form in which a request gets the complete response. HEAD gets the fields of GET (RFC 9110
    /// section 9.3.2).
    fn form(&self, request: &PresentedRequest<'_>) -> ResponseForm {
        if !matches!(*request.method, Method::GET | Method::HEAD)
            || self.has_encoded_forms.get() == Some(&false)
            || !self.object.is_complete()
            || !*self.has_encoded_forms.get_or_init(|| self.is_worthwhile())
        {
            return ResponseForm::Stored;
        }
        match ResponseForm::of(request.headers, self.compression) {
            ResponseForm::Coded(_) if !self.may_be_coded_for(request) => ResponseForm::Identity,
            form => form,
        }
    }

    /// Whether the rule of a request, if it has one, lets this response be compressed.
    fn may_be_coded_for(&self, request: &PresentedRequest<'_>) -> bool {
        let head = || {
            let mut headers = self.stored.headers().clone();
            if let Some(length) = self.object.length() {
                // A number is a valid value.
                let _ = headers.try_insert("content-length", length.to_string());
            }
            Response::with_headers(self.stored.status(), headers, Body::Empty)
        };
        (request.request).is_none_or(|request| CodingRule::allows(request, head))
    }

    /// Whether the cache, and not a service in front of it, compresses responses.
    fn is_compressed_here(&self) -> bool {
        is_any_allowed(self.compression)
    }

    /// Whether compressed forms are made of it.
    fn is_worthwhile(&self) -> bool {
        is_worthwhile(&self.stored, self.object.length(), self.compression)
    }

    /// Whether clients get different forms of it, which a 304 and a 206 say as well (RFC 9110 sections 15.4.5
    /// and 15.3.7).
    fn is_negotiated(&self) -> bool {
        match (self.has_encoded_forms.get(), self.object.length()) {
            (Some(has_forms), _) => *has_forms,
            (None, Some(_)) => self.is_worthwhile(),
            (None, None) => {
                self.is_compressed_here()
                    && apus_compress::is_compressible(self.stored.status(), self.stored.headers())
            }
        }
    }

    /// The partial response that the client requests (RFC 9110 section 14). A request for several
    /// parts gets the complete response.
    fn part(&self, request: &PresentedRequest<'_>, context: SendContext<'_>) -> Option<Response> {
        let (ranges, complete) = self.ranges(request)?;
        // These values consist of digits, which are valid.
        match ranges {
            Ranges::Unsatisfiable => {
                let mut response = Response::new(StatusCode::RANGE_NOT_SATISFIABLE);
                let value = format!("bytes */{complete}");
                let _ = response.headers_mut().try_append("content-range", value);
                Some(response)
            }
            Ranges::Parts(parts) => {
                // Several ranges would need `multipart/byteranges`. RFC 9110 section 14.2 lets a server ignore the
                // field.
                let [part] = *parts else {
                    return None;
                };
                let form = if self.is_negotiated() {
                    ResponseForm::Identity
                } else {
                    ResponseForm::Stored
                };
                let mut headers = Headers::clone(&self.headers(context, form));
                let _ = headers.try_insert("content-length", part.len.to_string());
                let value = part.content_range(complete).to_string();
                let _ = headers.try_insert("content-range", value);
                let body = self.body(Some(part.start..part.end()));
                let mut response =
                    Response::with_headers(StatusCode::PARTIAL_CONTENT, headers, body);
                response.set_coding_chosen(self.is_compressed_here());
                Some(response)
            }
            Ranges::Whole => None,
        }
    }

    /// The ranges that the client requests, and the complete length. `None` for a request that gets
    /// the complete response.
    fn ranges(&self, request: &PresentedRequest<'_>) -> Option<(Ranges, u64)> {
        let range = request.headers.get("range")?;
        let complete = self.object.length()?;
        if *request.method != Method::GET
            || self.stored.status() != StatusCode::OK
            || !self
                .validators_of_part(request)
                .allow_range(request.headers)
        {
            return None;
        }
        Some((Ranges::parse(range, complete), complete))
    }

    /// The validators that `If-Range` may name. All forms have the same date, so that it does not say which of
    /// them the client has a part of.
    fn validators_of_part(&self, request: &PresentedRequest<'_>) -> Validators<'_> {
        let validators = self.stored.validators();
        let is_ambiguous = request.headers.contains("if-range")
            && self.is_negotiated()
            && ResponseForm::of(request.headers, self.compression) != ResponseForm::Identity;
        if is_ambiguous {
            Validators {
                last_modified: None,
                ..validators
            }
        } else {
            validators
        }
    }

    fn headers(&self, context: SendContext<'_>, form: ResponseForm) -> Rc<Headers> {
        let ttl = self.stored.ttl(context.now);
        let is_hit = context.handling == Handling::Hit;
        let mut all = self.form_headers.borrow_mut();
        let slot = all.iter_mut().find(|headers| headers.form == form);
        if let Some(lines) = &slot
            && is_hit
            && lines.age == context.age
            && lines.ttl == ttl
        {
            return Rc::clone(&lines.headers);
        }
        let mut headers = self.stored.headers().clone();
        // They are stored for the next validation.
        headers.remove_internal();
        form.describe(&mut headers);
        // A number is a valid value.
        let _ = headers.try_insert("age", context.age.to_string());
        context
            .status_writer
            .add_fields(&mut headers, context.handling, Some(ttl));
        let headers = Rc::new(headers);
        if is_hit {
            let lines = FormHeaders {
                form,
                age: context.age,
                ttl,
                headers: Rc::clone(&headers),
            };
            match slot {
                Some(slot) => *slot = lines,
                None => all.push(lines),
            }
        }
        headers
    }
}
