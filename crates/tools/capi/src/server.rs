//! Servers: an application on its listeners, started and stopped.

use std::cell::RefCell;
use std::collections::HashSet;
use std::ffi::{c_char, c_int, c_void};
use std::net::ToSocketAddrs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::ptr::NonNull;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use apus::{App, Limits, RouteInfo, Service, ServiceFactory, tokio};
use apus_control::StartTime;
use apus_net::{Engine, EnginePlan, EngineStartError, ListenAddress, ListenerPlan, StopSignals};
use apus_server::access_log::{AccessLogSettings, LogFormat};
use apus_sites::Observer;
use serde_json::Value;
use tokio::sync::watch;

use crate::access_log::{AccessFunction, ApusAccessFn, ObservedFactory};
use crate::app::{AppParts, ApusApp, mistakes};
use crate::background;
use crate::callback::ApusTaskFn;
use crate::config::ApusConfig;
use crate::error::{ApusStatus, CallError, FirstFailure, SetUp};
use crate::executor::{self, ServerWorkers};
use crate::ffi::{attempt, object, protect, setup, status};
use crate::owned_text::owned;
use crate::text::{ApusStr, name};
use crate::tls::ApusTls;
use crate::user::{OwnedData, UserPointer};

/// A limit of a server, see apus_server_limit(). Times are in milliseconds.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApusLimit {
    /// Connections of one worker (51,200).
    WorkerConnections = 0,
    /// Connections of all workers; 0 is no limit (0).
    MaxConnections = 1,
    /// Connections from one address to one worker; 0 is no limit (16,384).
    ConnectionsPerAddress = 2,
    /// Bytes of a request target (8,192).
    TargetBytes = 3,
    /// Bytes of a request head, at most 65,535 (32,768).
    HeadBytes = 4,
    /// Field lines of a request head (100).
    HeadFields = 5,
    /// From the first byte of a request to the end of its head (15,000).
    HeadTimeout = 6,
    /// Of the TLS handshake (10,000).
    HandshakeTimeout = 7,
    /// Between a response and the next request (60,000).
    IdleTimeout = 8,
    /// Between two reads of the body of a request (30,000).
    BodyTimeout = 9,
    /// The least bytes per second of the body of a request; 0 is no limit (128).
    BodyRate = 10,
    /// The time in which a client has to take the send rate of a response that waits for it (60,000).
    SendTimeout = 11,
    /// Requests over one connection; 0 is no limit (0).
    RequestsPerConnection = 12,
    /// Open requests of one HTTP/2 connection, at most 32,768 (256).
    H2Streams = 13,
    /// How long open requests may take after a stop began (30,000).
    StopTimeout = 14,
    /// The most bytes of a body that no handler reads, which are read and discarded to keep the connection (262,144).
    DiscardBytes = 15,
    /// Bytes of the largest HTTP/2 frame that is accepted, 16,384 to 16,777,215 (16,384).
    H2FrameBytes = 16,
    /// Requests over one HTTP/2 or HTTP/3 connection; 0 is no limit (0).
    H2RequestsPerConnection = 17,
    /// How long an HTTP/2 client with open requests may be silent before it gets a PING; 0 is no PING (30,000).
    H2PingInterval = 18,
    /// The most bytes of bodies of one HTTP/2 client that may wait to be read, at least 262,144 (16,777,216).
    H2ReceiveWindow = 19,
    /// The least bytes per second that a client takes of a response that waits for it, measured over the send timeout;
    /// 0 is one byte in this time (128).
    SendRate = 20,
    /// Tunnels, such as WebSockets, that one HTTP/2 or HTTP/3 client may have open at once, at most 32,768 (64).
    H2Tunnels = 21,
    /// Bytes of memory for the messages of all WebSockets, at least 1,048,576 (67,108,864).
    WebSocketMemory = 22,
    /// Bytes of data that came over HTTP/3 and was not read yet, over all connections, at least 1,048,576 (67,108,864).
    H3ReceiveMemory = 23,
}

