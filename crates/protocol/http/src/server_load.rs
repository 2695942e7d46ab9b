//! How busy the server is, for conditions.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How busy the workers of this process are, and how many connections they have. It is measured each second once something of this
/// process asks for it, such as a condition.
#[derive(Clone, Copy, Debug)]
pub struct ServerLoad;

static IS_WANTED: AtomicBool = AtomicBool::new(false);
static BUSY: AtomicU32 = AtomicU32::new(u32::MAX);
static CONNECTIONS: AtomicU64 = AtomicU64::new(u64::MAX);

impl ServerLoad {
    /// Has it measured from now on.
    pub fn want() {
        IS_WANTED.store(true, Ordering::Relaxed);
    }

    /// Whether something asks for it.
    pub fn is_wanted() -> bool {
        IS_WANTED.load(Ordering::Relaxed)
    }

    /// The share of their time in which the workers ran, or waited for a processor, in hundredths of a percent; `None` until it is
    /// known.
    pub fn busy() -> Option<u32> {
        Some(BUSY.load(Ordering::Relaxed)).filter(|busy| *busy != u32::MAX)
    }

    /// How many connections are open; `None` until it is known.
    pub fn connections() -> Option<u64> {
        Some(CONNECTIONS.load(Ordering::Relaxed)).filter(|count| *count != u64::MAX)
    }

    /// Sets what was measured.
    pub fn set(busy: Option<u32>, connections: u64) {
        BUSY.store(busy.unwrap_or(u32::MAX), Ordering::Relaxed);
        CONNECTIONS.store(connections, Ordering::Relaxed);
    }
}
