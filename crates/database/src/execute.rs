//! `&Db` and `&Tx` as executors of sqlx.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use sqlx::error::BoxDynError;
use sqlx::{
    Any, Database, Describe, Either, Error, Execute, Executor, MySql, Postgres, SqlStr, Sqlite,
};
use tokio::sync::mpsc::{self, Receiver, Sender};

use crate::db::Db;
use crate::driver::System;
use crate::queries;
use crate::transaction::Tx;

/// What a [`Model`](crate::Model) runs its statements on: `&Db` or `&Tx`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not run the statements of a model",
    note = "pass `&db` of a `Db`, or `&tx` of a `Tx`"
)]
pub trait DbExecutor<'e>: Executor<'e, Database = Any> + Copy + Sync {
    /// The database system.
    #[doc(hidden)]
    fn system(self) -> System;
}

impl<'e> DbExecutor<'e> for &'e Db {
    fn system(self) -> System {
        Db::system(self)
    }
}

impl<'e> DbExecutor<'e> for &'e Tx {
    fn system(self) -> System {
        Tx::system(self)
    }
}

/// A statement with its arguments, and its text beside them.
struct BoundStatement<D: Database> {
    sql: SqlStr,
    arguments: Option<D::Arguments>,
    is_cached: bool,
}

impl<D: Database> BoundStatement<D> {
    fn of<'q>(mut query: impl Execute<'q, D>) -> Result<Self, Error> {
        let arguments = query.take_arguments().map_err(Error::Encode)?;
        let is_cached = query.persistent();
        Ok(Self {
            sql: query.sql(),
            arguments,
            is_cached,
        })
    }
}

impl<D: Database> Execute<'_, D> for BoundStatement<D> {
    fn sql(self) -> SqlStr {
        self.sql
    }

    fn statement(&self) -> Option<&D::Statement> {
        None
    }

    fn take_arguments(&mut self) -> Result<Option<D::Arguments>, BoxDynError> {
        Ok(self.arguments.take())
    }

    fn persistent(&self) -> bool {
        self.is_cached
    }
}

/// What a future sends while it runs.
struct SentRows<'e, T> {
    run: Option<BoxFuture<'e, Result<(), Error>>>,
    sent: Receiver<T>,
    error: Option<Error>,
}

impl<'e, T: Send + 'e> SentRows<'e, T> {
    fn boxed(
        run: impl FnOnce(Sender<T>) -> BoxFuture<'e, Result<(), Error>>,
    ) -> BoxStream<'e, Result<T, Error>> {
        let (sender, sent) = mpsc::channel(1);
        Box::pin(Self {
            run: Some(run(sender)),
            sent,
            error: None,
        })
    }
}

impl<T> Stream for SentRows<'_, T> {
    type Item = Result<T, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            match this.sent.poll_recv(cx) {
                Poll::Ready(Some(row)) => return Poll::Ready(Some(Ok(row))),
                // The future ended.
                Poll::Ready(None) => return Poll::Ready(this.error.take().map(Err)),
                Poll::Pending => {}
            }
            let Some(run) = &mut this.run else {
                return Poll::Pending;
            };
            match run.as_mut().poll(cx) {
                Poll::Ready(result) => {
                    this.run = None;
                    this.error = result.err();
                }
                // A row that it sent woke this task.
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

macro_rules! executors {
    ($($holder:ident<$driver:ty>),* $(,)?) => {$(
        impl<'c> Executor<'c> for &'c $holder<$driver> {
            type Database = $driver;

            fn execute<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<<$driver as Database>::QueryResult, Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $driver>,
            {
                Box::pin(async move {
                    let statement = BoundStatement::<$driver>::of(query)?;
                    let mut connection = self.lease().await?;
                    let _timer = queries::timer(&statement.sql);
                    Executor::execute(&mut *connection, statement).await
                })
            }

            fn fetch_many<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxStream<
                'e,
                Result<
                    Either<<$driver as Database>::QueryResult, <$driver as Database>::Row>,
                    Error,
                >,
            >
            where
                'c: 'e,
                E: 'q + Execute<'q, $driver>,
            {
                SentRows::boxed(move |sender| {
                    Box::pin(async move {
                        let statement = BoundStatement::<$driver>::of(query)?;
                        let mut connection = self.lease().await?;
                        let _timer = queries::timer(&statement.sql);
                        let mut rows = Executor::fetch_many(&mut *connection, statement);
                        while let Some(row) = poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
                            if sender.send(row?).await.is_err() {
                                break;
                            }
                        }
                        Ok(())
                    })
                })
            }

            fn fetch_all<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Vec<<$driver as Database>::Row>, Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $driver>,
            {
                Box::pin(async move {
                    let statement = BoundStatement::<$driver>::of(query)?;
                    let mut connection = self.lease().await?;
                    let _timer = queries::timer(&statement.sql);
                    Executor::fetch_all(&mut *connection, statement).await
                })
            }

            fn fetch_optional<'e, 'q: 'e, E>(
                self,
                query: E,
            ) -> BoxFuture<'e, Result<Option<<$driver as Database>::Row>, Error>>
            where
                'c: 'e,
                E: 'q + Execute<'q, $driver>,
            {
                Box::pin(async move {
                    let statement = BoundStatement::<$driver>::of(query)?;
                    let mut connection = self.lease().await?;
                    let _timer = queries::timer(&statement.sql);
                    Executor::fetch_optional(&mut *connection, statement).await
                })
            }

            fn prepare_with<'e>(
                self,
                sql: SqlStr,
                parameters: &'e [<$driver as Database>::TypeInfo],
            ) -> BoxFuture<'e, Result<<$driver as Database>::Statement, Error>>
            where
                'c: 'e,
            {
                Box::pin(async move {
                    let mut connection = self.lease().await?;
                    Executor::prepare_with(&mut *connection, sql, parameters).await
                })
            }

            #[doc(hidden)]
            fn describe<'e>(
                self,
                sql: SqlStr,
            ) -> BoxFuture<'e, Result<Describe<$driver>, Error>>
            where
                'c: 'e,
            {
                Box::pin(async move {
                    let mut connection = self.lease().await?;
                    Executor::describe(&mut *connection, sql).await
                })
            }
        }
    )*};
}

executors!(
    Db<Any>,
    Db<Sqlite>,
    Db<Postgres>,
    Db<MySql>,
    Tx<Any>,
    Tx<Sqlite>,
    Tx<Postgres>,
    Tx<MySql>
);
