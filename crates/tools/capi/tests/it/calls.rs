//! Calls with wrong arguments, in wrong states and in random orders.

use std::os::unix::process::ExitStatusExt as _;

use crate::program::{command, compile};

fn calls(arguments: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let output = command(&compile("calls.c", folder.path()))
        .args(arguments)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{arguments:?}: {} {text} {errors}",
        output.status
    );
    assert_eq!(text, "no mistakes\n");
}

#[test]
fn wrong_arguments_and_states_are_errors_with_a_text() {
    calls(&["errors"]);
}

#[test]
fn memory_comes_from_the_functions_of_the_program() {
    calls(&["allocator"]);
}

#[test]
fn random_calls_never_crash() {
    let seeds = std::env::var("APUS_CALL_SEEDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(8);
    for seed in 1..=seeds {
        calls(&["random", &seed.to_string(), "1000"]);
    }
}

#[test]
fn random_calls_in_handlers_never_crash() {
    let requests = std::env::var("APUS_CALL_REQUESTS").unwrap_or_else(|_| "500".to_owned());
    calls(&["handlers", "1", &requests]);
}

#[test]
#[cfg(debug_assertions)]
fn a_request_after_its_end_aborts_with_the_name_of_its_handler() {
    use std::io::Read as _;
    use std::process::Stdio;

    let folder = tempfile::tempdir().unwrap();
    let mut command = command(&compile("after_end.c", folder.path()));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut errors = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut errors)
        .unwrap();
    let status = child.wait().unwrap();
    assert_eq!(status.signal(), Some(6), "{status}: {errors}");
    assert!(
        errors.contains("a request of the handler of GET /keep (keep) was used after its end"),
        "{errors}"
    );
}
