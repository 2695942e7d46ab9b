//! `DbError`: a database that cannot be opened or migrated.

use std::error::Error;
use std::fmt;

use sqlx::migrate::MigrateError;

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
    /// A migration failed.
    Migration {
        /// The folder with the migrations.
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
            Self::Migration { cause, .. } => Some(cause),
        }
    }
}
