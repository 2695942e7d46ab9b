//! What a worker measures: latencies, failures by name, and the same over time.

use std::hash::{DefaultHasher, Hasher};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::failure::{FailureCount, LoadFailure};

/// The bands of latencies of an interval: four for each doubling.
pub(crate) const BANDS: usize = 128;

/// The longest latency that is told apart.
const LONGEST: u64 = 3_600_000_000_000;

/// The time in which requests have to begin to be part of the result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasurementWindow {
    pub(crate) begin: Instant,
    /// Unknown if a number of requests ends the load.
    pub(crate) end: Option<Instant>,
}

impl MeasurementWindow {
    fn has(&self, time: Instant) -> bool {
        time >= self.begin && self.end.is_none_or(|end| time < end)
    }
}

/// The most bytes of a response that are kept.
const MAX_SAMPLE: usize = 1 << 20;

/// What a server responds with.
#[derive(Clone, Debug, Default)]
pub struct ResponseSample {
    /// Its status.
    pub status: u16,
    /// The bytes of the body.
    pub length: u64,
    /// The begin of the body.
    pub begin: Vec<u8>,
    digest: DefaultHasher,
}

impl ResponseSample {
    pub(crate) fn add(&mut self, data: &[u8]) {
        self.length += data.len() as u64;
        let room = MAX_SAMPLE.saturating_sub(self.begin.len());
        let kept = data.get(..room.min(data.len())).unwrap_or_default();
        self.begin.extend_from_slice(kept);
        self.digest.write(data);
    }
}

impl PartialEq for ResponseSample {
    /// Whether the statuses and the bodies are the same.
    fn eq(&self, other: &Self) -> bool {
        (self.status, self.length, self.digest.finish())
            == (other.status, other.length, other.digest.finish())
    }
}

/// What was measured, of one worker or of all.
pub(crate) struct LoadCounts {
    /// Nanoseconds from the time at which a request was due to the end of its response.
    pub(crate) latency: Histogram<u64>,
    /// The same from the time at which it began.
    pub(crate) service: Histogram<u64>,
    /// Nanoseconds until a connection was open, with TLS.
    pub(crate) connect: Histogram<u64>,
    /// Good responses that ended in the window, which make the rate.
    pub(crate) ended: u64,
    /// Bytes of the bodies of these.
    pub(crate) body_bytes: u64,
    /// Responses by status.
    pub(crate) statuses: Vec<(u16, u64)>,
    pub(crate) failures: [u64; LoadFailure::ALL.len()],
    /// What was said about the first failure of each kind.
    pub(crate) causes: [Option<Box<str>>; LoadFailure::ALL.len()],
    /// Good responses and failures of each request of the plan.
    pub(crate) by_request: Vec<(u64, u64)>,
    /// The latencies of each request of the plan, if there are several.
    pub(crate) latency_by_request: Vec<Histogram<u64>>,
    /// Connections opened, since the start of the worker.
    pub(crate) opened: u64,
    /// TLS handshakes that resumed a session.
    pub(crate) resumed: u64,
    /// GOAWAY frames (HTTP/2).
    pub(crate) go_aways: u64,
    /// Messages that were sent to all connections in the window.
    pub(crate) broadcasts: u64,
    /// The first response, if the plan keeps it.
    pub(crate) sample: ResponseSample,
    /// When the last good response ended.
    pub(crate) last_end: Option<Instant>,
}

impl LoadCounts {
    pub(crate) fn new(requests: usize) -> Self {
        Self {
            latency: histogram(),
            service: histogram(),
            connect: histogram(),
            ended: 0,
            body_bytes: 0,
            statuses: Vec::new(),
            failures: [0; LoadFailure::ALL.len()],
            causes: Default::default(),
            by_request: vec![(0, 0); requests],
            latency_by_request: match requests {
                0 | 1 => Vec::new(),
                many => vec![histogram(); many],
            },
            opened: 0,
            resumed: 0,
            go_aways: 0,
            broadcasts: 0,
            sample: ResponseSample::default(),
            last_end: None,
        }
    }

    /// Adds what another worker measured, without loss.
    pub(crate) fn add(&mut self, other: Self) {
        let by_request = self.latency_by_request.iter_mut();
        for (own, others) in [
            (&mut self.latency, &other.latency),
            (&mut self.service, &other.service),
            (&mut self.connect, &other.connect),
        ]
        .into_iter()
        .chain(by_request.zip(&other.latency_by_request))
        {
            // All have the same bounds, so this cannot fail.
            let _ = own.add(others);
        }
        self.ended += other.ended;
        self.body_bytes += other.body_bytes;
        for (status, count) in other.statuses {
            *status_count(&mut self.statuses, status) += count;
        }
        for (own, others) in self.failures.iter_mut().zip(other.failures) {
            *own += others;
        }
        for (own, others) in self.causes.iter_mut().zip(other.causes) {
            *own = own.take().or(others);
        }
        for (own, others) in self.by_request.iter_mut().zip(other.by_request) {
            own.0 += others.0;
            own.1 += others.1;
        }
        self.opened += other.opened;
        self.resumed += other.resumed;
        self.go_aways += other.go_aways;
        self.broadcasts += other.broadcasts;
        self.last_end = self.last_end.max(other.last_end);
    }

