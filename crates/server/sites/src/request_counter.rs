//! What a worker does at the beginning and at the end of each request of a site: it counts it for metrics, and records it.

use std::rc::Rc;

use apus_http::{
    Completion, Request, RequestRecorder, Response, ResponseCount, ResponseCounter, ResponseKey,
    SharedResponseCounter, StatusCode,
};
use apus_transport::coarse_now;

use crate::site_metrics::{WorkerSiteMetrics, key_of_location, location_of};

/// Counts and records the requests of a site on one worker.
pub(crate) struct RequestCounter {
    parts: Rc<CounterParts>,
    at_end: SharedResponseCounter,
}

struct CounterParts {
    metrics: Option<WorkerSiteMetrics>,
    recorder: Option<RequestRecorder>,
}

/// What is called at the end of responses.
struct EndCounter(Rc<CounterParts>);

impl RequestCounter {
    /// `None` if requests are neither counted nor recorded.
    pub(crate) fn of(
        metrics: Option<WorkerSiteMetrics>,
        recorder: Option<RequestRecorder>,
    ) -> Option<Self> {
        if metrics.is_none() && recorder.is_none() {
            return None;
        }
        let parts = Rc::new(CounterParts { metrics, recorder });
        Some(Self {
            at_end: SharedResponseCounter::new(EndCounter(Rc::clone(&parts))),
            parts,
        })
    }

    /// Begins to count a request, which has its record from now on.
    #[inline]
    pub(crate) fn begin(&self, request: &mut Request) -> ResponseCount {
        let mut key = ResponseKey::default();
        if let Some(metrics) = &self.parts.metrics {
            key.series = metrics.begin(request);
        }
        if let Some(recorder) = &self.parts.recorder {
            let arrived = request.arrived().unwrap_or_else(coarse_now);
            key.record = recorder.begin(request, arrived);
        }
        ResponseCount::new(self.at_end.clone(), key)
    }

    /// Has a response counted for its location.
    #[inline]
    pub(crate) fn attach(
        &self,
        mut count: ResponseCount,
        location: Option<usize>,
        response: &mut Response,
    ) {
        let mut key = count.key();
        key.series = key_of_location(key.series, location);
        if let Some(metrics) = &self.parts.metrics {
            metrics.respond(response);
        }
        if let Some(recorder) = &self.parts.recorder {
            recorder.respond(key.record, response);
        }
        count.set_key(key);
        response.count(count);
    }
}

impl ResponseCounter for EndCounter {
    fn complete(&self, key: ResponseKey, completion: &Completion) {
        if let Some(metrics) = &self.0.metrics {
            metrics.complete(key.series, completion);
        }
        if let Some(recorder) = &self.0.recorder {
            recorder.complete(key.record, location_of(key.series), completion);
        }
    }

    fn abandon(&self, key: ResponseKey, status: Option<StatusCode>) {
        if let Some(metrics) = &self.0.metrics {
            metrics.abandon(key.series, status);
        }
        if let Some(recorder) = &self.0.recorder {
            recorder.abandon(key.record, location_of(key.series), status);
        }
    }
}
