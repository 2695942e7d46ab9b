//! `SqlStore`: sessions in an SQL database.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use apus_database::{Db, System};
use sqlx::SqlStr;
use tokio::sync::OnceCell;

use super::SessionKey;
use super::error::StoreError;
use super::store::{MAX_VISITORS, SessionStore, SessionWrite, StoreFuture, StoredSession};

/// The interval at which expired sessions are removed, in seconds.
const SWEEP: u64 = 10 * 60;

/// Keeps sessions in the table `apus_sessions` of a database, which it creates if it is missing. Expired
/// sessions are removed every ten minutes while sessions are written. Of visitors who are not logged in it keeps about 100,000; those
/// that expire first are removed for others.
#[derive(Clone)]
pub struct SqlStore {
    db: Db,
    max_visitors: u64,
    shared: Arc<SqlStoreState>,
}

#[derive(Default)]
struct SqlStoreState {
    is_made: OnceCell<()>,
    swept: AtomicU64,
    /// The sessions of visitors that this process has begun.
    visitors: AtomicU64,
}

impl SqlStore {
    /// A store in this database.
    pub fn new(db: Db) -> Self {
        Self {
            db,
            max_visitors: MAX_VISITORS,
            shared: Arc::default(),
        }
    }

    /// The most sessions of visitors who are not logged in. Each process looks again after a hundredth of them.
    #[must_use]
    pub fn max_visitors(self, max: u64) -> Self {
        Self {
            max_visitors: max,
            ..self
        }
    }

    async fn make(&self) -> Result<(), StoreError> {
        let make = async || {
            let made = sqlx::query(table(self.db.system())).execute(&self.db).await;
            match made {
                Ok(_) => Ok(()),
                // Another process created it, or this account is not allowed to.
                Err(error) => sqlx::query("SELECT id FROM apus_sessions WHERE 1 = 0")
                    .fetch_optional(&self.db)
                    .await
                    .map(|_| ())
                    .map_err(|_| StoreError::new(error)),
            }
        };
        self.shared.is_made.get_or_try_init(make).await.map(|_| ())
    }

    /// Removes expired sessions if the interval is over.
    async fn sweep(&self, now: u64) -> Result<(), StoreError> {
        let swept = self.shared.swept.load(Ordering::Relaxed);
        let is_due = now >= swept.saturating_add(SWEEP);
        let exchange = |now| {
            let swept_by = &self.shared.swept;
            swept_by.compare_exchange(swept, now, Ordering::Relaxed, Ordering::Relaxed)
        };
        if is_due && exchange(now).is_ok() {
            sqlx::query(self.sql("DELETE FROM apus_sessions WHERE expires <= ?"))
                .bind(number(now))
                .execute(&self.db)
                .await
                .map_err(StoreError::new)?;
        }
        Ok(())
    }

    /// Removes sessions of visitors who are not logged in, those that expire first, if there are too many.
    async fn limit_visitors(&self) -> Result<(), StoreError> {
        let interval = (self.max_visitors / 100).max(1);
        let begun = self.shared.visitors.fetch_add(1, Ordering::Relaxed);
        if !begun.is_multiple_of(interval) {
            return Ok(());
        }
        let count = "SELECT COUNT(*) FROM apus_sessions WHERE id LIKE 'v%'";
        let (count,): (i64,) = sqlx::query_as(self.sql(count))
            .fetch_one(&self.db)
            .await
            .map_err(StoreError::new)?;
        let most = self.max_visitors.saturating_sub(interval);
        let surplus = count.unsigned_abs().saturating_sub(most);
        if surplus > 0 {
            // MySQL has no limit in a subquery of IN, but in one inside of that.
            let statement = "DELETE FROM apus_sessions WHERE id IN (SELECT id FROM \
                 (SELECT id FROM apus_sessions WHERE id LIKE 'v%' ORDER BY expires LIMIT ?) AS first_to_expire)";
            sqlx::query(self.sql(statement))
                .bind(number(surplus))
                .execute(&self.db)
                .await
                .map_err(StoreError::new)?;
        }
        Ok(())
    }

