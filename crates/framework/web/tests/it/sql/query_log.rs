//! The layer `QueryLog`.

use apus::sql::sqlx;
use apus::sql::{Db, QueryLog, Transactions, Tx};
use apus::testing::TestClient;
use apus::{App, Path, State};

use super::Fresh;
use apus_testkit::logged;

async fn query(State(db): State<Db>, Path(times): Path<u32>, tx: Tx) -> apus::Result<String> {
    for _ in 0..times {
        let _: i64 = sqlx::query_scalar("SELECT 1").fetch_one(&db).await?;
    }
    let _: i64 = sqlx::query_scalar("SELECT 2").fetch_one(&tx).await?;
    tracing::info!("the handler ends");
    Ok(times.to_string())
}

#[test]
fn statements_are_counted_and_repetitions_are_a_warning() {
    let fresh = Fresh::of(apus::sql::System::Sqlite);
    let db = fresh.db();
    let app = App::new()
        .layer(async |request: apus::Request, next: apus::Next| {
            let response = next.run(request).await;
            tracing::info!("the outer layer ends");
            response
        })
        .layer(QueryLog::new())
        .layer(Transactions::new(db.clone()))
        .state(db)
        .get("/{times}", query);
    let client = TestClient::new(app);
    let log = logged(|| {
        client.get("/10").send().assert_ok();
    });
    let line = |log: &str, text: &str| {
        let line = log.lines().find(|line| line.contains(text));
        line.unwrap_or_else(|| panic!("{text:?} is missing:\n{log}"))
            .to_owned()
    };
    // The span has the fields from then on.
    let outer = line(&log, "the outer layer ends");
    assert!(
        outer.contains("queries=11") && outer.contains("query_us="),
        "{outer}"
    );
    assert!(!log.contains("many times"), "{log}");
    let log = logged(|| {
        client.get("/11").send().assert_ok();
    });
    let warning = line(&log, "ran one statement many times");
    for part in [
        "WARN",
        "apus::queries",
        "SELECT 1",
        "times=11",
        "path=\"/11\"",
    ] {
        assert!(warning.contains(part), "{part}: {warning}");
    }
    assert!(!log.contains("statement=\"SELECT 2\""), "{log}");
}

/// Requests of one worker take turns: each counts its own.
#[test]
fn concurrent_requests_count_their_own_statements() {
    let fresh = Fresh::of(apus::sql::System::Sqlite);
    let db = fresh.db();
    let app = App::new()
        .layer(QueryLog::new().most_repetitions(2))
        .state(db.clone())
        .get("/", async |State(db): State<Db>| -> apus::Result<()> {
            for _ in 0..2 {
                sqlx::query("SELECT 1").fetch_one(&db).await?;
                tokio::task::yield_now().await;
            }
            Ok(())
        });
    let client = TestClient::new(app.clone());
    let log = logged(|| {
        client.get("/").send().assert_status(204);
        let other = TestClient::new(app);
        other.get("/").send().assert_status(204);
    });
    assert!(!log.contains("many times"), "{log}");
}
