//! Programs that end with us, however we end.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Starts a program in a process group of its own, which gets SIGTERM when the thread that started it
/// ends: also when this process is killed and can clean nothing up.
///
/// # Errors
/// It cannot be started.
pub fn spawn_tied(command: &mut Command) -> io::Result<Child> {
    let us = rustix::process::getpid();
    command.process_group(0);
    // SAFETY: between fork and exec only two system calls are made; nothing is allocated and no lock is
    // taken.
    unsafe {
        command.pre_exec(move || {
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // We may have ended before that was set.
            match getppid() == Some(us) {
                true => Ok(()),
                false => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
    }
    command.spawn()
}
