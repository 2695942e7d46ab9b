//! Processes beside the tests, such as servers, that tell when they are ready and end with the tests.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A process that prints the line `ready` when it is, and ends when its standard input does: with this value, or with the
/// process of the tests, since values that all tests share are never dropped.
pub struct ReadyProcess(Child);

impl ReadyProcess {
    /// Starts it, and waits until it is ready.
    ///
    /// # Panics
    /// It ends before, or the tests [may not start servers](may_start_servers). The message has its standard error.
    pub fn start(command: &mut Command) -> Self {
        let why = "a test that starts a server is in a module that `.ci/test-fast` skips";
        assert!(may_start_servers(), "{why}: {command:?}");
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("run `make tools`; {command:?}: {error}"));
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        if line.trim() != "ready" {
            let mut errors = String::new();
            let _ = child.stderr.take().unwrap().read_to_string(&mut errors);
            panic!("run `make tools`; {command:?} does not start:\n{errors}");
        }
        Self(child)
    }

    /// Ends it, and waits for that.
    pub fn stop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Drop for ReadyProcess {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether the tests may start other programs, as databases. `make test-fast` sets `APUS_TEST_WITHOUT_SERVERS`: a test that runs on
/// each store then runs on those that need none.
pub fn may_start_servers() -> bool {
    std::env::var_os("APUS_TEST_WITHOUT_SERVERS").is_none()
}

/// A new folder for a process that removes it when it ends.
pub fn process_folder() -> PathBuf {
    let folder = tempfile::Builder::new().prefix("apus-test-").tempdir();
    folder.unwrap().keep()
}