    fn sql(&self, statement: &'static str) -> SqlStr {
        self.db.sql(statement)
    }
}

/// The statement that creates the table.
fn table(system: System) -> &'static str {
    match system {
        System::MySql => {
            "CREATE TABLE IF NOT EXISTS apus_sessions (id CHAR(64) NOT NULL PRIMARY KEY, \
             version BIGINT NOT NULL, expires BIGINT NOT NULL, content MEDIUMTEXT NOT NULL, \
             INDEX (expires)) CHARACTER SET utf8mb4"
        }
        System::Sqlite | System::Postgres => {
            "CREATE TABLE IF NOT EXISTS apus_sessions (id CHAR(64) NOT NULL PRIMARY KEY, \
             version BIGINT NOT NULL, expires BIGINT NOT NULL, content TEXT NOT NULL)"
        }
    }
}

impl SessionStore for SqlStore {
    fn load<'a>(&'a self, key: &'a SessionKey, now: u64) -> StoreFuture<'a, Option<StoredSession>> {
        Box::pin(async move {
            self.make().await?;
            let row: Option<(String, i64, i64)> = sqlx::query_as(self.sql(
                "SELECT content, version, expires FROM apus_sessions WHERE id = ? AND expires > ?",
            ))
            .bind(key.to_string())
            .bind(number(now))
            .fetch_optional(&self.db)
            .await
            .map_err(StoreError::new)?;
            Ok(row.map(|(content, version, expires)| StoredSession {
                content: content.into(),
                version: version.unsigned_abs(),
                expires: expires.unsigned_abs(),
            }))
        })
    }

    fn save<'a>(&'a self, save: SessionWrite<'a>) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            self.make().await?;
            self.sweep(save.now).await?;
            if save.replaces.is_none() && save.key.is_visitor() {
                self.limit_visitors().await?;
            }
            let statement = match save.replaces {
                Some(_) => {
                    "UPDATE apus_sessions SET version = ?, expires = ?, content = ? \
                     WHERE id = ? AND version = ?"
                }
                None => {
                    "INSERT INTO apus_sessions (version, expires, content, id) VALUES (?, ?, ?, ?)"
                }
            };
            let mut query = sqlx::query(self.sql(statement))
                .bind(number(save.version()))
                .bind(number(save.expires))
                .bind(save.content)
                .bind(save.key.to_string());
            if let Some(version) = save.replaces {
                query = query.bind(number(version));
            }
            let done = query.execute(&self.db).await;
            Ok(done.map_err(StoreError::new)?.rows_affected() == 1)
        })
    }

    fn touch<'a>(&'a self, key: &'a SessionKey, expires: u64) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            sqlx::query(self.sql("UPDATE apus_sessions SET expires = ? WHERE id = ?"))
                .bind(number(expires))
                .bind(key.to_string())
                .execute(&self.db)
                .await
                .map_err(StoreError::new)?;
            Ok(())
        })
    }

    fn remove<'a>(&'a self, key: &'a SessionKey, version: Option<u64>) -> StoreFuture<'a, bool> {
        Box::pin(async move {
            self.make().await?;
            let statement = match version {
                Some(_) => "DELETE FROM apus_sessions WHERE id = ? AND version = ?",
                None => "DELETE FROM apus_sessions WHERE id = ?",
            };
            let mut query = sqlx::query(self.sql(statement)).bind(key.to_string());
            if let Some(version) = version {
                query = query.bind(number(version));
            }
            let done = query.execute(&self.db).await;
            Ok(done.map_err(StoreError::new)?.rows_affected() == 1)
        })
    }
}

/// Converts to the integer type of databases.
fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

impl fmt::Debug for SqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqlStore").field(&self.db).finish()
    }
}
