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
use crate::driver::{Driver, System};
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

/// The first row, and whether the statement has ended.
///
/// PostgreSQL and SQLite are asked for one row. MySQL sends them all: if those after the first one are not there yet, the
/// connection has to be read before it is used again.
async fn first_row<'c, D: Driver>(
    system: System,
    connection: &'c mut D::Connection,
    statement: BoundStatement<D>,
) -> Result<(Option<D::Row>, bool), Error>
where
    &'c mut D::Connection: Executor<'c, Database = D>,
{
    if system != System::MySql {
        let row = Executor::fetch_optional(connection, statement).await?;
        return Ok((row, true));
    }
    let mut rows = Executor::fetch_many(connection, statement);
    let row = loop {
        match poll_fn(|cx| rows.as_mut().poll_next(cx))
            .await
            .transpose()?
        {
            Some(Either::Right(row)) => break row,
            Some(Either::Left(_)) => {}
            None => return Ok((None, true)),
        }
    };
    let has_ended = poll_fn(|cx| {
        let is_end = loop {
            match rows.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(Either::Left(_)))) => {}
                Poll::Ready(None) => break true,
                Poll::Ready(Some(_)) | Poll::Pending => break false,
            }
        };
        Poll::Ready(is_end)
    });
    let has_ended = has_ended.await;
    Ok((Some(row), has_ended))
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
                    let mut connection = self.connection().await?;
                    let _timer = queries::timer(&statement.sql);
                    let result = Executor::execute(&mut *connection, statement).await;
                    connection.end(result)
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
                        let mut connection = self.connection().await?;
                        let _timer = queries::timer(&statement.sql);
                        let mut rows = Executor::fetch_many(&mut *connection, statement);
                        let ended = loop {
                            match poll_fn(|cx| rows.as_mut().poll_next(cx)).await {
                                Some(Ok(row)) => {
                                    if sender.send(row).await.is_err() {
                                        // Nobody takes the others, which are still on their way.
                                        return Ok(());
                                    }
                                }
                                Some(Err(error)) => break Err(error),
                                None => break Ok(()),
                            }
                        };
                        drop(rows);
                        connection.end(ended)
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
                    let mut connection = self.connection().await?;
                    let _timer = queries::timer(&statement.sql);
                    let result = Executor::fetch_all(&mut *connection, statement).await;
                    connection.end(result)
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
                    let mut connection = self.connection().await?;
                    let _timer = queries::timer(&statement.sql);
                    let result = first_row(self.system(), &mut *connection, statement).await;
                    match result {
                        Ok((row, true)) => connection.end(Ok(row)),
                        // The others are still on their way.
                        Ok((row, false)) => Ok(row),
                        Err(error) => connection.end(Err(error)),
                    }
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
                    let mut connection = self.connection().await?;
                    let result = Executor::prepare_with(&mut *connection, sql, parameters).await;
                    connection.end(result)
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
                    let mut connection = self.connection().await?;
                    let result = Executor::describe(&mut *connection, sql).await;
                    connection.end(result)
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
