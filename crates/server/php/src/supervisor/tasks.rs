//! The tasks and timers of an application, which wait for a worker in the same queue as requests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use apus_http::{Body, Interim, Method};
use bytes::Bytes;

use crate::error::WorkerError;
use crate::exchange::WorkerExchange;
use crate::request::{WorkerRequestBody, WorkerRequestHead, head};
use crate::response_body::response_body;
use crate::shared::{SharedPool, increment};
use crate::supervisor_message::SupervisorMessage;
use crate::task::{Task, TaskKind, TaskResult};
use crate::wire::RequestFrame;

/// Waiting tasks, and timers.
pub(super) struct Tasks {
    shared: Arc<SharedPool>,
    waiting: VecDeque<Task>,
    timers: Vec<Timer>,
    running: usize,
    last_id: u64,
}

struct Timer {
    name: Bytes,
    every: Duration,
    next: Instant,
    is_running: bool,
}

/// The delay before a task that found no worker is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The minimum interval of a timer.
const MIN_TIMER_INTERVAL: Duration = Duration::from_millis(100);

impl Tasks {
    pub(super) fn new(shared: &Arc<SharedPool>) -> Self {
        Self {
            shared: Arc::clone(shared),
            waiting: VecDeque::new(),
            timers: Vec::new(),
            running: 0,
            last_id: 0,
        }
    }

    /// Adds a task, or drops it if too many wait.
    pub(super) fn push(&mut self, name: Bytes, payload: Bytes, delay: Duration) {
        if self.waiting.len() >= self.shared.plan.tasks {
            increment(&self.shared.counters.tasks_dropped);
            tracing::error!(
                pool = &*self.shared.plan.name,
                task = %name.escape_ascii(),
                waiting = self.waiting.len(),
                "too many tasks wait: a task is dropped"
            );
            return;
        }
        self.last_id += 1;
        self.waiting.push_back(Task {
            name,
            payload,
            due: Instant::now() + delay,
            kind: TaskKind::Task { id: self.last_id },
        });
        self.start();
    }

    /// Replaces the timers by the timers of a newly booted application.
    pub(super) fn set_timers(&mut self, timers: &[(String, u32)]) {
        let now = Instant::now();
        let mut before = std::mem::take(&mut self.timers);
        for (name, milliseconds) in timers {
            let every = Duration::from_millis(u64::from(*milliseconds)).max(MIN_TIMER_INTERVAL);
            let existing = before
                .iter()
                .position(|timer| timer.name == name.as_bytes() && timer.every == every);
            // A timer that exists already does not restart with each worker.
            self.timers.push(match existing {
                Some(index) => before.swap_remove(index),
                None => Timer {
                    name: name.clone().into(),
                    every,
                    next: now + every,
                    is_running: false,
                },
            });
        }
    }

    /// Starts due timers and tasks.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        for timer in &mut self.timers {
            if now < timer.next {
                continue;
            }
            timer.next = now + timer.every;
            // A timer whose call takes longer than its interval skips calls meanwhile.
            if !std::mem::replace(&mut timer.is_running, true) {
                self.waiting.push_back(Task {
                    name: timer.name.clone(),
                    payload: Bytes::new(),
                    due: now,
                    kind: TaskKind::Timer,
                });
            }
        }
        self.start();
    }

    /// When the next task or timer that can start is due.
    pub(super) fn next(&self) -> Option<Instant> {
        let waiting = self.waiting.iter().map(|task| task.due);
        // At the limit, the end of a task starts the next one.
        let waiting = waiting.filter(|_| self.running < self.max_running());
        waiting
            .chain(self.timers.iter().map(|timer| timer.next))
            .min()
    }

    /// The maximum number of tasks that run at the same time: half of the workers.
    fn max_running(&self) -> usize {
        (self.shared.plan.max / 2).max(1)
    }

    pub(super) fn done(&mut self, result: TaskResult) {
        self.running = self.running.saturating_sub(1);
        let TaskResult {
            mut task,
            is_unprocessed,
        } = result;
        if is_unprocessed {
            task.due = Instant::now() + RETRY_DELAY;
            self.waiting.push_front(task);
        } else if task.kind == TaskKind::Timer
            && let Some(timer) = self.timers.iter_mut().find(|timer| timer.name == task.name)
        {
            timer.is_running = false;
        }
        self.start();
    }

    /// Sends due tasks to workers.
    fn start(&mut self) {
        let now = Instant::now();
        while self.running < self.max_running()
            && let Some(index) = self.waiting.iter().position(|task| task.due <= now)
            && let Some(task) = self.waiting.remove(index)
        {
            self.running += 1;
            let shared = Arc::clone(&self.shared);
            tokio::task::spawn_local(async move {
                let is_unprocessed = perform(&shared, &task).await;
                shared.notify_supervisor(SupervisorMessage::TaskDone(TaskResult {
                    task,
                    is_unprocessed,
                }));
            });
        }
    }
}

/// Runs a task on a worker. Returns whether no worker began it.
async fn perform(shared: &Arc<SharedPool>, task: &Task) -> bool {
    let failed = |cause: &dyn std::fmt::Display| {
        tracing::error!(
            pool = &*shared.plan.name,
            task = %task.name.escape_ascii(),
            %cause,
            "a task failed"
        );
    };
    let mut message = RequestFrame::event(64);
    match task.kind {
        TaskKind::Task { id } => {
            message.push(b"kind", b"task");
            message.push(b"id", id.to_string().as_bytes());
        }
        TaskKind::Timer => message.push(b"kind", b"timer"),
    }
    message.push_target(b"name", &task.name);
    let body = WorkerRequestBody::Inline([task.payload.clone()].into_iter().collect());
    if let Err(error) = message.finish(body.transfer(), false) {
        failed(&error);
        return false;
    }
    let lease = match shared.lease().await {
        Ok(lease) => lease,
        Err(WorkerError::Stopping) => return false,
        Err(_) => return true,
    };
    let Some(connection) = lease.begin() else {
        return true;
    };
    let request = WorkerRequestHead {
        message,
        method: Method::POST,
        id: None,
        socket: None,
        interim: Interim::default(),
    };
    let exchange = WorkerExchange::new(Arc::clone(shared), connection, request, body);
    let (exchange, response) = match exchange.run().await {
        Ok(responded) => responded,
        Err(failed_exchange) if failed_exchange.is_unprocessed => return true,
        Err(failed_exchange) => {
            failed(&failed_exchange.error);
            return false;
        }
    };
    let head = match head(&response, false) {
        Ok(head) => head,
        Err(error) => {
            failed(&error);
            return false;
        }
    };
    if !head.status.is_success() {
        failed(&format_args!("status {}", head.status.as_u16()));
    }
    let mut body: Body = response_body(exchange, head.body, &response);
    while let Some(Ok(_)) = body.frame().await {}
    false
}
