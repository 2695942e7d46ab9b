//! Child processes: programs that end with this process, and a fork of it.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Child, Command};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};

use crate::account::SystemAccount;

/// The first descriptor after standard input, output and error.
const FIRST_DESCRIPTOR: i32 = 3;

/// Starts a program in a separate process group. It gets SIGTERM when the thread that started it ends, even
/// if this process is killed and cannot clean up. With an account, it runs as that user, without any
/// capability.
///
/// # Errors
/// It cannot be started.
pub fn spawn_dependent(
    command: &mut Command,
    account: Option<&SystemAccount>,
) -> io::Result<Child> {
    let us = rustix::process::getpid();
    let account = account.map(|account| (account.clone(), account.raw_groups()));
    command.process_group(0);
    // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is
    // taken.
    unsafe {
        command.pre_exec(move || {
            if let Some((account, groups)) = &account {
                account.assume_with(groups)?;
            }
            // A change of the user resets it, so it comes last.
            set_parent_process_death_signal(Some(Signal::TERM))?;
            // The parent may have ended before that was set.
            if getppid() == Some(us) {
                Ok(())
            } else {
                Err(io::ErrorKind::BrokenPipe.into())
            }
        });
    }
    command.spawn()
}

/// Starts a program in the process group of another, as an account if there is one.
///
/// # Errors
/// It cannot be started.
pub fn spawn_in_group(
    command: &mut Command,
    group: Pid,
    account: Option<&SystemAccount>,
) -> io::Result<Child> {
    command.process_group(group.as_raw_nonzero().get());
    if let Some(account) = account {
        let (account, groups) = (account.clone(), account.raw_groups());
        // SAFETY: between fork and exec only system calls are made; nothing is allocated and no lock is
        // taken.
        unsafe { command.pre_exec(move || account.assume_with(&groups)) };
    }
    command.spawn()
}

/// Forks this process. The child closes every descriptor except its standard ones and `kept`, runs `child`
/// with that, and ends.
///
/// # Errors
/// This process has a second thread, whose locks would block the child for ever, or the system has no
/// resources for another process.
pub fn fork(kept: OwnedFd, child: impl FnOnce(OwnedFd)) -> io::Result<()> {
    if fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other(
            "a process with several threads is not forked",
        ));
    }
    // SAFETY: there is no other thread, so the child can do all that its parent could.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let number = kept.as_raw_fd();
            // A listening socket or a lock that the child has a descriptor of stays taken after the parent has closed
            // it.
            for (first, last) in [
                (FIRST_DESCRIPTOR, number.saturating_sub(1)),
                (number.saturating_add(1).max(FIRST_DESCRIPTOR), i32::MAX),
            ] {
                if first <= last {
                    // SAFETY: the owners of these descriptors are on the stack of the caller, to
                    // which the child never returns.
                    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
                }
            }
            let is_done = catch_unwind(AssertUnwindSafe(|| child(kept))).is_ok();
            // SAFETY: it only ends the process, without the exit handlers of the parent.
            unsafe { libc::_exit(i32::from(!is_done)) }
        }
        _ => Ok(()),
    }
}
