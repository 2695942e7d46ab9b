//! What is reported is what happened: delays by a schedule, a pause of the server, wrong responses.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use apus_bench::{ArrivalRate, LoadFailure, LoadLimit, to_text};
use apus_testkit::scripted::{Action, ScriptedServer, response, wait};

use crate::harness::{failures, plan, run, undisturbed};

/// Checks a time within 1%, and what a busy machine adds.
fn check_time(what: &str, found_ms: f64, expected_ms: f64) -> Result<(), String> {
    if found_ms >= expected_ms * 0.99 && found_ms <= expected_ms * 1.01 + 25.0 {
        Ok(())
    } else {
        Err(format!("{what}: {found_ms} ms instead of {expected_ms} ms"))
    }
}

#[test]
fn percentiles_are_those_of_the_delays() {
    undisturbed(|| {
        let server = ScriptedServer::start(|request| {
            let delay = match request.number % 100 {
                0..90 => 400,
                90..99 => 700,
                _ => 1200,
            };
            Action::After(Duration::from_millis(delay), response(200, "x"))
        });
        let report = run(plan(&server.url("/"), 100, 400));
        assert_eq!((report.responses, report.failed), (400, 0));
        let latency = &report.latency;
        assert_eq!(latency.count, 400);
        let last = latency.percentiles.last().unwrap();
        assert!(last.0 >= 100.0 && last.1 >= 1188.0, "{last:?}");
        check_time("p50", latency.p50_ms, 400.0)?;
        check_time("p99", latency.p99_ms, 700.0)?;
        check_time("max", latency.max_ms, 1200.0)?;
        let mean = 0.9 * 400.0 + 0.09 * 700.0 + 0.01 * 1200.0;
        check_time("mean", latency.mean_ms, mean)
    });
}

/// A server that pauses for a second, a second after its first request of the load.
fn pausing_server() -> ScriptedServer {
    let begin = Mutex::new(None);
    ScriptedServer::start(move |request| {
        if request.number > 0 {
            let begin = *begin.lock().unwrap().get_or_insert_with(Instant::now);
            let pause = begin + Duration::from_secs(1);
            let now = Instant::now();
            if now >= pause {
                let end = pause + Duration::from_secs(1);
                wait(end.saturating_duration_since(now));
            }
        }
        Action::Respond(response(200, "x"))
    })
}

#[test]
fn an_open_loop_shows_a_pause_of_the_server() {
    let server = pausing_server();
    let mut plan = plan(&server.url("/"), 300, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(3));
    plan.rate = Some(ArrivalRate::constant(200.0).unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (600, 0));
    // A third of the requests was due in the pause, and waited for its end.
    let latency = &report.latency;
    assert!((latency.max_ms - 1000.0).abs() < 60.0, "{}", latency.max_ms);
    assert!((latency.p90_ms - 700.0).abs() < 60.0, "{}", latency.p90_ms);
    assert!(latency.p50_ms < 100.0, "{}", latency.p50_ms);
    assert!(
        (report.responses_per_second - 200.0).abs() < 4.0,
        "{}",
        report.responses_per_second
    );
    let lag = report.generator.lag.as_ref().unwrap();
    assert_eq!(lag.count, 600);
}

/// When a server received a request, and when it had its response.
type RecordedTimes = Arc<Mutex<Vec<(Instant, Instant)>>>;

/// A server that pauses for a second, a second after its first request of the load, and records what it does.
fn recorded_pausing_server() -> (ScriptedServer, RecordedTimes) {
    let times = RecordedTimes::default();
    let recorded = Arc::clone(&times);
    let begin = Mutex::new(None);
    let server = ScriptedServer::start(move |request| {
        if request.number > 0 {
            let received = Instant::now();
            let begin = *begin.lock().unwrap().get_or_insert(received);
            if received >= begin + Duration::from_secs(1) {
                let end = begin + Duration::from_secs(2);
                wait(end.saturating_duration_since(received));
            }
            recorded.lock().unwrap().push((received, Instant::now()));
        }
        Action::Respond(response(200, "x"))
    });
    (server, times)
}

/// The latencies in milliseconds as wrk2 computes them, in order: each from the time at which its request was due by a
/// constant rate. Here they are computed of the times that the server recorded.
fn corrected_latencies(times: &RecordedTimes, gap: Duration) -> Vec<f64> {
    let mut times = times.lock().unwrap().clone();
    times.sort_unstable();
    let due: Vec<Duration> = (0..).map(|number| gap * number).take(times.len()).collect();
    // No request comes before it is due.
    let begins = times
        .iter()
        .zip(&due)
        .map(|((received, _), due)| *received - *due);
    let begin = begins.min().unwrap();
    let of = |((_, responded), due): (&(Instant, Instant), &Duration)| {
        (*responded - (begin + *due)).as_secs_f64() * 1e3
    };
    let mut latencies: Vec<f64> = times.iter().zip(&due).map(of).collect();
    latencies.sort_unstable_by(f64::total_cmp);
    latencies
}

/// The latency at a percentile: the smallest that so many are not above.
fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1]
}

