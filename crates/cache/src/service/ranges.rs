//! Ranges of stored objects (RFC 9111 section 3.4, RFC 9110 section 14).
//!
//! Missing ranges are fetched, and an object may begin with a part of itself.
//!
//! Whoever is sent an object that is there in parts fetches the parts that he comes to and nobody
//! else fetches, by requests with `If-Range`. What comes is stored only if it is what was asked for,
//! of the version that is stored; if it is not, the object is outdated and no longer sent to anyone.

use std::fmt;
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::policy::{Conditions, Part, Rules, Storable, Stored, add_conditions, may_store};
use crate::store::{Object, Piece, ReadError, Reader};
use apus_http::fields::Ranges;
use apus_http::{Body, BodyError, BodyStream, Frame, Headers, Response};

use super::cached::Inner;
use super::clock::now;
use super::fetch::{Asked, Fetched, fill};

/// A reader that is further ahead of who fetches its part does not wait for that.
pub(super) const AHEAD: u64 = 1 << 20;

/// An object in this many parts gets no more of them; those it has still grow together.
const MOST_PARTS: usize = 48;

/// How often the same bytes are asked for, for one response, when what came was too short.
const MAX_SHORTFALLS: u32 = 2;

/// How what is missing of a stored object is asked for, on behalf of one request.
pub(super) struct Gaps {
    cached: Rc<Inner>,
    asked: Rc<Asked>,
    /// The strong validator of what is stored.
    if_range: Box<[u8]>,
}

/// What became of a gap.
pub(super) enum Opened {
    /// There is none, or another request has asked for what is missing.
    Comes,
    /// It was asked for, and is coming.
    Fetched,
    /// What is stored is outdated, and has been taken out.
    Outdated,
    /// What the origin sends may not be stored, because of the request.
    Alone,
    /// The origin refuses, which says nothing about what is stored.
    Refused(Response),
}

enum Verdict {
    Fits,
    Outdated,
    Alone,
    Refused,
}

impl Gaps {
    /// `None` if nothing is missing of the object, or cannot be asked for.
    pub(super) fn of(
        cached: &Rc<Inner>,
        asked: &Rc<Asked>,
        stored: &Stored,
        object: &Object,
    ) -> Option<Rc<Self>> {
        if !object.is_resumable() || object.is_complete() {
            return None;
        }
        Some(Rc::new(Self {
            cached: Rc::clone(cached),
            asked: Rc::clone(asked),
            if_range: stored.if_range()?.into(),
        }))
    }

    /// `range` of the object as the content of a response, with what is missing of it fetched.
    pub(super) fn body(self: &Rc<Self>, object: &Arc<Object>, range: Option<Range<u64>>) -> Body {
        Body::stream(Completing {
            gaps: Rc::clone(self),
            reader: object.read(range),
            opening: None,
            asked_until: 0,
            shortfalls: 0,
        })
    }

    /// As [`Gaps::open`], before anything of it is sent: only if that makes not too many parts.
    pub(super) async fn begin(self: Rc<Self>, object: Arc<Object>, range: Range<u64>) -> Opened {
        if is_apart(&object, range.clone()) && object.stored().iter().len() >= MOST_PARTS {
            return Opened::Alone;
        }
        self.open(object, range).await
    }

    /// Sees to it that the first missing part of `range` comes.
    pub(super) async fn open(self: Rc<Self>, object: Arc<Object>, range: Range<u64>) -> Opened {
        let store = &self.cached.cache.0.store;
        let Some(filler) = object.fill_first(store, range, AHEAD) else {
            return Opened::Comes;
        };
        let gap = filler.range();
        let mut request = self.asked.again();
        add_conditions(&[], request.headers_mut());
        let last = gap.end.saturating_sub(1);
        let range = format!("bytes={}-{last}", gap.start);
        // Digits, and what was a field value before.
        let _ = request.headers_mut().try_append("range", range);
        let _ = request
            .headers_mut()
            .try_append("if-range", &*self.if_range);
        let requested = now();
        let response = self.cached.inner.call(request).wait().await;
        let mut fetched = Fetched {
            response,
            requested,
            received: now(),
        };
        match self.judge(&fetched, &gap, object.length()) {
            Verdict::Fits => {
                let body = fetched.response.take_body();
                fill(filler, body, self.cached.settings.rules.max_size).await;
                Opened::Fetched
            }
            Verdict::Outdated => {
                tracing::debug!(
                    path = self.asked.presented().path,
                    "what is stored in parts is outdated"
                );
                filler.discard();
                store.remove(&object);
                Opened::Outdated
            }
            Verdict::Alone => Opened::Alone,
            Verdict::Refused => Opened::Refused(fetched.response),
        }
    }

