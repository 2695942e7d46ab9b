//! The engine, which starts workers, gives them plans, replaces those that die, and stops them.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use apus_http::ServerLoad;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection_table::ConnectionCount;
use crate::counters::{WorkerCounters, WorkerStatus, WorkerTotals};
use crate::h3::{
    Http3Sockets, NewSockets, QuicSocket, bind_until_udp_is_free, needs_free_udp_port,
};
use crate::listen::{Binder, BoundAddress, PortSharing};
use crate::load_meter;
use crate::plan::{EnginePlan, ListenAddress};
use crate::port_owner::{PortOwner, owner_of};
use crate::run::{self, ListenerSockets, WorkerCommand, WorkerEnd, WorkerSetup};
use crate::scheduler;

/// The running engine. Dropping it stops the workers at once.
pub struct Engine {
    shared: Arc<EngineShared>,
    ended: watch::Receiver<usize>,
}

struct EngineShared {
    /// Whether the workers are pinned to no core.
    is_secondary: bool,
    state: Mutex<EngineState>,
    all: Arc<ConnectionCount>,
    ended: watch::Sender<usize>,
    /// The threads of the workers.
    // Taken by the control thread, and by a worker that starts or dies; never on the path of a request.
    threads: Mutex<Vec<thread::JoinHandle<()>>>,
    /// The cores that this process may use.
    cores: CpuSet,
    /// Whether the load is measured.
    is_measured: AtomicBool,
    /// Binds addresses that this process may not use.
    binder: Option<Arc<dyn Binder>>,
}

struct EngineState {
    plan: Arc<EnginePlan>,
    bound: Vec<Arc<BoundAddress>>,
    http3: Http3Sockets,
    workers: Vec<WorkerHandle>,
    stopping: bool,
}

struct WorkerHandle {
    commands: mpsc::UnboundedSender<WorkerCommand>,
    counters: Arc<WorkerCounters>,
    core: Option<usize>,
    restarts: Arc<AtomicU64>,
}

/// The current state of the engine.
#[derive(Clone, Debug)]
pub struct EngineStatus {
    /// The status of each worker.
    pub workers: Vec<WorkerStatus>,
    /// The addresses of the listening sockets, with their actual ports.
    pub listening: Vec<ListenAddress>,
}

impl EngineStatus {
    /// The sum over all workers.
    pub fn totals(&self) -> WorkerTotals {
        self.workers
            .iter()
            .fold(WorkerTotals::default(), |sum, worker| {
                sum.plus(&worker.totals)
            })
    }
}

impl Engine {
    /// Starts a plan: binds its addresses and starts its workers. It serves when this returns.
    ///
    /// # Errors
    /// An address cannot be bound, or a thread cannot be started. Nothing is left running then.
    pub fn start(plan: EnginePlan) -> Result<Self, EngineStartError> {
        Self::start_with(plan, None)
    }

    /// Binds the addresses of a plan, and starts workers that accept nothing until [`serve`](Self::serve).
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn bind(plan: EnginePlan) -> Result<Self, EngineStartError> {
        Self::bind_with(plan, None)
    }

