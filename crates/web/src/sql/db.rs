//! `Db`: a database by its address, with a pool of connections for each worker.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::Migrator;
use sqlx::pool::PoolOptions;
use sqlx::{Any, AssertSqlSafe, Connection, Pool, SqlSafeStr, SqlStr};

use super::driver::{Driver, System, shown};
use super::error::DbError;
use super::parameters;
use super::statements;
use crate::per_worker;

/// A connection that waited for longer is tried before it is used.
const TRUSTED_IDLE: Duration = Duration::from_secs(10);

/// A database; see [the module](super).
///
/// It is cheap to clone, and is given to handlers by [`crate::App::state`]. Nothing is connected
/// before the first statement.
pub struct Db<D: Driver = Any> {
    shared: Arc<Shared<D>>,
}

struct Shared<D: Driver> {
    system: System,
    /// Without the password.
    shown: String,
    options: <D::Connection as Connection>::Options,
    max_connections: u32,
    acquire_timeout: Duration,
}

impl<D: Driver> Db<D> {
    /// The database of an address, as `sqlite:shop.db`: at most ten connections for each worker, four
    /// of SQLite, each of which has a thread; and five seconds to wait for one.
    ///
    /// # Errors
    /// The address is not one of a database that `D` stands for.
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
            shared: Arc::new(Shared {
                system,
                shown,
                options,
                max_connections: if system == System::Sqlite { 4 } else { 10 },
                acquire_timeout: Duration::from_secs(5),
            }),
        })
    }

    /// How many connections each worker has at most.
    #[must_use]
    pub fn max_connections(self, max: u32) -> Self {
        self.with(|shared| shared.max_connections = max.max(1))
    }

    /// How long a statement waits for a connection.
    #[must_use]
    pub fn acquire_timeout(self, timeout: Duration) -> Self {
        self.with(|shared| shared.acquire_timeout = timeout)
    }

    /// The same with something else, and with pools of its own.
    fn with(self, change: impl FnOnce(&mut Shared<D>)) -> Self {
        let mut shared = Shared {
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

    /// What answers at the address.
    pub fn system(&self) -> System {
        self.shared.system
    }

    /// The connections of this worker. Has to be called where there is a runtime, as in a handler.
    pub fn pool(&self) -> Pool<D> {
        per_worker::of_this(&self.shared, || {
            let shared = &self.shared;
            PoolOptions::new()
                .max_connections(shared.max_connections)
                .acquire_timeout(shared.acquire_timeout)
                // A round trip before each statement would be most of what a statement costs.
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

    /// A statement whose parameters are written `?`, as this database wants it: PostgreSQL gets
    /// `$1`, `$2` and so on. What stands in quotes or comments stays, and `??` becomes `?`, which
    /// is an operator of PostgreSQL.
    pub fn sql(&self, statement: &'static str) -> SqlStr {
        if self.shared.system != System::Postgres || !statement.contains('?') {
            return statement.into_sql_str();
        }
        let numbered = statements::written(statement, || parameters::numbered(statement));
        AssertSqlSafe(numbered).into_sql_str()
    }

    /// Brings the database to what the application needs: runs the files of a folder that were not
    /// run yet, in the order of their names, as `0001_users.sql`. Where they differ from system to
    /// system, folders `sqlite`, `postgres` and `mysql` in it are looked into instead.
    ///
    /// It waits until they ran, and belongs before the start of the workers.
    ///
    /// # Errors
    /// The database cannot be reached; a file cannot be read or is not valid; or one that ran
    /// before is no longer there or has changed.
    pub fn migrate(&self, folder: impl AsRef<Path>) -> Result<(), DbError> {
        let folder = folder.as_ref();
        let own = folder.join(self.shared.system.name());
        let folder = if own.is_dir() { own } else { folder.into() };
        let failed = |cause| DbError::Migration {
            from: folder.display().to_string(),
            address: self.shared.shown.clone(),
            cause: Box::new(cause),
        };
        self.apart(async || {
            let migrator = Migrator::new(&*folder).await.map_err(failed)?;
            self.run(&migrator).await?.map_err(failed)
        })
    }

    /// As [`Db::migrate`], with what `sqlx::migrate!` put into the program.
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

    async fn run(
        &self,
        migrator: &Migrator,
    ) -> Result<Result<(), sqlx::migrate::MigrateError>, DbError> {
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
        // What it did is done, however it says good-bye.
        let _ = connection.close().await;
        Ok(result)
    }

    /// Does something on a thread of its own and waits for it; the caller may have a runtime or not.
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
