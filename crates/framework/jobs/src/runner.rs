//! `JobRunner`: does the jobs of a queue.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinSet, LocalSet};
use tracing::Instrument;

use crate::error::JobError;
use crate::job::{Job, JobSettings};
use crate::metrics::AttemptOutcome;
use crate::queue::Jobs;
use crate::record::{self, ClaimedJob, new_token};
use crate::store::{JobClaim, Settlement};

/// The interval at which the queue is looked at for jobs of other processes, and for those that are due later.
const LOOK: Duration = Duration::from_secs(1);

/// How long a job that no runner here knows waits for another one.
const UNKNOWN_DELAY: Duration = Duration::from_secs(30);

/// The interval at which the counts of the store are read, for metrics.
const COUNT: Duration = Duration::from_secs(15);

/// How often the end of an attempt is written, if the store cannot be reached.
const SETTLE_ATTEMPTS: u32 = 6;

/// Does the jobs of a queue: `server.jobs(runner)` runs it beside a server.
///
/// Each [`on`](Self::on) adds a type of job with its handler. Futures of handlers stay on their thread; work that blocks
/// belongs into `apus::blocking`, as in handlers of requests.
#[derive(Clone)]
pub struct JobRunner {
    shared: Arc<RunnerState>,
}

#[derive(Clone)]
struct RunnerState {
    jobs: Jobs,
    handlers: HashMap<&'static str, JobHandler>,
    concurrency: usize,
    threads: usize,
    visibility: Duration,
    stop_timeout: Duration,
}

#[derive(Clone)]
struct JobHandler {
    settings: JobSettings,
    run: Arc<RunJob>,
}

type RunJob = dyn Fn(&str) -> Result<JobAttempt, serde_json::Error> + Send + Sync;

type JobAttempt = Pin<Box<dyn Future<Output = Result<(), apus_handler::Error>>>>;

impl JobRunner {
    /// A runner of a queue, which does four jobs at once on the thread that runs it.
    pub fn new(jobs: &Jobs) -> Self {
        Self {
            shared: Arc::new(RunnerState {
                jobs: jobs.clone(),
                handlers: HashMap::new(),
                concurrency: 4,
                threads: 0,
                visibility: Duration::from_secs(60),
                stop_timeout: Duration::from_secs(10),
            }),
        }
    }

    /// Adds the handler of a type of job, which the type of its argument selects. It returns the same errors as a handler of
    /// requests: `apus::Result<()>`, or a `Result` with any error.
    #[must_use]
    pub fn on<J, E, F>(mut self, handler: F) -> Self
    where
        J: Job,
        E: Into<apus_handler::Error> + 'static,
        F: AsyncFn(J) -> Result<(), E> + Send + Sync + 'static,
    {
        let handler = Arc::new(handler);
        let run = move |payload: &str| -> Result<JobAttempt, serde_json::Error> {
            let job: J = serde_json::from_str(payload)?;
            let handler = handler.clone();
            Ok(Box::pin(
                async move { handler(job).await.map_err(Into::into) },
            ))
        };
        let handler = JobHandler {
            settings: J::settings(),
            run: Arc::new(run),
        };
        Arc::make_mut(&mut self.shared)
            .handlers
            .insert(J::NAME, handler);
        self
    }

    /// How many jobs each thread does at once, at least one. Default: 4.
    #[must_use]
    pub fn concurrency(mut self, jobs: usize) -> Self {
        Arc::make_mut(&mut self.shared).concurrency = jobs.max(1);
        self
    }

    /// The number of its own threads. Default: 0, it is a task of the thread that runs it; beside a server, that is
    /// the thread of all its tasks.
    #[must_use]
    pub fn threads(mut self, threads: usize) -> Self {
        Arc::make_mut(&mut self.shared).threads = threads;
        self
    }