/// A server: an application, its listeners and its limits.
pub struct ApusServer {
    /// `None` once it was started, or its thread took it over.
    settings: Mutex<Option<ServerSettings>>,
    running: OnceLock<ServerThread>,
}

/// A server before its start.
pub(crate) struct ServerSettings {
    app: App,
    owned: OwnedData,
    listeners: Vec<ListenerSettings>,
    workers: Option<NonZeroUsize>,
    limits: Limits,
    server_field: Option<Arc<str>>,
    observers: Vec<Arc<dyn Observer>>,
    starts: Vec<(extern "C" fn(*mut c_void), UserPointer)>,
    /// The first call that failed, of those that set the server up.
    failure: FirstFailure,
}

impl SetUp for ApusServer {
    const NAME: &'static str = "server";

    fn first_failure(&mut self) -> Option<&mut FirstFailure> {
        self.settings().ok().map(|settings| &mut settings.failure)
    }
}

enum ListenerSettings {
    Own {
        addresses: Vec<ListenAddress>,
        tls: Option<Box<ApusTls>>,
    },
    Configured(Vec<ListenerPlan>),
}

/// The application on each worker.
struct ServedApp {
    app: App,
    owned: OwnedData,
    starts: Vec<(extern "C" fn(*mut c_void), UserPointer)>,
    workers: ServerWorkers,
    id: u64,
}

thread_local! {
    /// The servers whose functions for the start of a worker were called on this thread.
    static STARTED: RefCell<HashSet<u64>> = RefCell::default();
}

/// The service of a worker, with the data of the application.
struct ServedService {
    service: Rc<dyn Service>,
    _owned: OwnedData,
}

impl Service for ServedService {
    fn call(&self, request: apus::Request) -> apus::ResponseFuture {
        self.service.call(request)
    }
}

impl ServiceFactory for ServedApp {
    fn service(&self) -> Rc<dyn Service> {
        self.workers.enter();
        if !self.starts.is_empty() && STARTED.with_borrow_mut(|started| started.insert(self.id)) {
            for (function, user) in &self.starts {
                function(user.0);
            }
        }
        let outermost = self.app.outermost_service();
        let service = outermost.unwrap_or_else(|| self.app.service());
        if self.owned.is_empty() {
            service
        } else {
            Rc::new(ServedService {
                service,
                _owned: self.owned.clone(),
            })
        }
    }

    fn check(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.app.check_outermost()
    }

    fn routes(&self) -> Vec<RouteInfo> {
        self.app.routes()
    }
}

/// A plan for the engine, and what the status shows of it.
pub(crate) struct PreparedServer {
    pub(crate) plan: EnginePlan,
    pub(crate) stop_timeout: Duration,
    workers: ServerWorkers,
    routes: Vec<RouteInfo>,
}

impl ServerSettings {
    /// The plan of the engine, checked. No call that set the server up may have failed.
    pub(crate) fn prepare(mut self) -> Result<PreparedServer, CallError> {
        let failure = std::mem::take(&mut self.failure);
        failure.check(self.checked())
    }

    fn checked(self) -> Result<PreparedServer, CallError> {
        static NEXT: AtomicU64 = AtomicU64::new(0);

        if self.listeners.is_empty() {
            return Err(CallError::invalid(
                "a server that listens",
                "no address",
                "add one by apus_server_listen()",
            ));
        }
        self.app.check_outermost().map_err(|errors| {
            CallError::invalid(
                "an application without mistakes",
                mistakes(&errors.to_string()),
                "correct the routes and mounts",
            )
        })?;
        let routes = self.app.routes();
        let workers = ServerWorkers::default();
        let service: Arc<dyn ServiceFactory> = Arc::new(ObservedFactory {
            inner: ServedApp {
                app: self.app,
                owned: self.owned,
                starts: self.starts,
                workers: workers.clone(),
                id: NEXT.fetch_add(1, Ordering::Relaxed),
            },
            observers: self.observers,
        });
        let mut listeners = Vec::new();
        for settings in self.listeners {
            match settings {
                ListenerSettings::Configured(configured) => listeners.extend(configured),
                ListenerSettings::Own { addresses, tls } => {
                    let settings = match &tls {
                        Some(tls) => Some(Arc::new(tls.settings()?)),
                        None => None,
                    };
                    let http3 = tls.and_then(|tls| tls.http3_settings());
                    listeners.extend(addresses.into_iter().map(|address| ListenerPlan {
                        tls: settings.clone(),
                        http3: http3.clone(),
                        ..ListenerPlan::new(address, service.clone())
                    }));
                }
            }
        }
        Ok(PreparedServer {
            stop_timeout: self.limits.stop_timeout,
            plan: EnginePlan {
                workers: self.workers.unwrap_or_else(|| {
                    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
                }),
                limits: self.limits,
                server_field: self.server_field,
                listeners,
                http3_secret: None,
                client_filter: None,
                is_secondary: false,
            },
            workers,
            routes,
        })
    }
}

