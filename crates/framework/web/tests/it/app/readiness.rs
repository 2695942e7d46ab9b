//! `Readiness`: whether an application can serve.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apus::testing::TestServer;
use apus::{App, Readiness};

#[test]
fn an_application_is_ready_while_all_checks_succeed() {
    let is_up = Arc::new(AtomicBool::new(true));
    let database = is_up.clone();
    let ready = Readiness::new()
        .check("memory", async || Ok::<_, std::io::Error>(1))
        .check("database", async move || {
            match database.load(Ordering::Relaxed) {
                true => Ok(()),
                false => Err("the password of the database is secret"),
            }
        });
    let app = App::new()
        .get("/ready", ready)
        .get("/none", Readiness::new());
    let server = TestServer::start(app);
    let client = server.client();
    client
        .get("/ready")
        .send()
        .assert_ok()
        .assert_text("ready\n");
    client.get("/none").send().assert_ok();
    is_up.store(false, Ordering::Relaxed);
    let mut response = client
        .get("/ready")
        .header("accept", "application/json")
        .send();
    response
        .assert_status(503)
        .assert_header("retry-after", "5")
        .assert_header("cache-control", "no-store")
        .assert_contains(r#""detail":"not ready: database""#);
    assert!(!response.text().contains("secret"));
    is_up.store(true, Ordering::Relaxed);
    client.get("/ready").send().assert_ok();
}

#[test]
fn a_check_that_does_not_end_fails() {
    let ready = Readiness::new()
        .time_limit(Duration::from_millis(1))
        .check("origin", async || {
            std::future::pending::<Result<(), std::io::Error>>().await
        });
    let server = TestServer::start(App::new().get("/ready", ready));
    let client = server.client();
    client
        .get("/ready")
        .send()
        .assert_status(503)
        .assert_text("not ready: origin\n");
}
