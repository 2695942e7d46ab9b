//! `TestClient`: the client that sends the requests of a test.

use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use apus_clock::{ClockGuard, TestClock};
use apus_http::{Headers, ServiceFactory};
use tokio::runtime::Runtime;
use tokio::task::LocalSet;

use super::cookies::CookieJar;
use super::fail;
use super::transport::TestTransport;
use crate::app::App;
use crate::server_service::ServerServiceFactory;

/// A client that keeps its cookies; see [`crate::testing`].
///
/// Clones share cookies and connection.
#[derive(Clone)]
pub struct TestClient {
    pub(super) shared: Rc<TestClientState>,
    /// Fields of every request.
    pub(super) headers: Headers,
}

pub(super) struct TestClientState {
    pub(super) transport: TestTransport,
    pub(super) cookies: RefCell<CookieJar>,
    clock: RefCell<Option<(TestClock, ClockGuard)>>,
    tasks: LocalSet,
    runtime: Runtime,
}

/// The time limit for a response, or a piece of its body.
const TIMEOUT: Duration = Duration::from_secs(30);

impl TestClient {
    /// A client of an application, in process. Its responses are the same as over a socket: errors without
    /// a body get an error page.
    #[track_caller]
    pub fn new(app: App) -> Self {
        if let Err(error) = app.check() {
            fail(error);
        }
        Self::of(server_service_of(app))
    }

    /// A client of any service, in process.
    #[track_caller]
    pub fn of(service: impl ServiceFactory) -> Self {
        Self::with(|| TestTransport::in_process(service.service()), None)
    }

    /// A client over a socket.
    #[track_caller]
    pub(super) fn over(address: SocketAddr, clock: TestClock) -> Self {
        Self::with(|| TestTransport::Socket(address), Some(clock))
    }

    #[track_caller]
    fn with(transport: impl FnOnce() -> TestTransport, clock: Option<TestClock>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => fail(error),
        };
        let transport = {
            let _entered = runtime.enter();
            transport()
        };
        Self {
            shared: Rc::new(TestClientState {
                transport,
                cookies: RefCell::default(),
                clock: RefCell::new(clock.map(entered)),
                tasks: LocalSet::new(),
                runtime,
            }),
            headers: Headers::new(),
        }
    }

    /// This client with a header field in each request: `client.header("accept", "application/json")`.
    #[must_use]
    #[track_caller]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Err(error) = self.headers.try_insert(name, value) {
            fail(error);
        }
        self
    }

    /// The value of a cookie that was set for this client.
    pub fn cookie(&self, name: &str) -> Option<String> {
        self.shared.cookies.borrow().get(name).map(str::to_owned)
    }

    /// Sets a cookie, for all paths.
    pub fn set_cookie(&self, name: &str, value: &str) {
        self.shared.cookies.borrow_mut().set(name, value);
    }

    /// Removes all cookies.
    pub fn clear_cookies(&self) {
        *self.shared.cookies.borrow_mut() = CookieJar::default();
    }

    /// The clock of the application, which the test can freeze and move: [`apus::time`](crate::time), sessions, signed URLs,
    /// rate limits, cached values, jobs and schedules follow it. Timers of tokio do not.
    ///
    /// ```
    /// use std::time::Duration;
    /// use apus::App;
    /// use apus::testing::TestClient;
    /// use apus::time::unix_seconds;
    ///
    /// let client = TestClient::new(App::new().get("/", async || unix_seconds().to_string()));
    /// client.clock().freeze();
    /// let before = unix_seconds();
    /// client.clock().advance(Duration::from_secs(3600));
    /// client.get("/").send().assert_text(&(before + 3600).to_string());
    /// ```
    ///
    /// It is the clock of the thread of the test until the client is dropped; the clock of a
    /// [`TestServer`](super::TestServer) is also the clock of its workers.
    pub fn clock(&self) -> TestClock {
        let mut clock = self.shared.clock.borrow_mut();
        let current = || entered(apus_clock::current().unwrap_or_default());
        clock.get_or_insert_with(current).0.clone()
    }

    /// Runs a future like a worker, together with the tasks that the application started.
    ///
    /// # Panics
    /// It takes longer than 30 seconds.
    #[track_caller]
    pub fn run<T>(&self, future: impl Future<Output = T>) -> T {
        let TestClientState { tasks, runtime, .. } = &*self.shared;
        let limited = async { tokio::time::timeout(TIMEOUT, future).await };
        match tasks.block_on(runtime, limited) {
            Ok(done) => done,
            Err(_) => fail("nothing came within 30 seconds"),
        }
    }
}

/// Makes a clock the clock of this thread.
fn entered(clock: TestClock) -> (TestClock, ClockGuard) {
    let guard = clock.enter();
    (clock, guard)
}

/// The service of an application, as [`App::serve`] runs it.
pub(super) fn server_service_of(app: App) -> ServerServiceFactory<App> {
    ServerServiceFactory(app)
}

impl std::fmt::Debug for TestClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestClient")
            .field("transport", &self.shared.transport)
            .finish_non_exhaustive()
    }
}