    /// As [`Engine::start`]; `binder` binds addresses that this process may not use, also after a reload.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_with(
        plan: EnginePlan,
        binder: Option<Arc<dyn Binder>>,
    ) -> Result<Self, EngineStartError> {
        let engine = Self::bind_with(plan, binder)?;
        engine.serve()?;
        Ok(engine)
    }

    fn bind_with(
        plan: EnginePlan,
        binder: Option<Arc<dyn Binder>>,
    ) -> Result<Self, EngineStartError> {
        // All addresses before any thread: what cannot be bound is reported while nothing runs yet.
        let bound = bind(&plan, &[], binder.as_deref(), PortSharing::Workers)?;
        let (ended, receiver) = watch::channel(0);
        let http3 = Http3Sockets::new(&plan).map_err(EngineStartError::worker)?;
        let shared = Arc::new(EngineShared {
            is_secondary: plan.is_secondary,
            state: Mutex::new(EngineState {
                plan: Arc::new(plan),
                bound,
                http3,
                workers: Vec::new(),
                stopping: false,
            }),
            all: Arc::default(),
            ended,
            threads: Mutex::default(),
            cores: sched_getaffinity(None).unwrap_or_default(),
            is_measured: AtomicBool::new(false),
            binder,
        });
        let engine = Self {
            shared,
            ended: receiver,
        };
        let mut state = engine.shared.lock();
        let cores: Vec<_> = (0..CpuSet::MAX_CPU)
            .filter(|core| engine.shared.cores.is_set(*core))
            .collect();
        for index in 0..state.plan.workers.get() {
            // Of the cores that the process may use, as in a container: numbers from zero on may not be there.
            let core = cores.get(index % cores.len().max(1)).copied();
            let core = core.filter(|_| !engine.shared.is_secondary);
            let counters = Arc::new(WorkerCounters::default());
            let restarts = Arc::default();
            let commands = spawn(&engine.shared, index, core, Arc::clone(&counters))?;
            state.workers.push(WorkerHandle {
                commands,
                counters,
                core,
                restarts,
            });
        }
        drop(state);
        Ok(engine)
    }

    /// Serves the plan that it was bound for, unless it was stopped meanwhile. Its workers accept connections when this returns, and
    /// may do so before.
    ///
    /// # Errors
    /// The workers cannot use the addresses. They may go on until the engine is stopped.
    pub fn serve(&self) -> Result<(), EngineStartError> {
        let waiting = {
            let mut state = self.shared.lock();
            if state.stopping {
                return Ok(());
            }
            let (plan, bound) = (Arc::clone(&state.plan), state.bound.clone());
            let (waiting, http3) = state.send_out(&plan, &bound, self.shared.binder.as_deref())?;
            state.http3.commit(http3);
            waiting
        };
        self.measure_load();
        // What a worker runs when it starts may ask for the status.
        wait_for_all(waiting)
    }

    /// Puts another plan in force. Connections stay open and use the new plan from their next request on. The
    /// number of workers does not change.
    ///
    /// # Errors
    /// An address of the new plan cannot be bound. The old plan stays in force completely.
    pub fn reload(&self, plan: EnginePlan) -> Result<(), EngineStartError> {
        let mut state = self.shared.lock();
        let mut plan = plan;
        if let Some(workers) = NonZeroUsize::new(state.workers.len()) {
            // Another number would need sockets that share the port anew, and the kernel chooses among the sockets of
            // a port by a hash: connections in the queue of a socket that goes would be lost.
            plan.workers = workers;
        }
        // Everything that can fail comes before the workers learn of the plan, so that a reload is in force everywhere
        // or nowhere.
        let bound = bind(
            &plan,
            &state.bound,
            self.shared.binder.as_deref(),
            PortSharing::Workers,
        )?;
        for fresh in &bound {
            fresh.set_mode().map_err(|source| EngineStartError {
                address: Some(fresh.address().clone()),
                source,
            })?;
        }
        let plan = Arc::new(plan);
        state.hand_out(&plan, &bound, self.shared.binder.as_deref())?;
        state.plan = plan;
        // The sockets of removed listeners close here, after the workers emptied their queues.
        state.bound = bound;
        drop(state);
        self.measure_load();
        Ok(())
    }

    /// Measures the load from now on, if something asks for it ([`ServerLoad::want`]). Whoever asks for it while the engine serves calls
    /// this; a start and a reload do so as well. Without a thread for that, it is unknown.
    pub fn measure_load(&self) {
        if !ServerLoad::is_wanted() || self.shared.is_measured.swap(true, Ordering::Relaxed) {
            return;
        }
        let shared = Arc::downgrade(&self.shared);
        let meter = load_meter::start(move || {
            let shared = shared.upgrade()?;
            let state = shared.lock();
            let count = |worker: &WorkerHandle| worker.counters.read().connections;
            (!state.stopping).then(|| state.workers.iter().map(count).sum())
        });
        if let Ok(meter) = meter {
            self.shared.lock_threads().push(meter);
        }
    }

    /// Stops the engine: connections get their responses within the time, and are closed then. The services of the plan are
    /// dropped before this returns.
    pub async fn stop(&self, within: Duration) {
        let workers = {
            let mut state = self.shared.lock();
            state.stopping = true;
            for worker in &state.workers {
                let _ = worker.commands.send(WorkerCommand::Stop { within });
            }
            // The workers have copies of the sockets, which close once their queues are empty. Later clients
            // are then refused instead of waiting until everything ends.
            state.bound.clear();
            state.workers.len()
        };
        let mut ended = self.ended.clone();
        let _ = ended.wait_for(|ended| *ended >= workers).await;
        // The threads of the workers may still hold the state for a moment; nothing serves any more.
        let mut state = self.shared.lock();
        // The plan holds the services, and with them files, processes and connections to origins: a caller that stops
        // a server expects them to be gone, even though it still has the engine.
        let plan = EnginePlan {
            listeners: Vec::new(),
            ..EnginePlan::clone(&state.plan)
        };
        state.plan = Arc::new(plan);
    }

    /// Waits until the threads of the workers have ended, which [`Engine::stop`] does not: nothing that was thread-local is left
    /// then. Not on a worker.
    pub fn join(&self) {
        loop {
            // A worker that dies may start another one meanwhile.
            // The lock is not held while a thread is joined: a worker that dies needs it to register the one in its
            // place.
            let last = self.shared.lock_threads().pop();
            let Some(thread) = last else { return };
            let _ = thread.join();
        }
    }

    /// The current state of the engine.
    pub fn status(&self) -> EngineStatus {
        let state = self.shared.lock();
        EngineStatus {
            workers: state
                .workers
                .iter()
                .enumerate()
                .map(|(index, worker)| WorkerStatus {
                    index,
                    core: worker.core,
                    restarts: worker.restarts.load(Ordering::Relaxed),
                    totals: worker.counters.read(),
                })
                .collect(),
            listening: state
                .bound
                .iter()
                .map(|bound| bound.local().clone())
                .collect(),
        }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.stopping = true;
        for worker in &state.workers {
            let _ = worker.commands.send(WorkerCommand::Stop {
                within: Duration::ZERO,
            });
        }
        state.bound.clear();
    }
}

