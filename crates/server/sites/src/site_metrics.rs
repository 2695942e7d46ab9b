//! Counts of the requests of each site, for metrics.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use apus_http::fields::CacheResult;
use apus_http::{Completion, Method, Request, Response, StatusCode};
use apus_metrics::{
    DurationHistogram, HistogramReading, LabelValue, MetricDefinition, MetricSamples, MetricUnit,
    raise,
};

static REQUESTS: MetricDefinition = MetricDefinition::counter(
    "apus_http_requests",
    "Requests by the class of their method (read, write, other) and of the status of their response; `none` has no response.",
)
.labels(&["site", "method", "status"]);
static IN_FLIGHT: MetricDefinition =
    MetricDefinition::gauge("apus_http_requests_in_flight", "Requests in progress.")
        .labels(&["site"]);
static REQUEST_BYTES: MetricDefinition = MetricDefinition::counter(
    "apus_http_request",
    "Bytes of the bodies of requests, as their heads announce them.",
)
.unit(MetricUnit::Bytes)
.labels(&["site"]);
static RESPONSE_BYTES: MetricDefinition = MetricDefinition::counter(
    "apus_http_response",
    "Bytes of responses that were sent, before TLS.",
)
.unit(MetricUnit::Bytes)
.labels(&["site"]);
static DURATIONS: MetricDefinition = MetricDefinition::histogram(
    "apus_http_request_duration",
    "Time from the first byte of a request to the last one of its response.",
)
.labels(&["site"]);
static FIRST_BYTES: MetricDefinition = MetricDefinition::histogram(
    "apus_http_time_to_first_byte",
    "Time from the first byte of a request to the head of its response.",
)
.labels(&["site"]);
static CACHE_RESULTS: MetricDefinition = MetricDefinition::counter(
    "apus_http_cache_results",
    "Responses of sites with a cache by what it did.",
)
.labels(&["site", "result"]);
static LOCATION_REQUESTS: MetricDefinition = MetricDefinition::counter(
    "apus_http_location_requests",
    "Requests by location and the class of the status of their response.",
)
.labels(&["site", "location", "status"]);
static LOCATION_BYTES: MetricDefinition = MetricDefinition::counter(
    "apus_http_location_response",
    "Bytes of the responses of a location, before TLS.",
)
.unit(MetricUnit::Bytes)
.labels(&["site", "location"]);

/// The metrics of sites.
pub static SITE_METRICS: &[&MetricDefinition] = &[
    &REQUESTS,
    &IN_FLIGHT,
    &REQUEST_BYTES,
    &RESPONSE_BYTES,
    &DURATIONS,
    &FIRST_BYTES,
    &CACHE_RESULTS,
    &LOCATION_REQUESTS,
    &LOCATION_BYTES,
];

/// The name of what sites have that have no series of their own.
const OTHER: &str = "other";

/// The classes of methods: those of RFC 9110 that read, and those that write.
const METHODS: [&str; 3] = ["read", "write", "other"];

/// The classes of statuses; the first is for requests without a response.
const STATUSES: [&str; 6] = ["none", "1xx", "2xx", "3xx", "4xx", "5xx"];

/// What a cache does, and how metrics call it.
const CACHE_RESULT_KINDS: [(CacheResult, &str); 6] = [
    (CacheResult::Hit, "hit"),
    (CacheResult::Stale, "stale"),
    (CacheResult::Revalidated, "revalidated"),
    (CacheResult::Expired, "expired"),
    (CacheResult::Miss, "miss"),
    (CacheResult::Bypass, "bypass"),
];

/// Counts the requests of sites by name, also over reloads. Clones are the same.
///
/// Each worker has its own counts, which only it writes. A site is counted from its first request on; those with most requests have
/// series of their own, up to a number, and keep them as long as the configuration has them.
#[derive(Clone, Default)]
pub struct SiteMetrics(Arc<Mutex<MetricsState>>);

