//! A `php-cgi` master that was started, whose children end with it and with this process.

use std::io::{self, PipeWriter, pipe};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitStatus, Stdio};

use apus_net::{SystemAccount, spawn_in_group};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// A `php-cgi` master with its children. They end when it does, when this is dropped, and when this process ends, even if
/// any of them is killed.
#[derive(Debug)]
pub struct PhpCgiProcess {
    master: Child,
    pid: Pid,
    guard: Option<PhpGuard>,
}

/// A shell in the process group of PHP, which kills the group when this process is gone. A child of php-cgi that gets
/// SIGTERM finishes its script first, and the master cannot pass on SIGKILL.
#[derive(Debug)]
struct PhpGuard {
    shell: Child,
    /// Closed when this process ends, which the shell sees.
    _life: PipeWriter,
}

const GUARD: &str = "trap '' HUP INT QUIT TERM; read -r line; kill -s KILL 0";

impl PhpCgiProcess {
    /// Takes the master of a separate process group, which `account` runs if it is another user.
    pub(super) fn new(master: Child, account: Option<&SystemAccount>) -> io::Result<Self> {
        let pid = i32::try_from(master.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or(io::ErrorKind::InvalidData)?;
        let guard = PhpGuard::start(pid, account)
            .inspect_err(|error| tracing::warn!(%error, "PHP is not guarded against SIGKILL"));
        Ok(Self {
            master,
            pid,
            guard: guard.ok(),
        })
    }

    /// The process ID of the master.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The read end of the standard error of PHP, once.
    pub fn take_stderr(&mut self) -> Option<OwnedFd> {
        self.master.stderr.take().map(OwnedFd::from)
    }

    /// The exit status of the master if it has ended; then its children are killed, too. The children of a master
    /// that was killed would serve on.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        // Until it is waited for, no other process can get its number or the number of its group.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if matches!(waitid(WaitId::Pid(self.pid), options), Ok(Some(_))) {
            self.kill_group();
        }
        self.master.try_wait()
    }

    /// Kills the master, if it has not ended, and its children.
    pub fn kill(&mut self) {
        if let Ok(None) = self.ended() {
            self.kill_group();
            let _ = self.master.wait();
        }
    }

    fn kill_group(&mut self) {
        let _ = kill_process_group(self.pid, Signal::KILL);
        if let Some(mut guard) = self.guard.take() {
            let _ = guard.shell.wait();
        }
    }
}

impl Drop for PhpCgiProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

impl PhpGuard {
    fn start(group: Pid, account: Option<&SystemAccount>) -> io::Result<Self> {
        let (end, life) = pipe()?;
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARD])
            .env_clear()
            .current_dir("/")
            .stdin(end)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let shell = spawn_in_group(&mut command, group, account)?;
        Ok(Self { shell, _life: life })
    }
}
