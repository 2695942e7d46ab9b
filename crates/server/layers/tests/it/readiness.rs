//! `Readiness`: whether an application can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apus_layers::Readiness;
use apus_testkit::{LocalClient, get};

use crate::harness::Routes;

#[test]
fn an_application_is_ready_while_all_checks_succeed() {
    let is_up = Arc::new(AtomicBool::new(true));
    let database = is_up.clone();
    let ready = Readiness::new()
        .check("memory", async || Ok::<_, std::io::Error>(1))
        .check("database", async move || {
            if database.load(Ordering::Relaxed) {
                Ok(())
            } else {
                Err("the password of the database is secret")
            }
        });
    let client = LocalClient::of(
        &Routes::new()
            .get("/ready", ready)
            .get("/none", Readiness::new()),
    );
    let reply = client.send(get("/ready"));
    assert_eq!((reply.status, reply.text()), (200, "ready\n"));
    assert_eq!(client.send(get("/none")).status, 200);
    is_up.store(false, Ordering::Relaxed);
    let reply = client.send(get("/ready").with("accept", "application/json"));
    assert_eq!(reply.status, 503);
    assert_eq!(reply.field("retry-after"), Some("5"));
    assert_eq!(reply.field("cache-control"), Some("no-store"));
    let text = reply.text();
    assert!(text.contains(r#""detail":"not ready: database""#), "{text}");
    assert!(!text.contains("secret"), "{text}");
    is_up.store(true, Ordering::Relaxed);
    assert_eq!(client.send(get("/ready")).status, 200);
}

#[test]
fn a_check_that_does_not_end_fails() {
    let ready = Readiness::new()
        .time_limit(Duration::from_millis(1))
        .check("origin", async || {
            std::future::pending::<Result<(), std::io::Error>>().await
        });
    let reply = get("/ready").to(&Routes::new().get("/ready", ready));
    assert_eq!((reply.status, reply.text()), (503, "not ready: origin\n"));
}
