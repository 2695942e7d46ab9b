//! WebSockets of a resident application: each message is an event for one of its workers.

use crate::wire::{Form, Message as Event};
use crate::{Failure, Pool, Socket, SocketEvents, SocketOrder, SocketOrders};
use apus_http::{Request, Response};
use bytes::Bytes;

use apus_websocket::{ByteString, CloseCode, Ended, Message, Sender, WebSocket, WebSocketUpgrade};

/// The handshake in a request, if the application takes them.
pub(super) fn upgrade(request: &Request, pool: &Pool) -> Option<WebSocketUpgrade> {
    // Most requests are none, and need not ask the pool.
    let is_handshake = request.upgrade().is_some();
    (is_handshake && pool.takes_sockets())
        .then(|| WebSocketUpgrade::of(request).ok())
        .flatten()
}

/// The response to a handshake: that of the application, which may refuse it. `event` has the variables
/// of the request. The application does not learn of a handshake that a page of another site begins with
/// the cookies of its visitor.
pub(super) async fn open(
    pool: &Pool,
    upgrade: WebSocketUpgrade,
    event: Event,
) -> Result<Response, Failure> {
    if let Some(refusal) = upgrade.refusal() {
        return Ok(refusal);
    }
    let (answer, socket) = pool.open(event).await?;
    let Some(socket) = socket else {
        return Ok(Response::with_shared_headers(
            answer.status,
            std::rc::Rc::new(answer.headers),
            answer.body,
        ));
    };
    let chosen = answer.headers.get_str("sec-websocket-protocol");
    let upgrade = upgrade.protocols(chosen.map(str::to_owned));
    let mut response = upgrade.run(move |connection| converse(connection, socket));
    // What the application says besides, such as a cookie.
    let is_own = |name: &str| {
        name.starts_with("sec-websocket-") || matches!(name, "content-type" | "content-length")
    };
    response
        .headers_mut()
        .append_from(&answer.headers, |name, _| !is_own(name));
    Ok(response)
}

/// Passes messages on both ways until the connection ends.
async fn converse(connection: WebSocket, socket: Socket) {
    let (mut receiver, sender) = connection.split();
    let Socket { events, orders } = socket;
    let outgoing = tokio::task::spawn_local(obey(orders, sender.clone()));
    while let Some(message) = receiver.recv().await {
        if let Err(failure) = tell(&events, message).await {
            tracing::error!(cause = %failure, "no worker took a message of a WebSocket");
            let _ = sender.close(CloseCode::INTERNAL, "");
        }
    }
    let (code, reason) = match receiver.ended() {
        Some(Ended::Closed(Some(close))) => {
            (close.code().get(), close.reason().as_bytes().to_vec())
        }
        Some(Ended::Closed(None)) => (NO_CODE, Vec::new()),
        _ => (LOST, Vec::new()),
    };
    if let Err(failure) = events.closed(code, reason.into()).await
        && !matches!(failure, Failure::Stopping)
    {
        tracing::error!(cause = %failure, "no worker was told that a WebSocket is closed");
    }
    outgoing.abort();
}

/// What stands for no code, and for a connection that was lost (RFC 6455 section 7.4.1).
const NO_CODE: u16 = 1005;
const LOST: u16 = 1006;

async fn tell(events: &SocketEvents, message: Message) -> Result<(), Failure> {
    match message {
        Message::Text(text) => events.message(Form::Text, text.into_bytes()).await,
        Message::Binary(bytes) => events.message(Form::Binary, bytes).await,
    }
}

/// Does what the application wants to be done with the socket.
async fn obey(mut orders: SocketOrders, sender: Sender) {
    while let Some(order) = orders.next().await {
        let message = match order {
            SocketOrder::Send(Form::Binary, bytes) => Message::Binary(bytes),
            SocketOrder::Send(_, text) => match ByteString::try_from(text) {
                Ok(text) => Message::Text(text),
                Err(_) => {
                    tracing::warn!("an application sent a text to a WebSocket that is not UTF-8");
                    continue;
                }
            },
            SocketOrder::Close(code, reason) => {
                let code = CloseCode::new(code).unwrap_or(CloseCode::NORMAL);
                let _ = sender.close(code, &text(&reason));
                return;
            }
        };
        if sender.send(message).await.is_err() {
            return;
        }
    }
    // The application ends, or the client read too slowly.
    let _ = sender.close(CloseCode::TRY_AGAIN_LATER, "");
}

fn text(reason: &Bytes) -> String {
    String::from_utf8_lossy(reason).into_owned()
}
