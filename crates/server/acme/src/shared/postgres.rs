//! Shared storage in PostgreSQL.
//!
//! ```text
//! apus_acme_files                          files by their names
//! apus_acme_locks                          the owner of each lock, until it expires by the clock of the database
//! apus_acme_challenges                     the open challenges, until they expire
//! ```

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::{PgArguments, PgConnectOptions, PgConnection, PgRow};
use sqlx::query::Query;
use sqlx::{Connection, Postgres, Row, SqlSafeStr};
use tokio::sync::Mutex;

use super::{SharedChallenge, SharedStorage, SharedStorageError, StorageFuture};

/// How long a statement may take, or a connection to open.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a challenge is responded to, in seconds.
const CHALLENGE_LIFETIME: f64 = 3600.0;

const HAS_TABLES: &str = "SELECT to_regclass('apus_acme_files') IS NOT NULL \
    AND to_regclass('apus_acme_locks') IS NOT NULL AND to_regclass('apus_acme_challenges') IS NOT NULL";

/// One transaction. Its lock keeps other machines from creating the same tables.
const CREATE_TABLES: &str = "SELECT pg_advisory_xact_lock(6158740212); \
    CREATE TABLE IF NOT EXISTS apus_acme_files (name text PRIMARY KEY, bytes bytea NOT NULL); \
    CREATE TABLE IF NOT EXISTS apus_acme_locks (name text PRIMARY KEY, owner text NOT NULL, expires timestamptz NOT NULL); \
    CREATE TABLE IF NOT EXISTS apus_acme_challenges (name text PRIMARY KEY, challenge text NOT NULL, expires timestamptz NOT NULL)";

const READ: &str = "SELECT bytes FROM apus_acme_files WHERE name = $1";
const WRITE: &str = "INSERT INTO apus_acme_files (name, bytes) VALUES ($1, $2) \
    ON CONFLICT (name) DO UPDATE SET bytes = EXCLUDED.bytes";
const REMOVE: &str = "DELETE FROM apus_acme_files WHERE name = $1";
const LIST: &str = "SELECT name FROM apus_acme_files WHERE starts_with(name, $1) ORDER BY name";

/// A row if the lock was taken, or kept.
const LOCK: &str = "INSERT INTO apus_acme_locks (name, owner, expires) \
    VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second') \
    ON CONFLICT (name) DO UPDATE SET owner = EXCLUDED.owner, expires = EXCLUDED.expires \
    WHERE apus_acme_locks.owner = EXCLUDED.owner OR apus_acme_locks.expires < clock_timestamp() \
    RETURNING 1";
const UNLOCK: &str = "DELETE FROM apus_acme_locks WHERE name = $1 AND owner = $2";

const ADD_CHALLENGE: &str = "INSERT INTO apus_acme_challenges (name, challenge, expires) \
    VALUES ($1, $2, clock_timestamp() + $3 * interval '1 second') \
    ON CONFLICT (name) DO UPDATE SET challenge = EXCLUDED.challenge, expires = EXCLUDED.expires";
const REMOVE_CHALLENGE: &str =
    "DELETE FROM apus_acme_challenges WHERE name = $1 OR expires < clock_timestamp()";
const CHALLENGES: &str =
    "SELECT challenge FROM apus_acme_challenges WHERE expires > clock_timestamp()";

/// Shared storage in PostgreSQL 11 or later, over one connection, which is reopened if it breaks.
struct PostgresStorage {
    options: PgConnectOptions,
    connection: Mutex<Option<PgConnection>>,
}

impl std::fmt::Debug for PostgresStorage {
    /// Without the password.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PostgresStorage")
            .field(&self.options.get_host())
            .finish()
    }
}

pub(super) fn open(address: &str) -> Result<Arc<dyn SharedStorage>, SharedStorageError> {
    Ok(Arc::new(PostgresStorage {
        options: PgConnectOptions::from_str(address)?.application_name("apus"),
        connection: Mutex::default(),
    }))
}

impl From<sqlx::Error> for SharedStorageError {
    fn from(error: sqlx::Error) -> Self {
        Self::new(format!("PostgreSQL: {error}"))
    }
}

/// A statement whose parameters are bound again for each attempt.
type Bind<'a> =
    &'a dyn Fn(Query<'static, Postgres, PgArguments>) -> Query<'static, Postgres, PgArguments>;

impl PostgresStorage {
    /// The rows of a statement that may be repeated: if the connection broke, it is sent once more.
    async fn rows(
        &self,
        statement: &'static str,
        bind: Bind<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut kept = self.connection.lock().await;
        let had_connection = kept.is_some();
        // A statement that is cancelled drops its connection.
        let result = self.attempt(&mut kept, statement, bind).await;
        match result {
            Err(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) if had_connection => {
                self.attempt(&mut kept, statement, bind).await
            }
            result => result,
        }
    }

