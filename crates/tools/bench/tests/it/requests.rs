//! What is sent: methods, fields, bodies, weights, pipelining, connections that are kept or not.

use std::collections::HashMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apus_bench::{LoadLimit, PlannedRequest};
use apus_testkit::scripted::{Action, ScriptedServer, response};

use crate::harness::{plan, run};

#[test]
fn a_request_has_its_method_fields_and_body() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let server = ScriptedServer::start(move |request| {
        log.lock()
            .unwrap()
            .push((request.head.to_owned(), request.body.to_vec()));
        Action::Respond(response(201, ""))
    });
    let mut plan = plan(&server.url("/form?a=b"), 1, 3);
    let request = &mut plan.requests[0];
    request.method = apus_http::Method::PUT;
    request.headers.try_append("x-test", "value").unwrap();
    request.headers.try_append("host", "shop.example").unwrap();
    request.body = vec![b'z'; 100_000].into();
    let report = run(plan);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(report.statuses.get(&201), Some(&3));
    let seen = seen.lock().unwrap();
    assert_eq!(seen.len(), 4);
    for (head, body) in seen.iter() {
        assert!(head.starts_with("PUT /form?a=b HTTP/1.1\r\n"), "{head}");
        for line in [
            "host: shop.example\r\n",
            "x-test: value\r\n",
            "content-length: 100000\r\n",
        ] {
            assert_eq!(head.matches(line).count(), 1, "{line} {head}");
        }
        assert_eq!(head.matches("host:").count(), 1, "{head}");
        assert!(body.len() == 100_000 && body.iter().all(|byte| *byte == b'z'));
    }
}

#[test]
fn a_response_to_head_has_no_body() {
    let server = ScriptedServer::start(|_| {
        Action::Respond(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n".to_vec())
    });
    let mut plan = plan(&server.url("/"), 1, 5);
    plan.requests[0].method = apus_http::Method::HEAD;
    let report = run(plan);
    assert_eq!((report.responses, report.connections_opened), (5, 1));
}

#[test]
fn urls_are_requested_by_their_weights() {
    let seen: Arc<Mutex<HashMap<String, u64>>> = Arc::default();
    let log = Arc::clone(&seen);
    let server = ScriptedServer::start(move |request| {
        let path = request.head.split(' ').nth(1).unwrap().to_owned();
        *log.lock().unwrap().entry(path).or_default() += 1;
        Action::Respond(response(200, "x"))
    });
    let mut plan = plan(&server.url("/a"), 4, 4000);
    plan.requests[0].weight = 3;
    plan.requests
        .push(PlannedRequest::get(server.url("/b").parse().unwrap()));
    let report = run(plan);
    let [a, b] = &report.urls[..] else {
        panic!("{report:?}");
    };
    assert_eq!(a.responses + b.responses, 4000);
    assert!((2850..=3150).contains(&a.responses), "{}", a.responses);
    let seen = seen.lock().unwrap();
    assert_eq!(seen["/a"] + seen["/b"], 4001);
    assert!(seen["/b"].abs_diff(b.responses) <= 1);
}

#[test]
fn pipelined_requests_are_sent_before_their_responses_come() {
    // It responds to every fourth request only, with four responses.
    let server = ScriptedServer::start(|request| {
        let one = response(200, "x");
        match request.number {
            0 => Action::Respond(one),
            number if number % 4 == 0 => Action::Respond(one.repeat(4)),
            _ => Action::Respond(Vec::new()),
        }
    });
    let mut plan = plan(&server.url("/"), 1, 400);
    plan.in_flight = NonZeroUsize::new(4).unwrap();
    plan.timeout = Duration::from_secs(5);
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (400, 0));
    assert_eq!(report.connections_opened, 1);
}

