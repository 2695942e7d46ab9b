//! Processes of a comparison: where they run, and what they print.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::thread;

use crate::CpuList;

/// The last bytes of the output of a command that are shown when it fails.
const OUTPUT_SHOWN: i64 = 2000;

/// Waits until its standard input ends, as it does when this process ends in whatever way, and then stops a process group: politely at
/// first, and ten seconds later by force.
const GUARD: &str = r#"read -r _
kill -s TERM -- "-$1"
n=0
while kill -s 0 -- "-$1" && [ "$n" -lt 100 ]; do sleep 0.1; n=$((n + 1)); done
kill -s KILL -- "-$1""#;

/// A process beside another one that leads a group. It stops the group when this process is killed, and cannot do so itself.
pub(crate) struct GroupGuard(Child);

impl GroupGuard {
    /// A guard for the group that a process leads.
    pub(crate) fn of(leader: &Child) -> io::Result<Self> {
        // In a group of its own, so that Ctrl-C does not end it first.
        Command::new("sh")
            .args(["-c", GUARD, "guard", &leader.id().to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .map(Self)
    }
}

impl Drop for GroupGuard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a process that may use these processors only, as its first thread inherits those of the thread that starts it.
pub(crate) fn spawn_pinned(mut command: Command, cores: Option<CpuList>) -> io::Result<Child> {
    let start = move || {
        if let Some(cores) = cores {
            cores.pin()?;
        }
        command.spawn()
    };
    let started = thread::Builder::new().spawn(start)?.join();
    started.unwrap_or_else(|_| Err(io::Error::other("the thread that starts it failed")))
}

/// The end of what a command has printed.
pub(crate) fn last_output(output: &mut File) -> String {
    let mut text = Vec::new();
    let end = output.seek(SeekFrom::End(0)).unwrap_or(0);
    let begin = i64::try_from(end).unwrap_or(0).saturating_sub(OUTPUT_SHOWN);
    let begin = u64::try_from(begin).unwrap_or(0);
    let read = output
        .seek(SeekFrom::Start(begin))
        .and_then(|_| output.read_to_end(&mut text));
    match read {
        Ok(1..) => format!(
            "; it printed:\n{}",
            String::from_utf8_lossy(&text).trim_end()
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use apus_testkit::wait_until;
    use rustix::process::{Pid, test_kill_process_group};

    use super::*;

    #[test]
    fn a_group_is_stopped_when_the_process_that_started_it_is_killed() {
        // The shell waits for another process of its group.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap wait TERM; sleep 1000 & wait"])
            .process_group(0);
        let mut leader = spawn_pinned(command, None).unwrap();
        let group = Pid::from_child(&leader);
        let mut guard = GroupGuard::of(&leader).unwrap();
        assert!(test_kill_process_group(group).is_ok());
        // As the system closes it at the end of a process.
        drop(guard.0.stdin.take());
        leader.wait().unwrap();
        wait_until("the end of the guard, and so of the group", || {
            guard.0.try_wait().unwrap().is_some()
        });
    }
}