    /// Counts messages that did not reach one of this number of connections.
    pub(crate) fn note_lost_broadcasts(&mut self, connections: u64) {
        let expected = self.broadcasts * connections;
        let known = self.latency.len() + self.failed();
        let lost = expected.saturating_sub(known);
        if let Some(count) = self.failures.get_mut(LoadFailure::NotDelivered as usize) {
            *count += lost;
        }
        if let Some(request) = self.by_request.first_mut() {
            request.1 += lost;
        }
    }

    /// All failures.
    pub(crate) fn failed(&self) -> u64 {
        self.failures.iter().sum()
    }

    /// The failures by what happened.
    pub(crate) fn failed_by_kind(&self) -> impl Iterator<Item = FailureCount> {
        let counts = self.failures.iter().zip(&self.causes);
        LoadFailure::ALL
            .into_iter()
            .zip(counts)
            .filter(|(_, (count, _))| **count > 0)
            .map(|(kind, (count, cause))| FailureCount {
                kind,
                count: *count,
                cause: cause.as_deref().map(str::to_owned),
            })
    }
}

/// An empty histogram of nanoseconds with three digits.
#[allow(
    clippy::expect_used,
    reason = "the bounds are constants that are valid"
)]
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds")
}

fn status_count(statuses: &mut Vec<(u16, u64)>, status: u16) -> &mut u64 {
    let at = match statuses.iter().position(|(known, _)| *known == status) {
        Some(at) => at,
        None => {
            statuses.push((status, 0));
            statuses.len() - 1
        }
    };
    #[allow(clippy::indexing_slicing, reason = "the place was found or made above")]
    &mut statuses[at].1
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// What happened in an interval of the window, by when requests ended.
#[derive(Clone, Debug)]
pub(crate) struct IntervalCounts {
    pub(crate) good: u64,
    pub(crate) failed: u64,
    pub(crate) body_bytes: u64,
    /// Good responses by the band of their latency.
    pub(crate) bands: [u32; BANDS],
}

impl Default for IntervalCounts {
    fn default() -> Self {
        Self {
            good: 0,
            failed: 0,
            body_bytes: 0,
            bands: [0; BANDS],
        }
    }
}

impl IntervalCounts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.good += other.good;
        self.failed += other.failed;
        self.body_bytes += other.body_bytes;
        for (own, others) in self.bands.iter_mut().zip(other.bands) {
            *own = own.saturating_add(others);
        }
    }

    /// The latency below which this share of the responses is, in seconds, to the width of a band.
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        let wanted = (self.good as f64 * share).ceil().max(1.0);
        let mut seen = 0.0;
        for (band, count) in self.bands.iter().enumerate() {
            seen += f64::from(*count);
            if seen >= wanted {
                return band_start(band + 1);
            }
        }
        0.0
    }
}

/// The band of a latency in nanoseconds.
fn band(nanoseconds: u64) -> usize {
    let units = (nanoseconds >> 8).max(1);
    let doubling = units.ilog2();
    let quarter = match doubling {
        0 => 0,
        1 => (units & 1) << 1,
        _ => (units >> (doubling - 2)) & 3,
    };
    (doubling as usize * 4 + usize::try_from(quarter).unwrap_or(0)).min(BANDS - 1)
}

/// Where a band begins, in seconds.
pub(crate) fn band_start(band: usize) -> f64 {
    let doubling = i32::try_from(band / 4).unwrap_or(0);
    256e-9 * 2f64.powi(doubling) * (1.0 + (band % 4) as f64 / 4.0)
}

/// A good response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GoodResponse {
    /// When the request was due.
    pub(crate) due: Instant,
    /// When it began.
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) status: u16,
    pub(crate) body_bytes: u64,
    /// Which request of the plan it is.
    pub(crate) request: usize,
}

/// Records what happens to the requests of a worker.
pub(crate) struct Recorder {
    window: MeasurementWindow,
    pub(crate) counts: LoadCounts,
    interval: IntervalCounts,
}

impl Recorder {
    pub(crate) fn new(window: MeasurementWindow, requests: usize) -> Self {
        Self {
            window,
            counts: LoadCounts::new(requests),
            interval: IntervalCounts::default(),
        }
    }

    /// Sets the window, once the load begins.
    pub(crate) fn set_window(&mut self, window: MeasurementWindow) {
        self.window = window;
    }

