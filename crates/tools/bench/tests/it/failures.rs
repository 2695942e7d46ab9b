//! Each failure is counted under its name, and none is part of a latency.

use std::time::Duration;

use apus_bench::{BenchError, LoadFailure, LoadLimit, to_csv, to_text};
use apus_testkit::scripted::{Action, ScriptedServer, response};

use crate::harness::{failures, plan, run};

/// Runs ten requests over one connection after a good one before the load. The server does this with the fifth.
fn with_fifth(action: fn() -> Action) -> Vec<(LoadFailure, u64)> {
    let server = ScriptedServer::start(move |request| match request.number {
        5 => action(),
        _ => Action::Respond(response(200, "x")),
    });
    let mut plan = plan(&server.url("/"), 1, 10);
    plan.timeout = Duration::from_secs(1);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (9, 1), "{report:?}");
    assert_eq!(report.latency.count, 9);
    assert!(report.latency.max_ms < 900.0, "{}", report.latency.max_ms);
    failures(&report)
}

#[test]
fn a_reset_is_counted() {
    assert_eq!(with_fifth(|| Action::Reset), [(LoadFailure::Reset, 1)]);
}

#[test]
fn a_connection_that_closes_instead_of_a_response_is_counted() {
    let found = with_fifth(|| Action::Close(Vec::new()));
    assert_eq!(found, [(LoadFailure::ClosedBeforeResponse, 1)]);
}

#[test]
fn a_connection_that_closes_in_the_middle_of_a_response_is_counted() {
    let expected = [(LoadFailure::ClosedInResponse, 1)];
    let in_head = with_fifth(|| Action::Close(b"HTTP/1.1 200 OK\r\ncontent-le".to_vec()));
    assert_eq!(in_head, expected);
    let in_body =
        with_fifth(|| Action::Close(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc".to_vec()));
    assert_eq!(in_body, expected);
}

#[test]
fn a_response_that_does_not_come_is_a_timeout() {
    assert_eq!(with_fifth(|| Action::Wait), [(LoadFailure::Timeout, 1)]);
}

#[test]
fn a_malformed_response_is_counted() {
    let found = with_fifth(|| Action::Respond(b"HELLO\r\n\r\n".to_vec()));
    assert_eq!(found, [(LoadFailure::Malformed, 1)]);
}

#[test]
fn a_server_that_dies_leaves_what_was_measured() {
    let server = ScriptedServer::start(|request| match request.number {
        500.. => Action::Die,
        _ => Action::Respond(response(200, "x")),
    });
    let mut plan = plan(&server.url("/"), 4, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(1));
    let report = run(plan);
    assert!(
        (490..=499).contains(&report.responses),
        "{}",
        report.responses
    );
    let refused = failures(&report)
        .into_iter()
        .find(|(kind, _)| *kind == LoadFailure::ConnectRefused);
    assert!(refused.is_some_and(|(_, count)| count >= 4), "{report:?}");
    let text = to_text(&report);
    assert!(text.contains("connection refused"), "{text}");
}

#[test]
fn a_number_of_requests_ends_when_the_server_is_gone() {
    let server = ScriptedServer::start(|request| match request.number {
        100.. => Action::Die,
        _ => Action::Respond(response(200, "x")),
    });
    let mut plan = plan(&server.url("/"), 4, 1_000_000);
    plan.timeout = Duration::from_millis(500);
    let report = run(plan);
    assert!(
        (95..=99).contains(&report.responses),
        "{}",
        report.responses
    );
    assert!(report.failed > 0);
}

#[test]
fn requests_that_are_never_sent_are_counted() {
    let server = ScriptedServer::start(|request| match request.number {
        0 => Action::Respond(response(200, "x")),
        _ => Action::Wait,
    });
    let mut plan = plan(&server.url("/"), 1, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(1));
    plan.rate = Some("50".parse().unwrap());
    plan.timeout = Duration::from_millis(600);
    let report = run(plan);
    let found = failures(&report);
    let not_sent = found.iter().find(|(kind, _)| *kind == LoadFailure::NotSent);
    assert!(not_sent.is_some_and(|(_, count)| *count > 40), "{found:?}");
    assert_eq!((report.responses, report.failed), (0, 50));
}

#[test]
fn a_server_that_is_not_there_is_an_error_with_its_cause() {
    let port = apus_testkit::free_port();
    let error = apus_bench::run(
        plan(&format!("http://127.0.0.1:{port}/"), 1, 1),
        &mut |_| {},
    );
    let error = error.unwrap_err();
    assert!(matches!(error, BenchError::Unreachable { .. }));
    let text = error.to_string();
    assert!(
        text.contains("connection refused") && text.contains(&port.to_string()),
        "{text}"
    );
}

#[test]
fn hosts_that_are_not_this_machine_are_refused() {
    // An address for documentation (RFC 5737).
    let error = apus_bench::run(plan("http://192.0.2.1/", 1, 1), &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::NotLocal { .. }));
    let text = error.to_string();
    assert!(
        text.contains("192.0.2.1") && text.contains("--i-own-this-host"),
        "{text}"
    );
}

#[test]
fn plans_that_contradict_themselves_are_errors() {
    let url = "http://127.0.0.1:1/";
    let mut two = plan(url, 1, 1);
    two.requests.push(apus_bench::PlannedRequest::get(
        "http://127.0.0.1:2/".parse().unwrap(),
    ));
    let mut weightless = plan(url, 1, 1);
    weightless.requests[0].weight = 0;
    let mut warm = plan(url, 1, 1);
    warm.warm_up = Duration::from_secs(1);
    let mut pipelined = plan(url, 1, 1);
    pipelined.in_flight = std::num::NonZeroUsize::new(2).unwrap();
    pipelined.keeps_alive = false;
    for wrong in [two, weightless, warm, pipelined, plan(url, 1, 0)] {
        let error = apus_bench::run(wrong, &mut |_| {}).unwrap_err();
        assert!(matches!(error, BenchError::Plan(_)), "{error}");
    }
}

#[test]
fn failures_are_in_every_form_of_the_report() {
    let server = ScriptedServer::start(|request| {
        Action::Respond(response(
            if request.number % 2 == 0 { 200 } else { 503 },
            "x",
        ))
    });
    let report = run(plan(&server.url("/a,b"), 1, 10));
    assert_eq!((report.responses, report.failed), (5, 5));
    let csv = to_csv(&report);
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 2, "{csv}");
    assert!(
        lines[1].starts_with(&format!(
            "\"http://127.0.0.1:{}/a,b\",HTTP/1.1,closed,1,",
            server.port
        )),
        "{csv}"
    );
    assert!(
        lines[0].contains(",failed,") && lines[1].contains(",5,"),
        "{csv}"
    );
    let text = to_text(&report);
    assert!(
        text.contains("5  wrong status (first: status 503)"),
        "{text}"
    );
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["failures"][0]["kind"], "wrong_status");
    assert_eq!(json["failures"][0]["count"], 5);
}
