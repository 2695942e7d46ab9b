//! `DbError`: a database that cannot be opened or migrated.

use std::any::Any;
use std::error::Error;
use std::fmt;

use apus_http::{HeaderValue, StatusCode, header};
use sqlx::migrate::MigrateError;

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
        /// The file and line of the statement, as far as they are known, or the folder with the migrations.
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
                write!(f, "{address:?} is not the address of a database: {cause}")
            }
            Self::Unreachable { address, cause } => {
                write!(f, "the database {address} cannot be reached: {cause}")
            }
            Self::MigrationFiles { problem } => {
                write!(f, "the migrations are not valid: {problem}")
            }
            Self::Migration {
                from,
                address,
                cause,
            } => write!(
                f,
                "the migrations of {from} cannot be run on {address}: {cause}"
            ),
        }
    }
}

impl Error for DbError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Address { cause, .. } | Self::Unreachable { cause, .. } => Some(cause),
            Self::MigrationFiles { .. } => None,
            Self::Migration { cause, .. } => Some(cause),
        }
    }
}

/// The error of a request whose statement failed, of an [`sqlx::Error`]: 503 with `Retry-After` if the database
/// cannot be reached, else 500. `None` for any other type.
pub fn into_error(error: Box<dyn Any>) -> Option<apus_handler::Error> {
    let error = error.downcast::<sqlx::Error>().ok()?;
    let response = match is_unavailable(&error) {
        true => apus_handler::Error::of(StatusCode::SERVICE_UNAVAILABLE)
            .header(header::RETRY_AFTER, HeaderValue::from_static("5")),
        false => apus_handler::Error::of(StatusCode::INTERNAL_SERVER_ERROR),
    };
    Some(response.caused_by(*error))
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
