//! A WebSocket of an application, whose workers get its messages as events.

use std::fmt;

use apus_http::{Interim, Method, StatusCode};
use bytes::Bytes;

use crate::error::WorkerError;

use crate::pool::WorkerPool;
use crate::request::{WorkerRequestBody, WorkerRequestHead, WorkerResponse, head};
use crate::response_body::response_body;
use crate::sockets::SocketCommands;
use crate::wire::{MessageFormat, RequestFrame, WorkerResponseHead};

/// A WebSocket that an application accepted.
#[derive(Debug)]
pub struct PhpSocket {
    /// Sends events to the application.
    pub events: SocketEvents,
    /// Receives commands from the application.
    pub commands: SocketCommands,
}

/// Sends the events of one WebSocket to the application. When it is dropped, the socket is removed from its rooms.
pub struct SocketEvents {
    pool: WorkerPool,
    id: Bytes,
    /// The target of the handshake.
    path: Bytes,
}

impl WorkerPool {
    /// Asks the application whether it accepts a WebSocket. `message` is an unfinished [event](RequestFrame::event)
    /// with the variables of the handshake. With a 101, the socket is returned, too.
    ///
    /// # Errors
    /// No worker responded.
    pub async fn open(
        &self,
        mut message: RequestFrame,
    ) -> Result<(WorkerResponse, Option<PhpSocket>), WorkerError> {
        let path = Bytes::copy_from_slice(message.target());
        // From now on, commands for the socket are queued.
        let (id, commands) = self.shared().sockets.add();
        let events = SocketEvents {
            pool: self.clone(),
            id: id.clone(),
            path,
        };
        message.push(b"kind", b"ws_open");
        message.push(b"socket", &id);
        let request = WorkerRequestHead {
            message,
            method: Method::GET,
            id: None,
            socket: Some(id),
            interim: Interim::default(),
        };
        let (exchange, head) = self
            .exchange(request, WorkerRequestBody::Inline(Default::default()))
            .await?;
        if head.status != StatusCode::SWITCHING_PROTOCOLS {
            return Ok((self.response(exchange, &head, false)?, None));
        }
        let ok_head = WorkerResponseHead {
            status: StatusCode::OK,
            ..head
        };
        let mut response = self.response(exchange, &ok_head, false)?;
        while let Some(Ok(_)) = response.body.frame().await {}
        response.status = StatusCode::SWITCHING_PROTOCOLS;
        let commands = SocketCommands(commands);
        Ok((response, Some(PhpSocket { events, commands })))
    }
}

impl SocketEvents {
    /// Sends a message of the client.
    ///
    /// # Errors
    /// No worker handled it.
    pub async fn message(&self, format: MessageFormat, bytes: Bytes) -> Result<(), WorkerError> {
        let mut message = self.event(b"ws_message");
        let kind = match format {
            MessageFormat::Binary => "binary",
            MessageFormat::Text | MessageFormat::EventStream => "text",
        };
        message.push(b"type", kind.as_bytes());
        self.send(message, bytes).await
    }

    /// Sends the close of the socket, with the code and reason of the client. The code is 1005 if the client sent
    /// none, and 1006 if the connection was lost (RFC 6455 section 7.1.5).
    ///
    /// # Errors
    /// No worker handled it.
    pub async fn closed(self, code: u16, reason: Bytes) -> Result<(), WorkerError> {
        let mut message = self.event(b"ws_close");
        message.push(b"code", code.to_string().as_bytes());
        self.send(message, reason).await
    }

    fn event(&self, kind: &[u8]) -> RequestFrame {
        let mut message = RequestFrame::event(256);
        message.push(b"kind", kind);
        message.push(b"socket", &self.id);
        message.push_target(b"path", &self.path);
        message.push(b"data", &self.pool.shared().sockets.data(&self.id));
        message
    }

    async fn send(&self, message: RequestFrame, bytes: Bytes) -> Result<(), WorkerError> {
        let request = WorkerRequestHead {
            message,
            method: Method::POST,
            id: None,
            socket: Some(self.id.clone()),
            interim: Interim::default(),
        };
        let body = WorkerRequestBody::Inline([bytes].into_iter().collect());
        let (exchange, worker_head) = self.pool.exchange(request, body).await?;
        let length = head(&worker_head, false)?.body;
        let mut body = response_body(exchange, length, &worker_head);
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
