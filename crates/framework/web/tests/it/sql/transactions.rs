//! `Tx` and the layer `Transactions`.

use std::time::Duration;

use apus::sql::sqlx;
use apus::sql::{Db, System, Transactions, Tx};
use apus::testing::{TestClient, TestServer};
use apus::{App, Error, State, StatusCode};
use apus_testkit::block_on;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::Fresh;

async fn add(tx: &Tx, name: &str) -> sqlx::Result<()> {
    sqlx::query(tx.sql("INSERT INTO names (name) VALUES (?)"))
        .bind(name)
        .execute(tx)
        .await?;
    Ok(())
}

fn with_table(fresh: &Fresh) -> Db {
    let db = fresh.db();
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

fn app(db: &Db) -> App {
    App::new()
        .layer(Transactions::new(db.clone()))
        .post("/ok", async |tx: Tx| -> apus::Result<()> {
            add(&tx, "one").await?;
            Ok(add(&tx, "two").await?)
        })
        .post("/error", async |tx: Tx| -> apus::Result<()> {
            add(&tx, "lost").await?;
            Err(Error::conflict("no"))
        })
        .post("/status", async |tx: Tx| -> apus::Result<StatusCode> {
            add(&tx, "lost").await?;
            Ok(StatusCode::IM_A_TEAPOT)
        })
        .post("/panic", async |tx: Tx| -> apus::Result<()> {
            add(&tx, "lost").await?;
            panic!("in a transaction")
        })
        .post("/rollback", async |tx: Tx| -> apus::Result<()> {
            add(&tx, "lost").await?;
            Ok(tx.rollback().await?)
        })
        .post("/unused", async |_: Tx| "nothing")
}

#[test]
fn a_response_below_400_commits_and_all_others_roll_back() {
    for fresh in Fresh::of_each() {
        // A connection that is not given back is missed at once.
        let db = with_table(&fresh).max_connections(1);
        let client = TestClient::new(app(&db));
        for (path, status) in [
            ("/error", 409),
            ("/status", 418),
            ("/panic", 500),
            ("/rollback", 204),
            ("/unused", 200),
        ] {
            client.post(path).send().assert_status(status);
            assert_eq!(client.run(names(&db)), [""; 0], "{path} {}", fresh.address);
        }
        client.post("/ok").send().assert_status(204);
        assert_eq!(client.run(names(&db)), ["one", "two"], "{}", fresh.address);
    }
}

#[test]
fn a_client_that_leaves_rolls_back_and_gives_the_connection_back() {
    async fn slow(tx: Tx, State(seen): State<UnboundedSender<()>>) -> apus::Result<()> {
        add(&tx, "lost").await?;
        let _ = seen.send(());
        std::future::pending::<()>().await;
        Ok(())
    }
    for fresh in Fresh::of_each() {
        let db = with_table(&fresh).max_connections(1);
        let (seen, mut waiting) = unbounded_channel::<()>();
        let own = db.clone();
        let app = App::new()
            .layer(Transactions::new(db))
            .state(seen)
            .state(own)
            .post("/slow", slow)
            .get(
                "/count",
                async |State(db): State<Db>| -> apus::Result<String> {
                    Ok(names(&db).await.len().to_string())
                },
            );
        let server = TestServer::with_workers(app, 1);
        for _ in 0..3 {
            let address = server.address();
            block_on(async {
                use tokio::io::AsyncWriteExt;
                let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
                let request = b"POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
                stream.write_all(request).await.unwrap();
                let waited = tokio::time::timeout(Duration::from_secs(60), waiting.recv());
                waited.await.unwrap().unwrap();
            });
            server
                .client()
                .get("/count")
                .send()
                .assert_ok()
                .assert_text("0");
        }
    }
}

#[test]
fn a_transaction_that_cannot_be_committed_is_an_error() {
    let fresh = Fresh::of(System::Postgres);
    let db = fresh.db();
    block_on(async {
        let create = "CREATE TABLE a (x INT UNIQUE DEFERRABLE INITIALLY DEFERRED)";
        sqlx::raw_sql(create).execute(&db).await.unwrap();
    });
    let app = App::new().layer(Transactions::new(db)).post(
        "/",
        async |tx: Tx| -> apus::Result<&'static str> {
            let twice = "INSERT INTO a VALUES (1), (1)";
            sqlx::query(twice).execute(&tx).await?;
            Ok("done")
        },
    );
    TestClient::new(app).post("/").send().assert_status(500);
}

#[test]
fn a_handler_with_a_transaction_needs_the_layer() {
    let app = App::new().post("/", async |_: Tx| "");
    let error = app.check().unwrap_err().to_string();
    assert!(
        error.contains("no layer `Transactions` is around it"),
        "{error}"
    );
}

#[test]
fn a_transaction_outside_of_requests_is_lost_unless_it_is_committed() {
    for fresh in Fresh::of_each() {
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
    let fresh = Fresh::of(System::Sqlite);
    let db = with_table(&fresh);
    let app = App::new().layer(Transactions::new(db.clone())).post(
        "/",
        async |tx: Tx| -> apus::Result<()> {
            let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM names")
                .fetch_one(&tx)
                .await?;
            tokio::task::yield_now().await;
            Ok(add(&tx, &format!("{count:03}")).await?)
        },
    );
    let server = TestServer::with_workers(app, 2);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    server.client().post("/").send().assert_status(204);
                }
            });
        }
    });
    let expected: Vec<String> = (0..40).map(|count| format!("{count:03}")).collect();
    assert_eq!(block_on(names(&db)), expected);
}
