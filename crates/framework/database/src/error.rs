//! `DbError`: a database that cannot be opened or migrated.

use std::any::Any;
use std::error::Error;
use std::fmt;

use apus_http::{HeaderValue, StatusCode, header};
use sqlx::migrate::MigrateError;
use sqlx::postgres::PgDatabaseError;

use crate::connection::is_broken;

/// A database that cannot be used. The messages contain no passwords.
#[derive(Debug)]
#[non_exhaustive]
pub enum DbError {
    /// The address is not valid.
    Address {
        /// The address.
        address: String,
        /// What is wrong with it.
        cause: sqlx::Error,
    },
    /// The database cannot be reached.
    Unreachable {
        /// The address.
        address: String,
        /// Why.
        cause: sqlx::Error,
    },
    /// The files of the migrations are not valid.
    MigrationFiles {
        /// What is wrong, with the name of the file.
        problem: String,
    },
    /// A migration failed.
    Migration {
        /// The file and line of the statement, or the part of these that is known, or the folder with the migrations.
        from: String,
        /// The address.
        address: String,
        /// Why.
        cause: Box<MigrateError>,
    },
}

impl fmt::Display for DbError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address { address, cause } => {
                let cause = message_of(cause);
                write!(f, "{address:?} is not the address of a database: {cause}")
            }
            Self::Unreachable { address, cause } => {
                let cause = message_of(cause);
                write!(f, "the database {address} cannot be reached: {cause}")
            }
            Self::MigrationFiles { problem } => {
                write!(f, "the migrations are not valid: {problem}")
            }
            Self::Migration {
                from,
                address,
                cause,
            } => {
                let cause = match &**cause {
                    MigrateError::Execute(error) => {
                        format!("while executing migrations: {}", message_of(error))
                    }
                    MigrateError::ExecuteMigration(error, number) => {
                        let message = message_of(error);
                        // MariaDB counts lines from the start of the statement, and `from` has the line of the file.
                        let message = match message.rsplit_once(" at line ") {
                            Some((rest, line)) if line.parse::<u32>().is_ok() => rest,
                            _ => &message,
                        };
                        format!("while executing migration {number}: {message}")
                    }
                    other => other.to_string(),
                };
                write!(
                    f,
                    "the migrations of {from} cannot be run on {address}: {cause}"
                )
            }
        }
    }
}

/// The message contains the causes, so there is no further source.
impl Error for DbError {}

/// The message of an error. sqlx's message for PostgreSQL ends with a line in the sources of PostgreSQL, as if it were one of
/// the statement.
fn message_of(error: &sqlx::Error) -> String {
    let of_database = error.as_database_error();
    let Some(error) = of_database.and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
    else {
        return error.to_string();
    };
    let mut text = format!("error returned from database: {}", error.message());
    for (name, part) in [("detail", error.detail()), ("hint", error.hint())] {
        if let Some(part) = part {
            text += &format!("; {name}: {part}");
        }
    }
    text
}

/// An error of PostgreSQL in a handler, with its own message.
#[derive(Debug)]
struct PostgresError(sqlx::Error);

impl fmt::Display for PostgresError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&message_of(&self.0))
    }
}

impl Error for PostgresError {}

/// The error of a request whose statement failed, of an [`sqlx::Error`]: 503 with `Retry-After` if the database
/// cannot be reached, else 500. `None` for any other type.
pub fn into_error(error: Box<dyn Any>) -> Option<apus_handler::Error> {
    let error = error.downcast::<sqlx::Error>().ok()?;
    let response = if is_unavailable(&error) {
        apus_handler::Error::of(StatusCode::SERVICE_UNAVAILABLE)
            .header(header::RETRY_AFTER, HeaderValue::from_static("5"))
    } else {
        apus_handler::Error::of(StatusCode::INTERNAL_SERVER_ERROR)
    };
    let of_database = error.as_database_error();
    let is_postgres = of_database
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
        .is_some();
    Some(if is_postgres {
        response.caused_by(PostgresError(*error))
    } else {
        response.caused_by(*error)
    })
}

/// Whether the database cannot be reached, or accepts no connections now (SQLSTATE classes 08 and 57P, 53300).
fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
        sqlx::Error::Database(cause) if cause.code().is_some_and(|code| code == "53300") => true,
        sqlx::Error::Tls(_) | sqlx::Error::Protocol(_) => false,
        _ => is_broken(error),
    }
}