#[derive(Default)]
struct MetricsState {
    sites: BTreeMap<Arc<str>, SiteSeries>,
    /// What sites without series had before they got some, or were removed. It only grows, as counters have to.
    other: SiteReading,
}

/// A site.
#[derive(Default)]
struct SiteSeries {
    /// The counts of each thread that serves the site.
    workers: HashMap<ThreadId, Arc<SiteCounts>>,
    /// What threads have counted that have ended.
    ended: SiteReading,
    /// What was counted before the site got series of its own; `None`: it has none.
    before: Option<SiteReading>,
    /// Whether a reader was told of the site's requests as those of others.
    was_other: bool,
    /// What [`SiteMetrics::take_activity`] has seen; `None`: nothing.
    seen: Option<Box<SeenRequests>>,
}

/// What was seen of a site.
#[derive(Default)]
struct SeenRequests {
    reading: SiteReading,
    /// Whether no request had ended when it was seen last. What a request changes after it is counted is seen then.
    is_quiet: bool,
}

/// What happened at all sites in some time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteActivity {
    /// Requests that ended, by the class of the status of their response: none, and 1xx to 5xx.
    pub requests: [u64; STATUSES.len()],
    /// Requests in progress at the end.
    pub in_flight: u64,
    /// What caches did: hit, stale, revalidated, expired, miss and bypass.
    pub cache_results: [u64; CACHE_RESULT_KINDS.len()],
    /// The times of requests.
    pub durations: HistogramReading,
    /// The times to the heads of responses.
    pub first_bytes: HistogramReading,
    /// The sites whose requests ended.
    pub sites: Vec<SiteRequests>,
}

/// The requests of a site in some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiteRequests {
    /// The name of the site.
    pub site: Arc<str>,
    /// Requests that ended.
    pub requests: u64,
    /// Those with a status of the class 5xx.
    pub server_errors: u64,
}

/// What one worker has counted of a site.
#[derive(Default)]
#[repr(align(128))]
struct SiteCounts {
    requests: [[AtomicU64; STATUSES.len()]; METHODS.len()],
    in_flight: AtomicU64,
    request_bytes: AtomicU64,
    response_bytes: AtomicU64,
    cache_results: [AtomicU64; CACHE_RESULT_KINDS.len()],
    durations: DurationHistogram,
    first_bytes: DurationHistogram,
    /// By pattern.
    locations: Mutex<BTreeMap<Arc<str>, Arc<LocationCounts>>>,
}

#[derive(Default)]
struct LocationCounts {
    requests: [AtomicU64; STATUSES.len()],
    response_bytes: AtomicU64,
}

/// A sum of counts.
#[derive(Clone, Default)]
struct SiteReading {
    requests: [[u64; STATUSES.len()]; METHODS.len()],
    in_flight: u64,
    request_bytes: u64,
    response_bytes: u64,
    cache_results: [u64; CACHE_RESULT_KINDS.len()],
    durations: HistogramReading,
    first_bytes: HistogramReading,
    locations: BTreeMap<Arc<str>, LocationReading>,
}

#[derive(Clone, Default)]
struct LocationReading {
    requests: [u64; STATUSES.len()],
    response_bytes: u64,
}

