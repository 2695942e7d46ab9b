//! Handles that one thread gives back while the worker calls back with them.

use crate::program::{command, compile};

fn run(mode: &str) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("races.c", folder.path());
    let output = command(&program).arg(mode).output().unwrap();
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert_eq!((&*text, &*errors), ("passed\n", ""), "{}", output.status);
}

#[test]
fn a_handle_that_is_given_back_by_a_thread_stays_valid_in_the_callback_that_runs() {
    run("gates");
}

#[test]
fn writers_are_finished_by_threads_while_their_clients_leave() {
    run("load");
}
