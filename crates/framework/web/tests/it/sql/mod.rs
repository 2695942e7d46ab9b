//! Databases, on SQLite, PostgreSQL and MariaDB.

mod commands;
mod connections;
mod executor;
mod fresh;
mod models;
mod query_log;
mod test_database;
mod transactions;

use std::collections::HashSet;
use std::fs;

use apus::sql::sqlx::{self, Connection, Row};
use apus::sql::{Db, DbError, MySql, Postgres, Sqlite, System};
use apus::testing::TestServer;
use apus::{App, Json, Path, State, StatusCode};
use serde::{Deserialize, Serialize};

pub(crate) use fresh::Fresh;

use apus_testkit::block_on;

use apus_testkit::logged;

#[derive(Debug, PartialEq, Serialize, Deserialize, sqlx::FromRow)]
struct User {
    id: i64,
    name: String,
}

/// The SQL statements of the application.
#[derive(Clone)]
struct Users(Db);

impl Users {
    async fn find(&self, id: i64) -> sqlx::Result<Option<User>> {
        sqlx::query_as(self.0.sql("SELECT id, name FROM users WHERE id = ?"))
            .bind(id)
            .fetch_optional(&self.0)
            .await
    }

    async fn add(&self, name: &str) -> sqlx::Result<i64> {
        sqlx::query_scalar(
            self.0
                .sql("INSERT INTO users (name) VALUES (?) RETURNING id"),
        )
        .bind(name)
        .fetch_one(&self.0)
        .await
    }
}

fn app(db: Db) -> App {
    App::new()
        .state(Users(db))
        .get(
            "/users/{id}",
            async |State(users): State<Users>, Path(id): Path<i64>| -> apus::Result<_> {
                Ok(users.find(id).await?.map(Json))
            },
        )
        .post(
            "/users",
            async |State(users): State<Users>, name: String| -> apus::Result<_> {
                let id = users.add(&name).await?;
                Ok((StatusCode::CREATED, id.to_string()))
            },
        )
}

/// Migrations for all three systems, which differ only in the table.
fn migrations() -> tempfile::TempDir {
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

#[test]
fn an_application_runs_on_each_database_by_its_address() {
    let migrations = migrations();
    for fresh in Fresh::of_each() {
        let db = fresh.db();
        db.migrate(migrations.path()).unwrap();
        let server = TestServer::with_workers(app(db), 2);
        let client = server.client();
        client.get("/users/1").send().assert_json(User {
            id: 1,
            name: "Apus apus".to_owned(),
        });
        let id = client
            .post("/users")
            .body("Łukasz's ?")
            .send()
            .assert_status(201)
            .text();
        for _ in 0..4 {
            // New connections reach both workers sooner or later.
            let mut reply = server.client().get(&format!("/users/{id}")).send();
            assert_eq!(reply.json::<User>().name, "Łukasz's ?", "{}", fresh.address);
        }
        client.get("/users/99").send().assert_status(404);
    }
}

#[test]
fn migrations_run_once_in_order() {
    let migrations = migrations();
    for fresh in Fresh::of_each() {
        let db = fresh.db();
        db.migrate(migrations.path()).unwrap();
        db.migrate(migrations.path()).unwrap();
        let later = migrations.path().join(match db.system() {
            System::Sqlite => "sqlite/0003_more.sql",
            System::Postgres => "postgres/0003_more.sql",
            System::MySql => "mysql/0003_more.sql",
        });
        fs::write(&later, "INSERT INTO users (name) VALUES ('Apus pallidus');").unwrap();
        db.migrate(migrations.path()).unwrap();
        let count: i64 = block_on(async {
            sqlx::query_scalar("SELECT COUNT(*) FROM users")
                .fetch_one(&db)
                .await
                .unwrap()
        });
        assert_eq!(count, 2, "{}", fresh.address);
    }
}

#[test]
fn a_failed_migration_names_its_file_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = Fresh::of(System::Sqlite);
    fs::write(
        folder.path().join("0001_good.sql"),
        "CREATE TABLE a (x INTEGER);",
    )
    .unwrap();
    fs::write(
        folder.path().join("0002_bad.sql"),
        "CREATE TABLE b (x INTEGER); CREATE TABEL c (x INTEGER);",
    )
    .unwrap();
    let error = fresh.db().migrate(folder.path()).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, DbError::Migration { .. }), "{error:?}");
    for part in [
        folder.path().join("0002_bad.sql:1").to_str().unwrap(),
        "test.db",
        "migration 2",
        "TABEL",
    ] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    let tables: HashSet<String> = block_on(async {
        let rows = sqlx::query("SELECT name FROM sqlite_master WHERE type = 'table'")
            .fetch_all(&fresh.db())
            .await
            .unwrap();
        rows.iter().map(|row| row.get::<String, _>(0)).collect()
    });
    assert!(tables.contains("a") && !tables.contains("b"), "{tables:?}");
}