#[test]
fn each_request_has_a_connection_of_its_own_with_close() {
    let server = ScriptedServer::start(|request| {
        assert!(
            request.head.contains("connection: close\r\n"),
            "{}",
            request.head
        );
        Action::Close(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nuntil the end".to_vec())
    });
    let mut plan = plan(&server.url("/"), 3, 60);
    plan.keeps_alive = false;
    plan.expected.body = Some(b"until the end".to_vec());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (60, 0));
    assert_eq!((report.connections_opened, server.accepted()), (60, 61));
    assert_eq!(report.connect_time.count, 60);
}

#[test]
fn a_connection_that_the_server_ends_politely_is_no_failure() {
    let server = ScriptedServer::start(|request| {
        let close = b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\nconnection: close\r\n\r\nx".to_vec();
        match request.number % 10 {
            9 => Action::Close(close),
            _ => Action::Respond(response(200, "x")),
        }
    });
    let report = run(plan(&server.url("/"), 1, 100));
    assert_eq!((report.responses, report.failed), (100, 0));
    assert!(
        (10..=11).contains(&report.connections_opened),
        "{}",
        report.connections_opened
    );
}

#[test]
fn an_idle_connection_that_the_server_closes_is_opened_again_in_an_open_loop() {
    // The server closes each connection after its response, without saying so.
    let server = ScriptedServer::start(|_| Action::Close(response(200, "x")));
    let mut plan = plan(&server.url("/"), 1, 10);
    plan.rate = Some("20".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (10, 0), "{report:?}");
    assert_eq!(report.connections_opened, 10);
}

#[test]
fn chunked_bodies_and_interim_responses_are_read() {
    let server = ScriptedServer::start(|_| {
        Action::Respond(
            b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
                .to_vec(),
        )
    });
    let mut plan = plan(&server.url("/"), 2, 20);
    plan.expected.body = Some(b"abcde".to_vec());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (20, 0));
    assert_eq!(report.connections_opened, 2);
}

#[test]
fn a_rate_has_its_steps_over_time() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/"), 20, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(2));
    plan.rate = Some("100:1s,400".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (500, 0));
    let half = report.intervals.len() / 2;
    let sum = |intervals: &[apus_bench::IntervalReport]| -> u64 {
        intervals.iter().map(|interval| interval.responses).sum()
    };
    let (first, second) = report.intervals.split_at(half);
    assert!((90..=110).contains(&sum(first)), "{}", sum(first));
    assert!((380..=410).contains(&sum(second)), "{}", sum(second));
}

#[test]
fn progress_is_told_for_each_interval() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/"), 2, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(1));
    let mut told = Vec::new();
    let report = apus_bench::run(plan, &mut |progress| told.push(progress.clone())).unwrap();
    assert!(told.len() >= 8, "{}", told.len());
    let good: u64 = told.iter().map(|progress| progress.good).sum();
    assert!(
        good > 0 && good <= report.responses + 4,
        "{good} {}",
        report.responses
    );
}

#[test]
fn a_connection_thinks_between_a_response_and_its_next_request() {
    let server = ScriptedServer::start(|_| Action::Respond(response(200, "x")));
    let mut plan = plan(&server.url("/"), 2, 10);
    plan.think_time = Some("60ms".parse().unwrap());
    let begin = Instant::now();
    let report = run(plan.clone());
    assert_eq!((report.responses, report.failed), (10, 0));
    assert_eq!(report.connections_opened, 2);
    // Each connection thinks four times between five requests.
    assert!(report.seconds >= 0.235, "{}", report.seconds);
    assert!(report.latency.p50_ms < 50.0, "{}", report.latency.p50_ms);

    // The end of the load ends a pause, too.
    plan.think_time = Some("1h".parse().unwrap());
    plan.limit = LoadLimit::Time(Duration::from_millis(200));
    assert_eq!(run(plan.clone()).responses, 2);
    plan.limit = LoadLimit::Requests(2);
    assert_eq!(run(plan.clone()).responses, 2);
    assert!(begin.elapsed() < Duration::from_secs(60));

    plan.in_flight = NonZeroUsize::new(2).unwrap();
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(error.to_string().contains("think time"), "{error}");
}