/// The error of a start of the engine.
pub(crate) fn start_error(error: &EngineStartError) -> CallError {
    CallError::new(
        ApusStatus::Io,
        "addresses that can be bound, and threads that can be started",
        // With an advice.
        error.to_string(),
        "",
    )
}

/// The ports of TCP that an engine listens on, and their addresses as texts.
pub(crate) fn tcp_addresses(listening: &[ListenAddress]) -> Vec<(String, u16)> {
    let addresses = listening.iter().filter_map(|address| match address {
        ListenAddress::Tcp { address, .. } => Some((address.to_string(), address.port())),
        _ => None,
    });
    addresses.collect()
}

/// A server that was started.
struct ServerThread {
    engine: Arc<Engine>,
    started: StartTime,
    addresses: Vec<(String, u16)>,
    routes: Vec<RouteInfo>,
    stop: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
    end: Arc<EndOfServer>,
}

/// Whether a server has ended, for the threads that wait for it.
#[derive(Default)]
struct EndOfServer {
    has_ended: Mutex<bool>,
    changed: Condvar,
}

impl EndOfServer {
    fn lock(&self) -> MutexGuard<'_, bool> {
        self.has_ended
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self) {
        *self.lock() = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut has_ended = self.lock();
        while !*has_ended {
            has_ended = self
                .changed
                .wait(has_ended)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl ServerThread {
    /// The thread of a server whose workers do not accept connections yet.
    fn start(settings: ServerSettings, by_signals: bool) -> Result<Self, CallError> {
        let PreparedServer {
            plan,
            stop_timeout,
            workers,
            routes,
        } = settings.prepare()?;
        let failed = |error: std::io::Error| CallError::io("a thread with a runtime", &error);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(failed)?;
        let signals = {
            let _entered = runtime.enter();
            let signals = by_signals.then(StopSignals::new);
            signals.transpose().map_err(failed)?
        };
        let engine = Arc::new(Engine::bind(plan).map_err(|error| start_error(&error))?);
        let addresses = tcp_addresses(&engine.status().listening);
        let (stop, mut stop_requested) = watch::channel(false);
        let end = Arc::<EndOfServer>::default();
        let (stopped, joined, reached) = (engine.clone(), engine.clone(), end.clone());
        let run = async move {
            let mut signals = signals;
            let mut next_signal = async || match &mut signals {
                Some(signals) => signals.next().await,
                None => std::future::pending().await,
            };
            tokio::select! {
                _ = stop_requested.wait_for(|is_requested| *is_requested) => {}
                () = next_signal() => {}
            }
            let ended = stopped.stop(stop_timeout);
            // The second signal does not wait for open requests.
            tokio::select! {
                () = ended => true,
                () = next_signal() => false,
            }
        };
        let thread = std::thread::Builder::new()
            .name("apus-control".to_owned())
            .spawn(move || {
                if runtime.block_on(run) {
                    joined.join();
                    workers.are_gone();
                }
                background::finish_access_logs();
                reached.reach();
            });
        Ok(Self {
            thread: Mutex::new(Some(thread.map_err(failed)?)),
            engine,
            started: StartTime::now(),
            addresses,
            routes,
            stop,
            end,
        })
    }

    fn status(&self) -> Value {
        let routes: Value = self
            .routes
            .iter()
            .map(|route| {
                serde_json::json!({
                    "method": route.method.as_ref().map(apus::Method::as_str),
                    "path": route.path,
                    "host": route.host,
                })
            })
            .collect();
        let program = std::env::current_exe().unwrap_or_default();
        apus_control::status(
            &program.to_string_lossy(),
            self.started,
            &self.engine,
            [("routes", routes)],
        )
    }

    fn join(&self) {
        self.end.wait();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

impl ApusServer {
    fn settings(&mut self) -> Result<&mut ServerSettings, CallError> {
        let settings = self.settings.get_mut();
        let settings = settings.unwrap_or_else(PoisonError::into_inner);
        settings.as_mut().ok_or_else(started_before)
    }

    /// The settings, which a worker of the program takes over.
    pub(crate) fn into_settings(self) -> Result<ServerSettings, CallError> {
        let settings = self.settings.into_inner();
        let settings = settings.unwrap_or_else(PoisonError::into_inner);
        settings.ok_or_else(started_before)
    }

    fn running(&self) -> Result<&ServerThread, CallError> {
        self.running.get().ok_or_else(|| {
            CallError::state(
                "a server that was started",
                "one that was not",
                "call apus_server_start() first",
            )
        })
    }

    /// Starts it. Its handlers, which may run before this returns, have it as a server that runs.
    fn start(&self, by_signals: bool) -> Result<&ServerThread, CallError> {
        let settings = self.settings.lock();
        let settings = settings.unwrap_or_else(PoisonError::into_inner).take();
        let running = ServerThread::start(settings.ok_or_else(started_before)?, by_signals)?;
        let running = self.running.get_or_init(|| running);
        running.engine.serve().map_err(|error| {
            running.stop.send_replace(true);
            running.join();
            start_error(&error)
        })?;
        Ok(running)
    }
}

fn started_before() -> CallError {
    CallError::state(
        "a server that was not started yet",
        "one that was",
        "make all settings before the start, and start a server once",
    )
}

fn shared(server: Option<&ApusServer>) -> Result<&ApusServer, CallError> {
    server.ok_or_else(|| CallError::null("server"))
}

/// A server of an application, which it takes over. NULL is an error (APUS_INVALID). Free it by apus_server_free().
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_new(app: Option<Box<ApusApp>>) -> Option<Box<ApusServer>> {
    object("apus_server_new", || {
        let app = app.ok_or_else(|| CallError::null("app"))?;
        let AppParts {
            app,
            owned,
            failure,
        } = app.into_parts();
        Ok(ApusServer {
            settings: Mutex::new(Some(ServerSettings {
                app,
                owned,
                listeners: Vec::new(),
                workers: None,
                limits: Limits::default(),
                server_field: None,
                observers: Vec::new(),
                starts: Vec::new(),
                failure,
            })),
            running: OnceLock::new(),
        })
    })
}

fn addresses_of(text: &str) -> Result<Vec<ListenAddress>, CallError> {
    let addresses = text.to_socket_addrs().map_err(|error| {
        CallError::invalid(
            "an address as 127.0.0.1:8080 or [::]:80",
            format!("{text:?} ({error})"),
            "port 0 picks a free one",
        )
    })?;
    let addresses = addresses.map(|address| ListenAddress::Tcp {
        address,
        ipv6_only: true,
    });
    Ok(addresses.collect())
}

/// Listens on an address: `127.0.0.1:8080`, `[::]:80`, `localhost:8080`; port 0 picks a free one. HTTP/1.1, and HTTP/2 with
/// prior knowledge. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_listen(
    server: Option<&mut ApusServer>,
    address: *const c_char,
) -> ApusStatus {
    setup("apus_server_listen", server, |server| {
        let settings = server.settings()?;
        let addresses = addresses_of(name(address, "address")?)?;
        settings.listeners.push(ListenerSettings::Own {
            addresses,
            tls: None,
        });
        Ok(())
    })
}

/// Listens on a Unix socket, which every user of the machine may connect to. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_listen_unix(
    server: Option<&mut ApusServer>,
    path: *const c_char,
) -> ApusStatus {
    setup("apus_server_listen_unix", server, |server| {
        let settings = server.settings()?;
        let path = PathBuf::from(name(path, "path")?);
        settings.listeners.push(ListenerSettings::Own {
            addresses: vec![ListenAddress::Unix { path, mode: 0o666 }],
            tls: None,
        });
        Ok(())
    })
}

/// Listens on an address with TLS, and for HTTP/3 on its UDP port. Takes over `tls`. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_listen_tls(
    server: Option<&mut ApusServer>,
    address: *const c_char,
    tls: Option<Box<ApusTls>>,
) -> ApusStatus {
    setup("apus_server_listen_tls", server, |server| {
        let tls = tls.ok_or_else(|| CallError::null("tls"))?;
        let settings = server.settings()?;
        let addresses = addresses_of(name(address, "address")?)?;
        settings.failure.take_over(tls.failure.clone());
        // Mistakes are found here rather than at the start.
        tls.settings()?;
        settings.listeners.push(ListenerSettings::Own {
            addresses,
            tls: Some(tls),
        });
        Ok(())
    })
}

/// Listens on the addresses of a configuration, too, and serves its sites there. The workers, the limits and `server_header` of
/// its `[global]` apply to the server from then on, in place of what was set before: call setters after it. The account, the
/// control socket and the level of the log are for the program `apus`. The configuration stays with the caller.
/// Errors: APUS_INVALID, APUS_STATE, APUS_IO.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_config(
    server: Option<&mut ApusServer>,
    config: Option<&ApusConfig>,
) -> ApusStatus {
    setup("apus_server_config", server, |server| {
        let settings = server.settings()?;
        let config = config.ok_or_else(|| CallError::null("config"))?;
        let plan = config.engine_plan()?;
        settings.workers = Some(plan.workers);
        settings.limits = plan.limits;
        settings.server_field = plan.server_field;
        settings
            .listeners
            .push(ListenerSettings::Configured(plan.listeners));
        Ok(())
    })
}

