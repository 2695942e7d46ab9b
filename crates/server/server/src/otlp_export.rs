//! Metrics for a collector of OpenTelemetry, on the control thread.

use std::io;
use std::sync::Arc;

use apus_config::OtlpPlan;
use apus_telemetry::{ExportCounters, ExportCounts, Exporter, MetricsExport};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

/// What pushes metrics; without a collector nothing runs.
#[derive(Default)]
pub(crate) struct OtlpExport {
    running: Option<RunningExport>,
    counters: Arc<ExportCounters>,
}

struct RunningExport {
    plan: OtlpPlan,
    exporter: Exporter,
    tick: Interval,
}

impl OtlpExport {
    /// Pushes to this collector from now on.
    ///
    /// # Errors
    /// There can be no further thread.
    pub(crate) fn apply(&mut self, plan: Option<&OtlpPlan>) -> io::Result<()> {
        if self.running.as_ref().map(|running| &running.plan) == plan {
            return Ok(());
        }
        let running = match plan {
            Some(plan) => {
                let counters = Arc::clone(&self.counters);
                let exporter = Exporter::start(plan.settings.clone(), counters)?;
                let mut tick = interval_at(Instant::now() + plan.interval, plan.interval);
                tick.set_missed_tick_behavior(MissedTickBehavior::Skip);
                Some(RunningExport {
                    plan: plan.clone(),
                    exporter,
                    tick,
                })
            }
            None => None,
        };
        if let Some(mut old) = std::mem::replace(&mut self.running, running) {
            // What waits is sent meanwhile.
            spawn_blocking(move || old.exporter.finish());
        }
        Ok(())
    }

    /// Waits until metrics are to be sent. Without a collector it waits for ever.
    pub(crate) async fn next(&mut self) {
        match &mut self.running {
            Some(running) => {
                running.tick.tick().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Whether there is a collector.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
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
            // It ends within seconds.
            let _ = spawn_blocking(move || running.exporter.finish()).await;
        }
    }
}
