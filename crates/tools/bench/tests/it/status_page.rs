//! What a server says of itself at its status endpoint.

use std::time::Duration;

use apus_bench::{BenchError, LoadLimit};
use apus_testkit::scripted::{Action, ScriptedServer, response};

use crate::harness::{plan, run};

/// A server that says it needs half a millisecond of CPU for each request.
fn server() -> ScriptedServer {
    ScriptedServer::start(|request| {
        let seconds = request.number as f64 * 0.0005;
        Action::Respond(if request.head.starts_with("GET /metrics ") {
            response(
                200,
                &format!(
                    "process_cpu_seconds_total {seconds}\nprocess_resident_memory_bytes 5e+06\nprocess_open_fds 12\n"
                ),
            )
        } else {
            response(200, "x")
        })
    })
}

#[test]
fn a_status_endpoint_tells_what_the_server_consumes() {
    let server = server();
    let mut plan = plan(&server.url("/"), 2, 1);
    plan.limit = LoadLimit::Time(Duration::from_secs(2));
    plan.status_page = Some(server.url("/metrics").parse().unwrap());
    let report = run(plan);
    assert!(report.responses > 10 && report.failed == 0, "{report:?}");
    let said = report.server.unwrap();
    // Requests for the endpoint, and those around the edges of the measurement, count too.
    assert!(
        (495.0..650.0).contains(&said.cpu_per_response_us),
        "{said:?}"
    );
    assert_eq!((said.pid, said.descriptors), (None, 12));
    assert_eq!(said.memory_bytes, 5_000_000);
    assert_eq!(said.user_per_response_us, None);
    assert!(said.name.ends_with("/metrics"), "{said:?}");
}

#[test]
fn an_endpoint_that_tells_nothing_is_an_error() {
    let server = server();
    let mut plan = plan(&server.url("/"), 1, 1);
    plan.status_page = Some(server.url("/").parse().unwrap());
    let error = apus_bench::run(plan.clone(), &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::Process(_)), "{error}");
    assert!(
        error.to_string().contains("process_cpu_seconds_total"),
        "{error}"
    );
    plan.status_page = Some("http://192.0.2.1/metrics".parse().unwrap());
    let error = apus_bench::run(plan, &mut |_| {}).unwrap_err();
    assert!(matches!(error, BenchError::NotLocal { .. }), "{error}");
}
