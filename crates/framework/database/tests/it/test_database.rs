//! `TestDatabase`.

use apus_database::sqlx::{self, Connection, Row};
use apus_database::{Db, Migrations, System, TestDatabase, migrations};
use apus_handler::{HandlerService, Json, Result, State};
use apus_testkit::{EmptyDatabase, LocalClient, ask, block_on, get};

use crate::harness::open;

const MIGRATIONS: Migrations = migrations!("tests/it/migrations");

/// Adds a row.
fn add(db: Db) -> HandlerService {
    let add = async |State(db): State<Db>| -> Result<()> {
        let insert = "INSERT INTO countries (code, name) VALUES ('cl', 'Chile')";
        sqlx::query(insert).execute(&db).await?;
        Ok(())
    };
    HandlerService::new(add).state(db)
}

/// Counts the rows.
fn count(db: Db) -> HandlerService {
    let count = async |State(db): State<Db>| -> Result<Json<i64>> {
        let count = sqlx::query_scalar("SELECT COUNT(*) FROM countries");
        Ok(Json(count.fetch_one(&db).await?))
    };
    HandlerService::new(count).state(db)
}

#[test]
fn each_test_has_a_database_of_its_own_in_parallel() {
    for fresh in EmptyDatabase::of_each() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let database = TestDatabase::new(&fresh.address, MIGRATIONS);
                    let worker = LocalClient::of(&count(database.db()));
                    assert_eq!(worker.send(get("/")).text(), "0");
                    let adds = LocalClient::of(&add(database.db()));
                    assert_eq!(adds.send(ask("POST", "/")).status, 204);
                    assert_eq!(worker.send(get("/")).text(), "1");
                    // Other workers see what was committed.
                    for _ in 0..2 {
                        let other = LocalClient::of(&count(database.db()));
                        assert_eq!(other.send(get("/")).text(), "1");
                        assert_eq!(other.send(get("/")).text(), "1");
                    }
                });
            }
        });
        assert_eq!(left(&fresh), [""; 0], "{}", fresh.address);
    }
}

/// The databases of tests that are still there.
fn left(fresh: &EmptyDatabase) -> Vec<String> {
    let select = match open(fresh).system() {
        System::Sqlite => return Vec::new(),
        System::Postgres => {
            "SELECT datname::text FROM pg_database WHERE datname LIKE 'apus_test_%'"
        }
        System::MySql => {
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'apus_test_%'"
        }
    };
    block_on(async {
        let rows = sqlx::query(select).fetch_all(&open(fresh)).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    })
}

#[test]
fn the_file_of_sqlite_is_removed() {
    let database = TestDatabase::new("sqlite:", MIGRATIONS);
    let address = database.address().to_owned();
    let file = address.strip_prefix("sqlite:").unwrap();
    assert!(std::path::Path::new(file).exists());
    drop(database);
    assert!(!std::path::Path::new(file).exists());
    let connection = sqlx::SqliteConnection::connect(&address);
    assert!(block_on(connection).is_err());
}

#[test]
#[should_panic(expected = "/nowhere/at/all")]
fn a_database_that_cannot_be_created_fails_the_test() {
    TestDatabase::new("sqlite:", "/nowhere/at/all");
}