impl SiteMetrics {
    /// Forgets the sites that are not there any more. What readers know of their requests is told as that of others from then on, so that no
    /// sum over all sites falls.
    pub fn retain<'a>(&self, sites: impl IntoIterator<Item = &'a str>) {
        let sites: HashSet<&str> = sites.into_iter().collect();
        let state = &mut *self.state();
        let other = &mut state.other;
        state.sites.retain(|name, series| {
            if sites.contains(&**name) {
                return true;
            }
            let mut reading = series.read();
            match &series.before {
                Some(before) => {
                    // What it had before it got series is among the others already.
                    reading.subtract(before);
                    other.add(&reading);
                }
                None if series.was_other => other.add(&reading),
                None => {}
            }
            false
        });
        other.in_flight = 0;
        other.locations.clear();
    }

    /// How many requests of each site have ended, and failed, since the server counts them.
    pub fn totals(&self) -> HashMap<Arc<str>, SiteTotals> {
        let state = self.state();
        let totals = state.sites.iter().map(|(name, series)| {
            let mut totals = SiteTotals::of(&series.ended.requests);
            for counts in series.workers.values() {
                totals.add(SiteTotals::of(&counts.requests.each_ref().map(read)));
            }
            (Arc::clone(name), totals)
        });
        totals.collect()
    }

    /// Adds the metrics, with series for at most this many sites.
    pub fn add_to(&self, max_sites: usize, samples: &mut MetricSamples) {
        let state = &mut *self.state();
        let shown = state.sites.values().filter(|site| site.before.is_some());
        let free = max_sites.saturating_sub(shown.count());
        // Those that get series now: the busiest of the others.
        let mut candidates: Vec<_> = state
            .sites
            .values_mut()
            .filter(|series| free > 0 && series.before.is_none())
            .map(|series| (series.begun(), series))
            .filter(|(begun, _)| *begun > 0)
            .collect();
        candidates.sort_by_key(|(begun, _)| std::cmp::Reverse(*begun));
        for (_, series) in candidates.into_iter().take(free) {
            let mut before = SiteReading::default();
            if series.was_other {
                before = series.read();
                before.in_flight = 0;
                // It is told already, and a counter must not fall.
                state.other.add(&before);
                state.other.locations.clear();
            }
            series.before = Some(before);
        }
        let mut other = state.other.clone();
        // One after the other: a reading has two histograms, and there may be thousands of sites.
        for (name, series) in &mut state.sites {
            let mut reading = series.read();
            match &series.before {
                Some(before) => {
                    reading.subtract(before);
                    reading.add_to(&name.into(), samples);
                }
                None => {
                    series.was_other = true;
                    reading.locations.clear();
                    other.add(&reading);
                }
            }
        }
        if other.begun() > 0 {
            other.locations.clear();
            other.add_to(&OTHER.into(), samples);
        }
    }

    /// What happened since the last call. There can be one caller: nothing is told twice.
    ///
    /// A site without requests costs a look at its counters, and one that never had any has no memory for this.
    pub fn take_activity(&self) -> SiteActivity {
        let mut activity = SiteActivity::default();
        for (name, series) in &mut self.state().sites {
            series.add_activity(name, &mut activity);
        }
        activity
    }

    /// What counts on the calling worker.
    pub(crate) fn worker(
        &self,
        site: &Arc<str>,
        locations: impl IntoIterator<Item = String>,
    ) -> WorkerSiteMetrics {
        let mut state = self.state();
        let series = state.sites.entry(Arc::clone(site)).or_default();
        let counts = series.workers.entry(thread::current().id()).or_default();
        let counts = Arc::clone(counts);
        drop(state);
        let mut known = lock(&counts.locations);
        let locations = locations
            .into_iter()
            .map(|pattern| Arc::clone(known.entry(pattern.into()).or_default()))
            .collect();
        drop(known);
        WorkerSiteMetrics { counts, locations }
    }

    fn state(&self) -> MutexGuard<'_, MetricsState> {
        lock(&self.0)
    }
}

impl fmt::Debug for SiteMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SiteMetrics").finish_non_exhaustive()
    }
}

/// The requests of a site that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SiteTotals {
    /// Those that had a response.
    pub requests: u64,
    /// Those whose response had a status of 5xx.
    pub failures: u64,
}

impl SiteTotals {
    fn of(counts: &[[u64; STATUSES.len()]; METHODS.len()]) -> Self {
        let mut totals = Self::default();
        for [_, others @ .., failures] in counts {
            totals.requests += others.iter().sum::<u64>() + failures;
            totals.failures += failures;
        }
        totals
    }

    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.failures += other.failures;
    }
}

