//! A worker on the thread of its caller, inside a loop of the program.
//!
//! Its runtime is never waited for. The descriptor of its epoll instance is readable when there is work, so that the loop of the
//! program can wait for it, beside its own descriptors.

use std::cell::Cell;
use std::fs;
use std::future::{Future, poll_fn};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use apus_transport::TICK;
use rustix::event::{EventfdFlags, eventfd};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;

use crate::counters::{WorkerCounters, WorkerStatus};
use crate::engine::{EngineStartError, EngineStatus, bind, sockets_of};
use crate::h3::Http3Sockets;
use crate::listen::{BoundAddress, PortSharing};
use crate::plan::EnginePlan;
use crate::run::{self, WorkerCommand, WorkerSetup};

/// A worker that runs on the thread of its caller, which calls [`EmbeddedWorker::step`] when [`EmbeddedWorker::fd`] is readable, and
/// at least after [`EmbeddedWorker::MAX_WAIT`].
///
/// It is created and used by one thread. A process that forks creates it in the child: several processes of one user may listen on
/// one address.
pub struct EmbeddedWorker {
    // The order is that in which they are dropped: tasks need the runtime.
    tasks: LocalSet,
    runtime: Runtime,
    waker: Arc<StepWaker>,
    epoll: RawFd,
    commands: mpsc::UnboundedSender<WorkerCommand>,
    counters: Arc<WorkerCounters>,
    bound: Vec<Arc<BoundAddress>>,
    has_ended: Rc<Cell<bool>>,
}

/// Wakes the runtime of a worker, and remembers that it did.
#[derive(Default)]
struct StepWaker {
    is_woken: AtomicBool,
    runtime: OnceLock<Waker>,
}

impl Wake for StepWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        if let Some(runtime) = self.runtime.get() {
            runtime.wake_by_ref();
        }
    }
}

impl EmbeddedWorker {
    /// The longest time between two steps: deadlines of clients are checked at this interval.
    pub const MAX_WAIT: Duration = TICK;

    /// Starts a plan with this thread as its only worker. It accepts connections when this returns, and serves them in
    /// [`Self::step`].
    ///
    /// # Errors
    /// An address cannot be bound, or the runtime cannot be created.
    pub fn start(mut plan: EnginePlan) -> Result<Self, EngineStartError> {
        plan.workers = NonZeroUsize::MIN;
        let bound = bind(&plan, &[], None, PortSharing::Processes)?;
        let plan = Arc::new(plan);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // As for other workers: threads for cold files and compression must not take the time of the program.
            .max_blocking_threads(8)
            .build()
            .map_err(EngineStartError::worker)?;
        let epoll = epoll_of(&runtime).map_err(EngineStartError::worker)?;
        let tasks = LocalSet::new();
        let counters = Arc::new(WorkerCounters::default());
        let (commands, receiver) = mpsc::unbounded_channel();
        let setup = WorkerSetup {
            index: 0,
            counters: Arc::clone(&counters),
            all: Arc::default(),
            commands: receiver,
        };
        let has_ended = Rc::new(Cell::new(false));
        let ended = Rc::clone(&has_ended);
        let (done, is_done) = oneshot::channel();
        {
            let _entered = runtime.enter();
            let mut http3 = Http3Sockets::new(&plan).map_err(EngineStartError::worker)?;
            let mut quic = http3.bind(&plan, &bound, None);
            let sockets = sockets_of(0, &bound, quic.of_next_worker())?;
            http3.commit(quic);
            let _ = commands.send(WorkerCommand::Run {
                plan,
                sockets,
                done,
            });
        }
        tasks.spawn_local(async move {
            run::run(setup).await;
            ended.set(true);
        });
        let started = runtime.block_on(tasks.run_until(is_done));
        let started = started.unwrap_or_else(|_| Err(io::Error::other("the worker died")));
        started.map_err(EngineStartError::worker)?;
        let mut worker = Self {
            tasks,
            runtime,
            waker: Arc::default(),
            epoll,
            commands,
            counters,
            bound,
            has_ended,
        };
        // From now on the descriptor shows that there is work.
        worker.step();
        Ok(worker)
    }

    /// The descriptor that is readable when there is work. It belongs to the worker.
    pub fn fd(&self) -> RawFd {
        self.epoll
    }

    /// Does all that there is to do, without waiting. Returns false once a stop has ended.
    pub fn step(&mut self) -> bool {
        let Self {
            tasks,
            runtime,
            waker,
            ..
        } = self;
        let tasks_waker = Waker::from(Arc::clone(waker));
        let mut parking = pin!(None);
        runtime.block_on(poll_fn(|cx| {
            waker.runtime.get_or_init(|| cx.waker().clone());
            loop {
                match parking.as_mut().as_pin_mut() {
                    // Events that the runtime finds now wake the tasks.
                    Some(parked) => match Future::poll(parked, cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(()) => {
                            parking.set(None);
                            if !waker.is_woken.load(Ordering::Acquire) {
                                return Poll::Ready(());
                            }
                        }
                    },
                    None => {
                        waker.is_woken.store(false, Ordering::Release);
                        let mut tasks_cx = Context::from_waker(&tasks_waker);
                        let _ = Pin::new(&mut *tasks).poll(&mut tasks_cx);
                        parking.set(Some(tokio::task::yield_now()));
                    }
                }
            }
        }));
        !self.has_ended.get()
    }

    /// Begins to stop: accepts nothing more, and lets open requests end within the time, while [`Self::step`] is called.
    pub fn stop(&mut self, within: Duration) {
        let _ = self.commands.send(WorkerCommand::Stop { within });
        self.bound.clear();
    }

    /// The current state.
    pub fn status(&self) -> EngineStatus {
        EngineStatus {
            workers: vec![WorkerStatus {
                index: 0,
                core: None,
                restarts: 0,
                totals: self.counters.read(),
            }],
            listening: self
                .bound
                .iter()
                .map(|bound| bound.local().clone())
                .collect(),
        }
    }
}

impl std::fmt::Debug for EmbeddedWorker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EmbeddedWorker").finish_non_exhaustive()
    }
}

/// The descriptor of the epoll instance of a runtime, which tokio does not tell: the one that has a descriptor of ours.
fn epoll_of(runtime: &Runtime) -> io::Result<RawFd> {
    let _entered = runtime.enter();
    let ours: OwnedFd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let number = ours.as_raw_fd();
    // SAFETY: the descriptor is owned by what registers it, and stays open as long.
    let registered = unsafe { AsyncFd::register(ours) }?;
    for entry in fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        // A descriptor of another thread may be closed meanwhile.
        let Ok(info) = fs::read_to_string(entry.path()) else {
            continue;
        };
        let mut targets = info.lines().filter_map(|line| line.strip_prefix("tfd:"));
        let is_found = targets.any(|target| {
            let target = target.split_whitespace().next();
            target.and_then(|target| target.parse().ok()) == Some(number)
        });
        let fd = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let (true, Some(fd)) = (is_found, fd) {
            drop(registered);
            return Ok(fd);
        }
    }
    Err(io::Error::other(
        "the epoll instance of the runtime is not in /proc/self/fdinfo: mount /proc",
    ))
}
