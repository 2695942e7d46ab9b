//! Workers inside a loop of the program, and in the children of a fork.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;

use crate::program::{Program, command, compile, connect, get};

#[test]
fn a_worker_serves_inside_the_loop_of_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("loop.c", folder.path());
    let mut program = Program::start(command(&program));
    let port = program.line().parse().unwrap();
    for _ in 0..20 {
        assert_eq!(get(port, "/hello").body, "from the loop");
    }
    // From another thread, which wakes the loop by its descriptor.
    assert_eq!(get(port, "/defer").body, "from a thread");
    assert_eq!(get(port, "/timer").body, "from a timer");
    assert_eq!(get(port, "/again").body, "APUS_STATE");
    let mut idle = connect(port);
    idle.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        .unwrap();
    let mut some = [0; 16];
    idle.read_exact(&mut some).unwrap();
    let begun = std::time::Instant::now();
    let rest = program.end();
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(4),
        "idle connections end at once"
    );
    assert_eq!(rest, "ended\n");
    let _ = idle.shutdown(Shutdown::Both);
}

#[test]
fn children_of_a_fork_serve_one_address() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile("prefork.c", folder.path());
    let mut program = Program::start(command(&program));
    let port = program.line().parse().unwrap();
    assert_eq!(program.line(), "ready");
    assert_eq!(program.line(), "ready");
    let mut seen = std::collections::HashSet::new();
    crate::program::eventually("responses of both children", || {
        seen.insert(get(port, "/").body);
        seen.len() == 2
    });
    assert_eq!(program.end(), "ended\n");
}
