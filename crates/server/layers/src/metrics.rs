//! `Metrics`: request counters and durations in the formats of Prometheus.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use apus_http::HeaderValue;
use apus_http::{Method, Request, Response, ResponseFuture, StatusCode, header};
use apus_metrics::{
    DurationHistogram, HistogramReading, LabelValue, MetricDefinition, MetricFormat, MetricSamples,
    MetricUnit, add_process_metrics, raise,
};

use apus_handler::Handler;
use apus_handler::Matched;
use apus_handler::{Middleware, Next};

const LABELS: &[&str] = &["method", "route", "status"];

static REQUESTS: MetricDefinition =
    MetricDefinition::counter("http_requests", "Completed requests.").labels(LABELS);
static RESPONSE_BYTES: MetricDefinition =
    MetricDefinition::counter("http_response", "Bytes of response bodies that were sent.")
        .unit(MetricUnit::Bytes)
        .labels(LABELS);
static DURATIONS: MetricDefinition = MetricDefinition::histogram(
    "http_request_duration",
    "Time from the head of a request to the end of its response.",
)
.labels(LABELS);
static IN_FLIGHT: MetricDefinition =
    MetricDefinition::gauge("http_requests_in_flight", "Requests in progress.");

/// A layer that counts requests, with a handler that returns the metrics, in the text format of Prometheus or of OpenMetrics.
///
/// ```
/// # use apus_handler::Layered;
/// # use apus_http::{Request, Response, StatusCode, service_fn};
/// # use apus_layers::Metrics;
/// # let clock = || service_fn(|_: Request| Response::text(StatusCode::OK, "noon").into());
/// let metrics = Metrics::new();
/// let clock = Layered::new(clock).layer(metrics.clone());
/// let page = metrics.handler();
/// # let _ = (clock, page);
/// ```
///
/// | metric | labels | |
/// | --- | --- | --- |
/// | `http_requests_total` | `method`, `route`, `status` | counter |
/// | `http_request_duration_seconds` | `method`, `route`, `status` | histogram, until the last byte; the buckets are powers of two |
/// | `http_response_bytes_total` | `method`, `route`, `status` | counter of body bytes |
/// | `http_requests_in_flight` | | gauge |
/// | `process_cpu_seconds_total` | | counter, of the whole process |
/// | `process_resident_memory_bytes`, `process_open_fds` | | gauges |
///
/// `route` is the pattern of a route (`/users/{id}`), `status` a class (`2xx`), and methods that are not
/// registered are `OTHER`: the number of series depends only on the routes, not on what clients send. A
/// request without a route has an empty `route`; one whose client disconnected before the response has the
/// status `none`. Each worker counts for itself, and a read adds the workers up.
#[derive(Clone)]
pub struct Metrics(Arc<MetricsRegistry>);

struct MetricsRegistry {
    /// Identifies these metrics among others.
    id: u64,
    /// The metrics of each worker, also of workers that have ended.
    workers: Mutex<Vec<Arc<WorkerMetrics>>>,
    /// What writes further metrics.
    sources: Mutex<Vec<Arc<MetricsSource>>>,
}

type MetricsSource = dyn Fn(&mut MetricSamples) + Send + Sync;

/// The metrics of one worker, which only that worker writes.
#[derive(Default)]
struct WorkerMetrics {
    in_flight: AtomicI64,
    series: Mutex<BTreeMap<SeriesLabels, Arc<Series>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct SeriesLabels {
    route: Arc<str>,
    method: &'static str,
    status: &'static str,
}

#[derive(Default)]
struct Series {
    bytes: AtomicU64,
    durations: DurationHistogram,
}

/// The metrics of this thread, with an index of its series.
struct LocalMetrics {
    worker: Arc<WorkerMetrics>,
    series: RefCell<HashMap<SeriesLabels, Arc<Series>>>,
    routes: RefCell<HashSet<Arc<str>>>,
}

impl LocalMetrics {
    /// The one copy of a route's pattern.
    fn route(&self, pattern: &str) -> Arc<str> {
        let mut routes = self.routes.borrow_mut();
        match routes.get(pattern) {
            Some(route) => route.clone(),
            None => {
                let route: Arc<str> = pattern.into();
                routes.insert(route.clone());
                route
            }
        }
    }
}

thread_local! {
    static LOCAL_METRICS: RefCell<HashMap<u64, Rc<LocalMetrics>>> = RefCell::default();
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Empty metrics. Clones share them.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(Arc::new(MetricsRegistry {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            workers: Mutex::default(),
            sources: Mutex::default(),
        }))
    }

    /// Adds the metrics of another part, such as a queue of jobs:
    /// `metrics.with(move |samples| Jobs::add_metrics([&jobs], samples))`.
    #[must_use]
    pub fn with(self, source: impl Fn(&mut MetricSamples) + Send + Sync + 'static) -> Self {
        lock(&self.0.sources).push(Arc::new(source));
        self
    }

    /// A handler that returns the metrics.
    pub fn handler(&self) -> MetricsHandler {
        MetricsHandler(self.clone())
    }