/// The number of workers (threads); 0 is one for each core, the default. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_workers(
    server: Option<&mut ApusServer>,
    workers: usize,
) -> ApusStatus {
    setup("apus_server_workers", server, |server| {
        let settings = server.settings()?;
        if workers > MAX_WORKERS {
            return Err(CallError::invalid(
                format!("at most {MAX_WORKERS} workers"),
                workers.to_string(),
                "one for each core is best: pass 0",
            ));
        }
        settings.workers = NonZeroUsize::new(workers);
        Ok(())
    })
}

/// The most workers of a server.
const MAX_WORKERS: usize = 1024;

/// Sets a limit. `limit` is an apus_limit. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_limit(
    server: Option<&mut ApusServer>,
    limit: c_int,
    value: u64,
) -> ApusStatus {
    setup("apus_server_limit", server, |server| {
        let limits = &mut server.settings()?.limits;
        let within = |range: std::ops::RangeInclusive<u64>| {
            if range.contains(&value) {
                Ok(value)
            } else {
                Err(CallError::invalid(
                    format!("a value of {} to {}", range.start(), range.end()),
                    value.to_string(),
                    "see apus_limit",
                ))
            }
        };
        let count = |least: u64| {
            within(least..=u32::MAX.into())
                .map(|value| usize::try_from(value).unwrap_or(usize::MAX))
        };
        let time = || within(1..=24 * 60 * 60 * 1000).map(Duration::from_millis);
        match limit {
            0 => limits.worker_connections = count(1)?,
            1 => limits.max_connections = count(0)?,
            2 => limits.connections_per_address = count(0)?,
            3 => limits.target_bytes = usize::try_from(within(1..=65_535)?).unwrap_or(usize::MAX),
            4 => limits.head_bytes = usize::try_from(within(256..=65_535)?).unwrap_or(usize::MAX),
            5 => limits.head_fields = usize::try_from(within(1..=10_000)?).unwrap_or(usize::MAX),
            6 => limits.head_timeout = time()?,
            7 => limits.handshake_timeout = time()?,
            8 => limits.idle_timeout = time()?,
            9 => limits.body_timeout = time()?,
            10 => limits.body_rate = value,
            11 => limits.send_timeout = time()?,
            12 => limits.requests_per_connection = value,
            13 => {
                limits.h2_max_concurrent_streams = u32::try_from(within(1..=32_768)?).unwrap_or(1)
            }
            14 => {
                limits.stop_timeout = within(0..=24 * 60 * 60 * 1000).map(Duration::from_millis)?
            }
            15 => limits.drain_bytes = within(0..=1_000_000 * 1024)?,
            16 => {
                let bytes = within(16_384..=16_777_215)?;
                limits.h2_max_frame_size = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
            17 => limits.h2_requests_per_connection = value,
            18 => {
                limits.h2_ping_interval =
                    within(0..=24 * 60 * 60 * 1000).map(Duration::from_millis)?
            }
            19 => {
                let bytes = within(256 * 1024..=2_097_151 * 1024)?;
                limits.h2_receive_window = u32::try_from(bytes).unwrap_or(u32::MAX);
            }
            20 => limits.send_rate = value,
            21 => limits.h2_max_tunnels = usize::try_from(within(0..=32_768)?).unwrap_or(0),
            22 => limits.websocket_memory = within(1024 * 1024..=1_000_000 * 1024 * 1024)?,
            23 => limits.h3_receive_memory = within(1 << 20..=1 << 40)?,
            other => {
                return Err(CallError::invalid(
                    "an apus_limit",
                    other.to_string(),
                    "see the header",
                ));
            }
        }
        Ok(())
    })
}

/// Calls a function for each request that has ended. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_access_log(
    server: Option<&mut ApusServer>,
    log: ApusAccessFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_server_access_log", server, |server| {
        let settings = server.settings()?;
        let function = log.ok_or_else(|| CallError::null("log"))?;
        let user = UserPointer(user);
        settings
            .observers
            .push(Arc::new(AccessFunction { function, user }));
        Ok(())
    })
}

