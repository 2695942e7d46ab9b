//! `JobStore`: what a queue needs of the place where its jobs are.

use std::future::Future;
use std::pin::Pin;

use crate::error::JobError;
use crate::record::{ClaimedJob, DeadJob, JobCounts, JobId, JobRecord};

/// The future of a store operation, which stays on its thread.
pub(crate) type JobFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, JobError>> + 'a>>;

/// Keeps the jobs of all queues, and the runs of schedules. Times are milliseconds since 1970-01-01 (UTC).
pub(crate) trait JobStore: Send + Sync {
    /// Whether other processes reach it.
    fn is_shared(&self) -> bool {
        true
    }

    /// Creates what the store needs, if it is missing.
    fn prepare(&self) -> JobFuture<'_, ()>;

    /// Adds a job, unless the queue has one with its key; repeated, it changes nothing.
    fn push<'a>(&'a self, queue: &'a str, record: &'a JobRecord) -> JobFuture<'a, bool>;

    /// Gives jobs that are due to a runner. Another one gets them after `until`.
    fn claim<'a>(&'a self, claim: JobClaim<'a>) -> JobFuture<'a, Vec<ClaimedJob>>;

    /// Changes the time after which another runner gets the job; false if another one has it.
    fn extend<'a>(&'a self, queue: &'a str, job: &'a ClaimedJob, until: i64)
    -> JobFuture<'a, bool>;

    /// Ends an attempt; false if another runner has the job.
    fn settle<'a>(
        &'a self,
        queue: &'a str,
        job: &'a ClaimedJob,
        settlement: &'a Settlement,
    ) -> JobFuture<'a, bool>;

    /// The jobs that failed last, of those that failed too often.
    fn dead<'a>(&'a self, queue: &'a str, most: u32) -> JobFuture<'a, Vec<DeadJob>>;

    /// Makes a dead job due; false if there is none.
    fn requeue<'a>(&'a self, queue: &'a str, id: &'a JobId, now: i64) -> JobFuture<'a, bool>;

    /// Removes a dead job; false if there is none.
    fn discard<'a>(&'a self, queue: &'a str, id: &'a JobId) -> JobFuture<'a, bool>;

    /// How many jobs there are.
    fn counts<'a>(&'a self, queue: &'a str, now: i64) -> JobFuture<'a, JobCounts>;

    /// When a schedule ran last; a schedule that is new counts from `now`.
    fn last_run<'a>(&'a self, schedule: &'a str, now: i64) -> JobFuture<'a, i64>;

    /// Begins a run; false if another process has begun this one, or runs an earlier one.
    fn begin_run<'a>(&'a self, run: RunClaim<'a>) -> JobFuture<'a, bool>;

    /// Changes the time until which no other process runs the schedule; with `now`, ends the run.
    fn extend_run<'a>(
        &'a self,
        schedule: &'a str,
        token: &'a str,
        until: i64,
    ) -> JobFuture<'a, bool>;
}

/// A request for jobs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobClaim<'a> {
    pub(crate) queue: &'a str,
    pub(crate) now: i64,
    pub(crate) until: i64,
    pub(crate) token: &'a str,
    pub(crate) most: usize,
}

/// A request to run a schedule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunClaim<'a> {
    pub(crate) schedule: &'a str,
    /// The time that the schedule names.
    pub(crate) due: i64,
    pub(crate) now: i64,
    pub(crate) until: i64,
    pub(crate) token: &'a str,
}

/// How an attempt ended.
#[derive(Clone, Debug)]
pub(crate) enum Settlement {
    /// The job is done.
    Done,
    /// It is due again at a time, after a number of attempts.
    Again {
        due: i64,
        attempts: u32,
        error: String,
    },
    /// It failed too often.
    Dead { now: i64, error: String },
}
