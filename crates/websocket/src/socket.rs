//! A socket as its handler has it.

use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::codec::{Close, CloseCode, Closed, Message, Prepared};

use super::state::{Ended, Refused, Shared};

/// A WebSocket connection with a client.
///
/// It is closed when the handler that was given it returns.
pub struct WebSocket {
    receiver: Receiver,
    sender: Sender,
    protocol: Option<Box<str>>,
}

/// The half of a socket that receives. Once it is dropped, what the client sends is dropped, too.
pub struct Receiver(Rc<Shared>);

/// The half of a socket that sends. Copies of it can be kept by other tasks of the same worker; they
/// fail when the connection is closed.
#[derive(Clone)]
pub struct Sender(Rc<Shared>);

/// Why a message was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendError {
    /// The connection is closed.
    Closed,
    /// The client reads too slowly: more waits to be sent than
    /// [`super::WebSocketSettings::send_buffer`].
    Full,
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => Closed.fmt(f),
            Self::Full => f.write_str("the client reads too slowly"),
        }
    }
}

impl std::error::Error for SendError {}

impl WebSocket {
    pub(super) fn new(shared: &Rc<Shared>, protocol: Option<Box<str>>) -> Self {
        Self {
            receiver: Receiver(Rc::clone(shared)),
            sender: Sender(Rc::clone(shared)),
            protocol,
        }
    }

    /// The subprotocol that was agreed on.
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
    pub async fn send(&mut self, message: impl Into<Message>) -> Result<(), Closed> {
        self.sender.send(message).await
    }

    /// Closes the connection; see [`Sender::close`].
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&mut self, code: CloseCode, reason: &str) -> Result<(), Closed> {
        self.sender.close(code, reason)
    }

    /// Why nothing more comes; `None` while something may.
    pub fn ended(&self) -> Option<Ended> {
        self.receiver.ended()
    }

    /// A half that sends, to be kept elsewhere or to [join rooms](super::Rooms::join).
    pub fn sender(&self) -> &Sender {
        &self.sender
    }

    /// Both halves.
    pub fn split(self) -> (Receiver, Sender) {
        (self.receiver, self.sender)
    }
}

impl Receiver {
    /// The next message; `None` once the client closed the connection, or it is lost (see
    /// [`Receiver::ended`]). Can be dropped and called again without loss.
    pub async fn recv(&mut self) -> Option<Message> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// As [`Receiver::recv`], for code that is polled.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Message>> {
        let mut state = self.0.state.borrow_mut();
        if let Some(message) = state.pop() {
            return Poll::Ready(Some(message));
        }
        if state.ended.is_some() {
            state.answer_close();
            state.notify();
            return Poll::Ready(None);
        }
        state.receiver = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Why nothing more comes; `None` while something may.
    pub fn ended(&self) -> Option<Ended> {
        self.0.state.borrow().ended.clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.0.state.borrow_mut().discard();
    }
}

impl Sender {
    /// Sends a message, as soon as not too much waits to be sent before it.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send(&self, message: impl Into<Message>) -> Result<(), Closed> {
        let mut message = Some(message.into());
        poll_fn(|cx| {
            let sent = self.0.with_room(|connection| match message.take() {
                Some(message) => connection.send(message),
                None => Ok(()),
            });
            match sent {
                Ok(()) => Poll::Ready(Ok(())),
                Err(Refused::Closed) => Poll::Ready(Err(Closed)),
                Err(Refused::Full) => {
                    let senders = &mut self.0.state.borrow_mut().senders;
                    if !senders.iter().any(|known| known.will_wake(cx.waker())) {
                        senders.push(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Sends a message now, or not at all.
    ///
    /// # Errors
    /// The connection is closed, or too much waits to be sent.
    pub fn try_send(&self, message: impl Into<Message>) -> Result<(), SendError> {
        let message = message.into();
        Ok(self.0.with_room(|connection| connection.send(message))?)
    }

    /// Sends a message that was encoded once for many sockets, now or not at all.
    ///
    /// # Errors
    /// As of [`Sender::try_send`].
    pub fn try_send_prepared(&self, message: &Prepared) -> Result<(), SendError> {
        Ok(self
            .0
            .with_room(|connection| connection.send_prepared(message))?)
    }

    /// Closes the connection: what was sent before still goes out, nothing can be sent after it. The
    /// receiver gets what comes until the client has answered.
    ///
    /// # Errors
    /// It is closed already.
    pub fn close(&self, code: CloseCode, reason: &str) -> Result<(), Closed> {
        self.0.close(Some(Close::new(code, reason)))
    }

    /// Whether nothing can be sent any more.
    pub fn is_closed(&self) -> bool {
        self.0.state.borrow().connection.is_closing()
    }

    /// A number that no other socket of this process has or had.
    pub fn id(&self) -> u64 {
        self.0.id
    }

    pub(super) fn shared(&self) -> &Rc<Shared> {
        &self.0
    }
}

impl From<Refused> for SendError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Closed => Self::Closed,
            Refused::Full => Self::Full,
        }
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
