//! Statements on `&Db`.

use std::time::{Duration, Instant};

use apus::sql::sqlx::{self, Executor, Row};
use apus::sql::{Db, Postgres, Sqlite, System};
use apus::testing::TestClient;
use apus::{App, State};
use apus_testkit::block_on;

use super::Fresh;

async fn count(State(db): State<Db>) -> apus::Result<String> {
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM users")
        .fetch_one(&db)
        .await?;
    Ok(count.to_string())
}

#[test]
fn a_statement_on_a_database_that_is_down_fails_at_once() {
    for address in [
        "postgres://me@127.0.0.1:1/none",
        "mysql://me@127.0.0.1:1/none",
    ] {
        let db: Db = Db::open(address).unwrap();
        let app = App::new().state(db.acquire_timeout(Duration::from_secs(300)));
        let client = TestClient::new(app.get("/", count));
        let started = Instant::now();
        let mut response = client.get("/").send();
        response
            .assert_status(503)
            .assert_header("retry-after", "5");
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
    for fresh in Fresh::of_each() {
        let db = fresh.db();
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

#[test]
fn a_database_of_one_system_runs_statements_with_its_types() {
    let (sqlite, postgres) = (Fresh::of(System::Sqlite), Fresh::of(System::Postgres));
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
