//! The trait that starts PHP as another user, for a server without that privilege.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::plan::PhpCgiPlan;

/// Starts PHP as other users, and supervises these processes: a server that dropped its privileges asks a process
/// that kept them.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// Starts PHP as [`spawn`](crate::spawn) does. It ends with the launcher.
    ///
    /// # Errors
    /// PHP cannot be started.
    fn start(&self, plan: &PhpCgiPlan, children: usize, socket: OwnedFd) -> io::Result<PhpProcess>;

    /// The exit status of PHP that this launcher started, if it has ended.
    ///
    /// # Errors
    /// The launcher does not respond.
    fn ended(&self, pid: Pid) -> io::Result<Option<String>>;

    /// Kills PHP that this launcher started, with its children.
    ///
    /// # Errors
    /// This launcher did not start it, or does not respond.
    fn kill(&self, pid: Pid) -> io::Result<()>;

    /// Kills one child of PHP that this launcher started.
    ///
    /// # Errors
    /// The process is no such child, or the launcher does not respond.
    fn kill_child(&self, pid: Pid) -> io::Result<()>;
}

/// PHP that a [`Launcher`] started.
#[derive(Debug)]
pub struct PhpProcess {
    /// Its process ID.
    pub pid: Pid,
    /// The read end of its standard error.
    pub stderr: OwnedFd,
}
