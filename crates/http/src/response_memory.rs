//! The memory budget of responses, for compressors and the like.
//!
//! It is one budget for the whole process, of which each connection gets a share.
//!
//! A client that opens many streams and takes nothing of them decides how many responses are under
//! way, so what each of them holds has to come out of something that is bounded. Whoever finds nothing
//! left does without: a response goes uncompressed, or is read from its origin no further ahead than
//! its client has come.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A connection gets this part of the budget at most, unless one response alone needs more.
const SHARE: u64 = 8;

static OF_PROCESS: ResponseMemory = ResponseMemory::new(ResponseMemory::DEFAULT_LIMIT);

thread_local! {
    /// What connections have reserved, by their numbers. A connection stays on its thread.
    static CONNECTIONS: RefCell<HashMap<u64, u64>> = RefCell::default();
}

/// A budget of bytes.
#[derive(Debug)]
pub struct ResponseMemory {
    limit: AtomicU64,
    used: AtomicU64,
    refused: AtomicU64,
}

impl ResponseMemory {
    /// The bytes that the budget of the process has unless told otherwise.
    pub const DEFAULT_LIMIT: u64 = 128 << 20;

    /// A budget of so many bytes.
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

    /// Changes the limit. What is reserved stays, also if it is more.
    pub fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// The bytes that may be reserved in all.
    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// The bytes that are reserved.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// How often [`Self::reserve_for`] gave nothing.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Reserves bytes for a response over the connection with this number
    /// ([`ConnectionInfo::id`](crate::ConnectionInfo::id)), which has to be one of this thread. `None`
    /// if the process has no more, or the connection has its share.
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

    /// A reservation of nothing yet, for what is of use to have but not needed.
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

    fn give_back(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Bytes of a budget, given back when this is dropped.
#[derive(Debug)]
pub struct Reservation {
    memory: &'static ResponseMemory,
    bytes: u64,
}

impl Reservation {
    /// The bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Reserves so many bytes in place of those that were, and tells whether there are as many. What
    /// is of use but not needed leaves half of the budget to what
    /// [`ResponseMemory::reserve_for`] is asked for.
    pub fn resize(&mut self, bytes: u64) -> bool {
        match bytes.checked_sub(self.bytes) {
            Some(more) if more > 0 => {
                if !self.memory.take(more, self.memory.limit() / 2) {
                    return false;
                }
            }
            _ => self.memory.give_back(self.bytes.saturating_sub(bytes)),
        }
        self.bytes = bytes;
        true
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

/// Bytes that are reserved for a response over one connection, given back when this is dropped.
#[derive(Debug)]
pub struct ConnectionReservation {
    connection: u64,
    reservation: Reservation,
    /// The share of a connection is known on its thread only.
    of_thread: PhantomData<Rc<()>>,
}

impl ConnectionReservation {
    /// The bytes that are reserved.
    pub fn bytes(&self) -> u64 {
        self.reservation.bytes()
    }
}

impl Drop for ConnectionReservation {
    fn drop(&mut self) {
        // The thread may be ending, and its table with it.
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
    fn gives_no_more_than_there_is_and_takes_it_back() {
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
        // Others are not concerned, and one that needs more than a share gets it if it has nothing.
        drop(memory.reserve_for(101, 500).unwrap());
        drop((first, second));
        assert_eq!(memory.used(), 0);
        drop(memory.reserve_for(100, 500).unwrap());
    }

    #[test]
    fn what_is_not_needed_leaves_half() {
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
    fn a_lower_limit_counts_for_what_comes() {
        let memory = memory(800);
        let reserved = memory.reserve_for(103, 500).unwrap();
        memory.set_limit(400);
        assert!(memory.reserve_for(104, 1).is_none());
        drop(reserved);
        assert!(memory.reserve_for(104, 400).is_some());
    }
}
