//! Work on a worker: functions that other threads post, and timers.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use apus::tokio;
use tokio::task::JoinHandle;

use crate::callback::ApusTaskFn;
use crate::error::{ApusStatus, CallError};
use crate::ffi::{object, protect, status};
use crate::user::UserPointer;

/// A function for a worker.
type PostedTask = Box<dyn FnOnce() + Send>;

/// A handle of a worker, to run functions on it.
#[derive(Clone, Debug)]
pub struct ApusExecutor {
    queue: Arc<WorkerQueue>,
    thread: ThreadId,
}

/// The functions that were posted to a worker.
#[derive(Debug)]
struct WorkerQueue(Mutex<QueueState>);

struct QueueState {
    phase: QueuePhase,
    tasks: VecDeque<PostedTask>,
    /// Of the worker that waits for functions.
    waker: Option<Waker>,
    /// Whether a thread runs what came after the end of the worker.
    is_finishing: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueuePhase {
    /// It runs what is posted.
    Running,
    /// It runs nothing any more. Parts of its requests may be left on its thread.
    Ended,
    /// Its thread has ended, and nothing is left there.
    Gone,
}

impl std::fmt::Debug for QueueState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueState")
            .field("phase", &self.phase)
            .field("tasks", &self.tasks.len())
            .finish_non_exhaustive()
    }
}

thread_local! {
    static CURRENT: RefCell<Option<ApusExecutor>> = const { RefCell::new(None) };
    /// The times at which timers are due, with how many.
    static DUE: RefCell<BTreeMap<Instant, usize>> = const { RefCell::new(BTreeMap::new()) };
}

