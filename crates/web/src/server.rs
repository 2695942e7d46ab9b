//! `Server`: an application on its listeners, with background tasks, from its start to its end.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use apus_http::ServiceFactory;
use apus_net::tls::{Certificate, ClientAuth, MinVersion, TlsSettings, TlsSite, UnknownName};
use apus_net::{Engine, Limits, ListenAddress, Listener, Plan};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::sites::{Location, Pattern, Site};

/// How long the task of an interval may go on once the server stops.
const LAST_TURN: Duration = Duration::from_secs(5);

/// An application on its listeners.
///
/// ```no_run
/// use std::time::Duration;
/// use apus::{App, Server};
///
/// fn main() -> std::io::Result<()> {
///     Server::new(App::new().get("/", async || "hello"))
///         .listen("127.0.0.1:8080")?
///         .listen_unix("/run/app.sock")
///         .every("cleaning", Duration::from_secs(60), async || { /* ... */ })
///         .run()
/// }
/// ```
///
/// Each of its workers is a thread with a core of its own. [`Server::run`] ends with SIGTERM or SIGINT, when
/// what has connected has been answered; a second signal does not wait for that.
pub struct Server {
    service: Arc<dyn ServiceFactory>,
    listeners: Vec<Listener>,
    workers: NonZeroUsize,
    limits: Limits,
    tasks: Vec<(String, Task)>,
}

type Task = Box<dyn FnOnce(Stopping) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

impl Server {
    /// A server that does not listen yet, with one worker for each core and the limits of the server's
    /// default configuration.
    pub fn new(service: impl ServiceFactory + 'static) -> Self {
        let location = Location::service(Pattern::everywhere(), "app", service);
        Self {
            service: Arc::new(Site::new("app").location(location)),
            listeners: Vec::new(),
            workers: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
            limits: Limits::default(),
            tasks: Vec::new(),
        }
    }

    /// Listens on an address, as `127.0.0.1:8080`; port 0 picks a free one.
    ///
    /// # Errors
    /// The text is no address, or its host has none.
    pub fn listen(self, address: impl ToSocketAddrs) -> io::Result<Self> {
        self.listen_on(address, None)
    }

    /// Listens on an address with TLS, for HTTP/2 and HTTP/1.1.
    ///
    /// # Errors
    /// The text is no address, or its host has none.
    pub fn listen_tls(
        self,
        address: impl ToSocketAddrs,
        certificate: Certificate,
    ) -> io::Result<Self> {
        let site = TlsSite {
            names: Vec::new(),
            certificates: vec![certificate],
            client_auth: ClientAuth::None,
            min_version: MinVersion::default(),
            alpn: vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        };
        let settings = TlsSettings::new(&[site], UnknownName::FirstSite).map_err(invalid)?;
        self.listen_with(address, Arc::new(settings))
    }

    /// Listens on an address with TLS of one's own choice.
    ///
    /// # Errors
    /// The text is no address, or its host has none.
    pub fn listen_with(
        self,
        address: impl ToSocketAddrs,
        tls: Arc<TlsSettings>,
    ) -> io::Result<Self> {
        self.listen_on(address, Some(tls))
    }

    fn listen_on(
        mut self,
        addresses: impl ToSocketAddrs,
        tls: Option<Arc<TlsSettings>>,
    ) -> io::Result<Self> {
        for address in addresses.to_socket_addrs()? {
            let address = ListenAddress::Tcp {
                address,
                ipv6_only: true,
            };
            self.add(address, tls.clone());
        }
        Ok(self)
    }