    /// How long after a crash of this process another one takes its jobs. While a job runs, its runner puts this off.
    /// Default: one minute.
    #[must_use]
    pub fn visibility(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.shared).visibility = timeout.max(Duration::from_millis(100));
        self
    }

    /// How long a stop waits for jobs that run; after that they are given back to the queue, and the attempt does
    /// not count. Default: 10 seconds.
    #[must_use]
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        Arc::make_mut(&mut self.shared).stop_timeout = timeout;
        self
    }

    /// The queue.
    pub fn queue(&self) -> &Jobs {
        &self.shared.jobs
    }

    /// Does jobs until `stop` is ready, and then waits for those that run. Without its own threads, it has to run on a
    /// worker, on the thread of the tasks of a server, or in another `LocalSet`.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), JobError> {
        let (stopper, stopped) = watch::channel(false);
        let stopping = async {
            stop.await;
            stopper.send_replace(true);
        };
        let running = async {
            if self.shared.threads == 0 {
                self.work(stopped).await;
                return Ok(());
            }
            let mut ends = Vec::new();
            for index in 0..self.shared.threads {
                ends.push(self.start_thread(index, stopped.clone())?);
            }
            for end in ends {
                // The sender is dropped at the end of the thread.
                let _ = end.await;
            }
            Ok(())
        };
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return ended,
            () = stopping => {}
        }
        running.await
    }

    /// Starts a thread, for a receiver of its end.
    fn start_thread(
        &self,
        index: usize,
        stopped: watch::Receiver<bool>,
    ) -> Result<oneshot::Receiver<()>, JobError> {
        let (ended, end) = oneshot::channel::<()>();
        let runner = self.clone();
        let clock = apus_clock::current();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(JobError::Thread)?;
        std::thread::Builder::new()
            .name(format!("apus-jobs-{index}"))
            .spawn(move || {
                let _clock = clock.as_ref().map(apus_clock::TestClock::enter);
                LocalSet::new().block_on(&runtime, runner.work(stopped));
                drop(ended);
            })
            .map_err(JobError::Thread)?;
        Ok(end)
    }

    /// Does the jobs that are due, one after another, and returns how many attempts that were: for tests.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn run_due(&self) -> Result<usize, JobError> {
        let mut done = 0_usize;
        LocalSet::new()
            .run_until(async {
                loop {
                    let claimed = self.shared.claim(1).await?;
                    if claimed.is_empty() {
                        return Ok(done);
                    }
                    for job in claimed {
                        self.shared.attempt(&job).await;
                        done = done.saturating_add(1);
                    }
                }
            })
            .await
    }

    /// Does jobs on this thread.
    async fn work(self, mut stopped: watch::Receiver<bool>) {
        let mut running = JoinSet::new();
        let taken = Rc::<RefCell<HashMap<String, ClaimedJob>>>::default();
        let mut is_failing = false;
        let mut count = tokio::time::interval(COUNT);
        count.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            while running.try_join_next().is_some() {}
            let free = self.shared.concurrency.saturating_sub(running.len());
            let mut is_full = free == 0;
            if free > 0 && !*stopped.borrow() {
                match self.shared.claim(free).await {
                    Ok(claimed) => {
                        is_failing = false;
                        is_full = claimed.len() == free;
                        for job in claimed {
                            let (shared, taken) = (self.shared.clone(), taken.clone());
                            taken.borrow_mut().insert(job.id.to_string(), job.clone());
                            running.spawn_local(async move {
                                shared.attempt(&job).await;
                                taken.borrow_mut().remove(&job.id.to_string());
                            });
                        }
                    }
                    Err(error) => {
                        if !is_failing {
                            tracing::error!(%error, "jobs wait: their queue cannot be read");
                        }
                        is_failing = true;
                    }
                }
            }
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_requested| *is_requested) => break,
                Some(_) = running.join_next() => {}
                () = self.shared.jobs.shared().added.notified(), if !is_full && !is_failing => {}
                () = tokio::time::sleep(LOOK), if !is_full => {}
                () = apus_clock::moved() => {}
                _ = count.tick() => self.shared.count().await,
            }
        }
        let ended = async { while running.join_next().await.is_some() {} };
        let timeout = self.shared.stop_timeout;
        if tokio::time::timeout(timeout, ended).await.is_ok() {
            return;
        }
        running.shutdown().await;
        let left: Vec<ClaimedJob> = taken.borrow_mut().drain().map(|(_, job)| job).collect();
        for job in left {
            let (id, name) = (&job.id, &*job.name);
            tracing::warn!(%id, job = name, "a job runs longer than the stop waits, and is given back");
            self.shared.give_back(&job, Duration::ZERO).await;
        }
    }
}

