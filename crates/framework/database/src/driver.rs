//! The supported databases: their addresses, and the settings of new connections.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::str::FromStr;
use std::time::Duration;

use apus_http::url::split_scheme;
use apus_private_files::{PrivateFiles, register};
use sqlx::any::AnyConnectOptions;
use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::postgres::{PgDatabaseError, PgErrorPosition};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{Any, AssertSqlSafe, Connection, Database, Executor, MySql, Postgres, SqlStr, Sqlite};

/// A database system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum System {
    /// SQLite, in the process.
    Sqlite,
    /// PostgreSQL.
    Postgres,
    /// MariaDB or MySQL.
    MySql,
}

impl System {
    pub(crate) fn of(address: &str) -> Option<Self> {
        match address.split_once(':')?.0 {
            "sqlite" => Some(Self::Sqlite),
            "postgres" | "postgresql" => Some(Self::Postgres),
            "mysql" | "mariadb" => Some(Self::MySql),
            _ => None,
        }
    }

    /// The folder of its migrations.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
        }
    }
}

impl fmt::Display for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MariaDB",
        })
    }
}

/// A driver of sqlx: [`Any`], [`Sqlite`], [`Postgres`] or [`MySql`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a database that `Db` supports",
    note = "use `Db` for any, or `Db<Sqlite>`, `Db<Postgres>`, `Db<MySql>`"
)]
pub trait Driver: Database + sealed::Sealed {
    /// The connection options of an address.
    #[doc(hidden)]
    fn options(address: &str) -> Result<<Self::Connection as Connection>::Options, sqlx::Error>;

    /// Configures a new connection.
    #[doc(hidden)]
    fn set_up(connection: &mut Self::Connection, system: System) -> SetUp<'_>;

    /// Runs the migrations that did not run yet.
    #[doc(hidden)]
    fn migrate(
        connection: &mut Self::Connection,
        migrator: &Migrator,
    ) -> impl Future<Output = Result<(), MigrateError>>;

    /// Runs a statement without parameters.
    #[doc(hidden)]
    fn run(
        connection: &mut Self::Connection,
        statement: &str,
    ) -> impl Future<Output = Result<(), sqlx::Error>>;

    /// Runs the statements of a text; if one fails, it returns how many ran before.
    #[doc(hidden)]
    fn run_all(
        connection: &mut Self::Connection,
        text: &str,
    ) -> impl Future<Output = Result<(), (usize, sqlx::Error)>>;

    /// Runs a statement with parameters, and returns how many rows it changed.
    #[doc(hidden)]
    fn change<'e>(
        executor: impl Executor<'e, Database = Self>,
        statement: SqlStr,
        values: Vec<StatementValue>,
    ) -> impl Future<Output = Result<u64, sqlx::Error>>;

    /// The connection as one that runs migrations.
    #[doc(hidden)]
    fn migrator(connection: &mut Self::Connection) -> &mut dyn Migrate;

    /// The offset in a text that an error of the database names: PostgreSQL counts characters from 1.
    #[doc(hidden)]
    fn error_offset(error: &sqlx::Error, text: &str) -> Option<usize> {
        let error = error.as_database_error()?;
        let error = error.try_downcast_ref::<PgDatabaseError>()?;
        let PgErrorPosition::Original(position) = error.position()? else {
            return None;
        };
        let mut offsets = text.char_indices().map(|(offset, _)| offset);
        offsets.nth(position.checked_sub(1)?)
    }
}

/// A parameter of [`Driver::change`].
#[doc(hidden)]
#[derive(Clone, Debug)]
pub enum StatementValue {
    Text(String),
    Integer(i64),
}

type SetUp<'c> = Pin<Box<dyn Future<Output = Result<(), sqlx::Error>> + Send + 'c>>;

mod sealed {
    pub trait Sealed {}
    impl Sealed for sqlx::Any {}
    impl Sealed for sqlx::Sqlite {}
    impl Sealed for sqlx::Postgres {}
    impl Sealed for sqlx::MySql {}
}

