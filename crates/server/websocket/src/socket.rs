//! The handles on a WebSocket that a handler uses.

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::codec::{Close, CloseCode, ConnectionClosed, Message, PreparedMessage};

use super::state::{DisconnectReason, SendError, SharedSocket, WaitingMessage};

/// A WebSocket connection with a client.
///
/// It is closed when its handler returns.
pub struct WebSocket {
    receiver: Receiver,
    sender: Sender,
    protocol: Option<Box<str>>,
}

/// The receiving half of a socket. When it is dropped, messages of the client are discarded.
pub struct Receiver(Rc<SharedSocket>);

/// The sending half of a socket. Other tasks of the same worker may hold clones of it; sending fails once the
/// connection is closed.
#[derive(Clone)]
pub struct Sender(Rc<SharedSocket>);

impl WebSocket {
    pub(super) fn new(shared: &Rc<SharedSocket>, protocol: Option<Box<str>>) -> Self {
        Self {
            receiver: Receiver(Rc::clone(shared)),
            sender: Sender(Rc::clone(shared)),
            protocol,
        }
    }

    /// The negotiated subprotocol.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// The next message; see [`Receiver::recv`].
    pub async fn recv(&mut self) -> Option<Message> {
        self.receiver.recv().await
    }

    /// Sends a message; see [`Sender::send`].
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), ConnectionClosed> {
        self.sender.send(message).await
    }

    /// Closes the connection; see [`Sender::close`].
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&mut self, code: CloseCode, reason: &str) -> Result<(), ConnectionClosed> {
        self.sender.close(code, reason)
    }

    /// Why no more messages will be received; `None` while the connection is open.
    pub fn disconnect_reason(&self) -> Option<DisconnectReason> {
        self.receiver.disconnect_reason()
    }

    /// The sending half, to be cloned for other tasks or to [join rooms](super::Rooms::join).
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Both halves.
    pub fn split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }
}

impl Receiver {
    /// The next message; `None` once the connection is closed or lost (see
    /// [`Receiver::disconnect_reason`]). Cancel safe: a dropped call loses no message.
    pub async fn recv(&mut self) -> Option<Message> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// The poll function of [`Receiver::recv`].
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.0.state.borrow_mut();
        if let Some(message) = state.pop() {
            return Poll::Ready(Some(message));
        }
        if state.disconnect_reason.is_some() {
            state.respond_to_close();
            state.notify();
            return Poll::Ready(None);
        }
        state.receiver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Why no more messages will be received; `None` while the connection is open.
    pub fn disconnect_reason(&self) -> Option<DisconnectReason> {
        self.0.state.borrow().disconnect_reason.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.state.borrow_mut().discard();
    }
}

impl Sender {
    /// Sends a message, and waits first until the send buffer has room. A client that takes too little of what was
    /// sent for too long loses the connection, so that this does not wait for ever.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), ConnectionClosed> {
        let mut message = Some(message.into());
        let mut waiting = None;
        poll_fn(|cx| {
            let sent = self.0.send_if_room(|connection| match message.take() {
                Some(message) => connection.send(message),
                None => Ok(()),
            });
            match sent {
                Ok(()) => Poll::Ready(Ok(())),
                Err(SendError::Closed) => Poll::Ready(Err(ConnectionClosed)),
                Err(SendError::Full) => {
                    waiting.get_or_insert_with(|| {
                        WaitingMessage::new(&self.0, message.as_ref().map_or(0, Message::len))
                    });
                    self.0.state.borrow_mut().add_sender(cx);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Waits until the send buffer has room, for code that polls. Ready at once if it has.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectionClosed>> {
        match self.0.send_if_room(|_| Ok(())) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(SendError::Closed) => Poll::Ready(Err(ConnectionClosed)),
            Err(SendError::Full) => {
                self.0.state.borrow_mut().add_sender(cx);
                Poll::Pending
            }
        }
    }

    /// Sends a message, unless that would have to wait.
    ///
    /// # Errors
    /// The connection is closed, or the send buffer is full.
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = message.into();
        self.0.send_if_room(|connection| connection.send(message))
    }

    /// Sends a message that was encoded once for many sockets, unless that would have to wait.
    ///
    /// # Errors
    /// The connection is closed, or the send buffer is full.
    pub fn try_send_prepared(&self, message: &PreparedMessage) -> Result<(), SendError> {
        self.0
            .send_if_room(|connection| connection.send_prepared(message))
    }

    /// Closes the connection. Messages that were sent before are still written; nothing can be sent after it.
    /// The receiver gets messages until the client has responded.
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&self, code: CloseCode, reason: &str) -> Result<(), ConnectionClosed> {
        self.0.close(Some(Close::new(code, reason)))
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.0.state.borrow().connection.is_closing()
    }

    /// A number that is unique in this process, also over time.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn shared(&self) -> &Rc<SharedSocket> {
        &self.0
    }
}

impl fmt::Debug for WebSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocket")
            .field("id", &self.sender.id())
            .field("protocol", &self.protocol)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Receiver").field(&self.0.id).finish()
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.0.id).finish()
    }
}
