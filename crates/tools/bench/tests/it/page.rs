//! The page of HTML: its browser is in the tests of the command.

use std::time::Duration;

use apus_bench::{LoadLimit, to_html};
use apus_testkit::scripted::{Action, ScriptedServer, response};

use crate::harness::{plan, run};

#[test]
fn a_page_has_its_plots_with_words_and_nothing_from_elsewhere() {
    let server = ScriptedServer::start(|request| {
        let status = if request.number % 10 == 9 { 500 } else { 200 };
        Action::Respond(response(status, "x"))
    });
    let mut plan = plan(&server.url("/?a=1&b=2"), 2, 1);
    plan.limit = LoadLimit::Time(Duration::from_millis(500));
    let page = to_html(&run(plan));
    let plots = page.matches("<svg ").count();
    assert_eq!(plots, 4, "{page}");
    assert_eq!(page.matches("role=\"img\" aria-label=\"").count(), plots);
    for part in [
        "Rate over time",
        "Percentiles",
        "Latencies over time",
        "wrong status",
        "/?a=1&amp;b=2",
    ] {
        assert!(page.contains(part), "{part} is missing: {page}");
    }
    for part in [
        "<script", "src=", "href=", "url(", "@import", "a=1&b=2", "NaN", "inf",
    ] {
        assert!(!page.contains(part), "{part}: {page}");
    }
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("@media print"));
}
