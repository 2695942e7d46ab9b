//! The state of a connection that its endpoint and its task share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use apus_quic_protocol::{Connection, ConnectionEvent, ConnectionHandle, DatagramSource};
use bytes::Bytes;

use crate::events::{QuicCloseReason, QuicEvent};
use crate::half_open::HalfOpenPlace;
use crate::path_budget::PathBudget;

/// How far a connection is on its way to the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// A server connection whose handshake is not complete, and which has no early data.
    HalfOpen,
    /// It waits until the application accepts it.
    Waiting,
    /// It ended before the handshake was complete. Until the endpoint forgets it, it counts as half-open: otherwise
    /// clients whose handshakes fail at once could take any amount of memory.
    Failed,
    /// The application has it.
    Accepted,
}

/// The state of a connection that its endpoint and its task share.
pub(crate) struct ConnectionCore {
    pub(crate) handle: ConnectionHandle,
    pub(crate) protocol: RefCell<Connection>,
    pub(crate) progress: Cell<Progress>,
    /// Whether it is in the work queue.
    pub(crate) is_scheduled: Cell<bool>,
    /// When its timers are due.
    pub(crate) deadline: Cell<Option<Instant>>,
    /// Its earliest entry in the heap of deadlines.
    pub(crate) heap_entry: Cell<Option<Instant>>,
    pub(crate) began: Instant,
    /// Its place among the half-open connections.
    pub(crate) half_open: Cell<Option<HalfOpenPlace>>,
    /// What the application holds and has not used, in bytes.
    pub(crate) unread: Cell<usize>,
    /// The memory of data that was received and not read, as the endpoint knows it.
    pub(crate) memory: Cell<usize>,
    /// When the handshake has to be complete.
    pub(crate) handshake_deadline: Cell<Option<Instant>>,
    paths: Cell<PathBudget>,
    events: RefCell<VecDeque<QuicEvent>>,
    closed: RefCell<Option<QuicCloseReason>>,
    task: RefCell<Option<Waker>>,
}

impl ConnectionCore {
    pub(crate) fn new(
        handle: ConnectionHandle,
        protocol: Connection,
        now: Instant,
        handshake_deadline: Instant,
    ) -> Self {
        let progress = if protocol.side().is_server() {
            Progress::HalfOpen
        } else {
            Progress::Accepted
        };
        Self {
            handle,
            protocol: RefCell::new(protocol),
            progress: Cell::new(progress),
            is_scheduled: Cell::new(false),
            deadline: Cell::new(None),
            heap_entry: Cell::new(None),
            began: now,
            half_open: Cell::new(None),
            unread: Cell::new(0),
            memory: Cell::new(0),
            handshake_deadline: Cell::new(Some(handshake_deadline)),
            paths: Cell::new(PathBudget::new(now)),
            events: RefCell::default(),
            closed: RefCell::default(),
            task: RefCell::default(),
        }
    }

    /// Handles a packet, unless it comes from another address too soon after others did.
    pub(crate) fn handle_packet(&self, now: Instant, source: DatagramSource, packet: &mut [u8]) {
        let mut protocol = self.protocol.borrow_mut();
        if protocol.remote_address() == source.remote {
            return protocol.handle_datagram(now, source, packet);
        }
        let mut paths = self.paths.get();
        if paths.allows(now) {
            let before = protocol.path_challenges();
            protocol.handle_datagram(now, source, packet);
            // Only now it is known that the packet is not forged.
            if protocol.remote_address() == source.remote || protocol.path_challenges() > before {
                paths.spend(now);
            }
        }
        self.paths.set(paths);
    }

    /// Moves the events of the protocol to the application; returns whether there were any.
    pub(crate) fn collect_events(&self) -> bool {
        let mut protocol = self.protocol.borrow_mut();
        let mut any = false;
        while let Some(event) = protocol.poll() {
            any |= self.collect(&protocol, event);
        }
        any
    }

    fn collect(&self, protocol: &Connection, event: ConnectionEvent) -> bool {
        let event = match event {
            ConnectionEvent::Connected => {
                self.handshake_deadline.set(None);
                QuicEvent::Connected {
                    early_data_accepted: protocol.is_early_data_accepted(),
                }
            }
            ConnectionEvent::ConnectionLost { reason } => {
                self.set_closed(reason.into());
                return true;
            }
            ConnectionEvent::Stream(event) => QuicEvent::Stream(event),
        };
        self.events.borrow_mut().push_back(event);
        true
    }

    /// The next event of the application.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>) -> Poll<QuicEvent> {
        if let Some(event) = self.events.borrow_mut().pop_front() {
            return Poll::Ready(event);
        }
        if let Some(reason) = &*self.closed.borrow() {
            return Poll::Ready(QuicEvent::Closed(reason.clone()));
        }
        let mut task = self.task.borrow_mut();
        match &mut *task {
            Some(task) => task.clone_from(cx.waker()),
            None => *task = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Wakes the task of the application.
    pub(crate) fn wake(&self) {
        if let Some(task) = self.task.borrow_mut().take() {
            task.wake();
        }
    }

    /// Sends the peer that the connection is over, and tells the application.
    pub(crate) fn close(&self, now: Instant, code: u64, text: Bytes, reason: QuicCloseReason) {
        let mut protocol = self.protocol.borrow_mut();
        if !protocol.is_closed() {
            protocol.close(now, code, text);
            self.set_closed(reason);
        }
    }

    /// Ends the connection at once, without a word to the peer.
    pub(crate) fn abandon(&self, reason: QuicCloseReason) {
        self.protocol.borrow_mut().abandon();
        self.set_closed(reason);
    }

    fn set_closed(&self, reason: QuicCloseReason) {
        self.handshake_deadline.set(None);
        self.closed.borrow_mut().get_or_insert(reason);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.borrow().is_some()
    }

    /// Whether the application can have a server connection: the handshake is complete, or there is early data.
    pub(crate) fn is_usable(&self) -> bool {
        let protocol = self.protocol.borrow();
        !protocol.is_handshaking() || protocol.has_early_data()
    }

    /// The next time at which a timer is due.
    pub(crate) fn update_deadline(&self) -> Option<Instant> {
        let timeout = self.protocol.borrow_mut().poll_timeout();
        let deadline = [timeout, self.handshake_deadline.get()]
            .into_iter()
            .flatten()
            .min();
        self.deadline.set(deadline);
        deadline
    }
}
