//! The engine, which starts workers, gives them plans, replaces those that die, and stops them.

use std::fmt;
use std::io;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::sync::{mpsc, oneshot, watch};

use crate::connection_table::ConnectionCount;
use crate::counters::{WorkerCounters, WorkerStatus, WorkerTotals};
use crate::listen::{Binder, BoundAddress};
use crate::plan::{EnginePlan, ListenAddress};
use crate::run::{self, WorkerCommand, WorkerEnd, WorkerSetup};
use crate::scheduler;

/// The running engine. Dropping it stops the workers at once.
pub struct Engine {
    shared: Arc<EngineShared>,
    ended: watch::Receiver<usize>,
}

struct EngineShared {
    state: Mutex<EngineState>,
    all: Arc<ConnectionCount>,
    ended: watch::Sender<usize>,
    /// The cores that this process may use.
    cores: CpuSet,
    /// Binds addresses that this process may not use.
    binder: Option<Arc<dyn Binder>>,
}

struct EngineState {
    plan: Arc<EnginePlan>,
    bound: Vec<Arc<BoundAddress>>,
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

    /// As [`Engine::start`]; `binder` binds addresses that this process may not use, also after a reload.
    ///
    /// # Errors
    /// As [`Engine::start`].
    pub fn start_with(
        plan: EnginePlan,
        binder: Option<Arc<dyn Binder>>,
    ) -> Result<Self, EngineStartError> {
        let bound = bind(&plan, &[], binder.as_deref())?;
        let (ended, receiver) = watch::channel(0);
        let shared = Arc::new(EngineShared {
            state: Mutex::new(EngineState {
                plan: Arc::new(plan),
                bound,
                workers: Vec::new(),
                stopping: false,
            }),
            all: Arc::default(),
            ended,
            cores: sched_getaffinity(None).unwrap_or_default(),
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
            let core = cores.get(index % cores.len().max(1)).copied();
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
        state.hand_out(&Arc::clone(&state.plan), &state.bound)?;
        drop(state);
        Ok(engine)
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
            plan.workers = workers;
        }
        let bound = bind(&plan, &state.bound, self.shared.binder.as_deref())?;
        for fresh in &bound {
            fresh.set_mode().map_err(|source| EngineStartError {
                address: Some(fresh.address().clone()),
                source,
            })?;
        }
        let plan = Arc::new(plan);
        state.hand_out(&plan, &bound)?;
        state.plan = plan;
        // The sockets of removed listeners close here, after the workers emptied their queues.
        state.bound = bound;
        Ok(())
    }

    /// Stops the engine: connections get their responses within the time, and are closed then.
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
}

impl EngineState {
    /// Gives every worker the plan, and waits until it is in force everywhere.
    fn hand_out(
        &self,
        plan: &Arc<EnginePlan>,
        bound: &[Arc<BoundAddress>],
    ) -> Result<(), EngineStartError> {
        let mut waiting = Vec::with_capacity(self.workers.len());
        for (index, worker) in self.workers.iter().enumerate() {
            waiting.push(run_plan(&worker.commands, index, plan, bound)?);
        }
        for done in waiting {
            match wait_blocking(done) {
                Some(result) => result.map_err(EngineStartError::worker)?,
                None => return Err(EngineStartError::worker(io::Error::other("a worker died"))),
            }
        }
        Ok(())
    }
}

type PlanReceipt = oneshot::Receiver<io::Result<()>>;

fn run_plan(
    commands: &mpsc::UnboundedSender<WorkerCommand>,
    index: usize,
    plan: &Arc<EnginePlan>,
    bound: &[Arc<BoundAddress>],
) -> Result<PlanReceipt, EngineStartError> {
    let sockets = bound
        .iter()
        .map(|bound| bound.socket(index))
        .collect::<io::Result<_>>()
        .map_err(EngineStartError::worker)?;
    let (done, waiting) = oneshot::channel();
    let _ = commands.send(WorkerCommand::Run {
        plan: Arc::clone(plan),
        sockets,
        done,
    });
    Ok(waiting)
}

/// Waits for a worker, even on a thread that runs a runtime of its own: workers reply within moments, and
/// nothing else happens while a plan changes.
fn wait_blocking(done: PlanReceipt) -> Option<io::Result<()>> {
    thread::scope(|scope| {
        scope
            .spawn(|| done.blocking_recv().ok())
            .join()
            .ok()
            .flatten()
    })
}

/// Binds the addresses of the plan, in its order, and reuses the sockets that exist.
fn bind(
    plan: &EnginePlan,
    existing: &[Arc<BoundAddress>],
    binder: Option<&dyn Binder>,
) -> Result<Vec<Arc<BoundAddress>>, EngineStartError> {
    plan.listeners
        .iter()
        .map(|listener| {
            let address = &listener.address;
            if let Some(bound) = existing.iter().find(|bound| bound.address() == address) {
                return Ok(Arc::clone(bound));
            }
            existing
                .iter()
                .find_map(|bound| bound.with_other_mode(address))
                .unwrap_or_else(|| BoundAddress::new(address, plan.workers.get(), existing, binder))
                .map(Arc::new)
                .map_err(|source| EngineStartError {
                    address: Some(address.clone()),
                    source,
                })
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
    let shared = Arc::clone(shared);
    let all_cores = shared.cores;
    thread::Builder::new()
        .name(format!("apus-worker-{index}"))
        .spawn(move || {
            if let Some(core) = core {
                pin(core);
            }
            // The first random number of a process takes tens of milliseconds, in which entropy is gathered.
            // No request should wait for it.
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
                WorkerEnd::Stopped => shared.ended.send_modify(|ended| *ended += 1),
                WorkerEnd::Failed => replace(&shared, index),
            }
        })
        .map_err(EngineStartError::worker)?;
    Ok(sender)
}

/// Starts a worker in place of one that died, on the same sockets: it serves the clients that wait in their
/// queues.
fn replace(shared: &Arc<EngineShared>, index: usize) {
    let mut state = shared.lock();
    if state.stopping {
        shared.ended.send_modify(|ended| *ended += 1);
        return;
    }
    let (plan, bound) = (Arc::clone(&state.plan), state.bound.clone());
    let Some(worker) = state.workers.get_mut(index) else {
        return;
    };
    tracing::error!(
        worker = index,
        "a worker died and is replaced; its connections are lost"
    );
    worker.restarts.fetch_add(1, Ordering::Relaxed);
    let started = spawn(shared, index, worker.core, Arc::clone(&worker.counters))
        .and_then(|commands| run_plan(&commands, index, &plan, &bound).map(|_| commands));
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
    fn worker(source: io::Error) -> Self {
        Self {
            address: None,
            source,
        }
    }

    /// The address that cannot be bound, if that is the cause.
    pub fn address(&self) -> Option<&ListenAddress> {
        self.address.as_ref()
    }

    /// Advice for the operator, if the cause is known.
    pub fn advice(&self) -> Option<String> {
        let Some(ListenAddress::Tcp { address, .. }) = &self.address else {
            return None;
        };
        let port = address.port();
        match self.source.kind() {
            io::ErrorKind::AddrInUse => Some(format!(
                "another process has port {port}, which `ss -ltnp` names: stop it or listen elsewhere"
            )),
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
    use std::time::Instant;

    use apus_http::{Response, StatusCode, service_fn};

    use super::*;
    use crate::limits::Limits;
    use crate::plan::ListenerPlan;

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

    #[test]
    fn a_worker_that_dies_is_replaced_on_the_same_sockets() {
        let id = |request: apus_http::Request| {
            Response::text(StatusCode::OK, format!("id {}", request.connection().id)).into()
        };
        let engine = Engine::start(EnginePlan {
            workers: NonZeroUsize::MIN,
            limits: Limits::default(),
            server_field: None,
            listeners: vec![ListenerPlan {
                address: ListenAddress::Tcp {
                    address: ([127, 0, 0, 1], 0).into(),
                    ipv6_only: false,
                },
                tls: None,
                http2: true,
                proxy_protocol_from: Vec::new(),
                service: Arc::new(move || service_fn(id)),
            }],
        })
        .unwrap();
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
        runtime.block_on(engine.stop(Duration::from_secs(20)));
        assert!(engine.status().listening.is_empty());
    }
}
