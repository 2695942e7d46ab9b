//! `RequestRecords`: what happened to the last requests of each worker, for `apus explain --id`.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU128;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Instant;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::request_id::RequestNumber;
use crate::request_record::{
    RecordRing, RecordedEnd, RecordedHead, RecordedSite, RequestRecord, RequestReport, SharedRing,
    lock,
};
use crate::request_trace::{EndedRequest, RecordedTrace, TraceSampling};
use crate::{Completion, Request, Response, ResponseOutcome, TraceContext};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// How many records are copied at once for a reader. A worker that wants to write its records waits for that.
const COPIED_AT_ONCE: usize = 64;

/// The records of requests. Clones are the same.
///
/// Each worker has a ring of its own, where the oldest record makes room for the newest. Only that worker writes there, so that its lock is
/// free unless somebody reads. A record has numbers, the texts of the client, and references to names that exist anyway; it becomes text
/// when somebody asks for it. It has no values of the query, no cookies and no credentials.
#[derive(Clone)]
pub struct RequestRecords {
    workers: Arc<Mutex<HashMap<ThreadId, SharedRing>>>,
    capacity: usize,
    sampling: Option<TraceSampling>,
}

impl RequestRecords {
    /// Keeps this many records for each worker; 0: none.
    pub fn new(capacity: usize) -> Self {
        Self {
            workers: Arc::default(),
            capacity,
            sampling: None,
        }
    }

    /// The same records, of which each worker keeps this many from its next service on.
    #[must_use]
    pub fn with_capacity(&self, capacity: usize) -> Self {
        Self {
            workers: Arc::clone(&self.workers),
            capacity,
            sampling: self.sampling,
        }
    }

    /// The same records, for which each request gets a trace from the next service of a worker on.
    #[must_use]
    pub fn traced(mut self, sampling: Option<TraceSampling>) -> Self {
        self.sampling = sampling;
        self
    }

    /// Whether records are kept.
    pub fn is_on(&self) -> bool {
        self.capacity > 0
    }

    /// Forgets all records.
    pub fn clear(&self) {
        lock(&self.workers).clear();
    }

    /// What records requests of a site on the calling worker; `None` if none are kept.
    pub fn recorder(&self, site: &Arc<RecordedSite>) -> Option<RequestRecorder> {
        if self.capacity == 0 {
            return None;
        }
        let mut workers = lock(&self.workers);
        // Those of threads that have ended.
        let own = thread::current().id();
        workers.retain(|thread, ring| *thread == own || Arc::strong_count(ring) > 1);
        let ring = workers.entry(own);
        let ring = Arc::clone(ring.or_insert_with(|| Arc::new(Mutex::new(RecordRing::new()))));
        drop(workers);
        lock(&ring).set_capacity(self.capacity);
        Some(RequestRecorder {
            ring: Rc::new(ring),
            site: Arc::clone(site),
            sampling: self.sampling,
        })
    }

    /// The last request with this id, or in the trace with this id that a client began, among those of sites for whose names `is_visible` holds.
    pub fn find(&self, id: &str, is_visible: &dyn Fn(&str) -> bool) -> Option<RequestReport> {
        let mut found: Option<RequestReport> = None;
        for ring in self.rings() {
            // Ids are made and compared without the lock.
            let (secret, numbers) = {
                let ring = lock(&ring);
                let numbers = ring.entries.iter().zip(ring.first()..);
                let numbers = numbers.filter(|(entry, _)| entry.is_of(is_visible));
                let numbers = numbers.map(|(entry, number)| {
                    let parent = entry.trace.as_ref().and_then(|trace| trace.parent.as_ref());
                    (entry.id.clone(), parent.map(TraceContext::trace_id), number)
                });
                (ring.secret.clone(), numbers.collect::<Vec<_>>())
            };
            let is_it = |number: &RequestNumber, trace: Option<NonZeroU128>| {
                number.id_by(&secret).to_string() == id
                    || trace.is_some_and(|trace| format!("{trace:032x}") == id)
            };
            let mut newest = numbers.iter().rev();
            let newest = newest.find(|(number, trace, _)| is_it(number, *trace));
            let Some((.., number)) = newest else {
                continue;
            };
            let report = lock(&ring)
                .entry(*number)
                .and_then(|entry| entry.report(&secret));
            let is_newer = |other: &RequestReport| {
                (report.as_ref()).is_some_and(|report| report.arrived > other.arrived)
            };
            if found.as_ref().is_none_or(is_newer) {
                found = report.or(found);
            }
        }
        found
    }

