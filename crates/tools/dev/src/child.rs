//! A child process that ends with this one, and whose end can be awaited.

use std::io;
use std::process::{Child, ChildStderr, ChildStdout, Command, ExitStatus};
use std::time::Duration;

use apus_net::spawn_dependent;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::timeout;

/// How long a process may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A child with a separate process group. It is killed when this is dropped, and ends when this process does.
pub(crate) struct DependentChild {
    child: Child,
    /// A child of this process has ended.
    ends: SignalStream,
    has_ended: bool,
}

impl DependentChild {
    /// Starts a program, from the thread on whose end the system ends it.
    pub(crate) fn start(command: &mut Command) -> io::Result<Self> {
        // Before the start, so that the end is not missed.
        let ends = signal(SignalKind::child())?;
        Ok(Self {
            child: spawn_dependent(command, None)?,
            ends,
            has_ended: false,
        })
    }

    pub(crate) fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    pub(crate) fn take_stderr(&mut self) -> Option<ChildStderr> {
        self.child.stderr.take()
    }

    /// Waits for the end of the process.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.has_ended = true;
                return Ok(status);
            }
            self.ends.recv().await;
        }
    }

    /// Asks the process to end, and kills it if it does not.
    pub(crate) async fn stop(mut self) {
        self.signal(Signal::TERM);
        if timeout(STOP_TIMEOUT, self.wait()).await.is_err() {
            self.signal(Signal::KILL);
            let _ = self.wait().await;
        }
    }

    /// Signals the group of the process, unless it was waited for: its number may be another process then.
    fn signal(&self, signal: Signal) {
        if !self.has_ended {
            let _ = kill_process_group(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for DependentChild {
    fn drop(&mut self) {
        if !self.has_ended {
            self.signal(Signal::KILL);
            let _ = self.child.wait();
        }
    }
}