#[test]
fn a_bad_migration_is_told_with_file_and_line() {
    let create =
        "-- The first; table\nCREATE TABLE a (x INTEGER);\n\nINSERT INTO a (x)\n  VALUES (1);\n";
    for fresh in Fresh::of_each() {
        for (bad, line) in [
            ("CREATE TABEL b (x INTEGER);", 6),
            ("INSERT INTO a (x)\n  SELEC 2;", 7),
            ("INSERT INTO nowhere (x) VALUES (1);", 6),
            // These errors name no place in the statement.
            ("SELECT 1;\nCREATE TABLE a (x INTEGER);", 7),
            (
                "CREATE UNIQUE INDEX i ON a (x);\nINSERT INTO a\nVALUES (1);",
                7,
            ),
        ] {
            let folder = tempfile::tempdir().unwrap();
            fs::write(folder.path().join("0001_a.sql"), format!("{create}{bad}")).unwrap();
            let fresh = Fresh::of(fresh.db().system());
            let error = fresh.db().migrate(folder.path()).unwrap_err().to_string();
            let place = format!("0001_a.sql:{line} ");
            assert!(
                error.contains(&place),
                "{}: {place}: {error}",
                fresh.address
            );
            // Neither a line in the sources of PostgreSQL, nor one of the statement alone.
            assert!(!error.contains(" at line "), "{error}");
        }
    }
}

#[test]
fn an_error_of_postgresql_has_no_line_of_the_sources_of_postgresql() {
    let fresh = Fresh::of(System::Postgres);
    let db = fresh.db();
    let app = App::new().state(db).get("/", async |State(db): State<Db>| {
        sqlx::query("SELECT * FROM nowhere").execute(&db).await?;
        Ok::<_, apus::Error>(())
    });
    let log = logged(|| {
        assert_eq!(apus_testkit::get("/").to(&app).status, 500);
    });
    assert!(log.contains("\"nowhere\" does not exist"), "{log}");
    assert!(!log.contains(" at line "), "{log}");
    let address = fresh
        .address
        .replacen("localhost/", "localhost/missing_", 1);
    let missing: Db = Db::open(&address).unwrap();
    let error = missing.migrate(migrations().path()).unwrap_err();
    assert!(error.to_string().contains("does not exist"), "{error}");
    assert!(!error.to_string().contains(" at line "), "{error}");
}

#[test]
fn migrations_that_would_be_skipped_are_errors() {
    let sql = "CREATE TABLE a (x INTEGER);";
    let fresh = Fresh::of(System::Sqlite);
    let told = |files: &[&str]| {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let file = folder.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, sql).unwrap();
        }
        let result = fresh.db().migrate(folder.path());
        result.map_err(|error| {
            assert!(matches!(error, DbError::MigrationFiles { .. }), "{error:?}");
            error.to_string()
        })
    };
    for (files, parts) in [
        (
            &["users.sql", "0001_a.sql"][..],
            &["users.sql has no number"][..],
        ),
        (&["0001.sql"], &["0001.sql has no number"]),
        (&["v1_users.sql"], &["v1_users.sql has no number"]),
        (&["0_users.sql"], &["0_users.sql has no number"]),
        (
            &["sqlite/0001_a.sql", "0002_b.sql"],
            &["0002_b.sql is beside the folder", "sqlite"],
        ),
        (
            &["1_a.sql", "0001_b.sql"],
            &["0001_b.sql and ", "1_a.sql have the same number, 1"],
        ),
        (&["sqlite/users.sql"], &["users.sql has no number"]),
    ] {
        let told = told(files).unwrap_err();
        for part in parts {
            assert!(told.contains(part), "{part}: {told}");
        }
    }
    // Other files are none of migrations.
    told(&[
        "README.md",
        "sqlite/notes.txt",
        "sqlite/0001_a.up.sql",
        "sqlite/0001_a.down.sql",
    ])
    .unwrap();
}

