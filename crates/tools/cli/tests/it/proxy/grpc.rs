//! gRPC from end to end: the interoperability tests of the gRPC project through the proxy.

use std::path::Path;
use std::process::Output;

use super::origins::{Origin, go};
use super::{Configuration, Front};
use crate::clients::certificate;
use crate::harness::Home;

/// Unary calls, streams in one and in both directions, metadata, statuses, deadlines, cancellation.
const CASES: [&str; 14] = [
    "empty_unary",
    "large_unary",
    "client_streaming",
    "server_streaming",
    "ping_pong",
    "empty_stream",
    "timeout_on_sleeping_server",
    "cancel_after_begin",
    "cancel_after_first_response",
    "custom_metadata",
    "status_code_and_message",
    "special_status_message",
    "unimplemented_method",
    "unimplemented_service",
];

/// Runs each case against the server at an address; over TLS if an authority is given.
fn run_cases(address: &str, authority: Option<&Path>) -> Output {
    let mut command = go("grpc");
    if let Some(authority) = authority {
        command.arg("-ca").arg(authority);
    }
    command.args(["ask", address]).args(CASES);
    command.output().unwrap()
}

fn assert_passes(front: &Front) {
    let clear = run_cases(&front.apus.address().to_string(), None);
    let encrypted = run_cases(&front.tls_authority(), Some(&front.authority_file()));
    for (transport, output) in [("clear", clear), ("TLS", encrypted)] {
        let passed = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        let expected: String = CASES
            .iter()
            .map(|case| format!("passed {case}\n"))
            .collect();
        assert_eq!(passed, expected, "{transport}: {errors}");
        assert!(output.status.success(), "{transport}: {errors}");
    }
}

#[test]
fn grpc_passes_from_end_to_end() {
    let origin = Origin::grpc();
    let front = Configuration::of([origin.address()])
        .group("protocol = \"h2\"")
        .tls()
        .serve();
    assert_passes(&front);
}

#[test]
fn grpc_passes_from_end_to_end_with_an_origin_over_tls() {
    for protocol in ["h2", "auto"] {
        let home = Home::new();
        certificate(&home, "origin", "localhost");
        let origin = Origin::grpc_over_tls(&home.path("origin"));
        let node = format!("https://localhost:{}", origin.address().port());
        let front = Configuration::of_names([node])
            .group(&format!("protocol = \"{protocol}\""))
            .group("tls = { ca = \"origin.pem\" }")
            .tls()
            .serve_in(home);
        assert_passes(&front);
    }
}