impl SiteSeries {
    /// The requests so far, without a reading of all that was counted.
    fn begun(&self) -> u64 {
        let workers = self.workers.values();
        self.ended.begun() + workers.map(|counts| counts.begun()).sum::<u64>()
    }

    fn add_activity(&mut self, name: &Arc<str>, activity: &mut SiteActivity) {
        let mut ended = self.ended.ended();
        for counts in self.workers.values() {
            ended += counts.ended();
            activity.in_flight += counts.in_flight.load(Ordering::Relaxed);
        }
        if ended == 0 {
            return;
        }
        let seen = self.seen.get_or_insert_default();
        let is_quiet = seen.reading.ended() == ended;
        if is_quiet && seen.is_quiet {
            return;
        }
        seen.is_quiet = is_quiet;
        let mut now = SiteReading::default();
        now.add_totals(&self.ended);
        for counts in self.workers.values() {
            now.add_totals(&counts.read_totals());
        }
        let mut change = now.clone();
        change.subtract(&seen.reading);
        seen.reading = now;
        activity.add(name, &change);
    }

    fn read(&mut self) -> SiteReading {
        // The counts of a thread that serves the site no more have no other owner.
        let ended = &mut self.ended;
        self.workers.retain(|_, counts| {
            let is_used = Arc::strong_count(counts) > 1;
            if !is_used {
                ended.add(&counts.read());
                ended.in_flight = 0;
            }
            is_used
        });
        let mut sum = ended.clone();
        for counts in self.workers.values() {
            sum.add(&counts.read());
        }
        sum
    }
}

impl SiteActivity {
    fn add(&mut self, name: &Arc<str>, change: &SiteReading) {
        for statuses in change.requests {
            for (sum, count) in self.requests.iter_mut().zip(statuses) {
                *sum += count;
            }
        }
        for (sum, count) in self.cache_results.iter_mut().zip(change.cache_results) {
            *sum += count;
        }
        self.durations.add(&change.durations);
        self.first_bytes.add(&change.first_bytes);
        let requests = change.ended();
        if requests > 0 {
            let server_errors = change
                .requests
                .iter()
                .filter_map(|statuses| statuses.last());
            self.sites.push(SiteRequests {
                site: Arc::clone(name),
                requests,
                server_errors: server_errors.sum(),
            });
        }
    }
}

impl SiteCounts {
    fn begun(&self) -> u64 {
        self.in_flight.load(Ordering::Relaxed) + self.ended()
    }

    fn ended(&self) -> u64 {
        let counts = self.requests.iter();
        counts.map(|counts| read(counts).iter().sum::<u64>()).sum()
    }

    /// All but the locations.
    fn read_totals(&self) -> SiteReading {
        SiteReading {
            requests: self.requests.each_ref().map(read),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            request_bytes: self.request_bytes.load(Ordering::Relaxed),
            response_bytes: self.response_bytes.load(Ordering::Relaxed),
            cache_results: read(&self.cache_results),
            durations: self.durations.read(),
            first_bytes: self.first_bytes.read(),
            locations: BTreeMap::new(),
        }
    }

    fn read(&self) -> SiteReading {
        let mut locations = lock(&self.locations);
        // Those that no service of the worker has any more.
        locations.retain(|_, counts| Arc::strong_count(counts) > 1);
        SiteReading {
            locations: locations
                .iter()
                .map(|(pattern, counts)| {
                    let reading = LocationReading {
                        requests: read(&counts.requests),
                        response_bytes: counts.response_bytes.load(Ordering::Relaxed),
                    };
                    (Arc::clone(pattern), reading)
                })
                .collect(),
            ..self.read_totals()
        }
    }

    fn count(&self, method: usize, status: usize) {
        let statuses = self.requests.get(method);
        if let Some(count) = statuses.and_then(|statuses| statuses.get(status)) {
            raise(count, 1);
        }
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        (self.in_flight).store(in_flight.saturating_sub(1), Ordering::Relaxed);
    }
}

