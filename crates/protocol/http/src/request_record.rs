//! The record of a request: what is known of it and what was decided, and the ring of records of a worker.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::hash::RandomState;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::{Method, StatusCode, Version};

use crate::fields::CacheResult;
use crate::request_id::{self, RequestNumber};
use crate::request_trace::{ChoiceNumbers, EndedRequest, RecordedTrace, RequestTrace};
use crate::{RequestId, ResponseOrigin, ResponseOutcome};

/// The most bytes that are kept of what a client sent. Longer texts are cut, and end with `…`.
const MAX_HOST: usize = 128;
pub(crate) const MAX_PATH: usize = 512;
pub(crate) const MAX_QUERY: usize = 256;

/// The most bytes of a text about an event.
pub(crate) const MAX_TEXT: usize = 256;

/// The most events of a request that are kept.
pub(crate) const MAX_EVENTS: usize = 32;

/// What records need to know of a site.
#[derive(Debug)]
pub struct RecordedSite {
    /// Its name.
    pub name: Arc<str>,
    /// Its locations.
    pub locations: Box<[RecordedLocation]>,
}

/// A location of a site.
#[derive(Clone, Debug)]
pub struct RecordedLocation {
    /// The pattern, as it is written.
    pub pattern: Box<str>,
    /// The name of its handler.
    pub handler: Arc<str>,
}

/// The ring of a worker, which a reader may lock, too.
pub(crate) type SharedRing = Arc<Mutex<RecordRing>>;

/// The record of a request, to which services add what they decide.
#[derive(Clone)]
pub struct RequestRecord {
    pub(crate) ring: Rc<SharedRing>,
    pub(crate) number: u32,
}

impl RequestRecord {
    /// The number of the record on its worker.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Adds an event.
    pub fn note(&self, event: RequestEvent) {
        let mut ring = lock(&self.ring);
        if let Some(entry) = ring.entry(self.number) {
            if entry.events.len() < MAX_EVENTS {
                entry.events.push(event);
            } else {
                entry.omitted_events = entry.omitted_events.saturating_add(1);
            }
        }
    }
}

impl fmt::Debug for RequestRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecord")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

/// Something that was decided about a request, or happened to it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum RequestEvent {
    /// The condition of a rule held.
    Rule {
        /// Where the rule stands.
        place: Arc<str>,
        /// Its name.
        name: Arc<str>,
        /// Whether it only counts.
        is_dry_run: bool,
    },
    /// A limit was asked.
    Limit {
        /// Its name.
        name: Arc<str>,
        /// What it decided.
        outcome: &'static str,
    },
    /// Something responded in place of the handler.
    Decided {
        /// What.
        by: Cow<'static, str>,
        /// Why.
        why: Cow<'static, str>,
    },
    /// The cache looked for this key.
    CacheKey {
        /// A number that is the same for the same key.
        hash: u64,
    },
    /// The request was sent to an origin.
    Attempt(Box<OriginAttempt>),
    /// The body of the response of the last attempt has ended.
    OriginBody {
        /// When.
        at: Instant,
        /// Whether it was received whole.
        is_complete: bool,
    },
}

impl RequestEvent {
    /// That something responded in place of the handler. Long texts are cut.
    pub fn decided(by: impl Into<Cow<'static, str>>, why: impl Into<Cow<'static, str>>) -> Self {
        Self::Decided {
            by: cut(by.into()),
            why: cut(why.into()),
        }
    }
}

/// A request that was sent to an origin: a node of a group, or the workers of a PHP application.
#[derive(Clone, Debug)]
pub struct OriginAttempt {
    /// The name of the node.
    pub node: Arc<str>,
    /// Its address.
    pub address: Arc<str>,
    /// When the node was chosen.
    pub began: Instant,
    /// The time until there was a connection; `None`: there was one.
    pub connect: Option<Duration>,
    /// The time from the choice of the node to the head of its response, or to the failure.
    pub took: Duration,
    /// What came of it.
    pub result: OriginResult,
}

/// What came of an attempt.
#[derive(Clone, Debug)]
pub enum OriginResult {
    /// A response with this status.
    Status(StatusCode),
    /// No response.
    Failed {
        /// What was being done.
        phase: &'static str,
        /// Why.
        cause: Cow<'static, str>,
    },
}

impl OriginResult {
    /// A failure. A long text is cut.
    pub fn failed(phase: &'static str, cause: impl Into<Cow<'static, str>>) -> Self {
        let cause = cut(cause.into());
        Self::Failed { phase, cause }
    }
}

/// How a request ended.
#[derive(Clone, Debug)]
pub struct RecordedEnd {
    /// The status; `None`: there was no response.
    pub status: Option<StatusCode>,
    /// Whether the client can have received the whole response.
    pub outcome: ResponseOutcome,
    /// The time from the first byte of the request to the last one of the response.
    pub duration: Duration,
    /// The time to the head of the response; `None` if all left together.
    pub first_byte: Option<Duration>,
    /// The bytes that were sent, before TLS.
    pub bytes: u64,
}

