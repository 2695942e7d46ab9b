//! The limits of connections by the file descriptors of this process.
//!
//! Some descriptors are reserved for files, and some for new clients.

use std::cell::RefCell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// The open connections of this process with what counts as one, and those that are to origins.
// These are the shared atomics of the process that connections, not requests, change. `Relaxed` is enough: two
// workers that pass a bound at once exceed it by one, and above the bounds there is a reserve.
static OPEN: AtomicU64 = AtomicU64::new(0);
static ORIGINS: AtomicU64 = AtomicU64::new(0);

/// How often idle clients are closed for one connection to an origin.
const TRIES: usize = 3;

/// How long a client has to be idle before it is closed for a connection to an origin: a new client is about
/// to send a request.
const IDLE: Duration = Duration::from_secs(1);

/// Closes clients that have been idle for at least this time; returns how many, at most as many as wanted.
type CloseIdle = dyn Fn(u64, Duration) -> u64;

thread_local! {
    static CLOSE_IDLE: RefCell<Option<Box<CloseIdle>>> = const { RefCell::new(None) };
}

/// The descriptor of a connection, which counts while this exists.
#[derive(Debug)]
pub struct DescriptorPermit {
    is_of_origin: bool,
}

impl DescriptorPermit {
    /// The permit of a connection with a client.
    pub fn of_client() -> Self {
        OPEN.fetch_add(1, Ordering::Relaxed);
        Self {
            is_of_origin: false,
        }
    }

    /// The permit of a descriptor that stays open beside the connections, such as a pipe of a worker process: there are
    /// fewer connections then, as the descriptors above the bounds would not suffice for files.
    pub fn of_pipe() -> Self {
        Self::of_client()
    }

    /// The permit of a connection to an origin. When few descriptors are left, idle clients are closed first.
    ///
    /// # Errors
    /// There is no descriptor; the error is `EMFILE`.
    pub async fn of_origin() -> io::Result<Self> {
        // Requests that hang at an origin take two descriptors each. Without their own bound, there was none left to
        // accept a client with, or to open a file.
        if let Some(bounds) = DescriptorBounds::now() {
            bounds.make_room_for_origin().await?;
        }
        OPEN.fetch_add(1, Ordering::Relaxed);
        ORIGINS.fetch_add(1, Ordering::Relaxed);
        Ok(Self { is_of_origin: true })
    }
}

impl Drop for DescriptorPermit {
    fn drop(&mut self) {
        OPEN.fetch_sub(1, Ordering::Relaxed);
        if self.is_of_origin {
            ORIGINS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// How many connections there may be. The descriptors above are for files, and for those that the process
/// always has open.
#[derive(Clone, Copy)]
struct DescriptorBounds {
    /// Past this, no connections to origins are opened, so that requests to slow origins do not keep other
    /// clients out; except a share that is reserved for them.
    origins: u64,
    share_of_origins: u64,
    /// Past this, idle connections are closed for new ones.
    idle: u64,
    /// Past this, there are no further connections.
    all: u64,
}

impl DescriptorBounds {
    fn now() -> Option<Self> {
        // Asked each time: `prlimit(1)` changes the limit of a process that runs.
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
            // They close when their tasks are polled.
            tokio::task::yield_now().await;
        }
        Err(Errno::MFILE.into())
    }
}

/// Sets the function that closes idle connections of this thread for new connections to origins.
pub fn set_idle_closer(close_idle: impl Fn(u64, Duration) -> u64 + 'static) {
    CLOSE_IDLE.set(Some(Box::new(close_idle)));
}

/// Whether too few descriptors are left for a new connection unless an idle one closes.
pub fn are_short() -> bool {
    DescriptorBounds::now().is_some_and(|bounds| OPEN.load(Ordering::Relaxed) > bounds.idle)
}

/// Whether too few descriptors are left for a new connection to stay.
pub fn are_exhausted() -> bool {
    DescriptorBounds::now().is_some_and(|bounds| OPEN.load(Ordering::Relaxed) > bounds.all)
}

/// Closes clients of this thread that have been idle for a while; returns how many.
fn close_idle(wanted: u64) -> u64 {
    CLOSE_IDLE.with_borrow(|close| close.as_ref().map_or(0, |close| close(wanted, IDLE)))
}

/// Whether an error is a lack of descriptors, of the process or of the system.
pub fn is_exhausted(error: &io::Error) -> bool {
    // `io::ErrorKind` has no name for either.
    let number = error.raw_os_error();
    [Errno::MFILE, Errno::NFILE]
        .iter()
        .any(|lack| number == Some(lack.raw_os_error()))
}
