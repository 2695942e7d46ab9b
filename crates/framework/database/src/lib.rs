//! Databases through sqlx: SQLite, PostgreSQL, MariaDB and MySQL.
//!
//! [`Db`] is a database by its address. It has one pool of connections for each worker, so that a
//! connection is used only on the thread that reads it:
//!
//! ```no_run
//! use apus::sql::{Db, sqlx};
//! use apus::{App, Path, State, StatusCode};
//!
//! async fn name(State(db): State<Db>, Path(id): Path<i64>) -> apus::Result<Option<String>> {
//!     Ok(sqlx::query_scalar(db.sql("SELECT name FROM users WHERE id = ?"))
//!         .bind(id)
//!         .fetch_optional(&db)
//!         .await?)
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let db: Db = Db::open("sqlite:shop.db")?;
//!     db.migrate("migrations")?;
//!     App::new().state(db).get("/users/{id}", name).serve("127.0.0.1:8080")?;
//!     Ok(())
//! }
//! ```
//!
//! Statements run on `&Db`, by the functions of sqlx; on a [`Tx`], which the layer [`Transactions`] gives each request; or
//! by a [`Model`], a struct that is a row of a table.
//!
//! The crate sqlx is exported as [`sqlx`]. Its macros, as `#[derive(sqlx::FromRow)]`, need it as a dependency of
//! the application, in the same version.
//!
//! # Which database
//!
//! `Db` alone is `Db<Any>`: the address determines the database system at run time, and values are
//! integers, floating point numbers, booleans, text and bytes. [`Db::sql`] writes the parameters `?`
//! of a statement in the syntax of the database. An application for one system can name it, as
//! `Db<Sqlite>`: it can use all types that sqlx has for that system, and is somewhat faster.
//!
//! The addresses are those of sqlx: `sqlite:shop.db`, `postgres://user:password@host/database`,
//! `mysql://user:password@host/database?socket=/run/mysqld/mysqld.sock`. An SQLite database is
//! created if it does not exist, with a write-ahead log (`journal_mode=WAL`).
//!
//! Accounts of MySQL that log in by `caching_sha2_password` need TLS or a Unix socket. TLS is
//! rustls with aws-lc-rs.

#![forbid(unsafe_code)]

mod commands;
mod connection;
mod db;
mod driver;
mod error;
mod execute;
mod migrations;
mod model;
mod parameters;
mod queries;
mod statements;
mod test_database;
mod transaction;

#[doc(hidden)]
pub use apus_macros::embedded;
pub use commands::Commands;
pub use connection::DbConnection;
pub use db::Db;
#[doc(hidden)]
pub use driver::StatementValue;
pub use driver::{Driver, System};
pub use error::{DbError, into_error};
pub use execute::DbExecutor;
pub use migrations::{MigrationState, MigrationStatus, Migrations};
pub use model::{
    Column, ColumnValue, ForeignKey, Model, ModelPage, Related, RowCondition, Select, Sorting,
    SqlValue,
};
pub use queries::QueryLog;
pub use test_database::TestDatabase;
pub use transaction::{Transactions, Tx};

pub use sqlx;
pub use sqlx::{Any, MySql, Postgres, Sqlite};