impl RunnerState {
    async fn claim(&self, most: usize) -> Result<Vec<ClaimedJob>, JobError> {
        let queue = self.jobs.shared();
        queue.store.prepare().await?;
        let (now, token) = (record::now(), new_token());
        let claim = JobClaim {
            queue: &queue.name,
            now,
            until: self.until(now),
            token: &token,
            most,
        };
        queue.store.claim(claim).await
    }

    /// The time after which another runner takes a job.
    fn until(&self, now: i64) -> i64 {
        now.saturating_add(record::of_duration(self.visibility))
    }

    /// Tries a job, and writes how that ended.
    async fn attempt(&self, job: &ClaimedJob) {
        self.jobs.shared().metrics.begin();
        let Some(handler) = self.handlers.get(&*job.name) else {
            tracing::warn!(
                id = %job.id, job = job.name,
                "no handler here does this job, which is given back; `JobRunner::on` adds one"
            );
            return self.give_back(job, UNKNOWN_DELAY).await;
        };
        let span = tracing::info_span!("job", job = job.name, id = %job.id, attempt = job.attempts);
        let failed = match (handler.run)(&job.payload) {
            Ok(attempt) => {
                let ended = self.supervise(job, handler.settings, attempt);
                match ended.instrument(span.clone()).await {
                    AttemptEnd::Done => None,
                    AttemptEnd::Failed(error) => Some((error, false)),
                    // The other runner writes how it ended.
                    AttemptEnd::Lost => {
                        tracing::warn!(
                            parent: &span,
                            "another runner took this job; does its thread block?"
                        );
                        let metrics = &self.jobs.shared().metrics;
                        return metrics.end(&job.name, AttemptOutcome::GivenBack);
                    }
                }
            }
            Err(error) => Some((
                format!("its text in the queue does not fit its type: {error}"),
                true,
            )),
        };
        let (settlement, outcome) = match failed {
            None => {
                tracing::debug!(parent: &span, "a job is done");
                (Settlement::Done, AttemptOutcome::Done)
            }
            Some((error, is_final)) if is_final || job.attempts >= handler.settings.attempts => {
                tracing::error!(parent: &span, error, "a job failed for the last time");
                let now = record::now();
                (Settlement::Dead { now, error }, AttemptOutcome::Dead)
            }
            Some((error, _)) => {
                let delay = handler.settings.delay(job.attempts, fastrand::f64());
                let seconds = delay.as_secs_f64();
                tracing::warn!(parent: &span, error, retry_in_seconds = seconds, "a job failed");
                let again = Settlement::Again {
                    due: record::now().saturating_add(record::of_duration(delay)),
                    attempts: job.attempts,
                    error,
                };
                (again, AttemptOutcome::Retried)
            }
        };
        self.settle(job, &settlement).await;
        self.jobs.shared().metrics.end(&job.name, outcome);
    }