    /// The requests that have ended since this was called with this cursor before, the first ones first, and how many more there were
    /// that are forgotten already. The first call only sets the cursor.
    pub fn ended(&self, cursor: &mut RecordCursor) -> (Vec<RequestReport>, u64) {
        self.ended_of(cursor, &|_| true)
    }

    /// As [`Self::ended`], only those that are wanted: a report costs more than to look at what is known.
    pub fn ended_of(
        &self,
        cursor: &mut RecordCursor,
        wants: &dyn Fn(&EndedRequest) -> bool,
    ) -> (Vec<RequestReport>, u64) {
        let mut reports = Vec::new();
        let mut missed = 0_u64;
        let is_first = !std::mem::replace(&mut cursor.is_set, true);
        let mut seen = HashMap::new();
        for ring in self.rings() {
            let (id, last) = {
                let ring = lock(&ring);
                (ring.id, ring.ended)
            };
            // A worker that began later has no records that were there before.
            let before = cursor.seen.get(&id).copied();
            let before = before.unwrap_or(if is_first { last } else { 0 });
            seen.insert(id, last);
            let mut found = 0;
            if last > before {
                found = Self::copy_ended(&ring, (before, last), wants, &mut reports);
            }
            missed = missed.saturating_add(last.saturating_sub(before).saturating_sub(found));
        }
        cursor.seen = seen;
        reports.sort_by_key(|report| report.arrived);
        (reports, missed)
    }

    /// Copies the wanted ones of those that have ended between two counts. Returns how many there are.
    fn copy_ended(
        ring: &SharedRing,
        (after, last): (u64, u64),
        wants: &dyn Fn(&EndedRequest) -> bool,
        reports: &mut Vec<RequestReport>,
    ) -> u64 {
        let mut found = 0_u64;
        let (first, secret) = {
            let ring = lock(ring);
            (ring.first(), ring.secret.clone())
        };
        let mut next = first;
        loop {
            let mut ring = lock(ring);
            for _ in 0..COPIED_AT_ONCE {
                if next == ring.next {
                    return found;
                }
                if let Some(entry) = ring.entry(next)
                    && entry.ended > after
                    && entry.ended <= last
                    && let Some(ended) = entry.ended_request()
                {
                    found = found.saturating_add(1);
                    if wants(&ended) {
                        reports.extend(entry.report(&secret));
                    }
                }
                next = next.wrapping_add(1);
            }
        }
    }

    fn rings(&self) -> Vec<SharedRing> {
        lock(&self.workers).values().map(Arc::clone).collect()
    }
}

/// None are kept.
impl Default for RequestRecords {
    fn default() -> Self {
        Self::new(0)
    }
}

impl fmt::Debug for RequestRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecords")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// How far somebody has read the requests that have ended.
#[derive(Debug, Default)]
pub struct RecordCursor {
    is_set: bool,
    /// The number of the last one of each ring.
    seen: HashMap<u64, u64>,
}

/// Records the requests of a site on one worker.
#[derive(Clone)]
pub struct RequestRecorder {
    ring: Rc<SharedRing>,
    site: Arc<RecordedSite>,
    sampling: Option<TraceSampling>,
}

