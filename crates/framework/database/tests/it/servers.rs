//! What only a database on a server has: PostgreSQL and MariaDB.

use std::collections::HashSet;
use std::fs;
use std::sync::Barrier;
use std::time::Duration;

use apus_database::sqlx::{self, Error};
use apus_database::{Db, MySql, Postgres, Sqlite, Transactions, Tx, into_error};
use apus_handler::{HandlerService, Layered, Result, State};
use apus_testkit::{EmptyDatabase, LocalClient, ask, block_on, get, logged};

use crate::connections::rows;
use crate::harness::{migrations, open, open_as};

#[test]
fn a_connection_is_used_again_without_a_ping() {
    let fresh = EmptyDatabase::mariadb();
    let db: Db<MySql> = open_as::<MySql>(&fresh).max_connections(1);
    block_on(async {
        let mut pings = String::new();
        for _ in 0..5 {
            let (_, count): (String, String) =
                sqlx::query_as("SHOW SESSION STATUS LIKE 'Com_admin_commands'")
                    .fetch_one(&db)
                    .await
                    .unwrap();
            pings = count;
            // Transactions that end leave nothing to wait for, either.
            let tx = db.begin();
            sqlx::query("SELECT 1").execute(&tx).await.unwrap();
            tx.commit().await.unwrap();
        }
        assert_eq!(pings, "0");
        assert_eq!(db.connections(), 1);
    });
}

#[test]
fn a_statement_that_is_left_in_the_middle_does_not_answer_the_next_one() {
    for (fresh, slow) in [
        (
            EmptyDatabase::postgres(),
            "SELECT 1::bigint FROM pg_sleep(0.3)",
        ),
        (
            EmptyDatabase::mariadb(),
            "SELECT CAST(1 + SLEEP(0.3) AS SIGNED INTEGER)",
        ),
    ] {
        let db = open(&fresh).max_connections(1);
        block_on(async {
            // Connected before, so that the time-out falls into the statement.
            db.acquire().await.unwrap();
            let left = sqlx::query_scalar::<_, i64>(slow).fetch_one(&db);
            let left = tokio::time::timeout(Duration::from_millis(30), left).await;
            assert!(left.is_err(), "{left:?}");
            let all: Vec<i64> = sqlx::query_scalar(rows(db.system(), 3))
                .fetch_all(&db)
                .await
                .unwrap();
            assert_eq!(all, [1, 2, 3]);
        });
    }
}

#[test]
fn connections_that_the_server_closed_fail_one_statement_together() {
    let fresh = EmptyDatabase::postgres();
    let (db, other) = (open(&fresh), open(&fresh));
    block_on(async {
        // Each has a connection before the first one ends.
        let slow = async || {
            let slow = sqlx::query("SELECT pg_sleep(0.3)").execute(&db);
            slow.await.unwrap()
        };
        tokio::join!(slow(), slow(), slow());
        let open = db.connections();
        assert!(open >= 2, "{open}");
        let close = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                     WHERE datname = current_database() AND pid <> pg_backend_pid()";
        let closed = sqlx::query(close).fetch_all(&other).await.unwrap();
        assert_eq!(closed.len(), open);
        let failed = sqlx::query("SELECT 1").execute(&db).await;
        assert!(failed.is_err());
        for _ in 0..open {
            sqlx::query("SELECT 1").execute(&db).await.unwrap();
        }
    });
}

#[test]
fn a_statement_waits_for_a_connection_only_for_the_time_that_is_allowed() {
    let fresh = EmptyDatabase::postgres();
    let db = open(&fresh)
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(100));
    block_on(async {
        let used = db.acquire().await.unwrap();
        let late = sqlx::query("SELECT 1").execute(&db).await.unwrap_err();
        assert!(matches!(late, Error::PoolTimedOut), "{late:?}");
        drop(used);
        sqlx::query("SELECT 1").execute(&db).await.unwrap();
        // A pool of sqlx has its own connections.
        let _used = db.acquire().await.unwrap();
        let mut transaction = db.pool().begin().await.unwrap();
        sqlx::query("SELECT 1")
            .execute(&mut *transaction)
            .await
            .unwrap();
        transaction.commit().await.unwrap();
    });
}

