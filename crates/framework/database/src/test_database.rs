//! `TestDatabase`: a new database for each test, which is removed at its end.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use apus_http::url::split_scheme;
use sqlx::{Any, Connection};

use crate::db::Db;
use crate::driver::{Driver, System};
use crate::error::DbError;
use crate::migrations::Migrations;

/// An empty database with the tables of the migrations, for one test. Tests run in parallel, commit, and see nothing of one
/// another. Dropping it removes the database.
///
/// ```no_run
/// use apus_database::{TestDatabase, sqlx};
///
/// # async fn test() -> sqlx::Result<()> {
/// let database = TestDatabase::new("sqlite:", "migrations");
/// let users: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM users").fetch_one(&database.db()).await?;
/// assert_eq!(users, 0);
/// # Ok(())
/// # }
/// ```
pub struct TestDatabase {
    db: Db,
    address: String,
    /// The database that is asked to create and remove it; none for SQLite.
    server: Option<(Db, String)>,
    /// The folder of SQLite.
    _folder: Option<tempfile::TempDir>,
}

impl TestDatabase {
    /// A new database. For `sqlite:` it is a file in a new folder. For `postgres://user@host/database` and
    /// `mysql://user@host/database` it is beside the one that the address names, on the same server, under a name that begins
    /// with `apus_test_`; the account has to be allowed to create it.
    ///
    /// # Panics
    /// The database cannot be created, or a migration fails: the test fails with the reason.
    #[track_caller]
    pub fn new(address: &str, migrations: impl Into<Migrations>) -> Self {
        Self::create(address, &migrations.into()).unwrap_or_else(|error| fail(&error))
    }

    fn create(address: &str, migrations: &Migrations) -> Result<Self, DbError> {
        let created = if System::of(address) == Some(System::Sqlite) {
            let folder = tempfile::Builder::new().prefix("apus-test-").tempdir();
            let folder = folder.map_err(|cause| DbError::Unreachable {
                address: address.to_owned(),
                cause: sqlx::Error::Io(cause),
            })?;
            let address = format!("sqlite:{}", folder.path().join("test.db").display());
            Self {
                db: Db::open(&address)?,
                address,
                server: None,
                _folder: Some(folder),
            }
        } else {
            let server: Db = Db::open(address)?;
            let name = new_name();
            let address = with_database(address, &name).ok_or_else(|| DbError::Address {
                address: server.shown().to_owned(),
                cause: sqlx::Error::Configuration("it has to name a host and a database".into()),
            })?;
            let db = Db::open(&address)?;
            let charset = match server.system() {
                System::MySql => " CHARACTER SET utf8mb4",
                System::Sqlite | System::Postgres => "",
            };
            run(&server, &format!("CREATE DATABASE {name}{charset}"))?;
            Self {
                db,
                address,
                server: Some((server, name)),
                _folder: None,
            }
        };
        created.db.migrate(migrations)?;
        Ok(created)
    }

    /// The database, for the application and for statements of the test.
    pub fn db(&self) -> Db {
        self.db.clone()
    }

    /// Its address, for example for `Db<Postgres>`.
    pub fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for TestDatabase {
    fn drop(&mut self) {
        let Some((server, name)) = &self.server else {
            return;
        };
        // The pools of workers may still have connections.
        let force = match server.system() {
            System::Postgres => " WITH (FORCE)",
            System::Sqlite | System::MySql => "",
        };
        if let Err(error) = run(server, &format!("DROP DATABASE {name}{force}")) {
            tracing::warn!(%error, name, "a database of a test stays");
        }
    }
}

impl fmt::Debug for TestDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TestDatabase").field(&self.db).finish()
    }
}

/// Fails the test.
#[track_caller]
#[expect(clippy::panic, reason = "it is a part of a test")]
fn fail(error: &DbError) -> ! {
    panic!("{error}")
}

fn new_name() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH);
    let time = time.map_or(0, |time| time.as_nanos()) % 1_000_000_000_000;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    format!("apus_test_{}_{time}_{count}", std::process::id())
}

/// The address with another database.
fn with_database(address: &str, name: &str) -> Option<String> {
    let (address, query) = match address.split_once('?') {
        Some((address, query)) => (address, format!("?{query}")),
        None => (address, String::new()),
    };
    let (scheme, rest) = split_scheme(address)?;
    let (host, _) = rest.rsplit_once('/')?;
    Some(format!("{scheme}://{host}/{name}{query}"))
}

/// Runs a statement outside of the pools.
fn run(server: &Db, statement: &str) -> Result<(), DbError> {
    server.apart(async || {
        let mut connection = server.connect().await?;
        let result = Any::run(&mut connection, statement).await;
        let _ = connection.close().await;
        result.map_err(|cause| DbError::Unreachable {
            address: server.shown().to_owned(),
            cause,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_database_of_an_address_is_replaced() {
        for (address, expected) in [
            ("postgres://a:b@c/d?x=/y", Some("postgres://a:b@c/n?x=/y")),
            (
                "mysql://root@localhost:1/d",
                Some("mysql://root@localhost:1/n"),
            ),
            ("postgres://host", None),
        ] {
            assert_eq!(with_database(address, "n").as_deref(), expected);
        }
    }
}
