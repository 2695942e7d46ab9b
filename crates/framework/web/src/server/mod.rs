//! `Server`: an application with its listeners and background tasks.

#[cfg(feature = "acme")]
mod acme;
mod control;
#[cfg(feature = "control")]
mod control_socket;
#[cfg(not(feature = "control"))]
#[path = "control_socket_off.rs"]
mod control_socket;
mod controlled_server;
mod error;
#[cfg(feature = "jobs")]
mod jobs;
mod running;
mod signals;
mod task;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::future::Future;
use std::net::ToSocketAddrs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use apus_http::ServiceFactory;
#[cfg(feature = "http3")]
use apus_net::Http3Settings;
use apus_net::{
    DevelopmentSocket, Engine, EnginePlan, Limits, ListenAddress, ListenerPlan, StopSignals,
};
use tokio::sync::{oneshot, watch};
use tokio::task::LocalSet;

use crate::server_service::ServerServiceFactory;

#[cfg(feature = "acme")]
pub use apus_acme::Acme;
use control::ServerControl;
use control_socket::ApplicationSocket;
pub use error::StartError;
pub use running::{Running, StopHandle, Stopping};
use signals::{SignalSender, SignalSource};
use task::Task;

/// An application on its listeners.
///
/// ```no_run
/// use std::time::Duration;
/// use apus::{App, Server};
///
/// fn main() -> Result<(), apus::StartError> {
///     Server::new(App::new().get("/", async || "hello"))
///         .listen("127.0.0.1:8080")?
///         .listen_unix("/run/app.sock")
///         .every("cleaning", Duration::from_secs(60), async || { /* ... */ })
///         .run()
/// }
/// ```
///
/// Each worker is a thread with its own core. [`Server::run`] returns after SIGTERM or SIGINT, once open
/// requests are complete. After a second signal it does not wait for them.
pub struct Server {
    service: Arc<dyn ServiceFactory>,
    listeners: Vec<ListenerPlan>,
    /// The listeners of other applications.
    also: Vec<ListenerPlan>,
    workers: NonZeroUsize,
    limits: Limits,
    #[cfg(feature = "http3")]
    http3: Option<Http3Settings>,
    control_socket: Option<PathBuf>,
    tasks: Vec<(String, Task)>,
    /// The certificates that are ordered, each with the number of its listener.
    #[cfg(feature = "acme")]
    acme: Vec<(usize, Acme)>,
    #[cfg(feature = "jobs")]
    queues: Vec<apus_jobs::Jobs>,
}

impl Server {
    /// A server that does not listen yet, with one worker for each core and the limits of the server's
    /// default configuration.
    pub fn new(service: impl ServiceFactory + 'static) -> Self {
        Self {
            service: Arc::new(ServerServiceFactory(service)),
            listeners: Vec::new(),
            also: Vec::new(),
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limits: Limits::default(),
            #[cfg(feature = "http3")]
            http3: Some(Http3Settings::default()),
            control_socket: None,
            tasks: Vec::new(),
            #[cfg(feature = "acme")]
            acme: Vec::new(),
            #[cfg(feature = "jobs")]
            queues: Vec::new(),
        }
    }

    /// Listens on an address, as `127.0.0.1:8080`; port 0 picks a free one.
    ///
    /// # Errors
    /// The text is not an address, or its host name cannot be resolved.
    pub fn listen(self, address: impl ToSocketAddrs) -> Result<Self, StartError> {
        self.listen_on(address, |_| {})
    }

    /// Listens on an address with TLS, for HTTP/3, HTTP/2 and HTTP/1.1, with a certificate that is ordered and renewed by
    /// ACME. Until there is one, clients get an alert. The authority verifies the names at port 80, for which
    /// [`Server::listen`] is needed, or at port 443.
    ///
    /// # Errors
    /// The text is not an address, or its host name cannot be resolved.
    #[cfg(feature = "acme")]
    pub fn listen_acme(self, address: impl ToSocketAddrs, acme: Acme) -> Result<Self, StartError> {
        let first = self.listeners.len();
        let mut server = self.listen_on(address, |_| {})?;
        let added = first..server.listeners.len();
        server
            .acme
            .extend(added.map(|listener| (listener, acme.clone())));
        Ok(server)
    }