/// Writes an access log to a file: `format` is `combined`, `json`, or a template as in apus.toml.
/// Errors: APUS_INVALID, APUS_STATE, APUS_IO.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_access_log_file(
    server: Option<&mut ApusServer>,
    path: *const c_char,
    format: *const c_char,
) -> ApusStatus {
    setup("apus_server_access_log_file", server, |server| {
        let settings = server.settings()?;
        let path = name(path, "path")?;
        let format = match name(format, "format")? {
            "combined" => LogFormat::combined(),
            "json" => LogFormat::json(),
            template if !template.contains('$') => {
                return Err(CallError::invalid(
                    "`combined`, `json`, or a template with variables",
                    format!("{template:?}"),
                    "write a template as `$remote_addr $request $status`",
                ));
            }
            template => LogFormat::template(template).map_err(|error| {
                CallError::invalid(
                    "a template of known variables",
                    error.to_string(),
                    "see docs/reference.md",
                )
            })?,
        };
        let log = AccessLogSettings::file(path, format);
        let opened = background::access_logs()?.open(&log, "");
        let log = opened.map_err(|error| {
            CallError::io(format!("a file that can be written at {path:?}"), &error)
        })?;
        settings.observers.push(Arc::new(log));
        Ok(())
    })
}

/// Calls a function on each worker when it starts, before its first request. Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_on_worker_start(
    server: Option<&mut ApusServer>,
    start: ApusTaskFn,
    user: *mut c_void,
) -> ApusStatus {
    setup("apus_server_on_worker_start", server, |server| {
        let settings = server.settings()?;
        let start = start.ok_or_else(|| CallError::null("start"))?;
        settings.starts.push((start, UserPointer(user)));
        Ok(())
    })
}

