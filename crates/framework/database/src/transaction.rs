//! `Tx`: a transaction that ends with the response of its request, and `Transactions`, the layer that ends it.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use apus_handler::extract::FromRequestHead;
use apus_handler::matched::Matched;
use apus_handler::{Error, Middleware, Next, Rendering, RouteCheck};
use apus_http::{Request, Response, ResponseFuture, StatusCode};
use sqlx::{Any, SqlSafeStr, SqlStr};
use sqlx_core::transaction::TransactionManager;
use tokio::sync::{Mutex, OwnedMappedMutexGuard, OwnedMutexGuard};

use crate::connection::DbConnection;
use crate::db::Db;
use crate::driver::{Driver, System};

/// A transaction. It begins with its first statement, and ends by [`Tx::commit`], or else is rolled back.
///
/// `&Tx` is an executor of sqlx, as `&Db` is. Clones are of one transaction, whose statements run one after another. As the
/// argument of a handler it is the transaction of the request, which the layer [`Transactions`] ends.
pub struct Tx<D: Driver = Any> {
    db: Db<D>,
    /// The statement that begins it, if it is not the usual one.
    begin: Option<&'static str>,
    phase: Arc<Mutex<TxPhase<D>>>,
}

enum TxPhase<D: Driver> {
    /// No statement ran yet.
    Unused,
    Open(OpenTx<D>),
    Ended,
}

impl<D: Driver> TxPhase<D> {
    fn open(&mut self) -> Option<&mut OpenTx<D>> {
        match self {
            Self::Open(transaction) => Some(transaction),
            Self::Unused | Self::Ended => None,
        }
    }
}

/// A transaction that has begun. It is rolled back if it is dropped.
struct OpenTx<D: Driver> {
    connection: DbConnection<D>,
    has_ended: bool,
}

impl<D: Driver> OpenTx<D> {
    async fn begin(
        mut connection: DbConnection<D>,
        by: Option<&'static str>,
    ) -> Result<Self, sqlx::Error> {
        let by = by.map(SqlSafeStr::into_sql_str);
        D::TransactionManager::begin(&mut connection, by).await?;
        Ok(Self {
            connection,
            has_ended: false,
        })
    }

    async fn commit(mut self) -> Result<(), sqlx::Error> {
        let result = D::TransactionManager::commit(&mut self.connection).await;
        self.end(result)
    }

    async fn rollback(mut self) -> Result<(), sqlx::Error> {
        let result = D::TransactionManager::rollback(&mut self.connection).await;
        self.end(result)
    }

    fn end(&mut self, result: Result<(), sqlx::Error>) -> Result<(), sqlx::Error> {
        if result.is_ok() {
            self.has_ended = true;
            self.connection.set_clean();
        }
        result
    }
}

impl<D: Driver> Drop for OpenTx<D> {
    fn drop(&mut self) {
        if !self.has_ended {
            D::TransactionManager::start_rollback(&mut self.connection);
        }
    }
}

/// The connection of a transaction while a statement runs.
pub(crate) struct TxLease<D: Driver>(OwnedMappedMutexGuard<TxPhase<D>, OpenTx<D>>);

impl<D: Driver> Deref for TxLease<D> {
    type Target = D::Connection;

    fn deref(&self) -> &D::Connection {
        &self.0.connection
    }
}

impl<D: Driver> DerefMut for TxLease<D> {
    fn deref_mut(&mut self) -> &mut D::Connection {
        &mut self.0.connection
    }
}

impl<D: Driver> TxLease<D> {
    /// The transaction goes on, however a statement ended.
    pub(crate) fn end<T>(self, result: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        result
    }
}

impl<D: Driver> Db<D> {
    /// A transaction that begins with its first statement, and is rolled back if it is dropped before
    /// [`Tx::commit`].
    pub fn begin(&self) -> Tx<D> {
        Tx::new(self.clone(), false)
    }
}

impl<D: Driver> Tx<D> {
    /// A transaction that only reads begins as the database has it. In SQLite any other one takes the lock for writing
    /// when it begins: a transaction that reads first and takes it later fails if another one wrote in between.
    pub(crate) fn new(db: Db<D>, only_reads: bool) -> Self {
        let begin = match db.system() {
            System::Sqlite if !only_reads => Some("BEGIN IMMEDIATE"),
            _ => None,
        };
        Self {
            db,
            begin,
            phase: Arc::new(Mutex::new(TxPhase::Unused)),
        }
    }

    /// The database system.
    pub fn system(&self) -> System {
        self.db.system()
    }

    /// As [`Db::sql`].
    pub fn sql(&self, statement: &'static str) -> SqlStr {
        self.db.sql(statement)
    }

    /// The connection, for a statement.
    pub(crate) async fn connection(&self) -> Result<TxLease<D>, sqlx::Error> {
        let mut phase = self.phase.clone().lock_owned().await;
        if matches!(*phase, TxPhase::Unused) {
            let connection = self.db.acquire().await?;
            *phase = TxPhase::Open(OpenTx::begin(connection, self.begin).await?);
        }
        OwnedMutexGuard::try_map(phase, TxPhase::open)
            .map(TxLease)
            .map_err(|_| sqlx::Error::Configuration("the transaction has ended".into()))
    }

