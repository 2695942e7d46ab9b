//! Responses made from stored ones (RFC 9111 section 4): with `Age`, as 304, as ranges.

use std::cell::{OnceCell, RefCell};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use crate::policy::{PresentedRequest, Stored, Timestamp};
use crate::store::Object;
use apus_http::fields::{Handling, Ranges};
use apus_http::{Body, Headers, Method, Response, StatusCode};
use bytes::Bytes;
use smallvec::SmallVec;

use super::forms::{Form, Forming};
use super::ranges::{AHEAD, Gaps, Opened};
use super::telling::Telling;

/// Fields of a 304 (RFC 9110 section 15.4.5); the others describe content that is not sent.
const OF_NOT_MODIFIED: [&str; 10] = [
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

/// A stored response as a worker has it ready.
pub(super) struct Prepared {
    pub(super) stored: Stored,
    pub(super) object: Arc<Object>,
    /// How what is missing of the content is fetched, while there is something missing.
    pub(super) gaps: Option<Rc<Gaps>>,
    /// Whether there are other forms of it.
    is_formed: OnceCell<bool>,
    /// The fields with `Age` for each form, which are the same for all requests of a second.
    lines: RefCell<SmallVec<[Lines; 1]>>,
}

struct Lines {
    form: Form,
    age: u32,
    ttl: i64,
    headers: Rc<Headers>,
}

/// How a stored response comes to be sent.
#[derive(Clone, Copy)]
pub(super) struct Sending<'a> {
    pub(super) age: u32,
    pub(super) now: Timestamp,
    pub(super) handling: Handling,
    /// How the answer tells of it.
    pub(super) telling: Telling,
    pub(super) forming: Forming<'a>,
}

impl Prepared {
    pub(super) fn new(stored: Stored, object: Arc<Object>) -> Self {
        Self {
            stored,
            object,
            gaps: None,
            is_formed: OnceCell::new(),
            lines: RefCell::default(),
        }
    }

    /// The same, with what is missing of it fetched like this.
    pub(super) fn with(self, gaps: Option<Rc<Gaps>>) -> Self {
        Self { gaps, ..self }
    }

    /// What an object of the store was made of; `None` if that cannot be read, as after an upgrade.
    pub(super) fn of(object: &Arc<Object>, now: Timestamp) -> Option<Self> {
        let mut stored = Stored::decode(&object.head().policy).ok()?;
        if object.is_purged_softly() {
            stored.make_stale(now);
        }
        Some(Self::new(stored, Arc::clone(object)))
    }

    /// Bytes of memory that keeping it takes.
    pub(super) fn size(&self) -> u64 {
        let lines = 2 * self.stored.headers().wire().len() + 512;
        lines as u64 + self.object.bytes().map_or(0, |bytes| bytes.len() as u64)
    }

    /// `range` of the content, or all of it.
    pub(super) fn body(&self, range: Option<Range<u64>>) -> Body {
        match &self.gaps {
            Some(gaps) => gaps.body(&self.object, range),
            None => self.object.body(range),
        }
    }