/// Forgets the calls that failed so far, with which the server would not start: for a program that has looked at their statuses.
/// Errors: APUS_INVALID, APUS_STATE.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_forget_failures(server: Option<&mut ApusServer>) -> ApusStatus {
    status("apus_server_forget_failures", || {
        let server = server.ok_or_else(|| CallError::null("server"))?;
        server.settings()?.failure.forget();
        Ok(())
    })
}

/// A server that is to be started. From then on it is shared with its handlers, so that it is no exclusive reference.
fn started<'a>(server: Option<NonNull<ApusServer>>) -> Result<&'a ApusServer, CallError> {
    let server = server.ok_or_else(|| CallError::null("server"))?;
    // SAFETY: the program frees a server after this call at the earliest, and makes no settings meanwhile.
    Ok(unsafe { server.as_ref() })
}

/// Starts the server, on threads of its own: it accepts connections when this returns. Errors: APUS_INVALID: the application
/// has mistakes, or no address; APUS_IO: an address cannot be bound; APUS_STATE: it was started before; the error of the first call
/// that failed, of those that set the server, its application, its services and its TLS up. A server whose start failed can only
/// be freed.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_start(server: Option<NonNull<ApusServer>>) -> ApusStatus {
    status("apus_server_start", || {
        let server = started(server)?;
        server.start(false).map(|_| ())
    })
}

