//! The file descriptors of this process when they run short.
//!
//! Some are left for files, and for clients who come.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Connections that this process has open, and those of them that are with origins.
static OPEN: AtomicU64 = AtomicU64::new(0);
static ORIGINS: AtomicU64 = AtomicU64::new(0);

/// How often idle clients are made to give descriptors back for one connection to an origin.
const TRIES: usize = 3;

/// How long a client has been idle that gives its descriptor back to a connection to an origin: who just
/// came is about to ask for something.
const IDLE: Duration = Duration::from_secs(1);

/// Has clients close that have been idle for at least this time; returns how many, at most as many as wanted.
type CloseIdle = dyn Fn(u64, Duration) -> u64;

thread_local! {
    static CLOSE_IDLE: RefCell<Option<Box<CloseIdle>>> = const { RefCell::new(None) };
}

/// The descriptor of a connection, counted for as long as this is there.
#[derive(Debug)]
pub(crate) enum DescriptorPermit {
    Client,
    Origin,
}

impl DescriptorPermit {
    /// That of a connection with a client.
    pub(crate) fn of_client() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self::Client
    }

    /// That of a connection with an origin. When few are left, clients that have been idle for a while
    /// give theirs back first.
    ///
    /// # Errors
    /// There is none, which is told as the lack of descriptors.
    pub(crate) async fn of_origin() -> io::Result<Self> {
        if let Some(bounds) = DescriptorBounds::now() {
            bounds.make_room_for_origin().await?;
        }
        OPEN.fetch_add(1, Ordering::Relaxed);
        ORIGINS.fetch_add(1, Ordering::Relaxed);
        Ok(Self::Origin)
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        if matches!(self, Self::Origin) {
            ORIGINS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How many connections there may be. What is above is for files, and for what the process always has
/// open.
#[derive(Clone, Copy)]
struct DescriptorBounds {
    /// Past this, there are no more to origins, so that requests that wait for these do not keep out those
    /// who come for something else; but for a share that clients do not take either.
    origins: u64,
    share_of_origins: u64,
    /// Past this, idle ones close for those that come.
    idle: u64,
    /// Past this, there are no more.
    all: u64,
}

impl DescriptorBounds {
    fn now() -> Option<Self> {
        let limit = getrlimit(Resource::Nofile).current?;
        let without = |part: u64, kept: u64| limit.saturating_sub(limit / part + kept);
        let origins = without(4, 32).max(limit / 4);
        Some(Self {
            origins,
            share_of_origins: origins / 4,
            idle: without(8, 32).max(limit / 4),
            all: without(16, 24).max(limit / 2),
        })
    }

    async fn make_room_for_origin(self) -> io::Result<()> {
        for _ in 0..TRIES {
            let open = OPEN.load(Ordering::Relaxed);
            let has_share = ORIGINS.load(Ordering::Relaxed) < self.share_of_origins;
            if open < self.origins || (has_share && open < self.all) {
                return Ok(());
            }
            let excess = open.saturating_sub(self.origins).saturating_add(1);
            if close_idle(excess) == 0 {
                break;
            }
            // They close when it is their turn.
            tokio::task::yield_now().await;
        }
        Err(Errno::MFILE.into())
    }
}

/// Names the function that closes idle connections of this thread, for connections to origins that it opens.
pub(crate) fn set_idle_closer(close_idle: impl Fn(u64, Duration) -> u64 + 'static) {
    CLOSE_IDLE.set(Some(Box::new(close_idle)));
}

/// Whether there are so many connections that idle ones have to close for one that was just accepted.
pub(crate) fn are_short() -> bool {
    DescriptorBounds::now().is_some_and(|bounds| OPEN.load(Ordering::Relaxed) > bounds.idle)
}

/// Whether there are so many connections that one that was just accepted cannot stay.
pub(crate) fn are_exhausted() -> bool {
    DescriptorBounds::now().is_some_and(|bounds| OPEN.load(Ordering::Relaxed) > bounds.all)
}

/// Has clients of this thread close that have been idle for a while; returns how many.
fn close_idle(wanted: u64) -> u64 {
    CLOSE_IDLE.with_borrow(|close| close.as_ref().map_or(0, |close| close(wanted, IDLE)))
}

/// Whether an error is the lack of descriptors, of the process or of the system.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|lack| number == Some(lack.raw_os_error()))
}