    /// Which part of the content the response to a request has; `None` for one without.
    fn wanted(&self, request: &PresentedRequest<'_>) -> Option<Range<u64>> {
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

    /// Whether something is missing of what a request is sent.
    pub(super) fn lacks(&self, request: &PresentedRequest<'_>) -> bool {
        let wanted = self.wanted(request).filter(|_| self.gaps.is_some());
        wanted.is_some_and(|range| !self.object.missing(range).is_empty())
    }

    /// Whether what is in the middle may come long after the beginning, as nobody can ask for it
    /// alone.
    pub(super) fn may_take_long(&self) -> bool {
        let is_long = |length| length > AHEAD;
        self.gaps.is_none()
            && !self.object.is_complete()
            && self.object.length().is_none_or(is_long)
    }

    /// Sees to it that what a request is sent of an object comes, before the response begins: the first
    /// piece of it is not damaged, and the first that is missing is fetched.
    pub(super) async fn complete(&self, request: &PresentedRequest<'_>) -> Opened {
        let Some(range) = self.wanted(request) else {
            return Opened::Comes;
        };
        if !self.object.is_sound_at(range.start).await {
            return Opened::Outdated;
        }
        match &self.gaps {
            Some(gaps) => Rc::clone(gaps).begin(Arc::clone(&self.object), range).await,
            None => Opened::Comes,
        }
    }

    /// The response to a request.
    pub(super) fn respond(&self, request: &PresentedRequest<'_>, sending: Sending<'_>) -> Response {
        let mut response = self.message(request, sending);
        let ttl = self.stored.ttl(sending.now);
        response.set_cache(sending.handling.result(Some(ttl)));
        response
    }

    fn message(&self, request: &PresentedRequest<'_>, sending: Sending<'_>) -> Response {
        let form = self.form(request, sending.forming);
        if self.stored.is_not_modified(request.headers) {
            let headers = self.lines(sending, form);
            let mut kept = Headers::with_capacity(headers.wire().len());
            kept.append_from(&headers, |name, _| OF_NOT_MODIFIED.contains(&name));
            return Response::with_shared_headers(
                StatusCode::NOT_MODIFIED,
                Rc::new(kept),
                Body::Empty,
            );
        }
        if let Some(response) = self.part(request, sending) {
            return response;
        }
        let status = self.stored.status();
        if let Form::Coded(coding) = form
            && let Some(content) = sending.forming.content(self, coding)
        {
            let lines = self.lines(sending, form);
            let mut response = Response::with_shared_headers(status, lines, content.into());
            response.set_coding_chosen(true);
            return response;
        }
        let body = match self.body(None) {
            // What was stored is all there is to say.
            Body::Empty => Body::Bytes(Bytes::new()),
            body => body,
        };
        let form = match form {
            // It is compressed as it is sent.
            Form::Coded(_) if self.object.bytes().is_some() => Form::Stored,
            Form::Coded(_) => Form::Identity,
            form => form,
        };
        let is_chosen = form == Form::Identity || self.is_formed.get() == Some(&false);
        let mut response = Response::with_shared_headers(status, self.lines(sending, form), body);
        response.set_coding_chosen(is_chosen);
        response
    }

    /// The form in which a request gets all of it.
    fn form(&self, request: &PresentedRequest<'_>, forming: Forming<'_>) -> Form {
        let is_formed = || forming.is_worthwhile(&self.stored, self.object.length());
        if *request.method != Method::GET
            || self.is_formed.get() == Some(&false)
            || !self.object.is_complete()
            || !*self.is_formed.get_or_init(is_formed)
        {
            return Form::Stored;
        }
        Form::of(request.headers, forming.compression)
    }

    /// The part that the client asks for (RFC 9110 section 14). Several parts are sent as the whole.
    fn part(&self, request: &PresentedRequest<'_>, sending: Sending<'_>) -> Option<Response> {
        let (ranges, complete) = self.ranges(request)?;
        // All values made here are digits and spaces.
        match ranges {
            Ranges::Unsatisfiable => {
                let mut response = Response::new(StatusCode::RANGE_NOT_SATISFIABLE);
                let value = format!("bytes */{complete}");
                let _ = response.headers_mut().try_append("content-range", value);
                Some(response)
            }
            Ranges::Parts(parts) => {
                let [part] = *parts else {
                    return None;
                };
                let mut headers = Headers::clone(&self.lines(sending, Form::Stored));
                let _ = headers.try_insert("content-length", part.len.to_string());
                let value = part.content_range(complete).to_string();
                let _ = headers.try_insert("content-range", value);
                let body = self.body(Some(part.start..part.end()));
                Some(Response::with_shared_headers(
                    StatusCode::PARTIAL_CONTENT,
                    Rc::new(headers),
                    body,
                ))
            }
            Ranges::Whole => None,
        }
    }

    /// The parts that the client asks for, and the length of the whole. `None` if it gets the whole.
    fn ranges(&self, request: &PresentedRequest<'_>) -> Option<(Ranges, u64)> {
        let range = request.headers.get("range")?;
        let complete = self.object.length()?;
        if *request.method != Method::GET
            || self.stored.status() != StatusCode::OK
            || !self.stored.validators().allow_range(request.headers)
        {
            return None;
        }
        Some((Ranges::parse(range, complete), complete))
    }

    fn lines(&self, sending: Sending<'_>, form: Form) -> Rc<Headers> {
        let ttl = self.stored.ttl(sending.now);
        let is_hit = sending.handling == Handling::Hit;
        let mut known = self.lines.borrow_mut();
        let place = known.iter_mut().find(|lines| lines.form == form);
        if let Some(lines) = &place
            && is_hit
            && lines.age == sending.age
            && lines.ttl == ttl
        {
            return Rc::clone(&lines.headers);
        }
        let mut headers = self.stored.headers().clone();
        form.describe(&mut headers);
        // A number is a valid value.
        let _ = headers.try_insert("age", sending.age.to_string());
        sending
            .telling
            .add_fields(&mut headers, sending.handling, Some(ttl));
        let headers = Rc::new(headers);
        if is_hit {
            let lines = Lines {
                form,
                age: sending.age,
                ttl,
                headers: Rc::clone(&headers),
            };
            match place {
                Some(place) => *place = lines,
                None => known.push(lines),
            }
        }
        headers
    }
}
