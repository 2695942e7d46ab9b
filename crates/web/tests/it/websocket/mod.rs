//! WebSocket over real connections.

mod cases;
pub(crate) mod client;
mod handshake;
mod http2;
mod rooms;
mod rooms_redis;
mod sockets;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use apus::websocket::{
    CloseCode, Receiver, Sender, WebSocket, WebSocketSettings, WebSocketUpgrade,
};
use apus::{App, Response};
use apus_net::{Engine, Limits, ListenAddress, Listener, Plan};

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

/// An application that is served.
pub(crate) struct Server {
    pub(crate) engine: Engine,
}

impl Server {
    pub(crate) fn start(app: App) -> Self {
        Self::with_workers(1, app)
    }

    pub(crate) fn with_workers(workers: usize, app: App) -> Self {
        app.check().unwrap();
        let engine = Engine::start(Plan {
            workers: NonZeroUsize::new(workers).unwrap(),
            limits: Limits::default(),
            server_field: None,
            listeners: vec![Listener {
                address: ListenAddress::Tcp {
                    address: "127.0.0.1:0".parse().unwrap(),
                    ipv6_only: true,
                },
                tls: None,
                http2: true,
                proxy_protocol_from: Vec::new(),
                service: Arc::new(app),
            }],
        });
        Self {
            engine: engine.unwrap(),
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        match self.engine.status().listening[..] {
            [ListenAddress::Tcp { address, .. }] => address,
            ref other => panic!("{other:?}"),
        }
    }
}

/// Waits for a condition.
pub(crate) fn eventually(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come about");
        thread::park_timeout(Duration::from_millis(2));
    }
}

/// Sends everything back, and closes when told `bye`.
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
