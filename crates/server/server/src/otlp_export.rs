//! Metrics and traces for a collector of OpenTelemetry, on the control thread.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use apus_config::OtlpPlan;
use apus_http::{EndedRequest, RecordCursor, RequestRecords, RequestReport};
use apus_telemetry::{ExportCounters, ExportCounts, Exporter, MetricsExport};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// How often the records of requests are read: the oldest ones give way to new ones.
const READ_INTERVAL: Duration = Duration::from_millis(100);

/// The requests of one message, and how long the first of them waits.
const MAX_REQUESTS: usize = 512;
const MAX_WAIT: Duration = Duration::from_secs(1);

/// The records that are kept for each worker while requests are traced, so that none gives way within a [`READ_INTERVAL`].
pub(crate) const TRACED_RECORDS: usize = 8192;

/// What is to be done.
pub(crate) enum OtlpEvent {
    /// Metrics are to be sent.
    Metrics,
    /// The records of requests are to be read.
    Requests,
}

/// What pushes metrics and spans; without a collector nothing runs.
#[derive(Default)]
pub(crate) struct OtlpExport {
    running: Option<RunningExport>,
    counters: Arc<ExportCounters>,
}

struct RunningExport {
    plan: OtlpPlan,
    exporter: Exporter,
    metrics_tick: Option<Interval>,
    requests_tick: Interval,
    cursor: RecordCursor,
    /// Those that wait for a message.
    requests: Vec<RequestReport>,
    waiting_since: Instant,
}

impl OtlpExport {
    /// Pushes to this collector from now on, also the requests that end from now on.
    ///
    /// # Errors
    /// There can be no further thread.
    pub(crate) fn apply(
        &mut self,
        plan: Option<&OtlpPlan>,
        records: &RequestRecords,
    ) -> io::Result<()> {
        if self.running.as_ref().map(|running| &running.plan) == plan {
            return Ok(());
        }
        let running = match plan {
            Some(plan) => {
                let counters = Arc::clone(&self.counters);
                let exporter = Exporter::start(plan.settings.clone(), counters)?;
                let ticks = |period: Duration| {
                    let mut ticks = interval_at(Instant::now() + period, period);
                    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
                    ticks
                };
                let mut cursor = RecordCursor::default();
                // It only sets the cursor.
                records.ended_of(&mut cursor, &|_| false);
                Some(RunningExport {
                    plan: plan.clone(),
                    exporter,
                    metrics_tick: plan.interval.map(ticks),
                    requests_tick: ticks(READ_INTERVAL),
                    cursor,
                    requests: Vec::new(),
                    waiting_since: Instant::now(),
                })
            }
            None => None,
        };
        if let Some(mut old) = std::mem::replace(&mut self.running, running) {
            // What waits is sent meanwhile.
            old.flush();
            spawn_blocking(move || old.exporter.finish());
        }
        Ok(())
    }

    /// Waits until something is to be done. Without a collector it waits for ever.
    pub(crate) async fn next(&mut self) -> OtlpEvent {
        let Some(running) = &mut self.running else {
            return std::future::pending().await;
        };
        let metrics = async {
            match &mut running.metrics_tick {
                Some(tick) => tick.tick().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = metrics => OtlpEvent::Metrics,
            _ = running.requests_tick.tick(), if running.plan.traces.is_some() => OtlpEvent::Requests,
        }
    }

    /// Reads the requests that have ended, and sends the spans of those that are sampled, failed, or were slow.
    pub(crate) fn read(&mut self, records: &RequestRecords) {
        let Some(running) = &mut self.running else {
            return;
        };
        let Some(traces) = running.plan.traces else {
            return;
        };
        let wants = |ended: &EndedRequest| {
            let failed = ended.status.is_none_or(|status| status.is_server_error());
            let is_slow = traces.slow.is_some_and(|slow| ended.duration >= slow);
            ended
                .is_sampled
                .is_some_and(|sampled| sampled || failed || is_slow)
        };
        let (reports, missed) = records.ended_of(&mut running.cursor, &wants);
        self.counters.count_untraced(missed);
        if running.requests.is_empty() {
            running.waiting_since = Instant::now();
        }
        running.requests.extend(reports);
        let is_due = running.waiting_since.elapsed() >= MAX_WAIT;
        if running.requests.len() >= MAX_REQUESTS || (is_due && !running.requests.is_empty()) {
            running.flush();
        }
    }

    /// Whether there is a collector.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether metrics are pushed.
    pub(crate) fn pushes_metrics(&self) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.metrics_tick.is_some())
    }

    pub(crate) fn send(&self, export: MetricsExport) {
        if let Some(running) = &self.running {
            running.exporter.send(export);
        }
    }

    /// What became of what was sent.
    pub(crate) fn counts(&self) -> ExportCounts {
        self.counters.counts()
    }

    /// Sends what waits, for a moment.
    pub(crate) async fn finish(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.flush();
            // It ends within seconds.
            let _ = spawn_blocking(move || running.exporter.finish()).await;
        }
    }
}

impl RunningExport {
    /// Sends the spans that wait.
    fn flush(&mut self) {
        let mut requests = std::mem::take(&mut self.requests);
        while !requests.is_empty() {
            let rest = requests.split_off(requests.len().min(MAX_REQUESTS));
            self.exporter.send_requests(requests);
            requests = rest;
        }
    }
}
