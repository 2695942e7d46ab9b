//! The connections of one worker, with their deadlines and their eviction.
//!
//! A deadline is a number in a cell: setting one costs a store, and no timer is registered or moved for a
//! request. One sweep checks all of them when the earliest that was ever set is due; mostly, it was replaced
//! by a later one long ago.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::clock::WorkerClock;

/// A tick that is never reached.
pub(crate) const NEVER: u32 = u32::MAX;

/// The state of one connection.
pub(crate) struct SlotState {
    deadline: Cell<u32>,
    /// The earliest deadline in the table.
    earliest: Rc<Cell<u32>>,
    /// The tick since which it waits for a request; [`NEVER`] while it works.
    idle_since: Cell<u32>,
    /// What the connection waits for.
    stage: Cell<WaitStage>,
    /// Whether the deadline passed, or the connection was evicted.
    expired: Cell<bool>,
    /// Whether the connection was evicted.
    evicted: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

/// What a connection waits for from its client, in the order in which connections are evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum WaitStage {
    /// A request.
    Idle,
    /// The rest of a handshake or of a request's head.
    Head,
    /// More of a request's body.
    Body,
}

/// What a connection does until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionWait {
    /// It serves requests.
    Busy,
    /// It waits for a request, since this tick.
    Idle { since: u32 },
    /// It waits for the rest of a handshake or of a request's head, since this tick.
    Head { since: u32 },
}

impl SlotState {
    fn new(earliest: &Rc<Cell<u32>>) -> Self {
        Self {
            deadline: Cell::new(NEVER),
            earliest: Rc::clone(earliest),
            idle_since: Cell::new(NEVER),
            stage: Cell::new(WaitStage::Idle),
            expired: Cell::new(false),
            evicted: Cell::new(false),
            waker: RefCell::new(None),
        }
    }

    /// Registers the task to wake. Every wait of the connection calls it; after the first time it is a
    /// comparison.
    pub(crate) fn register(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &*waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            _ => *waker = Some(cx.waker().clone()),
        }
    }

    fn set_deadline(&self, tick: u32) {
        self.deadline.set(tick);
        if tick < self.earliest.get() {
            self.earliest.set(tick);
        }
    }

    /// The connection works, with a time limit.
    pub(crate) fn set_busy(&self, clock: &WorkerClock, within: Duration) {
        self.idle_since.set(NEVER);
        self.set_deadline(clock.deadline(within));
    }

    /// The connection works without a time limit, as while a handler runs.
    pub(crate) fn clear_deadline(&self) {
        self.idle_since.set(NEVER);
        self.deadline.set(NEVER);
    }

    /// The connection waits for a request.
    pub(crate) fn set_idle(&self, clock: &WorkerClock, within: Duration) {
        self.idle_since.set(clock.ticks());
        self.stage.set(WaitStage::Idle);
        self.set_deadline(clock.deadline(within));
    }

    /// The connection waits for the rest of a handshake or of a request's head. It may be evicted after the
    /// idle ones, so that clients which send only a part do not keep others out.
    pub(crate) fn set_reading_head(&self, clock: &WorkerClock, within: Duration) {
        self.set_idle(clock, within);
        self.stage.set(WaitStage::Head);
    }

    /// The connection waits for more of a request's body. It may be evicted after those that [read a
    /// head](Self::set_reading_head); the one that was silent longest comes first.
    pub(crate) fn set_reading_body(&self, clock: &WorkerClock, within: Duration) {
        self.set_idle(clock, within);
        self.stage.set(WaitStage::Body);
    }

    /// As [`Self::set_busy`], [`Self::set_idle`] or [`Self::set_reading_head`], for a connection with timers
    /// of its own.
    pub(crate) fn set_wait(&self, deadline: u32, waiting: ConnectionWait) {
        self.set_deadline(deadline);
        match waiting {
            ConnectionWait::Busy => self.idle_since.set(NEVER),
            ConnectionWait::Idle { since } => {
                self.idle_since.set(since);
                self.stage.set(WaitStage::Idle);
            }
            ConnectionWait::Head { since } => {
                self.idle_since.set(since);
                self.stage.set(WaitStage::Head);
            }
        }
    }

    /// Whether the connection was evicted.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }

    /// Whether the deadline has passed.
    pub(crate) fn is_expired(&self) -> bool {
        self.expired.get()
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(waker) = &*self.waker.borrow() {
            waker.wake_by_ref();
        }
    }

    /// Clears an expired deadline, so that the connection can still send a response or an alert.
    pub(crate) fn renew(&self) {
        self.expired.set(false);
        self.set_deadline(self.deadline.get());
    }

    /// Waits for `poll`, but no longer than the deadline.
    ///
    /// # Errors
    /// `TimedOut` past the deadline, `ConnectionAborted` if the connection is evicted, or the error of
    /// `poll`.
    pub(crate) async fn wait<T>(
        &self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<T> {
        poll_fn(|cx| {
            self.register(cx);
            if self.is_expired() {
                let kind = match self.evicted.get() {
                    true => io::ErrorKind::ConnectionAborted,
                    false => io::ErrorKind::TimedOut,
                };
                return Poll::Ready(Err(kind.into()));
            }
            poll(cx)
        })
        .await
    }

    fn expire(&self) {
        self.expired.set(true);
        self.wake();
    }
}

