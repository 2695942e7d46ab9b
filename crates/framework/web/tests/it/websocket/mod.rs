//! WebSocket over real connections.

mod cases;
pub(crate) mod client;
mod handshake;
mod http2;
mod rooms;
mod rooms_redis;
mod sockets;

use apus::websocket::{
    CloseCode, Receiver, Sender, WebSocket, WebSocketSettings, WebSocketUpgrade,
};
use apus::{App, Response};

/// Echoes all messages, and closes the connection on the message `bye`.
pub(crate) async fn echo(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        if message.as_text() == Some("bye") {
            let _ = socket.close(CloseCode::new(4000).unwrap(), "as asked");
            continue;
        }
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

/// An application of one socket at `/`.
pub(crate) fn app(
    settings: WebSocketSettings,
    handler: impl AsyncFn(Receiver, Sender) + Clone + Send + Sync + 'static,
) -> App {
    App::new().get("/", move |upgrade: WebSocketUpgrade| {
        let handler = handler.clone();
        let upgrade = upgrade.settings(settings.clone());
        let response = upgrade.run(async move |socket: WebSocket| {
            let (receiver, sender) = socket.split();
            handler(receiver, sender).await;
        });
        std::future::ready::<Response>(response)
    })
}

/// An application that echoes at `/`.
pub(crate) fn echoing(settings: WebSocketSettings) -> App {
    App::new().get("/", move |upgrade: WebSocketUpgrade| {
        upgrade
            .settings(settings.clone())
            .protocols(["echo"])
            .run(echo)
    })
}