    /// Listens on a Unix socket that everybody on this machine may connect to.
    #[must_use]
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.add(ListenAddress::Unix { path, mode: 0o666 }, None);
        self
    }

    fn add(&mut self, address: ListenAddress, tls: Option<Arc<TlsSettings>>) {
        self.listeners.push(Listener {
            address,
            tls,
            http2: true,
            proxy_protocol_from: Vec::new(),
            service: self.service.clone(),
        });
    }

    /// The number of worker threads.
    #[must_use]
    pub fn workers(mut self, workers: NonZeroUsize) -> Self {
        self.workers = workers;
        self
    }

    /// What one client may cost, and how long a stop may take.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Runs something beside the workers, on a thread that all tasks share, from the start on. When the
    /// server stops, it is told by [`Stopping`] and waited for as long as connections are.
    #[must_use]
    pub fn task<F>(mut self, name: &str, task: impl FnOnce(Stopping) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let task: Task = Box::new(|stopping| Box::pin(task(stopping)));
        self.tasks.push((name.to_owned(), task));
        self
    }

    /// Runs something beside the workers again and again: first after one interval, and then one interval
    /// after each end. A turn that panics is logged, and the next one comes all the same.
    #[must_use]
    pub fn every<F>(
        self,
        name: &str,
        interval: Duration,
        turn: impl Fn() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + 'static,
    {
        let named = name.to_owned();
        self.task(name, move |mut stopping| async move {
            loop {
                tokio::select! {
                    () = tokio::time::sleep(interval) => {}
                    () = stopping.wait() => return,
                }
                let mut turn = tokio::task::spawn_local(turn());
                let ended = tokio::select! {
                    ended = &mut turn => ended,
                    () = stopping.wait() => match tokio::time::timeout(LAST_TURN, turn).await {
                        Ok(ended) => ended,
                        Err(_) => return,
                    },
                };
                if ended.is_err() {
                    tracing::error!(task = named, "a turn of a task panicked");
                }
            }
        })
    }

    /// Starts it: it serves when this returns.
    ///
    /// # Errors
    /// An address cannot be listened on, or a thread cannot be started.
    pub fn start(self) -> io::Result<Running> {
        self.launch(false)
    }

    /// Serves until the process is told to stop.
    ///
    /// # Errors
    /// An address cannot be listened on, or a thread cannot be started.
    pub fn run(self) -> io::Result<()> {
        self.launch(true)?.wait();
        Ok(())
    }

    fn launch(self, by_signals: bool) -> io::Result<Running> {
        if self.listeners.is_empty() {
            return Err(invalid("a server needs an address to listen on"));
        }
        let stop_timeout = self.limits.stop_timeout;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let signals = {
            let _entered = runtime.enter();
            by_signals.then(Signals::new).transpose()?
        };
        let engine = Engine::start(Plan {
            workers: self.workers,
            limits: self.limits,
            server_field: None,
            listeners: self.listeners,
        })
        .map_err(io::Error::other)?;
        let listening = engine.status().listening;
        let (stop, told) = watch::channel(false);
        let control = Control {
            engine,
            stop_timeout,
            signals,
            stop: stop.clone(),
            told,
            tasks: self.tasks,
        };
        let thread = std::thread::Builder::new()
            .name("apus-control".to_owned())
            .spawn(move || LocalSet::new().block_on(&runtime, control.run()))?;
        Ok(Running {
            listening,
            stop,
            thread: Some(thread),
        })
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").finish_non_exhaustive()
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

/// What a running server is looked after by, on a thread of its own.
struct Control {
    engine: Engine,
    stop_timeout: Duration,
    signals: Option<Signals>,
    stop: watch::Sender<bool>,
    told: watch::Receiver<bool>,
    tasks: Vec<(String, Task)>,
}

impl Control {
    async fn run(mut self) {
        let tasks: Vec<_> = std::mem::take(&mut self.tasks)
            .into_iter()
            .map(|(name, task)| {
                let task = tokio::task::spawn_local(task(Stopping(self.told.clone())));
                (name, task)
            })
            .collect();
        let mut told = self.told.clone();
        tokio::select! {
            _ = told.wait_for(|told| *told) => {}
            () = Signals::wait(&mut self.signals) => {}
        }
        self.stop.send_replace(true);
        let ended = async {
            self.engine.stop(self.stop_timeout).await;
            for (name, task) in tasks {
                if task.await.is_err_and(|error| error.is_panic()) {
                    tracing::error!(task = name, "a task panicked");
                }
            }
        };
        tokio::select! {
            _ = tokio::time::timeout(self.stop_timeout, ended) => {}
            () = Signals::wait(&mut self.signals) => {}
        }
    }
}

/// SIGTERM and SIGINT.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next one; for ever, if nobody listens to them.
    async fn wait(signals: &mut Option<Self>) {
        match signals {
            Some(signals) => {
                tokio::select! {
                    _ = signals.terminate.recv() => {}
                    _ = signals.interrupt.recv() => {}
                }
            }
            None => std::future::pending().await,
        }
    }
}

/// Tells a task that the server stops.
#[derive(Clone, Debug)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits until the server stops.
    pub async fn wait(&mut self) {
        // An error means that nobody is left to tell.
        let _ = self.0.wait_for(|told| *told).await;
    }

    /// Whether the server stops.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }
}

/// Stops a server, from wherever.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<bool>);

impl StopHandle {
    /// Has the server stop: what has connected is answered, and no more is taken.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

/// A server that runs. Dropped, it stops and is waited for.
pub struct Running {
    listening: Vec<ListenAddress>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// The addresses that are listened on, with the ports that were picked, in the order in which they were
    /// given; Unix sockets are left out.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        let listening = self.listening.iter();
        let addresses = listening.filter_map(|address| match address {
            ListenAddress::Tcp { address, .. } => Some(*address),
            _ => None,
        });
        addresses.collect()
    }

    /// What stops it.
    pub fn handle(&self) -> StopHandle {
        StopHandle(self.stop.clone())
    }

    /// Stops it, and waits for its end.
    pub fn stop(self) {
        self.handle().stop();
        self.wait();
    }

    /// Waits for its end.
    pub fn wait(mut self) {
        self.join();
    }

    fn join(&mut self) {
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread of the background tasks panicked");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        self.join();
    }
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("listening", &self.listening)
            .finish_non_exhaustive()
    }
}
