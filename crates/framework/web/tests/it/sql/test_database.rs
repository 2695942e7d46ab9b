//! `TestDatabase`.

use apus::sql::sqlx::{self, Connection, Row};
use apus::sql::{Db, Migrations, System, TestDatabase, migrations};
use apus::testing::{TestClient, TestServer};
use apus::{App, State};
use apus_testkit::block_on;

use super::Fresh;

const MIGRATIONS: Migrations = migrations!("tests/it/sql/migrations");

fn app(db: Db) -> App {
    App::new()
        .state(db)
        .post("/", async |State(db): State<Db>| -> apus::Result<()> {
            let insert = "INSERT INTO countries (code, name) VALUES ('cl', 'Chile')";
            sqlx::query(insert).execute(&db).await?;
            Ok(())
        })
        .get("/", async |State(db): State<Db>| -> apus::Result<String> {
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM countries")
                .fetch_one(&db)
                .await?;
            Ok(count.to_string())
        })
}

#[test]
fn each_test_has_a_database_of_its_own_in_parallel() {
    for fresh in Fresh::of_each() {
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let database = TestDatabase::new(&fresh.address, MIGRATIONS);
                    let client = TestClient::new(app(database.db()));
                    client.get("/").send().assert_ok().assert_text("0");
                    client.post("/").send().assert_status(204);
                    client.get("/").send().assert_ok().assert_text("1");
                    // The other workers of a server see what was committed.
                    let server = TestServer::with_workers(app(database.db()), 2);
                    for _ in 0..4 {
                        server.client().get("/").send().assert_ok().assert_text("1");
                    }
                });
            }
        });
        assert_eq!(left(&fresh), [""; 0], "{}", fresh.address);
    }
}

/// The databases of tests that are still there.
fn left(fresh: &Fresh) -> Vec<String> {
    let select = match fresh.db().system() {
        System::Sqlite => return Vec::new(),
        System::Postgres => {
            "SELECT datname::text FROM pg_database WHERE datname LIKE 'apus_test_%'"
        }
        System::MySql => {
            "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'apus_test_%'"
        }
    };
    block_on(async {
        let rows = sqlx::query(select).fetch_all(&fresh.db()).await.unwrap();
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
