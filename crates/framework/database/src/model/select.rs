//! `Select`: a query of the rows of a model.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;

use sqlx::{Error, Executor, Row};

use super::condition::{RowCondition, Sorting};
use super::statement::StatementWriter;
use super::{Model, read_all, select_from};
use crate::execute::DbExecutor;

/// A query of the rows of a model: [`Model::query`].
#[must_use = "a query runs by `all`, `first`, `page`, `count` or `delete`"]
pub struct Select<M> {
    conditions: Vec<RowCondition<M>>,
    order: Vec<Sorting<M>>,
    limit: Option<u64>,
    offset: u64,
    model: PhantomData<fn() -> M>,
}

/// Some rows of a query, and how many there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelPage<M> {
    /// The rows of this page.
    pub items: Vec<M>,
    /// The number of this page, from 1.
    pub number: u64,
    /// The most rows of a page.
    pub size: u64,
    /// The number of all rows.
    pub total: u64,
}

impl<M> ModelPage<M> {
    /// The number of pages.
    pub fn pages(&self) -> u64 {
        self.total.div_ceil(self.size.max(1))
    }
}

impl<M: Model> Select<M> {
    pub(super) fn new() -> Self {
        Self {
            conditions: Vec::new(),
            order: Vec::new(),
            limit: None,
            offset: 0,
            model: PhantomData,
        }
    }

    /// Only rows for which this holds, too.
    pub fn filter(mut self, condition: RowCondition<M>) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Sorts the rows; by the next column those that are equal in the first one. Without, and at last, they are sorted by
    /// their keys, so that pages are stable.
    pub fn order_by(mut self, sorting: Sorting<M>) -> Self {
        self.order.push(sorting);
        self
    }

    /// At most this many rows.
    pub fn limit(mut self, most: u64) -> Self {
        self.limit = Some(most);
        self
    }

    /// Skips rows.
    pub fn offset(mut self, skipped: u64) -> Self {
        self.offset = skipped;
        self
    }

    /// The rows.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future is `Send` whatever the executor is"
    )]
    pub fn all<'e>(
        self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<Vec<M>, Error>> + Send {
        async move {
            let mut statement = select_from::<M>(db.system());
            self.write_conditions(&mut statement);
            statement.text(" ORDER BY ");
            for sorting in &self.order {
                sorting.write(&mut statement);
                statement.text(", ");
            }
            statement.name(M::KEY);
            if self.limit.is_some() || self.offset > 0 {
                let limit = self.limit.unwrap_or(i64::MAX.unsigned_abs());
                statement.text(&format!(" LIMIT {limit} OFFSET {}", self.offset));
            }
            read_all(db, statement).await
        }
    }

    /// The first row.
    pub fn first<'e>(
        self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<Option<M>, Error>> + Send {
        let rows = self.limit(1).all(db);
        async move { Ok(rows.await?.into_iter().next()) }
    }

    /// The rows of a page, from 1, and the number of all rows, by two statements. A limit or an offset of the query does
    /// not count.
    #[expect(
        clippy::manual_async_fn,
        reason = "the future is `Send` whatever the executor is"
    )]
    pub fn page<'e>(
        self,
        db: impl DbExecutor<'e>,
        number: u64,
        size: u64,
    ) -> impl Future<Output = Result<ModelPage<M>, Error>> + Send {
        async move {
            let (number, size) = (number.max(1), size.max(1));
            let total = self.count(db).await?;
            let most = i64::MAX.unsigned_abs();
            let skipped = number.saturating_sub(1).saturating_mul(size).min(most);
            let items = self.limit(size.min(most)).offset(skipped).all(db).await?;
            Ok(ModelPage {
                items,
                number,
                size,
                total,
            })
        }
    }

    /// The number of all rows. A limit or an offset does not count.
    pub fn count<'e, E: DbExecutor<'e>>(
        &self,
        db: E,
    ) -> impl Future<Output = Result<u64, Error>> + Send + use<'e, E, M> {
        let mut statement = StatementWriter::new(db.system(), "SELECT COUNT(*) FROM ");
        statement.name(M::TABLE);
        self.write_conditions(&mut statement);
        async move {
            let row = Executor::fetch_one(db, statement.finish()?).await?;
            let count: i64 = row.try_get(0)?;
            Ok(count.unsigned_abs())
        }
    }

    /// Removes all rows for which the conditions hold, and returns their number. The order, a limit and an offset do not
    /// count.
    pub fn delete<'e>(
        self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<u64, Error>> + Send {
        let mut statement = StatementWriter::new(db.system(), "DELETE FROM ");
        statement.name(M::TABLE);
        self.write_conditions(&mut statement);
        async move {
            let done = Executor::execute(db, statement.finish()?).await?;
            Ok(done.rows_affected())
        }
    }

    fn write_conditions(&self, statement: &mut StatementWriter) {
        for (index, condition) in self.conditions.iter().enumerate() {
            statement.text(if index == 0 { " WHERE " } else { " AND " });
            condition.write(statement);
        }
    }
}

impl<M> fmt::Debug for Select<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select")
            .field("conditions", &self.conditions)
            .field("order", &self.order)
            .field("limit", &self.limit)
            .field("offset", &self.offset)
            .finish()
    }
}
