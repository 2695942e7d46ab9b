//! The layer `QueryLog`.

use apus_database::sqlx;
use apus_database::{Db, QueryLog, Transactions, Tx};
use apus_handler::{HandlerService, Layered, Next, Query, RequestSpan, Result, State};
use apus_http::{Request, ServiceFactory};
use apus_testkit::{EmptyDatabase, LocalClient, get, logged};
use serde::Deserialize;
use tracing::Instrument;

use crate::harness::open;

#[derive(Deserialize)]
struct Repetitions {
    times: u32,
}

async fn query(
    State(db): State<Db>,
    Query(Repetitions { times }): Query<Repetitions>,
    tx: Tx,
) -> Result<String> {
    for _ in 0..times {
        let _: i64 = sqlx::query_scalar("SELECT 1").fetch_one(&db).await?;
    }
    let _: i64 = sqlx::query_scalar("SELECT 2").fetch_one(&tx).await?;
    tracing::info!("the handler ends");
    Ok(times.to_string())
}

#[test]
fn statements_are_counted_and_repetitions_are_a_warning() {
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    let service = HandlerService::new(query).state(db.clone());
    let app = Layered::new(service)
        .layer(|mut request: Request, next: Next| {
            let span = RequestSpan::begin(&mut request);
            let response = async {
                let response = next.run(request).await;
                tracing::info!("the outer layer ends");
                response
            };
            response.instrument(span)
        })
        .layer(QueryLog::new())
        .layer(Transactions::new(db));
    let worker = LocalClient::of(&app);
    let log = logged(|| {
        assert_eq!(worker.send(get("/10?times=10")).status, 200);
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
        assert_eq!(worker.send(get("/11?times=11")).status, 200);
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
    let fresh = EmptyDatabase::sqlite();
    let db = open(&fresh);
    let twice = HandlerService::new(async |State(db): State<Db>| -> Result<()> {
        for _ in 0..2 {
            sqlx::query("SELECT 1").fetch_one(&db).await?;
            tokio::task::yield_now().await;
        }
        Ok(())
    });
    let app = Layered::new(twice.state(db)).layer(QueryLog::new().most_repetitions(2));
    let worker = LocalClient::of(&app);
    let service = app.service();
    let log = logged(|| {
        let send = || service.call(get("/").request()).wait();
        let (one, other) = worker.run(async { tokio::join!(send(), send()) });
        assert_eq!([one.status(), other.status()], [204, 204]);
    });
    assert!(!log.contains("many times"), "{log}");
}