fn read<const N: usize>(counts: &[AtomicU64; N]) -> [u64; N] {
    counts.each_ref().map(|count| count.load(Ordering::Relaxed))
}

impl SiteReading {
    /// The requests so far.
    fn begun(&self) -> u64 {
        self.in_flight + self.ended()
    }

    /// The requests that have ended.
    fn ended(&self) -> u64 {
        self.requests.iter().flatten().sum()
    }

    fn add(&mut self, other: &Self) {
        self.add_totals(other);
        self.change_locations(other, u64::wrapping_add);
    }

    /// Adds all but the locations.
    fn add_totals(&mut self, other: &Self) {
        self.change(other, u64::wrapping_add);
        self.durations.add(&other.durations);
        self.first_bytes.add(&other.first_bytes);
        self.in_flight += other.in_flight;
    }

    fn subtract(&mut self, before: &Self) {
        self.change(before, u64::saturating_sub);
        self.change_locations(before, u64::saturating_sub);
        self.durations.subtract(&before.durations);
        self.first_bytes.subtract(&before.first_bytes);
    }

    /// Changes each counter by that of the other, without those of locations.
    fn change(&mut self, other: &Self, change: fn(u64, u64) -> u64) {
        let own = self.requests.iter_mut().flatten();
        let own = own.chain(&mut self.cache_results);
        let own = own.chain([&mut self.request_bytes, &mut self.response_bytes]);
        let others = other.requests.iter().flatten().chain(&other.cache_results);
        let others = others.chain([&other.request_bytes, &other.response_bytes]);
        for (own, other) in own.zip(others) {
            *own = change(*own, *other);
        }
    }

    fn change_locations(&mut self, other: &Self, change: fn(u64, u64) -> u64) {
        for (pattern, location) in &other.locations {
            let own = self.locations.entry(Arc::clone(pattern)).or_default();
            for (own, other) in own.requests.iter_mut().zip(location.requests) {
                *own = change(*own, other);
            }
            own.response_bytes = change(own.response_bytes, location.response_bytes);
        }
    }

    fn add_to(self, site: &LabelValue, samples: &mut MetricSamples) {
        let requests = samples.of(&REQUESTS);
        for (method, statuses) in METHODS.into_iter().zip(self.requests) {
            for (status, count) in STATUSES.into_iter().zip(statuses) {
                if count > 0 {
                    requests.add([site.clone(), method.into(), status.into()], count);
                }
            }
        }
        samples.of(&IN_FLIGHT).add([site.clone()], self.in_flight);
        samples
            .of(&REQUEST_BYTES)
            .add([site.clone()], self.request_bytes);
        samples
            .of(&RESPONSE_BYTES)
            .add([site.clone()], self.response_bytes);
        samples.of(&DURATIONS).add([site.clone()], self.durations);
        samples
            .of(&FIRST_BYTES)
            .add([site.clone()], self.first_bytes);
        let results = samples.of(&CACHE_RESULTS);
        for ((_, result), count) in CACHE_RESULT_KINDS.into_iter().zip(self.cache_results) {
            if count > 0 {
                results.add([site.clone(), result.into()], count);
            }
        }
        for (pattern, location) in self.locations {
            let pattern = LabelValue::from(pattern);
            let requests = samples.of(&LOCATION_REQUESTS);
            for (status, count) in STATUSES.into_iter().zip(location.requests) {
                if count > 0 {
                    requests.add([site.clone(), pattern.clone(), status.into()], count);
                }
            }
            samples
                .of(&LOCATION_BYTES)
                .add([site.clone(), pattern], location.response_bytes);
        }
    }
}

/// Counts the requests of a site on one worker.
pub(crate) struct WorkerSiteMetrics {
    counts: Arc<SiteCounts>,
    locations: Box<[Arc<LocationCounts>]>,
}

/// Where a key has the position of the location, from 1; below it is the class of the method.
const LOCATION_SHIFT: u32 = 8;

