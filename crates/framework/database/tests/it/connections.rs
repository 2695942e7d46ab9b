//! The connections of a worker: how they are used again after statements that end, fail, or are left in the middle.

use apus_database::System;
use apus_database::sqlx::{self, AssertSqlSafe, Error};
use apus_testkit::{EmptyDatabase, block_on};

use crate::harness::open;

/// A statement with this number of rows, from 1 on.
pub(crate) fn rows(system: System, count: u32) -> AssertSqlSafe<String> {
    AssertSqlSafe(match system {
        System::Sqlite => format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) SELECT i FROM n"
        ),
        System::Postgres => format!("SELECT generate_series(1, {count})::bigint"),
        System::MySql => format!("SELECT CAST(seq AS SIGNED) FROM seq_1_to_{count}"),
    })
}

#[test]
fn the_rows_after_the_first_one_do_not_reach_the_next_statement() {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh).max_connections(1);
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
fn a_closed_database_refuses_statements() {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
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