impl RequestRecorder {
    /// Begins the record of a request that arrived at this time. Returns its number.
    #[inline]
    pub fn begin(&self, request: &mut Request, arrived: Instant) -> u32 {
        let target = request.original_target();
        let number = lock(&self.ring).begin(&RecordedHead {
            number: request.number(),
            site: &self.site,
            arrived,
            client: request.client().ip,
            method: request.method(),
            version: request.version(),
            is_secure: request.is_secure(),
            host: request.host_bytes(),
            path: target.path(),
            query: target.query(),
        });
        let ring = Rc::clone(&self.ring);
        request.set_record(RequestRecord { ring, number });
        if let Some(sampling) = self.sampling {
            self.begin_trace(sampling, number, request);
        }
        number
    }

    /// Continues the trace of a client that may say so, or begins one, which origins and handlers get as `traceparent`.
    #[inline(never)]
    fn begin_trace(&self, sampling: TraceSampling, number: u32, request: &mut Request) {
        let is_trusted = sampling.trusts_clients() || request.is_forwarded();
        let parent = is_trusted
            .then(|| TraceContext::read(request.headers()))
            .flatten();
        let mut ring = lock(&self.ring);
        let is_sampled = match &parent {
            Some(parent) => parent.is_sampled(),
            None => sampling.chooses(ring.choices.next()),
        };
        let trace = RecordedTrace { parent, is_sampled };
        let context = trace.of(request.number(), &ring.secret).context;
        if let Some(entry) = ring.entry(number) {
            entry.trace = Some(Box::new(trace));
        }
        drop(ring);
        let headers = request.headers_mut();
        // Both are of characters that a field may have.
        if let Ok(value) = HeaderValue::from_str(&context.to_string()) {
            headers.insert(&TRACEPARENT, &value);
        }
        match context.state().map(HeaderValue::from_str) {
            Some(Ok(state)) => headers.insert(&TRACESTATE, &state),
            _ => {
                headers.remove(TRACESTATE.as_str());
            }
        }
    }

    /// Records what the response to the request with this number has of the cache and of its origin, before it is sent.
    #[inline]
    pub fn respond(&self, number: u32, response: &Response) {
        if response.cache().is_some() || response.origin().is_some() {
            self.note_source(number, response);
        }
    }

    #[inline(never)]
    fn note_source(&self, number: u32, response: &Response) {
        if let Some(entry) = lock(&self.ring).entry(number) {
            entry.cache = response.cache();
            entry.origin = response.origin().cloned();
        }
    }

    /// Records the end of a response. `location` is the position of the location of the site.
    pub fn complete(&self, number: u32, location: Option<usize>, completion: &Completion) {
        lock(&self.ring).end(
            (number, location),
            RecordedEnd {
                status: Some(completion.status),
                outcome: completion.outcome,
                duration: completion.duration,
                first_byte: completion.first_byte,
                bytes: completion.bytes,
            },
        );
    }

    /// Records that a request got no response, or that its response was dropped. The status is the one that it would have had.
    #[cold]
    pub fn abandon(&self, number: u32, location: Option<usize>, status: Option<StatusCode>) {
        let mut ring = lock(&self.ring);
        let Some(arrived) = ring.entry(number).and_then(|entry| entry.arrived) else {
            return;
        };
        let end = RecordedEnd {
            status,
            outcome: ResponseOutcome::ClientGone,
            duration: arrived.elapsed(),
            first_byte: None,
            bytes: 0,
        };
        ring.end((number, location), end);
    }
}

