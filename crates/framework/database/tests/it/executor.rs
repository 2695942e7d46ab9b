//! Statements on `&Db`.

use std::time::{Duration, Instant};

use apus_database::sqlx::{self, Executor, Row};
use apus_database::{Db, into_error};
use apus_handler::{HandlerService, Json, State};
use apus_testkit::{EmptyDatabase, LocalClient, block_on, get};

use crate::harness::open;

#[test]
fn a_statement_on_a_database_that_is_down_fails_at_once() {
    let count = async |State(db): State<Db>| {
        let count = sqlx::query_scalar::<_, i64>("SELECT COUNT(*) FROM users")
            .fetch_one(&db)
            .await;
        count
            .map(Json)
            .map_err(|error| into_error(Box::new(error)).unwrap())
    };
    for address in [
        "postgres://me@127.0.0.1:1/none",
        "mysql://me@127.0.0.1:1/none",
    ] {
        let db: Db = Db::open(address).unwrap();
        let db = db.acquire_timeout(Duration::from_secs(300));
        let worker = LocalClient::of(&HandlerService::new(count).state(db));
        let started = Instant::now();
        let reply = worker.send(get("/"));
        assert_eq!((reply.status, reply.field("retry-after")), (503, Some("5")));
        assert!(started.elapsed() < Duration::from_secs(60), "{address}");
    }
}

#[test]
fn the_pool_of_sqlx_itself_tries_again_until_its_time_is_over() {
    let db: Db = Db::open("postgres://me@127.0.0.1:1/none").unwrap();
    let db = db.acquire_timeout(Duration::from_millis(300));
    let started = Instant::now();
    let acquired = block_on(async { db.pool().acquire().await });
    let error = acquired.unwrap_err();
    assert!(matches!(error, sqlx::Error::PoolTimedOut), "{error}");
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn all_functions_of_sqlx_run_on_a_database() {
    for fresh in EmptyDatabase::of_each() {
        let db = open(&fresh);
        block_on(async {
            let create = "CREATE TABLE numbers (n BIGINT NOT NULL)";
            sqlx::raw_sql(create).execute(&db).await.unwrap();
            for n in 1..=300_i64 {
                let insert = db.sql("INSERT INTO numbers (n) VALUES (?)");
                let done = sqlx::query(insert).bind(n).execute(&db).await.unwrap();
                assert_eq!(done.rows_affected(), 1);
            }
            let all = "SELECT n FROM numbers ORDER BY n";
            let rows = sqlx::query(all).fetch_all(&db).await.unwrap();
            assert_eq!(rows.len(), 300);
            let one: (i64,) = sqlx::query_as(all).fetch_one(&db).await.unwrap();
            assert_eq!(one.0, 1);
            let none = db.sql("SELECT n FROM numbers WHERE n = ?");
            let none = sqlx::query(none).bind(0_i64).fetch_optional(&db).await;
            assert!(none.unwrap().is_none());
            // Rows one by one, more than fit anywhere at once.
            let mut stream = sqlx::query(all).fetch(&db);
            let mut sum = 0_i64;
            while let Some(row) = next(&mut stream).await {
                sum += row.unwrap().get::<i64, _>(0);
            }
            drop(stream);
            assert_eq!(sum, 300 * 301 / 2, "{}", fresh.address);
            // A stream that is not read to its end gives its connection back.
            for _ in 0..30 {
                let mut stream = sqlx::query(all).fetch(&db);
                assert!(next(&mut stream).await.is_some());
            }
            let mut wrong = sqlx::query("SELECT nothing FROM nowhere").fetch(&db);
            assert!(next(&mut wrong).await.unwrap().is_err());
            assert!(next(&mut wrong).await.is_none());
            (&db).execute("DELETE FROM numbers").await.unwrap();
        });
    }
}

async fn next<S: futures_core::Stream + Unpin>(stream: &mut S) -> Option<S::Item> {
    std::future::poll_fn(|cx| std::pin::Pin::new(&mut *stream).poll_next(cx)).await
}
