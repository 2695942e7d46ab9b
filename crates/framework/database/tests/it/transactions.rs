//! `Tx` and the layer `Transactions`.

use std::sync::Arc;
use std::time::Duration;

use apus_database::sqlx;
use apus_database::{Db, Transactions, Tx};
use apus_handler::{Error, HandlerService, IntoResponse, Layered, Result, State};
use apus_http::{Request, Response, ServiceFactory, StatusCode};
use apus_layers::CatchPanic;
use apus_testkit::{EmptyDatabase, LocalClient, ask, block_on};
use tokio::sync::Notify;

use crate::harness::open;

async fn add(tx: &Tx, name: &str) -> sqlx::Result<()> {
    sqlx::query(tx.sql("INSERT INTO names (name) VALUES (?)"))
        .bind(name)
        .execute(tx)
        .await?;
    Ok(())
}

fn with_table(fresh: &EmptyDatabase) -> Db {
    let db = open(fresh);
    block_on(async {
        let create = "CREATE TABLE names (name VARCHAR(80) NOT NULL)";
        sqlx::raw_sql(create).execute(&db).await.unwrap();
    });
    db
}

async fn names(db: &Db) -> Vec<String> {
    sqlx::query_scalar("SELECT name FROM names ORDER BY name")
        .fetch_all(db)
        .await
        .unwrap()
}

/// What the handler does is the path of the request.
async fn change(tx: Tx, request: Request) -> Result<Response> {
    let add = async |name| add(&tx, name).await;
    match request.path() {
        "/ok" => {
            add("one").await?;
            add("two").await?;
        }
        "/error" => {
            add("lost").await?;
            return Err(Error::conflict("no"));
        }
        "/status" => {
            add("lost").await?;
            return Ok(StatusCode::IM_A_TEAPOT.into_response());
        }
        "/panic" => {
            add("lost").await?;
            panic!("in a transaction")
        }
        "/rollback" => {
            add("lost").await?;
            tx.rollback().await?;
        }
        _ => return Ok("nothing".into_response()),
    }
    Ok(().into_response())
}

#[test]
fn a_response_below_400_commits_and_all_others_roll_back() {
    for fresh in EmptyDatabase::of_each() {
        // A connection that is not given back is missed at once.
        let db = with_table(&fresh).max_connections(1);
        let app = Layered::new(HandlerService::new(change))
            .layer(CatchPanic::new())
            .layer(Transactions::new(db.clone()));
        let worker = LocalClient::of(&app);
        for (path, status) in [
            ("/error", 409),
            ("/status", 418),
            ("/panic", 500),
            ("/rollback", 204),
            ("/unused", 200),
        ] {
            assert_eq!(worker.send(ask("POST", path)).status, status, "{path}");
            assert_eq!(worker.run(names(&db)), [""; 0], "{path} {}", fresh.address);
        }
        assert_eq!(worker.send(ask("POST", "/ok")).status, 204);
        assert_eq!(worker.run(names(&db)), ["one", "two"], "{}", fresh.address);
    }
}

#[test]
fn a_client_that_leaves_rolls_back_and_gives_the_connection_back() {
    async fn slow(State(seen): State<Arc<Notify>>, tx: Tx) -> Result<()> {
        add(&tx, "lost").await?;
        seen.notify_one();
        std::future::pending().await
    }
    for fresh in EmptyDatabase::of_each() {
        let db = with_table(&fresh).max_connections(1);
        let seen = Arc::<Notify>::default();
        let slow = HandlerService::new(slow).state(seen.clone());
        let app = Layered::new(slow).layer(Transactions::new(db.clone()));
        let worker = LocalClient::of(&app);
        let service = app.service();
        for _ in 0..3 {
            worker.run(async {
                let response = service.call(ask("POST", "/slow").request()).wait();
                // The server drops the response of a client that has left.
                let left = tokio::time::timeout(Duration::from_secs(60), async {
                    tokio::select! {
                        _ = response => false,
                        () = seen.notified() => true,
                    }
                });
                assert!(left.await.unwrap());
            });
            assert_eq!(worker.run(names(&db)), [""; 0], "{}", fresh.address);
        }
    }
}

#[test]
fn a_transaction_outside_of_requests_is_lost_unless_it_is_committed() {
    for fresh in EmptyDatabase::of_each() {
        let db = with_table(&fresh).max_connections(1);
        block_on(async {
            let lost = db.begin();
            add(&lost, "lost").await.unwrap();
            drop(lost);
            let kept = db.begin();
            add(&kept, "kept").await.unwrap();
            kept.commit().await.unwrap();
            let ended = add(&kept, "late").await.unwrap_err().to_string();
            assert!(ended.contains("has ended"), "{ended}");
            assert!(kept.commit().await.is_err());
            assert_eq!(names(&db).await, ["kept"], "{}", fresh.address);
        });
    }
}

/// A transaction of SQLite that reads first and writes later fails if another one wrote in between.
#[test]
fn concurrent_transactions_of_sqlite_wait_for_one_another() {
    let fresh = EmptyDatabase::sqlite();
    let db = with_table(&fresh);
    let count = HandlerService::new(async |tx: Tx| -> Result<()> {
        let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM names")
            .fetch_one(&tx)
            .await?;
        tokio::task::yield_now().await;
        Ok(add(&tx, &format!("{count:03}")).await?)
    });
    let app = Layered::new(count).layer(Transactions::new(db.clone()));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let worker = LocalClient::of(&app);
                for _ in 0..10 {
                    assert_eq!(worker.send(ask("POST", "/")).status, 204);
                }
            });
        }
    });
    let expected: Vec<String> = (0..40).map(|count| format!("{count:03}")).collect();
    assert_eq!(block_on(names(&db)), expected);
}
