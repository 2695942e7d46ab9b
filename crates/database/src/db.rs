//! `Db`: a database by its address, with a pool of connections for each worker.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apus_transport::per_worker;
use sqlx::migrate::{MigrateError, Migrator};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::{Any, AssertSqlSafe, Connection, Pool, SqlSafeStr, SqlStr};

use crate::driver::{Driver, System, shown};
use crate::error::DbError;
use crate::migrations::{self, MigrationFiles};
use crate::parameters;
use crate::statements;

/// A connection that was idle for longer is pinged before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(10);

/// How long a connection may take before it is tried whether the database can be reached at all.
const PROBE_AFTER: Duration = Duration::from_millis(50);

/// A database; see [the crate](crate).
///
/// It is cheap to clone; handlers get it by `App::state`. It opens no connection before the
/// first statement.
pub struct Db<D: Driver = Any> {
    shared: Arc<DbState<D>>,
}

struct DbState<D: Driver> {
    system: System,
    /// Without the password.
    shown: String,
    options: <D::Connection as Connection>::Options,
    max_connections: u32,
    acquire_timeout: Duration,
}

impl<D: Driver> Db<D> {
    /// The database at an address, as `sqlite:shop.db`. Each worker has at most ten connections (four for
    /// SQLite, which uses a thread for each), and a statement waits at most five seconds for one.
    ///
    /// # Errors
    /// The address is not an address of a database of type `D`.
    pub fn open(address: &str) -> Result<Self, DbError> {
        let system = System::of(address);
        let shown = shown(address);
        let refuse = |cause: sqlx::Error| DbError::Address {
            address: shown.clone(),
            cause,
        };
        let Some(system) = system else {
            return Err(refuse(sqlx::Error::Configuration(
                "it has to begin with sqlite:, postgres: or mysql:".into(),
            )));
        };
        if system == System::Sqlite && address.contains(":memory:") {
            return Err(refuse(sqlx::Error::Configuration(
                "each connection would have a database of its own; name a file".into(),
            )));
        }
        let options = D::options(address).map_err(refuse)?;
        Ok(Self {
            shared: Arc::new(DbState {
                system,
                shown,
                options,
                max_connections: if system == System::Sqlite { 4 } else { 10 },
                acquire_timeout: Duration::from_secs(5),
            }),
        })
    }

    /// The most connections of each worker.
    #[must_use]
    pub fn max_connections(self, max: u32) -> Self {
        self.with(|shared| shared.max_connections = max.max(1))
    }

    /// How long a statement waits for a connection.
    #[must_use]
    pub fn acquire_timeout(self, timeout: Duration) -> Self {
        self.with(|shared| shared.acquire_timeout = timeout)
    }

    /// A copy with a changed setting and its own pools.
    fn with(self, change: impl FnOnce(&mut DbState<D>)) -> Self {
        let mut shared = DbState {
            system: self.shared.system,
            shown: self.shared.shown.clone(),
            options: self.shared.options.clone(),
            ..*self.shared
        };
        change(&mut shared);
        Self {
            shared: Arc::new(shared),
        }
    }

    /// The database system at the address.
    pub fn system(&self) -> System {
        self.shared.system
    }

    /// The pool of this worker. Call it within a runtime, as in a handler.
    pub fn pool(&self) -> Pool<D> {
        per_worker::get_or_insert(&self.shared, || {
            let shared = &self.shared;
            PoolOptions::new()
                .max_connections(shared.max_connections)
                .acquire_timeout(shared.acquire_timeout)
                // A ping before each statement would take longer than most statements.
                .test_before_acquire(false)
                .before_acquire(|connection: &mut D::Connection, meta| {
                    Box::pin(async move {
                        if meta.idle_for < TRUSTED_IDLE {
                            return Ok(true);
                        }
                        Ok(connection.ping().await.is_ok())
                    })
                })
                .after_connect({
                    let system = shared.system;
                    move |connection, _| D::set_up(connection, system)
                })
                .connect_lazy_with(shared.options.clone())
        })
    }

    /// A connection of the pool of this worker. A statement on the pool itself waits for a database that is down
    /// until the time for it is over; this fails at once, with the cause.
    ///
    /// # Errors
    /// The database cannot be reached, or no connection was free in time.
    pub async fn acquire(&self) -> Result<PoolConnection<D>, sqlx::Error> {
        let pool = self.pool();
        tokio::select! {
            biased;
            acquired = pool.acquire() => acquired,
            cause = self.unreachable() => Err(cause),
        }
    }

    /// Waits for a moment, and then until a connection beside the pool fails; the pool would try again.
    async fn unreachable(&self) -> sqlx::Error {
        tokio::time::sleep(PROBE_AFTER).await;
        match D::Connection::connect_with(&self.shared.options).await {
            Ok(connection) => {
                let _ = connection.close().await;
                std::future::pending().await
            }
            Err(cause) => cause,
        }
    }

    /// A statement with parameters `?` in the syntax of this database: PostgreSQL gets `$1`, `$2` and so
    /// on. Strings, quoted identifiers and comments stay as they are, and `??` becomes the operator `?`
    /// of PostgreSQL.
    pub fn sql(&self, statement: &'static str) -> SqlStr {
        if self.shared.system != System::Postgres || !statement.contains('?') {
            return statement.into_sql_str();
        }
        let numbered = statements::rewritten(statement, || parameters::numbered(statement));
        AssertSqlSafe(numbered).into_sql_str()
    }