    /// Commits what the statements changed. Later statements are errors.
    ///
    /// # Errors
    /// The database refuses it, or the transaction has ended.
    pub async fn commit(&self) -> Result<(), sqlx::Error> {
        self.end(async |transaction| transaction.commit().await)
            .await
    }

    /// Rolls back what the statements changed. Later statements are errors.
    ///
    /// # Errors
    /// The database cannot be reached, or the transaction has ended.
    pub async fn rollback(&self) -> Result<(), sqlx::Error> {
        self.end(async |transaction| transaction.rollback().await)
            .await
    }

    async fn end(
        &self,
        by: impl AsyncFnOnce(OpenTx<D>) -> Result<(), sqlx::Error>,
    ) -> Result<(), sqlx::Error> {
        let mut phase = self.phase.lock().await;
        match std::mem::replace(&mut *phase, TxPhase::Ended) {
            TxPhase::Unused => Ok(()),
            TxPhase::Open(transaction) => by(transaction).await,
            TxPhase::Ended => Err(sqlx::Error::Configuration(
                "the transaction has ended".into(),
            )),
        }
    }
}

impl<D: Driver> Clone for Tx<D> {
    fn clone(&self) -> Self {
        Self {
            db: self.db.clone(),
            begin: self.begin,
            phase: self.phase.clone(),
        }
    }
}

impl<D: Driver> fmt::Debug for Tx<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tx").field(&self.db).finish()
    }
}

impl<D: Driver> FromRequestHead for Tx<D> {
    type Rejection = Error;

    fn from_head(request: &Request, _: &Matched<'_>) -> Result<Self, Error> {
        let transaction = request.extensions().get::<Self>().cloned();
        transaction.ok_or_else(|| {
            Error::not_provided("a handler takes a Tx, and no layer `Transactions` is around it")
        })
    }

    fn check(route: &mut RouteCheck<'_>) {
        if route.lacks::<Self>() {
            route.mistake("the handler takes a Tx, and no layer `Transactions` is around it");
        }
    }
}

/// A layer that gives each request a transaction, which handlers take as [`Tx`].
///
/// It begins with the first statement: a request that runs none takes no connection. It is committed before a response with
/// a status below 400 is sent, and rolled back for all others, on a panic and when the client leaves. If it cannot be
/// committed, the response is an error.
pub struct Transactions<D: Driver = Any> {
    db: Db<D>,
}

impl<D: Driver> Transactions<D> {
    /// Transactions of this database.
    pub fn new(db: Db<D>) -> Self {
        Self { db }
    }
}

impl<D: Driver> fmt::Debug for Transactions<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transactions").field(&self.db).finish()
    }
}

impl<D: Driver> Middleware<()> for Transactions<D> {
    fn check(&self, route: &mut RouteCheck<'_>) {
        route.provide::<Tx<D>>();
    }

    fn call(&self, mut request: Request, next: Next) -> ResponseFuture {
        let only_reads = request.method().is_safe();
        let end = TxEnd(Tx::new(self.db.clone(), only_reads));
        request.extensions_mut().insert(end.0.clone());
        let rendering = next.rendering(&request);
        match next.call(request) {
            // A handler that did not wait ran no statement.
            ResponseFuture::Now(response) => ResponseFuture::Now(response),
            ResponseFuture::Later(future) => ResponseFuture::later(async move {
                let response = future.await;
                end.finish(response, rendering).await
            }),
        }
    }
}

/// Ends the transaction of a request, also if the request is dropped.
struct TxEnd<D: Driver>(Tx<D>);

impl<D: Driver> TxEnd<D> {
    async fn finish(self, response: Response, rendering: Rendering) -> Response {
        let Ok(mut phase) = self.0.phase.try_lock() else {
            let running = "the response was there before the end of a statement of the transaction";
            tracing::error!("{running}: it is rolled back");
            return rendering.respond(Error::of(StatusCode::INTERNAL_SERVER_ERROR));
        };
        let TxPhase::Open(transaction) = std::mem::replace(&mut *phase, TxPhase::Ended) else {
            return response;
        };
        drop(phase);
        if response.status().as_u16() < 400 {
            return match transaction.commit().await {
                Ok(()) => response,
                Err(error) => rendering.respond(Error::from(error)),
            };
        }
        if let Err(error) = transaction.rollback().await {
            // The database rolls it back with the end of the connection.
            tracing::warn!(%error, "a transaction cannot be rolled back");
        }
        response
    }
}

impl<D: Driver> Drop for TxEnd<D> {
    fn drop(&mut self) {
        // A task of the handler may still have the transaction.
        if let Ok(mut phase) = self.0.phase.try_lock() {
            *phase = TxPhase::Ended;
        }
    }
}