impl fmt::Debug for RequestRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestRecorder")
            .field("site", &self.site.name)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{Method, Version};

    use super::*;
    use crate::fields::CacheResult;
    use crate::request_record::{MAX_EVENTS, MAX_PATH, MAX_QUERY, MAX_TEXT};
    use crate::{
        Body, ConnectionInfo, Extensions, Headers, KeptValue, Peer, RecordedLocation, RequestEvent,
        RequestId, RequestParts, Target,
    };

    fn request(target: &str) -> Request {
        let mut headers = Headers::new();
        headers.try_append("host", "a.test").unwrap();
        headers.try_append("cookie", "session=secret").unwrap();
        Request::new(RequestParts {
            method: Method::GET,
            target: Target::parse(&Method::GET, target).unwrap(),
            version: Version::HTTP_11,
            headers,
            body: Body::Empty,
            connection: Rc::new(ConnectionInfo {
                kept: KeptValue::default(),
                id: 1,
                peer: Peer::Unix,
                local: Peer::Unix,
                tls: None,
            }),
            extensions: Extensions::new(),
        })
    }

    fn site(name: &str) -> Arc<RecordedSite> {
        Arc::new(RecordedSite {
            name: name.into(),
            locations: Box::new([RecordedLocation {
                pattern: "/".into(),
                handler: "files".into(),
            }]),
        })
    }

    /// Records a whole request, and returns its id.
    fn serve(recorder: &RequestRecorder, target: &str) -> String {
        let mut request = request(target);
        recorder.begin(&mut request, Instant::now());
        let number = request.record().unwrap().number();
        recorder.complete(number, Some(0), &completion());
        request.id().to_string()
    }

    fn completion() -> Completion {
        Completion {
            status: StatusCode::OK,
            body_bytes: 1,
            bytes: 100,
            duration: Duration::from_millis(2),
            first_byte: None,
            outcome: ResponseOutcome::Complete,
            origin: None,
            cache: None,
            fields: None,
        }
    }

    #[test]
    fn the_oldest_requests_are_forgotten() {
        let records = RequestRecords::new(3);
        let recorder = records.recorder(&site("a")).unwrap();
        let ids: Vec<_> = (0..10)
            .map(|number| serve(&recorder, &format!("/{number}")))
            .collect();
        let found = |id: &String| records.find(id, &|_| true).map(|report| report.path);
        assert!(ids[..7].iter().all(|id| found(id).is_none()));
        for (number, id) in ids.iter().enumerate().skip(7) {
            assert_eq!(found(id), Some(format!("/{number}").into()));
        }
        // A smaller ring keeps the newest, and a larger one all.
        for (capacity, kept) in [(2, 2), (5, 2)] {
            records.with_capacity(capacity).recorder(&site("a"));
            assert_eq!(ids.iter().filter_map(found).count(), kept);
        }
        records.clear();
        assert_eq!(ids.iter().filter_map(found).count(), 0);
        assert!(RequestRecords::new(0).recorder(&site("a")).is_none());
    }

    #[test]
    fn a_late_event_is_not_one_of_the_request_that_has_the_place_now() {
        let records = RequestRecords::new(1);
        let recorder = records.recorder(&site("a")).unwrap();
        let mut first = request("/first");
        recorder.begin(&mut first, Instant::now());
        let second = serve(&recorder, "/second");
        first.note(|| RequestEvent::decided("a rule", "late"));
        let number = first.record().unwrap().number();
        recorder.complete(number, None, &completion());
        let report = records.find(&second, &|_| true).unwrap();
        assert!(report.events.is_empty());
        assert_eq!(report.location().unwrap().handler, "files".into());
    }

    #[test]
    fn memory_that_is_used_again_knows_nothing_of_the_request_before() {
        let records = RequestRecords::new(1);
        let recorder = records.recorder(&site("a")).unwrap();
        let mut first = request("/a-longer-path?name=secret");
        recorder.begin(&mut first, Instant::now());
        for _ in 0..MAX_EVENTS + 2 {
            first.note(|| RequestEvent::CacheKey { hash: 1 });
        }
        let report = records.find(&first.id().to_string(), &|_| true).unwrap();
        assert_eq!(
            (report.events.len(), report.omitted_events),
            (MAX_EVENTS, 2)
        );
        let mut response = Response::new(StatusCode::OK);
        response.set_cache(CacheResult::Hit);
        recorder.respond(first.record().unwrap().number(), &response);
        let mut second = request("/b");
        recorder.begin(&mut second, Instant::now());
        let report = records.find(&second.id().to_string(), &|_| true).unwrap();
        assert_eq!((&*report.path, report.query), ("/b", None));
        assert!(report.events.is_empty() && report.omitted_events == 0);
        assert!(report.cache.is_none() && report.location.is_none() && report.end.is_none());
    }

    #[test]
    fn a_request_is_found_by_those_who_may_see_its_site() {
        let records = RequestRecords::new(10);
        let (a, b) = (site("a"), site("b"));
        let id = serve(&records.recorder(&a).unwrap(), "/");
        serve(&records.recorder(&b).unwrap(), "/");
        let found = |name: &'static str| records.find(&id, &move |site| site == name);
        assert_eq!(&*found("a").unwrap().site.name, "a");
        assert!(found("b").is_none());
        // Of two with one id, the last one.
        let mut ids = Vec::new();
        for target in ["/one", "/two"] {
            let mut request = request(target);
            request.set_id(RequestId::parse(b"of-proxy").unwrap());
            let recorder = records.recorder(&a).unwrap();
            recorder.begin(&mut request, Instant::now());
            ids.push(request);
        }
        assert_eq!(&*records.find("of-proxy", &|_| true).unwrap().path, "/two");
    }

    #[test]
    fn values_of_the_query_are_left_out_and_long_texts_are_cut() {
        let records = RequestRecords::new(1);
        let recorder = records.recorder(&site("a")).unwrap();
        for (query, shown) in [
            ("a=secret&token=secret=secret", "a=…&token=…"),
            ("secret", "…"),
            ("a=&&b", "a=…&&…"),
            ("", ""),
        ] {
            let id = serve(&recorder, &format!("/?{query}"));
            let report = records.find(&id, &|_| true).unwrap();
            assert_eq!(report.query.as_deref(), Some(shown), "{query}");
        }
        let long = "x".repeat(5000);
        let id = serve(&recorder, &format!("/{long}?{long}={long}"));
        let report = records.find(&id, &|_| true).unwrap();
        let path = report.path.trim_end_matches('…');
        assert_eq!((path.len(), report.path.len()), (MAX_PATH, MAX_PATH + 3));
        assert!(report.query.unwrap().len() <= MAX_QUERY + 8);
        let many = "a=1&".repeat(5000);
        let id = serve(&recorder, &format!("/?{many}"));
        let report = records.find(&id, &|_| true).unwrap();
        assert!(report.query.unwrap().len() <= MAX_QUERY + 8);
        let RequestEvent::Decided { why, .. } = RequestEvent::decided("a", "é".repeat(5000))
        else {
            panic!();
        };
        assert_eq!(why.len(), MAX_TEXT + 3);
    }

    #[test]
    fn a_reader_gets_each_request_that_ends_once_and_knows_how_many_it_missed() {
        let records = RequestRecords::new(100);
        let recorder = records.recorder(&site("a")).unwrap();
        serve(&recorder, "/before");
        let mut cursor = RecordCursor::default();
        assert!(records.ended(&mut cursor).0.is_empty());
        let mut slow = request("/slow");
        recorder.begin(&mut slow, Instant::now());
        for number in 0..90 {
            serve(&recorder, &format!("/{number}"));
        }
        let (reports, missed) = records.ended(&mut cursor);
        assert_eq!((reports.len(), missed), (90, 0));
        assert!(
            reports
                .iter()
                .zip(0..)
                .all(|(report, number)| *report.path == format!("/{number}"))
        );
        recorder.complete(slow.record().unwrap().number(), None, &completion());
        let other = records.clone();
        let thread = thread::spawn(move || {
            let recorder = other.recorder(&site("b")).unwrap();
            for _ in 0..150 {
                serve(&recorder, "/other");
            }
        });
        thread.join().unwrap();
        let (reports, missed) = records.ended(&mut cursor);
        assert_eq!(&*reports[0].path, "/slow");
        assert_eq!((reports.len(), missed), (101, 50));
        assert_eq!(records.ended(&mut cursor).0.len(), 0);
    }

    #[test]
    fn a_request_without_a_response_has_an_end() {
        let records = RequestRecords::new(1);
        let recorder = records.recorder(&site("a")).unwrap();
        let mut request = request("/");
        recorder.begin(&mut request, Instant::now());
        recorder.abandon(request.record().unwrap().number(), None, None);
        let report = records.find(&request.id().to_string(), &|_| true).unwrap();
        let end = report.end.unwrap();
        assert_eq!(
            (end.status, end.outcome),
            (None, ResponseOutcome::ClientGone)
        );
    }

    const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    fn traced(sampling: TraceSampling, headers: &[(&str, &str)]) -> (Request, RequestReport) {
        let records = RequestRecords::new(4).traced(Some(sampling));
        let recorder = records.recorder(&site("a")).unwrap();
        let mut request = request("/a");
        for (name, value) in headers {
            request.headers_mut().try_append(*name, *value).unwrap();
        }
        let number = recorder.begin(&mut request, Instant::now());
        let mut cursor = RecordCursor::default();
        records.ended(&mut cursor);
        recorder.abandon(number, None, None);
        let (mut reports, _) = records.ended(&mut cursor);
        (request, reports.remove(0))
    }

    #[test]
    fn a_trace_begins_here_unless_a_client_may_say_otherwise() {
        let state = ("tracestate", "a=1");
        let (own, report) = traced(TraceSampling::new(1.0), &[("traceparent", PARENT), state]);
        let trace = report.trace.unwrap();
        assert_eq!(trace.parent, None);
        // One id finds both.
        let id = format!("{:032x}", trace.context.trace_id());
        assert_eq!(id, report.id.to_string());
        let sent = own.headers().get_str("traceparent").unwrap();
        assert_eq!(sent, trace.context.to_string());
        assert!(sent.ends_with("-01"), "{sent}");
        assert_eq!(own.headers().get_str("tracestate"), None);
        let trusting = TraceSampling::new(0.0).trust_clients(true);
        let (continued, report) = traced(trusting, &[("traceparent", PARENT), state]);
        let trace = report.trace.unwrap();
        assert_eq!(
            trace.parent.map(|parent| format!("{parent:016x}")).unwrap(),
            "b7ad6b7169203331"
        );
        let sent = continued.headers().get_str("traceparent").unwrap();
        assert!(
            sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"),
            "{sent}"
        );
        assert_ne!(sent, PARENT);
        assert_eq!(continued.headers().get_str("tracestate"), Some("a=1"));
        // Without a valid one it begins here.
        let (none, report) = traced(trusting, &[("traceparent", "00-0-0-01")]);
        assert_eq!(report.trace.unwrap().parent, None);
        assert!(
            none.headers()
                .get_str("traceparent")
                .unwrap()
                .ends_with("-00")
        );
    }

    #[test]
    fn a_share_of_traces_is_sampled_and_only_wanted_ones_are_reported() {
        let records = RequestRecords::new(2000).traced(Some(TraceSampling::new(0.1)));
        let recorder = records.recorder(&site("a")).unwrap();
        let mut cursor = RecordCursor::default();
        records.ended(&mut cursor);
        for _ in 0..2000 {
            let number = recorder.begin(&mut request("/a"), Instant::now());
            recorder.abandon(number, None, None);
        }
        let is_sampled = |ended: &EndedRequest| ended.is_sampled == Some(true);
        let (sampled, missed) = records.ended_of(&mut cursor, &is_sampled);
        // Eight standard deviations.
        assert!((93..=307).contains(&sampled.len()), "{}", sampled.len());
        assert_eq!(missed, 0);
        let is_flagged =
            |report: &RequestReport| report.trace.as_ref().unwrap().context.is_sampled();
        assert!(sampled.iter().all(is_flagged));
    }
}
