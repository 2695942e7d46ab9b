//! The record of one worker, shared by its connection and the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use apus_transport::coarse_now;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal};

use crate::launcher::Launcher;
use crate::plan::Recycle;
use crate::wire::Hello;

/// The number of a worker, unique in its pool.
pub(crate) type WorkerId = u64;

/// The record of one worker. Only the holder of the connection writes the counters.
#[derive(Debug)]
pub(crate) struct WorkerRecord {
    pub(crate) id: WorkerId,
    pub(crate) generation: u64,
    pub(crate) hello: Hello,
    /// The process of the peer, from the kernel (SO_PEERCRED).
    pub(crate) pid: Option<Pid>,
    pub(crate) started: Instant,
    requests: AtomicU64,
    memory: AtomicU32,
    busy: AtomicBool,
    /// When PHP began to execute a request, in milliseconds since `started`, or `NOT_EXECUTING`. While the worker
    /// waits for the client, PHP does not execute.
    executing_since: AtomicU64,
    killed: AtomicBool,
    retiring: AtomicBool,
    limits: RecycleLimits,
    /// A handle on the connection, to shut it down.
    socket: OwnedFd,
    /// Kills the process if this process has not the privilege.
    launcher: Option<Arc<dyn Launcher>>,
}

/// When a worker is recycled, with jitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecycleLimits {
    requests: u64,
    memory: u64,
    age: Duration,
}

const NOT_EXECUTING: u64 = u64::MAX;

impl RecycleLimits {
    /// The limits with a jitter of a tenth from any `random` number.
    pub(crate) fn new(recycle: &Recycle, random: u64) -> Self {
        let permille = 900 + random % 201;
        let jitter = |value: u64| match value {
            0 => u64::MAX,
            value => (value.saturating_mul(permille) / 1000).max(1),
        };
        let age = u64::try_from(recycle.age.as_millis()).unwrap_or(u64::MAX);
        Self {
            requests: jitter(recycle.requests),
            memory: match recycle.memory {
                0 => u64::MAX,
                bytes => bytes,
            },
            age: Duration::from_millis(jitter(age)),
        }
    }
}

/// The identity of a worker after its HELLO.
pub(crate) struct WorkerIdentity {
    pub(crate) id: WorkerId,
    pub(crate) generation: u64,
    pub(crate) hello: Hello,
    pub(crate) pid: Option<Pid>,
    pub(crate) limits: RecycleLimits,
    pub(crate) socket: OwnedFd,
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
}

impl WorkerRecord {
    pub(crate) fn new(identity: WorkerIdentity) -> Self {
        let WorkerIdentity {
            id,
            generation,
            hello,
            pid,
            limits,
            socket,
            launcher,
        } = identity;
        Self {
            id,
            generation,
            hello,
            pid,
            started: Instant::now(),
            requests: AtomicU64::new(0),
            memory: AtomicU32::new(0),
            busy: AtomicBool::new(false),
            executing_since: AtomicU64::new(NOT_EXECUTING),
            killed: AtomicBool::new(false),
            retiring: AtomicBool::new(false),
            limits,
            socket,
            launcher,
        }
    }

    /// Records that the worker gets a request.
    pub(crate) fn mark_busy(&self) {
        self.busy.store(true, Relaxed);
        // Only the holder of the connection writes.
        self.requests
            .store(self.requests.load(Relaxed).saturating_add(1), Relaxed);
        self.set_executing(true);
    }

    /// Records that the worker is idle.
    pub(crate) fn mark_idle(&self) {
        self.executing_since.store(NOT_EXECUTING, Relaxed);
        self.busy.store(false, Relaxed);
    }

    /// Records whether PHP executes, or waits for the client.
    pub(crate) fn set_executing(&self, executes: bool) {
        let is_executing = self.executing_since.load(Relaxed) != NOT_EXECUTING;
        if executes != is_executing {
            let since = if executes {
                u64::try_from(self.started.elapsed().as_millis()).unwrap_or(NOT_EXECUTING - 1)
            } else {
                NOT_EXECUTING
            };
            self.executing_since.store(since, Relaxed);
        }
    }

    /// Since when PHP executes, if it does.
    pub(crate) fn executing_since(&self) -> Option<Instant> {
        match self.executing_since.load(Relaxed) {
            NOT_EXECUTING => None,
            since => self.started.checked_add(Duration::from_millis(since)),
        }
    }

    /// When the worker reaches its maximum age.
    pub(crate) fn expires_at(&self) -> Option<Instant> {
        self.started.checked_add(self.limits.age)
    }

    pub(crate) fn remember_memory(&self, bytes: u32) {
        self.memory.store(bytes, Relaxed);
    }

    /// Whether the worker is to be replaced.
    pub(crate) fn must_recycle(&self) -> bool {
        self.retiring.load(Relaxed)
            || self.requests.load(Relaxed) >= self.limits.requests
            || u64::from(self.memory.load(Relaxed)) > self.limits.memory
            || coarse_now().saturating_duration_since(self.started) >= self.limits.age
    }

    /// Makes the worker stop when it is idle.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Relaxed);
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring.load(Relaxed)
    }

    /// Kills the process, if that is permitted, and closes the connection. The process ID cannot have been reused,
    /// as the process lives while the connection is open.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        if let Some(pid) = self.pid
            && let Err(error) = self.kill_process(pid)
        {
            tracing::warn!(
                pid = pid.as_raw_nonzero().get(),
                %error,
                "a worker could not be killed; its connection is closed, but its process may still run"
            );
        }
        self.disconnect();
    }

    fn kill_process(&self, pid: Pid) -> io::Result<()> {
        match (
            rustix::process::kill_process(pid, Signal::KILL),
            &self.launcher,
        ) {
            (Err(Errno::PERM), Some(launcher)) => launcher.kill_child(pid),
            (result, _) => Ok(result?),
        }
    }

    /// Closes the connection for all its holders.
    pub(crate) fn disconnect(&self) {
        let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Relaxed)
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Relaxed)
    }

    pub(crate) fn memory(&self) -> u32 {
        self.memory.load(Relaxed)
    }

    /// The process ID; 0 if it is unknown.
    pub(crate) fn pid_number(&self) -> i32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_have_a_jitter_of_a_tenth_at_most() {
        let recycle = Recycle {
            requests: 1000,
            memory: 5,
            age: Duration::from_secs(100),
        };
        for random in [0, 1, 100, 200, u64::MAX] {
            let limits = RecycleLimits::new(&recycle, random);
            assert!((900..=1100).contains(&limits.requests));
            assert!((90..=110).contains(&limits.age.as_secs()));
            assert_eq!(limits.memory, 5);
        }
        let ever = RecycleLimits::new(&Recycle::default(), 7);
        assert_eq!((ever.requests, ever.memory), (u64::MAX, u64::MAX));
        assert_eq!(
            RecycleLimits::new(
                &Recycle {
                    requests: 1,
                    ..recycle
                },
                0
            )
            .requests,
            1
        );
    }
}