/// The connections of one worker.
pub(crate) struct ConnectionTable {
    /// The earliest deadline that has not expired is not earlier than this tick.
    earliest: Rc<Cell<u32>>,
    slots: RefCell<Vec<Option<Rc<SlotState>>>>,
    free: RefCell<Vec<usize>>,
    open: Cell<usize>,
    addresses: RefCell<HashMap<IpAddr, usize>>,
    empty: tokio::sync::Notify,
}

/// A slot in the table, which is free again when this is dropped.
pub(crate) struct ConnectionSlot {
    table: Rc<ConnectionTable>,
    slot: Rc<SlotState>,
    index: usize,
    address: Option<IpAddr>,
}

impl ConnectionSlot {
    /// Counts the connection for the client that a proxy named, as [`ConnectionTable::enter`] does for direct
    /// clients. Returns whether it may stay.
    pub(crate) fn count_client(&mut self, address: IpAddr, per_address: usize) -> bool {
        let address = client_network(address);
        if per_address == 0 || self.address.is_some() {
            return true;
        }
        let counted = self.table.count_address(address, per_address);
        self.address = counted.then_some(address);
        counted
    }
}

impl std::ops::Deref for ConnectionSlot {
    type Target = SlotState;

    fn deref(&self) -> &SlotState {
        &self.slot
    }
}

impl Default for ConnectionTable {
    fn default() -> Self {
        Self {
            earliest: Rc::new(Cell::new(NEVER)),
            slots: RefCell::default(),
            free: RefCell::default(),
            open: Cell::default(),
            addresses: RefCell::default(),
            empty: tokio::sync::Notify::default(),
        }
    }
}

impl ConnectionTable {
    /// Enters a connection from `address`, unless there are `per_address` of them already (0: any number).
    pub(crate) fn enter(
        self: &Rc<Self>,
        address: Option<IpAddr>,
        per_address: usize,
    ) -> Option<ConnectionSlot> {
        let address = address.filter(|_| per_address > 0).map(client_network);
        if address.is_some_and(|address| !self.count_address(address, per_address)) {
            return None;
        }
        let slot = Rc::new(SlotState::new(&self.earliest));
        let mut slots = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        if let Some(entry) = slots.get_mut(index) {
            *entry = Some(Rc::clone(&slot));
        }
        self.open.set(self.open.get() + 1);
        Some(ConnectionSlot {
            table: Rc::clone(self),
            slot,
            index,
            address,
        })
    }

