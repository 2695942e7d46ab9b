//! What the driver of a socket and the hands on it share.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

use crate::codec::{Close, CloseCode, Closed, Connection, Message, ProtocolError};

use super::WebSocketSettings;
use super::rooms::Local;

/// Messages that wait for the handler, past which nothing more is read.
const WAITING: usize = 16;

/// Why a socket receives nothing more.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// The client closed it, with a code or without.
    Closed(Option<Close>),
    /// The client broke the protocol.
    Failed(ProtocolError),
    /// The connection broke, or ended without a close.
    Lost(io::ErrorKind),
    /// The client said nothing for too long, or did not answer a close.
    TimedOut,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed(None) => f.write_str("the client closed the connection"),
            Self::Closed(Some(close)) => write!(f, "the client closed the connection: {close}"),
            Self::Failed(error) => write!(f, "the client broke the protocol: {error}"),
            Self::Lost(error) => write!(f, "the connection was lost: {error}"),
            Self::TimedOut => f.write_str("the client does not answer"),
        }
    }
}

/// A socket, from both sides.
pub(super) struct Shared {
    /// Unlike any other's, on any thread.
    pub(super) id: u64,
    pub(super) settings: WebSocketSettings,
    pub(super) state: RefCell<State>,
    /// The rooms that it is in.
    pub(super) rooms: RefCell<Vec<(Weak<Local>, Rc<str>)>>,
}

pub(super) struct State {
    pub(super) connection: Connection,
    received: VecDeque<Message>,
    received_bytes: usize,
    /// Whether nobody takes messages any more.
    pub(super) discards: bool,
    pub(super) receiver: Option<Waker>,
    /// Who waits for room to send.
    pub(super) senders: Vec<Waker>,
    /// Set while the driver waits.
    pub(super) driver: Option<Waker>,
    /// Whether there is something for the driver to do.
    pub(super) is_dirty: bool,
    pub(super) ended: Option<Ended>,
}

impl Shared {
    pub(super) fn new(connection: Connection, settings: WebSocketSettings) -> Rc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Rc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            settings,
            state: RefCell::new(State {
                connection,
                received: VecDeque::new(),
                received_bytes: 0,
                discards: false,
                receiver: None,
                senders: Vec::new(),
                driver: None,
                is_dirty: false,
                ended: None,
            }),
            rooms: RefCell::default(),
        })
    }

    /// Sends what `send` puts into the connection, if there is room.
    pub(super) fn with_room(
        &self,
        send: impl FnOnce(&mut Connection) -> Result<(), Closed>,
    ) -> Result<(), Refused> {
        let mut state = self.state.borrow_mut();
        if state.connection.is_closing() {
            return Err(Refused::Closed);
        }
        if state.connection.output_len() >= self.settings.send_buffer {
            return Err(Refused::Full);
        }
        send(&mut state.connection).map_err(|Closed| Refused::Closed)?;
        state.notify();
        Ok(())
    }

    /// Closes the connection, if it is open.
    pub(super) fn close(&self, close: Option<Close>) -> Result<(), Closed> {
        let mut state = self.state.borrow_mut();
        state.connection.close(close)?;
        state.notify();
        // What waits to be sent before it fails now.
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
        for (rooms, name) in self.rooms.take() {
            if let Some(rooms) = rooms.upgrade() {
                rooms.remove(&name, self.id);
            }
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.leave_rooms();
    }
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Closed,
    Full,
}

impl State {
    /// Tells the driver that there is something to do.
    pub(super) fn notify(&mut self) {
        self.is_dirty = true;
        if let Some(driver) = self.driver.take() {
            driver.wake();
        }
    }

    /// Whether more may be read.
    pub(super) fn takes_more(&self, max: usize) -> bool {
        self.ended.is_none()
            && (self.discards || (self.received.len() < WAITING && self.received_bytes <= max))
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
            // Reading may have stopped for it.
            self.notify();
        }
        Some(message)
    }

    /// Nobody takes messages any more.
    pub(super) fn discard(&mut self) {
        self.discards = true;
        self.received = VecDeque::new();
        self.received_bytes = 0;
        self.notify();
    }

    /// Answers a close once the handler has taken all that came before it, and nobody waits to send: answers
    /// go first.
    pub(super) fn answer_close(&mut self) {
        let is_answered = self.received.is_empty() && self.senders.is_empty();
        if is_answered && !self.connection.is_closing() {
            self.connection.answer_close();
        }
    }

    pub(super) fn end(&mut self, ended: Ended) {
        self.ended.get_or_insert(ended);
    }
}
