//! Empty databases for tests.

use apus::sql::{Db, Driver, System};
use apus_testkit::{DatabaseKind, DatabaseServer};

/// A new, empty database.
pub(crate) struct Fresh {
    pub(crate) address: String,
    /// The folder of a database file.
    _folder: Option<tempfile::TempDir>,
}

impl Fresh {
    pub(crate) fn of(system: System) -> Self {
        let kind = match system {
            System::Postgres => DatabaseKind::Postgres,
            System::MySql => DatabaseKind::MariaDb,
            System::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                let address = format!("sqlite:{}", folder.path().join("test.db").display());
                return Self {
                    address,
                    _folder: Some(folder),
                };
            }
        };
        Self {
            address: DatabaseServer::shared(kind).create_database(),
            _folder: None,
        }
    }

    /// A database of each system.
    pub(crate) fn of_each() -> [Self; 3] {
        [System::Sqlite, System::Postgres, System::MySql].map(Self::of)
    }

    pub(crate) fn db(&self) -> Db {
        Db::open(&self.address).unwrap()
    }

    /// The same by a driver of its system.
    pub(crate) fn typed<D: Driver>(&self) -> Db<D> {
        Db::open(&self.address).unwrap()
    }
}
