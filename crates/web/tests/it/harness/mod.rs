//! A server for one test, and a blocking client.

pub(crate) mod client;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use apus::App;
use apus_net::{Engine, EnginePlan, Limits, ListenAddress, ListenerPlan};

pub(crate) use self::client::{Client, Reply};
pub(crate) use apus_testkit::wait_until;

/// The time limit for an event that a test waits for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A server that runs an application on a free port.
pub(crate) struct Server {
    pub(crate) engine: Engine,
}

impl Server {
    pub(crate) fn start(app: App) -> Self {
        Self::with_workers(1, app)
    }

    pub(crate) fn with_workers(workers: usize, app: App) -> Self {
        app.check().unwrap();
        let engine = Engine::start(EnginePlan {
            workers: NonZeroUsize::new(workers).unwrap(),
            limits: Limits::default(),
            server_field: None,
            listeners: vec![ListenerPlan {
                address: ListenAddress::Tcp {
                    address: "127.0.0.1:0".parse().unwrap(),
                    ipv6_only: true,
                },
                tls: None,
                http2: true,
                http3: None,
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

/// The response to one request, sent over a connection of its own.
pub(crate) fn request(app: App, request: &str) -> Reply {
    let server = Server::start(app);
    Client::connect(server.address()).request(request)
}

/// The response to a GET request with these field lines, sent over a connection of its own.
pub(crate) fn get(app: App, path: &str, lines: &[&str]) -> Reply {
    request(app, &head("GET", path, lines))
}

/// A request without a body.
pub(crate) fn head(method: &str, path: &str, lines: &[&str]) -> String {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: example.com\r\n");
    for line in lines {
        text.push_str(line);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    text
}
