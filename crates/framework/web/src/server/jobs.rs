//! The jobs and schedules of a server, as its background tasks.

use apus_jobs::{JobRunner, Schedules};

use super::Server;

impl Server {
    /// Does the jobs of a queue beside the server, and shows the queue in `apus status`. When the server stops, jobs that run
    /// end or are given back to the queue.
    #[must_use]
    pub fn jobs(mut self, runner: JobRunner) -> Self {
        self.queues.push(runner.queue().clone());
        self.task("jobs", move |mut stopping| async move {
            if let Err(error) = runner.run(async move { stopping.wait().await }).await {
                tracing::error!(%error, "no jobs are done");
            }
        })
    }

    /// Runs tasks at the times of their schedules beside the server.
    #[must_use]
    pub fn schedules(self, schedules: Schedules) -> Self {
        self.task("schedules", move |mut stopping| async move {
            schedules.run(async move { stopping.wait().await }).await;
        })
    }
}