/// A key with the position of the location.
#[inline]
pub(crate) fn key_of_location(key: u32, location: Option<usize>) -> u32 {
    // There are not as many locations.
    match location.and_then(|location| u32::try_from(location + 1).ok()) {
        Some(location) => key | location << LOCATION_SHIFT,
        None => key,
    }
}

/// The position of the location in a key.
#[inline]
pub(crate) fn location_of(key: u32) -> Option<usize> {
    usize::try_from(key >> LOCATION_SHIFT).ok()?.checked_sub(1)
}

impl WorkerSiteMetrics {
    /// Begins to count a request. Returns the key of its response.
    #[inline]
    pub(crate) fn begin(&self, request: &Request) -> u32 {
        let counts = &self.counts;
        raise(&counts.in_flight, 1);
        if let Some(length) = request.body().len() {
            raise(&counts.request_bytes, length);
        }
        method_class(request.method())
    }

    /// Counts what is known of a response before it is sent.
    #[inline]
    pub(crate) fn respond(&self, response: &Response) {
        if let Some(result) = response.cache() {
            let kind = CACHE_RESULT_KINDS
                .iter()
                .position(|(kind, _)| *kind == result);
            if let Some(count) = kind.and_then(|kind| self.counts.cache_results.get(kind)) {
                raise(count, 1);
            }
        }
    }

    /// Counts a response that was sent, or in part.
    #[inline]
    pub(crate) fn complete(&self, key: u32, completion: &Completion) {
        let status = status_class(completion.status);
        self.count(key, status);
        let counts = &self.counts;
        raise(&counts.response_bytes, completion.bytes);
        counts.durations.observe(completion.duration);
        let first_byte = completion.first_byte.unwrap_or(completion.duration);
        counts.first_bytes.observe(first_byte);
        if let Some(location) = self.location(key) {
            raise(&location.response_bytes, completion.bytes);
        }
    }

    /// Counts a request that gets no response.
    pub(crate) fn abandon(&self, key: u32, status: Option<StatusCode>) {
        self.count(key, status.map_or(0, status_class));
    }

    fn count(&self, key: u32, status: usize) {
        self.counts.count((key & 0xff) as usize, status);
        if let Some(location) = self.location(key)
            && let Some(count) = location.requests.get(status)
        {
            raise(count, 1);
        }
    }

    fn location(&self, key: u32) -> Option<&LocationCounts> {
        self.locations
            .get(location_of(key)?)
            .map(|counts| &**counts)
    }
}

/// The position in [`METHODS`].
fn method_class(method: &Method) -> u32 {
    match *method {
        Method::GET | Method::HEAD => 0,
        Method::POST | Method::PUT | Method::PATCH | Method::DELETE => 1,
        _ => 2,
    }
}

