//! The search for the highest rate.

use std::sync::Mutex;
use std::time::Duration;

use apus_bench::{LoadLimit, find_max};
use apus_testkit::scripted::{Action, ScriptedServer, response, wait};

use crate::harness::plan;

#[test]
fn the_highest_rate_is_that_of_a_server_that_serves_one_request_at_a_time() {
    let one_at_a_time = Mutex::new(());
    let server = ScriptedServer::start(move |_| {
        let _turn = one_at_a_time.lock().unwrap();
        wait(Duration::from_millis(10));
        Action::Respond(response(200, "x"))
    });
    let mut plan = plan(&server.url("/"), 20, 1);
    plan.limit = LoadLimit::Time(Duration::from_millis(800));
    let objective = "p95=150ms,errors=0".parse().unwrap();
    let found = find_max(&plan, &objective, &mut |_| {}).unwrap();
    // At most 100 requests per second, and fewer on a busy machine.
    let rate = found.rate.unwrap();
    assert!((50.0..=130.0).contains(&rate), "{rate} {:?}", found.loads);
    assert!(
        found.loads.iter().any(|load| load.missed.is_some()),
        "{:?}",
        found.loads
    );
    let text = found.to_text();
    assert!(
        text.contains("highest rate") && text.contains("p95 of at most 150ms"),
        "{text}"
    );
}

#[test]
fn an_objective_that_is_never_kept_has_no_rate() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Action::Respond(response(200, "x")),
        _ => Action::Respond(response(500, "x")),
    });
    let mut plan = plan(&server.url("/"), 2, 1);
    plan.limit = LoadLimit::Time(Duration::from_millis(100));
    let found = find_max(&plan, &"p99=1s".parse().unwrap(), &mut |_| {}).unwrap();
    assert_eq!(found.rate, None);
    assert!(found.to_text().contains("no rate kept"));
}
