//! Echoes WebSocket messages, for `conformance/autobahn`.
//!
//! ```sh
//! cargo run -p apus-example-echo -- 127.0.0.1:8080
//! ```

#![forbid(unsafe_code)]

use apus::websocket::{Compression, WebSocket, WebSocketSettings, WebSocketUpgrade};
use apus::{App, Response};

/// Compresses all messages, with context takeover if the client allows it.
const COMPRESSION: Compression = Compression {
    level: 3,
    min_length: 0,
    keep_sent_context: true,
    keep_received_context: true,
};

async fn open(upgrade: WebSocketUpgrade) -> Response {
    let settings = WebSocketSettings {
        max_message: 32 << 20,
        compression: Some(COMPRESSION),
        ..WebSocketSettings::default()
    };
    upgrade.settings(settings).run(echo)
}

async fn echo(mut socket: WebSocket) {
    while let Some(message) = socket.recv().await {
        if socket.send(message).await.is_err() {
            break;
        }
    }
}

fn main() -> Result<(), apus::StartError> {
    let address = std::env::args().nth(1);
    let address = address.as_deref().unwrap_or("127.0.0.1:8080");
    App::new().get("/", open).serve(address)
}
