//! Databases of the tests, and migrations for each system.

use std::fs;

use apus_database::{Db, Driver};
use apus_testkit::EmptyDatabase;

/// The database by the driver of any system.
pub(crate) fn open(database: &EmptyDatabase) -> Db {
    open_as(database)
}

/// The database by the driver of its system.
pub(crate) fn open_as<D: Driver>(database: &EmptyDatabase) -> Db<D> {
    Db::open(&database.address).unwrap()
}

/// Migrations for all three systems, which differ only in the table.
pub(crate) fn migrations() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (system, id) in [
        ("sqlite", "INTEGER PRIMARY KEY AUTOINCREMENT"),
        (
            "postgres",
            "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
        ),
        ("mysql", "BIGINT AUTO_INCREMENT PRIMARY KEY"),
    ] {
        let folder = folder.path().join(system);
        fs::create_dir(&folder).unwrap();
        let table = format!("CREATE TABLE users (id {id}, name VARCHAR(80) NOT NULL);");
        fs::write(folder.join("0001_users.sql"), table).unwrap();
        let names = "INSERT INTO users (name) VALUES ('Apus apus');";
        fs::write(folder.join("0002_names.sql"), names).unwrap();
    }
    folder
}