impl EngineShared {
    fn lock(&self) -> MutexGuard<'_, EngineState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_threads(&self) -> MutexGuard<'_, Vec<thread::JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EngineState {
    /// Gives every worker the plan, and waits until it is in force everywhere.
    fn hand_out(
        &mut self,
        plan: &Arc<EnginePlan>,
        bound: &[Arc<BoundAddress>],
        binder: Option<&dyn Binder>,
    ) -> Result<(), EngineStartError> {
        let (waiting, http3) = self.send_out(plan, bound, binder)?;
        wait_for_all(waiting)?;
        self.http3.commit(http3);
        Ok(())
    }

    /// Gives every worker the plan.
    fn send_out(
        &self,
        plan: &Arc<EnginePlan>,
        bound: &[Arc<BoundAddress>],
        binder: Option<&dyn Binder>,
    ) -> Result<(Vec<PlanReceipt>, NewSockets), EngineStartError> {
        let mut waiting = Vec::with_capacity(self.workers.len());
        let mut http3 = self.http3.bind(plan, bound, binder);
        for (index, worker) in self.workers.iter().enumerate() {
            let quic = http3.of_next_worker();
            let sockets = sockets_of(index, bound, quic)?;
            waiting.push(run_plan(&worker.commands, plan, sockets));
        }
        Ok((waiting, http3))
    }
}

type PlanReceipt = oneshot::Receiver<io::Result<()>>;

fn run_plan(
    commands: &mpsc::UnboundedSender<WorkerCommand>,
    plan: &Arc<EnginePlan>,
    sockets: Vec<ListenerSockets>,
) -> PlanReceipt {
    let (done, waiting) = oneshot::channel();
    let _ = commands.send(WorkerCommand::Run {
        plan: Arc::clone(plan),
        sockets,
        done,
    });
    waiting
}

/// The sockets of the listeners for one worker.
pub(crate) fn sockets_of(
    index: usize,
    bound: &[Arc<BoundAddress>],
    quic: Vec<Option<QuicSocket>>,
) -> Result<Vec<ListenerSockets>, EngineStartError> {
    let sockets = bound.iter().zip(quic).map(|(bound, quic)| {
        let socket = bound.socket(index)?;
        Ok(ListenerSockets { socket, quic })
    });
    let sockets: io::Result<_> = sockets.collect();
    sockets.map_err(EngineStartError::worker)
}

/// Waits until a plan is in force on all workers.
fn wait_for_all(waiting: Vec<PlanReceipt>) -> Result<(), EngineStartError> {
    for done in waiting {
        match wait_blocking(done) {
            Some(result) => result.map_err(EngineStartError::worker)?,
            None => return Err(EngineStartError::worker(io::Error::other("a worker died"))),
        }
    }
    Ok(())
}

/// Waits for a worker, even on a thread that runs its own runtime: workers reply within moments, and
/// nothing else happens while a plan changes.
fn wait_blocking(done: PlanReceipt) -> Option<io::Result<()>> {
    // `blocking_recv` panics on a thread that runs a runtime, from which a program may start or reload its server:
    // another thread waits in its place.
    thread::scope(|scope| {
        scope
            .spawn(|| done.blocking_recv().ok())
            .join()
            .ok()
            .flatten()
    })
}

/// Binds the addresses of the plan, in its order, and reuses the sockets that exist.
pub(crate) fn bind(
    plan: &EnginePlan,
    existing: &[Arc<BoundAddress>],
    binder: Option<&dyn Binder>,
    sharing: PortSharing,
) -> Result<Vec<Arc<BoundAddress>>, EngineStartError> {
    // Addresses of one plan may have a port in common: `0.0.0.0:80` beside `[::]:80`, `127.0.0.1:80` beside `[::]:80`.
    let mut own = existing.to_vec();
    plan.listeners
        .iter()
        .map(|listener| {
            let address = &listener.address;
            if let Some(bound) = existing.iter().find(|bound| bound.address() == address) {
                return Ok(Arc::clone(bound));
            }
            let bound = existing
                .iter()
                .find_map(|bound| bound.with_other_mode(address))
                .unwrap_or_else(|| {
                    let workers = plan.workers.get();
                    let bind = || BoundAddress::new(address, workers, &own, binder, sharing);
                    if needs_free_udp_port(listener) {
                        bind_until_udp_is_free(bind)
                    } else {
                        bind()
                    }
                })
                .map(Arc::new)
                .map_err(|source| EngineStartError {
                    address: Some(address.clone()),
                    source,
                })?;
            own.push(Arc::clone(&bound));
            Ok(bound)
        })
        .collect()
}

/// Starts the thread of a worker.
fn spawn(
    shared: &Arc<EngineShared>,
    index: usize,
    core: Option<usize>,
    counters: Arc<WorkerCounters>,
) -> Result<mpsc::UnboundedSender<WorkerCommand>, EngineStartError> {
    let (sender, commands) = mpsc::unbounded_channel();
    let setup = WorkerSetup {
        index,
        counters,
        all: Arc::clone(&shared.all),
        commands,
    };
    let all_cores = shared.cores;
    let of_thread = Arc::clone(shared);
    let name = if shared.is_secondary {
        "apus-secondary-"
    } else {
        load_meter::WORKER_THREAD
    };
    let thread = thread::Builder::new()
        .name(format!("{name}{index}"))
        .spawn(move || {
            if let Some(core) = core {
                // The kernel moves an unpinned thread between cores, and its caches stay behind. Before the runtime is
                // built, so that its memory is of the node of the core.
                pin(core);
            }
            // The first random number of a process takes tens of milliseconds, in which entropy is gathered.
            // No request should wait for it.
            #[cfg(feature = "random")]
            let _ = aws_lc_rs::rand::fill(&mut [0]);
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                // For cold files and compression. These threads must not take the time of the workers, and
                // would inherit the single core of theirs.
                .max_blocking_threads(8)
                .on_thread_start(move || {
                    let _ = sched_setaffinity(None, &all_cores);
                })
                .thread_keep_alive(Duration::from_secs(10))
                .on_thread_park(scheduler::before_wait)
                .on_thread_unpark(scheduler::after_wait)
                .build_local(Default::default());
            let ended = match runtime {
                Ok(runtime) => {
                    let run = std::panic::AssertUnwindSafe(|| runtime.block_on(run::run(setup)));
                    // A panic outside of a handler, each of which is caught by itself, ends the connections of one
                    // worker and not the process.
                    let ended = std::panic::catch_unwind(run).unwrap_or(WorkerEnd::Failed);
                    runtime.shutdown_background();
                    ended
                }
                Err(error) => {
                    tracing::error!(%error, "a worker cannot start its runtime");
                    WorkerEnd::Stopped
                }
            };
            match ended {
                WorkerEnd::Stopped => of_thread.ended.send_modify(|ended| *ended += 1),
                WorkerEnd::Failed => replace(&of_thread, index),
            }
        })
        .map_err(EngineStartError::worker)?;
    let mut threads = shared.lock_threads();
    let ended: Vec<_> = threads
        .extract_if(.., |thread| thread.is_finished())
        .collect();
    threads.push(thread);
    drop(threads);
    // A thread keeps its stack until it is joined.
    for thread in ended {
        let _ = thread.join();
    }
    Ok(sender)
}

/// Starts a worker in place of one that died, on the same sockets: it serves the clients that wait in their
/// queues.
fn replace(shared: &Arc<EngineShared>, index: usize) {
    let mut state = shared.lock();
    if state.stopping {
        // `stop` waits until each worker has ended: one that dies meanwhile counts, or it would wait for ever.
        shared.ended.send_modify(|ended| *ended += 1);
        return;
    }
    // The new worker gets the sockets of the worker that died: they were never closed, so the clients in their queues
    // are served by the new one.
    let (plan, bound) = (Arc::clone(&state.plan), state.bound.clone());
    // UDP sockets end with the QUIC endpoint that owns them: what they still hold is encrypted with keys that are
    // lost.
    let quic = state
        .http3
        .of_replaced_worker(&plan, shared.binder.as_deref());
    let Some(worker) = state.workers.get_mut(index) else {
        return;
    };
    tracing::error!(
        worker = index,
        "a worker died and is replaced; its connections are lost"
    );
    worker.restarts.fetch_add(1, Ordering::Relaxed);
    let started =
        spawn(shared, index, worker.core, Arc::clone(&worker.counters)).and_then(|commands| {
            let sockets = sockets_of(index, &bound, quic)?;
            run_plan(&commands, &plan, sockets);
            Ok(commands)
        });
    match started {
        Ok(commands) => worker.commands = commands,
        Err(error) => {
            tracing::error!(worker = index, %error, "a worker cannot be replaced");
            shared.ended.send_modify(|ended| *ended += 1);
        }
    }
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    set.set(core);
    if let Err(error) = sched_setaffinity(None, &set) {
        tracing::debug!(core, %error, "a worker is not pinned to its core");
    }
}

/// Why a plan cannot be started.
#[derive(Debug)]
pub struct EngineStartError {
    address: Option<ListenAddress>,
    source: io::Error,
}

impl EngineStartError {
    pub(crate) fn worker(source: io::Error) -> Self {
        Self {
            address: None,
            source,
        }
    }

