//! The state of a WebSocket that its driver and its handles share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

use crate::codec::{
    Close, CloseCode, ConnectionClosed, Message, WebSocketConnection, WebSocketProtocolError,
};

use super::WebSocketSettings;
use super::memory::{self, ContextMemory, MemoryOwner};

/// The number of messages waiting for the handler at which reading stops.
const MAX_UNREAD: usize = 16;

/// The output of a socket that is closed for its memory is dropped if it is longer.
const MAX_EVICTED_OUTPUT: usize = 4096;

/// Why a socket receives no more messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DisconnectReason {
    /// The client closed the connection, with a code or without.
    Closed(Option<Close>),
    /// The client violated the protocol.
    Failed(WebSocketProtocolError),
    /// The connection failed, or ended without a close frame.
    Lost(io::ErrorKind),
    /// The client sent nothing for too long, took too long for a message, took too little of what was sent to it,
    /// or did not respond to a close.
    TimedOut,
    /// The sockets of the worker took more memory than allowed, and this one took most.
    Evicted,
}

impl fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(None) => f.write_str("the client closed the connection"),
            Self::Closed(Some(close)) => write!(f, "the client closed the connection: {close}"),
            Self::Failed(error) => write!(f, "the client violated the protocol: {error}"),
            Self::Lost(error) => write!(f, "the connection was lost: {error}"),
            Self::TimedOut => f.write_str("the client does not respond"),
            Self::Evicted => f.write_str("the sockets take too much memory"),
        }
    }
}

/// A socket, as its driver and its handles see it.
pub(super) struct SharedSocket {
    /// Unique in the process.
    pub(super) id: u64,
    pub(super) settings: WebSocketSettings,
    pub(super) state: RefCell<SocketState>,
    /// The bytes that the memory of the worker has counted.
    pub(super) counted: Cell<usize>,
    /// The memory of kept contexts.
    _contexts: Option<ContextMemory>,
    /// The rooms that it is in.
    pub(super) rooms: RefCell<Vec<RoomMembership>>,
}

/// A room that a socket is in.
pub(super) struct RoomMembership {
    pub(super) table: Weak<dyn RoomTable>,
    pub(super) room: Rc<str>,
}

/// The rooms of a worker, as a socket sees them that is in one.
pub(super) trait RoomTable {
    /// Removes a socket from a room; returns whether it was in it.
    fn remove(&self, room: &str, id: u64) -> bool;
}

pub(super) struct SocketState {
    pub(super) connection: WebSocketConnection,
    received: VecDeque<Message>,
    received_bytes: usize,
    /// Whether received messages are discarded, as the receiver was dropped.
    pub(super) discards: bool,
    pub(super) receiver: Option<Waker>,
    /// Tasks that wait for room in the send buffer.
    pub(super) senders: Vec<Waker>,
    /// The bytes of the messages of these tasks.
    pub(super) waiting_bytes: usize,
    /// Set while the driver waits.
    pub(super) driver: Option<Waker>,
    /// Whether the driver has to poll again.
    pub(super) is_dirty: bool,
    pub(super) disconnect_reason: Option<DisconnectReason>,
    /// Whether the driver has to drop the connection at once.
    pub(super) is_evicted: bool,
}

impl SharedSocket {
    pub(super) fn new(
        connection: WebSocketConnection,
        settings: WebSocketSettings,
        contexts: Option<ContextMemory>,
    ) -> Rc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Rc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            settings,
            state: RefCell::new(SocketState {
                connection,
                received: VecDeque::new(),
                received_bytes: 0,
                discards: false,
                receiver: None,
                senders: Vec::new(),
                waiting_bytes: 0,
                driver: None,
                is_dirty: false,
                disconnect_reason: None,
                is_evicted: false,
            }),
            counted: Cell::new(0),
            _contexts: contexts,
            rooms: RefCell::default(),
        })
    }

    /// Calls `send` on the connection if the send buffer has room.
    pub(super) fn send_if_room(
        &self,
        send: impl FnOnce(&mut WebSocketConnection) -> Result<(), ConnectionClosed>,
    ) -> Result<(), SendError> {
        let mut state = self.state.borrow_mut();
        if state.connection.is_closing() {
            return Err(SendError::Closed);
        }
        if state.connection.output_len() >= self.settings.send_buffer {
            return Err(SendError::Full);
        }
        send(&mut state.connection).map_err(|ConnectionClosed| SendError::Closed)?;
        state.notify();
        Ok(())
    }

    /// Closes the connection, if it is open.
    pub(super) fn close(&self, close: Option<Close>) -> Result<(), ConnectionClosed> {
        let mut state = self.state.borrow_mut();
        state.connection.close(close)?;
        state.notify();
        // Tasks that wait for room fail now.
        state.senders.drain(..).for_each(Waker::wake);
        Ok(())
    }

    /// Closes the connection of a client that reads too slowly.
    pub(super) fn close_slow(&self) {
        // It may be closed already.
        let _ = self.close(Some(Close::new(
            CloseCode::TRY_AGAIN_LATER,
            "reads too slowly",
        )));
    }

    pub(super) fn leave_rooms(&self) {
        for membership in self.rooms.take() {
            if let Some(table) = membership.table.upgrade() {
                table.remove(&membership.room, self.id);
            }
        }
    }
}

