//! `SqlJobs`: jobs in SQLite, PostgreSQL, MariaDB and MySQL.

use apus_database::sqlx::{self, AnyConnection, Connection, Executor};
use apus_database::{Db, DbConnection, Driver, StatementValue, System};
use tokio::sync::OnceCell;

use crate::error::JobError;
use crate::record::{ClaimedJob, DeadJob, JobCounts, JobId, JobRecord, to_system};
use crate::store::{JobClaim, JobFuture, JobStore, RunClaim, Settlement};

/// Jobs in the table `apus_jobs`, and the runs of schedules in `apus_schedules`.
///
/// `at` is the time at which a job that waits is due, after which another runner takes a job that runs, or at
/// which a dead job failed. A job without a key has its identity as `unique_key`.
pub(crate) struct SqlJobs {
    db: Db,
    is_made: OnceCell<()>,
}

/// A job that waits or runs.
const LIVE: i64 = 0;

/// A job that failed too often.
const DEAD: i64 = 1;

type ClaimedRow = (String, String, String, i64);

impl SqlJobs {
    pub(crate) fn new(db: Db) -> Self {
        Self {
            db,
            is_made: OnceCell::new(),
        }
    }

    async fn connection(&self) -> Result<DbConnection, JobError> {
        self.db.acquire().await.map_err(JobError::store)
    }

    async fn make(&self) -> Result<(), JobError> {
        let make = async || {
            let mut connection = self.connection().await?;
            // Another account may have created them, and this one may not be allowed to.
            let found = "SELECT id FROM apus_jobs WHERE 1 = 0 UNION ALL \
                         SELECT name FROM apus_schedules WHERE 1 = 0";
            let found = sqlx::query(found).fetch_optional(&mut *connection).await;
            if found.is_ok() {
                return Ok(());
            }
            for statement in tables(self.db.system()) {
                let made = sqlx::raw_sql(*statement).execute(&mut *connection);
                made.await.map_err(JobError::store)?;
            }
            Ok(())
        };
        self.is_made.get_or_try_init(make).await.map(|_| ())
    }