#[test]
fn a_changed_migration_is_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = Fresh::of(System::Sqlite);
    let file = folder.path().join("0001_a.sql");
    fs::write(&file, "CREATE TABLE a (x INTEGER);").unwrap();
    fresh.db().migrate(folder.path()).unwrap();
    fs::write(&file, "CREATE TABLE a (y INTEGER);").unwrap();
    let error = fresh.db().migrate(folder.path()).unwrap_err();
    assert!(error.to_string().contains("has been modified"), "{error}");
    let missing = fresh.db().migrate("/nowhere/at/all").unwrap_err();
    assert!(missing.to_string().contains("/nowhere/at/all"), "{missing}");
}

#[test]
fn errors_name_the_address_without_its_password() {
    for address in ["shop.db", "oracle://a", "sqlite::memory:"] {
        let error = Db::<sqlx::Any>::open(address).unwrap_err();
        assert!(matches!(error, DbError::Address { .. }), "{error:?}");
        assert!(error.to_string().contains(address), "{error}");
    }
    let db: Db = Db::open("postgres://me:secret@127.0.0.1:1/none").unwrap();
    let error = db.migrate(migrations().path()).unwrap_err();
    assert!(matches!(error, DbError::Unreachable { .. }), "{error:?}");
    for text in [error.to_string(), format!("{error:?}"), format!("{db:?}")] {
        assert!(
            text.contains("127.0.0.1:1") && !text.contains("secret"),
            "{text}"
        );
    }
}

#[test]
fn an_application_can_use_the_types_of_one_database() {
    block_on(async {
        let fresh = Fresh::of(System::Sqlite);
        let db: Db<Sqlite> = Db::open(&fresh.address).unwrap();
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&db)
            .await
            .unwrap();
        assert_eq!(journal, "wal");
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&fresh.db())
            .await
            .unwrap();
        assert_eq!(journal, "wal");
    });
    let fresh = Fresh::of(System::Postgres);
    let db: Db<Postgres> = Db::open(&fresh.address).unwrap();
    let list: Vec<i32> = block_on(async {
        sqlx::query_scalar(db.sql("SELECT ARRAY[?::int, 2]"))
            .bind(1)
            .fetch_one(&db)
            .await
            .unwrap()
    });
    assert_eq!(list, [1, 2]);
    let fresh = Fresh::of(System::MySql);
    let db: Db<MySql> = Db::open(&fresh.address).unwrap();
    let number: u64 = block_on(async {
        sqlx::query_scalar(db.sql("SELECT CAST(? AS UNSIGNED)"))
            .bind(u64::MAX)
            .fetch_one(&db)
            .await
            .unwrap()
    });
    assert_eq!(number, u64::MAX);
}

#[test]
fn a_transaction_is_all_or_nothing() {
    let migrations = migrations();
    for fresh in Fresh::of_each() {
        let db = fresh.db();
        db.migrate(migrations.path()).unwrap();
        let count = block_on(async {
            let insert = "INSERT INTO users (name) VALUES (?)";
            let mut connection = db.acquire().await.unwrap();
            let mut one = connection.begin().await.unwrap();
            sqlx::query(db.sql(insert))
                .bind("kept")
                .execute(&mut *one)
                .await
                .unwrap();
            one.commit().await.unwrap();
            let mut other = connection.begin().await.unwrap();
            sqlx::query(db.sql(insert))
                .bind("lost")
                .execute(&mut *other)
                .await
                .unwrap();
            drop(other);
            drop(connection);
            sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM users")
                .fetch_one(&db)
                .await
                .unwrap()
        });
        assert_eq!(count, 2, "{}", fresh.address);
    }
}

#[test]
fn each_worker_has_its_own_limited_pool() {
    let fresh = Fresh::of(System::Postgres);
    let db = fresh.db().max_connections(1);
    let in_use = async |State(db): State<Db>| -> apus::Result<String> {
        let mut connection = db.acquire().await?;
        let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
            .fetch_one(&mut *connection)
            .await?;
        let size = db.connections();
        Ok(format!("{pid} {size}"))
    };
    let server = TestServer::with_workers(App::new().state(db).get("/", in_use), 2);
    let mut seen = HashSet::new();
    // The kernel chooses the worker of each connection; both get one soon.
    for _ in 0..1000 {
        let text = server.client().get("/").send().assert_ok().text();
        let (pid, size) = text.split_once(' ').unwrap();
        assert_eq!(size, "1");
        seen.insert(pid.to_owned());
        if seen.len() == 2 {
            break;
        }
    }
    assert_eq!(seen.len(), 2, "one connection for each of two workers");
}