/// Starts the server and serves until SIGTERM or SIGINT, or apus_server_stop(). Errors: as apus_server_start().
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_run(server: Option<NonNull<ApusServer>>) -> ApusStatus {
    status("apus_server_run", || {
        let server = started(server)?;
        server.start(true)?.join();
        Ok(())
    })
}

/// Begins to stop: no new connections, open requests end. From any thread, and more than once. Not for signal handlers.
/// Errors: APUS_INVALID; APUS_STATE if it was not started.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_stop(server: Option<&ApusServer>) -> ApusStatus {
    status("apus_server_stop", || {
        shared(server)?.running()?.stop.send_replace(true);
        Ok(())
    })
}

fn not_on_worker() -> Result<(), CallError> {
    match executor::current() {
        None => Ok(()),
        Some(_) => Err(CallError::thread(
            "a thread that is not a worker, for which the server would wait",
        )),
    }
}

/// Waits until the server has stopped. Not on a worker. Errors: APUS_INVALID; APUS_STATE if it was not started;
/// APUS_THREAD.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_wait(server: Option<&ApusServer>) -> ApusStatus {
    status("apus_server_wait", || {
        let running = shared(server)?.running()?;
        not_on_worker()?;
        running.join();
        Ok(())
    })
}

/// The number of addresses that the server listens on, without Unix sockets. 0 before the start.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_address_count(server: Option<&ApusServer>) -> usize {
    attempt("apus_server_address_count", || {
        Ok(shared(server)?.running()?.addresses.len())
    })
}

/// The address with its actual port, in the order in which they were added. Absent before the start and past the end. Valid
/// until the server is freed.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_address(server: Option<&ApusServer>, index: usize) -> ApusStr {
    attempt("apus_server_address", || {
        let address = shared(server)?.running()?.addresses.get(index);
        Ok(ApusStr::of_option(address.map(|(text, _)| text.as_bytes())))
    })
}

/// The port of an address. 0 before the start and past the end.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_port(server: Option<&ApusServer>, index: usize) -> u16 {
    attempt("apus_server_port", || {
        let address = shared(server)?.running()?.addresses.get(index);
        Ok(address.map_or(0, |(_, port)| *port))
    })
}

/// The status as JSON: workers, connections, requests, routes. Free it by apus_string_free(). From any thread. NULL is an
/// error (APUS_INVALID, APUS_STATE).
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_status(server: Option<&ApusServer>) -> *mut c_char {
    attempt("apus_server_status", || {
        Ok(owned(shared(server)?.running()?.status().to_string()))
    })
}

/// Stops the server, waits for its end, and frees it with its application. Not on a worker. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_server_free(server: Option<Box<ApusServer>>) {
    protect("apus_server_free", || {
        let Some(server) = server else { return };
        if not_on_worker().is_err() {
            tracing::error!("a server cannot be freed on one of its workers: it goes on");
            std::mem::forget(server);
            return;
        }
        if let Some(running) = server.running.get() {
            running.stop.send_replace(true);
            running.join();
        }
        drop(server);
    });
}
