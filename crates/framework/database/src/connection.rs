//! The connections of a worker: taken for statements, transactions and handlers, and used again.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use deadpool::managed::{
    Manager, Metrics, Object, Pool, PoolError, QueueMode, RecycleError, RecycleResult,
};
use sqlx::{Any, Connection, Error};
use tokio::runtime::Handle;

use crate::driver::{Driver, System};

/// A connection that was taken longer ago is pinged before it is used again.
const TRUSTED_IDLE: Duration = Duration::from_secs(10);

/// A connection that was not taken for so long is closed.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// A connection that is older is not used again, so that the load spreads when a database gets further servers.
const MAX_AGE: Duration = Duration::from_mins(30);

/// How often idle connections are looked at.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);

/// What opens connections.
pub(crate) struct DbConnector<D: Driver> {
    options: <D::Connection as Connection>::Options,
    system: System,
    max_age: Duration,
}

impl<D: Driver> DbConnector<D> {
    pub(crate) fn new(options: <D::Connection as Connection>::Options, system: System) -> Self {
        Self {
            options,
            system,
            max_age: MAX_AGE,
        }
    }

    /// A new connection, ready for statements.
    pub(crate) async fn connect(&self) -> Result<D::Connection, Error> {
        let mut connection = D::Connection::connect_with(&self.options).await?;
        D::set_up(&mut connection, self.system).await?;
        Ok(connection)
    }
}

impl<D: Driver> Manager for DbConnector<D> {
    type Type = D::Connection;
    type Error = Error;

    async fn create(&self) -> Result<D::Connection, Error> {
        self.connect().await
    }

    /// A ping before each statement would take longer than most statements.
    async fn recycle(
        &self,
        connection: &mut D::Connection,
        metrics: &Metrics,
    ) -> RecycleResult<Error> {
        if metrics.age() > self.max_age {
            return Err(RecycleError::message("it is too old"));
        }
        if metrics.last_used() < TRUSTED_IDLE {
            return Ok(());
        }
        Ok(connection.ping().await?)
    }
}

/// The connections of a worker to one database.
pub(crate) struct DbConnections<D: Driver> {
    pool: Pool<DbConnector<D>>,
    acquire_timeout: Duration,
}

impl<D: Driver> DbConnections<D> {
    #[expect(
        clippy::expect_used,
        reason = "the only error is a time-out without a runtime, and there is none"
    )]
    pub(crate) fn new(connector: DbConnector<D>, max: u32, acquire_timeout: Duration) -> Self {
        let pool = Pool::builder(connector)
            .max_size(usize::try_from(max).unwrap_or(usize::MAX))
            // Those that are not needed become idle for long, and are closed.
            .queue_mode(QueueMode::Lifo)
            .build()
            .expect("a pool without time-outs of its own");
        if let Ok(runtime) = Handle::try_current() {
            let pool = pool.weak();
            runtime.spawn(async move {
                loop {
                    tokio::time::sleep(SWEEP_INTERVAL).await;
                    let Some(pool) = pool.upgrade() else { return };
                    let idle = pool.retain(|_, metrics| metrics.last_used() < IDLE_TIMEOUT);
                    for connection in idle.removed {
                        let _ = connection.close().await;
                    }
                }
            });
        }
        Self {
            pool,
            acquire_timeout,
        }
    }

    /// A connection that was idle, or a new one. If all are in use, it waits for one.
    pub(crate) async fn acquire(&self) -> Result<DbConnection<D>, Error> {
        let acquired = tokio::time::timeout(self.acquire_timeout, self.pool.get()).await;
        match acquired {
            Ok(Ok(object)) => Ok(DbConnection {
                object: Some(object),
                is_clean: false,
            }),
            Ok(Err(PoolError::Backend(cause))) => Err(cause),
            Ok(Err(PoolError::Closed)) => Err(Error::PoolClosed),
            // It has no time-outs and no hooks of its own.
            Ok(Err(
                PoolError::Timeout(_)
                | PoolError::NoRuntimeSpecified
                | PoolError::PostCreateHook(_),
            ))
            | Err(_) => Err(Error::PoolTimedOut),
        }
    }

    /// Closes the idle connections, and those in use as soon as they come back. Later statements are errors.
    pub(crate) async fn close(&self) {
        let idle = self.pool.retain(|_, _| false).removed;
        self.pool.close();
        for connection in idle {
            let _ = connection.close().await;
        }
    }

    /// How many connections there are, idle or in use.
    pub(crate) fn size(&self) -> usize {
        self.pool.status().size
    }
}

