//! `Model`: a struct that is a row of a table.

mod condition;
mod related;
mod select;
mod statement;
mod value;

use std::future::Future;
use std::hash::Hash;

use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Error, Executor, FromRow};

pub use apus_macros::Model;
pub use condition::{Column, RowCondition, Sorting};
pub use related::Related;
pub use select::{ModelPage, Select};
use statement::StatementWriter;
pub use value::{ColumnValue, ForeignKey, SqlValue};

use crate::driver::System;
use crate::execute::DbExecutor;

/// A row of a table, which `#[derive(Model)]` makes of a struct.
///
/// ```
/// use apus_database::{Db, Model, Related, sqlx};
///
/// #[derive(Clone, Debug, Model)]
/// # #[model(crate = "apus_database")]
/// struct User {
///     id: i64,
///     name: String,
///     email: Option<String>,
/// }
///
/// #[derive(Clone, Debug, Model)]
/// #[model(table = "articles")]
/// # #[model(crate = "apus_database")]
/// struct Post {
///     id: i64,
///     user_id: i64,
///     title: String,
/// }
///
/// async fn posts_of_some(db: &Db) -> sqlx::Result<Vec<(User, Vec<Post>)>> {
///     let ada = User { id: 0, name: "Ada".into(), email: None }.insert(db).await?;
///     let found = User::find(db, ada.id).await?;
///     assert_eq!(found.map(|user| user.name).as_deref(), Some("Ada"));
///     let users = User::query()
///         .filter(User::NAME.like("A%").and(User::EMAIL.eq(None)))
///         .order_by(User::NAME.asc())
///         .limit(20)
///         .all(db)
///         .await?;
///     // Two statements, however many users there are.
///     let posts = users.has_many(db, Post::USER_ID).await?;
///     Ok(users.into_iter().zip(posts).collect())
/// }
/// ```
///
/// The table is the plural of the type in lower case, as `users` of `User` and `order_lines` of `OrderLine`, or the name in
/// `#[model(table = "..")]`. Each field is a column of its name, or of `#[model(column = "..")]`, unless `#[model(skip)]`
/// leaves it out, and has a constant such as `User::NAME`. The key is the field `id`, or the field with `#[model(key)]`. If
/// it is an integer, the database makes it when a row is inserted, unless the field has `#[model(assigned)]`.
///
/// A program without the package `apus` names this crate: `#[model(crate = "apus_database")]`.
///
/// `#[derive(Model)]` implements `sqlx::FromRow`, too, so `sqlx::query_as` reads models by statements of your own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no model",
    label = "this is no row of a table",
    note = "write `#[derive(Model)]` above the struct"
)]
pub trait Model: for<'r> FromRow<'r, AnyRow> + Send + Sync + Unpin + 'static {
    /// The type of the key.
    type Key: ColumnValue + Eq + Hash;

    /// The name of the table.
    const TABLE: &'static str;

    /// The names of the columns.
    const COLUMNS: &'static [&'static str];

    /// The name of the column of the key.
    const KEY: &'static str;

    /// Whether the program chooses the keys of new rows.
    #[doc(hidden)]
    const IS_KEY_ASSIGNED: bool;

    /// The key of this row.
    fn key(&self) -> &Self::Key;

    /// Sets the key that the database made.
    #[doc(hidden)]
    fn set_key(&mut self, key: Self::Key);

    /// The values, in the order of the columns.
    #[doc(hidden)]
    fn values(&self) -> Vec<SqlValue>;

    /// The row with this key.
    fn find<'e>(
        db: impl DbExecutor<'e>,
        key: impl Into<Self::Key>,
    ) -> impl Future<Output = Result<Option<Self>, Error>> + Send {
        let key = key.into().to_value();
        async move {
            let mut statement = select_from::<Self>(db.system());
            statement.text(" WHERE ");
            statement.name(Self::KEY);
            statement.text(" = ");
            statement.value(key);
            let row = Executor::fetch_optional(db, statement.finish()?).await?;
            row.map(|row| Self::from_row(&row)).transpose()
        }
    }

    /// The first row whose column has this value, in the order of the keys.
    fn find_by<'e, T: ColumnValue>(
        db: impl DbExecutor<'e>,
        column: Column<Self, T>,
        value: impl Into<T>,
    ) -> impl Future<Output = Result<Option<Self>, Error>> + Send {
        Self::query().filter(column.eq(value)).first(db)
    }

    /// All rows, in the order of their keys.
    fn all<'e>(db: impl DbExecutor<'e>) -> impl Future<Output = Result<Vec<Self>, Error>> + Send {
        Self::query().all(db)
    }

    /// A query of rows.
    fn query() -> Select<Self> {
        Select::new()
    }

    /// Adds the row to the table, and returns it with the key that the database made.
    fn insert<'e>(
        mut self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<Self, Error>> + Send {
        async move {
            let system = db.system();
            let mut statement = StatementWriter::new(system, "INSERT INTO ");
            statement.name(Self::TABLE);
            let columns = Self::COLUMNS.iter().zip(self.values());
            let is_written = |name: &str| Self::IS_KEY_ASSIGNED || name != Self::KEY;
            let columns: Vec<_> = columns.filter(|(name, _)| is_written(name)).collect();
            if columns.is_empty() {
                statement.text(match system {
                    System::MySql => " () VALUES ()",
                    System::Sqlite | System::Postgres => " DEFAULT VALUES",
                });
            } else {
                statement.text(" (");
                statement.list(&columns, |statement, (name, _)| statement.name(name));
                statement.text(") VALUES (");
                statement.list(columns, |statement, (_, value)| statement.value(value));
                statement.text(")");
            }
            if Self::IS_KEY_ASSIGNED {
                Executor::execute(db, statement.finish()?).await?;
                return Ok(self);
            }
            let key = if system == System::MySql {
                let done = Executor::execute(db, statement.finish()?).await?;
                done.last_insert_id().and_then(Self::Key::of_new_key)
            } else {
                statement.text(" RETURNING ");
                statement.name(Self::KEY);
                let row = Executor::fetch_one(db, statement.finish()?).await?;
                Some(Self::Key::read(&row, Self::KEY)?)
            };
            let no_key = || Error::Decode("the database made no key for the row".into());
            self.set_key(key.ok_or_else(no_key)?);
            Ok(self)
        }
    }

    /// Writes all columns of the row with the key. Returns whether there is one.
    fn update<'e>(
        &self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        let columns = Self::COLUMNS.iter().zip(self.values());
        let columns: Vec<_> = columns.filter(|(name, _)| **name != Self::KEY).collect();
        let key = self.key().to_value();
        async move {
            let mut statement = StatementWriter::new(db.system(), "UPDATE ");
            statement.name(Self::TABLE);
            statement.text(" SET ");
            statement.list(columns, |statement, (name, value)| {
                statement.name(name);
                statement.text(" = ");
                statement.value(value);
            });
            change_row::<Self>(db, statement, key).await
        }
    }

    /// Removes the row with the key. Returns whether there was one.
    fn delete<'e>(
        &self,
        db: impl DbExecutor<'e>,
    ) -> impl Future<Output = Result<bool, Error>> + Send {
        let key = self.key().to_value();
        async move {
            let mut statement = StatementWriter::new(db.system(), "DELETE FROM ");
            statement.name(Self::TABLE);
            change_row::<Self>(db, statement, key).await
        }
    }
}

/// Runs a statement on the row with this key. Returns whether there is one.
async fn change_row<'e, M: Model>(
    db: impl DbExecutor<'e>,
    mut statement: StatementWriter,
    key: SqlValue,
) -> Result<bool, Error> {
    statement.text(" WHERE ");
    statement.name(M::KEY);
    statement.text(" = ");
    statement.value(key);
    let done = Executor::execute(db, statement.finish()?).await?;
    Ok(done.rows_affected() > 0)
}

/// `SELECT` the columns `FROM` the table.
fn select_from<M: Model>(system: System) -> StatementWriter {
    let mut statement = StatementWriter::new(system, "SELECT ");
    statement.list(M::COLUMNS, |statement, name| statement.name(name));
    statement.text(" FROM ");
    statement.name(M::TABLE);
    statement
}

/// Reads all rows of a statement.
async fn read_all<'e, M: Model>(
    db: impl DbExecutor<'e>,
    statement: StatementWriter,
) -> Result<Vec<M>, Error> {
    let statement: (AssertSqlSafe<String>, _) = statement.finish()?;
    let rows = Executor::fetch_all(db, statement).await?;
    rows.iter().map(M::from_row).collect()
}
