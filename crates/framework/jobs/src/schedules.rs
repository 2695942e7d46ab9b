//! `Schedules`: tasks that run at the times of cron expressions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::task::JoinSet;
use tracing::Instrument;

use crate::cron::{CronError, CronExpression};
use crate::queue::Jobs;
use crate::record::{self, new_token, of_system, to_system};
use crate::runner::{failure_text, panic_message};
use crate::store::{JobStore, RunClaim};

/// How long after a crash of a process another one may run its schedule. While a task runs, its process puts this off.
const LOCK: Duration = Duration::from_secs(60);

/// How long a stop waits for tasks that run.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);

/// How long after an error of the store a schedule tries again.
const RETRY: Duration = Duration::from_secs(5);

/// Tasks that run at the times of [`CronExpression`]s: `server.schedules(schedules)` runs them beside a server.
///
/// ```no_run
/// use apus_jobs::{CronError, Schedules};
///
/// async fn clean() -> std::io::Result<()> {
///     std::fs::remove_dir_all("/tmp/shop")
/// }
///
/// fn schedules() -> Result<Schedules, CronError> {
///     let report = async || Ok::<_, std::io::Error>(());
///     let schedules = Schedules::new()
///         .add("clean", "0 3 * * *", clean)?
///         .add("report", "CRON_TZ=Europe/Berlin 30 7 * * MON", report)?;
///     Ok(schedules.run_missed())
/// }
/// ```
///
/// - A task that still runs at its next time skips that one, unless it [may overlap](Self::may_overlap).
/// - Times at which the application did not run are skipped, unless the task [runs missed ones](Self::run_missed).
/// - Each process runs its schedules; those that are [shared](Self::shared) run in one process each time.
#[derive(Clone, Default)]
pub struct Schedules {
    tasks: Vec<ScheduledTask>,
    store: Option<Arc<dyn JobStore>>,
}

#[derive(Clone)]
struct ScheduledTask {
    name: Arc<str>,
    times: CronExpression,
    run: Arc<RunTask>,
    runs_missed: bool,
    may_overlap: bool,
}

type RunTask = dyn Fn() -> TaskRun + Send + Sync;

type TaskRun = Pin<Box<dyn Future<Output = Result<(), apus_handler::Error>>>>;

impl Schedules {
    /// No tasks.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a task with a name, which its lock and the log use. `times` is a [`CronExpression`].
    ///
    /// # Errors
    /// The text names no times.
    pub fn add<E, F>(mut self, name: &str, times: &str, task: F) -> Result<Self, CronError>
    where
        E: Into<apus_handler::Error> + 'static,
        F: AsyncFn() -> Result<(), E> + Send + Sync + 'static,
    {
        let task = Arc::new(task);
        let run = move || -> TaskRun {
            let task = task.clone();
            Box::pin(async move { task().await.map_err(Into::into) })
        };
        self.tasks.push(ScheduledTask {
            name: name.into(),
            times: times.parse()?,
            run: Arc::new(run),
            runs_missed: false,
            may_overlap: false,
        });
        Ok(self)
    }

    /// The task that was added last runs once for times that were missed: those at which no process of a
    /// [shared](Self::shared) schedule ran, and those at which the task still ran.
    #[must_use]
    pub fn run_missed(mut self) -> Self {
        if let Some(task) = self.tasks.last_mut() {
            task.runs_missed = true;
        }
        self
    }

    /// The task that was added last may run several times at once.
    #[must_use]
    pub fn may_overlap(mut self) -> Self {
        if let Some(task) = self.tasks.last_mut() {
            task.may_overlap = true;
        }
        self
    }

    /// All processes with the same store run each task once, in one of them: the first of a time takes a lock in the store
    /// of the queue.
    #[must_use]
    pub fn shared(mut self, jobs: &Jobs) -> Self {
        self.store = Some(jobs.shared().store.clone());
        self
    }

    /// Runs the tasks until `stop` is ready, and then waits for those that run, ten seconds at most. It has to run on a
    /// worker, on the thread of the tasks of a server, or in another `LocalSet`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (stopper, stopped) = watch::channel(false);
        let mut loops = JoinSet::new();
        for task in self.tasks {
            let schedule = ScheduleLoop {
                task,
                store: self.store.clone(),
            };
            loops.spawn_local(schedule.follow(stopped.clone()));
        }
        stop.await;
        stopper.send_replace(true);
        let ended = async { while loops.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            tracing::warn!("a scheduled task runs longer than the stop waits, and is cancelled");
        }
    }
}

