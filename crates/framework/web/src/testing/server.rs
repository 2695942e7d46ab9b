//! `TestServer`: serves an application on a free port.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use apus_clock::TestClock;
use apus_http::{RouteInfo, Service, ServiceFactory};
use apus_net::{Engine, EnginePlan, ListenAddress, ListenerPlan};

use super::client::server_service_of;
use super::{TestClient, fail};
use crate::app::App;
use crate::server_service::ServerServiceFactory;

/// Serves an application on a free port of the loopback interface until it is dropped.
pub struct TestServer {
    /// `None` after the stop.
    engine: Option<Engine>,
    address: SocketAddr,
    clock: TestClock,
}

/// How long a stop waits for open requests.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

impl TestServer {
    /// Serves an application with one worker.
    ///
    /// # Panics
    /// A route is invalid.
    #[track_caller]
    pub fn start(app: App) -> Self {
        Self::with_workers(app, 1)
    }

    /// Serves an application with this number of workers, at least one.
    ///
    /// # Panics
    /// A route is invalid.
    #[track_caller]
    pub fn with_workers(app: App, workers: usize) -> Self {
        if let Err(error) = app.check() {
            fail(error);
        }
        let clock = apus_clock::current().unwrap_or_default();
        let service = ClockedService {
            service: server_service_of(app),
            clock: clock.clone(),
        };
        Self::of(Arc::new(service), workers, clock)
    }

    #[track_caller]
    fn of(service: Arc<dyn ServiceFactory>, workers: usize, clock: TestClock) -> Self {
        let workers = NonZeroUsize::new(workers).unwrap_or(NonZeroUsize::MIN);
        let listener = ListenerPlan::new(ListenAddress::tcp((Ipv4Addr::LOCALHOST, 0)), service);
        let engine = match Engine::start(EnginePlan::new(workers, vec![listener])) {
            Ok(engine) => engine,
            Err(error) => fail(error),
        };
        let listening = engine.status().listening;
        match listening.first() {
            Some(ListenAddress::Tcp { address, .. }) => Self {
                address: *address,
                engine: Some(engine),
                clock,
            },
            _ => fail("the server listens nowhere"),
        }
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of a path, for other clients: `http://127.0.0.1:41233/users`.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// A client of the server over HTTP/1.1, with its own cookies.
    #[track_caller]
    pub fn client(&self) -> TestClient {
        TestClient::over(self.address, self.clock.clone())
    }
}

/// A service on workers with a test clock.
struct ClockedService {
    service: ServerServiceFactory<App>,
    clock: TestClock,
}

impl ServiceFactory for ClockedService {
    fn service(&self) -> Rc<dyn Service> {
        // The worker has it until its thread ends.
        std::mem::forget(self.clock.enter());
        self.service.service()
    }

    fn check(&self) -> Result<(), Box<dyn Error + Send + Sync>> {
        self.service.check()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.service.routes()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        let Some(engine) = self.engine.take() else {
            return;
        };
        // On a new thread, since this thread may have a runtime.
        let stopping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            if let Ok(runtime) = runtime {
                runtime.block_on(engine.stop(STOP_TIMEOUT));
            }
        });
        // A panic there must not become a second panic here.
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