    async fn attempt(
        &self,
        kept: &mut Option<PgConnection>,
        statement: &'static str,
        bind: Bind<'_>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let work = async {
            let mut connection = match kept.take() {
                Some(connection) => connection,
                None => self.connect().await?,
            };
            // Statements without names pass poolers that give each transaction another connection.
            let query = bind(sqlx::query(statement.into_sql_str())).persistent(false);
            let result = query.fetch_all(&mut connection).await;
            match &result {
                // The server ends the session, or all of them.
                Err(sqlx::Error::Database(error))
                    if error.code().is_some_and(|code| code.starts_with("57P")) =>
                {
                    return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()));
                }
                Ok(_) | Err(sqlx::Error::Database(_)) => *kept = Some(connection),
                Err(_) => {}
            }
            result
        };
        let late = || sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
        tokio::time::timeout(PATIENCE, work)
            .await
            .unwrap_or_else(|_| Err(late()))
    }

    async fn connect(&self) -> Result<PgConnection, sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let query = sqlx::query(HAS_TABLES).persistent(false);
        let has_tables: bool = query.fetch_one(&mut connection).await?.try_get(0)?;
        if !has_tables {
            sqlx::raw_sql(CREATE_TABLES)
                .execute(&mut connection)
                .await?;
        }
        Ok(connection)
    }
}

impl SharedStorage for PostgresStorage {
    fn read<'a>(&'a self, name: &'a str) -> StorageFuture<'a, Option<Vec<u8>>> {
        Box::pin(async move {
            let rows = self
                .rows(READ, &|query| query.bind(name.to_owned()))
                .await?;
            let row = rows.first();
            Ok(row.map(|row| row.try_get(0)).transpose()?)
        })
    }

    fn write<'a>(&'a self, name: &'a str, bytes: Option<&'a [u8]>) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            match bytes {
                Some(bytes) => {
                    let bind = |query: Query<'static, Postgres, PgArguments>| {
                        query.bind(name.to_owned()).bind(bytes.to_vec())
                    };
                    self.rows(WRITE, &bind).await?
                }
                None => {
                    self.rows(REMOVE, &|query| query.bind(name.to_owned()))
                        .await?
                }
            };
            Ok(())
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> StorageFuture<'a, Vec<String>> {
        Box::pin(async move {
            let rows = self
                .rows(LIST, &|query| query.bind(prefix.to_owned()))
                .await?;
            let names: Result<_, sqlx::Error> = rows.iter().map(|row| row.try_get(0)).collect();
            Ok(names?)
        })
    }

    fn lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        lifetime: Duration,
    ) -> StorageFuture<'a, bool> {
        Box::pin(async move {
            let bind = |query: Query<'static, Postgres, PgArguments>| {
                let query = query.bind(name.to_owned()).bind(owner.to_owned());
                query.bind(lifetime.as_secs_f64())
            };
            Ok(!self.rows(LOCK, &bind).await?.is_empty())
        })
    }

    fn unlock<'a>(&'a self, name: &'a str, owner: &'a str) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let bind = |query: Query<'static, Postgres, PgArguments>| {
                query.bind(name.to_owned()).bind(owner.to_owned())
            };
            self.rows(UNLOCK, &bind).await?;
            Ok(())
        })
    }

    fn add_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let json = serde_json::to_string(challenge)
                .map_err(|error| SharedStorageError::new(error.to_string()))?;
            let bind = |query: Query<'static, Postgres, PgArguments>| {
                let query = query.bind(challenge.key().to_owned()).bind(json.clone());
                query.bind(CHALLENGE_LIFETIME)
            };
            self.rows(ADD_CHALLENGE, &bind).await?;
            Ok(())
        })
    }

    fn remove_challenge<'a>(&'a self, challenge: &'a SharedChallenge) -> StorageFuture<'a, ()> {
        Box::pin(async move {
            let bind = |query: Query<'static, Postgres, PgArguments>| {
                query.bind(challenge.key().to_owned())
            };
            self.rows(REMOVE_CHALLENGE, &bind).await?;
            Ok(())
        })
    }

    fn challenges(&self) -> StorageFuture<'_, Vec<SharedChallenge>> {
        Box::pin(async move {
            let rows = self.rows(CHALLENGES, &|query| query).await?;
            let texts: Result<Vec<String>, sqlx::Error> =
                rows.iter().map(|row| row.try_get(0)).collect();
            let texts = texts?;
            let challenges = texts.iter().map(|json| serde_json::from_str(json));
            Ok(challenges.filter_map(Result::ok).collect())
        })
    }
}
