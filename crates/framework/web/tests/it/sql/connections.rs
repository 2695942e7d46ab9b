//! The connections of a worker: how they are used again after statements that end, fail, or are left in the middle.

use std::time::Duration;

use apus::sql::sqlx::{self, AssertSqlSafe, Error};
use apus::sql::{Db, MySql, System};
use apus_testkit::block_on;

use super::Fresh;

/// A statement with this number of rows, from 1 on.
fn rows(system: System, count: u32) -> AssertSqlSafe<String> {
    AssertSqlSafe(match system {
        System::Sqlite => format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n"
        ),
        System::Postgres => format!("SELECT generate_series(1, {count})::bigint"),
        System::MySql => format!("SELECT CAST(seq AS SIGNED) FROM seq_1_to_{count}"),
    })
}

#[test]
fn a_connection_is_used_again_without_a_ping() {
    let fresh = Fresh::of(System::MySql);
    let db: Db<MySql> = fresh.typed::<MySql>().max_connections(1);
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
fn the_rows_after_the_first_one_do_not_reach_the_next_statement() {
    for fresh in Fresh::of_each() {
        let db = fresh.db().max_connections(1);
        block_on(async {
            for count in [1, 2, 3, 1_000, 50_000] {
                let first: i64 = sqlx::query_scalar(rows(db.system(), count))
                    .fetch_one(&db)
                    .await
                    .unwrap();
                assert_eq!(first, 1);
                let next: i64 = sqlx::query_scalar(rows(db.system(), 1))
                    .fetch_one(&db)
                    .await
                    .unwrap();
                assert_eq!(next, 1, "{}", fresh.address);
                let all: Vec<i64> = sqlx::query_scalar(rows(db.system(), 3))
                    .fetch_all(&db)
                    .await
                    .unwrap();
                assert_eq!(all, [1, 2, 3], "{}", fresh.address);
            }
        });
    }
}

#[test]
fn a_statement_that_is_left_in_the_middle_does_not_answer_the_next_one() {
    for (system, slow) in [
        (System::Postgres, "SELECT 1::bigint FROM pg_sleep(0.3)"),
        (
            System::MySql,
            "SELECT CAST(1 + SLEEP(0.3) AS SIGNED INTEGER)",
        ),
    ] {
        let db = Fresh::of(system).db().max_connections(1);
        block_on(async {
            // Connected before, so that the time-out falls into the statement.
            db.acquire().await.unwrap();
            let left = sqlx::query_scalar::<_, i64>(slow).fetch_one(&db);
            let left = tokio::time::timeout(Duration::from_millis(30), left).await;
            assert!(left.is_err(), "{left:?}");
            let all: Vec<i64> = sqlx::query_scalar(rows(system, 3))
                .fetch_all(&db)
                .await
                .unwrap();
            assert_eq!(all, [1, 2, 3]);
        });
    }
}

#[test]
fn connections_that_the_server_closed_fail_one_statement_together() {
    let fresh = Fresh::of(System::Postgres);
    let (db, other) = (fresh.db(), fresh.db());
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
    let fresh = Fresh::of(System::Postgres);
    let db = fresh
        .db()
        .max_connections(1)
        .acquire_timeout(Duration::from_millis(100));
    block_on(async {
        let used = db.acquire().await.unwrap();
        let late = sqlx::query("SELECT 1").execute(&db).await.unwrap_err();
        assert!(matches!(late, Error::PoolTimedOut), "{late:?}");
        drop(used);
        sqlx::query("SELECT 1").execute(&db).await.unwrap();
        // A pool of sqlx has connections of its own.
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
fn a_closed_database_refuses_statements() {
    for fresh in Fresh::of_each() {
        let db = fresh.db();
        block_on(async {
            sqlx::query("SELECT 1").execute(&db).await.unwrap();
            let used = db.acquire().await.unwrap();
            db.close().await;
            let refused = sqlx::query("SELECT 1").execute(&db).await.unwrap_err();
            assert!(matches!(refused, Error::PoolClosed), "{refused:?}");
            drop(used);
        });
    }
}