impl WorkerQueue {
    fn new() -> Self {
        Self(Mutex::new(QueueState {
            phase: QueuePhase::Running,
            tasks: VecDeque::new(),
            waker: None,
            is_finishing: false,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_running(&self) -> bool {
        self.lock().phase == QueuePhase::Running
    }

    /// Runs what came after the end of the worker on this thread, one after another: no two threads touch what belonged to it.
    fn finish(&self) {
        if std::mem::replace(&mut self.lock().is_finishing, true) {
            // The thread that does so runs the rest as well.
            return;
        }
        loop {
            let mut state = self.lock();
            let Some(task) = state.tasks.pop_front() else {
                state.is_finishing = false;
                return;
            };
            drop(state);
            task();
        }
    }
}

/// Runs the functions of a queue on its worker.
struct RunQueue(Arc<WorkerQueue>);

impl Future for RunQueue {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        // What these functions post wakes it again, after the other tasks of the worker.
        state.waker = Some(cx.waker().clone());
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        for task in tasks {
            task();
        }
        Poll::Pending
    }
}

impl Drop for RunQueue {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.phase = QueuePhase::Ended;
        state.waker = None;
        let tasks = std::mem::take(&mut state.tasks);
        drop(state);
        drop(tasks);
    }
}

/// The workers of a server.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerWorkers(Arc<Mutex<Vec<Arc<WorkerQueue>>>>);

impl ServerWorkers {
    /// Makes this thread, in the runtime of a worker, run the functions that are posted to it.
    pub(crate) fn enter(&self) {
        let current = CURRENT.with_borrow(|current| current.clone());
        if let Some(current) = current {
            if current.queue.is_running() {
                return;
            }
            current.queue.finish();
        }
        let queue = Arc::new(WorkerQueue::new());
        self.lock().push(queue.clone());
        CURRENT.set(Some(ApusExecutor {
            queue: queue.clone(),
            thread: std::thread::current().id(),
        }));
        tokio::task::spawn_local(RunQueue(queue));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<WorkerQueue>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees what came back after the end of the workers, and what will come, at once. The threads of all of them have ended.
    pub(crate) fn are_gone(&self) {
        let queues = std::mem::take(&mut *self.lock());
        for queue in queues {
            queue.lock().phase = QueuePhase::Gone;
            queue.finish();
        }
    }
}

/// Frees what came back after the end of the worker of this thread.
pub(crate) fn finish_worker_of_thread() {
    if let Some(current) = CURRENT.with_borrow(|current| current.clone())
        && !current.queue.is_running()
    {
        current.queue.finish();
    }
}

/// The executor of this thread, if it is a worker.
pub(crate) fn current() -> Option<ApusExecutor> {
    let current = CURRENT.try_with(|current| current.borrow().clone()).ok()?;
    current.filter(|executor| executor.queue.is_running())
}

/// The executor of this thread, which has to be a worker.
pub(crate) fn current_worker() -> Result<ApusExecutor, CallError> {
    current().ok_or_else(|| CallError::thread("the thread of a worker"))
}

impl ApusExecutor {
    /// Runs a function on the worker. `Err` has the function if the worker has ended.
    fn post(&self, task: PostedTask) -> Result<(), PostedTask> {
        let mut state = self.queue.lock();
        if state.phase != QueuePhase::Running {
            return Err(task);
        }
        state.tasks.push_back(task);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Runs a function, which frees what belongs to the worker, on that; or, once it has ended, where nothing of it is left.
    pub(crate) fn give_back(&self, task: PostedTask) {
        let Err(task) = self.post(task) else { return };
        let mut state = self.queue.lock();
        state.tasks.push_back(task);
        let is_gone = state.phase == QueuePhase::Gone;
        drop(state);
        if is_gone {
            self.queue.finish();
        }
    }

    /// Whether this thread is the worker.
    pub(crate) fn is_here(&self) -> bool {
        self.thread == std::thread::current().id()
    }
}

/// The time until the first timer of this thread is due.
pub(crate) fn next_timer() -> Option<Duration> {
    let first = DUE.with_borrow(|due| due.first_key_value().map(|(at, _)| *at));
    first.map(|at| at.saturating_duration_since(Instant::now()))
}

/// The handle of the worker of this thread. Free it by apus_executor_free(). NULL is an error (APUS_THREAD: this thread is
/// not a worker).
#[unsafe(no_mangle)]
pub extern "C" fn apus_executor_current() -> Option<Box<ApusExecutor>> {
    object("apus_executor_current", current_worker)
}

/// Runs a function on the worker soon. From any thread. Errors: APUS_INVALID; APUS_CLOSED if the worker has ended: the
/// function is not called then.
#[unsafe(no_mangle)]
pub extern "C" fn apus_executor_post(
    executor: Option<&ApusExecutor>,
    task: ApusTaskFn,
    user: *mut c_void,
) -> ApusStatus {
    status("apus_executor_post", || {
        let executor = executor.ok_or_else(|| CallError::null("executor"))?;
        let task = task.ok_or_else(|| CallError::null("task"))?;
        let user = UserPointer(user);
        let posted = executor.post(Box::new(move || {
            let user = user;
            task(user.0);
        }));
        posted.map_err(|_| {
            CallError::new(
                ApusStatus::Closed,
                "a worker that runs",
                "one that has ended",
                "free what the function would have used",
            )
        })
    })
}

/// Frees a handle. From any thread. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_executor_free(executor: Option<Box<ApusExecutor>>) {
    protect("apus_executor_free", || drop(executor));
}

/// A timer of a worker.
#[derive(Debug)]
pub struct ApusTimer {
    is_stopped: Rc<Cell<bool>>,
    task: JoinHandle<()>,
    thread: ThreadId,
}

/// A time at which a timer is due, for loops of the program that have to know the first one.
struct DueTime(Instant);

impl DueTime {
    fn new(at: Instant) -> Self {
        DUE.with_borrow_mut(|due| {
            let count = due.entry(at).or_insert(0);
            *count = count.saturating_add(1);
        });
        Self(at)
    }
}

impl Drop for DueTime {
    fn drop(&mut self) {
        // The thread may be ending, with its thread-local storage destroyed.
        let _ = DUE.try_with(|due| {
            let mut due = due.borrow_mut();
            match due.get_mut(&self.0) {
                Some(count) if *count > 1 => *count = count.saturating_sub(1),
                _ => {
                    due.remove(&self.0);
                }
            }
        });
    }
}

/// The longest time of a timer.
const MAX_TIMER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Calls a function on the worker of this thread after `after_ms` milliseconds, and then every `every_ms` (0: once). The
/// timer belongs to the caller; apus_timer_free() stops it. NULL is an error (APUS_INVALID, APUS_THREAD).
#[unsafe(no_mangle)]
pub extern "C" fn apus_timer_start(
    after_ms: u64,
    every_ms: u64,
    task: ApusTaskFn,
    user: *mut c_void,
) -> Option<Box<ApusTimer>> {
    object("apus_timer_start", || {
        let task = task.ok_or_else(|| CallError::null("task"))?;
        let executor = current_worker()?;
        if tokio::runtime::Handle::try_current().is_err() {
            return Err(CallError::thread("a handler or callback of a worker"));
        }
        let every = Duration::from_millis(every_ms).min(MAX_TIMER);
        let is_stopped = Rc::new(Cell::new(false));
        let stopped = is_stopped.clone();
        let mut at = Instant::now() + Duration::from_millis(after_ms).min(MAX_TIMER);
        let task = tokio::task::spawn_local(async move {
            loop {
                let due = DueTime::new(at);
                tokio::time::sleep_until(at.into()).await;
                drop(due);
                if stopped.get() {
                    return;
                }
                task(user);
                if stopped.get() || every.is_zero() {
                    return;
                }
                at = (at + every).max(Instant::now());
            }
        });
        Ok(ApusTimer {
            is_stopped,
            task,
            thread: executor.thread,
        })
    })
}

/// Stops a timer and frees it: its function is not called any more. On the worker on which it was started, also in its own
/// function. NULL is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn apus_timer_free(timer: Option<Box<ApusTimer>>) {
    status("apus_timer_free", || {
        let Some(timer) = timer else { return Ok(()) };
        if timer.thread != std::thread::current().id() {
            // Its parts belong to the worker: they are not touched, and the timer goes on.
            std::mem::forget(timer);
            return Err(CallError::thread("the worker of the timer"));
        }
        timer.is_stopped.set(true);
        timer.task.abort();
        Ok(())
    });
}
