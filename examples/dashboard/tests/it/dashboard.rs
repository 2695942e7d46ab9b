//! The dashboard over real sockets.

use apus::testing::{TestResponse, TestServer};
use apus_example_dashboard::{app, figures, measure};
use serde_json::Value;

/// The ids and data of the next events.
fn events(response: &mut TestResponse, count: usize) -> Vec<(String, Value)> {
    let mut read = String::new();
    while read.matches("\n\n").count() < count {
        let chunk = response.chunk().expect("a stream that goes on");
        read.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    let events = read.split_terminator("\n\n").map(|event| {
        let field = |name| {
            event
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .unwrap()
        };
        assert_eq!(field("event: "), "figures");
        let figures = serde_json::from_str(field("data: ")).unwrap();
        (field("id: ").to_owned(), figures)
    });
    events.collect()
}

#[test]
fn a_page_has_the_last_minute_then_what_is_measured_and_nothing_twice() {
    let figures = figures();
    for _ in 0..70 {
        measure(&figures);
    }
    let server = TestServer::start(app(figures.clone()));
    let client = server.client();
    let mut page = client.get("/figures").send();
    page.assert_ok()
        .assert_header("content-type", "text/event-stream")
        .assert_header("cache-control", "no-store");
    let minute = events(&mut page, 60);
    assert_eq!(minute.len(), 60);
    let (_, newest) = minute.last().unwrap();
    assert!(newest["load"].is_f64());
    let (used, total) = (&newest["memory"], &newest["memory_total"]);
    assert!(used.as_u64() > Some(0) && used.as_u64() < total.as_u64());
    while figures.waiting() == 0 {
        std::thread::yield_now();
    }
    measure(&figures);
    let live = events(&mut page, 1);
    assert_eq!(live[0].1["pages"], 1);
    drop(page);
    measure(&figures);
    measure(&figures);
    let mut again = client
        .get("/figures")
        .header("last-event-id", &live[0].0)
        .send();
    assert_eq!(events(&mut again, 2).len(), 2);
}

#[test]
fn the_page_listens() {
    let server = TestServer::start(app(figures()));
    let mut page = server.client().get("/").send();
    page.assert_ok()
        .assert_contains("new EventSource(\"figures\")");
}
