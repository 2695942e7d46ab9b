//! Other load generators measure the same.

use std::fs;
use std::process::Command;
use std::time::Duration;

use apus_testkit::scripted::{Action, ScriptedServer, response};

use crate::harness::{plan, run, undisturbed};

/// Of a hundred responses, 84 come after 100 ms, 14 after 200 ms, and 2 after 400 ms.
fn delay(number: u64) -> Duration {
    let milliseconds = match number % 100 {
        25 | 75 => 400,
        place if place % 7 == 3 => 200,
        _ => 100,
    };
    Duration::from_millis(milliseconds)
}

/// The statuses and the times in milliseconds that h2load has written to its log.
fn read_h2load_log(text: &str) -> (Vec<u16>, Vec<f64>) {
    let lines = text.lines().map(|line| {
        let mut columns = line.split('\t').skip(1);
        let status = columns.next().unwrap().parse::<u16>().unwrap();
        let microseconds = columns.next().unwrap().parse::<f64>().unwrap();
        (status, microseconds / 1e3)
    });
    lines.unzip()
}

/// One percent, and what a busy machine adds to one of them.
fn check_close(what: &str, one: f64, other: f64) -> Result<(), String> {
    if (one - other).abs() <= one.max(other) * 0.01 + 25.0 {
        Ok(())
    } else {
        Err(format!("{what}: {one} ms and {other} ms"))
    }
}

#[test]
fn h2load_measures_the_same_delays_and_failures() {
    undisturbed(check_h2load);
}

fn check_h2load() -> Result<(), String> {
    let server = ScriptedServer::start(|request| {
        let status = match request.number % 1000 {
            999 => 503,
            _ => 200,
        };
        Action::After(delay(request.number), response(status, "x"))
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.tsv");
    let output = Command::new("h2load")
        .args(["--h1", "-n", "2000", "-c", "100", "-t", "2"])
        .arg(format!("--log-file={}", log.display()))
        .arg(server.url("/"))
        .output()
        .expect("h2load is there: make tools");
    assert!(output.status.success(), "{output:?}");
    let (statuses, mut times) = read_h2load_log(&fs::read_to_string(log).unwrap());
    times.sort_unstable_by(f64::total_cmp);
    let report = run(plan(&server.url("/"), 100, 2000));

    // A failure is no latency of `apus bench`, but one of h2load: both are far from where the delays change.
    assert_eq!(statuses.len(), 2000);
    let failed = statuses.iter().filter(|status| **status == 503).count();
    assert_eq!((failed, report.failed, report.responses), (2, 2, 1998));
    let percentile = |percent: usize| times[percent * times.len() / 100 - 1];
    let latency = &report.latency;
    check_close("p50", latency.p50_ms, percentile(50))?;
    check_close("p90", latency.p90_ms, percentile(90))?;
    check_close("p99", latency.p99_ms, percentile(99))?;
    check_close("max", latency.max_ms, percentile(100))?;
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    check_close("mean", latency.mean_ms, mean)?;
    check_close("p90 and its delay", latency.p90_ms, 200.0)
}
