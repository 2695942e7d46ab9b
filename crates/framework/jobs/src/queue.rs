//! `Jobs`: a queue of jobs.

use std::fmt;
use std::sync::Arc;

use apus_metrics::MetricSamples;
use serde_json::Value;
use tokio::sync::Notify;

use crate::error::JobError;
use crate::job::{Due, Job, PushOptions};
use crate::memory::MemoryJobs;
use crate::metrics::JobMetrics;
use crate::record::{self, DeadJob, JobCounts, JobId, JobRecord, unique_digest};
#[cfg(feature = "sql")]
use crate::sql::SqlJobs;
use crate::store::JobStore;

/// A queue of jobs; see [the module](crate). It is cheap to clone, and handlers get it as
/// [`State`](https://docs.rs/apus/latest/apus/struct.State.html).
#[derive(Clone)]
pub struct Jobs {
    shared: Arc<JobsState>,
}

pub(crate) struct JobsState {
    pub(crate) name: Box<str>,
    pub(crate) store: Arc<dyn JobStore>,
    #[cfg(feature = "sql")]
    database: Option<Arc<SqlJobs>>,
    /// Wakes a runner of this process.
    pub(crate) added: Notify,
    pub(crate) metrics: JobMetrics,
}

/// The name of the queue that is not named.
const DEFAULT: &str = "default";

impl Jobs {
    /// A queue in the memory of this process: its jobs are lost when the process ends.
    ///
    /// It has room for 100,000 jobs that wait or run, of 64 MiB in all, and keeps the last 1,000 that failed too often. A job that finds no
    /// room is an error ([`JobError::Full`]).
    pub fn in_memory() -> Self {
        Self::of(Arc::new(MemoryJobs::default()))
    }

    /// A queue [in memory](Self::in_memory) with room for this number of jobs.
    pub fn in_memory_with_room(max_jobs: usize) -> Self {
        Self::of(Arc::new(MemoryJobs::new(max_jobs)))
    }

    /// A queue in a database, in the tables `apus_jobs` and `apus_schedules`, which are created if they are missing.
    ///
    /// Runners of all processes share it. PostgreSQL, MariaDB from 10.6 and MySQL from 8.0 skip the rows that
    /// another runner takes (`SKIP LOCKED`). A `Db` of one driver gives its database by [`any`](apus_database::Db::any).
    #[cfg(feature = "sql")]
    pub fn in_database(db: &apus_database::Db) -> Self {
        let database = Arc::new(SqlJobs::new(db.clone()));
        Self {
            shared: Arc::new(JobsState {
                database: Some(database.clone()),
                ..JobsState::new(DEFAULT, database)
            }),
        }
    }

    /// A queue in Redis, which runners of all processes share, under keys that begin with `{jobs:default}`. Redis keeps jobs
    /// as safely as it is told to: with an append-only file (`appendonly yes`).
    #[cfg(feature = "redis")]
    pub fn in_redis(redis: &apus_redis::Redis) -> Self {
        Self::of(Arc::new(crate::redis::RedisJobs(redis.clone())))
    }

    fn of(store: Arc<dyn JobStore>) -> Self {
        Self {
            shared: Arc::new(JobsState::new(DEFAULT, store)),
        }
    }

    /// Another queue in the same store, with its own runners: for jobs that must not wait for others.
    #[must_use]
    pub fn named(&self, name: &str) -> Self {
        Self {
            shared: Arc::new(JobsState {
                #[cfg(feature = "sql")]
                database: self.shared.database.clone(),
                ..JobsState::new(name, self.shared.store.clone())
            }),
        }
    }

    /// The name of the queue: `default`, if it has no other.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Adds a job that is due at once.
    ///
    /// # Errors
    /// The store cannot be reached, or the job has no form in JSON.
    pub async fn push<J: Job>(&self, job: &J) -> Result<JobId, JobError> {
        let record = record_of(job, PushOptions::new())?;
        self.add(&record).await?;
        Ok(record.id)
    }

    /// Adds a job that is due later, or unique. `None`: the queue has a job with its key.
    ///
    /// # Errors
    /// The store cannot be reached, or the job has no form in JSON.
    pub async fn push_with<J: Job>(
        &self,
        job: &J,
        options: PushOptions,
    ) -> Result<Option<JobId>, JobError> {
        let record = record_of(job, options)?;
        Ok(self.add(&record).await?.then_some(record.id))
    }