impl<D: Driver> Clone for DbConnections<D> {
    fn clone(&self) -> Self {
        Self {
            pool: self.pool.clone(),
            acquire_timeout: self.acquire_timeout,
        }
    }
}

/// A connection of a [`Db`](crate::Db), for several statements on one: `&mut *connection` is an executor of sqlx.
///
/// When it is dropped, it is checked beside the request, and then used again.
pub struct DbConnection<D: Driver = Any> {
    /// `None` once it is on its way back.
    object: Option<Object<DbConnector<D>>>,
    /// Whether its last statement ended, and nothing is left to roll back.
    is_clean: bool,
}

impl<D: Driver> DbConnection<D> {
    /// Notes how the only statement on it ended, which decides what is done before it is used again.
    pub(crate) fn end<T>(mut self, result: Result<T, Error>) -> Result<T, Error> {
        match &result {
            Ok(_) => self.set_clean(),
            Err(error) if is_broken(error) => self.discard(),
            Err(_) => {}
        }
        result
    }

    /// The next one who takes it can use it at once.
    pub(crate) fn set_clean(&mut self) {
        self.is_clean = true;
    }

    /// Removes a connection that broke, and those that are idle with it: if the database was restarted, each of them
    /// would fail one statement.
    fn discard(&mut self) {
        if let Some(object) = self.object.take() {
            if let Some(pool) = Object::pool(&object) {
                drop(pool.retain(|_, _| false));
            }
            drop(Object::take(object));
        }
    }
}

const UNTIL_DROPPED: &str = "the connection is there until this is dropped";

#[expect(
    clippy::expect_used,
    reason = "only `end` and `drop` take the connection, and both end the value"
)]
impl<D: Driver> Deref for DbConnection<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        self.object.as_ref().expect(UNTIL_DROPPED)
    }
}

#[expect(
    clippy::expect_used,
    reason = "only `end` and `drop` take the connection, and both end the value"
)]
impl<D: Driver> DerefMut for DbConnection<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        self.object.as_mut().expect(UNTIL_DROPPED)
    }
}

/// Whether a connection cannot be used after this error (SQLSTATE classes 08 and 57P: the database ended it).
pub(crate) fn is_broken(error: &Error) -> bool {
    match error {
        Error::Io(_) | Error::Tls(_) | Error::Protocol(_) => true,
        Error::Database(error) => error
            .code()
            .is_some_and(|code| code.starts_with("08") || code.starts_with("57P")),
        _ => false,
    }
}

impl<D: Driver> fmt::Debug for DbConnection<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbConnection").finish_non_exhaustive()
    }
}

impl<D: Driver> Drop for DbConnection<D> {
    fn drop(&mut self) {
        let Some(object) = self.object.take() else {
            return;
        };
        if self.is_clean {
            // The pool has it again.
            return drop(object);
        }
        let Ok(runtime) = Handle::try_current() else {
            return drop(Object::take(object));
        };
        // A statement may have been left in the middle, or a transaction without its end: the answer of the ping comes
        // after the rest of the rows and after what is rolled back.
        runtime.spawn(async move {
            let mut object = object;
            if let Err(error) = object.ping().await {
                tracing::debug!(%error, "a connection to the database is not used again");
                drop(Object::take(object));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Executor, Sqlite};

    use super::*;

    /// Whether a connection that comes back is the next one that is taken.
    async fn is_used_again(max_age: Duration) -> bool {
        let options = Sqlite::options("sqlite::memory:").unwrap();
        let connector = DbConnector::<Sqlite> {
            max_age,
            ..DbConnector::new(options, System::Sqlite)
        };
        let connections = DbConnections::new(connector, 1, Duration::from_secs(60));
        let mut first = connections.acquire().await.unwrap();
        // Another connection does not have this table.
        let table = "CREATE TEMP TABLE mark (id INT)";
        first.execute(table).await.unwrap();
        first.set_clean();
        drop(first);
        let mut second = connections.acquire().await.unwrap();
        second.execute("SELECT id FROM mark").await.is_ok()
    }

    #[tokio::test]
    async fn a_connection_that_is_too_old_is_not_used_again() {
        assert!(is_used_again(MAX_AGE).await);
        assert!(!is_used_again(Duration::ZERO).await);
    }
}