    /// Adds a job over a connection, which may be in a transaction.
    pub(crate) async fn insert<'e, D: Driver>(
        &self,
        executor: impl Executor<'e, Database = D>,
        queue: &str,
        record: &JobRecord,
    ) -> Result<bool, JobError> {
        let statement = match self.db.system() {
            System::MySql => {
                "INSERT IGNORE INTO apus_jobs \
                 (id, queue, name, unique_key, payload, created, at, state, attempts, token, error) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, '', '')"
            }
            System::Sqlite | System::Postgres => {
                "INSERT INTO apus_jobs \
                 (id, queue, name, unique_key, payload, created, at, state, attempts, token, error) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, 0, 0, '', '') ON CONFLICT DO NOTHING"
            }
        };
        let key = record.unique.as_ref().unwrap_or(&record.id.0);
        let [id, queue, name, key, payload] =
            [&record.id.0, queue, record.name, key, &record.payload]
                .map(|text| StatementValue::Text(text.to_owned()));
        let [created, due] = [record.created, record.due].map(StatementValue::Integer);
        let values = vec![id, queue, name, key, payload, created, due];
        let inserted = D::change(executor, self.db.sql(statement), values).await;
        Ok(inserted.map_err(JobError::store)? == 1)
    }

    /// Takes jobs with one statement.
    async fn claim_by_update(
        &self,
        connection: &mut AnyConnection,
        claim: JobClaim<'_>,
    ) -> Result<Vec<ClaimedRow>, sqlx::Error> {
        let statement = match self.db.system() {
            System::Postgres => {
                "UPDATE apus_jobs SET token = ?, at = ?, attempts = attempts + 1 WHERE id IN \
                 (SELECT id FROM apus_jobs WHERE queue = ? AND state = 0 AND at <= ? \
                 ORDER BY at, id LIMIT ? FOR UPDATE SKIP LOCKED) \
                 RETURNING id, name, payload, attempts"
            }
            System::Sqlite | System::MySql => {
                "UPDATE apus_jobs SET token = ?, at = ?, attempts = attempts + 1 WHERE id IN \
                 (SELECT id FROM apus_jobs WHERE queue = ? AND state = 0 AND at <= ? \
                 ORDER BY at, id LIMIT ?) RETURNING id, name, payload, attempts"
            }
        };
        if self.db.system() == System::Sqlite {
            // An update locks the whole database, even if it changes nothing.
            let found =
                "SELECT id FROM apus_jobs WHERE queue = ? AND state = 0 AND at <= ? LIMIT 1";
            let found = sqlx::query(found).bind(claim.queue).bind(claim.now);
            if found.fetch_optional(&mut *connection).await?.is_none() {
                return Ok(Vec::new());
            }
        }
        sqlx::query_as(self.db.sql(statement))
            .bind(claim.token)
            .bind(claim.until)
            .bind(claim.queue)
            .bind(claim.now)
            .bind(i64::try_from(claim.most).unwrap_or(i64::MAX))
            .fetch_all(connection)
            .await
    }

    /// Takes jobs in a transaction, for databases whose updates return no rows.
    async fn claim_in_transaction(
        connection: &mut AnyConnection,
        claim: JobClaim<'_>,
    ) -> Result<Vec<ClaimedRow>, sqlx::Error> {
        // Otherwise the gaps between rows are locked too, and who adds a job waits.
        sqlx::raw_sql("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
            .execute(&mut *connection)
            .await?;
        let mut transaction = connection.begin().await?;
        let mut rows: Vec<ClaimedRow> = sqlx::query_as(
            "SELECT id, name, payload, attempts FROM apus_jobs WHERE queue = ? AND state = 0 \
             AND at <= ? ORDER BY at, id LIMIT ? FOR UPDATE SKIP LOCKED",
        )
        .bind(claim.queue)
        .bind(claim.now)
        .bind(i64::try_from(claim.most).unwrap_or(i64::MAX))
        .fetch_all(&mut *transaction)
        .await?;
        for (id, _, _, attempts) in &mut rows {
            *attempts = attempts.saturating_add(1);
            sqlx::query("UPDATE apus_jobs SET token = ?, at = ?, attempts = ? WHERE id = ?")
                .bind(claim.token)
                .bind(claim.until)
                .bind(*attempts)
                .bind(&**id)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(rows)
    }

    /// Runs a statement that changes one row, or none.
    async fn change(
        &self,
        query: impl AsyncFnOnce(&mut AnyConnection) -> Result<u64, sqlx::Error>,
    ) -> Result<bool, JobError> {
        self.make().await?;
        let changed = query(&mut *self.connection().await?).await;
        Ok(changed.map_err(JobError::store)? == 1)
    }
}

/// The statements that create the tables.
fn tables(system: System) -> &'static [&'static str] {
    match system {
        System::MySql => &[
            "CREATE TABLE IF NOT EXISTS apus_jobs (id VARCHAR(32) NOT NULL PRIMARY KEY, \
             queue VARCHAR(64) NOT NULL, name VARCHAR(128) NOT NULL, \
             unique_key VARCHAR(64) NOT NULL, payload MEDIUMTEXT NOT NULL, \
             created BIGINT NOT NULL, at BIGINT NOT NULL, state BIGINT NOT NULL, \
             attempts BIGINT NOT NULL, token VARCHAR(32) NOT NULL, error TEXT NOT NULL, \
             UNIQUE (queue, unique_key), INDEX (queue, state, at)) CHARACTER SET utf8mb4",
            "CREATE TABLE IF NOT EXISTS apus_schedules (name VARCHAR(128) NOT NULL PRIMARY KEY, \
             last BIGINT NOT NULL, locked BIGINT NOT NULL, token VARCHAR(32) NOT NULL) \
             CHARACTER SET utf8mb4",
        ],
        System::Sqlite | System::Postgres => &[
            "CREATE TABLE IF NOT EXISTS apus_jobs (id VARCHAR(32) NOT NULL PRIMARY KEY, \
             queue VARCHAR(64) NOT NULL, name VARCHAR(128) NOT NULL, \
             unique_key VARCHAR(64) NOT NULL, payload TEXT NOT NULL, created BIGINT NOT NULL, \
             at BIGINT NOT NULL, state BIGINT NOT NULL, attempts BIGINT NOT NULL, \
             token VARCHAR(32) NOT NULL, error TEXT NOT NULL, UNIQUE (queue, unique_key))",
            "CREATE INDEX IF NOT EXISTS apus_jobs_at ON apus_jobs (queue, state, at)",
            "CREATE TABLE IF NOT EXISTS apus_schedules (name VARCHAR(128) NOT NULL PRIMARY KEY, \
             last BIGINT NOT NULL, locked BIGINT NOT NULL, token VARCHAR(32) NOT NULL)",
        ],
    }
}