    pub(crate) fn good(&mut self, response: GoodResponse) {
        let latency = nanoseconds(response.ended - response.due);
        let counts = &mut self.counts;
        if self.window.has(response.ended) {
            counts.ended += 1;
            counts.body_bytes += response.body_bytes;
            self.interval.good += 1;
            self.interval.body_bytes += response.body_bytes;
            if let Some(count) = self.interval.bands.get_mut(band(latency)) {
                *count += 1;
            }
        }
        if !self.window.has(response.due) {
            return;
        }
        counts.latency.saturating_record(latency);
        if response.began != response.due {
            counts
                .service
                .saturating_record(nanoseconds(response.ended - response.began));
        } else {
            counts.service.saturating_record(latency);
        }
        *status_count(&mut counts.statuses, response.status) += 1;
        if let Some(request) = counts.by_request.get_mut(response.request) {
            request.0 += 1;
        }
        if let Some(request) = counts.latency_by_request.get_mut(response.request) {
            request.saturating_record(latency);
        }
        counts.last_end = Some(response.ended);
    }

    /// A failed request that was due then.
    pub(crate) fn failed(&mut self, kind: LoadFailure, request: usize, due: Instant) {
        if !self.window.has(due) {
            return;
        }
        if let Some(count) = self.counts.failures.get_mut(kind as usize) {
            *count += 1;
        }
        if let Some(request) = self.counts.by_request.get_mut(request) {
            request.1 += 1;
        }
        self.interval.failed += 1;
    }

    /// A response with a status that was not expected: it is counted with the statuses, too.
    pub(crate) fn status_of_failed(&mut self, status: u16, due: Instant) {
        if self.window.has(due) {
            *status_count(&mut self.counts.statuses, status) += 1;
        }
    }

    /// A message to all connections that was due then.
    pub(crate) fn broadcast(&mut self, due: Instant) {
        self.counts.broadcasts += u64::from(self.window.has(due));
    }

    /// Keeps what was said about a failure, if it is the first of its kind.
    pub(crate) fn cause(&mut self, kind: LoadFailure, cause: impl FnOnce() -> String) {
        if let Some(known) = self.counts.causes.get_mut(kind as usize)
            && known.is_none()
        {
            *known = Some(cause().into());
        }
    }

    pub(crate) fn opened(&mut self, took: Duration, resumed: bool) {
        self.counts.opened += 1;
        self.counts.resumed += u64::from(resumed);
        self.counts.connect.saturating_record(nanoseconds(took));
    }

    /// What happened since the last call.
    pub(crate) fn take_interval(&mut self) -> IntervalCounts {
        std::mem::take(&mut self.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_are_in_order_and_begin_where_they_say() {
        let mut last = 0;
        for exponent in 8..40 {
            for quarter in 0..4_u64 {
                let value = (1_u64 << exponent) + (quarter << exponent) / 4;
                let found = band(value);
                assert!(found >= last, "{value}");
                last = found;
                if exponent > 10 {
                    let start = band_start(found) * 1e9;
                    assert!((start - value as f64).abs() < 1.0, "{value} {start}");
                }
            }
        }
        assert_eq!(band(0), 0);
        assert_eq!(band(u64::MAX), BANDS - 1);
    }

    #[test]
    fn failures_and_requests_outside_of_the_window_are_part_of_no_latency() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let window = MeasurementWindow {
            begin: at(1),
            end: Some(at(3)),
        };
        let mut recorder = Recorder::new(window, 1);
        let response = |due, ended| GoodResponse {
            due: at(due),
            began: at(due),
            ended: at(ended),
            status: 200,
            body_bytes: 10,
            request: 0,
        };
        recorder.good(response(0, 1));
        recorder.good(response(1, 2));
        recorder.good(response(2, 9));
        recorder.failed(LoadFailure::Reset, 0, at(2));
        recorder.failed(LoadFailure::Reset, 0, at(3));
        let counts = &recorder.counts;
        assert_eq!((counts.latency.len(), counts.ended), (2, 2));
        assert_eq!(counts.latency.max() / 10_000_000_000, 0);
        assert!(counts.latency.max() >= 7_000_000_000);
        assert_eq!(counts.failed(), 1);
        assert_eq!(counts.by_request, [(2, 1)]);
    }

    #[test]
    fn workers_are_added_up_without_loss() {
        let begin = Instant::now();
        let window = MeasurementWindow { begin, end: None };
        let mut all = LoadCounts::new(1);
        for worker in 0..3_u64 {
            let mut recorder = Recorder::new(window, 1);
            for value in 1..=100 {
                recorder.good(GoodResponse {
                    due: begin,
                    began: begin,
                    ended: begin + Duration::from_millis(worker * 100 + value),
                    status: 200,
                    body_bytes: 1,
                    request: 0,
                });
            }
            all.add(recorder.counts);
        }
        assert_eq!((all.latency.len(), all.body_bytes), (300, 300));
        let median = all.latency.value_at_quantile(0.5);
        assert!((149_000_000..=151_000_000).contains(&median), "{median}");
        assert_eq!(all.statuses, [(200, 300)]);
    }
}