/// A task with the store of its lock.
#[derive(Clone)]
struct ScheduleLoop {
    task: ScheduledTask,
    store: Option<Arc<dyn JobStore>>,
}

impl ScheduleLoop {
    /// Waits for each time, and runs the task.
    async fn follow(self, mut stopped: watch::Receiver<bool>) {
        let mut runs = JoinSet::new();
        let Some(mut last) = self.start(&mut stopped).await else {
            return;
        };
        while let Some(due) = self.task.times.next_after(last) {
            tokio::select! {
                biased;
                _ = stopped.wait_for(|is_requested| *is_requested) => break,
                () = apus_clock::sleep_until(due) => {}
            }
            // If the process slept, several times may have passed.
            let due = self
                .task
                .times
                .last_until(apus_clock::now())
                .unwrap_or(due)
                .max(due);
            last = due;
            if self.task.may_overlap {
                while runs.try_join_next().is_some() {}
                runs.spawn_local(self.clone().run_once(due));
                continue;
            }
            self.clone().run_once(due).await;
            let skipped = self.task.times.last_until(apus_clock::now());
            if let Some(skipped) = skipped.filter(|skipped| *skipped > last)
                && !self.task.runs_missed
            {
                let name = &*self.task.name;
                tracing::warn!(
                    schedule = name,
                    "a scheduled task took longer than to its next time, which is skipped"
                );
                last = skipped;
            }
        }
        while runs.join_next().await.is_some() {}
    }

    /// The time from which times count; `None` if the schedule is stopped.
    async fn start(&self, stopped: &mut watch::Receiver<bool>) -> Option<SystemTime> {
        let now = apus_clock::now();
        let Some(store) = &self.store else {
            return Some(now);
        };
        loop {
            let ready = async {
                store.prepare().await?;
                store.last_run(&self.task.name, of_system(now)).await
            };
            match ready.await {
                Ok(last) if self.task.runs_missed => return Some(to_system(last).min(now)),
                Ok(_) => return Some(now),
                Err(error) => {
                    let name = &*self.task.name;
                    tracing::error!(schedule = name, %error, "a schedule waits for its store");
                }
            }
            tokio::select! {
                _ = stopped.wait_for(|is_requested| *is_requested) => return None,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    /// Runs the task once, unless another process does.
    async fn run_once(self, due: SystemTime) {
        let Some(store) = &self.store else {
            return self.run_task().await;
        };
        let (now, token) = (record::now(), new_token());
        let until = now.saturating_add(record::of_duration(LOCK));
        let claim = RunClaim {
            schedule: &self.task.name,
            due: of_system(due),
            now,
            // A lock that is over at once keeps only this time from others.
            until: if self.task.may_overlap { now } else { until },
            token: &token,
        };
        let name = &*self.task.name;
        match store.begin_run(claim).await {
            Ok(true) => {}
            Ok(false) => {
                tracing::debug!(schedule = name, "another process runs a scheduled task");
                return;
            }
            Err(error) => {
                tracing::error!(schedule = name, %error, "a scheduled task does not run: its store cannot be reached");
                return;
            }
        }
        let locked = async {
            loop {
                tokio::time::sleep(LOCK / 3).await;
                let until = record::now().saturating_add(record::of_duration(LOCK));
                if let Err(error) = store.extend_run(name, &token, until).await {
                    tracing::warn!(schedule = name, %error, "the lock of a scheduled task cannot be extended");
                }
            }
        };
        if self.task.may_overlap {
            return self.run_task().await;
        }
        tokio::select! {
            () = self.run_task() => {}
            () = locked => {}
        }
        if let Err(error) = store.extend_run(name, &token, record::now()).await {
            tracing::warn!(schedule = name, %error, "the lock of a scheduled task stays until it is over");
        }
    }

    /// Runs the task; an error and a panic are logged.
    async fn run_task(&self) {
        let name = &*self.task.name;
        let span = tracing::info_span!("schedule", schedule = name);
        let mut run = JoinSet::new();
        run.spawn_local((self.task.run)().instrument(span.clone()));
        let error = match run.join_next().await {
            None | Some(Ok(Ok(()))) => return,
            Some(Ok(Err(error))) => failure_text(&error),
            Some(Err(error)) => panic_message(error),
        };
        tracing::error!(parent: &span, error, "a scheduled task failed");
    }
}

impl fmt::Debug for Schedules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.iter();
        f.debug_map()
            .entries(tasks.map(|task| (&task.name, task.times.to_string())))
            .finish()
    }
}