impl MemoryOwner for SharedSocket {
    fn id(&self) -> u64 {
        self.id
    }

    fn counted(&self) -> &Cell<usize> {
        &self.counted
    }

    fn evict(&self) {
        tracing::debug!(
            socket = self.id,
            "closed a WebSocket: the sockets take too much memory"
        );
        self.counted.set(0);
        let mut state = self.state.borrow_mut();
        state.is_evicted = true;
        state.connection.drop_input();
        // A client that reads gets the reason. It may be closed already.
        let _ = state.connection.close_with(CloseCode::TRY_AGAIN_LATER);
        if state.connection.output_len() > MAX_EVICTED_OUTPUT {
            state.connection.drop_output();
        }
        state.disconnect(DisconnectReason::Evicted);
        state.discard();
        state.receiver.take().into_iter().for_each(Waker::wake);
        state.senders.drain(..).for_each(Waker::wake);
    }
}

impl Drop for SharedSocket {
    fn drop(&mut self) {
        self.leave_rooms();
        memory::forget(self.id, self.counted.get());
    }
}

/// A message of a task that waits for room in the send buffer, until this is dropped.
pub(super) struct WaitingMessage<'a> {
    socket: &'a SharedSocket,
    bytes: usize,
}

impl<'a> WaitingMessage<'a> {
    pub(super) fn new(socket: &'a SharedSocket, bytes: usize) -> Self {
        let mut state = socket.state.borrow_mut();
        state.waiting_bytes = state.waiting_bytes.saturating_add(bytes);
        // The driver counts it.
        state.notify();
        Self { socket, bytes }
    }
}

impl Drop for WaitingMessage<'_> {
    fn drop(&mut self) {
        let mut state = self.socket.state.borrow_mut();
        state.waiting_bytes = state.waiting_bytes.saturating_sub(self.bytes);
    }
}

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The connection is closed.
    Closed,
    /// The client reads too slowly: [`WebSocketSettings::send_buffer`] is full.
    Full,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => ConnectionClosed.fmt(f),
            Self::Full => f.write_str("the client reads too slowly"),
        }
    }
}

impl std::error::Error for SendError {}

impl SocketState {
    /// Makes the driver poll again.
    pub(super) fn notify(&mut self) {
        self.is_dirty = true;
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Whether the driver may read more messages.
    pub(super) fn can_read_more(&self, max: usize) -> bool {
        self.disconnect_reason.is_none()
            && (self.discards || (self.received.len() < MAX_UNREAD && self.received_bytes <= max))
    }

    /// The bytes of memory that the messages of the socket take, without those in the driver.
    pub(super) fn memory(&self) -> usize {
        let connection = self.connection.memory();
        connection
            .saturating_add(self.received_bytes)
            .saturating_add(self.waiting_bytes)
    }

    pub(super) fn push(&mut self, message: Message) {
        if !self.discards {
            self.received_bytes = self.received_bytes.saturating_add(message.len());
            self.received.push_back(message);
        }
    }

    pub(super) fn pop(&mut self) -> Option<Message> {
        let message = self.received.pop_front()?;
        self.received_bytes = self.received_bytes.saturating_sub(message.len());
        if self.received.is_empty() {
            // The driver may have stopped reading.
            self.notify();
        }
        Some(message)
    }

    /// Discards the received messages, and those to come.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.received = VecDeque::new();
        self.received_bytes = 0;
        self.notify();
    }

    /// Responds to a close frame once the handler has received all messages before it, and no task waits to
    /// send a message.
    pub(super) fn respond_to_close(&mut self) {
        let is_drained = self.received.is_empty() && self.senders.is_empty();
        if is_drained && !self.connection.is_closing() {
            self.connection.respond_to_close();
        }
    }

    /// Wakes this task when the send buffer has room.
    pub(super) fn add_sender(&mut self, cx: &Context<'_>) {
        if !self.senders.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.senders.push(cx.waker().clone());
        }
    }

    /// Keeps the first reason why no more messages are received.
    pub(super) fn disconnect(&mut self, reason: DisconnectReason) {
        self.disconnect_reason.get_or_insert(reason);
    }
}