    /// Runs an attempt within its time, and keeps other runners from the job.
    async fn supervise(
        &self,
        job: &ClaimedJob,
        settings: JobSettings,
        attempt: JobAttempt,
    ) -> AttemptEnd {
        // The task catches a panic, and is aborted when the set is dropped.
        let mut task = JoinSet::new();
        task.spawn_local(attempt.in_current_span());
        let limit = tokio::time::sleep(settings.time_limit);
        tokio::pin!(limit);
        let interval = (self.visibility / 3).max(Duration::from_millis(10));
        let mut renewal = tokio::time::interval(interval);
        renewal.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // The first tick is at once.
        renewal.tick().await;
        let queue = self.jobs.shared();
        loop {
            tokio::select! {
                Some(ended) = task.join_next() => return match ended {
                    Ok(Ok(())) => AttemptEnd::Done,
                    Ok(Err(error)) => AttemptEnd::Failed(failure_text(&error)),
                    Err(error) => AttemptEnd::Failed(panic_message(error)),
                },
                () = &mut limit => {
                    let limit = settings.time_limit;
                    return AttemptEnd::Failed(format!("it took longer than {limit:?}"));
                }
                _ = renewal.tick() => {
                    let until = self.until(record::now());
                    match queue.store.extend(&queue.name, job, until).await {
                        Ok(true) => {}
                        Ok(false) => return AttemptEnd::Lost,
                        Err(error) => tracing::warn!(%error, "the queue cannot be told that a job still runs"),
                    }
                }
            }
        }
    }

    /// Gives a job back, as if it had not been tried.
    async fn give_back(&self, job: &ClaimedJob, delay: Duration) {
        let settlement = Settlement::Again {
            due: record::now().saturating_add(record::of_duration(delay)),
            attempts: job.attempts.saturating_sub(1),
            error: String::new(),
        };
        self.settle(job, &settlement).await;
        let metrics = &self.jobs.shared().metrics;
        metrics.end(&job.name, AttemptOutcome::GivenBack);
    }

    /// Writes how an attempt ended, again and again for some seconds if the store cannot be reached.
    async fn settle(&self, job: &ClaimedJob, settlement: &Settlement) {
        let queue = self.jobs.shared();
        let mut wait = Duration::from_millis(100);
        for attempt in 1..=SETTLE_ATTEMPTS {
            match queue.store.settle(&queue.name, job, settlement).await {
                Ok(true) => return,
                Ok(false) => {
                    let (id, name) = (&job.id, &*job.name);
                    tracing::warn!(%id, job = name, "another runner took a job before it ended here");
                    return;
                }
                Err(error) if attempt == SETTLE_ATTEMPTS => {
                    let (id, name) = (&job.id, &*job.name);
                    tracing::error!(%id, job = name, %error, "a job will run again: its end cannot be written");
                }
                Err(_) => tokio::time::sleep(wait).await,
            }
            wait = wait.saturating_mul(2);
        }
    }

    /// Reads the counts of the store, for metrics.
    async fn count(&self) {
        // The next claim fails with the same error.
        if let Ok(counts) = self.jobs.counts().await {
            self.jobs.shared().metrics.set_counts(counts);
        }
    }
}

enum AttemptEnd {
    Done,
    Failed(String),
    Lost,
}

/// The message of an error with its causes, for people.
pub(crate) fn failure_text(error: &apus_handler::Error) -> String {
    let mut texts: Vec<String> = error.detail().map(str::to_owned).into_iter().collect();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Many messages contain the message of their cause.
        if !texts.last().is_some_and(|known| known.contains(&*text)) {
            texts.push(text);
        }
        cause = error.source();
    }
    if texts.is_empty() {
        error.status_code().to_string()
    } else {
        texts.join(": ")
    }
}

/// The message of a panic.
pub(crate) fn panic_message(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return "it was cancelled".to_owned();
    };
    let message = panic.downcast_ref::<&str>().copied();
    let message = message.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", message.unwrap_or("no message"))
}

impl fmt::Debug for JobRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.shared.handlers.keys().collect();
        names.sort_unstable();
        f.debug_struct("JobRunner")
            .field("queue", &self.shared.jobs)
            .field("handlers", &names)
            .finish_non_exhaustive()
    }
}