impl JobStore for SqlJobs {
    fn prepare(&self) -> JobFuture<'_, ()> {
        Box::pin(self.make())
    }

    fn push<'a>(&'a self, queue: &'a str, record: &'a JobRecord) -> JobFuture<'a, bool> {
        Box::pin(async move {
            self.make().await?;
            let mut connection = self.connection().await?;
            self.insert(&mut *connection, queue, record).await
        })
    }

    fn claim<'a>(&'a self, claim: JobClaim<'a>) -> JobFuture<'a, Vec<ClaimedJob>> {
        Box::pin(async move {
            self.make().await?;
            let mut connection = self.connection().await?;
            let rows = match self.db.system() {
                System::MySql => Self::claim_in_transaction(&mut connection, claim).await,
                System::Sqlite | System::Postgres => {
                    self.claim_by_update(&mut connection, claim).await
                }
            };
            let rows = rows.map_err(JobError::store)?;
            let claimed = rows
                .into_iter()
                .map(|(id, name, payload, attempts)| ClaimedJob {
                    id: JobId(id),
                    name,
                    payload,
                    attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                    token: claim.token.to_owned(),
                });
            Ok(claimed.collect())
        })
    }

    fn extend<'a>(
        &'a self,
        _queue: &'a str,
        job: &'a ClaimedJob,
        until: i64,
    ) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let statement = "UPDATE apus_jobs SET at = ? WHERE id = ? AND token = ? AND state = 0";
            let query = sqlx::query(self.db.sql(statement))
                .bind(until)
                .bind(&*job.id.0)
                .bind(&*job.token);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }

    fn settle<'a>(
        &'a self,
        _queue: &'a str,
        job: &'a ClaimedJob,
        settlement: &'a Settlement,
    ) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let query = match settlement {
                Settlement::Done => sqlx::query(
                    self.db
                        .sql("DELETE FROM apus_jobs WHERE id = ? AND token = ?"),
                ),
                Settlement::Again {
                    due,
                    attempts,
                    error,
                } => sqlx::query(self.db.sql(
                    "UPDATE apus_jobs SET token = '', at = ?, attempts = ?, error = ? \
                     WHERE id = ? AND token = ?",
                ))
                .bind(*due)
                .bind(i64::from(*attempts))
                .bind(&**error),
                Settlement::Dead { now, error } => sqlx::query(self.db.sql(
                    "UPDATE apus_jobs SET token = '', at = ?, state = 1, error = ?, \
                     unique_key = id WHERE id = ? AND token = ?",
                ))
                .bind(*now)
                .bind(&**error),
            };
            let query = query.bind(&*job.id.0).bind(&*job.token);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }

    fn dead<'a>(&'a self, queue: &'a str, most: u32) -> JobFuture<'a, Vec<DeadJob>> {
        Box::pin(async move {
            let rows: Vec<(String, String, String, i64, String, i64)> =
                sqlx::query_as(self.db.sql(
                    "SELECT id, name, payload, attempts, error, at FROM apus_jobs \
                          WHERE queue = ? AND state = ? ORDER BY at DESC, id DESC LIMIT ?",
                ))
                .bind(queue)
                .bind(DEAD)
                .bind(i64::from(most))
                .fetch_all(&mut *self.connection().await?)
                .await
                .map_err(JobError::store)?;
            let dead = rows
                .into_iter()
                .map(|(id, name, payload, attempts, error, failed)| DeadJob {
                    id: JobId(id),
                    name,
                    payload,
                    attempts: u32::try_from(attempts).unwrap_or(u32::MAX),
                    error,
                    failed: to_system(failed),
                });
            Ok(dead.collect())
        })
    }

    fn requeue<'a>(&'a self, queue: &'a str, id: &'a JobId, now: i64) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let statement = "UPDATE apus_jobs SET state = ?, attempts = 0, at = ? \
                             WHERE id = ? AND queue = ? AND state = ?";
            let query = sqlx::query(self.db.sql(statement))
                .bind(LIVE)
                .bind(now)
                .bind(&*id.0)
                .bind(queue)
                .bind(DEAD);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }

    fn discard<'a>(&'a self, queue: &'a str, id: &'a JobId) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let statement = "DELETE FROM apus_jobs WHERE id = ? AND queue = ? AND state = ?";
            let query = sqlx::query(self.db.sql(statement))
                .bind(&*id.0)
                .bind(queue)
                .bind(DEAD);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }

    fn counts<'a>(&'a self, queue: &'a str, now: i64) -> JobFuture<'a, JobCounts> {
        Box::pin(async move {
            let counts: (i64, i64, i64, i64) = sqlx::query_as(self.db.sql(
                "SELECT COUNT(CASE WHEN state = 0 AND at <= ? THEN 1 END), \
                 COUNT(CASE WHEN state = 0 AND at > ? AND token = '' THEN 1 END), \
                 COUNT(CASE WHEN state = 0 AND at > ? AND token <> '' THEN 1 END), \
                 COUNT(CASE WHEN state = 1 THEN 1 END) FROM apus_jobs WHERE queue = ?",
            ))
            .bind(now)
            .bind(now)
            .bind(now)
            .bind(queue)
            .fetch_one(&mut *self.connection().await?)
            .await
            .map_err(JobError::store)?;
            Ok(JobCounts {
                ready: counts.0.unsigned_abs(),
                delayed: counts.1.unsigned_abs(),
                running: counts.2.unsigned_abs(),
                dead: counts.3.unsigned_abs(),
            })
        })
    }

    fn last_run<'a>(&'a self, schedule: &'a str, now: i64) -> JobFuture<'a, i64> {
        Box::pin(async move {
            self.make().await?;
            let mut connection = self.connection().await?;
            let statement = match self.db.system() {
                System::MySql => {
                    "INSERT IGNORE INTO apus_schedules (name, last, locked, token) \
                     VALUES (?, ?, 0, '')"
                }
                System::Sqlite | System::Postgres => {
                    "INSERT INTO apus_schedules (name, last, locked, token) \
                     VALUES (?, ?, 0, '') ON CONFLICT DO NOTHING"
                }
            };
            sqlx::query(self.db.sql(statement))
                .bind(schedule)
                .bind(now)
                .execute(&mut *connection)
                .await
                .map_err(JobError::store)?;
            sqlx::query_scalar(
                self.db
                    .sql("SELECT last FROM apus_schedules WHERE name = ?"),
            )
            .bind(schedule)
            .fetch_one(&mut *connection)
            .await
            .map_err(JobError::store)
        })
    }

    fn begin_run<'a>(&'a self, run: RunClaim<'a>) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let statement = "UPDATE apus_schedules SET last = ?, locked = ?, token = ? \
                             WHERE name = ? AND last < ? AND locked <= ?";
            let query = sqlx::query(self.db.sql(statement))
                .bind(run.due)
                .bind(run.until)
                .bind(run.token)
                .bind(run.schedule)
                .bind(run.due)
                .bind(run.now);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }

    fn extend_run<'a>(
        &'a self,
        schedule: &'a str,
        token: &'a str,
        until: i64,
    ) -> JobFuture<'a, bool> {
        Box::pin(self.change(async move |connection| {
            let statement = "UPDATE apus_schedules SET locked = ? WHERE name = ? AND token = ?";
            let query = sqlx::query(self.db.sql(statement))
                .bind(until)
                .bind(schedule)
                .bind(token);
            Ok(query.execute(connection).await?.rows_affected())
        }))
    }
}