    fn listen_on(
        mut self,
        addresses: impl ToSocketAddrs,
        set_up: impl Fn(&mut ListenerPlan),
    ) -> Result<Self, StartError> {
        for address in tcp_addresses(addresses)? {
            let mut listener = ListenerPlan::new(address, self.service.clone());
            set_up(&mut listener);
            self.listeners.push(listener);
        }
        Ok(self)
    }

    /// Serves another application on a separate address, with the same workers and limits: metrics for a network that
    /// clients do not reach, for example.
    ///
    /// ```no_run
    /// use apus::layers::Metrics;
    /// use apus::{App, Server};
    ///
    /// fn main() -> Result<(), apus::StartError> {
    ///     let metrics = Metrics::new();
    ///     let inside = App::new().get("/metrics", metrics.handler());
    ///     let app = App::new().layer(metrics).get("/", async || "hello");
    ///     Server::new(app)
    ///         .listen("0.0.0.0:8080")?
    ///         .also("127.0.0.1:9100", inside)?
    ///         .run()
    /// }
    /// ```
    ///
    /// Under `apus dev`, the application of [`Server::new`] is the one that is shown, and this one keeps its address.
    ///
    /// # Errors
    /// The text is not an address, or its host name cannot be resolved.
    pub fn also(
        mut self,
        address: impl ToSocketAddrs,
        service: impl ServiceFactory + 'static,
    ) -> Result<Self, StartError> {
        let service: Arc<dyn ServiceFactory> = Arc::new(ServerServiceFactory(service));
        let addresses = tcp_addresses(address)?;
        self.also
            .extend(addresses.map(|address| ListenerPlan::new(address, Arc::clone(&service))));
        Ok(self)
    }

