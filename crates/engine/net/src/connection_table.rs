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

use apus_transport::tunnel::TunnelCloser;
use apus_transport::{WorkerClock, deadline_from};

/// A tick that is never reached.
pub(crate) const NEVER: u32 = u32::MAX;

/// The tick by which something that began at a tick is too late; [`NEVER`] if it did not begin.
pub(crate) fn deadline_of(since: u32, timeout: Duration) -> u32 {
    match since {
        NEVER => NEVER,
        since => deadline_from(since, timeout),
    }
}

/// How long a client that has sent nothing yet, or a part, waits before others are evicted after it: it is
/// about to send the rest. A kept connection has had its response, and its client may send the next request
/// again elsewhere (RFC 9110 section 9.2.2).
const ABOUT_TO_SEND: Duration = Duration::from_secs(1);

/// The state of one connection.
pub(crate) struct SlotState {
    deadline: Cell<u32>,
    /// What the connections of the table have in common.
    shared: Rc<SharedState>,
    /// The tick since which it waits for its client; [`NEVER`] while it works.
    idle_since: Cell<u32>,
    /// The place of this wait among all of the table, which tells apart those that began in one tick.
    wait_number: Cell<u64>,
    /// What the connection waits for.
    stage: Cell<WaitStage>,
    /// Whether the deadline passed, or the connection was evicted.
    expired: Cell<bool>,
    /// Whether the connection was evicted, or is closed.
    evicted: Cell<bool>,
    /// Whether the connection is closed because its client may not be connected any more.
    refused: Cell<bool>,
    /// The client, if it has an address.
    client: Cell<Option<IpAddr>>,
    /// What closes the tunnel that the connection has become.
    tunnel: RefCell<Option<TunnelCloser>>,
    waker: RefCell<Option<Waker>>,
}

/// What the connections of one table have in common.
struct SharedState {
    /// The earliest deadline that has not expired is not earlier than this tick.
    earliest: Cell<u32>,
    /// How many waits for clients there were.
    waits: Cell<u64>,
}

/// What a connection waits for from its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitStage {
    /// A further request, or the end, after a response.
    Kept,
    /// The first request.
    FirstRequest,
    /// The rest of a handshake or of a request's head.
    Head,
    /// More of a request's body.
    Body,
}

/// How soon a connection is evicted, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// It waits for a request: for a further one, or for the first one as long as no client should need.
    Idle,
    /// It waits for the rest of a handshake or of a head, as long as no client should need.
    Head,
    /// The same for more of a body.
    Body,
    /// It began to wait a moment ago. What it waits for makes no difference: many connections that are silent
    /// would keep out uploads, or many uploads new clients.
    AboutToSend,
}

/// What a connection does until its deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionWait {
    /// It serves requests.
    Busy,
    /// It waits for the first request, since this tick.
    FirstRequest { since: u32 },
    /// It waits for a further request, since this tick.
    Kept { since: u32 },
    /// It waits for the rest of a handshake or of a request's head, since this tick.
    Head { since: u32 },
}

