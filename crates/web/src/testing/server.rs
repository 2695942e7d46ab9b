//! `TestServer`: serves an application on a free port.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use apus_http::ServiceFactory;
use apus_net::{Engine, Limits, ListenAddress, Listener, Plan};

use super::client::server_service_of;
use super::{TestClient, fail};
use crate::app::App;

/// An application that is served on a free port of the loopback interface until this is dropped.
pub struct TestServer {
    /// `None` once it was stopped.
    engine: Option<Engine>,
    address: SocketAddr,
}

/// For how long requests may go on when a server stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl TestServer {
    /// Serves an application with one worker.
    ///
    /// # Panics
    /// A route is not possible.
    #[track_caller]
    pub fn start(app: App) -> Self {
        Self::with_workers(app, 1)
    }

    /// Serves an application with so many workers, at least one: for what they share.
    ///
    /// # Panics
    /// A route is not possible.
    #[track_caller]
    pub fn with_workers(app: App, workers: usize) -> Self {
        if let Err(error) = app.check() {
            fail(error);
        }
        Self::of(Arc::new(server_service_of(app)), workers)
    }

    #[track_caller]
    fn of(service: Arc<dyn ServiceFactory>, workers: usize) -> Self {
        let engine = Engine::start(Plan {
            workers: NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN),
            limits: Limits::default(),
            server_field: None,
            listeners: vec![Listener {
                address: ListenAddress::Tcp {
                    address: (Ipv4Addr::LOCALHOST, 0).into(),
                    ipv6_only: true,
                },
                tls: None,
                http2: true,
                proxy_protocol_from: Vec::new(),
                service,
            }],
        });
        let engine = match engine {
            Ok(engine) => engine,
            Err(error) => fail(error),
        };
        let listening = engine.status().listening;
        match listening.first() {
            Some(ListenAddress::Tcp { address, .. }) => Self {
                address: *address,
                engine: Some(engine),
            },
            _ => fail("the server listens nowhere"),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a path, for other clients: `http://127.0.0.1:41233/users`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A client of it, over HTTP/1.1, with cookies of its own.
    #[track_caller]
    pub fn client(&self) -> TestClient {
        TestClient::over(self.address)
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else {
            return;
        };
        // On a thread of its own: whoever drops this may be in a runtime.
        let stopping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(engine.stop(STOP_TIMEOUT));
            }
        });
        // If it failed, the process ends anyway.
        let _ = stopping.join();
    }
}

impl std::fmt::Debug for TestServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestServer")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}