    /// The address that cannot be bound, if that is the cause.
    pub fn address(&self) -> Option<&ListenAddress> {
        self.address.as_ref()
    }

    /// Whether another process has the address.
    pub fn is_address_in_use(&self) -> bool {
        self.address.is_some() && self.source.kind() == io::ErrorKind::AddrInUse
    }

    /// Advice for the operator, if the cause is known.
    pub fn advice(&self) -> Option<String> {
        let Some(ListenAddress::Tcp { address, .. }) = &self.address else {
            return None;
        };
        let port = address.port();
        match self.source.kind() {
            io::ErrorKind::AddrInUse => Some(match owner_of(port) {
                Some(PortOwner::ThisProcess) => format!(
                    "this process listens on port {port} already, at an address that overlaps this one"
                ),
                Some(PortOwner::AnotherProcess) => format!(
                    "another process has port {port}, which `ss -ltnp` names: stop it or listen elsewhere"
                ),
                None => format!(
                    "port {port} is in use, `ss -ltnp` names the process: stop it or listen elsewhere"
                ),
            }),
            io::ErrorKind::PermissionDenied if port < 1024 => Some(
                "ports below 1024 need root or CAP_NET_BIND_SERVICE: use a higher port, or \
                 `setcap cap_net_bind_service=+ep` on the program"
                    .to_owned(),
            ),
            _ => None,
        }
    }
}

impl fmt::Display for EngineStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.address {
            Some(address) => write!(f, "cannot listen on {address}: {}", self.source)?,
            None => write!(f, "cannot start a worker: {}", self.source)?,
        }
        match self.advice() {
            Some(advice) => write!(f, "; {advice}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for EngineStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::rc::Rc;
    use std::time::Instant;

    use apus_client::{
        Address, ClientRequest, ClientRequestHead, ClientTlsSettings, MultiplexedClient, Origin,
        OriginConnection, Protocol, ProxyHead, RequestFailure, RequestTemplate, ResponseRules,
        Timeouts, Tls, connect,
    };
    use apus_http::{Body, Headers, Method, Response, StatusCode, service_fn};
    use apus_testkit::{CertificateAuthority, block_on, collect, eventually, wait_until};
    use apus_transport::tls::Certificate;

    use super::*;
    use crate::Http3Settings;
    use crate::plan::ListenerPlan;
    use crate::tls::{TlsSettings, TlsSite, UnknownName};

    /// The response to a request over a new connection.
    fn get(engine: &Engine) -> io::Result<String> {
        let listening = engine.status().listening;
        let Some(ListenAddress::Tcp { address, .. }) = listening.first() else {
            panic!("it listens on no TCP address")
        };
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_read_timeout(Some(Duration::from_secs(20)))?;
        socket.connect(&(*address).into())?;
        let mut stream = std::net::TcpStream::from(socket);
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        Ok(response)
    }

    /// A plan with HTTP/3, with whose service a response names the thread of its worker; and TLS of clients.
    fn http3_plan(workers: usize) -> (EnginePlan, Tls) {
        let authority = CertificateAuthority::generate();
        let issued = authority.ecdsa(&["example.com"]);
        let certificate =
            Certificate::from_pem(issued.pem.as_bytes(), issued.key.as_bytes()).unwrap();
        let site = TlsSite::new(vec!["example.com".into()], vec![certificate]);
        let settings = TlsSettings::new(&[site], UnknownName::FirstSite).unwrap();
        let worker = |_| {
            let thread = thread::current();
            Response::text(StatusCode::OK, thread.name().unwrap().to_owned()).into()
        };
        let address = ListenAddress::tcp(([127, 0, 0, 1], 0));
        let listener = ListenerPlan {
            tls: Some(Arc::new(settings)),
            http3: Some(Http3Settings::default()),
            ..ListenerPlan::new(address, Arc::new(move || service_fn(worker)))
        };
        let plan = EnginePlan::new(NonZeroUsize::new(workers).unwrap(), vec![listener]);
        let settings = ClientTlsSettings {
            authorities: Some(vec![authority.der]),
            ..ClientTlsSettings::new("example.com")
        };
        (plan, Tls::new(&settings).unwrap())
    }

    async fn open_http3(engine: &Engine, tls: &Tls) -> MultiplexedClient {
        let listening = engine.status().listening;
        let Some(ListenAddress::Tcp { address, .. }) = listening.first() else {
            panic!("it listens on no TCP address")
        };
        let origin = Origin {
            address: Address::Ip(*address),
            tls: Some(tls.clone()),
            protocol: Protocol::Http3,
            proxy_head: ProxyHead::None,
            responses: ResponseRules::default(),
        };
        let timeouts = Timeouts {
            connect: Duration::from_secs(20),
            ..Timeouts::default()
        };
        match connect(&origin, None, &timeouts).await.unwrap() {
            OriginConnection::Multiplexed(connection) => connection,
            other => panic!("chosen: {other:?}"),
        }
    }

    /// The name of the worker that responds.
    async fn worker_of(connection: &MultiplexedClient) -> Result<String, RequestFailure> {
        let head = ClientRequestHead {
            method: Method::GET,
            scheme: "https",
            authority: "example.com".into(),
            target: "/".into(),
            headers: Headers::new(),
            upgrade: None,
            te_trailers: false,
            expects_continue: false,
            params: None,
        };
        let request = ClientRequest {
            template: RequestTemplate {
                head: Rc::new(head),
                interim: None,
                timeouts: Rc::default(),
                stderr: None,
            },
            body: Body::Empty,
        };
        let mut response = connection.send(request).await?;
        let name = collect(&mut response.body).await.unwrap();
        Ok(String::from_utf8(name).unwrap())
    }

    /// Connections of each worker, as many as that.
    async fn open_on_each_worker(
        engine: &Engine,
        tls: &Tls,
        count: usize,
    ) -> [Vec<MultiplexedClient>; 2] {
        let mut connections = [Vec::new(), Vec::new()];
        while connections.iter().any(|found| found.len() < count) {
            let connection = open_http3(engine, tls).await;
            let name = worker_of(&connection).await.unwrap();
            let index = usize::from(name == "apus-worker-1");
            connections[index].push(connection);
        }
        connections
    }

    /// The number of UDP sockets at a port.
    fn udp_sockets(port: u16) -> usize {
        let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"];
        let tables = tables.map(|path| std::fs::read_to_string(path).unwrap());
        let local = format!(":{port:04X}");
        let lines = tables.iter().flat_map(|table| table.lines());
        lines
            .filter_map(|line| line.split_whitespace().nth(1))
            .filter(|address| address.ends_with(&local))
            .count()
    }

    #[test]
    fn addresses_that_overlap_have_http3_each() {
        let (mut plan, _) = http3_plan(2);
        let port = apus_testkit::free_port();
        let listener = plan.listeners.remove(0);
        let at = |host: &str| {
            let address: std::net::IpAddr = host.parse().unwrap();
            ListenerPlan {
                address: ListenAddress::tcp((address, port)),
                ..listener.clone()
            }
        };
        let other = EnginePlan {
            listeners: vec![at("127.0.0.1"), at("::")],
            ..plan.clone()
        };
        plan.listeners = vec![at("::"), at("0.0.0.0"), at("127.0.0.1")];
        let engine = Engine::start(plan).unwrap();
        wait_until("each address has its sockets", || udp_sockets(port) == 6);
        engine.reload(other).unwrap();
        wait_until("the other one is closed", || udp_sockets(port) == 4);
        block_on(engine.stop(Duration::ZERO));
    }

    #[test]
    fn a_worker_that_dies_costs_its_own_http3_connections_only() {
        let (plan, tls) = http3_plan(2);
        let engine = Engine::start(plan).unwrap();
        block_on(async {
            let mut connections = open_on_each_worker(&engine, &tls, 3).await;
            for (restarts, index) in [(1, 0), (1, 1), (2, 0)] {
                let _ = engine.shared.lock().workers[index]
                    .commands
                    .send(WorkerCommand::Die);
                eventually("another worker", || {
                    engine.status().workers[index].restarts == restarts
                })
                .await;
                for other in &connections[1 - index] {
                    let name = worker_of(other).await.unwrap();
                    assert_eq!(name, format!("apus-worker-{}", 1 - index));
                }
                let began = Instant::now();
                for lost in &connections[index] {
                    worker_of(lost).await.unwrap_err();
                    assert!(lost.is_closed());
                }
                // By stateless resets, and not by the idle time-out.
                assert!(began.elapsed() < Duration::from_secs(10));
                connections[index].clear();
                // New connections reach both.
                let [first, second] = open_on_each_worker(&engine, &tls, 3).await;
                connections[0].extend(first);
                connections[1].extend(second);
            }
            let plan = EnginePlan::clone(&engine.shared.lock().plan);
            engine.reload(plan).unwrap();
            for connection in connections.iter().flatten() {
                worker_of(connection).await.unwrap();
            }
        });
    }

    #[test]
    fn a_worker_that_dies_is_replaced_on_the_same_sockets() {
        let id = |request: apus_http::Request| {
            Response::text(StatusCode::OK, format!("id {}", request.connection().id)).into()
        };
        let address = ListenAddress::tcp(([127, 0, 0, 1], 0));
        let listener = ListenerPlan::new(address, Arc::new(move || service_fn(id)));
        let engine = Engine::start(EnginePlan::new(NonZeroUsize::MIN, vec![listener])).unwrap();
        let before = get(&engine).unwrap();
        for restarts in 1..=3 {
            let _ = engine.shared.lock().workers[0]
                .commands
                .send(WorkerCommand::Die);
            let start = Instant::now();
            while engine.status().workers[0].restarts < restarts {
                assert!(start.elapsed() < Duration::from_secs(20));
                thread::park_timeout(Duration::from_millis(5));
            }
            // A client that connects meanwhile waits in the queue of the socket.
            let after = get(&engine).unwrap();
            assert!(after.starts_with("HTTP/1.1 200 OK"), "{after}");
            assert_ne!(
                before.lines().last(),
                after.lines().last(),
                "a number came again"
            );
        }
        let plan = EnginePlan::clone(&engine.shared.lock().plan);
        engine.reload(plan).unwrap();
        assert!(get(&engine).is_ok());
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        // Of the workers that died, only the last one may still be ending.
        assert!(engine.shared.lock_threads().len() <= 2);
        runtime.block_on(engine.stop(Duration::from_secs(20)));
        assert!(engine.status().listening.is_empty());
        engine.join();
        assert!(engine.shared.lock_threads().is_empty());
    }
}