    /// Adds a job within a transaction of the same database: it is in the queue if, and only if, the transaction is
    /// committed. `None`: the queue has a job with its key.
    ///
    /// The transaction is the [`Tx`](apus_database::Tx) of a request or of `Db::begin`, or one of sqlx, of any driver:
    ///
    /// ```
    /// # use apus_jobs::{Job, JobError, Jobs, PushOptions};
    /// # use apus_handler::{Result, State};
    /// # use apus_database::{Db, Postgres, Tx, sqlx};
    /// # use apus_database::sqlx::Connection;
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct SendMail { to: String }
    /// # impl Job for SendMail { const NAME: &'static str = "send mail"; }
    /// /// A handler inside of the layer `Transactions`.
    /// async fn order(tx: Tx, State(jobs): State<Jobs>) -> Result<()> {
    ///     sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&tx).await?;
    ///     let mail = SendMail { to: "ada@example.com".to_owned() };
    ///     jobs.push_in(&tx, &mail, PushOptions::new()).await?;
    ///     Ok(())
    /// }
    ///
    /// /// With a transaction of sqlx, and a database of one system.
    /// async fn import(db: &Db<Postgres>, jobs: &Jobs) -> Result<()> {
    ///     let mut connection = db.acquire().await?;
    ///     let mut transaction = connection.begin().await?;
    ///     let mail = SendMail { to: "ada@example.com".to_owned() };
    ///     jobs.push_in(&mut *transaction, &mail, PushOptions::new()).await?;
    ///     transaction.commit().await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// The tables have to exist: a runner creates them when it starts, or [`prepare`](Self::prepare). A runner finds the
    /// job at its next look at the queue, within a second.
    ///
    /// # Errors
    /// The queue is not in a database, the statement fails, or the job has no form in JSON.
    #[cfg(feature = "sql")]
    pub async fn push_in<'e, D, J>(
        &self,
        transaction: impl apus_database::sqlx::Executor<'e, Database = D>,
        job: &J,
        options: PushOptions,
    ) -> Result<Option<JobId>, JobError>
    where
        D: apus_database::Driver,
        J: Job,
    {
        let database = self.shared.database.as_ref();
        let database = database.ok_or(JobError::NotInDatabase)?;
        let record = record_of(job, options)?;
        let is_added = database
            .insert(transaction, &self.shared.name, &record)
            .await?;
        Ok(is_added.then_some(record.id))
    }

    /// Creates the tables of a queue in a database, if they are missing.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn prepare(&self) -> Result<(), JobError> {
        self.shared.store.prepare().await
    }

    /// The jobs that failed too often, those that failed last first.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn dead(&self, most: u32) -> Result<Vec<DeadJob>, JobError> {
        self.shared.store.prepare().await?;
        self.shared.store.dead(&self.shared.name, most).await
    }

    /// Makes a dead job due, with all its attempts. False: there is no such job.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn requeue(&self, id: &JobId) -> Result<bool, JobError> {
        let JobsState { store, name, .. } = &*self.shared;
        let is_found = store.requeue(name, id, record::now()).await?;
        self.shared.added.notify_one();
        Ok(is_found)
    }

    /// Removes a dead job. False: there is no such job.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn discard(&self, id: &JobId) -> Result<bool, JobError> {
        self.shared.store.discard(&self.shared.name, id).await
    }

    /// How many jobs there are. It is also a check for the readiness: it fails if the store cannot be reached.
    ///
    /// # Errors
    /// The store cannot be reached.
    pub async fn counts(&self) -> Result<JobCounts, JobError> {
        let JobsState { store, name, .. } = &*self.shared;
        store.prepare().await?;
        store.counts(name, record::now()).await
    }

    /// Adds the metrics of queues in this process: `job_attempts_total` by queue, job and result, and `jobs` by queue and state
    /// as a runner of this process saw them last. `Metrics::with` adds them to the metrics of requests.
    pub fn add_metrics<'a>(
        queues: impl IntoIterator<Item = &'a Self>,
        samples: &mut MetricSamples,
    ) {
        for queue in queues {
            let JobsState { metrics, name, .. } = &*queue.shared;
            metrics.add_to(name, samples);
        }
    }

    /// What the metrics of the queue say, as JSON: `apus status --json` shows it.
    pub fn status(&self) -> Value {
        self.shared.metrics.status(&self.shared.name)
    }

    async fn add(&self, record: &JobRecord) -> Result<bool, JobError> {
        let JobsState { store, name, .. } = &*self.shared;
        store.prepare().await?;
        let is_added = store.push(name, record).await?;
        self.shared.added.notify_one();
        Ok(is_added)
    }

    /// Whether other processes reach the queue.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.store.is_shared()
    }

    pub(crate) fn shared(&self) -> &JobsState {
        &self.shared
    }
}

impl JobsState {
    fn new(name: &str, store: Arc<dyn JobStore>) -> Self {
        Self {
            name: name.into(),
            store,
            #[cfg(feature = "sql")]
            database: None,
            added: Notify::new(),
            metrics: JobMetrics::default(),
        }
    }
}

fn record_of<J: Job>(job: &J, options: PushOptions) -> Result<JobRecord, JobError> {
    let now = record::now();
    Ok(JobRecord {
        id: JobId::new(now),
        name: J::NAME,
        unique: options.unique.as_deref().map(unique_digest),
        payload: serde_json::to_string(job).map_err(JobError::Payload)?,
        created: now,
        due: match options.due {
            None => now,
            Some(Due::After(delay)) => now.saturating_add(record::of_duration(delay)),
            Some(Due::At(time)) => record::of_system(time),
        },
    })
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Jobs").field(&self.shared.name).finish()
    }
}