    /// Listens on a Unix socket that every user of the machine may connect to.
    #[must_use]
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let address = ListenAddress::Unix { path, mode: 0o666 };
        self.listeners
            .push(ListenerPlan::new(address, self.service.clone()));
        self
    }

    /// The number of worker threads.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers;
        self
    }

    /// The limits of a client, and the timeout of a stop.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens a control socket: a Unix socket that only the user of the server may open. Without the feature `control` the
    /// server does not start with one.
    ///
    /// - `apus status --socket PATH` shows the process, the counters of its workers, and the routes with
    ///   their handlers and places in the source; `--json` and `--metrics` are for programs.
    /// - `apus stop --socket PATH` stops the server like SIGTERM, and returns when it has stopped.
    #[must_use]
    pub fn control_socket(mut self, path: impl Into<PathBuf>) -> Self {
        self.control_socket = Some(path.into());
        self
    }

    /// Runs a background task on a thread that all tasks share. When the server stops, [`Stopping`] notifies
    /// the task, and the server waits for it as long as for connections.
    ///
    /// A panic is logged at once, and the server continues without the task. A task of [`Server::every`]
    /// continues with its next run.
    #[must_use]
    pub fn task<F>(mut self, name: &str, task: impl FnOnce(Stopping) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let task: Task = Box::new(|stopping| Box::pin(task(stopping)));
        self.tasks.push((name.to_owned(), task));
        self
    }

    /// Runs a background task repeatedly: first after one interval, then one interval after the end of each
    /// run. A panic is logged, and the next run follows.
    #[must_use]
    pub fn every<F>(
        mut self,
        name: &str,
        interval: Duration,
        turn: impl Fn() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        self.tasks.push((
            name.to_owned(),
            task::every(name.to_owned(), interval, turn),
        ));
        self
    }

    /// Starts the server, which accepts connections when this returns. Signals are left to the program, until it calls
    /// [`Running::wait`].
    ///
    /// # Errors
    /// The application is invalid (see [`App::check`](crate::App::check)), which is checked before it
    /// listens; it cannot listen on an address or the control socket; or a thread cannot be started.
    pub fn start(self) -> Result<Running, StartError> {
        self.launch(false)
    }

    /// Serves until SIGTERM or SIGINT.
    ///
    /// # Errors
    /// The application is invalid (see [`App::check`](crate::App::check)), which is checked before it
    /// listens; it cannot listen on an address or the control socket; or a thread cannot be started.
    pub fn run(self) -> Result<(), StartError> {
        self.launch(true)?.wait();
        Ok(())
    }

    fn launch(mut self, by_signals: bool) -> Result<Running, StartError> {
        #[cfg(feature = "http3")]
        for listener in &mut self.listeners {
            listener.http3.clone_from(&self.http3);
        }
        if self.listeners.is_empty() {
            return Err(StartError::NoAddress);
        }
        let development = DevelopmentSocket::take().map_err(StartError::other)?;
        if let Some(socket) = &development {
            self.listeners = vec![socket.listener(&self.service)];
            #[cfg(feature = "blocked-stacks")]
            apus_handler::report_blocked_stacks();
        }
        self.service.check().map_err(StartError::of_check)?;
        for listener in &self.also {
            listener.service.check().map_err(StartError::of_check)?;
        }
        let own = self.listeners.len();
        self.listeners.append(&mut self.also);
        let stop_timeout = self.limits.stop_timeout;
        let plan = EnginePlan {
            limits: self.limits,
            ..EnginePlan::new(self.workers, self.listeners)
        };
        #[cfg(feature = "acme")]
        let (plan, certificates) = acme::prepare(self.acme, plan)?;
        #[cfg(not(feature = "acme"))]
        let certificates = None;
        let is_tls: Vec<bool> = plan.listeners.iter().map(|one| one.tls.is_some()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (signals, socket) = {
            let _entered = runtime.enter();
            let signals = by_signals.then(StopSignals::new).transpose()?;
            // Bound before the engine starts: processes can share addresses, but not this socket.
            let socket = ApplicationSocket::bind(self.control_socket.as_deref());
            (signals, socket.map_err(StartError::ControlSocket)?)
        };
        let engine = Engine::start(plan)?;
        let listening = engine.status().listening;
        let urls = listening.iter().zip(is_tls);
        let urls: Vec<String> = urls.map(|(address, is_tls)| address.url(is_tls)).collect();
        tracing::info!(workers = %self.workers, addresses = urls.join(" "), "serving");
        if let Some(socket) = &development {
            socket.announce(urls.get(own..).unwrap_or_default());
        }
        let (stop, stop_requested) = watch::channel(false);
        // None are passed on if there are some already.
        let (later, signals_later) = oneshot::channel();
        let later = SignalSender {
            runtime: runtime.handle().clone(),
            sender: signals.is_none().then_some(later),
        };
        let control = ServerControl {
            engine,
            service: self.service,
            stop_timeout,
            signals: SignalSource::new(signals, signals_later),
            socket,
            stop: stop.clone(),
            stop_requested,
            tasks: self.tasks,
            #[cfg(feature = "jobs")]
            queues: self.queues,
            _development: development,
        };
        let thread = std::thread::Builder::new()
            .name("apus-control".to_owned())
            .spawn(move || LocalSet::new().block_on(&runtime, control.run(certificates)))?;
        Ok(Running {
            listening,
            stop,
            thread: Some(thread),
            signals: later,
        })
    }
}

/// The addresses of a text, as `localhost:8080`.
fn tcp_addresses(
    addresses: impl ToSocketAddrs,
) -> Result<impl Iterator<Item = ListenAddress>, StartError> {
    let addresses = addresses.to_socket_addrs().map_err(StartError::Address)?;
    Ok(addresses.map(|address| ListenAddress::Tcp {
        address,
        ipv6_only: true,
    }))
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}