    /// Runs the migrations of a folder that did not run yet, in the order of their numbers, as
    /// `0001_users.sql`. If the folder has a folder `sqlite`, `postgres` or `mysql` for this system, it
    /// runs the files of that one.
    ///
    /// It blocks until they have run, so call it before the workers start.
    ///
    /// # Errors
    /// The database cannot be reached; an SQL file has no number, has the number of another one, or is beside the
    /// folder of the system; a file cannot be read; a statement fails, which is told with file and line; or
    /// a migration that ran before has changed or is missing.
    pub fn migrate(&self, folder: impl AsRef<Path>) -> Result<(), DbError> {
        let invalid = |problem| DbError::MigrationFiles { problem };
        let folder = MigrationFiles::folder(folder.as_ref(), self.shared.system);
        let folder = folder.map_err(invalid)?;
        let files = MigrationFiles::read(&folder).map_err(invalid)?;
        let failed = |from, cause| DbError::Migration {
            from,
            address: self.shared.shown.clone(),
            cause: Box::new(cause),
        };
        let whole = || folder.display().to_string();
        self.apart(async || {
            let migrator = Migrator::new(&*folder).await;
            let migrator = migrator.map_err(|cause| failed(whole(), cause))?;
            match self.run(&migrator).await? {
                Ok(()) => Ok(()),
                Err(MigrateError::ExecuteMigration(error, number)) => {
                    let place = match files.get(number) {
                        Some(file) => self.place_of(file, &error).await,
                        None => whole(),
                    };
                    Err(failed(place, MigrateError::ExecuteMigration(error, number)))
                }
                Err(cause) => Err(failed(whole(), cause)),
            }
        })
    }

    /// The file and, if it is known, the line of the statement that a migration failed at.
    async fn place_of(&self, file: &Path, error: &sqlx::Error) -> String {
        let Ok(text) = std::fs::read_to_string(file) else {
            return file.display().to_string();
        };
        let offset = match D::error_offset(error, &text) {
            Some(offset) => Some(offset),
            None if self.shared.system == System::Sqlite => self.replay(&text).await,
            None => migrations::quoted_offset(&text, &error.to_string()),
        };
        match offset {
            Some(offset) => format!("{}:{}", file.display(), migrations::line_of(&text, offset)),
            None => file.display().to_string(),
        }
    }

    /// The offset of the first statement of a migration that fails. The statements run one by one in a
    /// transaction that is rolled back.
    async fn replay(&self, text: &str) -> Option<usize> {
        let connection = D::Connection::connect_with(&self.shared.options).await;
        let mut connection = connection.ok()?;
        D::run(&mut connection, "BEGIN").await.ok()?;
        let mut failed = None;
        for (offset, statement) in migrations::statements(text) {
            if let Err(error) = D::run(&mut connection, statement).await {
                let inside = migrations::quoted_offset(statement, &error.to_string());
                failed = Some(offset.saturating_add(inside.unwrap_or(0)));
                break;
            }
        }
        let _ = D::run(&mut connection, "ROLLBACK").await;
        let _ = connection.close().await;
        failed
    }

    /// Like [`Db::migrate`], with migrations that `sqlx::migrate!` embedded in the program.
    ///
    /// # Errors
    /// As [`Db::migrate`].
    pub fn migrate_with(&self, migrator: &Migrator) -> Result<(), DbError> {
        self.apart(async || {
            self.run(migrator)
                .await?
                .map_err(|cause| DbError::Migration {
                    from: "the program".to_owned(),
                    address: self.shared.shown.clone(),
                    cause: Box::new(cause),
                })
        })
    }

    async fn run(&self, migrator: &Migrator) -> Result<Result<(), MigrateError>, DbError> {
        let unreachable = |cause| DbError::Unreachable {
            address: self.shared.shown.clone(),
            cause,
        };
        let mut connection = D::Connection::connect_with(&self.shared.options)
            .await
            .map_err(unreachable)?;
        D::set_up(&mut connection, self.shared.system)
            .await
            .map_err(unreachable)?;
        let result = D::migrate(&mut connection, migrator).await;
        // The migrations are done; an error on closing does not matter.
        let _ = connection.close().await;
        Ok(result)
    }

    /// Runs something on its own thread and blocks until it ends. It works with and without a runtime.
    fn apart<F>(&self, work: impl FnOnce() -> F + Send) -> Result<(), DbError>
    where
        F: Future<Output = Result<(), DbError>>,
    {
        let failed = |cause| DbError::Unreachable {
            address: self.shared.shown.clone(),
            cause: sqlx::Error::Io(cause),
        };
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new()
                .name("migrate".to_owned())
                .spawn_scoped(scope, || {
                    tokio::runtime::Builder::new_current_thread()
                        .enable_all()
                        .build()
                        .map_err(failed)?
                        .block_on(work())
                })
                .map_err(failed)?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl<D: Driver> Clone for Db<D> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<D: Driver> fmt::Debug for Db<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Db").field(&self.shared.shown).finish()
    }
}
