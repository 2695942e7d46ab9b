//! The memory budget of the process for responses, of which each connection gets a share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A connection gets at most this part of the budget, unless a single response needs more.
const SHARE: u64 = 8;

static OF_PROCESS: ResponseMemory = ResponseMemory::new(ResponseMemory::DEFAULT_LIMIT);

thread_local! {
    /// The reserved bytes of connections by their numbers. A connection stays on its thread.
    static CONNECTIONS: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// A budget of bytes, for compressors and buffers of responses.
///
/// A client decides how many responses are open at the same time, because it can open many streams and
/// read none of them. So their memory has to be bounded as a whole. A response without a reservation does
/// without the memory: it is sent uncompressed, or its origin is read only as fast as its client reads.
#[derive(Debug)]
pub struct ResponseMemory {
    limit: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

impl ResponseMemory {
    /// The default limit of the process in bytes.
    pub const DEFAULT_LIMIT: u64 = 128 << 20;

    /// Creates a budget of `limit` bytes.
    pub const fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            used: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        }
    }

    /// The budget of this process.
    pub fn of_process() -> &'static Self {
        &OF_PROCESS
    }

    /// Changes the limit. Existing reservations stay, even if they exceed it.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The limit in bytes.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The reserved bytes.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How often [`Self::reserve_for`] returned `None`.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Reserves bytes for a response over the connection with this number
    /// ([`ConnectionInfo::id`](crate::ConnectionInfo::id)), which has to belong to this thread. `None` if
    /// the budget or the share of the connection is used up.
    pub fn reserve_for(
        &'static self,
        connection: u64,
        bytes: u64,
    ) -> Option<ConnectionReservation> {
        let share = self.limit() / SHARE;
        let reserved = CONNECTIONS.with_borrow(|known| known.get(&connection).copied());
        let is_within = reserved.is_none_or(|reserved| reserved.saturating_add(bytes) <= share);
        if !is_within || !self.take(bytes, self.limit()) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        CONNECTIONS.with_borrow_mut(|known| {
            let reserved = known.entry(connection).or_default();
            *reserved = reserved.saturating_add(bytes);
        });
        Some(ConnectionReservation {
            connection,
            reservation: Reservation {
                memory: self,
                bytes,
            },
            of_thread: PhantomData,
        })
    }

    /// An empty reservation, for memory that is useful but not required.
    pub fn reserve_nothing(&'static self) -> Reservation {
        Reservation {
            memory: self,
            bytes: 0,
        }
    }

    fn take(&self, bytes: u64, limit: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= limit);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        self.used.fetch_update(set, fetch, more).is_ok()
    }

    fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Reserved bytes of a budget, released when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: &'static ResponseMemory,
    bytes: u64,
}

impl Reservation {
    /// The reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Changes the reservation to `bytes`, and returns whether the budget has as many. Such reservations
    /// get at most half of the budget; the rest is for [`ResponseMemory::reserve_for`].
    pub fn resize(&mut self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) if more > 0 => {
                if !self.memory.take(more, self.memory.limit() / 2) {
                    return false;
                }
            }
            _ => self.memory.release(self.bytes.saturating_sub(bytes)),
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.release(self.bytes);
    }
}

/// Bytes that are reserved for a response over one connection, released when this is dropped.
#[derive(Debug)]
pub struct ConnectionReservation {
    connection: u64,
    reservation: Reservation,
    /// Only the thread of a connection knows its share.
    of_thread: PhantomData<Rc<()>>,
}

impl ConnectionReservation {
    /// The reserved bytes.
    pub fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }
}

impl Drop for ConnectionReservation {
    fn drop(&mut self) {
        // The table is gone if the thread is ending.
        let _ = CONNECTIONS.try_with(|known| {
            let mut known = known.borrow_mut();
            if let Some(reserved) = known.get_mut(&self.connection) {
                *reserved = reserved.saturating_sub(self.reservation.bytes());
                if *reserved == 0 {
                    known.remove(&self.connection);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(limit: u64) -> &'static ResponseMemory {
        Box::leak(Box::new(ResponseMemory::new(limit)))
    }

    #[test]
    fn reserves_no_more_than_the_limit_and_releases_it() {
        let memory = memory(800);
        let all: Vec<_> = (0..8)
            .map(|id| memory.reserve_for(id, 100).unwrap())
            .collect();
        assert_eq!((memory.used(), memory.refused()), (800, 0));
        assert!(memory.reserve_for(9, 1).is_none());
        assert_eq!((memory.used(), memory.refused()), (800, 1));
        drop(all);
        assert_eq!(memory.used(), 0);
        drop(memory.reserve_for(9, 800).unwrap());
        assert!(memory.reserve_for(9, 801).is_none());
    }

    #[test]
    fn one_connection_gets_its_share_and_what_one_response_needs() {
        let memory = memory(800);
        let first = memory.reserve_for(100, 60).unwrap();
        assert!(memory.reserve_for(100, 41).is_none());
        let second = memory.reserve_for(100, 40).unwrap();
        assert!(memory.reserve_for(100, 1).is_none());
        // Other connections are not affected, and a connection without reservations may exceed its share.
        drop(memory.reserve_for(101, 500).unwrap());
        drop((first, second));
        assert_eq!(memory.used(), 0);
        drop(memory.reserve_for(100, 500).unwrap());
    }

    #[test]
    fn optional_reservations_leave_half_of_the_budget() {
        let memory = memory(800);
        let mut ahead = memory.reserve_nothing();
        assert!(ahead.resize(400) && !ahead.resize(401));
        assert_eq!((ahead.bytes(), memory.used()), (400, 400));
        let needed = memory.reserve_for(102, 400).unwrap();
        assert!(ahead.resize(100) && !ahead.resize(101));
        drop(needed);
        assert!(ahead.resize(200));
        drop(ahead);
        assert_eq!(memory.used(), 0);
    }

    #[test]
    fn a_lower_limit_applies_to_later_reservations() {
        let memory = memory(800);
        let reserved = memory.reserve_for(103, 500).unwrap();
        memory.set_limit(400);
        assert!(memory.reserve_for(104, 1).is_none());
        drop(reserved);
        assert!(memory.reserve_for(104, 400).is_some());
    }
}