/// The position in [`STATUSES`].
fn status_class(status: StatusCode) -> usize {
    usize::from(status.as_u16() / 100).min(5)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use apus_http::ResponseOutcome;
    use apus_metrics::MetricFormat;

    use super::*;
    use crate::request_counter::RequestCounter;

    fn completion(status: u16, bytes: u64) -> Completion {
        Completion {
            status: StatusCode::from_u16(status).unwrap(),
            body_bytes: bytes,
            bytes,
            duration: Duration::from_millis(4),
            first_byte: None,
            outcome: ResponseOutcome::Complete,
            origin: None,
            cache: None,
            fields: None,
        }
    }

    /// Serves requests of a site, each with this many bytes.
    fn serve(worker: &RequestCounter, statuses: &[u16]) {
        for status in statuses {
            let mut request = apus_testkit::get("/").request();
            let mut response = Response::new(StatusCode::from_u16(*status).unwrap());
            worker.attach(worker.begin(&mut request), Some(0), &mut response);
            response.take_observers().notify(&completion(*status, 10));
        }
    }

    fn text(metrics: &SiteMetrics, max_sites: usize) -> String {
        let mut samples = MetricSamples::new();
        metrics.add_to(max_sites, &mut samples);
        MetricFormat::Prometheus.write(samples)
    }

    /// The sum of the samples with this name, whose labels begin like this.
    fn value(text: &str, sample: &str) -> f64 {
        let lines = text.lines().filter(|line| line.starts_with(sample));
        lines
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum()
    }

    fn site(metrics: &SiteMetrics, name: &str) -> RequestCounter {
        let worker = metrics.worker(&name.into(), ["/".to_owned()]);
        RequestCounter::of(Some(worker), None).unwrap()
    }

    #[test]
    fn requests_have_the_class_of_their_method_and_status() {
        let metrics = SiteMetrics::default();
        let worker = site(&metrics, "a");
        serve(&worker, &[200, 204, 304, 404, 503]);
        let post = || apus_testkit::ask("POST", "/").request();
        drop(worker.begin(&mut post()));
        let waiting = worker.begin(&mut post());
        let text = text(&metrics, 10);
        for (sample, expected) in [
            (
                "apus_http_requests_total{site=\"a\",method=\"read\",status=\"2xx\"}",
                2.0,
            ),
            (
                "apus_http_requests_total{site=\"a\",method=\"read\",status=\"3xx\"}",
                1.0,
            ),
            (
                "apus_http_requests_total{site=\"a\",method=\"write\",status=\"none\"}",
                1.0,
            ),
            ("apus_http_requests_total{", 6.0),
            ("apus_http_requests_in_flight{site=\"a\"}", 1.0),
            ("apus_http_response_bytes_total{site=\"a\"}", 50.0),
            (
                "apus_http_location_requests_total{site=\"a\",location=\"/\",status=\"5xx\"}",
                1.0,
            ),
            (
                "apus_http_location_response_bytes_total{site=\"a\",location=\"/\"}",
                50.0,
            ),
            ("apus_http_request_duration_seconds_count{site=\"a\"}", 5.0),
            (
                "apus_http_time_to_first_byte_seconds_bucket{site=\"a\",le=\"0.00390625\"}",
                0.0,
            ),
            (
                "apus_http_time_to_first_byte_seconds_bucket{site=\"a\",le=\"0.0078125\"}",
                5.0,
            ),
        ] {
            assert_eq!(value(&text, sample), expected, "{sample} in {text}");
        }
        drop(waiting);
    }

    #[test]
    fn counts_outlive_a_reload_and_the_thread_that_counted() {
        let metrics = SiteMetrics::default();
        let own = site(&metrics, "a");
        serve(&own, &[200]);
        let reloaded = site(&metrics, "a");
        serve(&reloaded, &[200]);
        drop(own);
        let other = metrics.clone();
        let thread = thread::spawn(move || serve(&site(&other, "a"), &[200, 200]));
        thread.join().unwrap();
        for _ in 0..2 {
            assert_eq!(value(&text(&metrics, 10), "apus_http_requests_total{"), 4.0);
        }
    }

    #[test]
    fn activity_is_told_once() {
        let metrics = SiteMetrics::default();
        let [shop, blog] = ["shop", "blog"].map(|name| site(&metrics, name));
        let _silent = site(&metrics, "silent");
        serve(&shop, &[200, 503]);
        serve(&blog, &[404]);
        let waiting = shop.begin(&mut apus_testkit::get("/").request());
        let first = metrics.take_activity();
        assert_eq!(first.requests, [0, 0, 1, 0, 1, 1]);
        assert_eq!((first.in_flight, first.durations.count()), (1, 3));
        assert_eq!(first.first_bytes, first.durations);
        let sites: Vec<_> = first
            .sites
            .iter()
            .map(|one| (&*one.site, one.requests, one.server_errors))
            .collect();
        assert_eq!(sites, [("blog", 1, 0), ("shop", 2, 1)]);
        let none = SiteActivity {
            in_flight: 1,
            ..SiteActivity::default()
        };
        for _ in 0..3 {
            let next = metrics.take_activity();
            assert_eq!(next.durations.count(), 0);
            assert_eq!(
                (next.requests, next.in_flight, next.sites),
                (none.requests, 1, Vec::new())
            );
        }
        // A service of a reload, and of a thread that ends.
        let reloaded = site(&metrics, "shop");
        drop((shop, waiting));
        serve(&reloaded, &[200]);
        text(&metrics, 10);
        let last = metrics.take_activity();
        assert_eq!(last.requests, [1, 0, 1, 0, 0, 0]);
        assert_eq!(last.in_flight, 0);
        assert!(metrics.state().sites["silent"].seen.is_none());
    }

    #[test]
    fn ten_thousand_sites_have_as_many_series_as_a_hundred_and_one() {
        let metrics = SiteMetrics::default();
        let workers: Vec<_> = (0..10_000)
            .map(|number| site(&metrics, &format!("s{number}")))
            .collect();
        for worker in &workers {
            serve(worker, &[200]);
        }
        for _ in 0..2 {
            let text = text(&metrics, 100);
            for sample in [
                "apus_http_requests_total{",
                "apus_http_request_duration_seconds_count{",
            ] {
                let series = text.lines().filter(|line| line.starts_with(sample));
                assert_eq!(series.count(), 101);
                assert_eq!(value(&text, sample), 10_000.0);
            }
            let locations = text
                .lines()
                .filter(|line| line.starts_with("apus_http_location_requests_total{"));
            assert_eq!(locations.count(), 100);
        }
        let other = "apus_http_requests_total{site=\"other\"";
        assert_eq!(value(&text(&metrics, 100), other), 9_900.0);
        metrics.retain([]);
        let state = metrics.state();
        assert!(state.sites.is_empty() && state.other.locations.is_empty());
    }

    /// Counters never fall, whichever sites have series.
    #[test]
    fn sites_beyond_the_number_are_other_and_no_counter_falls() {
        let metrics = SiteMetrics::default();
        let workers: Vec<_> = (0..20)
            .map(|number| site(&metrics, &format!("s{number}")))
            .collect();
        let names = |text: &str| {
            let series = text
                .lines()
                .filter(|line| line.starts_with("apus_http_response_bytes_total{"));
            series.count()
        };
        serve(&workers[0], &[200; 3]);
        serve(&workers[1], &[200; 2]);
        let first = text(&metrics, 3);
        assert_eq!(names(&first), 2);
        assert_eq!(value(&first, "apus_http_requests_total{site=\"s0\""), 3.0);
        for worker in &workers {
            serve(worker, &[200]);
        }
        serve(&workers[7], &[200; 5]);
        let second = text(&metrics, 3);
        // Two from before, the busiest of the others, and all others.
        assert_eq!(names(&second), 4, "{second}");
        assert_eq!(value(&second, "apus_http_requests_total{"), 30.0);
        assert_eq!(value(&second, "apus_http_requests_total{site=\"s0\""), 4.0);
        let others = value(&second, "apus_http_requests_total{site=\"other\"");
        let times = "apus_http_request_duration_seconds_count{";
        assert_eq!(value(&second, times), 30.0);
        serve(&workers[7], &[200; 2]);
        metrics.retain(["s1", "s7", "s9"]);
        let third = text(&metrics, 3);
        assert_eq!(
            value(&third, "apus_http_requests_total{site=\"other\""),
            others + 4.0,
            "s0 is another site now"
        );
        assert_eq!(value(&third, "apus_http_requests_total{"), 32.0);
        assert_eq!(value(&third, times), 32.0);
        assert_eq!(
            value(&third, "apus_http_requests_total{site=\"s7\""),
            2.0,
            "{third}"
        );
        assert_eq!(value(&third, "apus_http_requests_total{site=\"s1\""), 3.0);
        assert_eq!(value(&third, "apus_http_requests_total{site=\"s0\""), 0.0);
    }
}