/// The schedule alone says what has to be reported: of 600 requests, 200 were due in the pause, the first 1 s before its
/// end, and each other one 5 ms later.
#[test]
fn an_open_loop_reports_what_wrk2_computes() {
    undisturbed(|| {
        let (server, times) = recorded_pausing_server();
        let mut plan = plan(&server.url("/"), 300, 1);
        plan.limit = LoadLimit::Time(Duration::from_secs(3));
        plan.rate = Some(ArrivalRate::constant(200.0).unwrap());
        let report = run(plan);
        assert_eq!((report.responses, report.failed), (600, 0));
        let corrected = corrected_latencies(&times, Duration::from_millis(5));
        assert_eq!(corrected.len(), 600);
        let scheduled: Vec<f64> = std::iter::repeat_n(0.0, 400)
            .chain((1..=200).map(|number| f64::from(number) * 5.0))
            .collect();
        let latency = &report.latency;
        for (percent, reported) in [
            (90.0, latency.p90_ms),
            (99.0, latency.p99_ms),
            (99.9, latency.p999_ms),
            (100.0, latency.max_ms),
        ] {
            let corrected = percentile(&corrected, percent);
            let scheduled = percentile(&scheduled, percent);
            check_time(&format!("p{percent}, computed"), corrected, scheduled)?;
            check_time(&format!("p{percent}, reported"), reported, corrected)?;
        }
        let mean = |latencies: &[f64]| latencies.iter().sum::<f64>() / latencies.len() as f64;
        check_time("mean, computed", mean(&corrected), mean(&scheduled))?;
        check_time("mean, reported", latency.mean_ms, mean(&corrected))
    });
}

#[test]
fn requests_that_wait_for_a_connection_count_from_the_time_at_which_they_were_due() {
    // Each response takes 50 ms, so 2 connections are enough for 40 requests per second of 80.
    let server =
        ScriptedServer::start(|_| Action::After(Duration::from_millis(50), response(200, "x")));
    let mut plan = plan(&server.url("/"), 2, 80);
    plan.rate = Some("80".parse().unwrap());
    let report = run(plan);
    assert_eq!((report.responses, report.failed), (80, 0));
    assert!(
        report.service_time.p50_ms < 100.0,
        "{}",
        report.service_time.p50_ms
    );
    // The last was due after 1 s and ended after 2 s.
    assert!(report.latency.max_ms > 900.0, "{}", report.latency.max_ms);
    assert!(report.latency.p50_ms > 400.0, "{}", report.latency.p50_ms);
}

#[test]
fn a_closed_loop_meets_a_pause_once_for_each_connection_and_says_so() {
    let server = pausing_server();
    let mut plan = plan(&server.url("/"), 4, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(3));
    let report = run(plan);
    assert_eq!(report.failed, 0);
    assert!(report.latency.max_ms > 900.0, "{}", report.latency.max_ms);
    assert!(report.latency.p99_ms < 100.0, "{}", report.latency.p99_ms);
    let text = to_text(&report);
    assert!(text.contains("counts once for each connection"), "{text}");
    // The pause is seen over time: intervals without a response.
    let silent = report
        .intervals
        .iter()
        .filter(|interval| interval.responses == 0)
        .count();
    let seconds = silent as f64 * report.interval;
    assert!((0.7..=1.2).contains(&seconds), "{seconds}");
}

#[test]
fn every_thousandth_response_that_is_wrong_is_counted() {
    let server = ScriptedServer::start(|request| {
        Action::Respond(match request.number {
            0 => response(200, "right"),
            number if number % 3000 == 1000 => response(500, "right"),
            number if number % 3000 == 2000 => response(200, "wrong"),
            number if number % 3000 == 0 => response(200, "longer"),
            _ => response(200, "right"),
        })
    });
    let mut plan = plan(&server.url("/"), 8, 12_000);
    plan.expected.body = Some(b"right".to_vec());
    let report = run(plan);
    assert_eq!(report.responses, 12_000 - 12);
    assert_eq!(report.latency.count, 12_000 - 12);
    let expected = [
        (LoadFailure::WrongStatus, 4),
        (LoadFailure::WrongLength, 4),
        (LoadFailure::WrongBody, 4),
    ];
    assert_eq!(failures(&report), expected);
    assert_eq!(report.statuses.get(&500), Some(&4));
    assert!(!report.is_clean());
}

#[test]
fn a_warm_up_is_left_out() {
    let begin = Mutex::new(None);
    let server = ScriptedServer::start(move |request| {
        if request.number == 0 {
            return Action::Respond(response(200, "x"));
        }
        let begin = *begin.lock().unwrap().get_or_insert_with(Instant::now);
        let delay = if begin.elapsed() < Duration::from_millis(600) {
            150
        } else {
            5
        };
        Action::After(Duration::from_millis(delay), response(200, "x"))
    });
    let mut plan = plan(&server.url("/"), 4, 1);
    plan.warm_up = Duration::from_secs(1);
    plan.limit = LoadLimit::Time(Duration::from_secs(1));
    let report = run(plan);
    assert!(report.is_clean());
    assert!(report.latency.p99_ms < 140.0, "{}", report.latency.p99_ms);
    assert!((report.seconds - 1.0).abs() < 0.01, "{}", report.seconds);
}