    /// Whether an answer is the part that was asked for.
    fn judge(&self, fetched: &Fetched, gap: &Range<u64>, length: Option<u64>) -> Verdict {
        let rules = &self.cached.settings.rules;
        let conditions = Conditions {
            uses: rules.minimum_uses,
            ..Conditions::default()
        };
        let status = fetched.response.status();
        let origin = fetched.as_origin_response();
        match may_store(&self.asked.presented(), &origin, rules, &conditions) {
            Ok(Storable {
                stored,
                part: Some(part),
            }) if stored.if_range() == Some(&*self.if_range)
                && Some(part.complete) == length
                && part.range.start == gap.start
                && part.range.end() <= gap.end =>
            {
                Verdict::Fits
            }
            Err(refusal) if refusal.is_of_request() => Verdict::Alone,
            _ if status.is_success()
                || status.is_redirection()
                || matches!(status.as_u16(), 404 | 410 | 416) =>
            {
                Verdict::Outdated
            }
            _ => Verdict::Refused,
        }
    }
}

/// Whether the first missing part of `range` touches nothing that is there.
fn is_apart(object: &Object, range: Range<u64>) -> bool {
    let missing = object.missing(range);
    missing.first().is_some_and(|gap| {
        let around = gap.start.saturating_sub(1)..gap.end.saturating_add(1);
        // A byte more on both sides is missing, too.
        object.missing(around.clone()).first() == Some(&around)
    })
}

/// The content of an object that is there in parts.
struct Completing {
    gaps: Rc<Gaps>,
    reader: Reader,
    opening: Option<Pin<Box<dyn Future<Output = Opened>>>>,
    /// The end of the last gap that was asked for.
    asked_until: u64,
    shortfalls: u32,
}

impl BodyStream for Completing {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        loop {
            if let Some(opening) = &mut self.opening {
                let opened = ready!(opening.as_mut().poll(cx));
                self.opening = None;
                if !matches!(opened, Opened::Comes | Opened::Fetched) {
                    return Poll::Ready(Some(Err(BodyError::Source(Box::new(Incomplete)))));
                }
            }
            let gap = match ready!(self.reader.poll_piece(cx)) {
                None => return Poll::Ready(None),
                Some(Ok(Piece::Bytes(bytes))) => return Poll::Ready(Some(Ok(Frame::Data(bytes)))),
                Some(Ok(Piece::File(range))) => return Poll::Ready(Some(Ok(Frame::File(range)))),
                Some(Err(ReadError::Gap(gap))) => gap,
                Some(Err(error)) => return Poll::Ready(Some(Err(BodyError::Source(error.into())))),
            };
            if gap.start < self.asked_until {
                self.shortfalls = self.shortfalls.saturating_add(1);
                if self.shortfalls > MAX_SHORTFALLS {
                    return Poll::Ready(Some(Err(BodyError::Source(Box::new(Incomplete)))));
                }
            }
            self.asked_until = gap.end;
            let object = Arc::clone(self.reader.object());
            self.opening = Some(Box::pin(Rc::clone(&self.gaps).open(object, gap)));
        }
    }

    fn remaining(&self) -> Option<u64> {
        self.reader.remaining()
    }
}

/// The origin did not give the rest of what is stored.
#[derive(Debug)]
struct Incomplete;

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the origin did not give the rest of what is stored in parts")
    }
}

impl std::error::Error for Incomplete {}

/// Which part an object is begun with, because a request is for that alone.
pub(super) struct Beginning {
    range: Box<[u8]>,
    if_range: Option<Box<[u8]>>,
}

impl Beginning {
    /// `None` if the request is for the whole, for what begins with its beginning, or for several
    /// parts.
    pub(super) fn of(headers: &Headers, rules: &Rules) -> Option<Self> {
        let range = headers.get("range").filter(|_| rules.store_parts)?;
        // As of the longest representation there can be, every position is told apart.
        let Ranges::Parts(parts) = Ranges::parse(range, u64::MAX) else {
            return None;
        };
        let is_alone = parts.len() == 1 && !range.contains(&b',');
        let is_later = parts.first().is_some_and(|part| part.start > 0);
        (is_alone && is_later).then(|| Self {
            range: range.into(),
            if_range: headers.get("if-range").map(Into::into),
        })
    }

    /// Asks for the part, with a request for the whole.
    pub(super) fn ask(&self, headers: &mut Headers) {
        // Both were field values before.
        let _ = headers.try_append("range", &*self.range);
        if let Some(if_range) = &self.if_range {
            let _ = headers.try_append("if-range", &**if_range);
        }
    }

    /// Whether a part that came is what was asked for, or the beginning of that.
    pub(super) fn is(&self, part: Part) -> bool {
        match Ranges::parse(&self.range, part.complete) {
            Ranges::Parts(parts) => matches!(*parts, [asked]
                if asked.start == part.range.start && part.range.end() <= asked.end()),
            Ranges::Whole | Ranges::Unsatisfiable => false,
        }
    }
}
