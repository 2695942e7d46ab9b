//! `EmptyDatabase`: a new database of SQLite, PostgreSQL or MariaDB for one test.

use crate::database::{DatabaseKind, DatabaseServer};
use crate::process::may_start_servers;

/// A new, empty database. Databases of PostgreSQL and MariaDB are on the servers that the tests of a process share.
pub struct EmptyDatabase {
    /// Its address, as `sqlite:/tmp/x/test.db` or `postgres://...`.
    pub address: String,
    server: Option<DatabaseKind>,
    /// The folder of the file of SQLite.
    _folder: Option<tempfile::TempDir>,
}

impl EmptyDatabase {
    /// A file of SQLite, which this value removes at its end.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self {
            address: format!("sqlite:{}", folder.path().join("test.db").display()),
            server: None,
            _folder: Some(folder),
        }
    }

    /// A database of PostgreSQL.
    pub fn postgres() -> Self {
        Self::on(DatabaseKind::Postgres)
    }

    /// A database of MariaDB.
    pub fn mariadb() -> Self {
        Self::on(DatabaseKind::MariaDb)
    }

    /// One of each: SQLite, and PostgreSQL and MariaDB where the tests [may start them](may_start_servers).
    pub fn of_each() -> Vec<Self> {
        let mut all = vec![Self::sqlite()];
        if may_start_servers() {
            all.extend([Self::postgres(), Self::mariadb()]);
        }
        all
    }

    /// Another one of the same system.
    pub fn another(&self) -> Self {
        match self.server {
            Some(kind) => Self::on(kind),
            None => Self::sqlite(),
        }
    }

    fn on(kind: DatabaseKind) -> Self {
        Self {
            address: DatabaseServer::shared(kind).create_database(),
            server: Some(kind),
            _folder: None,
        }
    }
}