/// What is the same for each driver.
macro_rules! statements {
    () => {
        async fn migrate(
            connection: &mut Self::Connection,
            migrator: &Migrator,
        ) -> Result<(), MigrateError> {
            migrator.run(connection).await
        }

        async fn run(
            connection: &mut Self::Connection,
            statement: &str,
        ) -> Result<(), sqlx::Error> {
            let statement = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
            statement.execute(connection).await.map(|_| ())
        }

        async fn run_all(
            connection: &mut Self::Connection,
            text: &str,
        ) -> Result<(), (usize, sqlx::Error)> {
            let text = sqlx::raw_sql(AssertSqlSafe(text.to_owned()));
            let mut results = text.execute_many(connection);
            let mut done = 0_usize;
            while let Some(result) = poll_fn(|cx| results.as_mut().poll_next(cx)).await {
                result.map_err(|error| (done, error))?;
                done = done.saturating_add(1);
            }
            Ok(())
        }

        async fn change<'e>(
            executor: impl Executor<'e, Database = Self>,
            statement: SqlStr,
            values: Vec<StatementValue>,
        ) -> Result<u64, sqlx::Error> {
            let mut query = sqlx::query(statement);
            for value in values {
                query = match value {
                    StatementValue::Text(text) => query.bind(text),
                    StatementValue::Integer(number) => query.bind(number),
                };
            }
            Ok(query.execute(executor).await?.rows_affected())
        }

        fn migrator(connection: &mut Self::Connection) -> &mut dyn Migrate {
            connection
        }
    };
}

impl Driver for Any {
    fn options(address: &str) -> Result<AnyConnectOptions, sqlx::Error> {
        sqlx::any::install_default_drivers();
        let is_sqlite = System::of(address) == Some(System::Sqlite);
        if is_sqlite && let Ok(options) = SqliteConnectOptions::from_str(address) {
            register(PrivateFiles::default().file(options.get_filename()));
        }
        if is_sqlite && !address.contains("mode=") {
            let sign = if address.contains('?') { '&' } else { '?' };
            return AnyConnectOptions::from_str(&format!("{address}{sign}mode=rwc"));
        }
        AnyConnectOptions::from_str(address)
    }

    fn set_up(connection: &mut Self::Connection, system: System) -> SetUp<'_> {
        Box::pin(async move {
            if system == System::Sqlite {
                let settings = "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;";
                // It fails for a read-only database, which then stays as it is.
                if let Err(error) = connection.execute(settings).await {
                    tracing::debug!(%error, "SQLite does not use a write-ahead log");
                }
            }
            Ok(())
        })
    }

    statements!();
}

impl Driver for Sqlite {
    fn options(address: &str) -> Result<SqliteConnectOptions, sqlx::Error> {
        let options = SqliteConnectOptions::from_str(address)?
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Normal)
            .busy_timeout(Duration::from_secs(5));
        register(PrivateFiles::default().file(options.get_filename()));
        Ok(if address.contains("mode=") {
            options
        } else {
            options.create_if_missing(true)
        })
    }

    fn set_up(_: &mut Self::Connection, _: System) -> SetUp<'_> {
        Box::pin(std::future::ready(Ok(())))
    }

    statements!();
}

macro_rules! over_the_network {
    ($($driver:ty),*) => {$(
        impl Driver for $driver {
            fn options(
                address: &str,
            ) -> Result<<Self::Connection as Connection>::Options, sqlx::Error> {
                FromStr::from_str(address)
            }

            fn set_up(_: &mut Self::Connection, _: System) -> SetUp<'_> {
                Box::pin(std::future::ready(Ok(())))
            }

            statements!();
        }
    )*};
}

over_the_network!(Postgres, MySql);

/// An address without its password, for logs.
pub(crate) fn shown(address: &str) -> String {
    let (address, query) = match address.split_once('?') {
        Some((address, query)) => (address, Some(query)),
        None => (address, None),
    };
    let without = || {
        let (scheme, rest) = split_scheme(address)?;
        // An unencoded password can contain `/` or `@`.
        let (user, host) = rest.rsplit_once('@')?;
        let user = user.split_once(':').map_or(user, |(user, _)| user);
        Some(format!("{scheme}://{user}@{host}"))
    };
    let shown = without().unwrap_or_else(|| address.to_owned());
    // The query can contain a password as well.
    match query {
        Some(query) if !query.contains("pass") => format!("{shown}?{query}"),
        _ => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_removed_from_addresses() {
        for (address, text) in [
            ("sqlite:shop.db", "sqlite:shop.db"),
            ("postgres://a:b@c/d?x=y", "postgres://a@c/d?x=y"),
            ("mysql://a:b@c@d:1/e", "mysql://a@d:1/e"),
            ("mysql://a:p/q@host/e", "mysql://a@host/e"),
            ("postgres://a@c", "postgres://a@c"),
            ("postgres:///d?user=a&password=b", "postgres:///d"),
        ] {
            assert_eq!(shown(address), text);
        }
    }

    #[test]
    fn the_address_names_the_system() {
        assert_eq!(System::of("sqlite:a"), Some(System::Sqlite));
        assert_eq!(System::of("postgresql://a"), Some(System::Postgres));
        assert_eq!(System::of("mariadb://a"), Some(System::MySql));
        assert_eq!(System::of("shop.db"), None);
    }
}