    /// The metrics now.
    pub fn samples(&self) -> MetricSamples {
        let workers = lock(&self.0.workers).clone();
        let mut sums: BTreeMap<SeriesLabels, SeriesSum> = BTreeMap::new();
        let mut in_flight = 0;
        for worker in &workers {
            in_flight += worker.in_flight.load(Ordering::Relaxed);
            for (labels, series) in &*lock(&worker.series) {
                sums.entry(labels.clone()).or_default().add(series);
            }
        }
        let mut samples = MetricSamples::new();
        samples.add(&IN_FLIGHT, u64::try_from(in_flight).unwrap_or(0));
        for definition in [&REQUESTS, &RESPONSE_BYTES, &DURATIONS] {
            samples.of(definition);
        }
        for (labels, sum) in sums {
            let count = sum.durations.count();
            samples.of(&REQUESTS).add(labels.values(), count);
            samples.of(&RESPONSE_BYTES).add(labels.values(), sum.bytes);
            samples.of(&DURATIONS).add(labels.values(), sum.durations);
        }
        add_process_metrics(&mut samples);
        let sources = lock(&self.0.sources).clone();
        for source in sources {
            source(&mut samples);
        }
        samples
    }

    /// The metrics in a text format.
    pub fn render(&self, format: MetricFormat) -> String {
        format.write(self.samples())
    }

    /// The metrics of this worker.
    fn local(&self) -> Rc<LocalMetrics> {
        LOCAL_METRICS.with_borrow_mut(|locals| {
            let local = locals.entry(self.0.id).or_insert_with(|| {
                let worker = Arc::<WorkerMetrics>::default();
                lock(&self.0.workers).push(worker.clone());
                Rc::new(LocalMetrics {
                    worker,
                    series: RefCell::default(),
                    routes: RefCell::default(),
                })
            });
            local.clone()
        })
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Middleware<()> for Metrics {
    fn call(&self, request: Request, next: Next) -> ResponseFuture {
        let local = self.local();
        let mut counting = RequestInFlight {
            route: local.route(next.route(&request).unwrap_or("")),
            local,
            method: method(request.method()),
            status: "none",
            bytes: 0,
            started: Instant::now(),
            duration: None,
        };
        add(&counting.local.worker.in_flight, 1);
        next.call_and_change(request, move |mut response| {
            counting.status = class(response.status());
            response.on_complete(move |completion| {
                counting.finish(completion.body_bytes, completion.duration);
            });
            response
        })
    }
}

/// The handler that returns the metrics.
#[derive(Clone, Debug)]
pub struct MetricsHandler(Metrics);

#[diagnostic::do_not_recommend]
impl Handler<()> for MetricsHandler {
    fn call(&self, request: Request, _: &Matched<'_>) -> ResponseFuture {
        let format = MetricFormat::accepted(request.headers().get_str("accept"));
        Response::new(StatusCode::OK)
            .with_header(
                &header::CONTENT_TYPE,
                &HeaderValue::from_static(format.media_type()),
            )
            .with_header(&header::VARY, &HeaderValue::from_static("Accept"))
            .with_header(
                &header::CACHE_CONTROL,
                &HeaderValue::from_static("no-store"),
            )
            .with_body(self.0.render(format))
            .into()
    }
}

/// A request in progress, which is counted when this is dropped.
struct RequestInFlight {
    local: Rc<LocalMetrics>,
    method: &'static str,
    route: Arc<str>,
    status: &'static str,
    bytes: u64,
    started: Instant,
    duration: Option<Duration>,
}

impl RequestInFlight {
    fn finish(mut self, bytes: u64, duration: Duration) {
        self.bytes = bytes;
        self.duration = Some(duration);
    }
}

impl Drop for RequestInFlight {
    fn drop(&mut self) {
        add(&self.local.worker.in_flight, -1);
        let labels = SeriesLabels {
            route: self.route.clone(),
            method: self.method,
            status: if std::thread::panicking() {
                "5xx"
            } else {
                self.status
            },
        };
        let mut known = self.local.series.borrow_mut();
        let series = match known.get(&labels) {
            Some(series) => series,
            None => {
                let series = Arc::<Series>::default();
                lock(&self.local.worker.series).insert(labels.clone(), series.clone());
                known.entry(labels).or_insert(series)
            }
        };
        let duration = self.duration.unwrap_or_else(|| self.started.elapsed());
        series.count(self.bytes, duration);
    }
}

impl Series {
    fn count(&self, bytes: u64, duration: Duration) {
        raise(&self.bytes, bytes);
        self.durations.observe(duration);
    }
}

/// The sum of a series over all workers.
#[derive(Default)]
struct SeriesSum {
    bytes: u64,
    durations: HistogramReading,
}

impl SeriesSum {
    fn add(&mut self, series: &Series) {
        self.bytes += series.bytes.load(Ordering::Relaxed);
        self.durations.add(&series.durations.read());
    }
}

impl SeriesLabels {
    fn values(&self) -> [LabelValue; 3] {
        [self.method.into(), (&self.route).into(), self.status.into()]
    }
}

/// The name of a registered method, else `OTHER`.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE",
    ];
    let known = KNOWN.iter().find(|known| **known == method.as_str());
    known.copied().unwrap_or("OTHER")
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    }
}

/// Adds to a gauge that no other thread writes.
fn add(gauge: &AtomicI64, by: i64) {
    gauge.store(gauge.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_the_class_of_their_first_digit() {
        for (status, expected) in [
            (100, "1xx"),
            (199, "1xx"),
            (200, "2xx"),
            (299, "2xx"),
            (300, "3xx"),
            (399, "3xx"),
            (400, "4xx"),
            (499, "4xx"),
            (500, "5xx"),
            (999, "5xx"),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(class(status), expected, "{status}");
        }
    }

    /// A client chooses the method, and must not choose how many series there are.
    #[test]
    fn methods_that_are_not_registered_have_one_name() {
        for (sent, expected) in [("GET", "GET"), ("get", "OTHER"), ("BREW", "OTHER")] {
            assert_eq!(method(&sent.parse().unwrap()), expected, "{sent}");
        }
    }
}
