//! Databases through sqlx: SQLite, PostgreSQL, MariaDB and MySQL.
//!
//! [`Db`] is a database by its address. It has one pool of connections for each worker, so that a
//! connection is used only on the thread that reads it:
//!
//! ```no_run
//! use apus_database::{Db, sqlx};
//! use apus_handler::{HandlerService, Query, Result, State};
//!
//! #[derive(serde::Deserialize)]
//! struct User {
//!     id: i64,
//! }
//!
//! async fn name(State(db): State<Db>, Query(User { id }): Query<User>) -> Result<Option<String>> {
//!     Ok(sqlx::query_scalar(db.sql("SELECT name FROM users WHERE id = ?"))
//!         .bind(id)
//!         .fetch_optional(&db)
//!         .await?)
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let db: Db = Db::open("sqlite:shop.db")?;
//!     db.migrate("migrations")?;
//!     let service = HandlerService::new(name).state(db);
//!     # let _ = service;
//!     Ok(())
//! }
//! ```
//!
//! The package `apus` exports this crate as `apus::sql`, and its `App` has a `Db` as state.
//!
//! Statements run on `&Db`, by the functions of sqlx; on a [`Tx`], which the layer [`Transactions`] gives each request;
//! or by a [`Model`], a struct that is a row of a table.
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
//! sqlx defines the form of addresses: `sqlite:shop.db`, `postgres://user:password@host/database`,
//! `mysql://user:password@host/database?socket=/run/mysqld/mysqld.sock`. An SQLite database is
//! created if it does not exist, with a write-ahead log (`journal_mode=WAL`).
//!
//! Accounts of MySQL that log in by `caching_sha2_password` need TLS or a Unix socket. TLS is
//! rustls with aws-lc-rs.
//!
//! # Modules
//!
//! - `db`, `connection`, `execute`: a pool of each worker, and statements on it. `statements`, `queries`: their log and
//!   count.
//! - `transaction`: transactions of requests. `model`: rows as structs, with the derive in
//!   `crates/framework/macros/src/model.rs`.
//! - `migrations`, `commands`: migrations, and the commands `db migrate`, `db status` and others;
//!   `apus db` is in `crates/tools/cli/src/project_database.rs`.
//! - `test_database`: a database for each test.
//!
//! # Decisions
//!
//! - **Statements run on `&Db`, not on the pool of sqlx** (`execute`). The pool tries a connection that is refused
//!   again until its time is over, and has no place for a counter. `&Db` and `&Tx` are executors of sqlx, so the
//!   functions of sqlx stay the interface. The crate enables the feature `offline` of sqlx, which its macros need: it
//!   adds a function to the trait `Executor`, and one application with the macros would break the others.
//! - **Models are a derive of 1,300 lines over sqlx, not an ORM** (`model`). SeaORM 2.0.4 needs the same sqlx as Apus
//!   (0.9) and works beside it, on the pool of a `Db<Postgres>`. It is not built in because it has no connections of
//!   `Any`: an application would have two pools for each worker, and a transaction of a request would be of one of
//!   them. It brings 21 more crates. toasty 0.11 cannot be in one program with sqlx: its driver rusqlite links another
//!   version of SQLite (libsqlite3-sys 0.38, sqlx has 0.37), and PostgreSQL and MariaDB would have second drivers.
//!   Models stop where SQL begins: they have no joins, and a statement that needs one is written as SQL, and read by
//!   `sqlx::query_as`.
//!
//! # Tests
//!
//! `tests/it`, most of them on SQLite, PostgreSQL and MariaDB; `servers` is about the latter two. An application with a
//! database is in `crates/framework/web/tests/it/sql.rs`. Sessions in a database are in
//! `crates/framework/web/src/session/sql.rs`.

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