#[test]
fn an_error_of_postgresql_has_no_line_of_the_sources_of_postgresql() {
    let fresh = EmptyDatabase::postgres();
    let db = open(&fresh);
    let failing = HandlerService::new(async |State(db): State<Db>| {
        let failed = sqlx::query("SELECT * FROM nowhere").execute(&db).await;
        failed
            .map(drop)
            .map_err(|error| into_error(Box::new(error)).unwrap())
    });
    let worker = LocalClient::of(&failing.state(db));
    let log = logged(|| {
        assert_eq!(worker.send(get("/")).status, 500);
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
fn an_application_can_use_the_types_of_one_database() {
    block_on(async {
        let fresh = EmptyDatabase::sqlite();
        let db: Db<Sqlite> = Db::open(&fresh.address).unwrap();
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&db)
            .await
            .unwrap();
        assert_eq!(journal, "wal");
        let journal: String = sqlx::query_scalar("PRAGMA journal_mode")
            .fetch_one(&open(&fresh))
            .await
            .unwrap();
        assert_eq!(journal, "wal");
    });
    let fresh = EmptyDatabase::postgres();
    let db: Db<Postgres> = Db::open(&fresh.address).unwrap();
    let list: Vec<i32> = block_on(async {
        sqlx::query_scalar(db.sql("SELECT ARRAY[?::int, 2]"))
            .bind(1)
            .fetch_one(&db)
            .await
            .unwrap()
    });
    assert_eq!(list, [1, 2]);
    let fresh = EmptyDatabase::mariadb();
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
fn each_worker_has_its_own_limited_pool() {
    let fresh = EmptyDatabase::postgres();
    let db = open(&fresh).max_connections(1);
    // Each has its connection until the other one has one, too.
    let both = Barrier::new(2);
    let in_use = || {
        block_on(async {
            let mut connection = db.acquire().await.unwrap();
            let pid: i32 = sqlx::query_scalar("SELECT pg_backend_pid()")
                .fetch_one(&mut *connection)
                .await
                .unwrap();
            assert_eq!(db.connections(), 1);
            both.wait();
            pid
        })
    };
    let seen = std::thread::scope(|scope| {
        let workers = [scope.spawn(in_use), scope.spawn(in_use)];
        HashSet::from(workers.map(|worker| worker.join().unwrap()))
    });
    assert_eq!(seen.len(), 2, "one connection for each of two workers");
}

#[test]
fn a_database_of_one_system_runs_statements_with_its_types() {
    let (sqlite, postgres) = (EmptyDatabase::sqlite(), EmptyDatabase::postgres());
    block_on(async {
        let db: Db<Sqlite> = Db::open(&sqlite.address).unwrap();
        let found: bool = sqlx::query_scalar("SELECT true")
            .fetch_one(&db)
            .await
            .unwrap();
        assert!(found);
        let db: Db<Postgres> = Db::open(&postgres.address).unwrap();
        let list: Vec<i32> = sqlx::query_scalar(db.sql("SELECT ARRAY[?::int, 2]"))
            .bind(1)
            .fetch_one(&db)
            .await
            .unwrap();
        assert_eq!(list, [1, 2]);
    });
}

/// MariaDB commits at each statement that changes a table.
#[test]
fn a_migration_that_failed_half_way_on_mariadb_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let half = "CREATE TABLE a (x INTEGER);\n\n-- The second.\nINSERT INTO nowhere VALUES (1);";
    fs::write(folder.path().join("0001_half.sql"), half).unwrap();
    let fresh = EmptyDatabase::mariadb();
    let db = open(&fresh);
    let error = db.migrate(folder.path()).unwrap_err().to_string();
    assert!(error.contains("0001_half.sql:4"), "{error}");
    let mut output = Vec::new();
    let status = ["status".to_owned()];
    let code = db
        .commands(folder.path())
        .run(status, &mut output, &mut Vec::new());
    let output = String::from_utf8(output).unwrap();
    assert_eq!((code, &*output), (1, "failed   0001_half.sql\n"));
    let error = db.migrate(folder.path()).unwrap_err().to_string();
    assert!(error.contains("partially applied"), "{error}");
}

#[test]
fn a_transaction_that_cannot_be_committed_is_an_error() {
    let fresh = EmptyDatabase::postgres();
    let db = open(&fresh);
    block_on(async {
        let create = "CREATE TABLE a (x INT UNIQUE DEFERRABLE INITIALLY DEFERRED)";
        sqlx::raw_sql(create).execute(&db).await.unwrap();
    });
    let twice = HandlerService::new(async |tx: Tx| -> Result<&'static str> {
        let twice = "INSERT INTO a VALUES (1), (1)";
        sqlx::query(twice).execute(&tx).await?;
        Ok("done")
    });
    let app = Layered::new(twice).layer(Transactions::new(db));
    assert_eq!(LocalClient::of(&app).send(ask("POST", "/")).status, 500);
}
