//! A WebSocket of an application: its connection is with whoever serves it, and workers know it by events alone.

use std::fmt;

use apus_http::{Method, StatusCode};
use bytes::Bytes;

use crate::content::content;
use crate::error::Failure;
use crate::exchange::Asked;
use crate::pool::Pool;
use crate::request::{Upload, WorkerResponse, head};
use crate::sockets::SocketOrders;
use crate::wire::{Form, Message, ResponseHead};

/// A WebSocket that an application took.
#[derive(Debug)]
pub struct Socket {
    /// What is told to the application.
    pub events: SocketEvents,
    /// What it wants.
    pub orders: SocketOrders,
}

/// What is told to the application of one WebSocket, one event after another. Dropped, the socket has no
/// name and no rooms any more.
pub struct SocketEvents {
    pool: Pool,
    id: Bytes,
    /// The target of the handshake.
    path: Bytes,
}

impl Pool {
    /// Asks the application whether it takes a WebSocket. `message` is an [event](Message::event) with the
    /// variables of the handshake, not finished yet. With the answer comes the socket, if that is 101.
    ///
    /// # Errors
    /// No worker answered.
    pub async fn open(
        &self,
        mut message: Message,
    ) -> Result<(WorkerResponse, Option<Socket>), Failure> {
        let path = Bytes::copy_from_slice(message.target());
        // Commands of the event are kept for the socket from now on.
        let (id, orders) = self.shared().sockets.add();
        let events = SocketEvents {
            pool: self.clone(),
            id: id.clone(),
            path,
        };
        message.push(b"kind", b"ws_open");
        message.push(b"socket", &id);
        let asked = Asked {
            message,
            method: Method::GET,
            id: None,
            socket: Some(id),
        };
        let (exchange, answer) = self.ask(asked, Upload::Inline(Default::default())).await?;
        if answer.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok((self.response(exchange, &answer, false)?, None));
        }
        let taken = ResponseHead {
            status: StatusCode::OK,
            ..answer
        };
        let mut response = self.response(exchange, &taken, false)?;
        while let Some(Ok(_)) = response.body.frame().await {}
        response.status = StatusCode::SWITCHING_PROTOCOLS;
        let orders = SocketOrders(orders);
        Ok((response, Some(Socket { events, orders })))
    }
}

impl SocketEvents {
    /// Tells of a message.
    ///
    /// # Errors
    /// No worker took it.
    pub async fn message(&self, form: Form, bytes: Bytes) -> Result<(), Failure> {
        let mut message = self.event(b"ws_message");
        let kind = match form {
            Form::Binary => "binary",
            Form::Text | Form::EventStream => "text",
        };
        message.push(b"type", kind.as_bytes());
        self.tell(message, bytes).await
    }

    /// Tells that it is closed, with the code and reason of the client; 1005 is none, 1006 that the
    /// connection was lost (RFC 6455 section 7.1.5).
    ///
    /// # Errors
    /// No worker took it.
    pub async fn closed(self, code: u16, reason: Bytes) -> Result<(), Failure> {
        let mut message = self.event(b"ws_close");
        message.push(b"code", code.to_string().as_bytes());
        self.tell(message, reason).await
    }

    fn event(&self, kind: &[u8]) -> Message {
        let mut message = Message::event(256);
        message.push(b"kind", kind);
        message.push(b"socket", &self.id);
        message.push_target(b"path", &self.path);
        message.push(b"data", &self.pool.shared().sockets.data(&self.id));
        message
    }

    async fn tell(&self, message: Message, bytes: Bytes) -> Result<(), Failure> {
        let asked = Asked {
            message,
            method: Method::POST,
            id: None,
            socket: Some(self.id.clone()),
        };
        let upload = Upload::Inline([bytes].into_iter().collect());
        let (exchange, answer) = self.pool.ask(asked, upload).await?;
        let length = head(&answer, false)?.content;
        let mut body = content(exchange, length, &answer);
        while let Some(Ok(_)) = body.frame().await {}
        Ok(())
    }
}

impl fmt::Debug for SocketEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SocketEvents")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Drop for SocketEvents {
    fn drop(&mut self) {
        self.pool.shared().sockets.remove(&self.id);
    }
}