    /// Counts a connection for an address, unless there are `per_address` already.
    fn count_address(&self, address: IpAddr, per_address: usize) -> bool {
        let mut addresses = self.addresses.borrow_mut();
        let count = addresses.entry(address).or_default();
        let counted = *count < per_address;
        *count += usize::from(counted);
        counted
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> usize {
        self.open.get()
    }

    /// Waits until the last connection has left.
    pub(crate) async fn emptied(&self) {
        self.empty.notified().await;
    }

    /// The tick of the next sweep; [`NEVER`] if there is no deadline.
    pub(crate) fn due(&self) -> u32 {
        self.earliest.get()
    }

    /// Expires the deadlines that have passed.
    pub(crate) fn sweep(&self, clock: &WorkerClock) {
        let now = clock.ticks();
        if self.earliest.get() > now {
            return;
        }
        let mut earliest = NEVER;
        for slot in self.slots.borrow().iter().flatten() {
            match slot.deadline.get() {
                _ if slot.expired.get() => {}
                deadline if deadline <= now => slot.expire(),
                deadline => earliest = earliest.min(deadline),
            }
        }
        self.earliest.set(earliest);
    }

    /// Evicts the connections that have been idle longest, then those that have waited longest for a head or
    /// handshake, and last those that have waited longest for more of a body. It evicts `least`, or one in
    /// sixty-four of the open ones if that is more, as far as there are enough; returns how many. Connections
    /// that began to wait after tick `until` stay.
    pub(crate) fn make_room(&self, least: u64, until: u32) -> u64 {
        let slots = self.slots.borrow();
        let mut idle: Vec<&Rc<SlotState>> = slots
            .iter()
            .flatten()
            .filter(|slot| slot.idle_since.get() <= until && !slot.expired.get())
            .collect();
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        let wanted = (self.open.get() / 64).max(least).min(idle.len());
        if let Some(last) = wanted.checked_sub(1) {
            idle.select_nth_unstable_by_key(last, |slot| (slot.stage.get(), slot.idle_since.get()));
        }
        for slot in idle.iter().take(wanted) {
            slot.evicted.set(true);
            slot.expire();
        }
        wanted as u64
    }

    /// Wakes every connection, after a change of the plan or of the worker.
    pub(crate) fn wake_all(&self) {
        self.slots
            .borrow()
            .iter()
            .flatten()
            .for_each(|slot| slot.wake());
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if let Some(entry) = self.table.slots.borrow_mut().get_mut(self.index) {
            *entry = None;
        }
        self.table.free.borrow_mut().push(self.index);
        self.table.open.set(self.table.open.get().saturating_sub(1));
        if self.table.open.get() == 0 {
            self.table.empty.notify_waiters();
        }
        if let Some(address) = self.address {
            let mut addresses = self.table.addresses.borrow_mut();
            if let Some(count) = addresses.get_mut(&address) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    addresses.remove(&address);
                }
            }
        }
    }
}

/// The unit that counts as one client: an IPv4 address, or the /64 network of an IPv6 host.
fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

/// The connections of all workers.
#[derive(Default)]
pub(crate) struct ConnectionCount(AtomicUsize);

/// The permit of one connection.
pub(crate) struct ConnectionPermit(Arc<ConnectionCount>);

impl ConnectionCount {
    /// Counts a connection unless there are `most` already (0: any number).
    pub(crate) fn enter(self: &Arc<Self>, most: usize) -> Option<ConnectionPermit> {
        let entered = ConnectionPermit(Arc::clone(self));
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        (before < most || most == 0).then_some(entered)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_an_ipv6_network_of_64_bits_as_one_client() {
        let table = Rc::new(ConnectionTable::default());
        let enter = |address: &str| table.enter(Some(address.parse().unwrap()), 2);
        let first = enter("2001:db8:0:1::1").unwrap();
        let second = enter("2001:db8:0:1:ffff::2").unwrap();
        assert!(enter("2001:db8:0:1::3").is_none());
        let other = enter("2001:db8:0:2::1");
        assert!(other.is_some());
        drop(second);
        assert!(enter("2001:db8:0:1::3").is_some());
        drop((first, other));
        assert_eq!((table.open(), table.addresses.borrow().len()), (0, 0));
    }

    #[test]
    fn counts_an_ipv4_client_as_one_however_it_is_written() {
        let table = Rc::new(ConnectionTable::default());
        let first = table.enter(Some("192.0.2.1".parse().unwrap()), 1);
        assert!(first.is_some());
        assert!(
            table
                .enter(Some("::ffff:192.0.2.1".parse().unwrap()), 1)
                .is_none()
        );
        assert!(table.enter(Some("192.0.2.2".parse().unwrap()), 1).is_some());
        assert!(table.enter(None, 1).is_some());
    }
}
