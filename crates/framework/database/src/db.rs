//! `Db`: a database by its address, with a pool of connections for each worker.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use apus_commands::run_on_own_thread;
use apus_transport::per_worker;
use sqlx::pool::PoolOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Any, AssertSqlSafe, Connection, Pool, SqlSafeStr, SqlStr};

use crate::connection::{DbConnection, DbConnections, DbConnector};
use crate::driver::{Driver, System, shown};
use crate::error::DbError;
use crate::parameters;
use crate::statements;

/// A database; see [the crate](crate).
///
/// It is cheap to clone; handlers get it by `App::state`. It opens no connection before the
/// first statement. `&Db` is an executor of sqlx: `sqlx::query(..).fetch_all(&db)`.
pub struct Db<D: Driver = Any> {
    shared: Arc<DbState<D>>,
}

struct DbState<D: Driver> {
    system: System,
    address: String,
    /// Without the password.
    shown: String,
    /// The file of SQLite.
    file: Option<PathBuf>,
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
                address: address.to_owned(),
                shown,
                file: match system {
                    System::Sqlite => SqliteConnectOptions::from_str(address)
                        .ok()
                        .map(|options| options.get_filename().to_owned()),
                    System::Postgres | System::MySql => None,
                },
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
            address: self.shared.address.clone(),
            shown: self.shared.shown.clone(),
            file: self.shared.file.clone(),
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

    /// The connections of this worker.
    fn of_worker(&self) -> DbConnections<D> {
        per_worker::get_or_insert(&self.shared, || {
            let shared = &self.shared;
            DbConnections::new(
                self.connector(),
                shared.max_connections,
                shared.acquire_timeout,
            )
        })
    }

    /// A pool of sqlx for this worker, for libraries that take one. Call it within a runtime, as in a handler.
    ///
    /// Its connections are counted apart from the connections of `&Db`, and its limits are the same. A statement on it waits
    /// for a database that is down until the time for it is over, and [`QueryLog`](crate::QueryLog) does not count it.
    pub fn pool(&self) -> Pool<D> {
        per_worker::get_or_insert(&self.shared, || {
            let shared = &self.shared;
            PoolOptions::new()
                .max_connections(shared.max_connections)
                .acquire_timeout(shared.acquire_timeout)
                .after_connect({
                    let system = shared.system;
                    move |connection, _| D::set_up(connection, system)
                })
                .connect_lazy_with(shared.options.clone())
        })
    }

    fn connector(&self) -> DbConnector<D> {
        DbConnector::new(self.shared.options.clone(), self.shared.system)
    }

    /// A connection of this worker, for several statements on one. If the database is down, this fails at once, with the
    /// cause. Call it within a runtime, as in a handler.
    ///
    /// # Errors
    /// The database cannot be reached, or no connection was free in time.
    pub async fn acquire(&self) -> Result<DbConnection<D>, sqlx::Error> {
        self.of_worker().acquire().await
    }

    /// How many connections this worker has, idle or in use.
    pub fn connections(&self) -> usize {
        self.of_worker().size()
    }

    /// Closes the connections of this worker: the idle ones now, and those in use when they come back. Later statements
    /// are errors.
    pub async fn close(&self) {
        self.of_worker().close().await;
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

    /// The same database for what takes any, with its own pools.
    ///
    /// # Errors
    /// The address has parameters that only this driver knows.
    pub fn any(&self) -> Result<Db, DbError> {
        Ok(Db::open(&self.shared.address)?
            .max_connections(self.shared.max_connections)
            .acquire_timeout(self.shared.acquire_timeout))
    }

    /// The connection of a statement on `&Db`.
    pub(crate) async fn connection(&self) -> Result<DbConnection<D>, sqlx::Error> {
        self.acquire().await
    }

    /// The address without the password.
    pub(crate) fn shown(&self) -> &str {
        &self.shared.shown
    }

    /// The file of an SQLite database.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.shared.file.as_deref()
    }

    /// A connection outside of the pools.
    pub(crate) async fn connect(&self) -> Result<D::Connection, DbError> {
        let unreachable = |cause| DbError::Unreachable {
            address: self.shared.shown.clone(),
            cause,
        };
        self.connector().connect().await.map_err(unreachable)
    }

    /// Runs something on its own thread and blocks until it ends. It works with and without a runtime.
    pub(crate) fn apart<F, T>(&self, work: impl FnOnce() -> F + Send) -> Result<T, DbError>
    where
        F: Future<Output = Result<T, DbError>>,
        T: Send,
    {
        let failed = |cause| DbError::Unreachable {
            address: self.shared.shown.clone(),
            cause: sqlx::Error::Io(cause),
        };
        run_on_own_thread("migrate", work).map_err(failed)?
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
