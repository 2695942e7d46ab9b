//! Starting PHP as another user, for a server that may not do so itself.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;

use rustix::process::Pid;

use crate::plan::Own;

/// Starts PHP as other users, and looks after what it started: a process that gave its privileges away
/// asks one that has kept them.
pub trait Launcher: fmt::Debug + Send + Sync {
    /// Starts PHP as [`spawn`](crate::spawn) does. It ends with the launcher.
    ///
    /// # Errors
    /// It cannot be started.
    fn start(&self, own: &Own, children: usize, socket: OwnedFd) -> io::Result<Launched>;

    /// How PHP ended that was started here, if it has ended.
    ///
    /// # Errors
    /// The launcher does not answer.
    fn ended(&self, pid: Pid) -> io::Result<Option<String>>;

    /// Kills PHP that was started here, with its children.
    ///
    /// # Errors
    /// It was not started here, or the launcher does not answer.
    fn kill(&self, pid: Pid) -> io::Result<()>;

    /// Kills one child of PHP that was started here.
    ///
    /// # Errors
    /// It is no such child, or the launcher does not answer.
    fn kill_child(&self, pid: Pid) -> io::Result<()>;
}

/// PHP that a [`Launcher`] started.
#[derive(Debug)]
pub struct Launched {
    /// Its number.
    pub pid: Pid,
    /// The pipe of its standard error.
    pub errors: OwnedFd,
}