impl SlotState {
    fn new(shared: &Rc<SharedState>, client: Option<IpAddr>) -> Self {
        Self {
            deadline: Cell::new(NEVER),
            shared: Rc::clone(shared),
            idle_since: Cell::new(NEVER),
            wait_number: Cell::new(0),
            stage: Cell::new(WaitStage::FirstRequest),
            expired: Cell::new(false),
            evicted: Cell::new(false),
            refused: Cell::new(false),
            client: Cell::new(client),
            tunnel: RefCell::new(None),
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
        // A later deadline leaves the earliest as it is, although it may be of this connection: to find the next one
        // would need a search, which the sweep does for all of them.
        if tick < self.shared.earliest.get() {
            self.shared.earliest.set(tick);
        }
    }

    /// The connection waits for its client, since this tick.
    fn set_waiting(&self, stage: WaitStage, since: u32) {
        self.stage.set(stage);
        self.idle_since.set(since);
        let number = self.shared.waits.get() + 1;
        self.shared.waits.set(number);
        self.wait_number.set(number);
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

    /// The connection waits for its first request.
    pub(crate) fn set_awaiting_first(&self, clock: &WorkerClock, within: Duration) {
        self.set_waiting(WaitStage::FirstRequest, clock.ticks());
        self.set_deadline(clock.deadline(within));
    }

    /// The connection waits for a further request after a response, or for its end.
    pub(crate) fn set_kept(&self, clock: &WorkerClock, within: Duration) {
        self.set_waiting(WaitStage::Kept, clock.ticks());
        self.set_deadline(clock.deadline(within));
    }

    /// Lets the wait for a further request end when it has taken this time; returns whether it goes on until then.
    pub(crate) fn end_kept_after(&self, clock: &WorkerClock, within: Duration) -> bool {
        // From the beginning of the wait, not from now: a client whose connection is idle for minutes has no request
        // on its way.
        let end = deadline_of(self.idle_since.get(), within);
        self.set_deadline(end);
        end > clock.ticks()
    }

    /// The connection waits for the rest of a handshake or of a request's head.
    pub(crate) fn set_reading_head(&self, clock: &WorkerClock, within: Duration) {
        self.set_waiting(WaitStage::Head, clock.ticks());
        self.set_deadline(clock.deadline(within));
    }

    /// The connection waits for more of a request's body.
    pub(crate) fn set_reading_body(&self, clock: &WorkerClock, within: Duration) {
        self.set_waiting(WaitStage::Body, clock.ticks());
        self.set_deadline(clock.deadline(within));
    }

    /// As the methods above, for a connection with its own timers.
    pub(crate) fn set_wait(&self, deadline: u32, waiting: ConnectionWait) {
        self.set_deadline(deadline);
        let (stage, since) = match waiting {
            ConnectionWait::Busy => return self.idle_since.set(NEVER),
            ConnectionWait::FirstRequest { since } => (WaitStage::FirstRequest, since),
            ConnectionWait::Kept { since } => (WaitStage::Kept, since),
            ConnectionWait::Head { since } => (WaitStage::Head, since),
        };
        // HTTP/2 and HTTP/3 report a wait after each poll. One that goes on keeps its place in the order of eviction:
        // a client could otherwise stay by sending frames that ask for nothing.
        if (self.stage.get(), self.idle_since.get()) != (stage, since) {
            self.set_waiting(stage, since);
        }
    }

    /// When it is evicted: the lowest is the first.
    fn eviction_order(&self, now: u32) -> (EvictionRank, u64) {
        let stage = self.stage.get();
        let is_recent = deadline_from(self.idle_since.get(), ABOUT_TO_SEND) > now;
        let rank = match stage {
            WaitStage::Kept => EvictionRank::Idle,
            _ if is_recent => EvictionRank::AboutToSend,
            WaitStage::FirstRequest => EvictionRank::Idle,
            WaitStage::Head => EvictionRank::Head,
            WaitStage::Body => EvictionRank::Body,
        };
        (rank, self.wait_number.get())
    }

    /// Whether the connection was evicted, or is closed.
    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted.get()
    }

    /// Whether the connection is closed because its client may not be connected any more.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.get()
    }

    /// Enters the client that a proxy named.
    pub(crate) fn set_client(&self, client: Option<IpAddr>) {
        self.client.set(client);
    }