/// A record that was read.
#[derive(Clone, Debug)]
pub struct RequestReport {
    /// The id of the request.
    pub id: RequestId,
    /// When it arrived.
    pub time: SystemTime,
    pub(crate) arrived: Instant,
    /// The client; `None`: one behind a Unix socket.
    pub client: Option<IpAddr>,
    /// The method.
    pub method: Method,
    /// The protocol.
    pub version: Version,
    /// Whether the client used TLS.
    pub is_secure: bool,
    /// The host that it named.
    pub host: Box<str>,
    /// The path that it sent.
    pub path: Box<str>,
    /// The names in the query, each with `…` in place of its value.
    pub query: Option<Box<str>>,
    /// The site.
    pub site: Arc<RecordedSite>,
    /// The position of the location.
    pub location: Option<usize>,
    /// The result of the cache.
    pub cache: Option<CacheResult>,
    /// The origin of the response.
    pub origin: Option<ResponseOrigin>,
    /// What was decided, in order.
    pub events: Vec<RequestEvent>,
    /// How many more events there were.
    pub omitted_events: u32,
    /// The end; `None`: it has not ended.
    pub end: Option<RecordedEnd>,
    /// Its trace, if requests are traced.
    pub trace: Option<RequestTrace>,
}

impl RequestReport {
    /// The time from the arrival of the request to something that happened to it.
    pub fn since_arrival(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.arrived)
    }

    /// The time that the request took, so far if it has not ended.
    pub fn duration(&self) -> Duration {
        let end = self.end.as_ref();
        end.map_or_else(|| self.arrived.elapsed(), |end| end.duration)
    }

    /// Its location.
    pub fn location(&self) -> Option<&RecordedLocation> {
        self.site.locations.get(self.location?)
    }
}

/// What is known of a request when it arrives.
pub(crate) struct RecordedHead<'a> {
    pub(crate) number: &'a RequestNumber,
    pub(crate) site: &'a Arc<RecordedSite>,
    pub(crate) arrived: Instant,
    pub(crate) client: Option<IpAddr>,
    pub(crate) method: &'a Method,
    pub(crate) version: Version,
    pub(crate) is_secure: bool,
    pub(crate) host: &'a [u8],
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
}

/// The records of one worker. Those that are kept have the numbers up to the next one.
pub(crate) struct RecordRing {
    /// Another one for each ring.
    pub(crate) id: u64,
    pub(crate) entries: VecDeque<Box<RecordEntry>>,
    capacity: usize,
    /// The number of the next record.
    pub(crate) next: u32,
    /// How many requests have ended.
    pub(crate) ended: u64,
    /// What ids of this worker are made of.
    pub(crate) secret: RandomState,
    pub(crate) choices: ChoiceNumbers,
}

#[derive(Default)]
pub(crate) struct RecordEntry {
    pub(crate) id: RequestNumber,
    site: Option<Arc<RecordedSite>>,
    pub(crate) arrived: Option<Instant>,
    client: Option<IpAddr>,
    method: Method,
    version: Version,
    is_secure: bool,
    /// Host, path and query, one behind the other.
    text: Vec<u8>,
    /// Where the path begins, and the query if there is one.
    path_at: usize,
    query_at: Option<usize>,
    location: Option<usize>,
    pub(crate) cache: Option<CacheResult>,
    pub(crate) origin: Option<ResponseOrigin>,
    events: Vec<RequestEvent>,
    omitted_events: u32,
    end: Option<RecordedEnd>,
    /// The how manieth request of the worker it was that ended.
    pub(crate) ended: u64,
    pub(crate) trace: Option<Box<RecordedTrace>>,
}

impl RecordRing {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let secret = request_id::secret_of_thread();
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            entries: VecDeque::new(),
            capacity: 0,
            next: 0,
            ended: 0,
            choices: ChoiceNumbers::new(&secret),
            secret,
        }
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        self.capacity = capacity;
        let excess = self.entries.len().saturating_sub(capacity);
        if excess > 0 {
            self.entries.drain(..excess);
            self.entries.shrink_to_fit();
        }
    }

    /// The number of the first record that is kept.
    pub(crate) fn first(&self) -> u32 {
        // There are fewer than 2^32.
        self.next.wrapping_sub(self.entries.len() as u32)
    }

    pub(crate) fn entry(&mut self, number: u32) -> Option<&mut RecordEntry> {
        let index = number.wrapping_sub(self.first());
        self.entries
            .get_mut(index as usize)
            .map(|entry| &mut **entry)
    }

    pub(crate) fn begin(&mut self, head: &RecordedHead<'_>) -> u32 {
        let mut entry = if self.entries.len() < self.capacity {
            Box::default()
        } else {
            // Its memory is used again.
            self.entries.pop_front().unwrap_or_default()
        };
        entry.begin(head);
        self.entries.push_back(entry);
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    pub(crate) fn end(&mut self, (number, location): (u32, Option<usize>), end: RecordedEnd) {
        self.ended = self.ended.saturating_add(1);
        let ended = self.ended;
        if let Some(entry) = self.entry(number) {
            entry.end = Some(end);
            entry.location = location;
            entry.ended = ended;
        }
    }
}

