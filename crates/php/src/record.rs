//! What is known of one worker, by whoever has its connection and by the supervisor.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use apus_net::coarse_now;
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::{Pid, Signal};

use crate::launcher::Launcher;
use crate::plan::Recycle;
use crate::wire::Hello;

/// A number that no other worker of its pool has.
pub(crate) type WorkerId = u64;

/// One worker. Counters are written by who has the connection and read for the status.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) id: WorkerId,
    pub(crate) generation: u64,
    pub(crate) hello: Hello,
    /// The process at the other end, as the kernel says (SO_PEERCRED).
    pub(crate) pid: Option<Pid>,
    pub(crate) started: Instant,
    requests: AtomicU64,
    memory: AtomicU32,
    busy: AtomicBool,
    /// Milliseconds from `started` to when PHP was last waited for; `NOT` if it is not.
    awaited_since: AtomicU64,
    killed: AtomicBool,
    retiring: AtomicBool,
    life: Life,
    /// The connection, to shut it down from elsewhere.
    socket: OwnedFd,
    /// Kills its process if we may not.
    launcher: Option<Arc<dyn Launcher>>,
}

/// When it makes room, with its jitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    requests: u64,
    memory: u64,
    age: Duration,
}

const NOT: u64 = u64::MAX;

impl Life {
    /// `random` is any number: it makes a tenth of more or less.
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

/// Who a worker is, as far as it is known when it says so.
pub(crate) struct Identity {
    pub(crate) id: WorkerId,
    pub(crate) generation: u64,
    pub(crate) hello: Hello,
    pub(crate) pid: Option<Pid>,
    pub(crate) life: Life,
    pub(crate) socket: OwnedFd,
    pub(crate) launcher: Option<Arc<dyn Launcher>>,
}

impl Record {
    pub(crate) fn new(identity: Identity) -> Self {
        let Identity {
            id,
            generation,
            hello,
            pid,
            life,
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
            awaited_since: AtomicU64::new(NOT),
            killed: AtomicBool::new(false),
            retiring: AtomicBool::new(false),
            life,
            socket,
            launcher,
        }
    }

    /// Takes notice of a request that it gets.
    pub(crate) fn begin(&self) {
        self.busy.store(true, Relaxed);
        // Only who has the connection writes.
        self.requests
            .store(self.requests.load(Relaxed).saturating_add(1), Relaxed);
        self.awaits(true);
    }

    /// Takes notice that it is free.
    pub(crate) fn end(&self) {
        self.awaited_since.store(NOT, Relaxed);
        self.busy.store(false, Relaxed);
    }

    /// Whether PHP is waited for, and not the client.
    pub(crate) fn awaits(&self, awaits: bool) {
        let is_awaited = self.awaited_since.load(Relaxed) != NOT;
        if awaits != is_awaited {
            let since = match awaits {
                true => u64::try_from(self.started.elapsed().as_millis()).unwrap_or(NOT - 1),
                false => NOT,
            };
            self.awaited_since.store(since, Relaxed);
        }
    }

    /// Since when PHP is waited for, if it is.
    pub(crate) fn awaited_since(&self) -> Option<Instant> {
        match self.awaited_since.load(Relaxed) {
            NOT => None,
            since => self.started.checked_add(Duration::from_millis(since)),
        }
    }

    /// When it is too old.
    pub(crate) fn old_at(&self) -> Option<Instant> {
        self.started.checked_add(self.life.age)
    }

    pub(crate) fn remember_memory(&self, bytes: u32) {
        self.memory.store(bytes, Relaxed);
    }

    /// Whether it is to make room now.
    pub(crate) fn is_spent(&self) -> bool {
        self.retiring.load(Relaxed)
            || self.requests.load(Relaxed) >= self.life.requests
            || u64::from(self.memory.load(Relaxed)) > self.life.memory
            || coarse_now().saturating_duration_since(self.started) >= self.life.age
    }

    /// Has it make room when it is free.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Relaxed);
    }

    pub(crate) fn is_retiring(&self) -> bool {
        self.retiring.load(Relaxed)
    }

    /// Kills its process, if that is permitted, and ends the connection. Its process is there as long as
    /// the connection was open, so the number is nobody else's.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        if let Some(pid) = self.pid
            && let Err(error) = self.kill_process(pid)
        {
            tracing::warn!(
                pid = pid.as_raw_nonzero().get(),
                %error,
                "a worker could not be killed; its connection is closed, and it may go on alone"
            );
        }
        self.hang_up();
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

    /// Ends the connection, whoever has it.
    pub(crate) fn hang_up(&self) {
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

    /// The number of its process.
    pub(crate) fn pid_number(&self) -> i32 {
        self.pid.map_or(0, |pid| pid.as_raw_nonzero().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_differ_by_a_tenth_at_most() {
        let recycle = Recycle {
            requests: 1000,
            memory: 5,
            age: Duration::from_secs(100),
        };
        for random in [0, 1, 100, 200, u64::MAX] {
            let life = Life::new(&recycle, random);
            assert!((900..=1100).contains(&life.requests));
            assert!((90..=110).contains(&life.age.as_secs()));
            assert_eq!(life.memory, 5);
        }
        let ever = Life::new(&Recycle::default(), 7);
        assert_eq!((ever.requests, ever.memory), (u64::MAX, u64::MAX));
        assert_eq!(
            Life::new(
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
