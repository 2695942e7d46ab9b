//! WebSockets of resident applications, whose messages are events for a worker.

use std::time::Instant;

use crate::wire::{MessageFormat, RequestFrame};
use crate::{PhpSocket, SocketCommand, SocketCommands, SocketEvents, WorkerError, WorkerPool};
use apus_http::{Request, Response};
use bytes::Bytes;

use apus_websocket::{
    ByteString, CloseCode, DisconnectReason, Message, Sender, WebSocket, WebSocketUpgrade,
};

/// The handshake in a request, if the application accepts WebSockets.
pub(super) fn upgrade(request: &Request, pool: &WorkerPool) -> Option<WebSocketUpgrade> {
    // Checked first, as it is cheaper than the lock of the pool.
    let is_handshake = request.upgrade().is_some();
    (is_handshake && pool.takes_sockets())
        .then(|| WebSocketUpgrade::of(request).ok())
        .flatten()
}

/// The response of the application to a handshake, which may refuse it. `event` has the variables of the request.
/// Handshakes from pages of other sites, which have the cookies of a visitor, do not reach the application.
pub(super) async fn open(
    pool: &WorkerPool,
    upgrade: WebSocketUpgrade,
    event: RequestFrame,
) -> Result<Response, WorkerError> {
    if let Some(refusal) = upgrade.refusal() {
        return Ok(refusal);
    }
    let sent_at = Instant::now();
    let (worker_response, socket) = pool.open(event).await?;
    let Some(socket) = socket else {
        return Ok(pool.response_of(worker_response, sent_at));
    };
    let origin = pool.origin(worker_response.status, sent_at);
    let chosen = worker_response.headers.get_str("sec-websocket-protocol");
    let upgrade = upgrade.protocols(chosen.map(str::to_owned));
    let mut response = upgrade.run(move |connection| run(connection, socket));
    // Other header fields of the application, such as a cookie.
    let is_replaced = |name: &[u8]| {
        name.starts_with(b"sec-websocket-") || matches!(name, b"content-type" | b"content-length")
    };
    response
        .headers_mut()
        .append_from(&worker_response.headers, |name, _| !is_replaced(name));
    response.set_origin(origin);
    Ok(response)
}

/// Forwards messages in both directions until the connection ends.
async fn run(connection: WebSocket, socket: PhpSocket) {
    let (mut receiver, sender) = connection.split();
    let PhpSocket { events, commands } = socket;
    let writer = tokio::task::spawn_local(write_loop(commands, sender.clone()));
    while let Some(message) = receiver.recv().await {
        if let Err(error) = send_event(&events, message).await {
            tracing::error!(cause = %error, "no worker handled a message of a WebSocket");
            let _ = sender.close(CloseCode::INTERNAL, "");
        }
    }
    let (code, reason) = match receiver.disconnect_reason() {
        Some(DisconnectReason::Closed(Some(close))) => {
            (close.code().get(), close.reason().as_bytes().to_vec())
        }
        Some(DisconnectReason::Closed(None)) => (NO_CODE, Vec::new()),
        _ => (LOST, Vec::new()),
    };
    if let Err(error) = events.closed(code, reason.into()).await
        && !matches!(error, WorkerError::Stopping)
    {
        tracing::error!(cause = %error, "no worker handled the close of a WebSocket");
    }
    writer.abort();
}

/// The codes for a close without a code, and for a lost connection (RFC 6455 section 7.4.1).
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;

async fn send_event(events: &SocketEvents, message: Message) -> Result<(), WorkerError> {
    match message {
        Message::Text(text) => events.message(MessageFormat::Text, text.into_bytes()).await,
        Message::Binary(bytes) => events.message(MessageFormat::Binary, bytes).await,
    }
}

/// Executes the commands of the application for the socket.
async fn write_loop(mut commands: SocketCommands, sender: Sender) {
    while let Some(command) = commands.next().await {
        let message = match command {
            SocketCommand::Send(MessageFormat::Binary, bytes) => Message::Binary(bytes),
            SocketCommand::Send(_, text) => match ByteString::try_from(text) {
                Ok(text) => Message::Text(text),
                Err(_) => {
                    tracing::warn!("an application sent text to a WebSocket that is not UTF-8");
                    continue;
                }
            },
            SocketCommand::Close(code, reason) => {
                let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                let _ = sender.close(code, &text(&reason));
                return;
            }
        };
        if sender.send(message).await.is_err() {
            return;
        }
    }
    // The application stops, or the client reads too slowly.
    let _ = sender.close(CloseCode::TRY_AGAIN_LATER, "");
}

fn text(reason: &Bytes) -> String {
    String::from_utf8_lossy(reason).into_owned()
}