    /// The connection becomes a tunnel, without a deadline.
    pub(crate) fn set_tunnel(&self, tunnel: TunnelCloser) {
        self.clear_deadline();
        if self.is_refused() {
            tunnel.close();
        }
        self.tunnel.replace(Some(tunnel));
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
        // The sweep leaves expired slots out of `earliest`, so the deadline has to be entered again.
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
                let kind = if self.evicted.get() {
                    io::ErrorKind::ConnectionAborted
                } else {
                    io::ErrorKind::TimedOut
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

    fn evict(&self) {
        self.evicted.set(true);
        self.expire();
    }

    /// Closes the connection, whatever it does.
    fn refuse(&self) {
        self.refused.set(true);
        self.evict();
        if let Some(tunnel) = &*self.tunnel.borrow() {
            tunnel.close();
        }
    }
}

/// The connections of one worker.
pub(crate) struct ConnectionTable {
    shared: Rc<SharedState>,
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
            shared: Rc::new(SharedState {
                earliest: Cell::new(NEVER),
                waits: Cell::new(0),
            }),
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
        let client = address;
        let address = address.filter(|_| per_address > 0).map(client_network);
        if address.is_some_and(|address| !self.count_address(address, per_address)) {
            return None;
        }
        let slot = Rc::new(SlotState::new(&self.shared, client));
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
        self.shared.earliest.get()
    }

    /// Expires the deadlines that have passed.
    pub(crate) fn sweep(&self, clock: &WorkerClock) {
        let now = clock.ticks();
        if self.shared.earliest.get() > now {
            return;
        }
        let mut earliest = NEVER;
        for slot in self.slots.borrow().iter().flatten() {
            match slot.deadline.get() {
                // Its task is woken already. Its deadline is over, and as the earliest one it would cause a sweep at
                // each tick.
                _ if slot.expired.get() => {}
                deadline if deadline <= now => slot.expire(),
                deadline => earliest = earliest.min(deadline),
            }
        }
        self.shared.earliest.set(earliest);
    }

    /// Evicts connections that wait for their clients: first those that had a response, then those that wait
    /// longer than clients should need, for a request, a head or a body, and last those that began to wait a
    /// moment ago; among equals, the one that has waited longest. It evicts `least`, or one in sixty-four of
    /// the open ones if that is more, or all if there are fewer; returns how many. Connections that began to
    /// wait after tick `until` stay. `now` is the present tick.
    pub(crate) fn make_room(&self, least: u64, until: u32, now: u32) -> u64 {
        let slots = self.slots.borrow();
        let mut idle: Vec<&Rc<SlotState>> = slots
            .iter()
            .flatten()
            .filter(|slot| slot.idle_since.get() <= until && !slot.expired.get())
            .collect();
        let least = usize::try_from(least).unwrap_or(usize::MAX);
        // One in sixty-four at once: to search all connections for each one that is accepted would make a flood of
        // connections quadratic.
        let wanted = (self.open.get() / 64).max(least).min(idle.len());
        if let Some(last) = wanted.checked_sub(1) {
            // A selection and no sort: the order among those that go has no meaning.
            idle.select_nth_unstable_by_key(last, |slot| slot.eviction_order(now));
        }
        for slot in idle.iter().take(wanted) {
            slot.evict();
        }
        wanted as u64
    }

    /// Closes the connections of clients that may not be connected any more; returns how many.
    pub(crate) fn close_refused(&self, is_refused: impl Fn(IpAddr) -> bool) -> u64 {
        let slots = self.slots.borrow();
        let refused = slots
            .iter()
            .flatten()
            .filter(|slot| !slot.is_refused() && slot.client.get().is_some_and(&is_refused));
        refused.map(|slot| slot.refuse()).count() as u64
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
        // A host of IPv6 usually has a whole /64, so that a limit for single addresses is none (RFC 6177, RFC 7421).
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
        // The only count that workers share, once for each connection and not for each request. Relaxed: nothing else
        // is ordered by it.
        // Counted first, and taken back by the drop of the permit: between a look and the count, other workers could
        // pass the limit.
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

    const LIMIT: Duration = Duration::from_secs(60);

    /// Which of these connections are evicted for one new one.
    fn evicted<const N: usize>(
        table: &ConnectionTable,
        now: u32,
        slots: [&ConnectionSlot; N],
    ) -> [bool; N] {
        assert_eq!(table.make_room(1, now, now), 1);
        let evicted = slots.map(|slot| slot.is_evicted());
        assert_eq!(evicted.iter().filter(|evicted| **evicted).count(), 1);
        evicted
    }

    /// A client that had connected, and whose request was on its way, was closed for the next one, as bodies
    /// that never came counted as work.
    #[test]
    fn a_client_that_just_connected_stays_where_others_have_waited_longer_for_bodies() {
        let (table, clock) = (Rc::new(ConnectionTable::default()), WorkerClock::start());
        let [body, head, new] = [(); 3].map(|()| table.enter(None, 0).unwrap());
        body.set_reading_body(&clock, LIMIT);
        head.set_reading_head(&clock, LIMIT);
        new.set_awaiting_first(&clock, LIMIT);
        let slots = [&body, &head, &new];
        assert_eq!(evicted(&table, clock.ticks(), slots), [true, false, false]);
    }

    /// All waits of a quarter of a second were taken for equally long: any of them was evicted.
    #[test]
    fn of_the_waits_that_began_in_one_tick_the_first_is_evicted() {
        let (table, clock) = (Rc::new(ConnectionTable::default()), WorkerClock::start());
        let slots: Vec<_> = (0..100).map(|_| table.enter(None, 0).unwrap()).collect();
        // Not in the order of the table.
        let (late, early) = slots.split_at(50);
        for slot in early.iter().chain(late) {
            slot.set_kept(&clock, LIMIT);
        }
        table.make_room(50, clock.ticks(), clock.ticks());
        assert!(early.iter().all(|slot| slot.is_evicted()));
        assert!(late.iter().all(|slot| !slot.is_evicted()));
    }

    #[test]
    fn requests_before_heads_before_bodies_and_what_just_began_comes_last() {
        let (table, clock) = (Rc::new(ConnectionTable::default()), WorkerClock::start());
        let [body, head, silent, kept, new] = [(); 5].map(|()| table.enter(None, 0).unwrap());
        body.set_reading_body(&clock, LIMIT);
        head.set_reading_head(&clock, LIMIT);
        silent.set_awaiting_first(&clock, LIMIT);
        let now = deadline_from(clock.ticks(), ABOUT_TO_SEND);
        kept.set_wait(NEVER, ConnectionWait::Kept { since: now });
        new.set_wait(NEVER, ConnectionWait::FirstRequest { since: now });
        let mut order = Vec::new();
        while table.make_room(1, now, now) == 1 {
            let slots = [&kept, &silent, &head, &body, &new];
            order.push(slots.map(|slot| u8::from(slot.is_evicted())));
        }
        assert_eq!(
            order,
            [
                // A kept connection and one that stays silent are equals: the silent one has waited longer.
                [0, 1, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [1, 1, 1, 1, 0],
                [1, 1, 1, 1, 1],
            ]
        );
    }

    #[test]
    fn a_wait_is_long_from_one_second_on() {
        let (table, clock) = (Rc::new(ConnectionTable::default()), WorkerClock::start());
        let [silent, body] = [(); 2].map(|()| table.enter(None, 0).unwrap());
        let start = clock.ticks();
        let edge = deadline_from(start, ABOUT_TO_SEND);
        body.set_reading_body(&clock, LIMIT);
        silent.set_awaiting_first(&clock, LIMIT);
        for (now, rank) in [
            (edge - 1, EvictionRank::AboutToSend),
            (edge, EvictionRank::Idle),
            (edge + 1, EvictionRank::Idle),
        ] {
            assert_eq!(silent.eviction_order(now).0, rank, "{}", now - start);
        }
        assert_eq!(evicted(&table, edge - 1, [&body, &silent]), [true, false]);
        body.renew();
        body.evicted.set(false);
        assert_eq!(evicted(&table, edge, [&body, &silent]), [false, true]);
    }

    /// HTTP/2 tells its wait again whenever it has worked.
    #[test]
    fn a_wait_that_goes_on_keeps_its_place() {
        let (table, clock) = (Rc::new(ConnectionTable::default()), WorkerClock::start());
        let [first, second] = [(); 2].map(|()| table.enter(None, 0).unwrap());
        let since = clock.ticks();
        for slot in [&first, &second, &first] {
            slot.set_wait(NEVER, ConnectionWait::Kept { since });
        }
        assert_eq!(evicted(&table, since, [&first, &second]), [true, false]);
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