impl RecordEntry {
    #[inline]
    fn begin(&mut self, head: &RecordedHead<'_>) {
        self.id.clone_from(head.number);
        // The count of references is in memory that workers share.
        if !(self.site.as_ref()).is_some_and(|known| Arc::ptr_eq(known, head.site)) {
            self.site = Some(Arc::clone(head.site));
        }
        self.arrived = Some(head.arrived);
        self.client = head.client;
        if self.method != *head.method {
            self.method = head.method.clone();
        }
        self.version = head.version;
        self.is_secure = head.is_secure;
        self.text.clear();
        // It is ASCII.
        match head.host.split_at_checked(MAX_HOST) {
            Some((host, rest)) if !rest.is_empty() => push_cut_end(&mut self.text, host),
            _ => self.text.extend_from_slice(head.host),
        }
        self.path_at = self.text.len();
        push_cut(&mut self.text, head.path, MAX_PATH);
        self.query_at = None;
        if let Some(query) = head.query {
            self.query_at = Some(self.text.len());
            push_names(&mut self.text, query);
        }
        if self.is_more_than_a_file() {
            self.forget_events();
        }
        self.location = None;
        if self.trace.is_some() {
            self.trace = None;
        }
        self.end = None;
        self.ended = 0;
    }

    /// Whether the request before in this memory was more than one for a file.
    fn is_more_than_a_file(&self) -> bool {
        !self.events.is_empty() || self.cache.is_some() || self.origin.is_some()
    }

    #[inline(never)]
    fn forget_events(&mut self) {
        self.events.clear();
        self.omitted_events = 0;
        self.cache = None;
        self.origin = None;
    }

    pub(crate) fn is_of(&self, is_visible: &dyn Fn(&str) -> bool) -> bool {
        (self.site.as_ref()).is_some_and(|site| is_visible(&site.name))
    }

    /// What is known without a report, once it has ended.
    pub(crate) fn ended_request(&self) -> Option<EndedRequest> {
        let end = self.end.as_ref()?;
        Some(EndedRequest {
            is_sampled: self.trace.as_ref().map(|trace| trace.is_sampled),
            status: end.status,
            duration: end.duration,
        })
    }

    pub(crate) fn report(&self, secret: &RandomState) -> Option<RequestReport> {
        let (arrived, now) = (self.arrived?, Instant::now());
        let text = |bytes: Option<&[u8]>| -> Box<str> {
            String::from_utf8_lossy(bytes.unwrap_or_default()).into()
        };
        let path_end = self.query_at.unwrap_or(self.text.len());
        let age = now.saturating_duration_since(arrived);
        Some(RequestReport {
            id: self.id.id_by(secret),
            time: (SystemTime::now().checked_sub(age)).unwrap_or(SystemTime::UNIX_EPOCH),
            arrived,
            client: self.client,
            method: self.method.clone(),
            version: self.version,
            is_secure: self.is_secure,
            host: text(self.text.get(..self.path_at)),
            path: text(self.text.get(self.path_at..path_end)),
            query: self.query_at.map(|at| text(self.text.get(at..))),
            site: Arc::clone(self.site.as_ref()?),
            location: self.location,
            cache: self.cache,
            origin: self.origin.clone(),
            events: self.events.clone(),
            omitted_events: self.omitted_events,
            end: self.end.clone(),
            trace: (self.trace.as_ref()).map(|trace| trace.of(&self.id, secret)),
        })
    }
}

/// What stands at the end of a text that was cut, and in place of a value.
const LEFT_OUT: &str = "…";

/// Appends a text, without what is longer than `max`.
fn push_cut(out: &mut Vec<u8>, text: &str, max: usize) {
    if text.len() <= max {
        out.extend_from_slice(text.as_bytes());
    } else {
        let end = text.floor_char_boundary(max);
        push_cut_end(out, text.get(..end).unwrap_or_default().as_bytes());
    }
}

/// Appends what is left of a text that is cut.
fn push_cut_end(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.extend_from_slice(LEFT_OUT.as_bytes());
}

/// Appends the names of a query: values may be secrets, and so may a word without a name.
fn push_names(out: &mut Vec<u8>, query: &str) {
    let end = out.len().saturating_add(MAX_QUERY);
    for (number, pair) in query.split('&').enumerate() {
        if number > 0 {
            out.push(b'&');
        }
        if let Some((name, _)) = pair.split_once('=') {
            let left = end.saturating_sub(out.len());
            push_cut(out, name, left);
            out.push(b'=');
        }
        if !pair.is_empty() {
            out.extend_from_slice(LEFT_OUT.as_bytes());
        }
        if out.len() >= end {
            return;
        }
    }
}

fn cut(text: Cow<'static, str>) -> Cow<'static, str> {
    if text.len() <= MAX_TEXT {
        return text;
    }
    let mut bytes = Vec::new();
    push_cut(&mut bytes, &text, MAX_TEXT);
    String::from_utf8_lossy(&bytes).into_owned().into()
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
